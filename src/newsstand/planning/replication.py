"""The number of replicas of each topic and of storages, and whether they fit (Sourlas et al. 2011).

A topic with r times the least demand gets r times as many replicas, within the limits of its provider (sections
5.5 and 6.1.1). Topics without demand count as one with the least demand.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from newsstand.errors import BadOption
from newsstand.planning.problem import Problem


def half_up(number: Fraction) -> int:
    """Return the nearest integer, the larger of two.

    >>> half_up(Fraction(9, 2)), half_up(Fraction(17, 6)), half_up(Fraction(5, 2))
    (5, 3, 3)
    """
    return math.floor(number + Fraction(1, 2))


def relative_weights(problem: Problem) -> tuple[int, ...]:
    """rw: the demand for each topic as a multiple of the least (section 5.5)."""
    return tuple(max(1, half_up(ratio)) for ratio in _ratios(problem))


def replicas(problem: Problem) -> tuple[int, ...]:
    """k: the replicas of each topic by its weight, within its limits and the room of the storages.

    Replicas that exceed the room are removed one by one, from the topic with most replicas for its demand that has
    more than its least number; among equals, from the last. The least numbers may still exceed the room.
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
    """Return the first M nodes in an order of preference; without M, as many as hold all replicas."""
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
    """Return the largest number of replicas that this many storages can hold."""
    return sum(sorted(problem.capacity, reverse=True)[:storages])


def _most_for_its_demand(problem: Problem, topic: int, wanted: int) -> tuple[bool, Fraction, int]:
    """Return a key that is smaller than that of any topic with fewer replicas for its demand."""
    total = int(problem.totals[topic])
    return (total > 0, -Fraction(wanted, total) if total else Fraction(0), -topic)


def replicas_with_room(wanted: Sequence[int], capacity: Sequence[int]) -> int:
    """Return how many of the wanted replicas these storages can keep, at most one of each topic per storage.

    The smallest cut between topics and storages: some topics are cut off as a whole, cheapest first, and for the
    others each storage is cut off by its capacity or by their number.

    >>> replicas_with_room([2, 2, 2], [2, 2, 2]), replicas_with_room([3, 1], [2, 2])
    (6, 3)
    """
    cheapest = np.concatenate([[0], np.cumsum(sorted(wanted))])
    room = np.asarray(capacity, np.int64)
    topics = len(wanted)
    return min(int(cheapest[topics - kept] + np.minimum(room, kept).sum()) for kept in range(topics + 1))


def storages_allowed(problem: Problem) -> int:
    """Return M; by default the least number that holds the replicas that topics get by their weight."""
    allowed = least_storages(problem) if problem.storages is None else problem.storages
    return min(allowed, sum(room > 0 for room in problem.capacity))


def missing_replicas(problem: Problem) -> int:
    """Return how many replicas have no room even if the nodes with most room are the storages.

    Raise `BadOption` if there is no room for one replica of each topic.
    """
    roomiest = sorted(problem.capacity, reverse=True)[: storages_allowed(problem)]
    topics = len(problem.topics)
    if sum(roomiest) < topics:
        raise BadOption(
            f"storages: {len(roomiest)} storages have room for {sum(roomiest)} replicas, "
            f"less than one for each of {topics} topics"
        )
    least = [limits.least for limits in problem.replication]
    return sum(least) - replicas_with_room(least, roomiest)
