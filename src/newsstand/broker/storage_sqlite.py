"""The storage of a broker's topics in its file; the contract is `newsstand.overlay.storage.Storage`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter

import msgspec

from newsstand.broker.topic_ledger import Ledger
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import Position, Publication, PublicationId

TRIM_EVERY = 1000
"""After so many publications of a topic, those beyond its room are removed."""
_KEEP = "INSERT OR IGNORE INTO publications VALUES (?, ?, ?, ?, ?)"
_ALL = "SELECT publication FROM publications WHERE topic = ? ORDER BY at_ms, origin, number"
_AFTER = """SELECT publication FROM publications WHERE topic = ? AND (at_ms, origin, number) > (?, ?, ?)
    ORDER BY at_ms, origin, number"""
_TRIM = """DELETE FROM publications WHERE topic = ?1 AND (at_ms, origin, number) < (
    SELECT at_ms, origin, number FROM publications WHERE topic = ?1
    ORDER BY at_ms DESC, origin DESC, number DESC LIMIT 1 OFFSET ?2)"""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Publication).decode
_position = attrgetter("position")


class SqliteStorage:
    """Keeps publications on disk; what is on its way there is found already. Threads may call `matching`."""

    def __init__(self, ledger: Ledger, most: int) -> None:
        """With room for about `most` publications a topic; the oldest leave first."""
        self._ledger = ledger
        self._most = most
        self._pending: dict[PublicationId, Publication] = {}
        self._forgetting: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()

    @property
    def is_able(self) -> bool:
        """Not while the disk takes nothing: what waits for it in memory must not grow."""
        return self._ledger.fault is None

    def keep(self, publication: Publication) -> bool:
        """Keep a publication; True also for one that is on disk already, where it stays once.

        To look there would make the event loop wait for the thread that writes, once for each publication.
        """
        key = publication.id
        if key in self._pending:
            return False
        self._pending[key] = publication
        self._ledger.write(_KEEP, publication.topic, *publication.position, _encode(publication))
        self._kept[publication.topic] += 1
        if self._kept[publication.topic] % TRIM_EVERY == 0:
            self._ledger.write(_TRIM, publication.topic, self._most - 1)
        self._ledger.then(lambda: self._written(publication))
        return True

    def matching(
        self, wanted: Filter, topics: Collection[str], after: Position | None = None, limit: int = 0
    ) -> Sequence[Publication]:
        found = [one for topic in set(topics) for one in self._found(wanted, topic, after, limit)]
        found.sort(key=_position)
        return found[:limit] if limit else found

    def forget(self, topic: str) -> None:
        for key in [key for key, one in self._pending.items() if one.topic == topic]:
            del self._pending[key]
        self._forgetting[topic] += 1
        self._ledger.write("DELETE FROM publications WHERE topic = ?", topic)
        self._ledger.then(lambda: self._forgotten(topic))

    def _found(self, wanted: Filter, topic: str, after: Position | None, limit: int) -> Iterator[Publication]:
        # What waits is looked at first: whatever is no longer among it is on disk then.
        waits = [one for one in list(self._pending.values()) if one.topic == topic]
        waiting = sorted((one for one in waits if after is None or one.position > after), key=_position)
        seen: set[PublicationId] = set()
        both = merge(waiting, self._on_disk(topic, after), key=_position)
        once = (one for one in both if one.id not in seen and not seen.add(one.id))  # type: ignore[func-returns-value]
        return islice((one for one in once if wanted.matches(one)), limit or None)

    def _on_disk(self, topic: str, after: Position | None) -> Iterator[Publication]:
        if self._forgetting[topic]:
            return
        rows = self._ledger.stream(_ALL, topic) if after is None else self._ledger.stream(_AFTER, topic, *after)
        for (written,) in rows:
            yield _decode(written)  # type: ignore[arg-type]

    def _written(self, publication: Publication) -> None:
        if self._pending.get(publication.id) is publication:
            del self._pending[publication.id]

    def _forgotten(self, topic: str) -> None:
        self._forgetting[topic] -= 1
