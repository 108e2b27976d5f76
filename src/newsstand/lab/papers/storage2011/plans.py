"""The settings of Sourlas et al. (2011, section 6) and the plans for each: trees, Zipf popularity, Zipf locality.

A topic's popularity P_t is its share of what each broker asks, its locality L_t the share of brokers that ask for
it: a broker by chance and those nearest to it. Both add up to 1 over the topics, so that neither exponent changes
how much is asked in all (section 6.1.2); uniform locality means that all brokers ask for all topics.

Plans are by the methods of the paper, by ours, and bounds on all plans. The overlay also carries a plan out, to
compare the hops of its requests with the cost model of the planner.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from operator import methodcaller

import numpy as np

from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.simulation import OverlayNetwork
from newsstand.overlay.topology import GENERATORS, Topology
from newsstand.planning.methods import PlanningRequest, PlanningResult, run_method
from newsstand.planning.problem import Ints, Plan, Problem, ReplicationLimits, evaluate, to_whole_units
from newsstand.planning.reassign import restrict_storages
from newsstand.planning.replication import least_storages, replicas
from newsstand.planning.solvers.bounded_plans import without_limits
from newsstand.planning.solvers.greedy import possible_storages

TOPICS = 10
REQUESTS = 25.0
"""Per second, of each broker for topics that are asked for everywhere."""
DECIMALS = 9
"""Decimals of a rate: enough to distinguish topics, and few enough to count in whole units."""


@dataclass(frozen=True)
class PlanningSetting:
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
    """The exponent for which storages were planned: of s_l if there is one, else of s_p (section 6.2)."""
    tree: str = "recursive-tree"

    def before(self) -> PlanningSetting:
        """Return the setting for which storages were planned."""
        if self.planned_for is None:
            return self
        if self.s_l is None:
            return replace(self, s_p=self.planned_for, planned_for=None)
        return replace(self, s_l=self.planned_for, planned_for=None)


def zipf(topics: int, exponent: float) -> list[float]:
    """Return the shares of topics, the first ranked highest; with a negative exponent, the last.

    >>> zipf(2, 1.0), zipf(2, -1.0) == zipf(2, 1.0)[::-1]
    ([0.6666666666666666, 0.3333333333333333], True)
    """
    weights = [rank**-exponent for rank in range(1, topics + 1)]
    ranked = [weight / sum(weights) for weight in weights]
    return ranked if exponent >= 0 else zipf(topics, -exponent)[::-1]


def neighbourhood(topology: Topology, centre: int, brokers: int) -> list[int]:
    """Return a broker and those nearest to it, breadth first; of equals those found first."""
    return list(topology.hops_from(centre))[:brokers]


def problem_of(setting: PlanningSetting, seed: int) -> Problem:
    """Return the problem of a seed: one tree for each number of brokers, one centre for each topic."""
    topology = GENERATORS[setting.tree](setting.nodes, np.random.default_rng([seed, setting.nodes]))
    demand, unit = to_whole_units(_rates(setting, topology, seed), setting.nodes)
    most = setting.storages or setting.nodes
    problem = Problem(
        topology,
        tuple(f"topic {number}" for number in range(1, TOPICS + 1)),
        demand,
        unit,
        (ReplicationLimits(min(setting.least, most), most),) * TOPICS,
        (setting.capacity,) * setting.nodes,
        setting.storages,
    )
    if setting.storages is None:
        return _fixed(problem, replicas(problem), least_storages(problem))
    room = setting.capacity * setting.storages
    return _fixed(problem, shared_out(problem.totals, room, setting.storages), setting.storages)


def _fixed(problem: Problem, replicas: Sequence[int], storages: int) -> Problem:
    """Return the problem with these numbers of replicas, whatever the method."""
    return replace(problem, replication=tuple(ReplicationLimits(k, k) for k in replicas), storages=storages)


def _rates(setting: PlanningSetting, topology: Topology, seed: int) -> list[list[float]]:
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
    counts = [1] * len(totals)
    for _ in range(min(room, most * len(counts)) - len(counts)):
        growing = (topic for topic, k in enumerate(counts) if k < most)
        counts[max(growing, key=lambda topic: (Fraction(int(totals[topic]), 2 * counts[topic] + 1), -topic))] += 1
    return counts


def mean_hops_of_requests(problem: Problem, plan: Plan) -> Fraction:
    """Return the links that requests cross on average, each (broker, topic) weighted by its demand.

    The overlay's brokers carry the requests, after all storages of the plan have advertised their topics.
    """
    network = OverlayNetwork.of(problem.topology)
    for storage in plan.storages:
        topics = [name for name in problem.topics if storage in plan.assignment[name]]
        network.act(storage, methodcaller("become_storage", topics))
    network.run()
    crossed = requests = 0
    for topic, name in enumerate(problem.topics):
        if plan.assignment[name]:
            for node, demand in enumerate(problem.demand[topic].tolist(), 1):
                if demand:
                    before = network.messages_sent("StorageRequest")
                    network.request(node, "client", Filter.of_topic(name))
                    network.run()
                    crossed += demand * (network.messages_sent("StorageRequest") - before)
                    requests += demand
    return Fraction(crossed, requests)


PAPER = {"srl": "srl", "wrr": "wrr", "rnd": "random", "grd_opt": "greedy"}
"""The paper's methods, and what the planner calls them."""
OPTIMUM, SWAP, RELAXED, EXACT = "grd_opt's optimum", "swap", "relaxed", "exact"
"""The best that grd_opt could find, by dynamic programming; ours; and the best plan within M and SC."""
REASSIGNING = ("srl", "wrr", SWAP)

RELAXED_LIMIT_S = 300.0


class PlanningStep(StrEnum):
    """A step of the experiment in a setting."""

    PLANNED = "planned"
    RELAXED = "relaxed"
    EXACT = "exact"
    REASSIGNED = "reassigned"
    OVERLAY = "overlay"


class PlanningStage(StrEnum):
    """The plan that a row describes."""

    PLANNED = "planned"
    """Storages and topics for the present demand."""
    STAYED = "stayed"
    """Storages and topics for an earlier demand."""
    REASSIGNED = "reassigned"
    """Storages for an earlier demand, topics for the present one."""
    CARRIED_OUT = "carried out"
    """A plan that the overlay's brokers carry out."""


@dataclass(frozen=True)
class PlanningTask:
    """A step in a setting, for any seed."""

    setting: PlanningSetting
    part: PlanningStep
    limit_s: float = RELAXED_LIMIT_S


@dataclass(frozen=True)
class PlanningRow:
    """The cost of a plan."""

    seed: int
    setting: PlanningSetting
    method: str
    stage: PlanningStage
    mean_hops: float
    traffic: float
    storages: int
    short: int = 0
    """The number of replicas without room."""
    gap: float | None = None
    """The share of the traffic that another plan can save at most, where that is proven."""


def run_task(task: PlanningTask, seed: int) -> list[PlanningRow]:
    """Do a task."""
    return list(_STEPS[task.part](task, seed, problem_of(task.setting, seed)))


def _planned(task: PlanningTask, seed: int, problem: Problem) -> Iterator[PlanningRow]:
    request = PlanningRequest(problem, possible_storages(problem), seed)
    for name, method in (PAPER | {SWAP: SWAP}).items():
        yield _row(task, seed, problem, name, run_method(method, request))
    best = without_limits(problem, replicas(problem))
    yield _row(task, seed, problem, OPTIMUM, PlanningResult(best.plan, best.gap))


def _proven(task: PlanningTask, seed: int, problem: Problem) -> Iterator[PlanningRow]:
    request = PlanningRequest(problem, possible_storages(problem), seed, task.limit_s)
    yield _row(task, seed, problem, task.part.value, run_method(task.part.value, request))


def _reassigned(task: PlanningTask, seed: int, problem: Problem) -> Iterator[PlanningRow]:
    before = problem_of(task.setting.before(), seed)
    first, now = (PlanningRequest(one, possible_storages(one)) for one in (before, problem))
    for method in REASSIGNING:
        old = run_method(method, first)
        yield _row(task, seed, problem, method, old, PlanningStage.STAYED)
        restricted = restrict_storages(problem, old.plan.storages)
        answer = run_method(method, PlanningRequest(restricted, possible_storages(restricted)))
        yield _row(task, seed, problem, method, answer, PlanningStage.REASSIGNED)
        yield _row(task, seed, problem, method, run_method(method, now))


def _carried_out(task: PlanningTask, seed: int, problem: Problem) -> Iterator[PlanningRow]:
    answer = run_method("wrr", PlanningRequest(problem, possible_storages(problem)))
    yield _row(task, seed, problem, "wrr", answer)
    hops = mean_hops_of_requests(problem, answer.plan)
    traffic = float(hops * (sum(map(int, problem.totals)) * problem.unit))
    stage, storages = PlanningStage.CARRIED_OUT, len(answer.plan.storages)
    yield PlanningRow(seed, task.setting, "wrr", stage, float(hops), traffic, storages)


_STEPS = {
    PlanningStep.PLANNED: _planned,
    PlanningStep.RELAXED: _proven,
    PlanningStep.EXACT: _proven,
    PlanningStep.REASSIGNED: _reassigned,
    PlanningStep.OVERLAY: _carried_out,
}


def _row(
    task: PlanningTask,
    seed: int,
    problem: Problem,
    method: str,
    answer: PlanningResult,
    stage: PlanningStage = PlanningStage.PLANNED,
) -> PlanningRow:
    cost = evaluate(problem, answer.plan)
    storages = len({node for nodes in answer.plan.assignment.values() for node in nodes})
    row = PlanningRow(seed, task.setting, method, stage, cost.mean_hops, cost.traffic, storages)
    return replace(row, short=sum(answer.plan.short.values()), gap=answer.gap)
