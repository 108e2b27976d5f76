"""Which broker a subscriber is sent to: one small function for each way, by name.

`hops`, `miles` and `random` are the ways of Gwertzman and Seltzer (push1995) to find a server; `least-loaded`
looks at the brokers only. `nearest` is by hops where the network and the subscriber's node in it are known, and by
miles otherwise. Brokers of which the way knows nothing come last; of equals it is the less loaded one, then the
first by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from newsstand.planning.places import METRICS, Metric, Network, Place, known_metric


class Candidate(Protocol):
    """A broker that can be chosen."""

    @property
    def name(self) -> str: ...
    @property
    def place(self) -> Place: ...
    @property
    def load(self) -> tuple[float, float]:
        """How busy it is: first by connections, then by subscribers, both as shares of its capacity."""
        ...


@dataclass(frozen=True)
class Surroundings:
    """What a choice may look at besides the brokers and the subscriber's place."""

    rng: Random
    network: Network = field(default_factory=Network)


Way = Callable[[Sequence[Candidate], Place, Surroundings], Candidate]
WAYS: dict[str, Way] = {}
"""Every way to choose, by name."""


def way(name: str) -> Callable[[Way], Way]:
    """Register a way to choose under its name."""

    def registered(function: Way) -> Way:
        WAYS[name] = function
        return function

    return registered


@way("least-loaded")
def least_loaded(brokers: Sequence[Candidate], _: Place, __: Surroundings) -> Candidate:
    """The broker with the fewest connections for its capacity."""
    return min(brokers, key=lambda one: (one.load, one.name))


@way("random")
def at_random(brokers: Sequence[Candidate], _: Place, around: Surroundings) -> Candidate:
    """Any broker, each as likely as the others."""
    return around.rng.choice(sorted(brokers, key=lambda one: one.name))


@way("miles")
def by_miles(brokers: Sequence[Candidate], place: Place, around: Surroundings) -> Candidate:
    """The broker with the shortest way over the globe."""
    return _closest(brokers, place, around, METRICS["miles"])


@way("hops")
def by_hops(brokers: Sequence[Candidate], place: Place, around: Surroundings) -> Candidate:
    """The broker with the fewest links in between."""
    return _closest(brokers, place, around, METRICS["hops"])


@way("nearest")
def nearest(brokers: Sequence[Candidate], place: Place, around: Surroundings) -> Candidate:
    """By hops if some broker can be reached over the network, by miles otherwise."""
    return _closest(brokers, place, around, known_metric(place, (one.place for one in brokers), around.network))


def _closest(brokers: Sequence[Candidate], place: Place, around: Surroundings, metric: Metric) -> Candidate:
    return min(brokers, key=lambda one: (metric(place, one.place, around.network), one.load, one.name))
