"""Management of accounts: what the coordinator stores, and what brokers learn of it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from support.coordinator.api import OPERATOR, SECRET, AsBrokers, serving, subscriber_token
from support.coordinator.coordinators import broker, coordinating

from newsstand.auth.credentials import broker_credential
from newsstand.coordinator.coordinator import Coordinator
from newsstand.errors import NotFound
from newsstand.wire.coordination import HeartbeatRequest
from newsstand.wire.subscribers import AddSubscription, SessionChange

FOREVER = 2**52
BEAT = HeartbeatRequest(0, 0)


def with_ana(coordinator: Coordinator) -> int:
    """Ana is at broker at `a`, with a session and a subscription; her epoch."""
    for name in ("a", "b"):
        coordinator.register(broker(name), 0.0)
    epoch = coordinator.add_subscriber("ana", "hash", "a")
    session = SessionChange("ana", "s", 1, FOREVER, None, epoch)
    coordinator.change("a", [session, AddSubscription("ana", "x", "near", [], 0, epoch * 2**20)])
    return epoch


def test_disabled_account_keeps_state_and_is_read_again_by_broker(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, _):
        epoch = with_ana(coordinator)
        assert "ana" not in coordinator.heartbeat("a", BEAT, 1.0).adopt
        account = coordinator.set_disabled("ana", True)
        assert (account.state, account.broker, account.subscriptions, account.sessions) == ("disabled", "a", 1, 1)
        assert account.created is not None
        assert coordinator.stale("a", {"ana": epoch}) == ["ana"], "what the broker knows is out of date"
        assert coordinator.heartbeat("a", BEAT, 1.0).adopt == ["ana"]
        found = coordinator.lookup("a", ["ana"], True)
        record = found.subscribers["ana"]
        assert record.disabled
        assert list(record.sessions) == ["s"]
        assert list(record.subscriptions) == ["x"]
        coordinator.heartbeat("a", HeartbeatRequest(0, 0, adopted=found.handovers), 1.1)
        assert not coordinator.heartbeat("a", BEAT, 1.2).adopt
        coordinator.set_disabled("ana", True)
        assert not coordinator.heartbeat("a", BEAT, 1.3).adopt, "nothing has changed"
        assert coordinator.set_disabled("ana", False).state == "active"
        assert coordinator.heartbeat("a", BEAT, 1.4).adopt == ["ana"]


def test_disabled_account_stays_disabled_after_moves_and_restart(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, _):
        with_ana(coordinator)
        coordinator.set_disabled("ana", True)
        assert coordinator.lookup("b", ["ana"], True).subscribers["ana"].disabled
    with coordinating(tmp_path) as (coordinator, _):
        assert coordinator.account("ana").state == "disabled"
        assert coordinator.store.is_disabled("ana")


def test_session_before_reset_does_not_return(tmp_path: Path) -> None:
    """A broker that was cut off tells of a login with the old password after the operator has replaced it."""
    with coordinating(tmp_path) as (coordinator, store):
        epoch = with_ana(coordinator)
        coordinator.reset_password("ana", "another hash")
        assert coordinator.account("ana").sessions == 0
        assert coordinator.store.has_ended("ana", "s")
        late = SessionChange("ana", "late", 1, FOREVER, None, epoch)
        coordinator.change("a", [late])
        assert coordinator.account("ana").sessions == 0
        record = coordinator.lookup("a", ["ana"], True).subscribers["ana"]
        assert (record.hash, record.sessions) == ("another hash", {})
        assert coordinator.heartbeat("a", BEAT, 1.0).adopt == ["ana"], "the broker ends the session, too"
        new = SessionChange("ana", "new", 1, FOREVER, None, store.owners(["ana"])["ana"][1])
        coordinator.change("a", [new])
        assert coordinator.account("ana").sessions == 1
        assert coordinator.account("ana").subscriptions == 1


def test_deleted_account_is_not_restored_by_returning_broker(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, _):
        epoch = with_ana(coordinator)
        coordinator.delete_subscriber("ana")
        unsent = AddSubscription("ana", "y", "near", [], 0, epoch * 2**20 + 1)
        assert coordinator.change("a", [unsent]).moved == ["ana"]
        assert "ana" not in coordinator.register(broker("a"), 1.0).subscribers
        assert list(coordinator.heartbeat("a", BEAT, 1.0).moved) == ["ana"]
        with pytest.raises(NotFound):
            coordinator.account("ana")


def test_new_account_inherits_nothing_from_deleted_one_of_same_name(tmp_path: Path) -> None:
    with coordinating(tmp_path) as (coordinator, store):
        epoch = with_ana(coordinator)
        coordinator.delete_subscriber("ana")
        coordinator.add_subscriber("ana", "hash of somebody else", "b")
        subscribed = AddSubscription("ana", "y", "near", [], 0, epoch * 2**20 + 1)
        coordinator.change("a", [subscribed, SessionChange("ana", "late", 1, FOREVER, None, epoch)])
        record = store.records(["ana"])["ana"]
        assert (record.sessions, record.subscriptions) == ({}, {})


def test_accounts_are_managed_by_operators_over_http(tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    with (
        serving(tmp_path, lease_s=600.0) as served,
        httpx.Client(base_url=served.url, auth=AsBrokers(), verify=False) as brokers,
        httpx.Client(base_url=served.url, headers=headers, verify=False) as operator,
    ):
        brokers.put("/brokers/a", json={"url": "http://127.0.0.1:9"})
        for name in ("cy", "ana", "bob"):
            brokers.post("/subscribers", json={"name": name, "hash": "h", "broker": "a"}).raise_for_status()
        first = operator.get("/subscribers?limit=2").json()
        assert ([one["name"] for one in first["subscribers"]], first["next"]) == (["ana", "bob"], "bob")
        second = operator.get("/subscribers", params={"limit": 2, "after": "bob"}).json()
        assert ([one["name"] for one in second["subscribers"]], second["next"]) == (["cy"], None)
        ana = operator.get("/subscribers/ana").json()
        assert ana.pop("created") > 1_700_000_000
        assert ana == {"name": "ana", "broker": "a", "subscriptions": 0, "sessions": 0, "state": "active"}
        assert operator.put("/subscribers/ana/disabled").json()["state"] == "disabled"
        where = operator.get("/broker", headers={"Authorization": f"Bearer {subscriber_token('ana')}"})
        assert (where.status_code, "is disabled" in where.json()["error"]) == (403, True)
        assert operator.delete("/subscribers/ana/disabled").json()["state"] == "active"
        short = operator.put("/subscribers/ana/password", json={"password": "short"})
        assert (short.status_code, short.json()["error"]) == (422, "password: 8 to 1024 characters")
        ask = {"broker": "a", "names": ["ana"], "take": False}
        epoch = brokers.post("/subscribers/lookup", json=ask).json()["subscribers"]["ana"]["epoch"]
        assert operator.put("/subscribers/ana/password", json={"password": "long enough"}).status_code == 204
        owner = {"Authorization": f"Bearer {broker_credential(SECRET, 'a')}"}
        given = {"hash": "of the subscriber", "epoch": epoch}
        late = brokers.put("/subscribers/ana", json=given, headers=owner)
        assert (late.status_code, "was changed since" in late.json()["error"]) == (409, True)
        found = brokers.post("/subscribers/lookup", json=ask).json()["subscribers"]["ana"]
        assert found["hash"].startswith("$argon2id$")
        assert operator.delete("/subscribers/ana").status_code == 200
        for method, path in (
            ("GET", "/subscribers/ana"),
            ("PUT", "/subscribers/ana/disabled"),
            ("DELETE", "/subscribers/ana/disabled"),
            ("DELETE", "/subscribers/ana"),
        ):
            assert operator.request(method, path).status_code == 404, (method, path)
        assert operator.put("/subscribers/ana/password", json={"password": "long enough"}).status_code == 404
