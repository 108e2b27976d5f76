"""The networks and demands of Sourlas et al. (2011, section 6): trees, Zipf popularity, Zipf locality.

A topic's popularity P_t is its share of what each broker asks, its locality L_t the share of brokers that ask for
it: a broker by chance and those nearest to it. Both add up to 1 over the topics, so that neither exponent changes
how much is asked in all (section 6.1.2); uniform locality means that all brokers ask for all topics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from newsstand.overlay.generators import GENERATORS
from newsstand.overlay.topology import Topology
from newsstand.planning.problem import Ints, Limits, Problem, whole
from newsstand.planning.replication import least_storages, replicas

TOPICS = 10
REQUESTS = 25.0
"""Per second, of each broker for topics that are asked for everywhere."""
DECIMALS = 9
"""Of a rate: enough to tell topics apart, and few enough to count in whole units."""


@dataclass(frozen=True)
class Setting:
    """One point of a figure: a network, its demand, and what storages there may be."""

    nodes: int = 100
    capacity: int = 5
    storages: int | None = None
    """M; None if topics are kept at least `least` times, and there are as many storages as that takes."""
    least: int = 2
    """min_k, where M is None."""
    s_p: float = 1.0
    s_l: float | None = None
    """None: uniform locality."""
    planned_for: float | None = None
    """What the exponent was when storages were planned, s_l if there is one, else s_p (section 6.2)."""
    tree: str = "recursive-tree"

    def before(self) -> Setting:
        """The setting for which storages were planned."""
        if self.planned_for is None:
            return self
        if self.s_l is None:
            return replace(self, s_p=self.planned_for, planned_for=None)
        return replace(self, s_l=self.planned_for, planned_for=None)


def zipf(topics: int, exponent: float) -> list[float]:
    """The shares of topics, the first ranked highest; with a negative exponent, the last.

    >>> zipf(2, 1.0), zipf(2, -1.0) == zipf(2, 1.0)[::-1]
    ([0.6666666666666666, 0.3333333333333333], True)
    """
    weights = [rank**-exponent for rank in range(1, topics + 1)]
    ranked = [weight / sum(weights) for weight in weights]
    return ranked if exponent >= 0 else zipf(topics, -exponent)[::-1]


def neighbourhood(topology: Topology, centre: int, brokers: int) -> list[int]:
    """A broker and those nearest to it, so many in all, breadth first; of equals those found first."""
    return list(topology.hops_from(centre))[:brokers]


def problem_of(setting: Setting, seed: int) -> Problem:
    """The problem of a seed: one tree for each number of brokers, one centre for each topic."""
    topology = GENERATORS[setting.tree](setting.nodes, np.random.default_rng([seed, setting.nodes]))
    demand, unit = whole(_rates(setting, topology, seed), setting.nodes)
    most = setting.storages or setting.nodes
    problem = Problem(
        topology,
        tuple(f"topic {number}" for number in range(1, TOPICS + 1)),
        demand,
        unit,
        (Limits(min(setting.least, most), most),) * TOPICS,
        (setting.capacity,) * setting.nodes,
        setting.storages,
    )
    if setting.storages is None:
        return _fixed(problem, replicas(problem), least_storages(problem))
    room = setting.capacity * setting.storages
    return _fixed(problem, shared_out(problem.totals, room, setting.storages), setting.storages)


def _fixed(problem: Problem, kept: Sequence[int], storages: int) -> Problem:
    """The problem if each topic is kept so often, by whatever method."""
    return replace(problem, replication=tuple(Limits(k, k) for k in kept), storages=storages)


def _rates(setting: Setting, topology: Topology, seed: int) -> list[list[float]]:
    rates = [round(REQUESTS * share, DECIMALS) for share in zipf(TOPICS, setting.s_p)]
    if setting.s_l is None:
        return [[rate] * setting.nodes for rate in rates]
    centres = np.random.default_rng([seed, setting.nodes, 1]).integers(1, setting.nodes + 1, TOPICS)
    rows = []
    for rate, share, centre in zip(rates, zipf(TOPICS, setting.s_l), centres, strict=True):
        brokers = max(1, math.floor(share * setting.nodes + 0.5))
        asking = set(neighbourhood(topology, int(centre), brokers))
        rows.append([rate if node in asking else 0.0 for node in range(1, setting.nodes + 1)])
    return rows


def shared_out(totals: Ints, room: int, most: int) -> list[int]:
    """k where M is given: all room in proportion to the topics' demands, between 1 and `most` each.

    Rounded half up by a common divisor: the next replica goes to the topic with most demand for each that it has
    and half of the one to come.

    >>> shared_out(np.array([60, 30, 10]), 10, 5)
    [5, 4, 1]
    """
    kept = [1] * len(totals)
    for _ in range(min(room, most * len(kept)) - len(kept)):
        growing = (topic for topic, k in enumerate(kept) if k < most)
        kept[max(growing, key=lambda topic: (Fraction(int(totals[topic]), 2 * kept[topic] + 1), -topic))] += 1
    return kept
