"""The catalog: changes over HTTP are valid until the file is edited, and recorded data stays readable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cluster.queries import EMERGENCIES

from newsstand.cluster.app_folder import read_app
from newsstand.cluster.catalog import Catalog, Conflict
from newsstand.cluster.ingest.schema import parse_dataset
from newsstand.cluster.query.parser import parse_channel
from newsstand.errors import BadApp, BadQuery, NotFound
from newsstand.model import ChannelDefinition, Dataset


def open_catalog(folder: Path, text: str = EMERGENCIES) -> Catalog:
    (folder / "newsstand.toml").write_text(text)
    return Catalog(read_app(folder), folder / "data" / "catalog.json")


def dataset(name: str = "floods", key: str | None = None, /, **fields: str) -> Dataset:
    return parse_dataset(name, {"fields": fields, **({"key": key} if key else {})})


def channel(catalog: Catalog, name: str, query: str, **parameters: str) -> ChannelDefinition:
    table = {"query": query, "new": "emergencies", "parameters": parameters}
    return parse_channel(name, table, catalog.datasets(), catalog.defaults)


def test_catalog_has_declarations_of_file(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    assert list(catalog.datasets()) == ["emergencies", "shelters"]
    assert list(catalog.channels()) == ["by_kind"]
    assert catalog.dataset("shelters").key == "name"
    with pytest.raises(NotFound, match="no dataset 'shelter'; there are: emergencies, shelters"):
        catalog.dataset("shelter")
    with pytest.raises(NotFound, match="no channel 'x'; there are: by_kind"):
        catalog.channel("x")


def test_changes_survive_restart(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    floods = dataset(level="double")
    assert catalog.put_dataset(floods) is None
    wider = dataset("emergencies", id="string", kind="string", note="string?")
    assert catalog.put_dataset(wider) is not None
    every = channel(catalog, "every", "SELECT e.note FROM emergencies e")
    catalog.put_channel(every)
    catalog.drop_channel("by_kind")
    catalog.drop_dataset("shelters")
    again = open_catalog(tmp_path)
    assert again.datasets() == {"emergencies": wider, "floods": floods} == catalog.datasets()
    assert again.channels() == {"every": every} == catalog.channels()
    assert again.superseded == []


def test_override_valid_until_file_changes_name(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    other = channel(catalog, "by_kind", "SELECT e.kind FROM emergencies e WHERE e.kind = :kind", kind="string")
    catalog.put_channel(other)
    catalog.drop_dataset("shelters")
    elsewhere = EMERGENCIES + '\n[datasets.users]\nfields = {id = "string"}\n'
    assert open_catalog(tmp_path, elsewhere).channel("by_kind") == other
    edited = elsewhere.replace("SELECT e.id", "SELECT e.id, e.kind")
    last = open_catalog(tmp_path, edited)
    assert last.channel("by_kind").query.startswith("SELECT e.id, e.kind")
    assert last.superseded == ["channels.by_kind"]
    assert "shelters" not in last.datasets()
    assert open_catalog(tmp_path, edited).superseded == []


def test_declaration_added_later_replaces_override(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.put_dataset(dataset("users", id="string"))
    later = open_catalog(
        tmp_path, EMERGENCIES + '\n[datasets.users]\nfields = {id = "string", home = "string?"}\n'
    )
    assert [field.name for field in later.dataset("users").fields] == ["id", "home"]
    assert later.superseded == ["datasets.users"]


def test_put_of_declaration_removes_override(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    before = catalog.dataset("shelters")
    catalog.drop_dataset("shelters")
    catalog.put_dataset(before)
    kept = json.loads((tmp_path / "data" / "catalog.json").read_text())
    assert kept["datasets"] == {}


def test_drop_of_dataset_rejected_while_channel_reads_it(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    with pytest.raises(
        Conflict, match="dataset 'emergencies': channel 'by_kind' reads it; drop the channel first"
    ):
        catalog.drop_dataset("emergencies")
    catalog.drop_channel("by_kind")
    assert catalog.drop_dataset("emergencies").name == "emergencies"
    with pytest.raises(NotFound):
        catalog.drop_dataset("emergencies")


@pytest.mark.parametrize(
    ("fields", "key", "expected"),
    [
        ({"name": "string", "beds": "integer"}, "name", "shelters.fields.beds: recorded publications lack it"),
        ({"name": "string?"}, None, "shelters.key: was 'name' and cannot become absent"),
        ({"id": "string"}, "id", "shelters.key: was 'name' and cannot become 'id'"),
        ({"name": "integer"}, "name", "shelters.fields.name: was 'string' and cannot become 'integer'"),
    ],
)
def test_dataset_only_gains_optional_fields(
    fields: dict[str, str], key: str | None, expected: str, tmp_path: Path
) -> None:
    catalog = open_catalog(tmp_path)
    before = catalog.datasets()
    with pytest.raises(Conflict, match=expected):
        catalog.put_dataset(dataset("shelters", key, **fields))
    assert catalog.datasets() == before
    assert open_catalog(tmp_path).datasets() == before


def test_field_cannot_be_dropped(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    with pytest.raises(Conflict, match=r"emergencies\.fields\.kind: recorded publications have it"):
        catalog.put_dataset(dataset("emergencies", id="string"))


def test_dropped_dataset_recreated_only_with_recorded_fields(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.put_dataset(dataset("floods", level="double"))
    catalog.drop_dataset("floods")
    catalog = open_catalog(tmp_path)
    with pytest.raises(Conflict, match=r"floods\.fields\.level: recorded publications have it"):
        catalog.put_dataset(dataset("floods", depth="double"))
    assert catalog.put_dataset(dataset("floods", level="double", note="string?")) is None


def test_channel_keeps_parameters_and_new_dataset(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    with pytest.raises(Conflict, match=r"by_kind\.parameters: were \(kind string\) and cannot become \(none\)"):
        catalog.put_channel(channel(catalog, "by_kind", "SELECT e.id FROM emergencies e"))
    catalog.put_dataset(dataset("floods", kind="string"))
    table = {
        "query": "SELECT f.kind FROM floods f WHERE f.kind = :kind",
        "new": "floods",
        "parameters": {"kind": "string"},
    }
    with pytest.raises(Conflict, match=r"by_kind\.new: was 'emergencies' and cannot become 'floods'"):
        catalog.put_channel(parse_channel("by_kind", table, catalog.datasets(), {}))


def test_edited_file_cannot_break_recorded_data(tmp_path: Path) -> None:
    open_catalog(tmp_path)
    with pytest.raises(
        Conflict, match=r"datasets\.shelters\.fields\.name: was 'string' and cannot become 'integer'"
    ):
        open_catalog(tmp_path, EMERGENCIES.replace('name = "string"', 'name = "integer"'))
    other = EMERGENCIES.replace("kind = :kind", "id = :id").replace('{kind = "string"}\n', '{id = "string"}\n')
    other = other.replace('fields = {id = "string"}', 'fields = {id = "string", kind = "string"}')
    with pytest.raises(
        Conflict, match=r"by_kind\.parameters: were \(kind string\) and cannot become \(id string\)"
    ):
        open_catalog(tmp_path, other)
    assert open_catalog(tmp_path).superseded == []


def test_query_over_unknown_dataset_rejected(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    lost = ChannelDefinition("lost", "SELECT f.level FROM floods f", "floods")
    with pytest.raises((BadQuery, BadApp)):
        catalog.put_channel(lost)
    assert "lost" not in catalog.channels()


def test_damaged_catalog_reported_and_not_replaced(tmp_path: Path) -> None:
    open_catalog(tmp_path)
    path = tmp_path / "data" / "catalog.json"
    path.write_text("{")
    with pytest.raises(BadApp, match=r"catalog\.json: not a valid catalog"):
        open_catalog(tmp_path)
    assert path.read_text() == "{"


def test_change_reverted_when_write_fails(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    path = tmp_path / "data" / "catalog.json"
    path.unlink()
    path.mkdir()
    with pytest.raises(BadApp, match=r"catalog\.json: cannot be "):
        catalog.put_dataset(dataset(level="double"))
    assert "floods" not in catalog.datasets()


NEAR = "SELECT e.id FROM emergencies e WHERE :lat + :lon < :km"


def test_created_channel_keeps_order_of_parameters(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    near = channel(catalog, "near", NEAR, lat="double", lon="double", km="double")
    catalog.put_channel(near)
    assert [one.name for one in open_catalog(tmp_path).channel("near").parameters] == ["lat", "lon", "km"]


def test_recreated_channel_keeps_its_own_order(tmp_path: Path) -> None:
    text = (
        EMERGENCIES
        + f"""
[channels.near]
query = "{NEAR}"
parameters = {{lat = "double", lon = "double", km = "double"}}
"""
    )
    catalog = open_catalog(tmp_path, text)
    catalog.drop_channel("near")
    other = channel(catalog, "near", NEAR, km="double", lat="double", lon="double")
    catalog.put_channel(other)
    assert open_catalog(tmp_path, text).channel("near") == other
