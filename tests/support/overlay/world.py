"""Networks with random events, and the state that they must reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from hypothesis import strategies as st

from newsstand.overlay.broker.broker import Deliver, OverlayBroker
from newsstand.overlay.broker.effects import RequestAnswer
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import Publication
from newsstand.overlay.simulation import OverlayNetwork, spanning_tree
from newsstand.overlay.topology import Topology

TOPICS = ("fires", "floods", "storms")
FILTERS = tuple(
    map(
        Filter.parse,
        [
            "true",
            "topic = 'fires'",
            "topic = 'floods'",
            "topic = 'storms'",
            "topic in ('fires', 'floods')",
            "topic prefix 'f'",
            "severity >= 3",
            "severity > 2 and severity != 2.5",
            "topic = 'storms' and severity >= 3",
            "severity >= 3 and topic = 'storms'",
            "topic = 'storms' and severity = 4",
            "topic = 'storms' and (severity >= 3 or area = 'NW')",
            "topic = 'storms' and not area = 'NW'",
            "topic = 'fires' and area in ('NW', 'SW')",
            "topic = 'fires' and area = 'NW'",
            "topic = 'fires' and topic = 'floods'",
            "topic = 'fires' and severity > 3 and severity < 2",
        ],
    )
)
PUBLICATIONS = tuple(
    (topic, {"severity": severity, "area": area} if severity else {})
    for topic in (*TOPICS, "other")
    for severity, area in ((0, ""), (2, "NW"), (3, "SW"), (4, "NW"), (2.5, "SE"))
)

Deed = tuple[int, int, int]
DEEDS = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 99), st.integers(0, 99)), max_size=30)


@st.composite
def trees(draw: st.DrawFn, most: int = 9) -> Topology:
    parents = draw(st.lists(st.integers(0, 99), max_size=most - 1))
    return Topology(len(parents) + 1, [(at % number + 1, number + 1) for number, at in enumerate(parents, 1)])


@st.composite
def graphs(draw: st.DrawFn, most: int = 8) -> Topology:
    tree = draw(trees(most))
    ends = st.integers(1, tree.nodes)
    more = draw(st.lists(st.tuples(ends, ends), max_size=most))
    return Topology(tree.nodes, [*tree.edges, *((a, b) for a, b in more if a != b)])


class World:
    """A network, and the subscriptions and storages that it should have."""

    def __init__(self, topology: Topology, seed: int = 0, covering: bool = True, batch: int = 2) -> None:
        self.order = Random(seed)
        self._covering, self._batch = covering, batch
        self._numbered = 0
        self.network = OverlayNetwork.of(topology, self.order, self._begun)
        self.subscriptions: dict[int, dict[tuple[str, Filter], None]] = {name: {} for name in self.network.brokers}
        self.stored: dict[int, frozenset[str]] = {}
        self.gone = [topology.nodes + 1]

    def _begun(self, name: int | str) -> OverlayBroker:
        """Return a broker with unused numbers, also after a restart."""
        self._numbered += 1_000_000
        return OverlayBroker(name, covering=self._covering, batch=self._batch, first_number=self._numbered)

    def subscribe(self, name: int, client: str, wanted: Filter) -> None:
        self.subscriptions[name][client, wanted] = None
        self.network.act(name, lambda broker: broker.subscribe(client, wanted))

    def unsubscribe(self, name: int, client: str, wanted: Filter) -> None:
        self.subscriptions[name].pop((client, wanted), None)
        self.network.act(name, lambda broker: broker.unsubscribe(client, wanted))

    def leave(self, name: int, client: str) -> None:
        for key in [key for key in self.subscriptions[name] if key[0] == client]:
            del self.subscriptions[name][key]
        self.network.act(name, lambda broker: broker.remove_client(client))

    def store(self, name: int, topics: Sequence[str]) -> None:
        self.stored[name] = frozenset(topics)
        self.network.act(name, lambda broker: broker.become_storage(topics))

    def lose(self, name: int) -> None:
        self.network.remove(name)
        self.gone.append(name)
        del self.subscriptions[name]
        self.stored.pop(name, None)

    def join(self, *neighbours: int) -> None:
        """Restart a lost broker, or add a new one."""
        name = self.gone.pop()
        if not self.gone:
            self.gone.append(name + 1)
        self.network.add(name)
        self.subscriptions[name] = {}
        for neighbour in neighbours:
            self.network.link(name, neighbour, tree=neighbour == neighbours[0])

    def publish(self, name: int, what: int) -> Publication:
        topic, attributes = PUBLICATIONS[what % len(PUBLICATIONS)]
        publication = self.network.brokers[name].compose(topic, attributes, at_ms=what)
        self.network.act(name, lambda broker: broker.send(publication))
        return publication

    def happen(self, deed: Deed) -> None:
        """Apply a random event to the network; then deliver a few messages."""
        kind, one, other = deed
        names = sorted(self.network.brokers)
        name, second = names[one % len(names)], names[other % len(names)]
        client, wanted = f"client {other % 2}", FILTERS[other % len(FILTERS)]
        match kind:
            case 0 | 1 | 2:
                self.subscribe(name, client, wanted)
            case 3 if self.subscriptions[name]:
                held = list(self.subscriptions[name])
                self.unsubscribe(name, *held[other % len(held)])
            case 4:
                self.leave(name, client)
            case 5 | 6:
                self.store(name, [topic for bit, topic in enumerate(TOPICS) if other >> bit & 1])
            case 7 if len(names) > 2:
                self.lose(name)
            case 8:
                self.join(*{name: None, second: None})
            case 9 if name != second and second in self.network.brokers[name].links:
                self.network.unlink(name, second)
            case 10 if name != second and second not in self.network.brokers[name].links:
                self.network.link(name, second, tree=False)
            case 11:
                self.publish(name, other)
            case 12:
                self.network.request(name, client, wanted)
            case 13:
                self.plant()
            case 14 if self.network.brokers[name].links:
                links = list(self.network.brokers[name].links)
                neighbour = links[other % len(links)]
                tree = not self.network.brokers[name].links[neighbour]
                self.network.act(name, lambda broker: broker.set_tree(neighbour, tree))
        for _ in range(self.order.randrange(6)):
            self.network.step()

    def plant(self) -> None:
        """Build a spanning tree; links leave the old one first, so that it never has a cycle."""
        network = self.network
        tree = spanning_tree(network.brokers, network.links())
        for joins in (False, True):
            for a, b in network.links():
                if ((a, b) in tree) == joins:
                    network.set_tree(a, b, joins)

    def settle(self) -> None:
        """Rebuild the tree and deliver all messages."""
        self.plant()
        self.network.run(200_000)

    def from_scratch(self) -> OverlayNetwork:
        """Return the same network, built and filled in order."""
        network = OverlayNetwork()
        for name in sorted(self.network.brokers):
            network.add(name)
        for a, b in self.network.links():
            network.link(a, b, tree=self.network.brokers[a].links[b])
        for name, topics in self.stored.items():
            network.act(name, lambda broker, topics=topics: broker.become_storage(topics))
        for name, held in self.subscriptions.items():
            for client, wanted in held:
                network.act(name, lambda broker, c=client, w=wanted: broker.subscribe(c, w))
        network.run()
        return network

    def delivered(self, publication: Publication) -> Counter[tuple[int | str, object]]:
        return Counter(
            (one.broker, one.effect.client)
            for one in self.network.effects
            if isinstance(one.effect, Deliver) and one.effect.publication.id == publication.id
        )

    def wanting(self, publication: Publication) -> Counter[tuple[int | str, object]]:
        return Counter(
            {
                (name, client): 1
                for name, held in self.subscriptions.items()
                for client, wanted in held
                if wanted.matches(publication)
            }
        )

    def answers(self, name: int, number: int) -> list[RequestAnswer]:
        return [
            one.effect
            for one in self.network.effects
            if isinstance(one.effect, RequestAnswer) and (one.broker, one.effect.number) == (name, number)
        ]


def tables(network: OverlayNetwork) -> dict[object, object]:
    """Return the content of all tables."""
    return {
        name: (
            broker.subscriptions.received(),
            broker.subscriptions.sent(),
            broker.advertisements.rows(),
            broker.advertisements.own,
        )
        for name, broker in network.brokers.items()
    }


def held(thing: object) -> int:
    """Return the number of objects that an object holds directly and indirectly, without counters."""
    if isinstance(thing, dict):
        return sum(1 + held(key) + held(value) for key, value in thing.items())
    if isinstance(thing, list | tuple | set | frozenset):
        return sum(1 + held(one) for one in thing)
    if hasattr(thing, "__dict__") and not isinstance(thing, type | Filter):
        return held({name: one for name, one in vars(thing).items() if name != "dropped"})
    return 0
