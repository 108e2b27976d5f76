"""Many brokers and what is in flight between them, to be driven by tests and by the lab.

>>> network = Network.of(Topology(3, ((1, 2), (2, 3))))
>>> network.act(3, lambda broker: broker.subscribe("ann", Filter.of_topic("storms")))
>>> network.run()
2
>>> network.act(1, lambda broker: broker.publish("storms", at_ms=0))
>>> network.run()
2
>>> [(told.broker, told.out.client) for told in network.told]
[(3, 'ann')]
>>> network.crossed[1, 2].messages["Publish"]
1

Messages between two neighbours arrive in the order in which they were sent. Among links the order is that of
sending, or any, as `order` picks it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import Message, Name, encode
from newsstand.overlay.node import OverlayBroker
from newsstand.overlay.outcomes import Out, Send
from newsstand.overlay.topology import Topology

Way = tuple[Name, Name]
"""A link in one direction: from, to."""


class Told(NamedTuple):
    """What a broker has done, but for what it has sent."""

    broker: Name
    out: Out


@dataclass(slots=True)
class Crossed:
    """What has crossed a link in one direction, by the kind of message."""

    messages: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)


class Network:
    """Brokers, links and messages in flight."""

    def __init__(
        self,
        order: Random | None = None,
        make: Callable[[Name], OverlayBroker] = OverlayBroker,
        count_bytes: bool = False,
    ) -> None:
        """An empty network; `order` picks the link whose message comes next, without it they come as sent."""
        self.brokers: dict[Name, OverlayBroker] = {}
        self.told: list[Told] = []
        self.crossed: dict[Way, Crossed] = {}
        """What has crossed each link, from one broker to another."""
        self.lost = 0
        """Messages that were in flight on links that went down."""
        self._order = order
        self._make = make
        self._count_bytes = count_bytes
        self._flying: dict[Way, deque[Message]] = {}
        self._as_sent: deque[Way] = deque()
        self._busy: list[Way] = []

    @classmethod
    def of(
        cls,
        topology: Topology,
        order: Random | None = None,
        make: Callable[[Name], OverlayBroker] = OverlayBroker,
        count_bytes: bool = False,
    ) -> Network:
        """The brokers and links of a topology, its tree by breadth from broker 1."""
        network = cls(order, make, count_bytes)
        for node in range(1, topology.nodes + 1):
            network.add(node)
        tree = spanning_tree(network.brokers, topology.edges)
        for a, b in topology.edges:
            network.link(a, b, tree=(a, b) in tree)
        return network

    def add(self, name: Name) -> None:
        """A broker joins, without links."""
        self.brokers[name] = self._make(name)

    def remove(self, name: Name) -> None:
        """A broker is lost, with all it knew; its neighbours see their links go down."""
        for neighbour in list(self.brokers[name].links):
            self._cut(name, neighbour)
            self.act(neighbour, lambda broker: broker.link_down(name))
        del self.brokers[name]

    def link(self, a: Name, b: Name, tree: bool = True) -> None:
        """A link begins."""
        self._flying[a, b], self._flying[b, a] = deque(), deque()
        self.act(a, lambda broker: broker.link_up(b, tree))
        self.act(b, lambda broker: broker.link_up(a, tree))

    def unlink(self, a: Name, b: Name) -> None:
        """A link ends; what is in flight on it is lost."""
        self._cut(a, b)
        self.act(a, lambda broker: broker.link_down(b))
        self.act(b, lambda broker: broker.link_down(a))

    def links(self) -> list[tuple[Name, Name]]:
        """All links, each once."""
        return sorted({(min(way), max(way)) for way in self._flying})

    def plant(self) -> None:
        """Make a spanning tree of the links: those that leave it go first, so that it never has a ring."""
        tree = spanning_tree(self.brokers, self.links())
        for joins in (False, True):
            for a, b in self.links():
                if ((a, b) in tree) == joins:
                    self.set_tree(a, b, joins)

    def set_tree(self, a: Name, b: Name, tree: bool) -> None:
        """A link joins the tree or leaves it."""
        self.act(a, lambda broker: broker.set_tree(b, tree))
        self.act(b, lambda broker: broker.set_tree(a, tree))

    def act(self, name: Name, action: Callable[[OverlayBroker], Iterable[Out]]) -> None:
        """Something happens at a broker; what comes of it is in flight or told."""
        for out in action(self.brokers[name]):
            if isinstance(out, Send):
                self._send((name, out.neighbour), out.message)
            else:
                self.told.append(Told(name, out))

    def request(self, name: Name, client: str, wanted: Filter, limit: int = 0) -> int:
        """A client asks a broker for what is stored: the request's number."""
        number, outs = self.brokers[name].request(client, wanted, limit=limit)
        self.act(name, lambda _: outs)
        return number

    @property
    def in_flight(self) -> int:
        """How many messages have been sent and not received."""
        return sum(map(len, self._flying.values()))

    def crossed_by(self, *kinds: str) -> int:
        """How many messages of these kinds have crossed any link; each counts once for every link."""
        return sum(crossed.messages[kind] for crossed in self.crossed.values() for kind in kinds)

    def step(self) -> bool:
        """One message arrives; False if there is none."""
        way = self._pick()
        if way is None:
            return False
        message = self._flying[way].popleft()
        self.act(way[1], lambda broker: broker.receive(way[0], message))
        return True

    def run(self, most: int = 1_000_000) -> int:
        """Let messages arrive until none is in flight: how many did. After `most` of them something goes round."""
        steps = 0
        while self.step():
            steps += 1
            if steps > most:
                raise RuntimeError(f"{most} messages have arrived, and {self.in_flight} are in flight")
        return steps

    def _send(self, way: Way, message: Message) -> None:
        self._flying[way].append(message)
        if self._order is None:
            self._as_sent.append(way)
        elif len(self._flying[way]) == 1:
            self._busy.append(way)
        crossed = self.crossed.get(way)
        if crossed is None:
            crossed = self.crossed[way] = Crossed()
        kind = type(message).__name__
        crossed.messages[kind] += 1
        if self._count_bytes:
            crossed.bytes[kind] += len(encode(message))

    def _pick(self) -> Way | None:
        """The link whose message is next."""
        if self._order is None:
            return self._as_sent.popleft() if self._as_sent else None
        if not self._busy:
            return None
        place = self._order.randrange(len(self._busy))
        way = self._busy[place]
        if len(self._flying[way]) == 1:
            self._busy[place] = self._busy[-1]
            self._busy.pop()
        return way

    def _cut(self, a: Name, b: Name) -> None:
        cut = {(a, b), (b, a)}
        self.lost += sum(len(self._flying.pop(way)) for way in cut)
        self._as_sent = deque(way for way in self._as_sent if way not in cut)
        self._busy = [way for way in self._busy if way not in cut]


def spanning_tree(brokers: Iterable[Name], links: Iterable[tuple[Name, Name]]) -> set[tuple[Name, Name]]:
    """Links that connect what all links connect, without a ring: by breadth from each first broker not reached."""
    neighbours: dict[Name, list[Name]] = {name: [] for name in brokers}
    for a, b in links:
        neighbours[a].append(b)
        neighbours[b].append(a)
    tree: set[tuple[Name, Name]] = set()
    reached: set[Name] = set()
    for root in sorted(neighbours):
        if root in reached:
            continue
        reached.add(root)
        waiting = deque([root])
        while waiting:
            name = waiting.popleft()
            for neighbour in sorted(neighbours[name]):
                if neighbour not in reached:
                    reached.add(neighbour)
                    waiting.append(neighbour)
                    tree.add((min(name, neighbour), max(name, neighbour)))
    return tree
