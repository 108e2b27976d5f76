"""Generated networks: connected, of the right size and kind, and reproducible."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from newsstand.errors import BadOption
from newsstand.overlay.topology import (
    GENERATORS,
    Topology,
    barabasi_albert,
    line,
    random_recursive_tree,
    random_tree,
    star,
    waxman,
)


@pytest.mark.parametrize("name", GENERATORS)
@given(nodes=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(40))
def test_generated_network_is_connected_and_reproducible(name: str, nodes: int, seed: int) -> None:
    made = [GENERATORS[name](nodes, np.random.default_rng(seed)) for _ in range(2)]
    assert made[0] == made[1]
    assert made[0].nodes == nodes
    assert made[0].is_connected
    if name in ("line", "star") or name.endswith("-tree"):
        assert made[0].is_tree


def test_networks_without_randomness() -> None:
    assert line(3) == Topology(3, ((1, 2), (2, 3)))
    assert star(4) == Topology(4, ((1, 2), (1, 3), (1, 4)))


def test_random_trees_of_four_nodes_are_uniform() -> None:
    rng = np.random.default_rng(1)
    found = Counter(random_tree(4, rng) for _ in range(3200))
    assert len(found) == 16
    assert max(abs(count - 200) for count in found.values()) < 60  # 4.4 standard deviations of 13.7


def test_recursive_trees_of_four_nodes_number_six() -> None:
    rng = np.random.default_rng(1)
    assert len({random_recursive_tree(4, rng) for _ in range(300)}) == 6


@pytest.mark.parametrize("nodes", [100, 37])
def test_grown_networks_have_as_many_links_as_in_brite(nodes: int) -> None:
    rng = np.random.default_rng(3)
    assert len(waxman(nodes, rng).topology.edges) == 2 * nodes
    assert len(barabasi_albert(nodes, rng).edges) == 2 * nodes - 3
    assert barabasi_albert(nodes, rng, links=1).is_tree


def test_waxman_links_are_short_and_independent_of_alpha() -> None:
    def mean_span(beta: float) -> float:
        topology, places = waxman(200, np.random.default_rng(5), beta=beta)
        ends = np.array(topology.edges) - 1
        return float(np.hypot(*(places[ends[:, 0]] - places[ends[:, 1]]).T).mean())

    assert mean_span(0.05) < mean_span(0.2) < mean_span(100)
    assert mean_span(100) == pytest.approx(0.52, abs=0.05)  # of two random points of a unit square
    one, other = (waxman(50, np.random.default_rng(5), alpha=alpha).topology for alpha in (0.15, 1.0))
    assert one == other


def test_barabasi_albert_prefers_well_linked_nodes() -> None:
    rng = np.random.default_rng(7)
    grown, plain = barabasi_albert(400, rng, links=1), random_recursive_tree(400, rng)
    most = [max(len(one.neighbours(node)) for node in range(1, 401)) for one in (grown, plain)]
    assert most[0] > 2 * most[1]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda rng: waxman(0, rng), "nodes 0: must be at least 1"),
        (lambda rng: barabasi_albert(5, rng, links=0), "links 0: must be at least 1"),
        (lambda rng: waxman(5, rng, alpha=0), "alpha 0, beta 0.2: must be above 0, and alpha at most 1"),
        (lambda rng: waxman(5, rng, beta=-1), "beta -1: must be above 0"),
        (lambda rng: random_tree(0, rng), "nodes 0: must be at least 1"),
    ],
)
def test_impossible_networks_rejected(make, expected: str) -> None:
    with pytest.raises(BadOption, match=expected):
        make(np.random.default_rng(1))
