"""Every way to plan, by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from newsstand.planning import assignment
from newsstand.planning.problem import Ints, Plan, Problem

TIME_LIMIT_S = 300.0


@dataclass(frozen=True)
class Asked:
    """What a method is given: the problem, PS of all topics, and what some methods want to know besides."""

    problem: Problem
    possible: Ints
    seed: int = 0
    time_limit_s: float = TIME_LIMIT_S


@dataclass(frozen=True)
class Planned:
    """What a method answers."""

    plan: Plan
    gap: float | None = None
    """How much of the traffic another plan might spare, where that is proven."""


Method = Callable[[Asked], Planned]


def planned(method: str, asked: Asked) -> Planned:
    """Plan by the name of a method that there is."""
    answer = METHODS[method](asked)
    possible = dict(zip(asked.problem.topics, asked.possible.tolist(), strict=True))
    return replace(answer, plan=replace(answer.plan, possible=possible))


def _serial(asked: Asked) -> Planned:
    return Planned(assignment.serial(asked.problem, asked.possible))


def _weighted_round_robin(asked: Asked) -> Planned:
    return Planned(assignment.weighted_round_robin(asked.problem, asked.possible))


def _random(asked: Asked) -> Planned:
    return Planned(assignment.random(asked.problem, asked.possible, asked.seed))


def _greedy(asked: Asked) -> Planned:
    return Planned(assignment.greedy(asked.problem, asked.possible))


def _swap(asked: Asked) -> Planned:
    from newsstand.planning.improve import improve

    return Planned(improve(asked.problem, assignment.weighted_round_robin(asked.problem, asked.possible)))


def _relaxed(asked: Asked) -> Planned:
    from newsstand.planning.relaxed import relaxed

    found = relaxed(asked.problem, asked.time_limit_s)
    return Planned(found.plan, found.gap)


def _exact(asked: Asked) -> Planned:
    from newsstand.planning.exact import exact

    found = exact(asked.problem, asked.time_limit_s)
    return Planned(found.plan, found.gap)


METHODS: dict[str, Method] = {
    "srl": _serial,
    "wrr": _weighted_round_robin,
    "random": _random,
    "greedy": _greedy,
    "swap": _swap,
    "relaxed": _relaxed,
    "exact": _exact,
}
