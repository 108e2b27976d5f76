"""The descriptions at /openapi.json: every reference leads to something."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response

from newsstand.auth.api_tokens import ApiTokens
from newsstand.broker.assembly import BrokerAssembly
from newsstand.broker.server import create_api as broker_api
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.broker.settings import BrokerSettings
from newsstand.cluster.app_folder import ClusterSettings
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.server import create_api as cluster_api
from newsstand.cluster.service import DataCluster
from newsstand.coordinator.server import CoordinatorSettings, make_context
from newsstand.coordinator.server import create_api as coordinator_api
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.http.app import Api, Routes
from newsstand.http.request_log import RequestCounts


def cluster(_: Path) -> Api:
    return cluster_api(cast("DataCluster", Mock(metrics=Metrics())), ApiTokens([]), ClusterSettings())


def coordinator(folder: Path) -> Api:
    store = CoordinatorStore(folder / "coordinator.sqlite")
    try:
        return coordinator_api(
            make_context(CoordinatorSettings(secret="a secret " * 9, data=folder), store, time.monotonic)
        )
    finally:
        store.close()


def broker(folder: Path) -> Api:
    settings = BrokerSettings(name="edge", cluster="http://127.0.0.1:9", token="x", data=folder)
    store = SubscriberStore(folder / "broker.sqlite", replicate=False)
    try:
        return broker_api(BrokerAssembly(settings, store, "http://127.0.0.1:8").context)
    finally:
        store.close()


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for one in node.values():
            yield from references(one)
    elif isinstance(node, list):
        for one in node:
            yield from references(one)


def found(document: dict[str, Any], reference: str) -> dict[str, Any]:
    place: Any = document
    assert reference.startswith("#/"), reference
    for part in reference[2:].split("/"):
        assert part in place, reference
        place = place[part]
    assert isinstance(place, dict)
    return place


@pytest.mark.parametrize("make", [cluster, coordinator, broker])
def test_references_lead_to_shapes(make: Callable[[Path], Api], tmp_path: Path) -> None:
    document = make(tmp_path).openapi()
    known = set(references(document))
    assert len(known) > 5
    for reference in known:
        assert isinstance(found(document, reference), dict)
    assert "$defs" not in str(document)


def test_schemas_of_two_types_with_one_name_do_not_collide() -> None:
    first = msgspec.defstruct("Outer", [("inner", msgspec.defstruct("Inner", [("text", str)], module="one"))])
    second = msgspec.defstruct("Other", [("inner", msgspec.defstruct("Inner", [("number", int)], module="two"))])
    routes = Routes("test")

    async def handler(_: Request) -> Response:
        raise AssertionError

    for number, shape in enumerate((first, second)):
        routes.post(f"/{number}", body=shape)(handler)
    requests = RequestCounts(CollectorRegistry(), (1.0,))
    described = Api("Newsstand", "A test.", [routes], requests).openapi()
    shapes = [
        found(described, found(described, reference)["properties"]["inner"]["$ref"])
        for reference in ("#/components/schemas/Outer", "#/components/schemas/Other")
    ]
    assert [list(one["properties"]) for one in shapes] == [["text"], ["number"]]
