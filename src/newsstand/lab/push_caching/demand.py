"""The input of push-caching simulations: requests in the order of time, as arrays, read from a push trace."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from newsstand.geo.backbone import Backbone, Hosts, hosts_at_places
from newsstand.geo.globe import Locations
from newsstand.workload.push1995.columns import NO_NODE, PushColumns, SiteColumns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from newsstand.workload.push1995.trace import PushTrace

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CHUNK = 65_536


class PageDemand(NamedTuple):
    """One request, and the page as it is at that time."""

    time: float
    server: int
    subnet: int
    page: int
    size: int
    modified: float
    """The time since which the page is unchanged."""


@dataclass(frozen=True, eq=False)
class HostLocations:
    """The places of subnets or servers and, where they are known, their nodes of the backbone."""

    places: Locations
    nodes: npt.NDArray[np.int32]
    """`NO_NODE` where none is known."""

    def __len__(self) -> int:
        return len(self.places)

    def hosts(self, backbone: Backbone) -> Hosts:
        """Return each at its node, or else at the one with the fewest miles to it."""
        nearest = hosts_at_places(backbone, self.places)
        return Hosts(np.where(self.nodes == NO_NODE, nearest.nodes, self.nodes).astype(np.int32), self.places)


@dataclass(frozen=True, eq=False)
class Versions:
    """All versions of all pages, in the order of page and time; pages are numbered from 0 without holes."""

    first: Ints
    """The place of each page's first version; one more, the number of versions."""
    size: Ints
    modified: Floats

    @classmethod
    def of(cls, page: Ints, size: Ints, modified: Floats) -> Versions:
        """Return the versions of rows in any order."""
        order = np.lexsort((modified, page))
        pages = int(page.max()) + 1 if len(page) else 0
        return cls(np.searchsorted(page[order], np.arange(pages + 1)), size[order], modified[order])

    def current(self, page: Ints, time: Floats) -> Ints:
        """Return the index of the version of a page at a time: the last one not after it, else the first."""
        low, high = self.first[page], self.first[page + 1]
        # All are searched at once, each between its own ends.
        while (open_ := high - low > 1).any():
            middle = (low + high) // 2
            is_past = self.modified[np.minimum(middle, len(self.modified) - 1)] <= time
            low = np.where(open_ & is_past, middle, low)
            high = np.where(open_ & ~is_past, middle, high)
        return low

    def at(self, page: int, time: float) -> tuple[int, float]:
        """Return the size of a page at a time, and the time of its last change."""
        first = int(self.first[page])
        times = self.modified[first : int(self.first[page + 1])]
        place = first + max(0, int(np.searchsorted(times, time, side="right")) - 1)
        return int(self.size[place]), float(self.modified[place])


@dataclass(frozen=True, eq=False)
class PushDemand:
    """Requests in the order of time, with the versions of pages and the places of hosts."""

    time: Floats
    server: npt.NDArray[np.int32]
    subnet: npt.NDArray[np.int32]
    page: Ints
    versions: Versions
    subnets: HostLocations
    servers: HostLocations

    def __len__(self) -> int:
        return len(self.time)

    @cached_property
    def place(self) -> Ints:
        """The version that each request is for."""
        return self.versions.current(self.page, self.time)

    @property
    def size(self) -> Ints:
        """The bytes that each request is for."""
        return self.versions.size[self.place]

    def requests(self) -> Iterator[PageDemand]:
        """Yield all requests in order."""
        for start in range(0, len(self), CHUNK):
            part = slice(start, start + CHUNK)
            place = self.place[part]
            columns = zip(
                self.time[part].tolist(),
                self.server[part].tolist(),
                self.subnet[part].tolist(),
                self.page[part].tolist(),
                self.versions.size[place].tolist(),
                self.versions.modified[place].tolist(),
                strict=True,
            )
            yield from map(PageDemand._make, columns)

    def digest(self) -> str:
        """Return a digest of requests, pages and places."""
        found = hashlib.sha256()
        arrays: list[npt.NDArray[Any]] = [self.time, self.server, self.subnet, self.page]
        arrays += [self.versions.first, self.versions.size, self.versions.modified]
        for sites in (self.subnets, self.servers):
            arrays += [sites.places.latitudes, sites.places.longitudes, sites.nodes]
        for array in arrays:
            found.update(f"{array.dtype} {array.shape}\n".encode() + np.ascontiguousarray(array).tobytes())
        return found.hexdigest()[:16]


def demand_in_memory(trace: PushColumns) -> PushDemand:
    """Return the demand of a trace in memory; requests of one time are in the order of servers."""
    requests, versions = trace.requests, trace.versions
    order = np.lexsort((requests.server, requests.time))
    return PushDemand(
        requests.time[order],
        requests.server[order],
        requests.subnet[order],
        requests.page[order],
        Versions.of(versions.page, versions.size, versions.modified),
        _located(trace.subnets),
        _located(trace.servers),
    )


def _located(sites: SiteColumns) -> HostLocations:
    return HostLocations(Locations(sites.latitude, sites.longitude), sites.node)


def demand_of(trace: PushTrace) -> PushDemand:
    """Collect a checked push trace from Spark, as `demand_in_memory` returns it."""
    from newsstand.workload.trace.tables import ROW

    requests = _collected(trace.requests.orderBy("time", "server", ROW), ("time", "server", "subnet", "page"))
    pages = _collected(trace.pages, ("page", "size", "modified"))
    names, numbers = np.unique(pages["page"], return_inverse=True)
    return PushDemand(
        requests["time"],
        requests["server"].astype(np.int32),
        requests["subnet"].astype(np.int32),
        np.searchsorted(names, requests["page"]),
        Versions.of(numbers.astype(np.int64), pages["size"], pages["modified"]),
        _sites(trace.subnets, "subnet"),
        _sites(trace.servers, "server"),
    )


def _sites(table: DataFrame, number: str) -> HostLocations:
    columns = _collected(table.orderBy(number).fillna(NO_NODE, ["node"]), ("latitude", "longitude", "node"))
    places = Locations(columns["latitude"], columns["longitude"])
    return HostLocations(places, columns["node"].astype(np.int32))


def _collected(table: DataFrame, columns: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    found: pa.Table = table.select(*columns).toArrow()
    return {column: found.column(column).to_numpy() for column in columns}
