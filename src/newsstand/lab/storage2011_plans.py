"""What planning comes to in one setting: the paper's methods, ours, and what no plan can beat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from newsstand.lab.storage2011_overlay import mean_hops_of_requests
from newsstand.lab.storage2011_workload import Setting, problem_of
from newsstand.planning.cost import evaluate
from newsstand.planning.exact import without_limits
from newsstand.planning.greedy import possible_storages
from newsstand.planning.methods import Asked, Planned, planned
from newsstand.planning.problem import Plan, Problem
from newsstand.planning.reassign import kept_to
from newsstand.planning.replication import replicas

PAPER = {"srl": "srl", "wrr": "wrr", "rnd": "random", "grd_opt": "greedy"}
"""The paper's methods, and what the planner calls them."""
OPTIMUM, SWAP, RELAXED, EXACT = "grd_opt's optimum", "swap", "relaxed", "exact"
"""The best that grd_opt could find, by dynamic programming; ours; and the best plan within M and SC."""
REASSIGNING = ("srl", "wrr", SWAP)

RELAXED_LIMIT_S = 300.0


class Part(StrEnum):
    """What is done in a setting."""

    PLANNED = "planned"
    RELAXED = "relaxed"
    EXACT = "exact"
    REASSIGNED = "reassigned"
    OVERLAY = "overlay"


class Stage(StrEnum):
    """Of which plan a row tells."""

    PLANNED = "planned"
    """For the demand there is."""
    STAYED = "stayed"
    """For an earlier demand, storages and topics."""
    REASSIGNED = "reassigned"
    """Storages for an earlier demand, topics for the one there is."""
    CARRIED_OUT = "carried out"
    """As requests of the overlay's brokers find it."""


@dataclass(frozen=True)
class Task:
    """Something to be done in a setting, whatever the seed."""

    setting: Setting
    part: Part
    limit_s: float = RELAXED_LIMIT_S


@dataclass(frozen=True)
class Row:
    """What a plan comes to."""

    seed: int
    setting: Setting
    method: str
    stage: Stage
    mean_hops: float
    traffic: float
    storages: int
    short: int = 0
    """Replicas that found no room."""
    gap: float | None = None
    """How much of the traffic another plan might spare, where that is proven."""


def done(task: Task, seed: int) -> list[Row]:
    """Do a task."""
    return list(_PARTS[task.part](task, seed))


def _planned(task: Task, seed: int) -> Iterator[Row]:
    problem = problem_of(task.setting, seed)
    asked = Asked(problem, possible_storages(problem), seed)
    for name, method in (PAPER | {SWAP: SWAP}).items():
        yield _row(task, seed, problem, name, planned(method, asked))
    best = without_limits(problem, replicas(problem))
    yield _row(task, seed, problem, OPTIMUM, Planned(best.plan, best.gap))


def _proven(task: Task, seed: int) -> Iterator[Row]:
    problem = problem_of(task.setting, seed)
    asked = Asked(problem, possible_storages(problem), seed, task.limit_s)
    yield _row(task, seed, problem, task.part.value, planned(task.part.value, asked))


def _reassigned(task: Task, seed: int) -> Iterator[Row]:
    before, problem = problem_of(task.setting.before(), seed), problem_of(task.setting, seed)
    first, anew = Asked(before, possible_storages(before)), Asked(problem, possible_storages(problem))
    for method in REASSIGNING:
        old = planned(method, first)
        yield _row(task, seed, problem, method, old, Stage.STAYED)
        kept = kept_to(problem, old.plan.storages)
        answer = planned(method, Asked(kept, possible_storages(kept)))
        yield _row(task, seed, problem, method, answer, Stage.REASSIGNED)
        yield _row(task, seed, problem, method, planned(method, anew))


def _carried_out(task: Task, seed: int) -> Iterator[Row]:
    problem = problem_of(task.setting, seed)
    answer = planned("wrr", Asked(problem, possible_storages(problem)))
    yield _row(task, seed, problem, "wrr", answer)
    hops = mean_hops_of_requests(problem, answer.plan)
    requests = sum(map(int, problem.totals)) * problem.unit
    yield Row(
        seed,
        task.setting,
        "wrr",
        Stage.CARRIED_OUT,
        float(hops),
        float(hops * requests),
        len(answer.plan.storages),
    )


_PARTS = {
    Part.PLANNED: _planned,
    Part.RELAXED: _proven,
    Part.EXACT: _proven,
    Part.REASSIGNED: _reassigned,
    Part.OVERLAY: _carried_out,
}


def _row(
    task: Task, seed: int, problem: Problem, method: str, answer: Planned, stage: Stage = Stage.PLANNED
) -> Row:
    figures = evaluate(problem, answer.plan)
    return Row(
        seed,
        task.setting,
        method,
        stage,
        figures.mean_hops,
        figures.traffic,
        _used(answer.plan),
        sum(answer.plan.short.values()),
        answer.gap,
    )


def _used(plan: Plan) -> int:
    """How many storages keep something."""
    return len({node for nodes in plan.assignment.values() for node in nodes})
