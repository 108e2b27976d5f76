"""Whether all replicas find room: a closed form, as any topic may be kept by any storage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from newsstand.errors import BadOption
from newsstand.planning.problem import Problem
from newsstand.planning.replication import least_storages


def replicas_with_room(wanted: Sequence[int], capacity: Sequence[int]) -> int:
    """How many of the replicas wanted of each topic these storages can keep, one of a topic each.

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
    """M; if that is left open, as few as hold the replicas that topics get by their weight."""
    allowed = least_storages(problem) if problem.storages is None else problem.storages
    return min(allowed, sum(room > 0 for room in problem.capacity))


def missing_replicas(problem: Problem) -> int:
    """How many replicas find no room even if the roomiest nodes are the storages.

    Raise `BadOption` if not every topic finds room once.
    """
    roomiest = sorted(problem.capacity, reverse=True)[: storages_allowed(problem)]
    topics = len(problem.topics)
    if sum(roomiest) < topics:
        raise BadOption(
            f"storages: {len(roomiest)} storages have room for {sum(roomiest)} replicas, of {topics} topics: "
            "not one of each"
        )
    least = [limits.least for limits in problem.replication]
    return sum(least) - replicas_with_room(least, roomiest)
