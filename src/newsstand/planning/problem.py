"""What a storage planner is given, and what it answers (Sourlas et al. 2011, Table 1).

Demands are whole numbers of a common `unit`, so that whoever adds them up in whatever order finds the same ties.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from newsstand.errors import BadOption
from newsstand.overlay.topology import Topology

Ints = npt.NDArray[np.int64]
Hops = npt.NDArray[np.int16]

LARGEST = 2**62
"""What no sum of demands times hops exceeds."""


@dataclass(frozen=True)
class Limits:
    """How often a topic is to be kept: at least and at most."""

    least: int
    most: int


@dataclass(frozen=True, eq=False)
class Problem:
    """A network of N brokers, the demand for each topic at each, and what storages there may be.

    Nodes are numbered from 1 in `topology` and in plans, and from 0 in arrays.
    """

    topology: Topology
    topics: tuple[str, ...]
    """In the order of the file."""
    demand: Ints
    """r: one row a topic, one column a node, in `unit`s."""
    unit: Fraction
    """Requests per second that one unit of demand stands for."""
    replication: tuple[Limits, ...]
    """For each topic."""
    capacity: tuple[int, ...]
    """SC: how many topics a storage at each node can keep."""
    storages: int | None = None
    """M; None for as few as needed."""
    publishing: Ints | None = None
    """How likely a publication comes from each node, in any unit; None if all are alike (section 5.2)."""

    @cached_property
    def hops(self) -> Hops:
        """D: the distance between any two nodes."""
        from newsstand.planning.distances import hop_matrix

        return hop_matrix(self.topology)

    @cached_property
    def totals(self) -> Ints:
        """The demand for each topic."""
        totals: Ints = self.demand.sum(axis=1)
        return totals

    @cached_property
    def weights(self) -> tuple[Fraction, ...]:
        """w: each topic's share of all demand."""
        total = int(self.totals.sum())
        return tuple(Fraction(int(of_topic), total) for of_topic in self.totals)

    @cached_property
    def by_weight(self) -> tuple[int, ...]:
        """The indices of topics, heaviest first, equals in the order of the file."""
        return tuple(sorted(range(len(self.topics)), key=lambda topic: -int(self.totals[topic])))


@dataclass(frozen=True)
class Plan:
    """Which nodes are storages, and which of them keep each topic; both in the order chosen."""

    storages: tuple[int, ...]
    assignment: Mapping[str, tuple[int, ...]]
    possible: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """PS: how often each node was picked for a topic, over all assumed servers; empty if that was not asked."""
    short: Mapping[str, int] = field(default_factory=dict)
    """Topics that are kept less often than was asked, for want of room: how many replicas are missing."""


def whole(demand: Sequence[Sequence[float]], diameter: int) -> tuple[Ints, Fraction]:
    """Demands as whole numbers of a unit: exactly if they are decimals of moderate length, else to 15 digits."""
    exact = [[Fraction(repr(one)) if isinstance(one, float) else Fraction(one) for one in row] for row in demand]
    total = sum((one for row in exact for one in row), Fraction(0))
    if total <= 0:
        raise BadOption("nobody requests anything: all demands are 0")
    denominator = math.lcm(*(one.denominator for row in exact for one in row))
    scale = Fraction(denominator, math.gcd(*(int(one * denominator) for row in exact for one in row)))
    if total * scale * max(1, diameter) >= LARGEST:
        scale = LARGEST / (2 * total * max(1, diameter))
        scale = Fraction(int(scale)) if scale >= 1 else scale
    rows = [[round(one * scale) for one in row] for row in exact]
    return np.array(rows, np.int64), 1 / scale
