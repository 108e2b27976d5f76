"""A broker of the overlay (Sourlas et al. 2011, sections 3 and 4).

The caller passes events and performs the effects: messages to neighbours, deliveries, answers. Between two
neighbours messages must arrive in the order in which they were sent, and both ends must begin and end a link
together, as a connection does; then the tables converge, whatever the order among links.

>>> a, b = OverlayBroker("a"), OverlayBroker("b")
>>> a.link_up("b"), b.link_up("a")
([], [])
>>> [subscribe] = b.subscribe("ann", Filter.parse("topic = 'storms' and severity >= 3"))
>>> subscribe
Send(neighbour='a', message=Subscribe(filter=Filter("topic = 'storms' and severity >= 3")))
>>> a.receive("b", subscribe.message)
[]
>>> [publish] = a.publish("storms", {"severity": 4}, b"Take shelter.", at_ms=1000)
>>> [delivery] = b.receive("a", publish.message)
>>> delivery.client, delivery.publication.body
('ann', b'Take shelter.')

A storage is a subscriber that stores what it receives and advertises its topics; requests go to a nearest one:

>>> for effect in b.become_storage(["storms"]):
...     done = a.receive("b", effect.message)
>>> done = [b.receive("a", effect.message) for effect in a.publish("storms", {"severity": 1}, at_ms=2000)]
>>> number, [request] = a.request("bob", Filter.parse("severity < 3"))
>>> [response] = b.receive("a", request.message)
>>> [answer, last] = a.receive("b", response.message)
>>> [publication.at_ms for publication in answer.publications], last.finished, last.unavailable
([2000], True, ())

Subscriptions and publications keep to the links of a spanning tree (`tree=True`), advertisements, requests and
responses take any link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from zlib import crc32

import msgspec

from newsstand.errors import BadMessage
from newsstand.model import is_topic
from newsstand.overlay.broker.effects import Client, Confirmation, Deliver, Effect, Send, StoreEvent
from newsstand.overlay.broker.requests import OpenRequests
from newsstand.overlay.broker.storage import MemoryStorage, Storage
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.filters.value_sets import Value
from newsstand.overlay.messages import (
    MOST_HOPS,
    MOST_TOPICS,
    Advertise,
    Message,
    MessagePosition,
    Name,
    Path,
    Publication,
    PublicationId,
    Publish,
    State,
    StorageReceipt,
    StorageRequest,
    StorageResponse,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    batches,
)
from newsstand.overlay.routing.advertisements import AdvertisementTable
from newsstand.overlay.routing.subscriptions import SubscriptionTable


class _StorageClient:
    """The storage as a client of the subscription table."""


STORAGE = _StorageClient()


class OverlayBroker:
    """A broker with its tables, its storage and the requests of its clients."""

    def __init__(
        self,
        name: Name,
        storage: Storage | None = None,
        *,
        covering: bool = True,
        first_number: int = 1,
        batch: int = 16,
        remembered: int = 4096,
        most_requests: int = 4096,
    ) -> None:
        """Create a broker without links.

        Publications, requests and hops are numbered from `first_number`, which must exceed all numbers that a
        broker of this name has used. A response carries up to `batch` publications (1 in the paper). The ids of
        the last `remembered` publications are known, so that none is delivered twice while the tree changes;
        that must exceed the number of publications without a receipt.
        """
        self.name = name
        self.storage: Storage = MemoryStorage() if storage is None else storage
        self.subscriptions = SubscriptionTable(covering)
        self.advertisements = AdvertisementTable(name, first_number, remembered)
        self.requests = OpenRequests(most_requests)
        self.links: dict[Name, bool] = {}
        """The neighbours, and whether the link to each belongs to the tree."""
        self.dropped: Counter[str] = Counter()
        """What was dropped, by reason."""
        self._number = first_number
        self._batch = batch
        self._remembered = remembered
        self.seen: dict[PublicationId, tuple[int, bool]] = {}
        """The last attempt of each publication, and whether it was delivered."""

    # Links

    def link_up(self, neighbour: Name, tree: bool = True) -> list[Effect]:
        """Begin a link to a neighbour, or begin it again; the neighbour must do the same."""
        effects = self.link_down(neighbour) if neighbour in self.links else []
        self.links[neighbour] = tree
        effects += _sends(self.subscriptions.link_up(neighbour, tree))
        effects += _sends(self.advertisements.link_up(neighbour))
        return effects

    def link_down(self, neighbour: Name) -> list[Effect]:
        if self.links.pop(neighbour, None) is None:
            return []
        effects = _sends(self.subscriptions.link_down(neighbour))
        effects += _sends(self.advertisements.link_down(neighbour))
        return effects + self.requests.lose(neighbour)

    def set_tree(self, neighbour: Name, tree: bool) -> list[Effect]:
        """Add a link to the tree, or remove it; the neighbour should do the same."""
        if neighbour not in self.links:
            return []
        self.links[neighbour] = tree
        return _sends(self.subscriptions.set_tree(neighbour, tree))

    # Clients

    def subscribe(self, client: Client, wanted: Filter) -> list[Effect]:
        """Subscribe a client to what matches."""
        return _sends(self.subscriptions.add(client, wanted))

    def unsubscribe(self, client: Client, wanted: Filter) -> list[Effect]:
        return _sends(self.subscriptions.remove(client, wanted))

    def remove_client(self, client: Client) -> list[Effect]:
        """Remove a client with its subscriptions and requests."""
        self.requests.drop(client)
        filters = self.subscriptions.of_client(client)
        return [effect for wanted in filters for effect in _sends(self.subscriptions.remove(client, wanted))]

    def publish(
        self, topic: str, attributes: Mapping[str, Value] | None = None, body: bytes = b"", *, at_ms: int
    ) -> list[Effect]:
        return self.send(self.compose(topic, attributes, body, at_ms=at_ms))

    def compose(
        self,
        topic: str,
        attributes: Mapping[str, Value] | None = None,
        body: bytes = b"",
        *,
        at_ms: int,
        author: str = "",
    ) -> Publication:
        """Return a publication with the next number, to be sent."""
        try:
            publication = Publication(self.name, self._number, topic, attributes or {}, body, at_ms, author)
        except ValueError as bad:
            raise BadMessage(f"publication: {bad}") from None
        self._number += 1
        return publication

    def send(
        self, publication: Publication, *, attempt: int = 0, receipt: bool = False, late: bool = False
    ) -> list[Effect]:
        """Send a publication, for the first time or again; with `receipt`, storages confirm it."""
        return self._forward(Publish(publication, 0, attempt, () if receipt else None, late), None)

    def become_storage(self, topics: Iterable[str]) -> list[Effect]:
        """Store these topics and no others: subscribe to them, advertise them, forget other topics."""
        topics = sorted(set(topics))
        for topic in topics:
            if not is_topic(topic):
                raise BadMessage(f"storage: {topic!r} is not a valid topic")
        before = self.advertisements.own
        effects: list[Effect] = []
        for topic in topics:
            if topic not in before:
                effects += self.subscribe(STORAGE, Filter.of_topic(topic))
        for topic in sorted(before - set(topics)):
            effects += self.unsubscribe(STORAGE, Filter.of_topic(topic))
            self.storage.forget(topic)
        return effects + self.advertise(topics)

    def advertise(self, topics: Iterable[str]) -> list[Effect]:
        """Advertise these topics as stored here, and no others; subscriptions and stored messages stay."""
        return _sends(self.advertisements.set_own(topics))

    def request(
        self, client: Client, wanted: Filter, *, after: MessagePosition | None = None, limit: int = 0
    ) -> tuple[int, list[Effect]]:
        """Request stored publications for a client; return the number of the request, and effects.

        For each topic that the filter may match, the request goes to a nearest known storage. A topic that the
        filter names and that has no known storage is unavailable in the last answer.
        """
        number, self._number = self._number, self._number + 1
        effects: list[Effect] = [*self.requests.begin(number, client)]
        known = self.advertisements.topics_of(wanted)
        for first in range(0, len(known), MOST_TOPICS):
            some = tuple(known[first : first + MOST_TOPICS])
            effects += self._route(StorageRequest(number, wanted, some, (), after, limit))
        unknown = sorted((wanted.topics or frozenset()).difference(known))
        return number, [*effects, *self.requests.start(number, unknown)]

    def give_up(self, number: int) -> list[Effect]:
        """End a request that has waited too long, with the last answer."""
        return [*self.requests.give_up(number)]

    # Neighbours

    def receive(self, neighbour: Name, message: Message) -> list[Effect]:
        if neighbour not in self.links:
            return self._drop("from an unknown neighbour")
        match message:
            case Publish():
                return self._forward(message, neighbour)
            case Subscribe(wanted):
                return _sends(self.subscriptions.receive(neighbour, wanted))
            case Unsubscribe(wanted):
                return _sends(self.subscriptions.withdraw(neighbour, wanted))
            case Advertise(topics, route, broken):
                if not route or route[0][0] != neighbour:
                    return self._drop("path of another broker")
                return _sends(self.advertisements.receive(neighbour, topics, route, broken))
            case Unadvertise(topics, broken):
                return _sends(self.advertisements.withdraw(neighbour, topics, broken))
            case StorageRequest():
                return self._route(message)
            case StorageResponse():
                return self._return(message)
            case StorageReceipt():
                return self._return_receipt(message)
            case _:
                return self._drop("not for this kind of broker")

    def _forward(self, message: Publish, sender: Name | None) -> list[Effect]:
        """Deliver and forward a publication along the tree, against the routes of subscriptions."""
        publication = message.publication
        attempt, delivered = self.seen.pop(publication.id, (-1, False))
        if message.attempt <= attempt:
            self.seen[publication.id] = attempt, delivered
            return self._drop("publication seen before")
        self.seen[publication.id] = message.attempt, delivered or not message.late
        if len(self.seen) > self._remembered:
            del self.seen[next(iter(self.seen))]
        is_new = not (delivered or message.late or (sender is None and message.attempt > 0))
        clients = self.subscriptions.clients_of(publication)
        if is_new:
            self._on_forward(publication, clients)
        effects: list[Effect] = []
        for client in clients:
            if client is STORAGE and not self.storage.is_writable:
                self.dropped["storage not writable"] += 1
            elif client is STORAGE:
                effects += [StoreEvent(publication)] if self.storage.keep(publication) else []
                effects += self._confirm(message)
            elif is_new:
                effects.append(Deliver(client, publication))
        neighbours = self._next_hops(message, sender)
        if neighbours and message.hops >= MOST_HOPS:
            return effects + self._drop("publication exceeded the hop limit")
        path = None if message.path is None else (*message.path, self.name)
        onward = Publish(publication, message.hops + 1, message.attempt, path, message.late)
        return effects + [Send(neighbour, onward) for neighbour in neighbours]

    def _on_forward(self, publication: Publication, clients: Sequence[Client]) -> None:
        """Handle a publication that arrives for the first time, and is delivered to these clients."""

    def _next_hops(self, message: Publish, sender: Name | None) -> list[Name]:
        """Return the neighbours to which a publication is forwarded."""
        return self.subscriptions.neighbours_of(message.publication, sender)

    def _confirm(self, message: Publish) -> list[Effect]:
        """Send a receipt for a stored publication, if its publisher requires one."""
        if message.path is None:
            return []
        publication = message.publication
        path: Path = (self.name, *reversed(message.path))
        return self._return_receipt(StorageReceipt(publication.origin, publication.number, path))

    def _return_receipt(self, stored: StorageReceipt) -> list[Effect]:
        rest = self._next_path(stored.path)
        if rest is None:
            return []
        if not rest:
            return [Confirmation((stored.origin, stored.number))]
        return [Send(rest[0], StorageReceipt(stored.origin, stored.number, rest))]

    def _route(self, request: StorageRequest) -> list[Effect]:
        """Answer a request for topics stored here, and forward it to nearest storages for the others."""
        path: Path = (*request.path, self.name)
        is_local = not request.path
        stuck = self.name in request.path or len(path) >= MOST_HOPS
        routes: dict[Name | None, list[str]] = {}
        unstored: list[str] = []
        for topic in request.topics:
            nearest = self.advertisements.nearest(topic)
            if nearest is None or (stuck and nearest.distance):
                unstored.append(topic)
            elif nearest.distance == 0:
                routes.setdefault(None, []).append(topic)
            else:
                via = _spread(path[0], request.number, self.name, nearest.neighbours)
                routes.setdefault(via, []).append(topic)
        if is_local:
            for neighbour, topics in routes.items():
                self.requests.expect(request.number, topics, neighbour)
        effects: list[Effect] = []
        if unstored:
            self.dropped["request without a route"] += 1
            unserved = StorageRequest(request.number, request.filter, tuple(unstored), path)
            effects += self._answer(unserved, (), "nowhere")
        for neighbour, topics in routes.items():
            part = msgspec.structs.replace(request, topics=tuple(topics), path=path)
            effects += self._serve(part) if neighbour is None else [Send(neighbour, part)]
        return effects

    def _serve(self, request: StorageRequest) -> list[Effect]:
        """Answer a request from the storage."""
        found = self.storage.matching(request.filter, request.topics, request.after, read_limit(request))
        return self.answer(request, found)

    def answer(self, request: StorageRequest, found: Sequence[Publication]) -> list[Effect]:
        """Answer a request with what the storage has, up to `read_limit` of it."""
        more = bool(request.limit) and len(found) > request.limit
        return self._answer(request, found[: request.limit] if more else found, "more" if more else "end")

    def _answer(self, request: StorageRequest, found: Sequence[Publication], state: State) -> list[Effect]:
        """Return responses on their route back, the last one with the state."""
        path: Path = tuple(reversed(request.path))
        effects: list[Effect] = []
        so_far = 0
        for some in batches(found, self._batch):
            so_far += len(some)
            now: State = state if so_far == len(found) else "part"
            effects += self._return(StorageResponse(request.number, request.topics, path, now, some, so_far))
        return effects

    def _return(self, response: StorageResponse) -> list[Effect]:
        """Forward a response to the next broker of its path, or deliver it to the client."""
        rest = self._next_path(response.path)
        if rest is None:
            return []
        if not rest:
            answers = self.requests.receive(response)
            return self._drop("response too late") if answers is None else [*answers]
        return [Send(rest[0], msgspec.structs.replace(response, path=rest))]

    def _next_path(self, path: Path) -> Path | None:
        """Return a path without this broker, () at its end; None if the next broker cannot be reached."""
        if not path or path[0] != self.name:
            self.dropped["path of another broker"] += 1
            return None
        if len(path) > 1 and path[1] not in self.links:
            self.dropped["response cannot return"] += 1
            return None
        return path[1:]

    def _drop(self, why: str) -> list[Effect]:
        self.dropped[why] += 1
        return []


def read_limit(request: StorageRequest) -> int:
    """Return how many publications the storage must find to answer a request; 0 for all."""
    return request.limit + 1 if request.limit else 0


def _sends(messages: Iterable[tuple[Name, Message]]) -> list[Effect]:
    return [Send(neighbour, message) for neighbour, message in messages]


def _spread(origin: Name, number: int, here: Name, neighbours: tuple[Name, ...]) -> Name:
    """Return one of the neighbours that are equally near; requests spread over them, each has one route."""
    return neighbours[crc32(f"{origin}/{number}/{here}".encode()) % len(neighbours)]
