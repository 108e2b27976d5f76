"""Requests for what caches have that wait for neighbours: each broker gathers what those beyond it answer.

A gathering ends when all neighbours that were asked have answered, or cannot any more. It holds up to `limit`
bytes, the newest publications. There is a bound on gatherings and on what they hold together; beyond it the oldest
ends with what it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from newsstand.overlay.message_cache import newest, weight
from newsstand.overlay.messages import Name, Publication, PublicationId
from newsstand.overlay.open_requests import Client

Key = tuple[Name, int]
"""The broker where a request was asked, and its number there."""


@dataclass(slots=True)
class Gathering:
    """What has come for one request, and who has yet to answer."""

    key: Key
    asked_by: Name | None
    """The neighbour that waits for it; None if it is this broker's own client."""
    client: Client | None
    limit: int
    waiting: dict[Name, None]
    found: dict[PublicationId, Publication] = field(default_factory=dict)
    bytes: int = 0

    def add(self, publications: Iterable[Publication]) -> None:
        """Keep what is new of these, as far as it fits; of more than fits, the newest."""
        for one in publications:
            if one.id not in self.found:
                self.found[one.id] = one
                self.bytes += weight(one)
        if self.bytes > self.limit:
            self.found = {one.id: one for one in newest(list(self.found.values()), self.limit)}
            self.bytes = sum(map(weight, self.found.values()))

    @property
    def publications(self) -> list[Publication]:
        """All of it, in order of time."""
        return newest(list(self.found.values()), self.limit)


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

    def begin(self, gathering: Gathering) -> list[Gathering]:
        """A request has been asked; those that are over by that, this one too if nobody is waited for."""
        self._open[gathering.key] = gathering
        return self._over([gathering.key])

    def receive(
        self, key: Key, neighbour: Name, publications: Iterable[Publication], last: bool
    ) -> list[Gathering] | None:
        """A neighbour has answered: those that are over by that; None if nobody waits for its answer."""
        gathering = self._open.get(key)
        if gathering is None or neighbour not in gathering.waiting:
            return None
        gathering.add(publications)
        if last:
            del gathering.waiting[neighbour]
        return self._over([key])

    def lose(self, neighbour: Name) -> list[Gathering]:
        """Nothing more comes from a neighbour, and nothing goes there: those that are over by that."""
        self._open = {key: one for key, one in self._open.items() if one.asked_by != neighbour}
        waited_for = [key for key, one in self._open.items() if neighbour in one.waiting]
        for key in waited_for:
            del self._open[key].waiting[neighbour]
        return self._over(waited_for)

    def give_up(self, key: Key) -> list[Gathering]:
        """Nobody waits any longer: a gathering is over with what it has."""
        gathering = self._open.pop(key, None)
        return [] if gathering is None else [gathering]

    def drop(self, client: Client) -> None:
        """A client has gone."""
        self._open = {
            key: one for key, one in self._open.items() if one.asked_by is not None or one.client != client
        }

    def _over(self, changed: Iterable[Key]) -> list[Gathering]:
        """Take those out that have all, and the oldest if there is too much."""
        over = [self._open.pop(key) for key in changed if not self._open[key].waiting]
        held = sum(one.bytes for one in self._open.values())
        while len(self._open) > self._most or held > self._most_bytes:
            oldest = self._open.pop(next(iter(self._open)))
            held -= oldest.bytes
            over.append(oldest)
        return over
