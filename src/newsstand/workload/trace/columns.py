"""A trace in memory, as arrays: what replays without Spark read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]

MOST_SUBSCRIPTIONS = 2**31 - 1
"""The largest count that a trace can hold."""


@dataclass(frozen=True)
class RequestColumns:
    """The requests, in the order of the source's rows; a page is the number of its publication, from 0."""

    time: npt.NDArray[Any]
    """Seconds, as the source has them: 64-bit floats, or whole numbers of 32 bits."""
    proxy: Int32s
    page: npt.NDArray[Any]
    """Whole numbers of 64 bits, or of 32 bits."""

    def __len__(self) -> int:
        return len(self.page)


@dataclass(frozen=True)
class PublicationColumns:
    """The publications, those of one time in the order in which they are pushed."""

    page: Int64s
    """The number of each page in the source."""
    time: Float64s
    size: Int64s

    def __len__(self) -> int:
        return len(self.page)


@dataclass(frozen=True)
class SubscriptionColumns:
    """The subscriptions, at most one row for a pair of proxy and page; pages are numbered as in the requests."""

    proxy: Int32s
    page: Int64s
    count: Int32s

    def __len__(self) -> int:
        return len(self.page)

    @classmethod
    def none(cls) -> SubscriptionColumns:
        """Return no subscriptions."""
        return cls(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int32))


@dataclass(frozen=True)
class TraceColumns:
    """A trace in memory, which keeps every rule of the trace format.

    The columns may be views with any stride, such as those of a memory-mapped file.
    """

    source: str
    requests: RequestColumns
    publications: PublicationColumns
    subscriptions: SubscriptionColumns
    notes: tuple[str, ...] = ()
    """What the reader skipped."""
    is_in_order: bool = False
    """Whether one proxy's requests lie here in the order of time, with pages numbered by their first requests."""

    def behind_one_proxy(self) -> TraceColumns:
        """Return the trace with one proxy for all readers, to which all subscriptions belong."""
        pages, place = np.unique(self.subscriptions.page, return_inverse=True)
        counts = np.zeros(len(pages), np.int64)
        np.add.at(counts, place, self.subscriptions.count)
        return replace(
            self,
            requests=replace(self.requests, proxy=np.zeros(len(self.requests), np.int32)),
            subscriptions=SubscriptionColumns(
                np.zeros(len(pages), np.int32), pages, np.minimum(counts, MOST_SUBSCRIPTIONS).astype(np.int32)
            ),
        )
