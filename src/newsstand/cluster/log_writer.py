"""The end of one dataset's log in files: where records are appended.

Appends that wait at the same time are written and synced together: whoever gets hold of the file next writes what
has queued, for all of them.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from newsstand.cluster.log import Appended
from newsstand.cluster.log_recovery import open_segment, recover
from newsstand.cluster.log_seals import Seal, seal_path, write_sealed
from newsstand.cluster.log_segments import Head, Keyed, damage, encode_append, encode_head, segment_path
from newsstand.cluster.pages import FULL, sync_folder
from newsstand.errors import BadInput, NoRoom

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
            found = recover(folder, remembered_keys)
            self.durable, self._segment, self._crc = found.head, found.segment, found.crc
            try:
                self._head = os.open(folder / "head", os.O_RDWR | os.O_CREAT, 0o600)
            except BaseException:
                os.close(self._segment)
                raise
            head = encode_head(self.durable)
            os.pwrite(self._head, head, 0)
            os.ftruncate(self._head, len(head))
            # A log without `head` and with a damaged end is refused: no crash is to leave one.
            os.fsync(self._head)
            sync_folder(folder)
        self._keys = {(known.publisher, known.key): known for known in (*found.older, *found.newest)}
        self._segment_keys = deque(found.newest, remembered_keys)

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
        begin = seq + 1
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
            encoded.append(encode_append(waiting.lines, first, waiting.at_ms, key, by, begin))
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
        if os.fstat(self._segment).st_nlink == 0:
            raise damage(segment_path(self._folder, self.durable.segment), 0, "the file was deleted")
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
        self._crc = zlib.crc32(data, self._crc)

    def _roll(self) -> None:
        """Begin a new segment, and seal the full one for the next opening."""
        full = self.durable
        seal = Seal(full.segment, full.seq, full.byte, self._crc, list(self._segment_keys))
        write_sealed(seal_path(self._folder, full.segment), seal)
        begun = open_segment(self._folder, full.seq + 1)
        os.close(self._segment)
        self._segment = begun
        self._segment_keys.clear()
        self.durable = Head(full.seq + 1, 0, full.seq)
        self._crc = 0

    def _remember(self, fresh: dict[tuple[str | None, str], Keyed]) -> None:
        self._keys.update(fresh)
        self._segment_keys.extend(fresh.values())
        while len(self._keys) > self._remembered_keys:
            del self._keys[next(iter(self._keys))]


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
