"""The coordinator's view of brokers: their states and leases, heartbeats, handovers, and strategies to select one.

A broker learns of subscribers to `adopt` at once, and that a subscriber has `moved` away only after the new broker
has confirmed: it must not drop the streams before another broker follows them. Without a confirmation it learns of
the move after `LeaseLimits.held_s`.

The strategies `hops`, `miles` and `random` find a server as Gwertzman and Seltzer do (push1995); `least-loaded`
considers the brokers alone. `nearest` is by hops where the network and the subscriber's node in it are known, and
by miles otherwise. Brokers of unknown distance come last; equal ones are ordered by load, then by name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from newsstand.coordinator.model import BrokerRecord
from newsstand.coordinator.store.sqlite import CoordinatorStore, Kind
from newsstand.errors import NotFound
from newsstand.geo.location import METRICS, LinkGraph, Location, Metric, known_metric
from newsstand.wire.coordination import MOST_NAMES, BrokerPhase

Reason = Literal["dead", "draining", "left", "took", "asked"]
"""Why a subscriber moved to another broker."""


@dataclass(frozen=True)
class LeaseLimits:
    """How long the coordinator waits for brokers, and how much it tells them at once."""

    lease_s: float = 3.0
    """Without a heartbeat for so long, a broker is dead."""
    held_s: float = 30.0
    """How long a move is withheld from the old broker if the new one does not confirm."""
    forgotten_after_s: float = 86_400.0
    """How long a dead broker without subscribers stays registered."""
    names: int = MOST_NAMES
    """Names of each kind in the response to one heartbeat."""


@dataclass
class BrokerState:
    """A known broker with its latest heartbeat; a candidate of strategies."""

    record: BrokerRecord
    last_heard: float
    assigned: int = 0
    connections: int = 0
    subscribers: int = 0
    expected_arrivals: int = 0
    """Subscribers sent to it recently, perhaps not connected yet; halved at each heartbeat."""
    recently_taken: set[str] = field(default_factory=set)
    """Subscribers that it took since its last heartbeat: it knows of them and has time to confirm."""

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def place(self) -> Location:
        return self.record.place

    @property
    def state(self) -> BrokerPhase:
        return "dead" if self.record.dead else "draining" if self.record.draining else "up"

    @property
    def load(self) -> tuple[float, float]:
        capacity = self.record.capacity
        return ((self.connections + self.expected_arrivals) / capacity, self.assigned / capacity)


class BrokerRegistry(dict[str, BrokerState]):
    """All known brokers, by name."""

    def known(self, name: str) -> BrokerState:
        """Return a broker; raise NotFound if no broker has the name."""
        if name not in self:
            raise NotFound(f"no broker '{name}' is registered")
        return self[name]

    def alive(self, name: str) -> BrokerState:
        """Return a broker with a lease; raise NotFound if it has to register first."""
        broker = self.known(name)
        if broker.state == "dead":
            raise NotFound(f"broker '{name}': lease expired; register again")
        return broker

    def up(self) -> list[BrokerState]:
        """Return the brokers that accept subscribers."""
        return [one for one in self.values() if one.state == "up"]

    def living(self) -> dict[str, Location]:
        """Return the locations of the brokers that are up or in maintenance."""
        return {name: one.place for name, one in self.items() if one.state != "dead"}


@dataclass(frozen=True)
class BrokerChoice:
    """The broker for a subscriber; `sticky` if the subscriber was assigned to it before."""

    broker: BrokerRecord
    sticky: bool


class HandoverQueue:
    """The handovers of a store that brokers have not confirmed.

    Each has a serial number, and so has a confirmation: one that is late, or of a record that has changed since,
    confirms nothing else. Handovers are durable; how long they have waited is not, so a restart begins the wait
    again.
    """

    def __init__(self, store: CoordinatorStore, now: float, limits: LeaseLimits) -> None:
        self._store = store
        self._limits = limits
        self._recent = deque([(store.newest_serial(), now)])
        self.released = 0
        """Moves up to this serial number are announced, confirmed by the new broker or not."""

    def add(self, serial: int, now: float) -> None:
        """Record that subscribers moved."""
        self._recent.append((serial, now))

    def release(self, now: float) -> None:
        """Release moves that were held for long enough."""
        while self._recent and now - self._recent[0][1] > self._limits.held_s:
            self.released, _ = self._recent.popleft()

    def adoptions_for(self, broker: BrokerState) -> list[str]:
        """Return the subscribers that a broker has to adopt, without those that it took a moment ago."""
        taken, broker.recently_taken = broker.recently_taken, set()
        names = self._store.handovers(broker.name, "adopt", self._limits.names)
        return [name for name in names if name not in taken]

    def departures_for(self, broker: BrokerState) -> dict[str, int]:
        """Return the subscribers that have left a broker and have arrived, with serial numbers."""
        return self._store.handovers(broker.name, "moved", self._limits.names, self.released)

    def confirm(self, broker: BrokerState, kind: Kind, serials: Mapping[str, int]) -> None:
        """Record that a broker has carried out handovers; newer ones of the same names stay."""
        if serials:
            self._store.confirm(broker.name, kind, serials)


@dataclass(frozen=True)
class SelectionContext:
    """What a strategy considers besides the brokers and the subscriber's location."""

    rng: Random
    network: LinkGraph = field(default_factory=LinkGraph)


Strategy = Callable[[Sequence[BrokerState], Location, SelectionContext], BrokerState]


def least_loaded(brokers: Sequence[BrokerState], _: Location, __: SelectionContext) -> BrokerState:
    """Select the broker with the fewest connections for its capacity."""
    return min(brokers, key=lambda one: (one.load, one.name))


def at_random(brokers: Sequence[BrokerState], _: Location, context: SelectionContext) -> BrokerState:
    """Select any broker, each with the same probability."""
    return context.rng.choice(sorted(brokers, key=lambda one: one.name))


def by_miles(brokers: Sequence[BrokerState], place: Location, context: SelectionContext) -> BrokerState:
    """Select the broker at the shortest distance over the globe."""
    return _closest(brokers, place, context, METRICS["miles"])


def by_hops(brokers: Sequence[BrokerState], place: Location, context: SelectionContext) -> BrokerState:
    """Select the broker with the fewest links in between."""
    return _closest(brokers, place, context, METRICS["hops"])


def nearest(brokers: Sequence[BrokerState], place: Location, context: SelectionContext) -> BrokerState:
    """Select by hops if some broker can be reached over the network, by miles otherwise."""
    return _closest(brokers, place, context, known_metric(place, (one.place for one in brokers), context.network))


def _closest(
    brokers: Sequence[BrokerState], place: Location, context: SelectionContext, metric: Metric
) -> BrokerState:
    return min(brokers, key=lambda one: (metric(place, one.place, context.network), one.load, one.name))


STRATEGIES: dict[str, Strategy] = {
    "nearest": nearest,
    "hops": by_hops,
    "miles": by_miles,
    "random": at_random,
    "least-loaded": least_loaded,
}
"""All strategies, by name."""
