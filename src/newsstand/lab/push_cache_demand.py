"""What push-caching is simulated on: requests in the order of time, as arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from newsstand.planning.backbone import Backbone, Hosts, hosts_at_places
from newsstand.planning.geography import Places

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CHUNK = 65_536
NO_NODE = -1


class Request(NamedTuple):
    """One request, and the page as it is at that time."""

    time: float
    server: int
    subnet: int
    page: int
    size: int
    modified: float
    """When the page became what it is."""


@dataclass(frozen=True, eq=False)
class Sites:
    """Where subnets or servers are: places and, where they are told, nodes of the backbone."""

    places: Places
    nodes: npt.NDArray[np.int32]
    """`NO_NODE` where none is told."""

    def __len__(self) -> int:
        return len(self.places)

    def hosts(self, backbone: Backbone) -> Hosts:
        """Each at its node, or else at the one with the fewest miles to it."""
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
        """From rows in any order."""
        order = np.lexsort((modified, page))
        pages = int(page.max()) + 1 if len(page) else 0
        return cls(np.searchsorted(page[order], np.arange(pages + 1)), size[order], modified[order])

    def current(self, page: Ints, time: Floats) -> Ints:
        """Where the version is that a page has at a time: the last one not after it, else the first."""
        low, high = self.first[page], self.first[page + 1]
        # All are searched at once, each between its own ends.
        while (open_ := high - low > 1).any():
            middle = (low + high) // 2
            is_past = self.modified[np.minimum(middle, len(self.modified) - 1)] <= time
            low = np.where(open_ & is_past, middle, low)
            high = np.where(open_ & ~is_past, middle, high)
        return low

    def at(self, page: int, time: float) -> tuple[int, float]:
        """The size of a page at a time, and when it became so."""
        first = int(self.first[page])
        times = self.modified[first : int(self.first[page + 1])]
        place = first + max(0, int(np.searchsorted(times, time, side="right")) - 1)
        return int(self.size[place]), float(self.modified[place])


@dataclass(frozen=True, eq=False)
class PushDemand:
    """Requests in the order of time, and what they are for."""

    time: Floats
    server: npt.NDArray[np.int32]
    subnet: npt.NDArray[np.int32]
    page: Ints
    versions: Versions
    subnets: Sites
    servers: Sites

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

    def requests(self) -> Iterator[Request]:
        """One after the other."""
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
            yield from map(Request._make, columns)

    def digest(self) -> str:
        """A name for all of it: other requests, pages or places have another."""
        found = hashlib.sha256()
        arrays: list[npt.NDArray[Any]] = [self.time, self.server, self.subnet, self.page]
        arrays += [self.versions.first, self.versions.size, self.versions.modified]
        for sites in (self.subnets, self.servers):
            arrays += [sites.places.latitudes, sites.places.longitudes, sites.nodes]
        for array in arrays:
            found.update(f"{array.dtype} {array.shape}\n".encode() + np.ascontiguousarray(array).tobytes())
        return found.hexdigest()[:16]
