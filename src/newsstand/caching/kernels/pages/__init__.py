"""Compiled replays of page caches, and their decisions by event."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

MISS, HIT, REJECTED, STORED = 0, 1, 2, 3
"""A request that missed or hit, a push that was rejected or stored."""


class PageReplayKernel(Protocol):
    """The replay of one policy at one proxy.

    `events` holds a page's local number for a request and its complement (`~page`) for a push, in the order
    in which the proxy sees them; `outcome` is filled in.
    """

    def __call__(
        self,
        events: npt.NDArray[np.int32],
        sizes: npt.NDArray[np.int64],
        subscriptions: npt.NDArray[np.int64],
        capacity: int,
        beta: float,
        outcome: npt.NDArray[np.uint8],
    ) -> None: ...
