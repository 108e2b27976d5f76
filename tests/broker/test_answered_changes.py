"""Changes that a broker has answered survive its death: real coordinator and brokers, and SIGKILL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from broker_process import Process, start_broker, start_coordinator, wait_ready
from press import Press
from test_broker_live import login, subscribe, until_head


class Edge:
    """A coordinator with a short lease and the brokers of a test."""

    def __init__(self, press: Press, folder: Path) -> None:
        self._press = press
        self._folder = folder
        self.coordinator = start_coordinator(folder / "coordinator", 0, "--lease-s", 1)
        self.brokers: dict[str, Process] = {}

    def start(self, name: str, port: int = 0) -> Process:
        more = ("--coordinator", self.coordinator.url)
        broker = start_broker(self._folder / name, self._press.url, name, port, *more)
        self.brokers[name] = broker
        wait_ready(broker.url)
        return broker

    def restart(self, name: str) -> Process:
        return self.start(name, int(self.brokers[name].url.rpartition(":")[2]))

    def stop(self) -> None:
        for process in (*self.brokers.values(), self.coordinator):
            process.kill()


@pytest.fixture
def edge(press: Press, tmp_path: Path) -> Iterator[Edge]:
    made = Edge(press, tmp_path)
    try:
        yield made
    finally:
        made.stop()


def replicated(answer: httpx.Response) -> bool:
    return answer.headers["Newsstand-Durability"] == "replicated"


def until_replicated(client: httpx.Client) -> None:
    """Subscribe and unsubscribe until the broker and its coordinator have found each other."""
    until = time.monotonic() + 20
    while True:
        made = client.post(
            "/subscriptions", json={"channel": "of_kind", "values": {"kind": "probe"}, "since": "now"}
        )
        assert made.is_success, made.text
        dropped = client.delete(f"/subscriptions/{made.json()['id']}")
        if replicated(dropped):
            return
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_subscription_that_was_dropped_does_not_return_after_a_kill(edge: Edge) -> None:
    broker = edge.start("a")
    with closing(login(broker.url, "ann")) as ann:
        for _ in range(3):
            until_replicated(ann)
            subscription = subscribe(ann, kind="fire")
            assert ann.delete(f"/subscriptions/{subscription['id']}").status_code == 204
            broker.kill()
            broker = edge.restart("a")
            until_replicated(ann)  # it has caught up with the coordinator
            assert ann.get("/subscriptions").json() == {"subscriptions": []}


def test_answers_about_sessions_say_where_they_are_durable(edge: Edge) -> None:
    who = {"name": "ann", "password": "correct horse battery"}
    with httpx.Client(base_url=edge.start("a").url, timeout=20) as ann:
        assert ann.post("/subscribers", json=who).status_code == 201
        begun = ann.post("/login", json=who)
        refreshed = ann.post("/refresh", json={"refresh": begun.json()["refresh"]})
        ann.headers["Authorization"] = f"Bearer {refreshed.json()['access']}"
        ended = ann.post("/logout")
        assert all(replicated(answer) for answer in (begun, refreshed, ended))
        ann.headers["Authorization"] = f"Bearer {ann.post('/login', json=who).json()['access']}"
        edge.coordinator.kill()
        assert ann.delete("/sessions").headers["Newsstand-Durability"] == "broker"


def test_answered_changes_hold_at_another_broker_when_the_broker_never_returns(edge: Edge, press: Press) -> None:
    first = edge.start("a")
    with closing(login(first.url, "ann")) as ann:
        until_replicated(ann)
        kept, dropped = subscribe(ann, kind="fire"), subscribe(ann, kind="flood")
        press.print([{"channel": "of_kind", "values": ["fire"], "payload": {"id": one}} for one in "abc"])
        until_head(ann, kept, 3)
        acked = ann.post(f"/subscriptions/{kept['id']}/ack", json={"position": 2})
        gone = ann.delete(f"/subscriptions/{dropped['id']}")
        assert replicated(acked)
        assert replicated(gone)
        first.kill()
        second = edge.start("b")
        with closing(httpx.Client(base_url=second.url, headers=ann.headers, timeout=20)) as moved:
            (found,) = moved.get("/subscriptions").json()["subscriptions"]
            assert (found["id"], found["position"]) == (kept["id"], 2)


def test_without_the_coordinator_the_answer_says_so_and_nothing_is_undone(edge: Edge) -> None:
    broker = edge.start("a")
    with closing(login(broker.url, "ann")) as ann:
        until_replicated(ann)
        subscription = subscribe(ann, kind="fire")
        port = int(edge.coordinator.url.rpartition(":")[2])
        edge.coordinator.kill()
        gone = ann.delete(f"/subscriptions/{subscription['id']}")
        assert gone.headers["Newsstand-Durability"] == "broker"
        broker.kill()
        edge.coordinator = start_coordinator(edge._folder / "coordinator", port, "--lease-s", 1)
        edge.restart("a")
        until_replicated(ann)
        assert ann.get("/subscriptions").json() == {"subscriptions": []}
