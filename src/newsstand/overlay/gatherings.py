"""Requests for what caches have that wait for neighbours: each broker gathers what those beyond it answer.

A gathering ends when all neighbours that were asked have answered, or cannot any more. It holds up to `limit`
bytes, the newest publications, and knows whether that is the whole of it. What a neighbour waits for is passed on
as it comes, so that somebody who is silent keeps back nothing that others have. There is a bound on gatherings and
on what they hold together; beyond it, those of whoever holds most end with what they have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from newsstand.overlay.message_cache import newest, weight
from newsstand.overlay.messages import CacheRequest, Name, Publication, PublicationId
from newsstand.overlay.open_requests import Client

Key = tuple[Name, int]
"""The broker where a request was asked, and its number there."""
Holder = tuple[Name | None, Client | None]


@dataclass(slots=True)
class Gathering:
    """What has come for one request, and who has yet to answer."""

    request: CacheRequest
    asked_by: Name | None
    """The neighbour that waits for it; None if it is this broker's own client."""
    client: Client | None
    limit: int
    waiting: dict[Name, None]
    whole: bool = True
    """Whether nothing lacks of what has been answered."""
    found: dict[PublicationId, Publication] = field(default_factory=dict)
    bytes: int = 0
    passed_on: set[PublicationId] = field(default_factory=set)
    passed_bytes: int = 0
    fresh: list[PublicationId] = field(default_factory=list)
    """What may be passed on next."""

    @property
    def key(self) -> Key:
        return self.request.path[0], self.request.number

    @property
    def holder(self) -> Holder:
        """For whom it is."""
        return self.asked_by, self.client

    def wants(self, publication: Publication) -> bool:
        """Whether a publication is one that was asked for."""
        after = self.request.after
        return (after is None or publication.position > after) and self.request.filter.matches(publication)

    def add(self, publications: Iterable[Publication]) -> None:
        """Keep what is new of these, as far as it fits; of more than fits, the newest."""
        for one in publications:
            if one.id not in self.found:
                self.found[one.id] = one
                self.bytes += weight(one)
                self.fresh.append(one.id)
        if self.bytes > self.limit:
            self.found = {one.id: one for one in newest(list(self.found.values()), self.limit)}
            self.bytes = sum(map(weight, self.found.values()))
            self.whole = False

    def pass_on(self) -> list[Publication]:
        """What is new since this was called last; no more than `limit` bytes before the end.

        Something newer may come that does not fit beside it. So twice `limit` may go in all.
        """
        fresh = [self.found[key] for key in self.fresh if key in self.found and key not in self.passed_on]
        size = sum(map(weight, fresh))
        if self.passed_bytes + size > self.limit:
            return []
        self.fresh.clear()
        self.passed_bytes += size
        self.passed_on.update(one.id for one in fresh)
        return fresh

    @property
    def rest(self) -> list[Publication]:
        """What has not been passed on, in order of time."""
        return [one for one in self.publications if one.id not in self.passed_on]

    @property
    def publications(self) -> list[Publication]:
        """All of it, in order of time."""
        return sorted(self.found.values(), key=attrgetter("position"))


class Gatherings:
    """Those that are open, the oldest first."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._open: dict[Key, Gathering] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: Key) -> bool:
        return key in self._open

    def get(self, key: Key) -> Gathering | None:
        """One that is open."""
        return self._open.get(key)

    def begin(self, gathering: Gathering) -> list[Gathering]:
        """A request has been asked; those that are over by that, this one too if nobody is waited for."""
        self._open[gathering.key] = gathering
        return self._over([gathering.key])

    def receive(
        self, key: Key, neighbour: Name, publications: Iterable[Publication], last: bool, whole: bool = True
    ) -> list[Gathering] | None:
        """A neighbour has answered: those that are over by that; None if nobody waits for its answer."""
        gathering = self._open.get(key)
        if gathering is None or neighbour not in gathering.waiting:
            return None
        gathering.add(publications)
        gathering.whole &= whole
        if last:
            del gathering.waiting[neighbour]
        return self._over([key])

    def lose(self, neighbour: Name) -> list[Gathering]:
        """Nothing more comes from a neighbour, and nothing goes there: those that are over by that."""
        self._open = {key: one for key, one in self._open.items() if one.asked_by != neighbour}
        waited_for = [key for key, one in self._open.items() if neighbour in one.waiting]
        for key in waited_for:
            del self._open[key].waiting[neighbour]
            self._open[key].whole = False
        return self._over(waited_for)

    def give_up(self, key: Key) -> list[Gathering]:
        """Nobody waits any longer: a gathering is over with what it has."""
        return [self._end(key)] if key in self._open else []

    def drop(self, client: Client) -> None:
        """A client has gone."""
        self._open = {
            key: one for key, one in self._open.items() if one.asked_by is not None or one.client != client
        }

    def _over(self, changed: Iterable[Key]) -> list[Gathering]:
        """Take those out that have all; and if there is too much, some of whoever holds most."""
        over = [self._open.pop(key) for key in changed if not self._open[key].waiting]
        held = sum(one.bytes for one in self._open.values())
        while held > self._most_bytes:
            over.append(self._end(self._oldest_of_most({key: one.bytes for key, one in self._open.items()})))
            held -= over[-1].bytes
        while len(self._open) > self._most:
            over.append(self._end(self._oldest_of_most(dict.fromkeys(self._open, 1))))
        return over

    def _oldest_of_most(self, weights: dict[Key, int]) -> Key:
        """The oldest gathering with a weight of the holder whose gatherings weigh most."""
        together: Counter[Holder] = Counter()
        for key, weighs in weights.items():
            together[self._open[key].holder] += weighs
        holder = max(together, key=together.__getitem__)
        return next(key for key, weighs in weights.items() if weighs and self._open[key].holder == holder)

    def _end(self, key: Key) -> Gathering:
        """End one before all have answered."""
        gathering = self._open.pop(key)
        gathering.whole = False
        return gathering
