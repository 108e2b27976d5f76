"""Files of records, split into batches for `newsstand publish`.

A batch has its place in the file, so that it has the same idempotency key whenever it is sent again.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import msgspec

from newsstand.config.files import write_atomically
from newsstand.errors import BadInput

MOST_BYTES = 4 * 2**20
"""The size of a batch, at most; a cluster accepts more."""

NO_FILE = -1
"""No file has this inode."""


@dataclass(frozen=True)
class RecordBatch:
    """Records to send in one request: those between two offsets of a file, and the number of each, from 1."""

    body: bytes
    form: str
    """`json` or `ndjson`."""
    numbers: range | tuple[int, ...]
    start: int
    end: int
    generation: int = 0
    """The number of files that had the name of a followed file before this one."""

    def key(self, source: str) -> str:
        """Return the idempotency key: the same for the same records at the same place of the same source."""
        text = f"{source}\0{self.generation}\0{self.start}\0{self.end}\0".encode()
        return hashlib.sha256(text + self.body).hexdigest()


def reject_csv(content: bytes, name: str, line: int = 1) -> None:
    """Raise BadInput if the first two lines of a file look like CSV; `line` is the number of the first."""
    first, *second = content.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 2)[:2]
    if not first or any(text.lstrip()[:1] in (b"{", b"[") for text in (first, *second)):
        return
    separator = max(b",;\t|", key=first.count)
    is_named = Path(name).suffix.lower() in (".csv", ".tsv")
    if not is_named and (separator not in first or _is_json(first)):
        return
    how = "" if separator == ord(",") or separator not in first else f", sep={chr(separator)!r}"
    file = Path(name if is_named else "FILE.csv")
    raise BadInput(
        f"{name}, line {line}: this looks like CSV; publish takes JSON or one JSON record per line; convert it, "
        f"in Python: pandas.read_csv({str(file)!r}{how})"
        f".to_json({str(file.with_suffix('.ndjson'))!r}, orient='records', lines=True)"
    )


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def array_batches(content: bytes, name: str, most: int) -> Iterator[RecordBatch]:
    """Yield the records of a JSON array, or one JSON object."""
    try:
        if content.lstrip()[:1] == b"[":
            records = msgspec.json.decode(content, type=list[msgspec.Raw])
        else:
            records = [msgspec.json.decode(content, type=msgspec.Raw)]
    except RecursionError:
        raise BadInput(f"{name}: JSON is nested too deeply") from None
    except msgspec.DecodeError as error:
        reject_csv(content, name)
        raise BadInput(f"{name}: {error}; one object a line is NDJSON: name the file .ndjson") from error
    first = 0
    while first < len(records):
        last, size = first, 0
        while last < len(records) and last - first < most and (last == first or size < MOST_BYTES):
            size += len(records[last]) + 1
            last += 1
        body = b"[" + b",".join(bytes(record) for record in records[first:last]) + b"]"
        yield RecordBatch(body, "json", range(first + 1, last + 1), first, last)
        first = last


class LineReader:
    """A reader of complete lines from an offset on; a line without its end is left for later."""

    def __init__(self, file: BinaryIO, offset: int = 0, line: int = 0, *, keep_tail: bool = False) -> None:
        self._file = file
        self._rest = b""
        self._keep_tail = keep_tail
        """Whether a last line without its end waits for the end, as in a file that grows."""
        self.offset = offset
        self.line = line

    def batch(self, most: int) -> RecordBatch | None:
        """Return the next batch of at most `most` lines, without blank ones; None at the end of the file."""
        lines: list[bytes] = []
        numbers: list[int] = []
        start, size = self.offset, 0
        while len(lines) < most and size < MOST_BYTES:
            line = self._rest + self._file.readline()
            self._rest = b""
            if not line:
                break
            if not line.endswith(b"\n") and self._keep_tail:
                self._rest = line
                break
            self.offset += len(line)
            self.line += 1
            if line.strip():
                lines.append(line.strip())
                numbers.append(self.line)
                size += len(line)
        if self.offset == start:
            return None
        return RecordBatch(b"\n".join(lines), "ndjson", tuple(numbers), start, self.offset)

    def again(self, end: int, most: int) -> RecordBatch | None:
        """Return the batch from here to `end` as it was built before, or its rest if the file was cut."""
        piece = LineReader(io.BytesIO(self._file.read(end - self.offset)), self.offset, self.line, keep_tail=True)
        made = piece.batch(max(most, end - self.offset))
        self.offset, self.line, self._rest = piece.offset, piece.line, piece._rest
        return made


class FollowProgress(msgspec.Struct):
    """The progress in a growing file: sent up to `offset`, and perhaps up to `end`, without a response."""

    inode: int
    generation: int = 0
    offset: int = 0
    line: int = 0
    end: int | None = None


def follow(
    path: Path,
    progress_file: Path,
    most: int,
    wait: Callable[[float], object] = time.sleep,
    pause_s: float = 0.2,
) -> Iterator[RecordBatch]:
    """Yield batches of a file that grows, like `tail -F`; a file that is replaced or cut is read from its start.

    The end of a batch is written to `progress_file` before the batch is yielded, and its success when the next one
    is requested. After a crash the last batch is built again with the same content, and so with the same key.
    """
    progress = _read_progress(progress_file)
    while True:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            wait(pause_s)
            continue
        with file:
            status = os.fstat(file.fileno())
            if progress is None:
                progress = FollowProgress(status.st_ino)
            elif progress.inode != status.st_ino or progress.offset > status.st_size:
                progress = FollowProgress(status.st_ino, progress.generation + 1)
            file.seek(progress.offset)
            reader = LineReader(file, progress.offset, progress.line, keep_tail=True)
            while True:
                # Checked before reading, so that the old file is read to its end before it is left.
                is_replaced = _is_replaced(path, file, reader.offset)
                batch = reader.batch(most) if progress.end is None else reader.again(progress.end, most)
                progress.end = None
                if batch is not None:
                    if batch.start == 0 and batch.numbers:
                        reject_csv(batch.body, str(path), batch.numbers[0])
                    progress.end = batch.end
                    _write_progress(progress_file, progress)
                    if batch.numbers:
                        yield replace(batch, generation=progress.generation)
                    progress.offset, progress.line, progress.end = batch.end, reader.line, None
                    _write_progress(progress_file, progress)
                elif is_replaced:
                    progress = FollowProgress(NO_FILE, progress.generation)
                    break
                else:
                    wait(pause_s)


def _is_replaced(path: Path, file: BinaryIO, offset: int) -> bool:
    """Return whether the name belongs to another file now, or the file was cut below the offset."""
    try:
        now = path.stat()
    except FileNotFoundError:
        return True
    return now.st_ino != os.fstat(file.fileno()).st_ino or now.st_size < offset


def _read_progress(progress_file: Path) -> FollowProgress | None:
    try:
        return msgspec.json.decode(progress_file.read_bytes(), type=FollowProgress)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, OSError) as error:
        raise BadInput(f"{progress_file}: invalid progress ({error}); remove it to begin again") from error


def _write_progress(progress_file: Path, progress: FollowProgress) -> None:
    from newsstand.http.server import make_private_folder

    make_private_folder(progress_file.parent)
    write_atomically(progress_file, msgspec.json.encode(progress))
