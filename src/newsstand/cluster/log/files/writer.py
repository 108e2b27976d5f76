"""Appending to one dataset's log in files: recovery when it is opened, and group commits.

Appends that wait at the same time are written and synced together: the thread that gets the lock next writes the
queue for all of them.
"""

from __future__ import annotations

import logging
import os
import threading
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from newsstand.cluster.log.contract import AppendResult
from newsstand.cluster.log.files import segments
from newsstand.cluster.log.files.segments import Head, KeyedAppend, LogPart, Seal, damage, segment_path
from newsstand.config.files import FULL, sync_folder
from newsstand.errors import BadInput, LogDamage, NoRoom

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogTail:
    """The end of a recovered log: its last segment, open for writing, its checksum, and the newest keys."""

    head: Head
    segment: int
    crc: int
    older: Sequence[KeyedAppend]
    newest: Sequence[KeyedAppend]
    """The keys of the last segment."""


def recover(folder: Path, remembered: int) -> LogTail:
    """Verify a log, truncate an unfinished append, and return the newest keys; raise `LogDamage`.

    The segments before the last one are complete: a new one is begun when everything before it is durable.
    """
    try:
        head = segments.read_head(folder)
    except LogDamage as error:
        logger.warning("%s; searching the end by checksums", str(error).partition(";")[0])
        head = None
    files = segments.parts(folder)
    _require_end(folder, files, head)
    last = files[-1].first if files else 1
    older = _verify_full(folder, files, remembered)
    descriptor = open_segment(folder, last)
    try:
        size = os.fstat(descriptor).st_size
        path = segment_path(folder, last)
        data = segments.map_file(path, size)
        newest: list[KeyedAppend] = []
        byte, seq = 0, last - 1
        if head is not None and head.segment == last:
            if head.byte > size:
                raise damage(path, size, f"records up to {head.seq} were accepted and some are missing here")
            byte, seq = segments.valid_end(data, byte, seq, newest, head.byte)
            if (byte, seq) != (head.byte, head.seq):
                raise damage(path, byte, f"the append after record {seq} does not match its checksum")
        byte, seq = _tail_end(path, data, byte, seq, newest, head)
        os.ftruncate(descriptor, byte)
        os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    older = older[max(0, len(older) + len(newest) - remembered) :]
    return LogTail(Head(last, byte, seq), descriptor, zlib.crc32(data[:byte]), older, newest[-remembered:])


def open_segment(folder: Path, first: int) -> int:
    """Open a segment for writing; create it if it does not exist."""
    descriptor = os.open(segment_path(folder, first), os.O_RDWR | os.O_CREAT, 0o600)
    sync_folder(folder)
    return descriptor


def _require_end(folder: Path, files: Sequence[LogPart], head: Head | None) -> None:
    """Raise `LogDamage` for a log without its last segment, or without its beginning."""
    if files and files[0].first != 1:
        raise damage(files[0].path, 0, f"records 1 to {files[0].first - 1} are missing before it")
    if files and files[-1].last is not None:
        raise damage(files[-1].path, 0, "the segment after it is missing")
    last = files[-1].first if files else 1
    if head is not None and (head.segment > last or (not files and head.seq)):
        raise damage(segment_path(folder, head.segment), 0, "the file is missing")


def _verify_full(folder: Path, files: Sequence[LogPart], remembered: int) -> Sequence[KeyedAppend]:
    """Verify everything before the last segment; return its newest keys."""
    keys: deque[KeyedAppend] = deque(maxlen=remembered)
    for part, following in pairwise(files):
        if part.last is None:
            keys.extend(segments.verify_segment(folder, part.first, following.first - 1).keys)
            continue
        keys.extend(segments.read_gap(part).keys)
        if part.last != following.first - 1:
            raise damage(following.path, 0, f"begins with record {following.first} instead of {part.last + 1}")
    return list(keys)


def _tail_end(
    path: Path, data: segments.SegmentBytes, byte: int, seq: int, newest: list[KeyedAppend], head: Head | None
) -> tuple[int, int]:
    """Return the end of the complete appends; raise `LogDamage` unless only an interrupted append follows.

    `head` is durable before the first append, so it survives a crash: without it, the last accepted record is
    unknown.
    """
    byte, seq = segments.valid_end(data, byte, seq, newest)
    if byte < len(data) and head is None:
        what = f"the append after record {seq} does not match its checksum"
        raise damage(path, byte, f"{what}, and the file head, which has the end, is missing")
    if byte < len(data) and segments.has_later_commit(data, byte, seq):
        raise damage(path, byte, f"the append after record {seq} does not match its checksum, and later ones do")
    return byte, seq


GROUP_BYTES = 16 * 2**20
"""Approximate size of a group of appends that are written together."""


@dataclass(eq=False)
class _QueuedAppend:
    """An append that waits to be written."""

    lines: Sequence[bytes]
    at_ms: int
    key: str | None
    publisher: str | None
    outcome: AppendResult | BaseException | None = None


class FileLogWriter:
    """The writer of the log in `folder`, which is created if it does not exist. Its methods are thread-safe.

    `durable` is the durable end of the log. The newest `remembered_keys` idempotency keys are remembered.
    """

    durable: Head

    def __init__(self, folder: Path, segment_bytes: int, remembered_keys: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._remembered_keys = remembered_keys
        self._queue: deque[_QueuedAppend] = deque()
        self._writing = threading.Lock()
        self._closed = False
        with _room_in(folder):
            if not folder.is_dir():
                folder.mkdir()
                sync_folder(folder.parent)
            tail = recover(folder, remembered_keys)
            self.durable, self._segment, self._crc = tail.head, tail.segment, tail.crc
            try:
                self._head = os.open(folder / "head", os.O_RDWR | os.O_CREAT, 0o600)
            except BaseException:
                os.close(self._segment)
                raise
            head = segments.encode_head(self.durable)
            os.pwrite(self._head, head, 0)
            os.ftruncate(self._head, len(head))
            # Recovery rejects a log without `head` and with a damaged end, so a crash must not leave one.
            os.fsync(self._head)
            sync_folder(folder)
        self._keys = {(one.publisher, one.key): one for one in (*tail.older, *tail.newest)}
        self._segment_keys = deque(tail.newest, remembered_keys)

    def exists(self) -> bool:
        """Return whether the folder still exists."""
        return os.fstat(self._head).st_nlink > 0

    def append(
        self, lines: Sequence[bytes], at_ms: int, key: str | None, publisher: str | None = None
    ) -> AppendResult:
        """Add records; see `Log.append`."""
        waiting = _QueuedAppend(lines, at_ms, key, publisher)
        self._queue.append(waiting)
        with self._writing:
            while waiting.outcome is None:
                self._write_group()
        if isinstance(waiting.outcome, BaseException):
            raise waiting.outcome
        return waiting.outcome

    def close(self) -> None:
        """Close the files."""
        with self._writing:
            self._closed = True
            os.fsync(self._head)
            os.close(self._head)
            os.close(self._segment)

    def _write_group(self) -> None:
        """Write the next appends of the queue together."""
        group: list[_QueuedAppend] = []
        size = 0
        while self._queue and size < GROUP_BYTES:
            group.append(self._queue.popleft())
            size += sum(map(len, group[-1].lines))
        try:
            self._write(group)
        except BaseException as error:
            for waiting in group:
                waiting.outcome = error

    def _write(self, group: Sequence[_QueuedAppend]) -> None:
        """Write a group of appends, sync once, and set their outcomes."""
        fresh: dict[tuple[str | None, str], KeyedAppend] = {}
        encoded: list[bytes] = []
        seq = self.durable.seq
        for waiting in group:
            key, by = waiting.key, waiting.publisher
            earlier = None if key is None else fresh.get((by, key)) or self._keys.get((by, key))
            if earlier is not None:
                waiting.outcome = AppendResult(earlier.first, earlier.last, repeated=True)
                continue
            first, last = seq + 1, seq + len(waiting.lines)
            waiting.outcome = AppendResult(first, last)
            if not waiting.lines:
                continue
            begin = self.durable.seq + 1
            encoded.append(segments.encode_append(waiting.lines, first, waiting.at_ms, key, by, begin))
            if key is not None:
                fresh[by, key] = KeyedAppend(key, first, last, by)
            seq = last
        if encoded:
            with _room_in(self._folder):
                self._commit(b"".join(encoded), seq)
            self._keys.update(fresh)
            self._segment_keys.extend(fresh.values())
            while len(self._keys) > self._remembered_keys:
                del self._keys[next(iter(self._keys))]

    def _commit(self, data: bytes, seq: int) -> None:
        if self._closed:
            raise BadInput(f"{self._folder}: the log is closed")
        if os.fstat(self._segment).st_nlink == 0:
            raise damage(segment_path(self._folder, self.durable.segment), 0, "the file was deleted")
        if self.durable.byte >= self._segment_bytes:
            self._roll()
        before = self.durable
        after = Head(before.segment, before.byte + len(data), seq)
        try:
            _write_all(self._segment, data, before.byte)
            os.fsync(self._segment)
            os.pwrite(self._head, segments.encode_head(after), 0)
        except BaseException:
            # None of it was acknowledged: restore the old end.
            os.ftruncate(self._segment, before.byte)
            os.pwrite(self._head, segments.encode_head(before), 0)
            raise
        self.durable = after
        self._crc = zlib.crc32(data, self._crc)

    def _roll(self) -> None:
        """Begin a new segment, and write the seal of the full one."""
        full = self.durable
        seal = Seal(full.segment, full.seq, full.byte, self._crc, list(self._segment_keys))
        segments.write_checked(segments.seal_path(self._folder, full.segment), seal)
        segment = open_segment(self._folder, full.seq + 1)
        os.close(self._segment)
        self._segment = segment
        self._segment_keys.clear()
        self.durable = Head(full.seq + 1, 0, full.seq)
        self._crc = 0


def _write_all(descriptor: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written


@contextmanager
def _room_in(folder: Path) -> Iterator[None]:
    """Raise NoRoom if the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise NoRoom(
                f"{folder}: no space for more records ({error.strerror}); free some disk space"
            ) from error
        raise
