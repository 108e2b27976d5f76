"""The idempotency keys of a log in Kafka: in the headers of messages, and remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

Headers = list[tuple[str, str | bytes | None]]
"""The headers of a message."""

KeyOf = tuple[str | None, str]
"""A publisher and an idempotency key of it; messages of older versions do not name the publisher."""

_KEY, _PLACE, _COUNT, _PUBLISHER = "key", "place", "count", "publisher"


@dataclass(frozen=True)
class Part:
    """One record of an append with a key: its number, and its place among the `count` records of the append."""

    key: KeyOf
    place: int
    count: int
    seq: int


@dataclass
class Keyed:
    """What is there of an append with a key: from record `first` to `last`, without some of its places."""

    count: int
    first: int
    last: int
    missing: set[int] = field(default_factory=set)


def encode_headers(key: KeyOf, place: int, count: int) -> Headers:
    """The headers of a message of an append with a key."""
    publisher, text = key
    headers: Headers = [(_KEY, text.encode()), (_PLACE, b"%d" % place), (_COUNT, b"%d" % count)]
    return headers if publisher is None else [*headers, (_PUBLISHER, publisher.encode())]


def decode_headers(headers: Headers | dict[str, str | bytes | None] | None, seq: int) -> Part | None:
    """The part of an append that a message is; None if the append had no key."""
    found = dict(headers or ())
    key, place, count = found.get(_KEY), found.get(_PLACE), found.get(_COUNT)
    if not isinstance(key, bytes) or place is None or count is None:
        return None
    publisher = found.get(_PUBLISHER)
    by = publisher.decode() if isinstance(publisher, bytes) else None
    return Part((by, key.decode()), int(place), int(count), seq)


class Keys:
    """The newest keys of a dataset, at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: OrderedDict[KeyOf, Keyed] = OrderedDict()

    @property
    def full(self) -> bool:
        """Whether older keys would be forgotten at once."""
        return len(self._known) >= self._limit

    def find(self, key: KeyOf) -> Keyed | None:
        """What is there of the append with a key, if it is remembered."""
        return self._known.get(key)

    def whole(self, key: KeyOf, count: int, first: int, last: int) -> Keyed:
        """Remember that all of an append is there."""
        before = self._known.get(key)
        if before is not None:
            first, last = min(first, before.first), max(last, before.last)
        keyed = self._known[key] = Keyed(count, first, last)
        self._forget()
        return keyed

    def learn(self, parts: Iterable[Part]) -> None:
        """Remember records that are newer than those known, in their order."""
        for part in parts:
            self._take(part)
        self._forget()

    def learn_older(self, parts: Iterable[Part]) -> None:
        """Remember records that are older than those known, in their order."""
        older = Keys(self._limit)
        for part in parts:
            older._take(part)
        for key in reversed(older._known):
            found, known = older._known[key], self._known.get(key)
            if known is None:
                self._known[key] = found
            else:
                known.missing &= found.missing
                known.first, known.last = min(known.first, found.first), max(known.last, found.last)
            self._known.move_to_end(key, last=False)
        self._forget()

    def end_search(self, before: int) -> None:
        """Take an append whose beginning lies at or before record `before`, which nobody looks at, for whole."""
        for keyed in self._known.values():
            unseen = len(keyed.missing)
            if unseen and max(keyed.missing) == unseen - 1 and keyed.first - 1 <= before:
                keyed.first -= unseen
                keyed.missing.clear()

    def _take(self, part: Part) -> None:
        known = self._known.get(part.key)
        if known is None:
            missing = set(range(part.count))
            known = self._known[part.key] = Keyed(part.count, part.seq, part.seq, missing)
        known.missing.discard(part.place)
        known.first, known.last = min(known.first, part.seq), max(known.last, part.seq)

    def _forget(self) -> None:
        while len(self._known) > self._limit:
            self._known.popitem(last=False)
