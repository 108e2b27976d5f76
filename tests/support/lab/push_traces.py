"""Small push traces and networks, written down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from newsstand.geo.backbone import Backbone, Hosts, Internet
from newsstand.geo.globe import Locations
from newsstand.lab.push_caching.demand import HostLocations, PushDemand, Versions
from newsstand.overlay.topology import Topology
from newsstand.workload.push1995.columns import NO_NODE

Requests = Sequence[tuple[float, int, int, int]]
"""Time, server, subnet, page."""
Pages = Sequence[tuple[int, int, float]]
"""Page, size, modified: a row for each version."""


def on_the_equator(nodes: Sequence[int]) -> Locations:
    return Locations.of((0.0, 10.0 * node) for node in nodes)


def line(nodes: int = 4) -> Backbone:
    """Nodes one after the other on the equator."""
    edges = [(node, node + 1) for node in range(1, nodes)]
    places = on_the_equator(range(nodes))
    return Backbone(Topology(nodes, edges), tuple(map(str, range(nodes))), places, np.ones(nodes))


def internet(subnets: Sequence[int], servers: Sequence[int], nodes: int = 4) -> Internet:
    """Subnets and servers at nodes of a line; a way is as many hops as it has links, and two."""

    def at(places: Sequence[int]) -> Hosts:
        return Hosts(np.array(places, np.int32), on_the_equator(places))

    return Internet(line(nodes), at(subnets), at(servers))


def demand(requests: Requests, pages: Pages, subnets: int = 2, origins: int = 1) -> PushDemand:
    time, server, subnet, page = zip(*sorted(requests, key=lambda request: request[:2]), strict=True)
    number, size, modified = zip(*pages, strict=True)
    return PushDemand(
        np.array(time, np.float64),
        np.array(server, np.int32),
        np.array(subnet, np.int32),
        np.array(page, np.int64),
        Versions.of(np.array(number, np.int64), np.array(size, np.int64), np.array(modified, np.float64)),
        _sites(subnets),
        _sites(origins),
    )


def _sites(count: int) -> HostLocations:
    return HostLocations(on_the_equator(range(count)), np.full(count, NO_NODE, np.int32))


TABLES = {
    "servers": "server,name,latitude,longitude\n0,origin,0,0\n",
    "subnets": "subnet,name,latitude,longitude,weight\n0,near,0,0,1\n1,far,0,30,1\n",
    "pages": "page,server,size,modified\n10,0,1000,-1000000\n20,0,300,-1000000\n",
    "requests": "time,server,subnet,page\n"
    "0,0,1,10\n1,0,1,10\n2,0,1,10\n3,0,1,20\n4,0,1,20\n1800,0,1,10\n1900,0,1,20\n1950,0,0,10\n",
}
"""One origin, and a far subnet that wants more of it than a near one."""

NETWORK = {
    "nodes.csv": "node,latitude,longitude,weight\na,0,0,0\nb,0,10,0\nc,0,20,0\nd,0,30,1\n",
    "edges.csv": "a,b\na,b\nb,c\nc,d\n",
}
"""A line on which push-caches are at one end."""


def write_trace(folder: Path) -> Path:
    return _written(folder, {f"{name}.csv": text for name, text in TABLES.items()})


def write_network(folder: Path) -> Path:
    return _written(folder, NETWORK)


def _written(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder
