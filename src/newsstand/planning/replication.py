"""How often each topic is kept, and in how many storages (Sourlas et al. 2011, sections 5.5 and 6.1.1).

A topic of r times the demand of the least wanted one is kept r times as often, within the limits of its provider.
Topics that nobody wants are left out of "the least wanted", and count as much as it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from fractions import Fraction

from newsstand.planning.problem import Problem


def half_up(number: Fraction) -> int:
    """The nearest whole number, the larger of two.

    >>> half_up(Fraction(9, 2)), half_up(Fraction(17, 6)), half_up(Fraction(5, 2))
    (5, 3, 3)
    """
    return math.floor(number + Fraction(1, 2))


def relative_weights(problem: Problem) -> tuple[int, ...]:
    """rw: the demand for each topic as a multiple of the least (section 5.5)."""
    return tuple(max(1, half_up(ratio)) for ratio in _ratios(problem))


def replicas(problem: Problem) -> tuple[int, ...]:
    """k: how often each topic is to be kept, by its weight, within its limits and the room there is.

    What exceeds the room is taken off one by one, from the topic with most replicas for its demand that has more
    than it must have; of equals, from the last. The least that topics must have may still exceed the room.
    """
    most = problem.storages or sum(1 for topics in problem.capacity if topics)
    wanted = [
        max(limits.least, min(limits.most, most, half_up(ratio * limits.least)))
        for ratio, limits in zip(_ratios(problem), problem.replication, strict=True)
    ]
    excess = 0 if problem.storages is None else sum(wanted) - _largest_room(problem, problem.storages)
    spare = [_most_for_its_demand(problem, topic, k) for topic, k in enumerate(wanted)]
    heapq.heapify(spare)
    while excess > 0 and spare:
        *_, topic = spare[0]
        if wanted[-topic] == problem.replication[-topic].least:
            heapq.heappop(spare)
            continue
        wanted[-topic] -= 1
        excess -= 1
        heapq.heapreplace(spare, _most_for_its_demand(problem, -topic, wanted[-topic]))
    return tuple(wanted)


def least_storages(problem: Problem) -> int:
    """M where it is not given: as few as can hold all replicas, max(ceil(sum of k / SC), max k)."""
    wanted = replicas(problem)
    number = max(wanted)
    while number < problem.topology.nodes and _largest_room(problem, number) < sum(wanted):
        number += 1
    return number


def as_many_as_needed(problem: Problem, order: Sequence[int]) -> tuple[int, ...]:
    """The first M of some nodes in an order of preference; where M is not given, as many as hold all replicas."""
    useful = [node for node in order if problem.capacity[node - 1]]
    if problem.storages is not None:
        return tuple(useful[: problem.storages])
    wanted = replicas(problem)
    number, room = 0, 0
    while number < len(useful) and (number < max(wanted) or room < sum(wanted)):
        room += problem.capacity[useful[number] - 1]
        number += 1
    return tuple(useful[:number])


def _ratios(problem: Problem) -> list[Fraction]:
    least = min(int(total) for total in problem.totals if total)
    return [Fraction(int(total), least) for total in problem.totals]


def _largest_room(problem: Problem, storages: int) -> int:
    """How many replicas so many storages can hold at most."""
    return sum(sorted(problem.capacity, reverse=True)[:storages])


def _most_for_its_demand(problem: Problem, topic: int, wanted: int) -> tuple[bool, Fraction, int]:
    """Sorts before that of any topic with fewer replicas for its demand."""
    total = int(problem.totals[topic])
    return (total > 0, -Fraction(wanted, total) if total else Fraction(0), -topic)
