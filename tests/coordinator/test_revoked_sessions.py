"""A token of an ended session moves no subscriber."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from support.coordinator.api import AsBrokers, serving, subscriber_token
from support.coordinator.coordinators import broker, coordinating

from newsstand.coordinator.coordinator import Coordinator
from newsstand.errors import NotFound
from newsstand.wire.subscribers import EndSession, SessionChange


def with_ana(coordinator: Coordinator) -> None:
    """`ana` is at broker at `a`; of her sessions `old` was ended and `new` goes on."""
    coordinator.register(broker("a"), 0)
    coordinator.register(broker("b"), 0)
    coordinator.add_subscriber("ana", "hash", "a")
    begun = [SessionChange("ana", sid, 1, 9 * 10**15) for sid in ("old", "new")]
    coordinator.change("a", [*begun, EndSession("ana", "old")])


def test_broker_takes_no_subscriber_for_ended_session(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, store):
        with_ana(coordinator)
        assert not coordinator.lookup("b", ["ana"], True, {"ana": ["old"]}).subscribers
        assert store.brokers_of(["ana"]) == {"ana": "a"}
        assert list(coordinator.lookup("b", ["ana"], True, {"ana": ["old", "new"]}).subscribers) == ["ana"]
        assert store.brokers_of(["ana"]) == {"ana": "b"}


def test_assignment_rejected_for_ended_session(tmp_path: Path) -> None:
    with serving(tmp_path) as served, httpx.Client(base_url=served.url, auth=AsBrokers(), verify=False) as client:
        for name in ("a", "b"):
            client.put(f"/brokers/{name}", json={"url": f"http://127.0.0.1:9/{name}"}).raise_for_status()
        client.post("/subscribers", json={"name": "ana", "hash": "x", "broker": "a"}).raise_for_status()
        changes: list[dict[str, object]] = [
            {"op": "session", "name": "ana", "sid": sid, "generation": 1, "expires": 9 * 10**15}
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


def test_deleted_subscriber_leaves_only_ended_sessions(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, store):
        with_ana(coordinator)
        coordinator.set_hash("ana", "another", store.owners(["ana"])["ana"][1])
        assert store.records(["ana"])["ana"].hash == "another"
        coordinator.delete_subscriber("ana")
        assert store.records(["ana"]) == {}
        assert store.count_subscribers() == {}
        assert [one.assigned for one in coordinator.brokers()] == [0, 0]
        assert coordinator.store.has_ended("ana", "new")
        with pytest.raises(NotFound, match="there is no subscriber 'ana'"):
            coordinator.delete_subscriber("ana")
        coordinator.add_subscriber("ana", "of somebody else", "b")
        assert store.records(["ana"])["ana"].sessions == {}
