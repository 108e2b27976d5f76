"""What it takes to say which server is nearest: the contract of strategies (Gwertzman and Seltzer 1995)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Nearness(Protocol):
    """How far servers are from subnets; both are known by their numbers."""

    def distance(self, subnet: int, server: int) -> float:
        """How far it is, in whatever unit: only good to be compared."""
        ...

    def nearest(self, subnets: Ints, servers: Ints) -> Ints:
        """For each subnet the number of its nearest server; servers come in the order of their numbers."""
        ...


def closest(way: Nearness, subnet: int, servers: Iterable[int]) -> tuple[float, int] | None:
    """The distance and number of the server that is nearest to one subnet; None if there are no servers."""
    return min(((way.distance(subnet, server), server) for server in sorted(servers)), default=None)
