"""Requests of a broker's own clients that wait for answers.

A request is open as long as a topic of it is. A topic is closed by the last response about it, or when it
cannot come any more. There are at most `most` open requests; one more closes the oldest.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from newsstand.overlay.messages import Name, Publication, Response

Client = Hashable


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client gets for its request, at once or bit by bit."""

    client: Client
    number: int
    """The request's."""
    publications: tuple[Publication, ...] = ()
    finished: bool = False
    """Whether this is the last of its answers."""
    missing: tuple[str, ...] = ()
    """With the last one: topics of which not everything has come, so that it may be worth asking again."""
    more: tuple[str, ...] = ()
    """With the last one: topics of which there is more than was asked for."""
    whole: bool = True
    """With the last one, of caches: whether all have answered, and all that they have has come."""


@dataclass(slots=True)
class _Open:
    client: Client
    waiting: dict[str, Name | None]
    """The open topics, and the neighbour that the request for each went to."""
    missing: list[str] = field(default_factory=list)
    more: list[str] = field(default_factory=list)
    received: dict[tuple[str, ...], int] = field(default_factory=dict)
    is_asked: bool = False
    """Whether all its topics are known."""

    def lose(self, topics: Iterable[str]) -> None:
        for topic in topics:
            del self.waiting[topic]
            self.missing.append(topic)


class OpenRequests:
    """What is asked, and what has come."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[int, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, number: int, client: Client) -> list[Answer]:
        """A request whose topics will be told; the answer that ends the oldest one, if there are too many."""
        self._open[number] = _Open(client, {})
        if len(self._open) <= self._most:
            return []
        return self.give_up(next(iter(self._open)))

    def expect(self, number: int, topics: Iterable[str], neighbour: Name | None) -> None:
        """A request for topics goes to a neighbour; None for this broker's own storage."""
        self._open[number].waiting.update(dict.fromkeys(topics, neighbour))

    def asked(self, number: int, unknown: Iterable[str]) -> list[Answer]:
        """All topics have been told but those that nobody stores: the last answer, if nothing is to come."""
        self._open[number].missing += unknown
        self._open[number].is_asked = True
        return self._settle(number)

    def receive(self, response: Response) -> list[Answer] | None:
        """What a client gets out of a response; None if nobody waits for it."""
        request = self._open.get(response.number)
        if request is None or not all(topic in request.waiting for topic in response.topics):
            return None
        received = request.received.get(response.topics, 0) + len(response.publications)
        answers = [Answer(request.client, response.number, response.publications)] if response.publications else []
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

    def lose(self, neighbour: Name) -> list[Answer]:
        """Nothing more comes from a neighbour."""
        answers: list[Answer] = []
        for number, request in list(self._open.items()):
            request.lose([topic for topic, by in request.waiting.items() if by == neighbour])
            answers += self._settle(number)
        return answers

    def give_up(self, number: int) -> list[Answer]:
        """Nobody waits any longer: what has not come is missing."""
        request = self._open.get(number)
        if request is None:
            return []
        request.is_asked = True
        request.lose(list(request.waiting))
        return self._settle(number)

    def drop(self, client: Client) -> None:
        """A client has gone."""
        for number in [number for number, request in self._open.items() if request.client == client]:
            del self._open[number]

    def _settle(self, number: int) -> list[Answer]:
        request = self._open[number]
        if request.waiting or not request.is_asked:
            return []
        del self._open[number]
        missing, more = tuple(sorted(request.missing)), tuple(sorted(request.more))
        return [Answer(request.client, number, finished=True, missing=missing, more=more)]
