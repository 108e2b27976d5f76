"""The pages about the coordinator are whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from coordinating import SECRET

from newsstand.coordinator.api import create_api
from newsstand.coordinator.choosing import WAYS
from newsstand.coordinator.metrics import Metrics
from newsstand.coordinator.records import KINDS
from newsstand.coordinator.serve import make_desk, open_store
from newsstand.coordinator.settings import KEYS, Settings

DOCS = Path(__file__).parents[2] / "docs"
API = (DOCS / "reference" / "coordinator-api.md").read_text()
GUIDE = (DOCS / "how-to" / "run-a-coordinator.md").read_text()


def test_every_route_is_in_the_reference(tmp_path: Path) -> None:
    settings = Settings(SECRET, data=tmp_path)
    store = open_store(settings)
    paths = create_api(make_desk(settings, store)).openapi()["paths"]
    store.close()
    routes = {f"{method.upper()} {path}" for path, known in paths.items() for method in known}
    assert routes == set(re.findall(r"^### `([A-Z]+ /\S*)`$", API, re.M))


def test_every_change_has_its_row() -> None:
    for kind in KINDS:
        names = ", ".join(f"`{name}`" for name in kind.__struct_fields__)
        assert re.search(rf"^\| `{kind.__struct_config__.tag}` \| {re.escape(names)} \|", API, re.M), kind


@pytest.mark.parametrize("key", KEYS)
def test_every_setting_has_its_row(key: str) -> None:
    assert re.search(rf"^\| (`\w+`, )*`{key}`(, `\w+`)* \|", GUIDE, re.M)


@pytest.mark.parametrize("way", WAYS)
def test_every_policy_has_its_row(way: str) -> None:
    assert re.search(rf"^\| `{way}` \|", GUIDE, re.M)


def test_every_metric_has_its_row() -> None:
    for family in Metrics().registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        assert re.search(rf"^\| `{family.name}{suffix}` \|", GUIDE, re.M), family.name
