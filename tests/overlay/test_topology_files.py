"""Networks read from files, and one-line errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from newsstand.errors import BadNetwork
from newsstand.overlay.topology import NodeLocation, Topology, read_network

GRAPHML = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="label" attr.type="string" for="node" id="d1" />
  <key attr.name="Latitude" attr.type="double" for="node" id="d2" />
  <key attr.name="Longitude" attr.type="double" for="node" id="d3" />
  <graph edgedefault="undirected">
    <node id="0"><data key="d1">Athens</data><data key="d2">37.98</data><data key="d3">23.73</data></node>
    <node id="1"><data key="d1">Patras</data></node>
    <node id="2" />
    <edge source="0" target="1" />
    <edge source="1" target="2" />
    <edge source="2" target="1" />
  </graph>
</graphml>
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_edge_list_keeps_names(tmp_path: Path) -> None:
    network = read_network(
        written(tmp_path, "net.txt", "# the backbone\nAthens Patras\n\nPatras Rome # by sea\nRome Patras\n")
    )
    assert network.names == ("Athens", "Patras", "Rome")
    assert network.topology == Topology(3, ((1, 2), (2, 3)))
    assert network.numbers["Rome"] == 3


@pytest.mark.parametrize("name", ["net.graphml", "net.xml"])
def test_graphml_has_names_and_places(tmp_path: Path, name: str) -> None:
    network = read_network(written(tmp_path, name, GRAPHML))
    assert network.topology == Topology(3, ((1, 2), (2, 3)))
    assert network.names == ("0", "1", "2")
    assert network.places == (NodeLocation("Athens", 37.98, 23.73), NodeLocation("Patras"), NodeLocation())


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("net.txt", "a b\nb\n", "line 2: expected two names, found 1"),
        ("net.txt", "a b c\n", "line 1: expected two names, found 3"),
        ("net.txt", "a b\nb b\n", "line 2: b is linked to itself"),
        ("net.txt", "# nothing\n", "has no nodes"),
        ("net.txt", "a b\nc d\n", "no path from a to c"),
        ("net.graphml", "<graphml>\n<node", "line 2: not GraphML (unclosed token, column 0)"),
        ("net.graphml", "<html></html>", "not GraphML (file not successfully read as graphml)"),
        ("net.graphml", GRAPHML.replace(">37.98<", ">97.98<"), "node 0: 97.98 is not between -90 and 90 degrees"),
        ("net.graphml", GRAPHML.replace(">37.98<", ">north<"), "not GraphML (could not convert string to float"),
        ("net.graphml", GRAPHML.replace('source="0"', 'source="2"'), "no path from 0 to 1"),
    ],
)
def test_mistake_reported_with_file_and_line(tmp_path: Path, name: str, text: str, expected: str) -> None:
    path = written(tmp_path, name, text)
    with pytest.raises(BadNetwork) as refused:
        read_network(path)
    assert str(refused.value).startswith(f"{path}: {expected}")
    assert "\n" not in str(refused.value)


def test_unreadable_file_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadNetwork, match="cannot be read \\(No such file or directory\\)"):
        read_network(tmp_path / "none.txt")
    path = tmp_path / "bytes.txt"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadNetwork, match="not UTF-8 text"):
        read_network(path)
