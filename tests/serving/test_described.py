"""The descriptions at /openapi.json: every reference leads to something."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import FastAPI

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
from newsstand.coordinator.serve import make_desk
from newsstand.coordinator.settings import Settings
from newsstand.coordinator.store_sqlite import SqliteStore as Standings
from newsstand.serving.described import new_api
from newsstand.serving.refusals import json_body


def cluster(_: Path) -> FastAPI:
    return cluster_api(cast("Cluster", SimpleNamespace(metrics=Metrics())), Tokens([]), ClusterOptions())


def coordinator(folder: Path) -> FastAPI:
    store = Standings(folder / "coordinator.sqlite")
    try:
        return coordinator_api(make_desk(Settings("a secret " * 9, data=folder), store, time.monotonic))
    finally:
        store.close()


def broker(folder: Path) -> FastAPI:
    settings = BrokerSettings(name="edge", cluster="http://127.0.0.1:9", token="x", data=folder)
    store = SqliteStore(folder / "broker.sqlite", tell=False)
    try:
        return broker_api(Parts(settings, store, "http://127.0.0.1:8").desk)
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


def found(document: dict[str, Any], reference: str) -> object:
    place: Any = document
    assert reference.startswith("#/"), reference
    for part in reference[2:].split("/"):
        assert part in place, reference
        place = place[part]
    return place


@pytest.mark.parametrize("make", [cluster, coordinator, broker])
def test_every_reference_leads_to_a_shape(make: Callable[[Path], FastAPI], tmp_path: Path) -> None:
    document = make(tmp_path).openapi()
    known = set(references(document))
    assert len(known) > 5
    for reference in known:
        assert isinstance(found(document, reference), dict)
    assert "$defs" not in str(document)


def test_two_shapes_of_one_name_are_noticed() -> None:
    from pydantic import BaseModel, create_model

    class Body(BaseModel):
        inner: create_model("Inner", text=(str, ...))  # type: ignore[valid-type]

    class Other(BaseModel):
        inner: create_model("Inner", number=(int, ...))  # type: ignore[valid-type]

    api = new_api("Newsstand", "A test.")
    for number, shape in enumerate((Body, Other)):
        api.post(f"/{number}", openapi_extra=json_body(shape))(lambda: None)
    with pytest.raises(ValueError, match="two shapes are called Inner"):
        api.openapi()
