"""The documentation of the coordinator is complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from support.coordinator.coordinators import SECRET
from support.settings_keys import keys_of

from newsstand.coordinator.metrics import Metrics
from newsstand.coordinator.registry import STRATEGIES
from newsstand.coordinator.server import CoordinatorSettings, create_api, make_context, open_store
from newsstand.wire.subscribers import SubscriberChange

DOCS = Path(__file__).parents[2] / "docs"
API = (DOCS / "reference" / "coordinator-api.md").read_text()
GUIDE = (DOCS / "how-to" / "run-a-coordinator.md").read_text()


def test_routes_are_all_in_reference(tmp_path: Path) -> None:
    settings = CoordinatorSettings(secret=SECRET, data=tmp_path)
    store = open_store(settings)
    paths = create_api(make_context(settings, store)).openapi()["paths"]
    store.close()
    routes = {f"{method.upper()} {path}" for path, known in paths.items() for method in known}
    assert routes == set(re.findall(r"^### `([A-Z]+ /\S*)`$", API, re.M))


def test_changes_all_have_rows() -> None:
    for kind in get_args(SubscriberChange):
        names = ", ".join(f"`{name}`" for name in kind.__struct_fields__)
        assert re.search(rf"^\| `{kind.__struct_config__.tag}` \| {re.escape(names)} \|", API, re.M), kind


@pytest.mark.parametrize("key", keys_of(CoordinatorSettings))
def test_settings_all_have_rows(key: str) -> None:
    assert re.search(rf"^\| (`\w+`, )*`{key}`(, `\w+`)* \|", GUIDE, re.M)


@pytest.mark.parametrize("way", STRATEGIES)
def test_policies_all_have_rows(way: str) -> None:
    assert re.search(rf"^\| `{way}` \|", GUIDE, re.M)


def test_metrics_all_have_rows() -> None:
    for family in Metrics().registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        assert re.search(rf"^\| `{family.name}{suffix}` \|", GUIDE, re.M), family.name
