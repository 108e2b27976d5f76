"""A network of overlay brokers with messages in flight, for tests and the lab.

>>> network = OverlayNetwork.of(Topology(3, ((1, 2), (2, 3))))
>>> network.act(3, lambda broker: broker.subscribe("ann", Filter.of_topic("storms")))
>>> network.run()
2
>>> network.act(1, lambda broker: broker.publish("storms", at_ms=0))
>>> network.run()
2
>>> [(one.broker, one.effect.client) for one in network.effects]
[(3, 'ann')]
>>> network.traffic[1, 2]["Publish"]
1

Messages between two neighbours arrive in the order in which they were sent; across links in the order of sending,
or in any order that `order` picks.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from newsstand.overlay.broker.broker import OverlayBroker
from newsstand.overlay.broker.effects import Effect, Send
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import Message, Name
from newsstand.overlay.topology import Topology

Direction = tuple[Name, Name]
"""A link in one direction: from, to."""


class RecordedEffect(NamedTuple):
    """An effect of a broker other than Send."""

    broker: Name
    effect: Effect


class OverlayNetwork:
    """Brokers, links and messages in flight."""

    def __init__(self, order: Random | None = None, make: Callable[[Name], OverlayBroker] = OverlayBroker) -> None:
        """Create an empty network; `order` picks the link whose message arrives next, else they arrive as sent."""
        self.brokers: dict[Name, OverlayBroker] = {}
        self.effects: list[RecordedEffect] = []
        self.traffic: defaultdict[Direction, Counter[str]] = defaultdict(Counter)
        """The number of messages that have crossed each link, from one broker to another, by type."""
        self.lost = 0
        """Messages that were in flight on links that ended."""
        self._order = order
        self._make = make
        self._flying: dict[Direction, deque[Message]] = {}
        self._as_sent: deque[Direction] = deque()
        self._busy: list[Direction] = []

    @classmethod
    def of(
        cls,
        topology: Topology,
        order: Random | None = None,
        make: Callable[[Name], OverlayBroker] = OverlayBroker,
    ) -> OverlayNetwork:
        """Return the network of a topology, its tree by breadth from broker 1."""
        network = cls(order, make)
        for node in range(1, topology.nodes + 1):
            network.add(node)
        tree = spanning_tree(network.brokers, topology.edges)
        for a, b in topology.edges:
            network.link(a, b, tree=(a, b) in tree)
        return network

    def add(self, name: Name) -> None:
        self.brokers[name] = self._make(name)

    def remove(self, name: Name) -> None:
        """Remove a broker with its state; its neighbours see their links end."""
        for neighbour in list(self.brokers[name].links):
            self._cut(name, neighbour)
            self.act(neighbour, lambda broker: broker.link_down(name))
        del self.brokers[name]

    def link(self, a: Name, b: Name, tree: bool = True) -> None:
        self._flying[a, b], self._flying[b, a] = deque(), deque()
        self.act(a, lambda broker: broker.link_up(b, tree))
        self.act(b, lambda broker: broker.link_up(a, tree))

    def unlink(self, a: Name, b: Name) -> None:
        """End a link; messages in flight on it are lost."""
        self._cut(a, b)
        self.act(a, lambda broker: broker.link_down(b))
        self.act(b, lambda broker: broker.link_down(a))

    def links(self) -> list[tuple[Name, Name]]:
        return sorted({(min(direction), max(direction)) for direction in self._flying})

    def set_tree(self, a: Name, b: Name, tree: bool) -> None:
        self.act(a, lambda broker: broker.set_tree(b, tree))
        self.act(b, lambda broker: broker.set_tree(a, tree))

    def act(self, name: Name, action: Callable[[OverlayBroker], Iterable[Effect]]) -> None:
        """Apply an event to a broker; send its messages and record its other effects."""
        for effect in action(self.brokers[name]):
            if isinstance(effect, Send):
                self._send((name, effect.neighbour), effect.message)
            else:
                self.effects.append(RecordedEffect(name, effect))

    def request(self, name: Name, client: str, wanted: Filter, limit: int = 0) -> int:
        """Request stored publications for a client; return the number of the request."""
        number, effects = self.brokers[name].request(client, wanted, limit=limit)
        self.act(name, lambda _: effects)
        return number

    @property
    def in_flight(self) -> int:
        return sum(map(len, self._flying.values()))

    def messages_sent(self, *kinds: str) -> int:
        """Return how many messages of these types have crossed links, each once for every link."""
        return sum(traffic[kind] for traffic in self.traffic.values() for kind in kinds)

    def step(self) -> bool:
        """Deliver one message; return False if there is none."""
        direction = self._pick()
        if direction is None:
            return False
        message = self._flying[direction].popleft()
        self.act(direction[1], lambda broker: broker.receive(direction[0], message))
        return True

    def run(self, most: int = 1_000_000) -> int:
        """Deliver messages until none is in flight; return how many. Raise RuntimeError after `most`."""
        steps = 0
        while self.step():
            steps += 1
            if steps > most:
                raise RuntimeError(f"{most} messages have arrived, and {self.in_flight} are in flight")
        return steps

    def _send(self, direction: Direction, message: Message) -> None:
        self._flying[direction].append(message)
        if self._order is None:
            self._as_sent.append(direction)
        elif len(self._flying[direction]) == 1:
            self._busy.append(direction)
        self.traffic[direction][type(message).__name__] += 1

    def _pick(self) -> Direction | None:
        if self._order is None:
            return self._as_sent.popleft() if self._as_sent else None
        if not self._busy:
            return None
        place = self._order.randrange(len(self._busy))
        direction = self._busy[place]
        if len(self._flying[direction]) == 1:
            self._busy[place] = self._busy[-1]
            self._busy.pop()
        return direction

    def _cut(self, a: Name, b: Name) -> None:
        cut = {(a, b), (b, a)}
        self.lost += sum(len(self._flying.pop(direction)) for direction in cut)
        self._as_sent = deque(direction for direction in self._as_sent if direction not in cut)
        self._busy = [direction for direction in self._busy if direction not in cut]


def spanning_tree(brokers: Iterable[Name], links: Iterable[tuple[Name, Name]]) -> set[tuple[Name, Name]]:
    """Return links that form a spanning forest, by breadth from each first broker not reached."""
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
