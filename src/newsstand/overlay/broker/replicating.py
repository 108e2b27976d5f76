"""A broker of the overlay whose storage replicates topics together with the storages of other brokers.

The tables of the paper (Sourlas et al. 2011, section 4.1) hold the route to a nearest storage. The storages of a
topic must also find each other: a `Seek` goes to every broker of the tree, and each storage replies with its
route, by which its content can be requested.

>>> a, b = ReplicatingBroker("a"), ReplicatingBroker("b")
>>> a.link_up("b"), b.link_up("a")
([], [])
>>> for effect in a.start_storing("storms"):
...     done = b.receive("a", effect.message)
>>> [sent] = b.send(b.compose("storms", at_ms=1000), receipt=True)
>>> stored, receipt = a.receive("b", sent.message)
>>> b.receive("a", receipt.message)
[Confirmation(id=('b', 1))]
>>> number, [seek] = b.seek(["storms"])
>>> [found] = a.receive("b", seek.message)
>>> b.receive("a", found.message)
[SeekResult(number=2, topics=('storms',), route=('a',))]
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from newsstand.errors import BadMessage
from newsstand.overlay.broker.broker import STORAGE, OverlayBroker
from newsstand.overlay.broker.effects import Client, Effect, SeekResult, Send, Serve, TreeChange
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import (
    MOST_HOPS,
    MOST_TOPICS,
    LinkChange,
    Message,
    MessagePosition,
    Name,
    Path,
    Seek,
    SeekReply,
    StorageRequest,
)


class ReplicatingBroker(OverlayBroker):
    """A broker whose caller reads the storage: `answer` follows each `Serve`."""

    @property
    def next_number(self) -> int:
        """The number of the next publication, request or search."""
        return self._number

    # Stored topics

    @property
    def stored_topics(self) -> list[str]:
        """The topics that the storage subscribes to, in order, advertised or not."""
        return sorted(topic for wanted in self.subscriptions.of_client(STORAGE) for topic in wanted.topics or ())

    def start_storing(self, topic: str) -> list[Effect]:
        """Store what is published from now on."""
        return self.subscribe(STORAGE, Filter.of_topic(topic))

    def fail_request(self, request: StorageRequest) -> list[Effect]:
        """Answer a request for which the storage has failed."""
        return self._answer(request, (), "nowhere")

    def stop_storing(self, topic: str) -> list[Effect]:
        """Stop storing and advertising a topic; stored publications stay."""
        return self.advertise(self.advertisements.own - {topic}) + self.unsubscribe(
            STORAGE, Filter.of_topic(topic)
        )

    # Other storages

    def seek(self, topics: Iterable[str]) -> tuple[int, list[Effect]]:
        """Search all other storages of up to MOST_TOPICS topics; return the number of the search, and effects."""
        some = tuple(sorted(topics))
        if len(some) > MOST_TOPICS:
            raise BadMessage(f"search: {len(some)} topics, at most {MOST_TOPICS} are allowed")
        number, self._number = self._number, self._number + 1
        return number, self._to_all(Seek(number, some, (self.name,)), None)

    def announce_link(self) -> list[Effect]:
        """Announce to all brokers that a link has begun here."""
        return self._to_all(LinkChange((self.name,)), None)

    def request_from(
        self, route: Path, client: Client, topic: str, *, after: MessagePosition | None = None, limit: int = 0
    ) -> tuple[int, list[Effect]]:
        """Request a topic from one storage by a known route; return the number of the request, and effects."""
        number, self._number = self._number, self._number + 1
        effects: list[Effect] = [*self.requests.begin(number, client)]
        if not route or route[0] not in self.links:
            return number, [*effects, *self.requests.start(number, [topic])]
        self.requests.expect(number, [topic], route[0])
        wanted = Filter.of_topic(topic)
        effects.append(Send(route[0], StorageRequest(number, wanted, (topic,), (self.name,), after, limit, route)))
        return number, [*effects, *self.requests.start(number, ())]

    # Neighbours

    def receive(self, neighbour: Name, message: Message) -> list[Effect]:
        if neighbour not in self.links:
            return super().receive(neighbour, message)
        match message:
            case Seek():
                return self._reply_to(message) + self._pass_on(message, neighbour)
            case LinkChange():
                return [TreeChange(), *self._pass_on(message, neighbour)]
            case SeekReply():
                return self._return_reply(message)
            case StorageRequest() if message.to:
                return self._direct(message)
            case _:
                return super().receive(neighbour, message)

    def _serve(self, request: StorageRequest) -> list[Effect]:
        return [Serve(request)]

    def _reply_to(self, seek: Seek) -> list[Effect]:
        stored = set(self.stored_topics)
        here = tuple(topic for topic in seek.topics if topic in stored)
        if not here:
            return []
        route: Path = (*seek.path[1:], self.name)
        return self._return_reply(SeekReply(seek.number, here, route, (self.name, *reversed(seek.path))))

    def _return_reply(self, found: SeekReply) -> list[Effect]:
        rest = self._next_path(found.path)
        if rest is None:
            return []
        if not rest:
            return [SeekResult(found.number, found.topics, found.route)]
        return [Send(rest[0], msgspec.structs.replace(found, path=rest))]

    def _direct(self, request: StorageRequest) -> list[Effect]:
        """Forward a request to the storage at the end of its route, or answer it."""
        path: Path = (*request.path, self.name)
        rest = self._next_path(request.to)
        if rest is None or len(path) >= MOST_HOPS:
            return self._answer(msgspec.structs.replace(request, path=path, to=()), (), "nowhere")
        if not rest:
            return self._serve(msgspec.structs.replace(request, path=path, to=()))
        return [Send(rest[0], msgspec.structs.replace(request, path=path, to=rest))]

    def _pass_on(self, message: Seek | LinkChange, sender: Name) -> list[Effect]:
        if self.name in message.path or len(message.path) >= MOST_HOPS:
            return self._drop("routing loop")
        return self._to_all(msgspec.structs.replace(message, path=(*message.path, self.name)), sender)

    def _to_all(self, message: Seek | LinkChange, but: Name | None) -> list[Effect]:
        return [Send(neighbour, message) for neighbour in self._others(but)]

    def _others(self, but: Name | None) -> list[Name]:
        """Return all neighbours by the tree but one."""
        return [neighbour for neighbour, tree in self.links.items() if tree and neighbour != but]
