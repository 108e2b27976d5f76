"""The page about the broker is whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from newsstand.broker import socket_frames
from newsstand.broker.access_log import TABLES
from newsstand.broker.api import create_api
from newsstand.broker.serve import Parts
from newsstand.broker.settings import BrokerSettings
from newsstand.broker.store_sqlite import SqliteStore
from newsstand.caching import RESULT_POLICIES

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "broker-api.md").read_text()


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    folder = tmp_path_factory.mktemp("documented")
    settings = BrokerSettings(name="edge", cluster="http://127.0.0.1:9", token="x", data=folder)
    store = SqliteStore(folder / "broker.sqlite", tell=False)
    made = Parts(settings, store, "http://127.0.0.1:8")
    store.close()
    return made


def test_every_route_is_in_the_reference(parts: Parts) -> None:
    paths = create_api(parts.desk).openapi()["paths"]
    routes = {f"{method.upper()} {path}" for path, known in paths.items() for method in known}
    assert routes == set(re.findall(r"^### `([A-Z]+ /\S*)`$", PAGE, re.M))


def test_every_metric_has_its_row(parts: Parts) -> None:
    for family in parts.metrics.registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        assert re.search(rf"^\| `{family.name}{suffix}` \|", PAGE, re.M), family.name


@pytest.mark.parametrize("key", BrokerSettings.__struct_fields__)
def test_every_setting_has_its_row(key: str) -> None:
    assert re.search(rf"^\| (`\w+`, )*`{key}`(, `\w+`)* \|", PAGE, re.M)


@pytest.mark.parametrize(("table", "columns"), TABLES.items())
def test_every_table_of_the_access_log_has_its_row(table: str, columns: tuple[str, ...]) -> None:
    listed = ", ".join(f"`{column}`" for column in columns)
    assert f"| `{table}.csv` | {listed} |" in PAGE


def test_every_close_code_has_its_row() -> None:
    codes = {value for name, value in vars(socket_frames).items() if name.isupper() and isinstance(value, int)}
    assert {str(code) for code in codes} | {"1009"} == set(re.findall(r"^\| (\d{4}) \|", PAGE, re.M))


def test_every_policy_of_results_is_named() -> None:
    assert all(f"`{name}`" in PAGE for name in RESULT_POLICIES)
