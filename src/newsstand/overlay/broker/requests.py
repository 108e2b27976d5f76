"""Requests in progress at a broker: those of its clients to storages, and those that caches answer.

An open request ends when all of its topics are closed: by the last response about a topic, or when none can come
any more. A gather collects the answers of neighbours to a request for cached publications, for a client or for
another neighbour. It holds the newest publications, up to a limit of bytes, and records whether that is all.
Results for a neighbour are passed on as they arrive, so that a silent broker delays nothing that others have.

Both are bounded: one more open request closes the oldest; beyond the bounds of gathers, the oldest ones of the
largest holder end with what they have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from newsstand.overlay.broker.effects import Client, RequestAnswer
from newsstand.overlay.broker.message_cache import newest, size_of
from newsstand.overlay.messages import CacheRequest, Name, Publication, PublicationId, StorageResponse

GatherKey = tuple[Name, int]
"""The broker where a request began, and its number there."""
Holder = tuple[Name | None, Client | None]


@dataclass(slots=True)
class _Open:
    client: Client
    waiting: dict[str, Name | None]
    """The open topics, and the neighbour to which the request for each was sent."""
    unavailable: list[str] = field(default_factory=list)
    more: list[str] = field(default_factory=list)
    received: dict[tuple[str, ...], int] = field(default_factory=dict)
    is_started: bool = False
    """Whether requests for all topics have been sent."""

    def lose(self, topics: Iterable[str]) -> None:
        for topic in topics:
            del self.waiting[topic]
            self.unavailable.append(topic)


class OpenRequests:
    """Requests of clients to storages."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[int, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, number: int, client: Client) -> list[RequestAnswer]:
        """Open a request whose topics follow; return the answer that ends the oldest one, if it must end."""
        self._open[number] = _Open(client, {})
        if len(self._open) <= self._most:
            return []
        return self.give_up(next(iter(self._open)))

    def expect(self, number: int, topics: Iterable[str], neighbour: Name | None) -> None:
        """Record that a request for topics is sent to a neighbour; None for this broker's storage."""
        self._open[number].waiting.update(dict.fromkeys(topics, neighbour))

    def start(self, number: int, unknown: Iterable[str]) -> list[RequestAnswer]:
        """Record the topics without a storage, after all others; return the last answer if nothing is expected."""
        self._open[number].unavailable += unknown
        self._open[number].is_started = True
        return self._settle(number)

    def receive(self, response: StorageResponse) -> list[RequestAnswer] | None:
        """Return the answers of a response; None if its request is not open."""
        request = self._open.get(response.number)
        if request is None or not all(topic in request.waiting for topic in response.topics):
            return None
        received = request.received.get(response.topics, 0) + len(response.publications)
        answers = (
            [RequestAnswer(request.client, response.number, response.publications)]
            if response.publications
            else []
        )
        if response.state == "part":
            request.received[response.topics] = received
            return answers
        if response.state == "nowhere" or received != response.count:
            request.lose(response.topics)
        else:
            for topic in response.topics:
                del request.waiting[topic]
            request.more += response.topics if response.state == "more" else ()
        request.received.pop(response.topics, None)
        return answers + self._settle(response.number)

    def lose(self, neighbour: Name) -> list[RequestAnswer]:
        """Close the topics that were requested from a neighbour whose link has ended."""
        answers: list[RequestAnswer] = []
        for number, request in list(self._open.items()):
            request.lose([topic for topic, by in request.waiting.items() if by == neighbour])
            answers += self._settle(number)
        return answers

    def give_up(self, number: int) -> list[RequestAnswer]:
        """End a request; its open topics are unavailable."""
        request = self._open.get(number)
        if request is None:
            return []
        request.is_started = True
        request.lose(list(request.waiting))
        return self._settle(number)

    def drop(self, client: Client) -> None:
        for number in [number for number, request in self._open.items() if request.client == client]:
            del self._open[number]

    def _settle(self, number: int) -> list[RequestAnswer]:
        request = self._open[number]
        if request.waiting or not request.is_started:
            return []
        del self._open[number]
        unavailable, more = tuple(sorted(request.unavailable)), tuple(sorted(request.more))
        return [RequestAnswer(request.client, number, finished=True, unavailable=unavailable, more=more)]


@dataclass(frozen=True, slots=True)
class GatherLimits:
    """Limits of requests to caches."""

    answer_bytes: int = 1024 * 1024
    """Bytes of the publications in an answer to one request."""
    batch: int = 64
    """Publications in one response."""
    open: int = 1024
    open_bytes: int = 64 * 1024 * 1024
    """Bytes that this broker holds for unfinished answers."""


@dataclass(slots=True)
class Gather:
    """The publications of one request, and the neighbours that have not answered yet."""

    request: CacheRequest
    requester: Name | None
    """The neighbour that waits for it; None for a client of this broker."""
    client: Client | None
    limit: int
    waiting: dict[Name, None]
    complete: bool = True
    """Whether everything that was answered is held."""
    found: dict[PublicationId, Publication] = field(default_factory=dict)
    bytes: int = 0
    passed_on: set[PublicationId] = field(default_factory=set)
    passed_bytes: int = 0
    fresh: list[PublicationId] = field(default_factory=list)
    """Publications to be passed on next."""

    @property
    def key(self) -> GatherKey:
        return self.request.path[0], self.request.number

    @property
    def holder(self) -> Holder:
        return self.requester, self.client

    def wants(self, publication: Publication) -> bool:
        """Return whether a publication was requested."""
        after = self.request.after
        return (after is None or publication.position > after) and self.request.filter.matches(publication)

    def add(self, publications: Iterable[Publication]) -> None:
        """Add new publications; drop the oldest beyond the limit."""
        for one in publications:
            if one.id not in self.found:
                self.found[one.id] = one
                self.bytes += size_of(one)
                self.fresh.append(one.id)
        if self.bytes > self.limit:
            self.found = {one.id: one for one in newest(list(self.found.values()), self.limit)}
            self.bytes = sum(map(size_of, self.found.values()))
            self.complete = False

    def pass_on(self) -> list[Publication]:
        """Return what is new since the last call; in all no more than `limit` bytes before the end.

        Newer publications may arrive that do not fit beside these, so up to twice `limit` may be sent in all.
        """
        fresh = [self.found[key] for key in self.fresh if key in self.found and key not in self.passed_on]
        size = sum(map(size_of, fresh))
        if self.passed_bytes + size > self.limit:
            return []
        self.fresh.clear()
        self.passed_bytes += size
        self.passed_on.update(one.id for one in fresh)
        return fresh

    @property
    def rest(self) -> list[Publication]:
        """Publications that have not been passed on, in order of time."""
        return [one for one in self.publications if one.id not in self.passed_on]

    @property
    def publications(self) -> list[Publication]:
        """All publications, in order of time."""
        return sorted(self.found.values(), key=attrgetter("position"))


class ScatterGather:
    """The open gathers, the oldest first."""

    def __init__(self, limits: GatherLimits) -> None:
        self._limits = limits
        self._open: dict[GatherKey, Gather] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: GatherKey) -> bool:
        return key in self._open

    def get(self, key: GatherKey) -> Gather | None:
        return self._open.get(key)

    def begin(self, gather: Gather) -> list[Gather]:
        """Open a gather; return those that end by that, this one too if it waits for no neighbour."""
        self._open[gather.key] = gather
        return self._over([gather.key])

    def receive(
        self,
        key: GatherKey,
        neighbour: Name,
        publications: Iterable[Publication],
        last: bool,
        complete: bool = True,
    ) -> list[Gather] | None:
        """Add an answer; return the gathers that end by that; None if the answer is not expected."""
        gather = self._open.get(key)
        if gather is None or neighbour not in gather.waiting:
            return None
        gather.add(publications)
        gather.complete &= complete
        if last:
            del gather.waiting[neighbour]
        return self._over([key])

    def lose(self, neighbour: Name) -> list[Gather]:
        """Remove a neighbour whose link has ended; return the gathers that end by that."""
        self._open = {key: one for key, one in self._open.items() if one.requester != neighbour}
        waited_for = [key for key, one in self._open.items() if neighbour in one.waiting]
        for key in waited_for:
            del self._open[key].waiting[neighbour]
            self._open[key].complete = False
        return self._over(waited_for)

    def give_up(self, key: GatherKey) -> list[Gather]:
        """End a gather with what it has."""
        return [self._end(key)] if key in self._open else []

    def drop(self, client: Client) -> None:
        self._open = {
            key: one for key, one in self._open.items() if one.requester is not None or one.client != client
        }

    def _over(self, changed: Iterable[GatherKey]) -> list[Gather]:
        """Remove the gathers that are done, and beyond the bounds the oldest ones of the largest holder."""
        over = [self._open.pop(key) for key in changed if not self._open[key].waiting]
        held = sum(one.bytes for one in self._open.values())
        while held > self._limits.open_bytes:
            over.append(self._end(self._oldest_of_most({key: one.bytes for key, one in self._open.items()})))
            held -= over[-1].bytes
        while len(self._open) > self._limits.open:
            over.append(self._end(self._oldest_of_most(dict.fromkeys(self._open, 1))))
        return over

    def _oldest_of_most(self, weights: dict[GatherKey, int]) -> GatherKey:
        """Return the oldest gather with a weight of the holder whose gathers weigh most."""
        together: Counter[Holder] = Counter()
        for key, weighs in weights.items():
            together[self._open[key].holder] += weighs
        holder = max(together, key=together.__getitem__)
        return next(key for key, weighs in weights.items() if weighs and self._open[key].holder == holder)

    def _end(self, key: GatherKey) -> Gather:
        """End a gather before all neighbours have answered."""
        gather = self._open.pop(key)
        gather.complete = False
        return gather
