"""Lists over HTTP come in pages, at all servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsstand.auth.api_tokens import ApiTokens
from newsstand.broker.assembly import BrokerAssembly
from newsstand.broker.server import create_api as broker_api
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.broker.settings import BrokerSettings
from newsstand.cluster.app_folder import ClusterSettings
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.server import create_api as cluster_api
from newsstand.cluster.service import DataCluster
from newsstand.coordinator.server import CoordinatorSettings, make_context, open_store
from newsstand.coordinator.server import create_api as coordinator_api
from newsstand.http.app import Api
from newsstand.http.openapi import page_of

LISTS = {
    "cluster": {
        "/datasets",
        "/channels",
        "/executions",
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
def apis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Api]]:
    folder = tmp_path_factory.mktemp("apis")
    settings = CoordinatorSettings(secret="a secret of this platform, long enough", data=folder)
    kept = open_store(settings)
    store = SubscriberStore(Path(folder) / "broker.sqlite", replicate=False)
    of_broker = BrokerSettings(name="edge", cluster="http://127.0.0.1:9", token="x", data=folder)
    yield {
        "cluster": cluster_api(cast("DataCluster", Mock(metrics=Metrics())), ApiTokens([]), ClusterSettings()),
        "coordinator": coordinator_api(make_context(settings, kept)),
        "broker": broker_api(BrokerAssembly(of_broker, store, "http://127.0.0.1:8").context),
    }
    kept.close()
    store.close()


@pytest.mark.parametrize("server", LISTS)
def test_lists_have_bounded_limit_and_cursor(apis: dict[str, Api], server: str) -> None:
    paths: dict[str, dict[str, Any]] = apis[server].openapi()["paths"]
    known = {path for path, methods in paths.items() if "get" in methods}
    assert known - HEALTH == LISTS[server] | BOUNDED[server] | SINGLE[server], "say of a new route what it is"
    for path in LISTS[server]:
        given = {one["name"]: one["schema"] for one in paths[path]["get"]["parameters"]}
        assert given["limit"]["maximum"] <= 10_000, path
        assert given["limit"]["default"] <= 1_000, path
        assert "after" in given, path


@given(st.sets(st.text(min_size=1)), st.integers(1, 5))
def test_pages_together_are_list_in_order(names: set[str], limit: int) -> None:
    listed: list[str] = []
    after: str | None = ""
    while after is not None:
        page, after = page_of(names, str, after, limit)
        assert 0 < len(page) <= limit or not names
        listed += page
    assert listed == sorted(names)
