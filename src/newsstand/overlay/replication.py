"""A broker of the overlay that keeps topics together with others, so that none of them misses anything for long.

The tables of the paper (Sourlas et al. 2011, section 4.1) tell the way to a nearest storage. Storages of one topic
must find each other, too, each past itself: a search goes to every broker of the tree, and whoever keeps the
topic answers with the way. By that way they can be asked for what they have.

>>> a, b = ReplicatingBroker("a"), ReplicatingBroker("b")
>>> a.link_up("b"), b.link_up("a")
([], [])
>>> for out in a.keep("storms"):
...     done = b.receive("a", out.message)
>>> [sent] = b.send(b.compose("storms", at_ms=1000), receipt=True)
>>> kept, receipt = a.receive("b", sent.message)
>>> b.receive("a", receipt.message)
[Receipt(id=('b', 1))]
>>> number, [seek] = b.seek(["storms"])
>>> [found] = a.receive("b", seek.message)
>>> b.receive("a", found.message)
[Located(number=2, topics=('storms',), way=('a',))]
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from newsstand.errors import BadMessage
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import (
    MOST_HOPS,
    MOST_TOPICS,
    Found,
    Mended,
    Message,
    Name,
    Path,
    Position,
    Request,
    Seek,
)
from newsstand.overlay.node import STORAGE, OverlayBroker
from newsstand.overlay.outcomes import Changed, Client, Located, Out, Send, Serve


class ReplicatingBroker(OverlayBroker):
    """Its storage is read by whoever drives it: a `Serve` is to be followed by `answer`."""

    @property
    def next_number(self) -> int:
        """The number of the next publication, request or search."""
        return self._number

    # Topics that are kept

    @property
    def kept(self) -> list[str]:
        """The topics that the storage gets, in order, whether they are advertised or not."""
        return sorted(topic for wanted in self.subscriptions.of_client(STORAGE) for topic in wanted.topics or ())

    def keep(self, topic: str) -> list[Out]:
        """Let the storage have what is published from now on."""
        return self.subscribe(STORAGE, Filter.of_topic(topic))

    def cannot_answer(self, request: Request) -> list[Out]:
        """The storage has failed: whoever asks need not wait, and may ask again."""
        return self._answer(request, (), "nowhere")

    def let_go(self, topic: str) -> list[Out]:
        """The storage gets no more of a topic, nor is it advertised; what it has stays."""
        return self.advertise(self.advertisements.own - {topic}) + self.unsubscribe(
            STORAGE, Filter.of_topic(topic)
        )

    # Other storages

    def seek(self, topics: Iterable[str]) -> tuple[int, list[Out]]:
        """Look for all others that keep topics, up to MOST_TOPICS: the search's number, which those found have."""
        some = tuple(sorted(topics))
        if len(some) > MOST_TOPICS:
            raise BadMessage(f"search: {len(some)} topics, but there is room for {MOST_TOPICS}")
        number, self._number = self._number, self._number + 1
        return number, self._to_all(Seek(number, some, (self.name,)), None)

    def mended(self) -> list[Out]:
        """A link has begun here: everybody has to know."""
        return self._to_all(Mended((self.name,)), None)

    def request_from(
        self, way: Path, client: Client, topic: str, *, after: Position | None = None, limit: int = 0
    ) -> tuple[int, list[Out]]:
        """Ask one particular storage, to which the way is known, for what it has of a topic."""
        number, self._number = self._number, self._number + 1
        out: list[Out] = [*self.requests.begin(number, client)]
        if not way or way[0] not in self.links:
            return number, [*out, *self.requests.asked(number, [topic])]
        self.requests.expect(number, [topic], way[0])
        wanted = Filter.of_topic(topic)
        out.append(Send(way[0], Request(number, wanted, (topic,), (self.name,), after, limit, way)))
        return number, [*out, *self.requests.asked(number, ())]

    # Neighbours

    def receive(self, neighbour: Name, message: Message) -> list[Out]:
        if neighbour not in self.links:
            return super().receive(neighbour, message)
        match message:
            case Seek():
                return self._found(message) + self._pass_on(message, neighbour)
            case Mended():
                return [Changed(), *self._pass_on(message, neighbour)]
            case Found():
                return self._return_found(message)
            case Request() if message.to:
                return self._direct(message)
            case _:
                return super().receive(neighbour, message)

    def _serve(self, request: Request) -> list[Out]:
        return [Serve(request)]

    def _found(self, seek: Seek) -> list[Out]:
        kept = set(self.kept)
        here = tuple(topic for topic in seek.topics if topic in kept)
        if not here:
            return []
        way: Path = (*seek.path[1:], self.name)
        return self._return_found(Found(seek.number, here, way, (self.name, *reversed(seek.path))))

    def _return_found(self, found: Found) -> list[Out]:
        rest = self._rest(found.path)
        if rest is None:
            return []
        if not rest:
            return [Located(found.number, found.topics, found.way)]
        return [Send(rest[0], msgspec.structs.replace(found, path=rest))]

    def _direct(self, request: Request) -> list[Out]:
        """Send a request on to the storage that it is for, or answer it."""
        path: Path = (*request.path, self.name)
        rest = self._rest(request.to)
        if rest is None or len(path) >= MOST_HOPS:
            return self._answer(msgspec.structs.replace(request, path=path, to=()), (), "nowhere")
        if not rest:
            return self._serve(msgspec.structs.replace(request, path=path, to=()))
        return [Send(rest[0], msgspec.structs.replace(request, path=path, to=rest))]

    def _pass_on(self, message: Seek | Mended, sender: Name) -> list[Out]:
        if self.name in message.path or len(message.path) >= MOST_HOPS:
            return self._drop("went in a ring")
        return self._to_all(msgspec.structs.replace(message, path=(*message.path, self.name)), sender)

    def _to_all(self, message: Seek | Mended, but: Name | None) -> list[Out]:
        return [Send(neighbour, message) for neighbour in self._others(but)]

    def _others(self, but: Name | None) -> list[Name]:
        """All neighbours by the tree but one."""
        return [neighbour for neighbour, tree in self.links.items() if tree and neighbour != but]
