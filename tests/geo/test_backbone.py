"""Backbones made and read: connected, with places, and with the hops that networkx finds."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.planning.small_networks import networks
from support.profiles import examples

from newsstand.errors import BadNetwork, BadOption
from newsstand.geo.backbone import Backbone, Hosts, Internet, hosts_at_places, hosts_by_weight
from newsstand.geo.backbone_sources import cities, generated_backbone, read_backbone
from newsstand.geo.globe import Locations, miles
from newsstand.overlay.topology import Topology, line


def on_the_equator(topology: Topology, weights: list[float] | None = None) -> Backbone:
    """Node i lies at i degrees east."""
    nodes = topology.nodes
    places = Locations(np.zeros(nodes), np.arange(nodes) * (100 / nodes))
    return Backbone(topology, tuple(map(str, range(nodes))), places, np.array(weights or [1.0] * nodes))


def hosts(backbone: Backbone, *nodes: int) -> Hosts:
    numbers = np.array(nodes, np.int32)
    return Hosts(numbers, backbone.places[numbers])


@given(topology=networks(most=12))
def test_hop_matrix_has_shortest_ways(topology: Topology) -> None:
    graph = networkx.Graph([*topology.edges])
    graph.add_nodes_from(range(1, topology.nodes + 1))
    expected = dict(networkx.all_pairs_shortest_path_length(graph))
    found = on_the_equator(topology).hops
    assert found.dtype == np.uint8
    assert found.tolist() == [
        [expected[a][b] for b in range(1, topology.nodes + 1)] for a in range(1, topology.nodes + 1)
    ]


@pytest.mark.parametrize(("nodes", "bits"), [(256, np.uint8), (257, np.uint16)])
def test_backbone_hops_have_smallest_type(nodes: int, bits: type) -> None:
    hops = on_the_equator(line(nodes)).hops
    assert hops.dtype == bits
    assert hops[0, -1] == nodes - 1


def test_internet_hops_include_access_links() -> None:
    backbone = on_the_equator(line(300))
    world = Internet(backbone, hosts(backbone, 0, 1, 299), hosts(backbone, 0, 4), access_hops=3)
    assert world.hops(2, 0) == 299 + 3
    assert world.hops(np.array([0, 1, 2]), 1).tolist() == [7, 6, 298]
    assert world.hops(np.array([0, 1])[:, None], np.array([0, 1])).tolist() == [[3, 7], [4, 6]]
    assert world.server_hops(np.array([0, 1]), np.array([0, 0])).tolist() == [0, 7]
    assert world.miles(0, np.array([0, 1])).round(6).tolist() == [
        0.0,
        round(float(miles(backbone.places[0], backbone.places[4])), 6),
    ]


def test_hosts_follow_weights() -> None:
    backbone = on_the_equator(line(3), [1.0, 0.0, 3.0])
    made = hosts_by_weight(backbone, 4000, np.random.default_rng(7), spread_miles=10)
    counts = Counter(made.nodes.tolist())
    assert set(counts) == {0, 2}
    assert counts[2] == pytest.approx(3000, abs=5 * np.sqrt(4000 * 0.75 * 0.25))
    assert miles(made.places, backbone.places[made.nodes]).max() < 100


def test_hosts_at_places_use_nearest_node() -> None:
    backbone = on_the_equator(line(4))
    made = hosts_at_places(backbone, Locations.of([(10, 1), (-3, 30), (0, 179)]))
    assert made.nodes.tolist() == [0, 1, 3]


@given(nodes=st.integers(1, 60), links=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(40))
def test_generated_backbone_is_connected_and_reproducible(nodes: int, links: int, seed: int) -> None:
    made, again = (generated_backbone(nodes, np.random.default_rng(seed), links) for _ in range(2))
    assert made.topology == again.topology
    assert made.names == again.names
    assert made.topology.is_connected
    assert len(made.topology.edges) == sum(min(links, node) for node in range(nodes))


def test_generated_nodes_follow_population() -> None:
    made = generated_backbone(3000, np.random.default_rng(2), spread_miles=20)
    by_name = {city.name: city for city in cities()}
    homes = [by_name[name.rpartition(" ")[0]] for name in made.names]
    centres = Locations.of((city.latitude, city.longitude) for city in homes)
    assert miles(made.places, centres).max() < 20 * 6
    share = by_name["Tokyo"].population / sum(city.population for city in cities())
    found = Counter(city.name for city in homes)["Tokyo"]
    assert found == pytest.approx(3000 * share, abs=5 * np.sqrt(3000 * share))


def test_generated_links_shorten_with_beta() -> None:
    def mean_length(beta: float) -> float:
        made = generated_backbone(300, np.random.default_rng(5), beta=beta)
        a, b = np.array(made.topology.edges).T - 1
        return float(miles(made.places[a], made.places[b]).mean())

    assert 3 * mean_length(0.02) < mean_length(0.2) < mean_length(10.0)


def test_generated_backbone_of_one_country_is_smaller() -> None:
    made = generated_backbone(50, np.random.default_rng(3), countries=["US"])
    american = {city.name for city in cities() if city.country == "US"}
    assert {name.rpartition(" ")[0] for name in made.names} <= american


def test_cities_are_valid_and_unique() -> None:
    Locations.of((city.latitude, city.longitude) for city in cities())
    assert len({city.name for city in cities()}) == len(cities()) > 50
    assert all(city.population >= 10**6 and len(city.country) == 2 for city in cities())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 0}, "nodes 0: must be at least 1"),
        ({"links": 0}, "links 0: must be at least 1"),
        ({"beta": 0.0}, "beta 0: must be above 0"),
        ({"countries": ["XX"]}, "country XX: has no city; must be one of AO, AR, "),
    ],
)
def test_generated_backbone_rejects_invalid_parameters(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        generated_backbone(**{"nodes": 5, "rng": np.random.default_rng(1), **options})  # type: ignore[arg-type]


def test_backbone_rejects_parts_of_different_size() -> None:
    backbone = on_the_equator(line(3))
    with pytest.raises(BadOption, match="names: 1 are not one for each of 3 nodes"):
        Backbone(line(3), ("a",), backbone.places, backbone.weights)
    with pytest.raises(BadOption, match="weights: none may be negative"):
        on_the_equator(line(3), [1.0, -1.0, 1.0])
    with pytest.raises(BadOption, match="2 nodes and 3 places"):
        Hosts(np.zeros(2, np.int32), backbone.places)
    with pytest.raises(BadOption, match=r"node 3 is outside 0 … 2"):
        Internet(backbone, Hosts(np.array([3], np.int32), backbone.places[:1]), hosts(backbone, 0))
    with pytest.raises(BadOption, match="access_hops -1"):
        Internet(backbone, hosts(backbone, 0), hosts(backbone, 0), access_hops=-1)
    with pytest.raises(BadOption, match="hosts 0: must be at least 1"):
        hosts_by_weight(backbone, 0, np.random.default_rng(1))


NODES = "node,latitude,longitude,weight\nRome,41.9,12.5,2\nAthens,37.98,23.73,\nPatras,38.25,21.73,0.5\n"
EDGES = "a,b\nRome,Patras\nAthens,Patras\nPatras,Athens\n"


def written(folder: Path, nodes: str | None = NODES, edges: str | None = EDGES) -> Path:
    for name, text in (("nodes.csv", nodes), ("edges.csv", edges)):
        if text is not None:
            (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_read_backbone_reads_two_tables(tmp_path: Path) -> None:
    read = read_backbone(written(tmp_path))
    assert read.names == ("Rome", "Athens", "Patras")
    assert read.topology == Topology(3, ((1, 3), (2, 3)))
    assert read.places.latitudes.tolist() == [41.9, 37.98, 38.25]
    assert read.places.longitudes.tolist() == [12.5, 23.73, 21.73]
    assert read.weights.tolist() == [2.0, 1.0, 0.5]


def test_read_backbone_takes_columns_in_any_order(tmp_path: Path) -> None:
    nodes = '\ufeffowner, longitude ,node,latitude\nme,12.5,Rome,41.9\n\nme,2.35,"Paris, Nord",48.86\n'
    read = read_backbone(written(tmp_path, nodes, 'b,a\nRome,"Paris, Nord"\n'))
    assert read.names == ("Rome", "Paris, Nord")
    assert read.weights.tolist() == [1.0, 1.0]
    assert read.hops.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        (None, EDGES, "nodes.csv: no such file"),
        (NODES, None, "edges.csv: no such file"),
        ("", EDGES, "nodes.csv: its first line must name the column node once"),
        (
            NODES.replace("longitude", "lon"),
            EDGES,
            "nodes.csv: its first line must name the column longitude once",
        ),
        ("node,latitude,longitude\n", EDGES, "nodes.csv: has no nodes"),
        (NODES.replace("37.98", "far"), EDGES, "nodes.csv: row 2: latitude is 'far', not a number"),
        (NODES.replace("37.98", "97"), EDGES, "nodes.csv: row 2: latitude is 97, not between -90 and 90"),
        (NODES.replace("21.73", "nan"), EDGES, "nodes.csv: row 3: longitude is nan, not between -180 and 180"),
        (NODES.replace("12.5,2", "12.5,-2"), EDGES, "nodes.csv: row 1: weight is -2, not at least 0"),
        (NODES.replace("Athens", "Rome"), EDGES, "nodes.csv: row 2: node Rome occurs twice"),
        (NODES.replace("Athens", ""), EDGES, "nodes.csv: row 2: node is empty"),
        (NODES.replace(",37.98", ""), EDGES, "nodes.csv: row 2: has 3 cells, not 4"),
        ("node,latitude,longitude,weight\nRome,1,1,0\n", EDGES, "nodes.csv: all weights are 0"),
        (NODES.replace("Athens", '"Athens'), EDGES, "nodes.csv: line 4: not CSV (unexpected end of data)"),
        (NODES, EDGES.replace("Rome,", "Roma,"), "edges.csv: row 1: node Roma is not in nodes.csv"),
        (NODES, EDGES.replace("Rome,", "Patras,"), "edges.csv: row 1: Patras is linked to itself"),
        (NODES, "a,b\nRome,Patras\n", "edges.csv: no way leads from Rome to Athens"),
        (NODES, "a,b\nRome,Patras,Athens\n", "edges.csv: row 1: has 3 cells, not 2"),
    ],
)
def test_read_backbone_names_file_and_row_of_mistake(
    tmp_path: Path, nodes: str | None, edges: str | None, message: str
) -> None:
    with pytest.raises(BadNetwork, match=f"{re.escape(f'{tmp_path}/{message}')}$"):
        read_backbone(written(tmp_path, nodes, edges))


def test_read_backbone_rejects_binary_file(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "edges.csv").write_bytes(b"a,b\n\xff\xfe,x\n")
    with pytest.raises(BadNetwork, match=r"edges\.csv: cannot be read \(it is not UTF-8\)"):
        read_backbone(tmp_path)


GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="label" attr.type="string" for="node" id="d1" />
  <key attr.name="Latitude" attr.type="double" for="node" id="d2" />
  <key attr.name="Longitude" attr.type="double" for="node" id="d3" />
  <graph edgedefault="undirected">
    <node id="0"><data key="d1">Athens</data><data key="d2">37.98</data><data key="d3">23.73</data></node>
    <node id="1"><data key="d2">38.25</data><data key="d3">21.73</data></node>
    <edge source="0" target="1" />
  </graph>
</graphml>
"""


def test_read_backbone_reads_graphml(tmp_path: Path) -> None:
    (tmp_path / "net.graphml").write_text(GRAPHML)
    read = read_backbone(tmp_path / "net.graphml")
    assert read.names == ("Athens", "1")
    assert read.topology == line(2)
    assert read.places.latitudes.tolist() == [37.98, 38.25]
    assert read.weights.tolist() == [1.0, 1.0]


def test_read_backbone_names_node_without_place(tmp_path: Path) -> None:
    path = tmp_path / "net.graphml"
    path.write_text(GRAPHML.replace('<data key="d3">21.73</data>', ""))
    with pytest.raises(BadNetwork, match=r"net\.graphml: node 1 has no longitude$"):
        read_backbone(path)
    path = tmp_path / "net.txt"
    path.write_text("Athens Patras\n")
    with pytest.raises(BadNetwork, match=r"net\.txt: a list of edges tells no places"):
        read_backbone(path)


def test_read_backbone_rejects_too_large_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.graphml").write_text(GRAPHML)
    monkeypatch.setattr("newsstand.geo.backbone_sources.LARGEST_NETWORK", 1)
    with pytest.raises(BadNetwork, match=r"net\.graphml: \d nodes; hops are known for at most 1$"):
        read_backbone(tmp_path / "net.graphml")
