"""The choice of the push-cache to push to: clusters of subnets around servers (Gwertzman and Seltzer 1995).

The friends-of-friends algorithm with seeds: each available push-cache server is the seed of a cluster, the
requests of each subnet count for the nearest one, and the cluster with the most requests wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from newsstand.errors import BadOption

if TYPE_CHECKING:
    from newsstand.geo.globe import Ints


class Nearness(Protocol):
    """The distances between subnets and servers, given by their numbers."""

    def distance(self, subnet: int, server: int) -> float:
        """Return the distance, in a unit of its own, only for comparisons."""
        ...

    def nearest(self, subnets: Ints, servers: Ints) -> Ints:
        """Return the number of the nearest server of each subnet; servers are in ascending order."""
        ...


def closest(way: Nearness, subnet: int, servers: Iterable[int]) -> tuple[float, int] | None:
    """Return the distance and the number of the server nearest to a subnet; None without servers."""
    return min(((way.distance(subnet, server), server) for server in sorted(servers)), default=None)


def available_servers(servers: Iterable[int], server_number: int | None = None) -> tuple[int, ...]:
    """Return the first `server_number` of the push-cache servers, by default all."""
    if server_number is not None and server_number < 0:
        raise BadOption("must not be negative", server_number=server_number)
    return tuple(sorted(set(servers))[:server_number])


def cluster_requests(requests: Mapping[int, int], servers: Iterable[int], way: Nearness) -> dict[int, int]:
    """Return the requests from the cluster of each server, given those from each subnet."""
    import numpy as np  # brokers import this module, and are installed without numpy

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
    """Return the server whose cluster has the most requests, of equals the lowest; None without requests."""
    best = max(clusters, key=lambda server: (clusters[server], -server), default=None)
    return best if best is not None and clusters[best] > 0 else None
