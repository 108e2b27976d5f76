"""The log of a platform: a file of bounded size that only its owner reads, and what of it a person should see."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from newsstand.errors import BadOption

PROBLEMS = ("warning", "error", "critical")


@dataclass(frozen=True)
class LogFileLimits:
    """The size of a log."""

    file_bytes: int = 16 * 2**20
    older_files: int = 4
    """Files that are kept beside the current one."""


class LogFile:
    """FILE, and FILE.1 to FILE.4 with what came before, the oldest last."""

    def __init__(
        self,
        file: Path,
        say: Callable[[str], None],
        limits: LogFileLimits = LogFileLimits(),  # noqa: B008  it is frozen
    ) -> None:
        self._file, self._say, self._limits = file, say, limits
        self._fails = self._closed = False
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._descriptor: int | None = self._open()
        except OSError as error:
            raise BadOption(f"the log {file}: cannot be written ({error.strerror})") from error

    def write(self, line: bytes) -> None:
        """Append a line. A full disk does not stop the platform: it is reported, and the line is lost."""
        if self._closed:
            return
        try:
            if self._size and self._size + len(line) > self._limits.file_bytes:
                self._rotate()
            if self._descriptor is None:
                self._descriptor = self._open()
            os.write(self._descriptor, line)
            self._size += len(line) if self._is_regular else 0
            self._fails = False
        except BrokenPipeError:
            pass  # nobody reads the log any more; the platform goes on
        except OSError as error:
            if not self._fails:
                self._say(f"newsstand: the log {self._file} cannot be written ({error.strerror}); lines are lost")
            self._fails = True

    def close(self) -> None:
        """Close the file; what is written later is dropped."""
        self._closed = True
        self._release()

    def _release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _open(self) -> int:
        descriptor = os.open(self._file, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        found = os.fstat(descriptor)
        self._is_regular = stat.S_ISREG(found.st_mode)
        self._size = found.st_size if self._is_regular else 0
        if self._is_regular:
            with suppress(PermissionError):  # somebody else's file stays as it is
                os.fchmod(descriptor, 0o600)
        return descriptor

    def _rotate(self) -> None:
        numbers = range(1, self._limits.older_files + 1)
        names = [self._file, *(self._file.with_name(f"{self._file.name}.{number}") for number in numbers)]
        for newer, older in reversed(list(pairwise(names))):
            with suppress(FileNotFoundError):
                newer.replace(older)
        self._release()
        self._descriptor = self._open()


@dataclass(frozen=True)
class ProblemLimits:
    """Limits of reports on the terminal."""

    repeat_s: float = 60.0
    """Seconds after which the same problem is reported again."""
    chars: int = 300
    """Characters of a problem; the log has all."""


class Problems:
    """Reports each warning and error of the log in one line, the same one at most once a minute."""

    def __init__(
        self,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        limits: ProblemLimits = ProblemLimits(),  # noqa: B008  it is frozen
    ) -> None:
        self._limits = limits
        self._say = say
        self._clock = clock
        self._reported_at: dict[str, float] = {}

    def look(self, component: str, line: bytes) -> None:
        """Examine a line that a process has logged."""
        text = line.decode(errors="replace")
        if not is_problem(text):
            return
        report = f"newsstand: {component}: {plain(text)[: self._limits.chars]}"
        same, now = re.sub(r"\d+", "0", report), self._clock()
        self._reported_at = {one: at for one, at in self._reported_at.items() if now - at < self._limits.repeat_s}
        if same not in self._reported_at:
            self._reported_at[same] = now
            self._say(report)


def is_problem(line: str) -> bool:
    """Return whether a line is a warning or an error."""
    return _read(line).get("level") in PROBLEMS


def plain(line: str) -> str:
    """Return the level and the message of a line of JSON; return another line unchanged."""
    found = _read(line)
    if "level" in found and "message" in found:
        return f"{found['level']}: {' '.join(str(found['message']).split())}"
    return line.removeprefix("newsstand: ")


def _read(line: str) -> dict[str, object]:
    try:
        found = json.loads(line) if line.startswith("{") else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
