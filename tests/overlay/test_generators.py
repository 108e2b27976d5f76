"""Generated networks: connected, of the right size and kind, the same for the same seed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from newsstand.errors import BadOption
from newsstand.overlay.generators import (
    GENERATORS,
    balanced_tree,
    barabasi_albert,
    line,
    random_recursive_tree,
    random_tree,
    star,
    waxman,
)
from newsstand.overlay.topology import Topology


@pytest.mark.parametrize("name", GENERATORS)
@given(nodes=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_a_network_is_connected_and_the_same_for_the_same_seed(name: str, nodes: int, seed: int) -> None:
    made = [GENERATORS[name](nodes, np.random.default_rng(seed)) for _ in range(2)]
    assert made[0] == made[1]
    assert made[0].nodes == nodes
    assert made[0].is_connected
    if name in ("line", "star") or name.endswith("-tree"):
        assert made[0].is_tree


def test_networks_by_rule() -> None:
    assert line(3) == Topology(3, ((1, 2), (2, 3)))
    assert star(4) == Topology(4, ((1, 2), (1, 3), (1, 4)))
    assert balanced_tree(3, 1) == star(4)
    assert balanced_tree(1, 2) == line(3)
    assert balanced_tree(2, 0) == line(1)


def test_all_sixteen_trees_of_four_nodes_are_equally_likely() -> None:
    rng = np.random.default_rng(1)
    found = Counter(random_tree(4, rng) for _ in range(3200))
    assert len(found) == 16
    assert max(abs(count - 200) for count in found.values()) < 60  # 4.4 standard deviations of 13.7


def test_recursive_trees_of_four_nodes_number_six() -> None:
    rng = np.random.default_rng(1)
    assert len({random_recursive_tree(4, rng) for _ in range(300)}) == 6


@pytest.mark.parametrize("nodes", [100, 37])
def test_grown_networks_have_as_many_links_as_those_of_brite(nodes: int) -> None:
    rng = np.random.default_rng(3)
    assert len(waxman(nodes, rng).topology.edges) == 2 * nodes
    assert len(barabasi_albert(nodes, rng).edges) == 2 * nodes - 3
    assert barabasi_albert(nodes, rng, links=1).is_tree


def test_links_of_a_plane_are_short_and_alpha_makes_no_difference() -> None:
    def mean_span(beta: float) -> float:
        topology, places = waxman(200, np.random.default_rng(5), beta=beta)
        ends = np.array(topology.edges) - 1
        return float(np.hypot(*(places[ends[:, 0]] - places[ends[:, 1]]).T).mean())

    assert mean_span(0.05) < mean_span(0.2) < mean_span(100)
    assert mean_span(100) == pytest.approx(0.52, abs=0.05)  # of two random points of a unit square
    one, other = (waxman(50, np.random.default_rng(5), alpha=alpha).topology for alpha in (0.15, 1.0))
    assert one == other


def test_the_well_linked_get_more_links() -> None:
    rng = np.random.default_rng(7)
    grown, plain = barabasi_albert(400, rng, links=1), random_recursive_tree(400, rng)
    most = [max(len(one.neighbours(node)) for node in range(1, 401)) for one in (grown, plain)]
    assert most[0] > 2 * most[1]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda rng: waxman(0, rng), "nodes is 0"),
        (lambda rng: barabasi_albert(5, rng, links=0), "links is 0"),
        (lambda rng: waxman(5, rng, alpha=0), "alpha 0 is outside"),
        (lambda rng: waxman(5, rng, beta=-1), "beta -1 is not positive"),
        (lambda rng: balanced_tree(0, 3), "a tree with 0 children"),
        (lambda rng: random_tree(0, rng), "nodes is 0"),
    ],
)
def test_what_cannot_be_is_refused(make, told: str) -> None:
    with pytest.raises(BadOption, match=told):
        make(np.random.default_rng(1))
