"""How a broker holds its connections to the data cluster and to other brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from newsstand.broker.serve import Parts
from newsstand.broker.settings import BrokerSettings
from newsstand.broker.store_sqlite import SqliteStore


def test_connections_to_the_cluster_are_given_up_before_it_closes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a read now and then meets a connection that is just being closed, and fails."""
    limits: list[httpx.Limits] = []

    class Noting(httpx.AsyncClient):
        def __init__(self, **options: Any) -> None:
            limits.append(options["limits"])
            super().__init__(**options)

    monkeypatch.setattr("newsstand.broker.serve.httpx.AsyncClient", Noting)
    settings = BrokerSettings(name="edge", cluster="http://127.0.0.1:1", token="t", data=tmp_path)
    store = SqliteStore(tmp_path / "broker.sqlite", tell=False)
    Parts(settings, store, "http://127.0.0.1:2")
    store.close()
    assert len(limits) == 2, "to the cluster, and to other brokers"
    for one in limits:
        assert one.keepalive_expiry is not None
        assert one.keepalive_expiry < uvicorn.Config("").timeout_keep_alive
