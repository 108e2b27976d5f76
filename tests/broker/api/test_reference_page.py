"""The reference of the broker's API is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from newsstand.broker.assembly import BrokerAssembly
from newsstand.broker.event_log import TABLES
from newsstand.broker.server import create_api
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.broker.settings import BrokerSettings
from newsstand.caching import RESULT_POLICIES
from newsstand.wire.notifications import CloseCode

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "broker-api.md").read_text()


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> BrokerAssembly:
    folder = tmp_path_factory.mktemp("documented")
    settings = BrokerSettings(name="edge", cluster="http://127.0.0.1:9", token="x", data=folder)
    store = SubscriberStore(folder / "broker.sqlite", replicate=False)
    made = BrokerAssembly(settings, store, "http://127.0.0.1:8")
    store.close()
    return made


def test_reference_lists_every_route(parts: BrokerAssembly) -> None:
    paths = create_api(parts.context).openapi()["paths"]
    routes = {f"{method.upper()} {path}" for path, known in paths.items() for method in known}
    assert routes == set(re.findall(r"^### `([A-Z]+ /\S*)`$", PAGE, re.M))


def test_reference_lists_every_metric(parts: BrokerAssembly) -> None:
    for family in parts.metrics.registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        assert re.search(rf"^\| `{family.name}{suffix}` \|", PAGE, re.M), family.name


@pytest.mark.parametrize("key", BrokerSettings.__struct_fields__)
def test_reference_lists_every_setting(key: str) -> None:
    assert re.search(rf"^\| (`\w+`, )*`{key}`(, `\w+`)* \|", PAGE, re.M)


@pytest.mark.parametrize(("table", "columns"), TABLES.items())
def test_reference_lists_every_table_of_access_log(table: str, columns: tuple[str, ...]) -> None:
    listed = ", ".join(f"`{column}`" for column in columns)
    assert f"| `{table}.csv` | {listed} |" in PAGE


def test_reference_lists_every_close_code() -> None:
    assert {str(code) for code in CloseCode} == set(re.findall(r"^\| (\d{4}) \|", PAGE, re.M))


def test_reference_names_every_result_policy() -> None:
    assert all(f"`{name}`" in PAGE for name in RESULT_POLICIES)
