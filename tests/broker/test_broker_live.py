"""A real broker process between a cluster and subscribers, over real sockets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import httpx
import pytest
from press import Press
from websockets.sync.client import connect

PASSWORD = "correct horse battery"


@pytest.fixture
def ann(broker_url: str, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    client = login(broker_url, f"ann-{abs(hash(request.node.name))}")
    yield client
    client.close()


def login(url: str, name: str, allow: object = None) -> httpx.Client:
    client = httpx.Client(base_url=url, timeout=20, verify=False)  # no TLS here
    assert client.post("/subscribers", json={"name": name, "password": PASSWORD}).status_code in (201, 409)
    body = {"name": name, "password": PASSWORD} | ({} if allow is None else {"allow": allow})
    answer = client.post("/login", json=body)
    assert answer.status_code == 200, answer.text
    client.headers["Authorization"] = f"Bearer {answer.json()['access']}"
    return client


def subscribe(client: httpx.Client, channel: str = "of_kind", **values: object) -> dict[str, object]:
    answer = client.post("/subscriptions", json={"channel": channel, "values": values})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def sockets(client: httpx.Client):  # type: ignore[no-untyped-def]
    url = str(client.base_url).replace("http", "ws", 1) + "/notifications"
    return connect(url, additional_headers={"Authorization": client.headers["Authorization"]})


def read(client: httpx.Client, subscription: dict[str, object], **query: object) -> dict[str, object]:
    answer = client.get(f"/subscriptions/{subscription['id']}/results", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def until_head(client: httpx.Client, subscription: dict[str, object], head: int) -> None:
    for _ in range(200):
        if client.get(f"/subscriptions/{subscription['id']}").json()["head"] >= head:
            return
        time.sleep(0.05)
    raise AssertionError(f"the stream has not come to {head}")


def test_a_result_is_signalled_read_from_the_cache_and_acknowledged(press: Press, ann: httpx.Client) -> None:
    subscription = subscribe(ann, kind="fire-1")
    with sockets(ann) as socket:
        assert json.loads(socket.recv(5)) == {"ready": True}
        assert press.print([{"channel": "of_kind", "values": ["fire-1"], "payload": {"id": "r1"}}]) == 1
        assert json.loads(socket.recv(10)) == {"stream": subscription["stream"], "position": 1}
        delivery = read(ann, subscription)
        assert [one["payload"] for one in delivery["results"]] == [{"id": "r1"}]
        assert delivery["results"][0]["origin"] == "cache"
        assert delivery["next"] is None
        socket.send(json.dumps({"ack": {subscription["id"]: 1}}))
        assert json.loads(socket.recv(5)) == {"acked": {subscription["id"]: 1}}
    assert read(ann, subscription)["results"] == []
    again = read(ann, subscription, after=0)["results"]
    assert [one["origin"] for one in again] == ["cluster"]


@pytest.mark.parametrize("channel", ["of_kind", "pushed"])
def test_pending_results_wait_for_who_is_offline(press: Press, ann: httpx.Client, channel: str) -> None:
    subscription = subscribe(ann, channel, kind="fire-2")
    for number in range(5):
        press.print([{"channel": channel, "values": ["fire-2"], "payload": {"id": f"r{number}"}}])
    until_head(ann, subscription, 5)
    with sockets(ann) as socket:
        assert json.loads(socket.recv(5)) == {"stream": subscription["stream"], "position": 5}
        assert json.loads(socket.recv(5)) == {"ready": True}
    first = read(ann, subscription, limit=2)
    assert [one["position"] for one in first["results"]] == [1, 2]
    assert first["next"] == 2
    rest = read(ann, subscription, after=2)
    assert [one["payload"]["id"] for one in rest["results"]] == ["r2", "r3", "r4"]
