"""Files: JSON and TOML that people write, with errors of one line, and durable replacement of files."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from newsstand.errors import BadInput, BadNetwork

Json = object
"""A JSON value of any type."""


def read_text(path: Path) -> str:
    """Return the text of a file that describes a network, without the mark that some editors write before it."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise BadNetwork(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadNetwork(f"{path}: cannot be read ({reason})") from error


def read_object(path: Path) -> dict[str, Json]:
    """Return the object in a file; reject repeated names, and NaN and infinity."""
    try:
        found = json.loads(read_text(path), object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise BadNetwork(f"{path}: line {error.lineno}: not JSON ({error.msg})") from error
    except RecursionError:
        raise BadNetwork(f"{path}: JSON is nested too deeply") from None
    except ValueError as error:
        raise BadNetwork(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise BadNetwork(f"{path}: holds {kind(found)}, not an object")
    return found


def _once(pairs: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"'{name}' occurs twice")
        found[name] = value
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def kind(value: Json) -> str:
    """Describe the kind of a value in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return f"'{value}'"
    return "a list" if isinstance(value, list) else "an object"


@dataclass(frozen=True)
class JsonField:
    """A JSON value and its place in a file; its methods raise BadNetwork unless it has their type."""

    place: str
    value: Json

    def reject(self, what: str) -> NoReturn:
        raise BadNetwork(f"{self.place} {what}")

    def whole(self, least: int, most: int | None = None) -> int:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int):
            self.reject(f"is {kind(value)}, not a whole number")
        if value < least:
            self.reject(f"is {value}, which is below {least}")
        if most is not None and value > most:
            self.reject(f"is {value}, which is above {most}")
        return value

    def amount(self) -> int | float:
        """Return the value as a number that is not negative."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.reject(f"is {kind(value)}, not a number")
        if not math.isfinite(value):
            self.reject("is too large")
        if value < 0:
            self.reject(f"is {value}, which is negative")
        return value

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value:
            self.reject(f"is {kind(self.value)}, not a name")
        return self.value

    def items(self, length: int | None = None) -> list[JsonField]:
        if not isinstance(self.value, list):
            self.reject(f"is {kind(self.value)}, not a list")
        if length is not None and len(self.value) != length:
            self.reject(f"has {len(self.value)} values, not {length}")
        return [JsonField(f"{self.place}[{number}]", value) for number, value in enumerate(self.value)]

    def members(self) -> dict[str, JsonField]:
        if not isinstance(self.value, dict):
            self.reject(f"is {kind(self.value)}, not an object")
        return {name: JsonField(f"{self.place}.{name}", value) for name, value in self.value.items()}


FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""Error numbers of a full disk, an exhausted quota and a file that is too large."""


def write_atomically(path: Path, data: bytes) -> None:
    """Create or replace a durable file that only its owner can read; a crash leaves the old or the new content.

    A crash may also leave the unfinished file `.NAME.new`, which the next write replaces.
    """
    unfinished = _unfinished(path)
    with _locked(unfinished) as descriptor:
        try:
            _fill(descriptor, data)
            os.replace(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    sync_folder(path.parent)


def write_once(path: Path, data: bytes) -> bool:
    """Create a file as `write_atomically` does, unless there is one; return whether this call has created it."""
    unfinished = _unfinished(path)
    with _locked(unfinished) as descriptor:
        try:
            _fill(descriptor, data)
            os.link(unfinished, path)  # unlike a rename it never replaces a file
        except FileExistsError:
            return False
        finally:
            unfinished.unlink()
    sync_folder(path.parent)
    return True


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _fill(descriptor: int, data: bytes) -> None:
    """Replace the content of an open file, durably."""
    os.ftruncate(descriptor, 0)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.fsync(descriptor)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open a file, which is created if it does not exist, and lock it against other threads and processes."""
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The previous holder of the lock may have renamed or removed the file.
            if not _is_named(descriptor, path):
                continue
            if os.fstat(descriptor).st_nlink > 1:  # a crash in `write_once`: the file has its last name already
                path.unlink()
                continue
            os.fchmod(descriptor, 0o600)
            yield descriptor
            return
        finally:
            os.close(descriptor)


def _is_named(descriptor: int, path: Path) -> bool:
    """Return whether a path is a name of an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a durable folder, with those above it."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def read_toml(file: Path) -> dict[str, object]:
    """Read a TOML document; raise BadInput."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except RecursionError:
        raise BadInput(f"{file}: tables or arrays are nested too deeply") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{file}: is not TOML: {error}") from error
    except OSError as error:
        raise BadInput(f"{file}: cannot be read ({error.strerror})") from error


def toml_table(name: str, table: Mapping[str, object]) -> str:
    """Write a table of plain values.

    >>> print(toml_table("broker", {"name": "edge", "port": 8790, "limits": {"sockets": 5}}), end="")
    [broker]
    name = "edge"
    port = 8790
    limits = {"sockets" = 5}
    """
    return f"[{name}]\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in table.items())


def toml_value(value: object) -> str:
    """Write a plain value: strings, numbers and arrays as in JSON, a table as an inline table."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml_value(one)}" for key, one in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False, default=str)
