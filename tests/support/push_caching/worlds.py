"""Small worlds for tests of push-caching."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from newsstand.geo.backbone import Backbone, Hosts, Internet
from newsstand.geo.globe import Locations
from support.planning.small_networks import networks


class Table:
    """Distances that a test writes down: one row a subnet, one column a server."""

    def __init__(self, rows: list[list[float]]) -> None:
        self.rows = np.array(rows)

    def distance(self, subnet: int, server: int) -> float:
        return float(self.rows[subnet, server])

    def nearest(self, subnets: np.ndarray, servers: np.ndarray) -> np.ndarray:
        return servers[self.rows[subnets][:, servers].argmin(axis=1)]


@st.composite
def internets(draw: st.DrawFn) -> Internet:
    """Up to 8 nodes, 8 subnets and 6 servers; some at the same places."""
    topology = draw(networks(most=8))
    nodes = topology.nodes
    degrees = st.tuples(st.integers(-9, 9).map(lambda n: n * 10.0), st.integers(-18, 18).map(lambda n: n * 10.0))
    places = Locations.of(draw(st.lists(degrees, min_size=nodes, max_size=nodes)))
    backbone = Backbone(topology, tuple(map(str, range(nodes))), places, np.ones(nodes))
    subnets, servers = (
        np.array(draw(st.lists(st.integers(0, nodes - 1), min_size=1, max_size=most)), np.int32) for most in (8, 6)
    )
    return Internet(backbone, Hosts(subnets, places[subnets]), Hosts(servers, places[servers]))
