"""The nearest push-cache and the winning cluster agree with plain loops."""

from __future__ import annotations

from collections import Counter

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples
from support.push_caching.worlds import Table, internets

from newsstand.errors import BadOption
from newsstand.geo.backbone import Internet
from newsstand.push_caching.clusters import available_servers, closest, cluster_requests, winner
from newsstand.push_caching.strategies import STRATEGIES, ByChance, nearness


def test_cluster_requests_adds_subnets_to_nearest_server() -> None:
    way = Table([[1, 5, 9], [5, 1, 9], [9, 5, 5], [7, 7, 1]])
    requests = {0: 10, 1: 4, 2: 3, 3: 8}
    assert cluster_requests(requests, [0, 1, 2], way) == {0: 10, 1: 7, 2: 8}
    assert cluster_requests(requests, [2, 1], way) == {1: 17, 2: 8}
    assert cluster_requests(requests, [2, 0], way) == {0: 14, 2: 11}
    assert cluster_requests({3: 5}, [1, 0], way) == {0: 5, 1: 0}


def test_winner_has_most_requests_of_all_its_subnets() -> None:
    # As the paper has it: California leads New England's states one by one, and not together.
    way = Table([[0, 9], *([[9, 0]] * 8)])
    assert winner(cluster_requests({0: 9500, **dict.fromkeys(range(1, 9), 1250)}, [0, 1], way)) == 1


@pytest.mark.parametrize(
    ("clusters", "expected"),
    [({}, None), ({3: 0, 4: 0}, None), ({4: 7, 2: 7, 9: 6}, 2), ({2: 7, 9: 8}, 9)],
)
def test_winner_of_equals_is_lowest_number(clusters: dict[int, int], expected: int | None) -> None:
    assert winner(clusters) == expected


@pytest.mark.parametrize("strategy", ["hops", "miles"])
@given(internet=internets(), data=st.data())
@settings(max_examples=examples(80))
def test_cluster_requests_agree_with_plain_loops(strategy: str, internet: Internet, data: st.DataObject) -> None:
    numbers = range(len(internet.servers))
    servers = data.draw(st.lists(st.sampled_from(numbers), min_size=1, unique=True))
    subnets = range(len(internet.subnets))
    requests = data.draw(st.dictionaries(st.sampled_from(subnets), st.integers(1, 50)))
    way = nearness(strategy, internet, np.random.default_rng(1))
    found = cluster_requests(requests, servers, way)

    expected = dict.fromkeys(sorted(servers), 0)
    for subnet, count in requests.items():
        nearest = min(sorted(servers), key=lambda server: plain_distance(strategy, internet, subnet, server))
        expected[nearest] += count
        assert closest(way, subnet, servers)[1] == nearest  # type: ignore[index]
    assert found == expected
    best = winner(found)
    assert (best is None) == (not requests)
    if best is not None:
        assert found[best] == max(found.values())
        assert all(count < found[best] for server, count in found.items() if server < best)


def plain_distance(strategy: str, internet: Internet, subnet: int, server: int) -> float:
    start, end = internet.subnets.nodes[subnet], internet.servers.nodes[server]
    if strategy == "hops":
        graph = networkx.Graph([*internet.backbone.topology.edges])
        graph.add_nodes_from(range(1, len(internet.backbone) + 1))
        return float(networkx.shortest_path_length(graph, int(start) + 1, int(end) + 1))
    # Unrounded, and added up in the same order: ways of equal length may differ in their last digits.
    x, y, z = (internet.backbone.places.vectors[start] - internet.backbone.places.vectors[end]).tolist()
    return float(x * x + y * y + z * z)


@given(internet=internets(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(30))
def test_random_nearness_depends_on_seed_only(internet: Internet, seed: int) -> None:
    requests = dict.fromkeys(range(len(internet.subnets)), 3)
    servers = range(len(internet.servers))
    made = [
        cluster_requests(requests, servers, nearness("random", internet, np.random.default_rng(seed)))
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert sum(made[0].values()) == 3 * len(requests)


def test_random_nearness_is_uniform() -> None:
    way = ByChance(np.random.default_rng(4))
    found = Counter(way.nearest(np.zeros(4000, np.int64), np.array([2, 5, 6, 8])).tolist())
    singly = Counter(found[1] for found in (closest(way, 0, [2, 5, 6, 8]) for _ in range(4000)) if found)
    for counts in (found, singly):
        assert set(counts) == {2, 5, 6, 8}
        assert all(count == pytest.approx(1000, abs=5 * np.sqrt(750)) for count in counts.values())


def test_nearness_rejects_unknown_strategy() -> None:
    with pytest.raises(BadOption, match="strategy ping: must be one of hops, miles, random"):
        nearness("ping", None, np.random.default_rng(1))  # type: ignore[arg-type]
    assert list(STRATEGIES) == ["hops", "miles", "random"]


def test_available_servers_grow_with_server_number() -> None:
    assert available_servers([9, 4, 7, 4]) == (4, 7, 9)
    assert available_servers([9, 4, 7], 2) == (4, 7)
    assert available_servers([9, 4, 7], 0) == ()
    assert available_servers([9], 5) == (9,)
    with pytest.raises(BadOption, match="server_number -1: must not be negative"):
        available_servers([9], -1)


def test_closest_is_none_without_servers() -> None:
    assert closest(Table([[1.0]]), 0, []) is None
    assert cluster_requests({0: 5}, [], Table([[1.0]])) == {}
