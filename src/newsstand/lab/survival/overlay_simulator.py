"""Simulation of survival times in the caches of the overlay's own brokers (Sourlas et al. 2011, section 7).

Live brokers with their tables, caches and messages do what `newsstand.caching.kernels.slots` does in compiled
arrays. Random numbers are drawn in the order in which the kernel draws them, so the same generator
gives the same times to the last bit, whatever the tree is.

>>> from newsstand.caching.kernels import slots
>>> from newsstand.lab.survival.simulator import Simulation, SurvivalSetting
>>> from newsstand.overlay.topology import line
>>> rules = Simulation(SurvivalSetting(3, 2, 1.0, 0.1, 2.0), observations=20, replications=1).rules
>>> seen = simulate(rules, line(3), np.random.default_rng(1), warm=10, watched=20)
>>> network, never = slots.new_network_state(rules), slots.NOT_HALTED
>>> compiled = slots.simulate(rules, network, np.random.default_rng(1), 10, 20, never)
>>> seen.survival.tolist() == compiled.survival.tolist(), seen.copied == compiled.copied
(True, True)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from newsstand.caching.kernels.slots import SlotCacheRules, SurvivalObservations
from newsstand.errors import BadOption
from newsstand.model import CachingPolicy, OpportunisticPolicy, PriorityPolicy, RequestPolicy
from newsstand.overlay.broker.caching import CachingBroker
from newsstand.overlay.broker.effects import Effect
from newsstand.overlay.broker.message_cache import LARGEST_SHARE
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import MOST_HOPS, Name, PublicationId
from newsstand.overlay.simulation import OverlayNetwork
from newsstand.overlay.topology import Topology

ROOM = 1024
"""Bytes for each message and more than any takes: only slots bound a cache, as in the paper."""


class LiveBrokers:
    """The brokers of a tree and clients who each want one message, a topic of its own; brokers count from 0.

    Messages between brokers take no time: all have arrived before the next event. Every event returns the messages
    that it removed from the last cache, in the order of the brokers that had them.
    """

    def __init__(self, rules: SlotCacheRules, topology: Topology) -> None:
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
        self._network = OverlayNetwork.of(topology, make=self._make_broker)
        self._cached: list[frozenset[PublicationId]] = [frozenset()] * rules.brokers
        self._copies: Counter[PublicationId] = Counter()
        self._messages: dict[PublicationId, int] = {}
        self._clients: dict[int, list[list[str]]] = {}
        """The clients of each cached message, by broker."""
        self._named = 0

    def _make_broker(self, name: Name) -> CachingBroker:
        broker = CachingBroker(name, cache_bytes=max(self._slots, LARGEST_SHARE) * ROOM)
        broker.configure_cache(self._policy, self._slots)
        self._brokers.append(broker)
        return broker

    def publish(self, message: int, clients: Sequence[int], at_ms: int) -> list[int]:
        """Publish a message that this many clients want at each broker; return the messages that are lost."""
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
            lost.append(self._forget(publication.id))
        return lost

    def add_client(self, message: int, broker: int) -> list[int]:
        """Add a client that subscribes to a message and requests it; return the messages that are lost."""
        client = self._subscribe(message, broker)
        wanted = Filter.of_topic(_topic(message))
        self._act(broker, lambda actor: actor.request_cached(client, wanted)[1])
        return self._lost()

    def remove_client(self, message: int, broker: int) -> list[int]:
        """Remove any client of a message; return the messages that are lost."""
        self._leave(broker, self._clients[message][broker].pop())
        return self._lost()

    def clients(self, message: int, broker: int) -> int:
        """Return X_{m,i}, the number of clients of a message at a broker."""
        return len(self._clients[message][broker])

    def counted(self) -> Counter[str]:
        """Return the counts of cache events of all brokers together."""
        return sum((broker.cache_events for broker in self._brokers), Counter())

    def _subscribe(self, message: int, broker: int) -> str:
        self._named += 1
        client = f"client {self._named}"
        self._clients[message][broker].append(client)
        self._act(broker, lambda actor: actor.subscribe(client, Filter.of_topic(_topic(message))))
        return client

    def _leave(self, broker: int, client: str) -> None:
        self._act(broker, lambda actor: actor.remove_client(client))

    def _act(self, broker: int, action: Callable[[CachingBroker], Sequence[Effect]]) -> None:
        actor = self._brokers[broker]
        self._network.act(actor.name, lambda _: action(actor))
        self._network.run()
        self._network.effects.clear()

    def _lost(self) -> list[int]:
        """Return the messages that left the last cache."""
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
                lost.append(self._forget(one))
        return lost

    def _forget(self, publication: PublicationId) -> int:
        """Forget a message that no broker caches, and remove its clients."""
        message = self._messages.pop(publication)
        del self._copies[publication]
        for broker, clients in enumerate(self._clients.pop(message)):
            for client in clients:
                self._leave(broker, client)
        return message


def simulate(
    rules: SlotCacheRules, topology: Topology, random: np.random.Generator, warm: int, watched: int
) -> SurvivalObservations:
    """Publish `warm` messages, then `watched` ones, and continue until no cache holds one of these."""
    return _OverlayRun(LiveBrokers(rules, topology), rules, random, warm, watched).run()


class _OverlayRun:
    """One simulation, which draws random numbers in the order of the kernel, for rejected proposals, too."""

    def __init__(
        self, brokers: LiveBrokers, rules: SlotCacheRules, random: np.random.Generator, warm: int, watched: int
    ) -> None:
        self.brokers, self.rules, self.random, self.warm, self.watched = brokers, rules, random, warm, watched
        self.survival, self.kinds = np.zeros(watched), np.zeros(watched, np.int64)
        self.messages_time, self.cached_by_kind = np.zeros(len(rules.shares)), np.zeros(len(rules.shares))
        self.now = self.begun = self.span = 0.0
        self.published = self.dropped = 0
        self.most_clients = 1
        """The most clients that one message has had at one broker: a bound on the rate of leaving."""
        self.live: list[int] = []
        """Cached messages; the last one takes the place of one that is lost."""
        self.born: dict[int, float] = {}
        self.kind: dict[int, int] = {}
        self.before: Counter[str] = Counter()
        """The cache events before the measured span."""
        self.happened: Counter[str] = Counter()
        """The cache events within the span."""

    def run(self) -> SurvivalObservations:
        """Run until no cache holds a watched message."""
        client_rate, leave_rate = float(self.rules.client_rates.max()), float(self.rules.leave_rates.max())
        while self.dropped < self.watched:
            bound = client_rate + leave_rate * self.most_clients
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
        return SurvivalObservations(self.survival, self.kinds, self.messages_time, self.span, *events)

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
        self.most_clients = max(self.most_clients, *clients)
        self._leave(self.brokers.publish(message, clients, int(self.now * 1000)))

    def _propose(self, draw: float, bound: float) -> None:
        """Add or remove a client, or neither: the bound exceeds the rate."""
        brokers = self.rules.brokers
        pair = min(int(draw / bound), len(self.live) * brokers - 1)
        draw -= pair * bound
        message, broker = self.live[pair // brokers], pair % brokers
        clients, kind = self.brokers.clients(message, broker), self.kind[message]
        client_rate, leave_rate = float(self.rules.client_rates[kind]), float(self.rules.leave_rates[kind])
        if draw < client_rate:
            self.most_clients = max(self.most_clients, clients + 1)
            self._leave(self.brokers.add_client(message, broker))
        elif draw < client_rate + leave_rate * clients:
            self._leave(self.brokers.remove_client(message, broker))

    def _leave(self, lost: Sequence[int]) -> None:
        """Account for messages that left every cache, one after the other."""
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
                self.dropped += 1


def _longest_way(topology: Topology) -> int:
    """Return the number of brokers on the longest path through a tree."""
    hops = topology.hops_from(1)
    return 1 + max(topology.hops_from(max(hops, key=hops.__getitem__)).values())


def _topic(message: int) -> str:
    return f"message {message}"
