"""Lists over HTTP are told page by page, at all servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from newsstand.broker.api import create_api as broker_api
from newsstand.broker.serve import Parts
from newsstand.broker.settings import BrokerSettings
from newsstand.broker.store_sqlite import SqliteStore
from newsstand.cluster.api import create_api as cluster_api
from newsstand.cluster.app_folder import ClusterOptions
from newsstand.cluster.facade import Cluster
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.tokens import Tokens
from newsstand.coordinator.api import create_api as coordinator_api
from newsstand.coordinator.serve import make_desk, open_store
from newsstand.coordinator.settings import Settings
from newsstand.serving.paging import page_of

LISTS = {
    "cluster": {
        "/datasets",
        "/channels",
        "/channels/{channel}/suspensions",
        "/brokers",
        "/brokers/{broker}/subscriptions",
        "/subscriptions/{subscription}/results",
        "/named",
    },
    "coordinator": {"/brokers", "/subscribers"},
    "broker": {"/channels", "/subscriptions", "/subscriptions/{subscription}/results", "/topics", "/subscribers"},
}
BOUNDED = {
    "cluster": {"/datasets/{dataset}/publications/{seq}/trace", "/channels/{channel}/explain"},
    "coordinator": {"/overlay"},
    "broker": {"/stats"},
}
"""Answers with lists that are bounded otherwise; the references say how."""
SINGLE = {
    "cluster": {
        "/datasets/{dataset}",
        "/channels/{channel}",
        "/brokers/{broker}",
        "/pages/{page}",
        "/named/{name}",
    },
    "coordinator": {"/broker", "/subscribers/{name}"},
    "broker": {
        "/subscriptions/{subscription}",
        "/subscribers/{name}",
        "/policy",
        "/pages/{page}",
        "/named/{name}",
        "/copies/{path}",
    },
}
"""Answers about one thing."""
HEALTH = {"/healthz", "/readyz", "/metrics"}


@pytest.fixture(scope="module")
def apis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, FastAPI]]:
    folder = tmp_path_factory.mktemp("apis")
    settings = Settings("a secret of this platform, long enough", data=folder)
    kept = open_store(settings)
    store = SqliteStore(Path(folder) / "broker.sqlite", tell=False)
    of_broker = BrokerSettings(name="edge", cluster="http://127.0.0.1:9", token="x", data=folder)
    yield {
        "cluster": cluster_api(cast("Cluster", SimpleNamespace(metrics=Metrics())), Tokens([]), ClusterOptions()),
        "coordinator": coordinator_api(make_desk(settings, kept)),
        "broker": broker_api(Parts(of_broker, store, "http://127.0.0.1:8").desk),
    }
    kept.close()
    store.close()


@pytest.mark.parametrize("server", LISTS)
def test_every_list_has_a_bounded_limit_and_a_cursor(apis: dict[str, FastAPI], server: str) -> None:
    paths: dict[str, dict[str, Any]] = apis[server].openapi()["paths"]
    known = {path for path, methods in paths.items() if "get" in methods}
    assert known - HEALTH == LISTS[server] | BOUNDED[server] | SINGLE[server], "say of a new route what it is"
    for path in LISTS[server]:
        given = {one["name"]: one["schema"] for one in paths[path]["get"]["parameters"]}
        assert given["limit"]["maximum"] <= 10_000, path
        assert given["limit"]["default"] <= 1_000, path
        assert "after" in given, path


@given(st.sets(st.text(min_size=1)), st.integers(1, 5))
def test_all_pages_together_are_the_list_in_order(names: set[str], limit: int) -> None:
    told: list[str] = []
    after: str | None = ""
    while after is not None:
        page, after = page_of(names, str, after, limit)
        assert 0 < len(page) <= limit or not names
        told += page
    assert told == sorted(names)
