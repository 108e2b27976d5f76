"""Rules of the operator at a broker: what is bound to the subscriber, and who may do what with which topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest
from broker_process import as_operator, start_broker, wait_ready
from press import APP, Press
from test_broker_live import PASSWORD, login
from websockets.sync.client import ClientConnection, connect

BOUND = """
[channels.near_user]
query = "SELECT r.id FROM reports r WHERE r.kind = :kind AND r.id = :user"
parameters = {kind = "string", user = "string"}
bind = {user = "subscriber"}
"""

RULES = """
[broker]
storages = ["news.town"]

[broker.topics."news.*"]
publish = ["ann"]
subscribe = ["*"]

[broker.topics."news.staff"]
publish = ["ann"]
subscribe = ["ann"]
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("rules")
    (folder / "newsstand.toml").write_text(APP + BOUND)
    with Press(folder).serving() as press_url:
        config = folder / "broker.toml"
        config.write_text(RULES)
        broker = start_broker(folder / "edge", press_url, "edge", 0, "--config", config)
        try:
            wait_ready(broker.url)
            yield broker.url
        finally:
            assert broker.stop() == 0


@pytest.fixture(scope="module")
def ann(url: str) -> Iterator[httpx.Client]:
    with closing(login(url, "ann")) as client:
        yield client


@pytest.fixture(scope="module")
def bob(url: str) -> Iterator[httpx.Client]:
    with closing(login(url, "bob")) as client:
        yield client


@pytest.fixture(scope="module")
def operator(url: str) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {as_operator()}"}
    with httpx.Client(base_url=url, headers=headers, timeout=20) as client:
        yield client


def subscribed(client: httpx.Client, values: object, **more: object) -> httpx.Response:
    return client.post("/subscriptions", json={"channel": "near_user", "values": values, **more})


def test_nobody_follows_another_user(ann: httpx.Client) -> None:
    for values in ({"kind": "fire", "user": "bob"}, ["fire", "bob"]):
        answer = subscribed(ann, values)
        assert answer.status_code == 403
        assert "parameter 'user' is bound to the subscriber's name" in answer.json()["error"]


def test_a_bound_value_is_filled_in(ann: httpx.Client) -> None:
    answer = subscribed(ann, {"kind": "flood"})
    assert (answer.status_code, answer.json()["values"]) == (201, {"kind": "flood", "user": "ann"})
    for values in ({"kind": "flood", "user": "ann"}, ["flood", "ann"]):
        assert subscribed(ann, values).json()["id"] == answer.json()["id"]
    channels = {one["name"]: one["bind"] for one in ann.get("/channels").json()["channels"]}
    assert channels["near_user"] == {"user": "subscriber"}
    assert channels["of_kind"] == {}


def test_an_operator_subscribes_for_anybody(ann: httpx.Client, operator: httpx.Client) -> None:
    made = subscribed(operator, {"kind": "quake"}, subscriber="ann")
    assert (made.status_code, made.json()["values"]["user"]) == (201, "ann")
    assert made.json()["id"] in [one["id"] for one in ann.get("/subscriptions").json()["subscriptions"]]
    assert subscribed(operator, {"kind": "quake"}).status_code == 422
    assert subscribed(operator, {"kind": "quake"}, subscriber="nobody").status_code == 404
    assert subscribed(operator, {"kind": "quake", "user": "bob"}, subscriber="ann").status_code == 403
    assert subscribed(ann, {"kind": "quake"}, subscriber="bob").status_code == 403


def published(client: httpx.Client, topic: str) -> int:
    return client.post(f"/topics/{topic}/messages", json={"body": topic}).status_code


def test_topics_are_for_those_whom_a_rule_names(ann: httpx.Client, bob: httpx.Client) -> None:
    assert published(ann, "news.town") == 201
    assert published(bob, "news.town") == 403
    assert published(ann, "gossip") == published(bob, "gossip") == 403
    assert published(ann, "news.staff") == 201
    assert bob.get("/topics", params={"filter": "topic = 'news.staff'"}).status_code == 403
    page = bob.get("/topics").json()
    assert {(one["topic"], one["author"]) for one in page["messages"]} == {("news.town", "ann")}
    assert {one["topic"] for one in ann.get("/topics").json()["messages"]} >= {"news.town"}


def said(socket: ClientConnection, **message: object) -> dict[str, object]:
    socket.send(json.dumps(message))
    return heard(socket)


def heard(socket: ClientConnection) -> dict[str, object]:
    told: dict[str, object] = json.loads(socket.recv(timeout=20))
    return told


def test_rules_hold_over_the_websocket(url: str, ann: httpx.Client, bob: httpx.Client) -> None:
    address = f"ws{url.removeprefix('http')}/topics"
    with connect(address, additional_headers={"Authorization": bob.headers["Authorization"]}) as socket:
        assert heard(socket) == {"ready": True}
        assert "do not let 'bob' publish" in str(said(socket, publish={"topic": "news.town"}, id=1)["message"])
        refused = said(socket, subscribe="topic = 'news.staff'", id=2)
        assert refused["error"] == 2
        assert "do not let 'bob' subscribe" in str(refused["message"])
        assert said(socket, subscribe="true", id=3) == {"done": 3}
        assert published(ann, "news.staff") == published(ann, "news.town") == 201
        message = heard(socket)["message"]
        assert isinstance(message, dict)
        assert (message["topic"], message["author"]) == ("news.town", "ann")
        assert "do not let 'bob' subscribe" in str(said(socket, request="topic = 'news.staff'", id=4)["message"])


OTHER = "quite another password"


def status(url: str, name: str, password: str) -> int:
    return httpx.post(f"{url}/login", json={"name": name, "password": password}, timeout=20).status_code


def test_a_subscriber_changes_its_password_and_deletes_its_account(url: str, ann: httpx.Client) -> None:
    with closing(login(url, "cat")) as cat, closing(login(url, "cat")) as elsewhere:
        path = "/subscribers/cat/password"
        assert cat.put(path, json={"password": OTHER}).status_code == 422
        assert cat.put(path, json={"password": OTHER, "current": "wrong wrong"}).status_code == 401
        assert cat.put(path, json={"password": "short", "current": PASSWORD}).status_code == 422
        assert ann.put(path, json={"password": OTHER, "current": PASSWORD}).status_code == 403
        assert cat.put(path, json={"password": OTHER, "current": PASSWORD}).status_code == 204
        assert (status(url, "cat", PASSWORD), status(url, "cat", OTHER)) == (401, 200)
        assert (cat.get("/channels").status_code, elsewhere.get("/channels").status_code) == (200, 401)
        assert ann.delete("/subscribers/cat").status_code == 403
        assert cat.delete("/subscribers/cat").status_code == 204
        assert (cat.get("/channels").status_code, status(url, "cat", OTHER)) == (401, 401)


def test_an_operator_resets_passwords_and_deletes_accounts(url: str, operator: httpx.Client) -> None:
    with closing(login(url, "dan")) as dan:
        assert operator.put("/subscribers/dan/password", json={"password": OTHER}).status_code == 204
        assert dan.get("/channels").status_code == 401
        assert status(url, "dan", OTHER) == 200
        assert operator.delete("/subscribers/dan").status_code == 204
        assert operator.delete("/subscribers/dan").status_code == 404
        assert operator.put("/subscribers/dan/password", json={"password": OTHER}).status_code == 404
