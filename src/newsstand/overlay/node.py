"""A broker of the overlay, without sockets and without a clock (Sourlas et al. 2011, sections 3 and 4).

Whoever drives it brings what has happened and gets a list of what is to be done: messages to send to
neighbours, publications to deliver, answers to give. Between two neighbours messages must arrive in the order
in which they were sent, and both ends must begin and end a link together, as a connection does; then whatever
the order among links, tables come out right.

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

A storage is a subscriber that keeps what it gets and advertises what it keeps; requests go to a nearest one:

>>> for out in b.become_storage(["storms"]):
...     done = a.receive("b", out.message)
>>> done = [b.receive("a", out.message) for out in a.publish("storms", {"severity": 1}, at_ms=2000)]
>>> number, [request] = a.request("bob", Filter.parse("severity < 3"))
>>> [response] = b.receive("a", request.message)
>>> [answer, last] = a.receive("b", response.message)
>>> [publication.at_ms for publication in answer.publications], last.finished, last.missing
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
from newsstand.overlay.advertisement_table import AdvertisementTable
from newsstand.overlay.batches import batches
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import (
    MOST_HOPS,
    MOST_TOPICS,
    Advertise,
    Message,
    Name,
    Path,
    Position,
    Publication,
    PublicationId,
    Publish,
    Request,
    Response,
    State,
    Stored,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from newsstand.overlay.open_requests import OpenRequests
from newsstand.overlay.outcomes import Client, Deliver, Kept, Out, Receipt, Send
from newsstand.overlay.storage import MemoryStorage, Storage
from newsstand.overlay.subscription_table import SubscriptionTable
from newsstand.overlay.value_sets import Value


class _StorageClient:
    """The storage, as the subscription table knows it."""


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
        """A broker without links.

        Publications, requests and hops are numbered from `first_number`, which must be higher than any number
        of before when a broker of this name begins anew. A response carries up to `batch` publications (the
        paper's: 1). The ids of the `remembered` publications that came last are known, so that while the tree
        changes none is delivered twice; that must be more than are on their way without a receipt.
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
        self._seen: dict[PublicationId, tuple[int, bool]] = {}
        """The last attempt of each publication, and whether it was delivered."""

    # Links

    def link_up(self, neighbour: Name, tree: bool = True) -> list[Out]:
        """A link to a neighbour begins, or begins anew; the neighbour's side must do the same."""
        out = self.link_down(neighbour) if neighbour in self.links else []
        self.links[neighbour] = tree
        out += _sent(self.subscriptions.link_up(neighbour, tree))
        out += _sent(self.advertisements.link_up(neighbour))
        return out

    def link_down(self, neighbour: Name) -> list[Out]:
        """A link has ended, or the neighbour has."""
        if self.links.pop(neighbour, None) is None:
            return []
        out = _sent(self.subscriptions.link_down(neighbour))
        out += _sent(self.advertisements.link_down(neighbour))
        return out + self.requests.lose(neighbour)

    def set_tree(self, neighbour: Name, tree: bool) -> list[Out]:
        """A link belongs to the tree from now on, or no longer does; the neighbour's side should follow."""
        if neighbour not in self.links:
            return []
        self.links[neighbour] = tree
        return _sent(self.subscriptions.set_tree(neighbour, tree))

    # Clients

    def subscribe(self, client: Client, wanted: Filter) -> list[Out]:
        """A client wants what matches from now on."""
        return _sent(self.subscriptions.add(client, wanted))

    def unsubscribe(self, client: Client, wanted: Filter) -> list[Out]:
        """A client no longer wants what matches."""
        return _sent(self.subscriptions.remove(client, wanted))

    def client_gone(self, client: Client) -> list[Out]:
        """A client leaves, with its subscriptions and requests."""
        self.requests.drop(client)
        filters = self.subscriptions.of_client(client)
        return [out for wanted in filters for out in _sent(self.subscriptions.remove(client, wanted))]

    def publish(
        self, topic: str, attributes: Mapping[str, Value] | None = None, body: bytes = b"", *, at_ms: int
    ) -> list[Out]:
        """A client publishes."""
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
        """A publication of a client's, with the next number, to be sent."""
        try:
            publication = Publication(self.name, self._number, topic, attributes or {}, body, at_ms, author)
        except ValueError as bad:
            raise BadMessage(f"publication: {bad}") from None
        self._number += 1
        return publication

    def send(
        self, publication: Publication, *, attempt: int = 0, receipt: bool = False, late: bool = False
    ) -> list[Out]:
        """Send a publication on its way, for the first time or again; storages send receipts if asked to."""
        return self._forward(Publish(publication, 0, attempt, () if receipt else None, late), None)

    def become_storage(self, topics: Iterable[str]) -> list[Out]:
        """Store these topics and no others: subscribe to them, advertise them, forget what else was kept."""
        topics = sorted(set(topics))
        for topic in topics:
            if not is_topic(topic):
                raise BadMessage(f"storage: {topic!r} cannot be a topic")
        before = self.advertisements.own
        out: list[Out] = []
        for topic in topics:
            if topic not in before:
                out += self.subscribe(STORAGE, Filter.of_topic(topic))
        for topic in sorted(before - set(topics)):
            out += self.unsubscribe(STORAGE, Filter.of_topic(topic))
            self.storage.forget(topic)
        return out + self.advertise(topics)

    def advertise(self, topics: Iterable[str]) -> list[Out]:
        """Advertise these topics as stored here, and no others; what is kept and subscribed to stays as it is."""
        return _sent(self.advertisements.store(topics))

    def request(
        self, client: Client, wanted: Filter, *, after: Position | None = None, limit: int = 0
    ) -> tuple[int, list[Out]]:
        """A client wants what is stored: the request's number, which its answers have, and what is to be done.

        For each topic that the filter may match and that a storage is known of, it goes to a nearest one. A topic
        that the filter names and that nobody is known to store is missing in the last answer.
        """
        number, self._number = self._number, self._number + 1
        out: list[Out] = [*self.requests.begin(number, client)]
        known = self.advertisements.topics_of(wanted)
        for first in range(0, len(known), MOST_TOPICS):
            some = tuple(known[first : first + MOST_TOPICS])
            out += self._route(Request(number, wanted, some, (), after, limit))
        unknown = sorted((wanted.topics or frozenset()).difference(known))
        return number, [*out, *self.requests.asked(number, unknown)]

    def give_up(self, number: int) -> list[Out]:
        """A request has waited long enough: its last answer, with what is missing."""
        return [*self.requests.give_up(number)]

    # Neighbours

    def receive(self, neighbour: Name, message: Message) -> list[Out]:
        """A message has come from a neighbour."""
        if neighbour not in self.links:
            return self._drop("from a stranger")
        match message:
            case Publish():
                return self._forward(message, neighbour)
            case Subscribe(wanted):
                return _sent(self.subscriptions.hear(neighbour, wanted))
            case Unsubscribe(wanted):
                return _sent(self.subscriptions.unhear(neighbour, wanted))
            case Advertise(topics, way, broken):
                if not way or way[0][0] != neighbour:
                    return self._drop("path of another")
                return _sent(self.advertisements.hear(neighbour, topics, way, broken))
            case Unadvertise(topics, broken):
                return _sent(self.advertisements.unhear(neighbour, topics, broken))
            case Request():
                return self._route(message)
            case Response():
                return self._return(message)
            case Stored():
                return self._hand_back(message)
            case _:
                return self._drop("not for this kind of broker")

    def _forward(self, message: Publish, sender: Name | None) -> list[Out]:
        """Deliver and forward a publication along the tree, against the way that subscriptions came."""
        publication = message.publication
        attempt, delivered = self._seen.pop(publication.id, (-1, False))
        if message.attempt <= attempt:
            self._seen[publication.id] = attempt, delivered
            return self._drop("publication seen before")
        self._seen[publication.id] = message.attempt, delivered or not message.late
        if len(self._seen) > self._remembered:
            del self._seen[next(iter(self._seen))]
        is_new = not (delivered or message.late or (sender is None and message.attempt > 0))
        clients = self.subscriptions.clients_of(publication)
        if is_new:
            self._crossed(publication, clients)
        out: list[Out] = []
        for client in clients:
            if client is STORAGE and not self.storage.is_able:
                self.dropped["storage is not able"] += 1
            elif client is STORAGE:
                out += [Kept(publication)] if self.storage.keep(publication) else []
                out += self._receipt(message)
            elif is_new:
                out.append(Deliver(client, publication))
        neighbours = self._onward(message, sender)
        if neighbours and message.hops >= MOST_HOPS:
            return out + self._drop("publication went too far")
        path = None if message.path is None else (*message.path, self.name)
        onward = Publish(publication, message.hops + 1, message.attempt, path, message.late)
        return out + [Send(neighbour, onward) for neighbour in neighbours]

    def _crossed(self, publication: Publication, clients: Sequence[Client]) -> None:
        """A publication is here for the first time, and these want it: for those who cache."""

    def _onward(self, message: Publish, sender: Name | None) -> list[Name]:
        """Whom a publication is forwarded to."""
        return self.subscriptions.neighbours_of(message.publication, sender)

    def _receipt(self, message: Publish) -> list[Out]:
        """Tell a publisher who wants to know that the storage has a publication."""
        if message.path is None:
            return []
        publication = message.publication
        path: Path = (self.name, *reversed(message.path))
        return self._hand_back(Stored(publication.origin, publication.number, path))

    def _hand_back(self, stored: Stored) -> list[Out]:
        rest = self._rest(stored.path)
        if rest is None:
            return []
        if not rest:
            return [Receipt((stored.origin, stored.number))]
        return [Send(rest[0], Stored(stored.origin, stored.number, rest))]

    def _route(self, request: Request) -> list[Out]:
        """Answer a request for what is stored here, and send it towards a nearest storage for all else."""
        path: Path = (*request.path, self.name)
        asked_here = not request.path
        stuck = self.name in request.path or len(path) >= MOST_HOPS
        ways: dict[Name | None, list[str]] = {}
        nowhere: list[str] = []
        for topic in request.topics:
            nearest = self.advertisements.nearest(topic)
            if nearest is None or (stuck and nearest.distance):
                nowhere.append(topic)
            elif nearest.distance == 0:
                ways.setdefault(None, []).append(topic)
            else:
                ways.setdefault(_spread(path[0], request.number, self.name, nearest.neighbours), []).append(topic)
        if asked_here:
            for neighbour, topics in ways.items():
                self.requests.expect(request.number, topics, neighbour)
        out: list[Out] = []
        if nowhere:
            self.dropped["request went astray"] += 1
            out += self._answer(Request(request.number, request.filter, tuple(nowhere), path), (), "nowhere")
        for neighbour, topics in ways.items():
            part = Request(request.number, request.filter, tuple(topics), path, request.after, request.limit)
            out += self._serve(part) if neighbour is None else [Send(neighbour, part)]
        return out

    def _serve(self, request: Request) -> list[Out]:
        """What the storage has for a request."""
        found = self.storage.matching(request.filter, request.topics, request.after, beyond(request))
        return self.answer(request, found)

    def answer(self, request: Request, found: Sequence[Publication]) -> list[Out]:
        """Answer a request with what the storage has, up to `beyond` of it."""
        more = bool(request.limit) and len(found) > request.limit
        return self._answer(request, found[: request.limit] if more else found, "more" if more else "end")

    def _answer(self, request: Request, found: Sequence[Publication], state: State) -> list[Out]:
        """Responses on their way back, the last one with the state."""
        path: Path = tuple(reversed(request.path))
        out: list[Out] = []
        so_far = 0
        for some in batches(found, self._batch):
            so_far += len(some)
            now: State = state if so_far == len(found) else "part"
            out += self._return(Response(request.number, request.topics, path, now, some, so_far))
        return out

    def _return(self, response: Response) -> list[Out]:
        """Take this broker off the path of a response, and send it to the next one, or give it to the client."""
        rest = self._rest(response.path)
        if rest is None:
            return []
        if not rest:
            answers = self.requests.receive(response)
            return self._drop("response too late") if answers is None else [*answers]
        return [Send(rest[0], msgspec.structs.replace(response, path=rest))]

    def _rest(self, path: Path) -> Path | None:
        """A path without this broker, to the next one or to nobody; None if it leads nowhere."""
        if not path or path[0] != self.name:
            self.dropped["path of another"] += 1
            return None
        if len(path) > 1 and path[1] not in self.links:
            self.dropped["response cannot return"] += 1
            return None
        return path[1:]

    def _drop(self, why: str) -> list[Out]:
        self.dropped[why] += 1
        return []


def beyond(request: Request) -> int:
    """How much of the storage has to be looked at to answer a request; 0 for all."""
    return request.limit + 1 if request.limit else 0


def _sent(told: Iterable[tuple[Name, Message]]) -> list[Out]:
    return [Send(neighbour, message) for neighbour, message in told]


def _spread(origin: Name, number: int, here: Name, neighbours: tuple[Name, ...]) -> Name:
    """One of the neighbours that are equally near: requests spread over them, and each has one way to go."""
    return neighbours[crc32(f"{origin}/{number}/{here}".encode()) % len(neighbours)]
