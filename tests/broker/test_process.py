"""A broker process between a cluster and subscribers, over sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from support.broker.calls import login, read, sockets, subscribe, until_head
from support.broker.press import Press
from support.broker.process import running_broker


@pytest.fixture(scope="module")
def broker_url(press: Press, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("broker"), press.url, as_typed=True) as url:
        yield url


@pytest.fixture
def ann(broker_url: str, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    client = login(broker_url, f"ann-{abs(hash(request.node.name))}")
    yield client
    client.close()


def test_result_notified_cached_and_acknowledged(press: Press, ann: httpx.Client) -> None:
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
def test_pending_results_wait_for_offline_subscribers(press: Press, ann: httpx.Client, channel: str) -> None:
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
