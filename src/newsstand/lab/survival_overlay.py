"""How long messages survive in the caches of the overlay's own brokers (Sourlas et al. 2011, section 7).

What `newsstand.caching.kernels.slots` does in compiled arrays happens here to live brokers with their tables,
caches and messages. Random numbers are drawn in the order in which the kernel draws them, so the same generator
gives the same times to the last bit, whatever the tree is.

>>> from newsstand.caching.kernels import slots
>>> from newsstand.lab.survival import Setting, Simulation
>>> from newsstand.overlay.generators import line
>>> rules = Simulation(Setting(3, 2, 1.0, 0.1, 2.0), observations=20, replications=1).rules
>>> seen = simulate(rules, line(3), np.random.default_rng(1), warm=10, watched=20)
>>> compiled = slots.simulate(rules, slots.new_network(rules), np.random.default_rng(1), 10, 20)
>>> seen.survival.tolist() == compiled.survival.tolist(), seen.copied == compiled.copied
(True, True)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from newsstand.caching.kernels.slots import Rules, Watched
from newsstand.errors import BadOption
from newsstand.model import CachingPolicy, OpportunisticPolicy, PriorityPolicy, RequestPolicy
from newsstand.overlay.filters import Filter
from newsstand.overlay.message_cache import LARGEST_SHARE
from newsstand.overlay.messages import MOST_HOPS, Name, PublicationId
from newsstand.overlay.network import Network
from newsstand.overlay.opportunistic import CachingBroker
from newsstand.overlay.outcomes import Out
from newsstand.overlay.topology import Topology

ROOM = 1024
"""Bytes for each message and more than any takes: only slots bound a cache, as in the paper."""


class LiveBrokers:
    """The brokers of a tree and clients who each want one message, a topic of its own; brokers count from 0.

    Messages between brokers take no time: all have arrived before anything else happens. What happens returns the
    messages that are gone from every cache by it, in the order of the brokers that had them last.
    """

    def __init__(self, rules: Rules, topology: Topology) -> None:
        if topology.nodes != rules.brokers or not topology.is_tree:
            raise BadOption(f"{topology}: must be a tree of {rules.brokers} brokers")
        if _longest_way(topology) > MOST_HOPS:
            raise BadOption(f"a tree of {topology.nodes} brokers: no way may have more than {MOST_HOPS} of them")
        self._policy = OpportunisticPolicy(
            CachingPolicy.SELECTIVE if rules.selective else CachingPolicy.ALL,
            RequestPolicy.FLOODED if rules.flooded else RequestPolicy.SUBSCRIBED,
            PriorityPolicy.PRIORITY if rules.prioritized else PriorityPolicy.NONE,
        )
        self._slots = rules.slots
        self._brokers: list[CachingBroker] = []
        self._network = Network.of(topology, make=self._made)
        self._cached: list[frozenset[PublicationId]] = [frozenset()] * rules.brokers
        self._copies: Counter[PublicationId] = Counter()
        self._messages: dict[PublicationId, int] = {}
        self._clients: dict[int, list[list[str]]] = {}
        """Of every message that is cached somewhere, at each broker."""
        self._named = 0

    def _made(self, name: Name) -> CachingBroker:
        broker = CachingBroker(name, cache_bytes=max(self._slots, LARGEST_SHARE) * ROOM)
        broker.cache_by(self._policy, self._slots)
        self._brokers.append(broker)
        return broker

    def publish(self, message: int, clients: Sequence[int], at_ms: int) -> list[int]:
        """A message is published that so many want at each broker."""
        self._clients[message] = [[] for _ in self._brokers]
        for broker, count in enumerate(clients):
            for _ in range(count):
                self._subscribe(message, broker)
        publisher = message % len(self._brokers)
        publication = self._brokers[publisher].compose(_topic(message), at_ms=at_ms)
        self._messages[publication.id] = message
        self._act(publisher, lambda broker: broker.send(publication))
        lost = self._lost()
        if not self._copies[publication.id]:
            lost.append(self._forgotten(publication.id))
        return lost

    def come(self, message: int, broker: int) -> list[int]:
        """One more client wants a message, and asks for it."""
        client = self._subscribe(message, broker)
        wanted = Filter.of_topic(_topic(message))
        self._act(broker, lambda asked: asked.request_cached(client, wanted)[1])
        return self._lost()

    def go(self, message: int, broker: int) -> list[int]:
        """A client leaves; any one, for all want the same."""
        self._leave(broker, self._clients[message][broker].pop())
        return self._lost()

    def clients(self, message: int, broker: int) -> int:
        """X_{m,i}: how many want a message at a broker."""
        return len(self._clients[message][broker])

    def counted(self) -> Counter[str]:
        """What has happened to what is cached, at all brokers together; see `CachingBroker.cached`."""
        return sum((broker.cached for broker in self._brokers), Counter())

    def _subscribe(self, message: int, broker: int) -> str:
        self._named += 1
        client = f"client {self._named}"
        self._clients[message][broker].append(client)
        self._act(broker, lambda asked: asked.subscribe(client, Filter.of_topic(_topic(message))))
        return client

    def _leave(self, broker: int, client: str) -> None:
        self._act(broker, lambda left: left.client_gone(client))

    def _act(self, broker: int, action: Callable[[CachingBroker], Sequence[Out]]) -> None:
        actor = self._brokers[broker]
        self._network.act(actor.name, lambda _: action(actor))
        self._network.run()
        self._network.told.clear()

    def _lost(self) -> list[int]:
        """What no broker caches any more, and some broker did before."""
        before, self._cached = self._cached, [frozenset(broker.cache) for broker in self._brokers]
        left: list[PublicationId] = []
        for old, new in zip(before, self._cached, strict=True):
            if old != new:
                self._copies.update(new - old)
                left += old - new
        lost = []
        for one in left:
            self._copies[one] -= 1
            if not self._copies[one]:
                lost.append(self._forgotten(one))
        return lost

    def _forgotten(self, publication: PublicationId) -> int:
        """Nobody can get a message any more, so its clients leave."""
        message = self._messages.pop(publication)
        del self._copies[publication]
        for broker, clients in enumerate(self._clients.pop(message)):
            for client in clients:
                self._leave(broker, client)
        return message


def simulate(rules: Rules, topology: Topology, random: np.random.Generator, warm: int, watched: int) -> Watched:
    """Publish `warm` messages, then `watched` ones, and go on until each of these is gone from every cache."""
    return _Run(LiveBrokers(rules, topology), rules, random, warm, watched).done()


class _Run:
    """One simulation. What is drawn, when and for what is as in the kernel, proposals that come to nothing too."""

    def __init__(
        self, brokers: LiveBrokers, rules: Rules, random: np.random.Generator, warm: int, watched: int
    ) -> None:
        self.brokers, self.rules, self.random, self.warm, self.watched = brokers, rules, random, warm, watched
        self.survival, self.kinds = np.zeros(watched), np.zeros(watched, np.int64)
        self.messages_time, self.cached_by_kind = np.zeros(len(rules.shares)), np.zeros(len(rules.shares))
        self.now = self.begun = self.span = 0.0
        self.published = self.gone = 0
        self.crowd = 1
        """The most clients that one message has had at one broker: a bound on the rate of leaving."""
        self.live: list[int] = []
        """Messages that are cached somewhere; the last one takes the place of one that is gone."""
        self.born: dict[int, float] = {}
        self.kind: dict[int, int] = {}
        self.before: Counter[str] = Counter()
        """What had happened to what is cached when the span began."""
        self.happened: Counter[str] = Counter()
        """And in the span."""

    def done(self) -> Watched:
        """Until all watched messages are gone."""
        client_rate, leave_rate = float(self.rules.client_rates.max()), float(self.rules.leave_rates.max())
        while self.gone < self.watched:
            bound = client_rate + leave_rate * self.crowd
            rate = self.rules.publish_rate + len(self.live) * self.rules.brokers * bound
            step = self.random.exponential() / rate
            if self.warm < self.published < self.warm + self.watched:
                self.messages_time += self.cached_by_kind * step
            self.now += step
            draw = self.random.random() * rate - self.rules.publish_rate
            if draw < 0:
                self._publish()
            else:
                self._propose(draw, bound)
        events = (self.happened[what] for what in ("copied", "regenerated", "degraded"))
        return Watched(self.survival, self.kinds, self.messages_time, self.span, *events)

    def _publish(self) -> None:
        self.published += 1
        if self.published == self.warm + 1:
            self.begun, self.before = self.now, self.brokers.counted()
        elif self.published == self.warm + self.watched:
            self.span, self.happened = self.now - self.begun, self.brokers.counted() - self.before
        kind, pick = 0, self.random.random()
        while self.rules.shares[kind] <= pick:
            kind += 1
        message = self.published
        self.born[message], self.kind[message] = self.now, kind
        self.live.append(message)
        self.cached_by_kind[kind] += 1
        intensity = self.rules.client_rates[kind] / self.rules.leave_rates[kind]
        clients = [int(self.random.poisson(intensity)) for _ in range(self.rules.brokers)]
        self.crowd = max(self.crowd, *clients)
        self._leave(self.brokers.publish(message, clients, int(self.now * 1000)))

    def _propose(self, draw: float, bound: float) -> None:
        """A client comes or goes, or neither: the bound is more than the rate."""
        brokers = self.rules.brokers
        pair = min(int(draw / bound), len(self.live) * brokers - 1)
        draw -= pair * bound
        message, broker = self.live[pair // brokers], pair % brokers
        clients, kind = self.brokers.clients(message, broker), self.kind[message]
        client_rate, leave_rate = float(self.rules.client_rates[kind]), float(self.rules.leave_rates[kind])
        if draw < client_rate:
            self.crowd = max(self.crowd, clients + 1)
            self._leave(self.brokers.come(message, broker))
        elif draw < client_rate + leave_rate * clients:
            self._leave(self.brokers.go(message, broker))

    def _leave(self, lost: Sequence[int]) -> None:
        """Messages are gone from every cache, one after the other."""
        for message in lost:
            last = self.live.pop()
            if last != message:
                self.live[self.live.index(message)] = last
            kind = self.kind.pop(message)
            self.cached_by_kind[kind] -= 1
            survived = self.now - self.born.pop(message)
            number = message - self.warm - 1
            if 0 <= number < self.watched:
                self.survival[number], self.kinds[number] = survived, kind
                self.gone += 1


def _longest_way(topology: Topology) -> int:
    """How many brokers the longest way through a tree has."""
    hops = topology.hops_from(1)
    return 1 + max(topology.hops_from(max(hops, key=hops.__getitem__)).values())


def _topic(message: int) -> str:
    return f"message {message}"
