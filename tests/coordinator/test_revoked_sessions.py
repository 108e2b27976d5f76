"""A token of a session that was ended moves its subscriber nowhere."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from coordinating import broker, coordinating
from coordinator_api import AsBrokers, serving, subscriber_token

from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.records import SessionChanged, SessionEnded
from newsstand.errors import NotFound


def with_ana(coordinator: Coordinator) -> None:
    """`ana` is at home at `a`; of her sessions `old` was ended and `new` goes on."""
    coordinator.register(broker("a"), 0)
    coordinator.register(broker("b"), 0)
    coordinator.add_subscriber("ana", "hash", "a")
    begun = [SessionChanged("ana", sid, 1, 9e15) for sid in ("old", "new")]
    coordinator.change("a", [*begun, SessionEnded("ana", "old")])


def test_a_broker_takes_nobody_for_an_ended_session(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, store):
        with_ana(coordinator)
        assert not coordinator.lookup("b", ["ana"], True, {"ana": ["old"]}).records
        assert store.homes_of(["ana"]) == {"ana": "a"}
        assert list(coordinator.lookup("b", ["ana"], True, {"ana": ["old", "new"]}).records) == ["ana"]
        assert store.homes_of(["ana"]) == {"ana": "b"}


def test_an_ended_session_is_refused_where_brokers_are_assigned(tmp_path: Path) -> None:
    with serving(tmp_path) as served, httpx.Client(base_url=served.url, auth=AsBrokers()) as client:
        for name in ("a", "b"):
            client.put(f"/brokers/{name}", json={"url": f"http://127.0.0.1:9/{name}"}).raise_for_status()
        client.post("/subscribers", json={"name": "ana", "hash": "x", "broker": "a"}).raise_for_status()
        changes: list[dict[str, object]] = [
            {"op": "session", "name": "ana", "sid": sid, "generation": 1, "expires": 9e15}
            for sid in ("old", "new")
        ]
        changes.append({"op": "end", "name": "ana", "sid": "old"})
        client.post("/brokers/a/changes", json=changes).raise_for_status()
        client.post("/brokers/a/drain").raise_for_status()

        def asked(sid: str) -> int:
            token = subscriber_token("ana", sid=sid)
            return client.get("/broker", headers={"Authorization": f"Bearer {token}"}).status_code

        assert asked("old") == 401
        assert asked("new") == 200
        body = {"broker": "b", "names": ["ana"], "take": True, "sessions": {"ana": ["old"]}}
        assert client.post("/subscribers/lookup", json=body).json()["subscribers"] == {}


def test_a_subscriber_that_is_deleted_leaves_nothing_but_its_ended_sessions(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, store):
        with_ana(coordinator)
        coordinator.set_hash("ana", "another", store.owners(["ana"])["ana"][1])
        assert store.records(["ana"])["ana"]["hash"] == "another"
        coordinator.delete_subscriber("ana")
        assert store.records(["ana"]) == {}
        assert store.count_homes() == {}
        assert [one.homes for one in coordinator.brokers()] == [0, 0]
        assert coordinator.is_revoked("ana", "new")
        with pytest.raises(NotFound, match="there is no subscriber 'ana'"):
            coordinator.delete_subscriber("ana")
        coordinator.add_subscriber("ana", "of somebody else", "b")
        assert store.records(["ana"])["ana"]["sessions"] == {}
