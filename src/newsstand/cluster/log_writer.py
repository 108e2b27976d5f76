"""The end of one dataset's log in files: where records are appended, and what is mended after a crash.

Appends that wait at the same time are written and synced together: whoever gets hold of the file next writes what
has queued, for all of them.
"""

from __future__ import annotations

import logging
import mmap
import os
import threading
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from newsstand.cluster.log import Appended
from newsstand.cluster.log_segments import (
    Head,
    Keyed,
    damage,
    encode_append,
    encode_head,
    keys_within,
    read_head,
    segment_path,
    segments,
    sound_end,
)
from newsstand.cluster.pages import FULL, sync_folder, write_whole
from newsstand.errors import BadInput, LogDamage, NoRoom

logger = logging.getLogger(__name__)

TOGETHER = 16 * 2**20
"""Appends are written together up to about this many bytes."""


@dataclass(eq=False)
class _Waiting:
    """An append that waits for its turn."""

    lines: Sequence[bytes]
    at_ms: int
    key: str | None
    publisher: str | None
    answer: Appended | BaseException | None = None


class Writer:
    """Appends to the log in `folder`, which it makes if need be. Methods may be called from several threads.

    `durable` is how far the log is durable. The newest `remembered_keys` idempotency keys are known.
    """

    durable: Head

    def __init__(self, folder: Path, segment_bytes: int, remembered_keys: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._remembered_keys = remembered_keys
        self._queue: deque[_Waiting] = deque()
        self._writing = threading.Lock()
        self._closed = False
        with _room_in(folder):
            if not folder.is_dir():
                folder.mkdir()
                sync_folder(folder.parent)
            self.durable, self._segment = _recover(folder)
            try:
                older, newest = _recall(folder, self.durable, remembered_keys)
                self._head = os.open(folder / "head", os.O_RDWR | os.O_CREAT, 0o600)
            except BaseException:
                os.close(self._segment)
                raise
            head = encode_head(self.durable)
            os.pwrite(self._head, head, 0)
            os.ftruncate(self._head, len(head))
        self._keys = {(known.publisher, known.key): known for known in (*older, *newest)}
        self._segment_keys = deque(newest, remembered_keys)

    def there(self) -> bool:
        """Whether the folder was not deleted in the meantime."""
        return os.fstat(self._head).st_nlink > 0

    def append(
        self, lines: Sequence[bytes], at_ms: int, key: str | None, publisher: str | None = None
    ) -> Appended:
        """Add records as `Log.append` says."""
        waiting = _Waiting(lines, at_ms, key, publisher)
        self._queue.append(waiting)
        with self._writing:
            while waiting.answer is None:
                self._serve(self._take())
        if isinstance(waiting.answer, BaseException):
            raise waiting.answer
        return waiting.answer

    def close(self) -> None:
        """Let go of the files."""
        with self._writing:
            self._closed = True
            os.fsync(self._head)
            os.close(self._head)
            os.close(self._segment)

    def _take(self) -> list[_Waiting]:
        taken, size = [], 0
        while self._queue and size < TOGETHER:
            waiting = self._queue.popleft()
            taken.append(waiting)
            size += sum(map(len, waiting.lines))
        return taken

    def _serve(self, together: Sequence[_Waiting]) -> None:
        answers: Sequence[Appended | BaseException]
        try:
            answers = self._write(together)
        except BaseException as error:
            answers = [error] * len(together)
        for waiting, answer in zip(together, answers, strict=True):
            waiting.answer = answer

    def _write(self, together: Sequence[_Waiting]) -> list[Appended]:
        """Write what waits and sync once."""
        answers: list[Appended] = []
        fresh: dict[tuple[str | None, str], Keyed] = {}
        encoded: list[bytes] = []
        seq = self.durable.seq
        for waiting in together:
            key, by = waiting.key, waiting.publisher
            known = None
            if key is not None:
                # Appends of older versions do not say whose key theirs is.
                known = fresh.get((by, key)) or self._keys.get((by, key)) or self._keys.get((None, key))
            if known is not None:
                answers.append(Appended(known.first, known.last, repeated=True))
                continue
            first, last = seq + 1, seq + len(waiting.lines)
            answers.append(Appended(first, last))
            if not waiting.lines:
                continue
            encoded.append(encode_append(waiting.lines, first, waiting.at_ms, key, by))
            if key is not None:
                fresh[by, key] = Keyed(key, first, last, by)
            seq = last
        if encoded:
            with _room_in(self._folder):
                self._commit(b"".join(encoded), seq)
            self._remember(fresh)
        return answers

    def _commit(self, data: bytes, seq: int) -> None:
        if self._closed:
            raise BadInput(f"{self._folder}: the log is closed")
        if self.durable.byte >= self._segment_bytes:
            self._roll()
        before = self.durable
        after = Head(before.segment, before.byte + len(data), seq)
        try:
            _write_all(self._segment, data, before.byte)
            os.fsync(self._segment)
            os.pwrite(self._head, encode_head(after), 0)
        except BaseException:
            # Nothing of it was acknowledged: the log ends where it ended before.
            os.ftruncate(self._segment, before.byte)
            os.pwrite(self._head, encode_head(before), 0)
            raise
        self.durable = after

    def _roll(self) -> None:
        """Begin a new segment, and write down the keys of the full one for the next opening."""
        _write_keys(segment_path(self._folder, self.durable.segment), list(self._segment_keys))
        begun = _open_segment(self._folder, self.durable.seq + 1)
        os.close(self._segment)
        self._segment = begun
        self._segment_keys.clear()
        self.durable = Head(self.durable.seq + 1, 0, self.durable.seq)

    def _remember(self, fresh: dict[tuple[str | None, str], Keyed]) -> None:
        self._keys.update(fresh)
        self._segment_keys.extend(fresh.values())
        while len(self._keys) > self._remembered_keys:
            del self._keys[next(iter(self._keys))]


def _recover(folder: Path) -> tuple[Head, int]:
    """Cut off what no append finished; return where the log ends, and its last segment, open for writing.

    The segments before the last one are whole: a new one is begun when all before it is durable.
    """
    try:
        head = read_head(folder)
    except LogDamage as error:
        logger.warning("%s: %s; the end is found by the checksums", folder, error)
        head = None
    firsts = segments(folder)
    last = firsts[-1] if firsts else 1
    known = head if head and head.segment == last else Head(last, 0, last - 1)
    descriptor = _open_segment(folder, last)
    try:
        size = os.fstat(descriptor).st_size
        if head and (head.segment > last or head.seq > known.seq or known.byte > size):
            path = segment_path(folder, last)
            raise damage(path, size, f"records up to {head.seq} were accepted and some are not here")
        byte, seq = known.byte, known.seq
        if size > byte:
            with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as data:
                byte, seq = sound_end(data, byte, seq)
            os.ftruncate(descriptor, byte)
        os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return Head(last, byte, seq), descriptor


def _recall(folder: Path, head: Head, remembered: int) -> tuple[list[Keyed], list[Keyed]]:
    """The newest keys, oldest first, from as few segments as have them; the last segment's by themselves."""
    newest = keys_within(segment_path(folder, head.segment), head.byte)
    older: list[Keyed] = []
    for first in reversed([first for first in segments(folder) if first < head.segment]):
        missing = remembered - len(newest) - len(older)
        if missing <= 0:
            break
        older[:0] = _read_keys(segment_path(folder, first))[-missing:]
    return older, newest[-remembered:]


def _read_keys(segment: Path) -> list[Keyed]:
    try:
        checksum, _, data = segment.with_suffix(".keys").read_bytes().partition(b"\n")
        if checksum == b"%08x" % zlib.crc32(data):
            return msgspec.json.decode(data, type=list[Keyed])
    except FileNotFoundError:
        pass
    found = keys_within(segment, segment.stat().st_size)
    _write_keys(segment, found)
    return found


def _write_keys(segment: Path, keys: Sequence[Keyed]) -> None:
    data = msgspec.json.encode(keys)
    write_whole(segment.with_suffix(".keys"), b"%08x\n%b" % (zlib.crc32(data), data))


def _open_segment(folder: Path, first: int) -> int:
    descriptor = os.open(segment_path(folder, first), os.O_RDWR | os.O_CREAT, 0o600)
    sync_folder(folder)
    return descriptor


def _write_all(descriptor: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written


@contextmanager
def _room_in(folder: Path) -> Iterator[None]:
    """Turn the system's word for a full disk into ours."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise NoRoom(f"{folder}: no room for more records ({error.strerror}); make room first") from error
        raise
