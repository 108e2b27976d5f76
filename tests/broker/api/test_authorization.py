"""The operator's rules at a broker: bound values, and permissions for topics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from support.broker.calls import PASSWORD, login
from support.broker.press import APP, Press
from support.broker.process import running_broker
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
    with Press(folder).serving() as press_url, running_broker(folder / "edge", press_url, RULES) as url:
        yield url


def subscribed(client: httpx.Client, values: object, **more: object) -> httpx.Response:
    return client.post("/subscriptions", json={"channel": "near_user", "values": values, **more})


def test_subscribe_rejects_the_values_of_another_user(ann: httpx.Client) -> None:
    for values in ({"kind": "fire", "user": "bob"}, ["fire", "bob"]):
        answer = subscribed(ann, values)
        assert answer.status_code == 403
        assert "parameter 'user' is bound to the subscriber's name" in answer.json()["error"]


def test_bound_value_filled_in(ann: httpx.Client) -> None:
    answer = subscribed(ann, {"kind": "flood"})
    assert (answer.status_code, answer.json()["values"]) == (201, {"kind": "flood", "user": "ann"})
    for values in ({"kind": "flood", "user": "ann"}, ["flood", "ann"]):
        assert subscribed(ann, values).json()["id"] == answer.json()["id"]
    channels = {one["name"]: one["bind"] for one in ann.get("/channels").json()["channels"]}
    assert channels["near_user"] == {"user": "subscriber"}
    assert channels["of_kind"] == {}


def test_rules_of_the_operator_hold_for_unlimited_tokens(url: str) -> None:
    only_fires = [{"channel": "near_user", "values": {"kind": "fire", "user": "*"}}]
    floods, of_bob = {"kind": "flood"}, {"kind": "fire", "user": "bob"}
    with closing(login(url, "cat", only_fires)) as limited, closing(login(url, "cat")) as free:
        assert subscribed(limited, {"kind": "fire"}).status_code == 201
        assert subscribed(limited, floods).status_code == 404
        assert subscribed(free, floods).status_code == 201, "nobody asks the token that was limited"
        for one in (limited, free):
            assert "is bound to the subscriber's name" in subscribed(one, of_bob).json()["error"]


def test_operator_subscribes_for_any_subscriber(ann: httpx.Client, operator: httpx.Client) -> None:
    made = subscribed(operator, {"kind": "quake"}, subscriber="ann")
    assert (made.status_code, made.json()["values"]["user"]) == (201, "ann")
    assert made.json()["id"] in [one["id"] for one in ann.get("/subscriptions").json()["subscriptions"]]
    assert subscribed(operator, {"kind": "quake"}).status_code == 422
    assert subscribed(operator, {"kind": "quake"}, subscriber="nobody").status_code == 404
    assert subscribed(operator, {"kind": "quake", "user": "bob"}, subscriber="ann").status_code == 403
    assert subscribed(ann, {"kind": "quake"}, subscriber="bob").status_code == 403


def published(client: httpx.Client, topic: str) -> int:
    return client.post(f"/topics/{topic}/messages", json={"body": topic}).status_code


def test_topics_limited_to_subscribers_of_a_rule(ann: httpx.Client, bob: httpx.Client) -> None:
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
    received: dict[str, object] = json.loads(socket.recv(timeout=20))
    return received


def test_topic_rules_hold_over_the_websocket(url: str, ann: httpx.Client, bob: httpx.Client) -> None:
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


def test_topic_history_and_name_visible_only_to_readers(url: str, ann: httpx.Client, bob: httpx.Client) -> None:
    address = f"ws{url.removeprefix('http')}/topics"

    def opened(client: httpx.Client) -> ClientConnection:
        return connect(address, additional_headers={"Authorization": client.headers["Authorization"]})

    def received(client: httpx.Client) -> dict[str, bool]:
        """Whether the past has a message of the topic, and lists its name: over HTTP and over the WebSocket."""
        page = client.get("/topics").raise_for_status().json()
        topics = [one["topic"] for one in page["messages"]]
        heard_of = []
        with opened(client) as socket:
            assert heard(socket) == {"ready": True}
            answer: dict[str, Any] = said(socket, request="true", id=1)
            while "end" not in answer:
                heard_of.append(answer["message"]["topic"])
                answer = heard(socket)
        lists = {
            "messages": topics,
            "names": page["from_cache"] + page["unavailable"],
            "messages of the socket": heard_of,
            "names of the socket": answer["from_cache"] + answer["unavailable"],
        }
        return {name: "news.staff" in found for name, found in lists.items()}

    with opened(ann) as socket:
        assert heard(socket) == {"ready": True}
        assert said(socket, subscribe="topic = 'news.staff'", id=1) == {"done": 1}
        assert published(ann, "news.staff") == 201  # it is cached, as a subscriber follows it
    assert set(received(ann).values()) == {True}
    assert received(bob) == dict.fromkeys(received(ann), False)


OTHER = "quite another password"


def status(url: str, name: str, password: str) -> int:
    return httpx.post(
        f"{url}/login", json={"name": name, "password": password}, timeout=20, verify=False
    ).status_code


def test_subscriber_changes_its_password_and_deletes_its_account(url: str, ann: httpx.Client) -> None:
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


def test_operator_resets_passwords_and_deletes_accounts(url: str, operator: httpx.Client) -> None:
    with closing(login(url, "dan")) as dan:
        assert operator.put("/subscribers/dan/password", json={"password": OTHER}).status_code == 204
        assert dan.get("/channels").status_code == 401
        assert status(url, "dan", OTHER) == 200
        assert operator.delete("/subscribers/dan").status_code == 204
        assert operator.delete("/subscribers/dan").status_code == 404
        assert operator.put("/subscribers/dan/password", json={"password": OTHER}).status_code == 404
