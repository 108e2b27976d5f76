"""The log of a platform: a file of bounded size that only its owner reads, and what of it a person should see."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from newsstand.errors import BadOption

LARGEST = 16 * 2**20
"""Bytes of one file."""
OLDER = 4
"""Files that are kept beside the current one."""
PROBLEMS = ("warning", "error", "critical")
AGAIN_S = 60.0
"""Seconds after which the same problem is told again."""
MOST_TOLD = 300
"""Characters of a problem; the log has all."""


class LogFile:
    """FILE, and FILE.1 to FILE.4 with what came before, the oldest last."""

    def __init__(self, file: Path, say: Callable[[str], None], largest: int = LARGEST, older: int = OLDER) -> None:
        self._file, self._say, self._largest, self._older = file, say, largest, older
        self._fails = self._closed = False
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._descriptor: int | None = self._open()
        except OSError as error:
            raise BadOption(f"the log {file}: cannot be written ({error.strerror})") from error

    def write(self, line: bytes) -> None:
        """Append a line. A disk that is full does not stop the platform: it is told, and the line is lost."""
        if self._closed:
            return
        try:
            if self._size and self._size + len(line) > self._largest:
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
        names = [self._file, *(self._file.with_name(f"{self._file.name}.{n + 1}") for n in range(self._older))]
        for newer, older in reversed(list(pairwise(names))):
            with suppress(FileNotFoundError):
                newer.replace(older)
        self._release()
        self._descriptor = self._open()


class Problems:
    """Tells warnings and errors of the log in one line each, the same one at most once a minute."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._told: dict[str, float] = {}

    def look(self, part: str, line: bytes) -> None:
        """Look at a line that a part has logged."""
        text = line.decode(errors="replace")
        if not is_problem(text):
            return
        told = f"newsstand: {part}: {plain(text)[:MOST_TOLD]}"
        same, now = re.sub(r"\d+", "0", told), self._clock()
        if now - self._told.get(same, -AGAIN_S) >= AGAIN_S:
            self._told = {one: at for one, at in self._told.items() if now - at < AGAIN_S} | {same: now}
            self._say(told)


def is_problem(line: str) -> bool:
    """Whether a part has logged a line as a warning or an error."""
    return _read(line).get("level") in PROBLEMS


def plain(line: str) -> str:
    """A line of a part for people: the level and the message of an object of JSON, else the line as it is."""
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
