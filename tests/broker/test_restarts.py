"""Restarts of the broker and the cluster, after SIGTERM or SIGKILL: no answered change is lost."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest
from support.broker.calls import login, read, sockets, subscribe, until_head
from support.broker.press import Press
from support.broker.process import Process, start_broker, start_press, wait_ready
from websockets.exceptions import ConnectionClosed


def printed(press: Process | Press, *payloads: object) -> None:
    for payload in payloads:
        body = [{"channel": "of_kind", "values": ["fire"], "payload": {"id": payload}}]
        if isinstance(press, Press):
            press.print(body)
        else:
            assert httpx.post(f"{press.url}/press", json=body, verify=False).status_code == 200


def port_of(process: Process) -> int:
    return int(process.url.rpartition(":")[2])


def ids(delivery: dict[str, object]) -> list[object]:
    return [one["payload"]["id"] for one in delivery["results"]]  # type: ignore[attr-defined]


def read_patiently(client: httpx.Client, subscription: dict[str, object], **query: object) -> dict[str, object]:
    path = f"/subscriptions/{subscription['id']}/results"
    for _ in range(200):
        answer = client.get(path, params=query)
        if answer.status_code == 200:
            return dict(answer.json())
        assert answer.status_code == 503, answer.text
        assert answer.headers["Retry-After"] == "1"
        time.sleep(0.05)
    raise AssertionError("it does not resume")


def test_killed_broker_loses_no_answered_change(press: Press, tmp_path: Path) -> None:
    broker = start_broker(tmp_path / "broker", press.url, "killed")
    try:
        wait_ready(broker.url)
        with closing(login(broker.url, "ann")) as ann, closing(login(broker.url, "bob")) as bob:
            subscription = subscribe(ann, kind="fire")
            dropped = subscribe(bob, kind="fire")
            printed(press, *"abcd")
            until_head(ann, subscription, 4)
            assert ids(read(ann, subscription, limit=2)) == ["a", "b"]
            assert ann.post(f"/subscriptions/{subscription['id']}/ack", json={"position": 2}).status_code == 200
            assert bob.delete(f"/subscriptions/{dropped['id']}").status_code == 204
            port = port_of(broker)
            broker.kill()
            printed(press, "e")
            broker = start_broker(tmp_path / "broker", press.url, "killed", port)
            wait_ready(broker.url)
            # The same tokens, the same position, and what was printed meanwhile.
            until_head(ann, subscription, 5)
            (again,) = ann.get("/subscriptions").json()["subscriptions"]
            assert again == {**subscription, "position": 2, "head": 5}
            with sockets(ann) as received:
                assert json.loads(received.recv(5)) == {"stream": subscription["stream"], "position": 5}
                assert json.loads(received.recv(5)) == {"ready": True}
                assert ids(read_patiently(ann, subscription)) == ["c", "d", "e"]
                printed(press, "f")
                while (reported_of := json.loads(received.recv(10))["position"]) != 6:
                    assert reported_of == 5  # what the cluster repeats is notified again
            assert bob.get("/subscriptions").json() == {"subscriptions": [], "next": None}
    finally:
        broker.stop()


def test_broker_serves_while_the_cluster_is_unavailable(tmp_path: Path) -> None:
    press = start_press(tmp_path / "press")
    broker = start_broker(tmp_path / "broker", press.url)
    try:
        wait_ready(broker.url)
        with closing(login(broker.url, "ann")) as ann, closing(login(broker.url, "bob")) as bob:
            early = subscribe(ann, kind="fire")
            printed(press, *"abc")
            until_head(ann, early, 3)
            ann.post(f"/subscriptions/{early['id']}/ack", json={"position": 2})
            body = {"channel": "of_kind", "values": ["fire"], "since": "earliest"}
            late = bob.post("/subscriptions", json=body).json()
            port = port_of(press)
            press.kill()
            # What is cached is served; what is not has to wait.
            delivery = read(ann, early)
            assert (ids(delivery), delivery["results"][0]["origin"]) == (["c"], "cache")  # type: ignore[index]
            answer = bob.get(f"/subscriptions/{late['id']}/results")
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert ann.post(f"/subscriptions/{early['id']}/ack", json={"position": 3}).json() == {"position": 3}
            other = {"channel": "of_kind", "values": ["flood"]}
            assert bob.post("/subscriptions", json=other).status_code == 503
            assert bob.get("/channels").status_code == 200, "an old list is better than none"
            press = start_press(tmp_path / "press", port)
            assert ids(read_patiently(bob, late)) == ["a", "b", "c"]
            printed(press, "d")
            until_head(ann, early, 4)
            assert ids(read_patiently(ann, early)) == ["d"]
            assert bob.post("/subscriptions", json=other).status_code == 201
    finally:
        broker.stop()
        press.kill()


def test_stopping_broker_moves_its_subscribers(press: Press, tmp_path: Path) -> None:
    broker = start_broker(tmp_path / "broker", press.url, "asked")
    try:
        wait_ready(broker.url)
        with ExitStack() as stack:
            ann = stack.enter_context(closing(login(broker.url, "ann")))
            received = [stack.enter_context(sockets(ann)) for _ in range(5)]
            for each in received:
                assert json.loads(each.recv(5)) == {"ready": True}
            begun = time.monotonic()
            assert broker.stop() == 0
            assert time.monotonic() - begun < 15
            for each in received:
                with pytest.raises(ConnectionClosed) as closed:
                    each.recv(5)
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1012
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{broker.url}/healthz", verify=False)
        assert not any("Traceback" in line for line in broker.said), broker.said
        left = {one.name for one in (tmp_path / "broker").iterdir()}
        assert left == {"access", "broker.sqlite", "topics.sqlite"}, "and nothing of SQLite's beside it"
    finally:
        broker.kill()
