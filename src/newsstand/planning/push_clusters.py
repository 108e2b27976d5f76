"""To which push-cache an origin pushes: clusters of subnets around servers (Gwertzman and Seltzer 1995).

The friends-of-friends algorithm, seeded: each available push-cache server begins one cluster, each subnet's
requests go to the nearest, and the cluster with the most requests wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from newsstand.errors import BadOption
from newsstand.planning.push_nearness import Nearness


def available_servers(servers: Iterable[int], server_number: int | None = None) -> tuple[int, ...]:
    """The first `server_number` of the push-cache servers, or all: a larger number only adds to them."""
    if server_number is not None and server_number < 0:
        raise BadOption(f"server-number is {server_number}: it cannot be negative")
    return tuple(sorted(set(servers))[:server_number])


def cluster_requests(requests: Mapping[int, int], servers: Iterable[int], way: Nearness) -> dict[int, int]:
    """How many requests come from the cluster of each server, given how many come from each subnet."""
    seeds = np.array(sorted(set(servers)), np.int64)
    clusters = dict.fromkeys(seeds.tolist(), 0)
    if not (clusters and requests):
        return clusters
    subnets = np.fromiter(requests.keys(), np.int64, len(requests))
    counts = np.fromiter(requests.values(), np.int64, len(requests))
    positions = np.searchsorted(seeds, way.nearest(subnets, seeds))
    totals = np.zeros(len(seeds), np.int64)
    np.add.at(totals, positions, counts)
    return dict(zip(clusters, totals.tolist(), strict=True))


def winner(clusters: Mapping[int, int]) -> int | None:
    """The server whose cluster has the most requests, of equals the lowest number; None if nobody requests."""
    best = max(clusters, key=lambda server: (clusters[server], -server), default=None)
    return best if best is not None and clusters[best] > 0 else None
