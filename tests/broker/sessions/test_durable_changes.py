"""Answered changes survive the loss of a broker: real coordinator and brokers, and SIGKILL."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from support.broker.calls import login, subscribe, until_head
from support.broker.press import Press
from support.broker.process import Process, as_operator, start_broker, start_coordinator, wait_ready


class Edge:
    """A coordinator with a short lease and the brokers of a test."""

    def __init__(self, press: Press, folder: Path) -> None:
        self._press = press
        self.folder = folder
        self.coordinator = start_coordinator(folder / "coordinator", 0, "--lease-s", 1)
        self.brokers: dict[str, Process] = {}

    def start(self, name: str, port: int = 0) -> Process:
        more = ("--coordinator", self.coordinator.url)
        broker = start_broker(self.folder / name, self._press.url, name, port, *more)
        self.brokers[name] = broker
        wait_ready(broker.url)
        return broker

    def restart(self, name: str) -> Process:
        return self.start(name, int(self.brokers[name].url.rpartition(":")[2]))

    def stop(self) -> None:
        for process in (*self.brokers.values(), self.coordinator):
            process.kill()


@pytest.fixture
def edge(new_press: Press, tmp_path: Path) -> Iterator[Edge]:
    made = Edge(new_press, tmp_path)
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
        if made.status_code != 503:  # a broker whose lease has expired registers again first
            assert made.is_success, made.text
            if replicated(client.delete(f"/subscriptions/{made.json()['id']}")):
                return
        assert time.monotonic() < until, made.text
        time.sleep(0.1)


def found_at(broker: Process, client: httpx.Client) -> dict[str, int]:
    """Return a subscriber's subscriptions at a broker, with their positions; ask again while it is busy."""
    until = time.monotonic() + 20
    while True:
        answer = httpx.get(f"{broker.url}/subscriptions", headers=client.headers, timeout=20, verify=False)
        if answer.status_code == 200:
            return {one["id"]: one["position"] for one in answer.json()["subscriptions"]}
        assert answer.status_code == 503, answer.text
        assert time.monotonic() < until, answer.text
        time.sleep(0.05)


def print_fire(press: Press, *ids: str) -> None:
    press.print([{"channel": "of_kind", "values": ["fire"], "payload": {"id": one}} for one in ids])


def until_listed(edge: Edge, name: str, **wanted: str) -> None:
    """Wait until the coordinator tells this of a broker."""
    headers = {"Authorization": f"Bearer {as_operator()}"}
    until = time.monotonic() + 20
    while True:
        listed = (
            httpx.get(f"{edge.coordinator.url}/brokers", headers=headers, verify=False)
            .raise_for_status()
            .json()["brokers"]
        )
        (known,) = [one for one in listed if one["name"] == name]
        if known.items() >= wanted.items():
            return
        assert time.monotonic() < until, known
        time.sleep(0.05)


def until_dead(edge: Edge, name: str) -> None:
    """Wait until the coordinator has given a broker up."""
    until_listed(edge, name, state="dead")


def test_dropped_subscription_does_not_return_after_a_kill(edge: Edge) -> None:
    broker = edge.start("a")
    with closing(login(broker.url, "ann")) as ann:
        for _ in range(3):
            until_replicated(ann)
            subscription = subscribe(ann, kind="fire")
            assert ann.delete(f"/subscriptions/{subscription['id']}").status_code == 204
            broker.kill()
            broker = edge.restart("a")
            until_replicated(ann)  # it has caught up with the coordinator
            assert ann.get("/subscriptions").json() == {"subscriptions": [], "next": None}


def test_session_responses_have_a_durability_header(edge: Edge) -> None:
    who = {"name": "ann", "password": "correct horse battery"}
    with httpx.Client(base_url=edge.start("a").url, timeout=20, verify=False) as ann:
        assert ann.post("/subscribers", json=who).status_code == 201
        begun = ann.post("/login", json=who)
        refreshed = ann.post("/refresh", json={"refresh": begun.json()["refresh"]})
        ann.headers["Authorization"] = f"Bearer {refreshed.json()['access']}"
        ended = ann.post("/logout")
        assert all(replicated(answer) for answer in (begun, refreshed, ended))
        ann.headers["Authorization"] = f"Bearer {ann.post('/login', json=who).json()['access']}"
        edge.coordinator.kill()
        assert ann.delete("/sessions").headers["Newsstand-Durability"] == "broker"


def test_answered_changes_hold_at_another_broker_when_the_broker_never_returns(
    edge: Edge, new_press: Press
) -> None:
    first = edge.start("a")
    with closing(login(first.url, "ann")) as ann:
        until_replicated(ann)
        kept, dropped = subscribe(ann, kind="fire"), subscribe(ann, kind="flood")
        new_press.print([{"channel": "of_kind", "values": ["fire"], "payload": {"id": one}} for one in "abc"])
        until_head(ann, kept, 3)
        acked = ann.post(f"/subscriptions/{kept['id']}/ack", json={"position": 2})
        gone = ann.delete(f"/subscriptions/{dropped['id']}")
        assert replicated(acked)
        assert replicated(gone)
        first.kill()
        second = edge.start("b")
        with closing(httpx.Client(base_url=second.url, headers=ann.headers, timeout=20, verify=False)) as moved:
            (found,) = moved.get("/subscriptions").json()["subscriptions"]
            assert (found["id"], found["position"]) == (kept["id"], 2)


def test_changes_without_the_coordinator_are_durable_at_the_broker(edge: Edge) -> None:
    broker = edge.start("a")
    with closing(login(broker.url, "ann")) as ann:
        until_replicated(ann)
        subscription = subscribe(ann, kind="fire")
        port = int(edge.coordinator.url.rpartition(":")[2])
        edge.coordinator.kill()
        gone = ann.delete(f"/subscriptions/{subscription['id']}")
        assert gone.headers["Newsstand-Durability"] == "broker"
        broker.kill()
        edge.coordinator = start_coordinator(edge.folder / "coordinator", port, "--lease-s", 1)
        edge.restart("a")
        until_replicated(ann)
        assert ann.get("/subscriptions").json() == {"subscriptions": [], "next": None}


def test_subscription_at_another_broker_once_answered(edge: Edge) -> None:
    first, second = edge.start("a"), edge.start("b")
    with closing(login(first.url, "ann")) as ann:
        until_replicated(ann)
        made = ann.post("/subscriptions", json={"channel": "of_kind", "values": {"kind": "fire"}})
        first.kill()
        assert (made.status_code, replicated(made)) == (201, True)
        assert found_at(second, ann) == {made.json()["id"]: made.json()["position"]}


def test_positions_never_decrease_while_the_coordinator_restarts(edge: Edge, new_press: Press) -> None:
    first = edge.start("a")
    with closing(login(first.url, "ann")) as ann:
        until_replicated(ann)
        kept = subscribe(ann, kind="fire")
        start = int(str(kept["position"]))
        print_fire(new_press, *"abcdefghi")
        until_head(ann, kept, start + 9)
        port = int(edge.coordinator.url.rpartition(":")[2])
        answers = []
        for position in range(start + 1, start + 10):
            if position == start + 4:
                edge.coordinator.kill()
            if position == start + 7:
                edge.coordinator = start_coordinator(edge.folder / "coordinator", port, "--lease-s", 1)
            acked = ann.post(f"/subscriptions/{kept['id']}/ack", json={"position": position})
            assert acked.status_code == 200, acked.text
            assert found_at(first, ann) == {kept["id"]: position}
            answers.append(acked.headers["Newsstand-Durability"])
        assert answers[:6] == ["replicated"] * 3 + ["broker"] * 3
        until_replicated(ann)
        first.kill()
        assert found_at(edge.start("b"), ann) == {kept["id"]: start + 9}


def test_broker_paused_beyond_its_lease_undoes_nothing(edge: Edge, new_press: Press) -> None:
    first, second = edge.start("a"), edge.start("b")
    with closing(login(first.url, "ann")) as ann:
        until_replicated(ann)
        kept, dropped = subscribe(ann, kind="fire"), subscribe(ann, kind="flood")
        head = int(str(kept["position"])) + 3
        print_fire(new_press, *"abc")
        until_head(ann, kept, head)
        os.kill(first.pid, signal.SIGSTOP)
        try:
            until_dead(edge, "a")
            with closing(
                httpx.Client(base_url=second.url, headers=ann.headers, timeout=20, verify=False)
            ) as moved:
                assert moved.delete(f"/subscriptions/{dropped['id']}").status_code == 204
                until_head(moved, kept, head)
                acked = moved.post(f"/subscriptions/{kept['id']}/ack", json={"position": head})
                assert replicated(acked)
        finally:
            os.kill(first.pid, signal.SIGCONT)
        gone = ann.get(f"/subscriptions/{dropped['id']}")
        assert gone.status_code in (404, 503), gone.text
        until_replicated(ann)
        assert found_at(first, ann) == {kept["id"]: head}
        assert found_at(second, ann) == {kept["id"]: head}


def test_second_broker_of_a_name_stops_and_the_first_serves(edge: Edge, new_press: Press, tmp_path: Path) -> None:
    first = edge.start("a")
    with closing(login(first.url, "ann")) as ann:
        kept = subscribe(ann, kind="fire")
        more = ("--coordinator", edge.coordinator.url)
        second = start_broker(tmp_path / "other", new_press.url, "a", 0, *more)
        try:
            address = second.url
            start = int(str(kept["position"]))
            for half in (range(20), range(20, 40)):
                print_fire(new_press, *map(str, half))
                until_head(ann, kept, start + half.stop)
            assert second.ended() == 2
        finally:
            second.kill()
        assert [line for line in second.said if f"a broker named 'a' runs at {first.url}" in line]
        assert not any("Traceback" in line for line in second.said), second.said
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{address}/readyz", verify=False)
        results = ann.get(f"/subscriptions/{kept['id']}/results", params={"limit": 100}).json()["results"]
        assert [one["payload"]["id"] for one in results] == [str(one) for one in range(40)]
        assert httpx.get(f"{first.url}/readyz", verify=False).status_code == 200


def test_superseded_broker_stops_with_a_reason(edge: Edge, new_press: Press, tmp_path: Path) -> None:
    first = edge.start("a")
    with closing(login(first.url, "ann")) as ann:
        until_replicated(ann)
        kept = subscribe(ann, kind="fire")
        until_replicated(ann)
        os.kill(first.pid, signal.SIGSTOP)
        try:
            until_dead(edge, "a")
            second = start_broker(tmp_path / "other", new_press.url, "a", 0, "--coordinator", edge.coordinator.url)
            edge.brokers["other"] = second
            until_listed(edge, "a", url=second.url)
        finally:
            os.kill(first.pid, signal.SIGCONT)
        assert first.ended() == 2
        said = f"another process has registered as broker 'a', at {second.url}; stop this one"
        assert [line for line in first.said if said in line], first.said
        assert not any("Traceback" in line for line in first.said), first.said
        wait_ready(second.url)
        assert list(found_at(second, ann)) == [kept["id"]]


@pytest.mark.slow
def test_cluster_rejects_a_second_broker_of_a_name(new_press: Press, tmp_path: Path) -> None:
    first = start_broker(tmp_path / "one", new_press.url, "twin")
    second = None
    try:
        wait_ready(first.url)
        with closing(login(first.url, "ann")) as ann:
            kept = subscribe(ann, kind="fire")
            second = start_broker(tmp_path / "other", new_press.url, "twin")
            assert httpx.get(f"{second.url}/readyz", verify=False).status_code == 503
            start = int(str(kept["position"]))
            for half in (range(20), range(20, 40)):
                print_fire(new_press, *map(str, half))
                until_head(ann, kept, start + half.stop)
            assert second.ended(90) == 2
            assert [line for line in second.said if "another process acts as broker 'twin'" in line]
            results = ann.get(f"/subscriptions/{kept['id']}/results", params={"limit": 100}).json()["results"]
            assert [one["payload"]["id"] for one in results] == [str(one) for one in range(40)]
            assert httpx.get(f"{first.url}/readyz", verify=False).status_code == 200
    finally:
        first.kill()
        if second is not None:
            second.kill()
