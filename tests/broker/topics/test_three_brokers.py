"""Three real brokers in a line: delivery, history, and rejected links."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import httpx
import msgspec
import pytest
from support.broker.process import SECRET
from support.broker.topic_world import World, until, world
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from newsstand.auth.signing import key

WEST, MIDDLE, EAST = "b1", "b2", "b3"


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("overlay"), (WEST, MIDDLE, EAST)) as made:
        assert made.overlay()["links"] == [[WEST, MIDDLE], [MIDDLE, EAST]]
        yield made


def test_live_publication_reaches_subscribers_once(line: World) -> None:
    with line.client(WEST) as ann, line.client(MIDDLE) as bob, line.client(EAST) as eve:
        severe = bob.subscribe("topic = 'storms' and severity >= 3")
        every = bob.subscribe("topic = 'storms'")
        eve.subscribe("topic = 'storms' and severity < 3")
        ann.until_heard(eve, "storms", severity=0)
        replies = [ann.publish("storms", number, severity=number) for number in range(6)]
        assert {one["stored"] for one in replies} == {False}
        assert len({tuple(one["publication"]) for one in replies}) == 6
        until(lambda: 5 in bob.bodies("storms") and 2 in eve.bodies("storms"), "all are delivered")
        assert [body for body in bob.bodies("storms") if isinstance(body, int)] == [0, 1, 2, 3, 4, 5]
        assert [body for body in eve.bodies("storms") if isinstance(body, int)] == [0, 1, 2]
        assert ann.messages == []
        fitting = {one["message"]["attributes"]["severity"]: one["for"] for one in bob.messages}
        assert fitting == {n: [severe, every] if n >= 3 else [every] for n in range(6)}
        bob.say(unsubscribe=every)
        until(lambda: bob.answers[every] == [{"done": every}] * 2, "it is unsubscribed")
        ann.publish("storms", 6, severity=1)
        ann.publish("storms", 7, severity=7)
        until(lambda: 7 in bob.bodies("storms"), "what it still wants is delivered")
        assert 6 not in bob.bodies("storms")


def test_late_client_reads_history_from_a_storage(line: World) -> None:
    line.placed(fires=[EAST])
    with line.client(WEST) as ann:
        until(lambda: ann.publish("fires", "first", acres=0)["stored"], "the storage is known")
        replies = [ann.publish("fires", {"number": number}, acres=number % 10) for number in range(300)]
        assert all(one["stored"] for one in replies)
        until(lambda: line.metric(WEST, "topic_outbox") == 0, "the storage has everything")
    with line.client(MIDDLE) as late:
        wide = late.past("topic = 'fires' and acres >= 8")
        assert wide == [{"number": number} for number in range(300) if number % 10 >= 8]
        pages: list[object] = []
        query = {"filter": "acres = 3 and topic in ('fires')", "limit": 7}
        while True:
            page = late.http.get("/topics", params=query).raise_for_status().json()
            pages += [one["body"]["number"] for one in page["messages"]]
            if page["next"] is None:
                break
            query["after"] = page["next"]
        assert pages == list(range(3, 300, 10))
        nobody = late.http.get("/topics", params={"filter": "topic = 'nothing'"}).json()
        assert nobody == {
            "messages": [],
            "next": None,
            "unavailable": [],
            "from_cache": ["nothing"],
            "complete": True,
        }
    log = line.folder / MIDDLE / "access" / "topics.csv"
    until(lambda: log.exists() and log.read_text().count(",fires,1\n") >= 2, "requests are in the access log")


def test_http_publication_equals_websocket_publication(line: World) -> None:
    line.placed(fires=[EAST], floods=[MIDDLE])
    with line.client(MIDDLE) as bob:
        until(lambda: bob.publish("floods")["stored"], "the storage is known")
        answer = bob.http.post("/topics/floods/messages", json={"attributes": {"metres": 2.5}, "body": [1, None]})
        assert (answer.status_code, answer.json()["stored"]) == (201, True)
        assert bob.past("topic = 'floods' and metres > 2") == [[1, None]]
        deep = b'{"body": %b1%b}' % (b"[" * 950, b"]" * 950)
        for body in (b'{"body": "\xff"}', b'{"body": 1e999}', b"{", b'{"bodies": 1}', deep):
            assert bob.http.post("/topics/floods/messages", content=body).status_code in (400, 422)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"subscribe": "severity >="}, "filter, column 12: expected a value"),
        ({"request": "severity ! 3"}, "filter, column 10"),
        ({"publish": {"topic": "", "attributes": {}}}, "'' is not a valid topic"),
        ({"publish": {"topic": "a", "attributes": {"topic": 1}}}, "'topic' cannot be the name of an attribute"),
        ({"publish": {"topic": "a", "attributes": {"n": 2**63}}}, "attribute n"),
    ],
)
def test_socket_reports_mistakes_and_stays_open(line: World, said: dict[str, object], why: str) -> None:
    with line.client(WEST) as ann:
        number = ann.say(**said)
        reply = ann.last(number)
        assert reply["error"] == number
        assert why in reply["message"]
        assert ann.publish("a")["done"]


@pytest.mark.parametrize(
    ("text", "code"),
    [("[]", 4000), ('{"id": 1}', 4000), ('{"subscribe": "true", "ping": 1}', 4000), ("x" * 70_000, 1009)],
)
def test_socket_closed_by_malformed_message(line: World, text: str, code: int) -> None:
    with line.client(WEST) as ann:
        ann.socket.send(text)
        until(lambda: ann.closed is not None, "it is closed")
        assert ann.closed is not None
        assert ann.closed[0] == code


def test_socket_requires_unrestricted_token(line: World) -> None:
    http = line.login(WEST, "limited")
    who = {"name": "limited", "password": "correct horse battery", "allow": [{"channel": "of_kind"}]}
    token = {"Authorization": f"Bearer {http.post('/login', json=who).json()['access']}"}
    assert (
        httpx.get(f"{line.url(WEST)}/topics", params={"filter": "true"}, headers=token, verify=False).status_code
        == 403
    )
    assert httpx.get(f"{line.url(WEST)}/topics", params={"filter": "true"}, verify=False).status_code == 401
    with connect(line.url(WEST).replace("http", "ws") + "/topics", additional_headers=token) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4001


def greeted(
    line: World, name: str, secret: str = SECRET, more: bytes | bytearray | str | None = None
) -> tuple[int, str]:
    """Return how a broker closes a link that begins with these messages; a bytearray is sent as raw bytes."""
    headers = {"Authorization": f"Bearer {key(secret, 'overlay')}"}
    with connect(line.url(EAST).replace("http", "ws") + "/overlay", additional_headers=headers) as socket:
        with suppress(ConnectionClosed):
            socket.send(json.dumps({"hello": {"name": name, "version": 1}}))
            if more is not None:
                socket.recv(10)
                socket.socket.sendall(more) if isinstance(more, bytearray) else socket.send(more)
            while True:
                socket.recv(10)
        assert socket.close_code is not None
        return socket.close_code, socket.close_reason or ""


def test_link_rejected_for_an_unknown_broker(line: World) -> None:
    assert greeted(line, MIDDLE, "another secret, which is long enough") == (
        4001,
        "not the overlay key of this platform",
    )
    assert greeted(line, WEST) == (4004, "b1 is not a neighbour that dials this broker")
    assert greeted(line, "nobody")[0] == 4004
    with pytest.raises(InvalidStatus), connect(line.url(EAST).replace("http", "ws") + "/underlay"):
        pass
    line.until_linked()


@pytest.mark.parametrize(
    ("frame", "code", "reason"),
    [
        ("text", 4000, "a batch of messages is one binary frame"),
        (b"\xc1", 4000, "not a message of the overlay"),
        (msgspec.msgpack.encode([["publish", ["b2"]]]), 4000, "not a message of the overlay"),
        (
            msgspec.msgpack.encode([["subscribe", "severity >="]]),
            4000,
            "not a message of the overlay: filter, column 12",
        ),
        (bytearray.fromhex("82ff 0000000001100000 00000000"), 1009, ""),
    ],
    ids=["text", "bytes", "shape", "filter", "large"],
)
def test_link_ended_by_malformed_batch(line: World, frame: bytes | str, code: int, reason: str) -> None:
    """An impostor with the right key and name replaces the neighbour, which then reconnects.

    It may reconnect before the frame arrives; then the impostor's link is the one that ends.
    """
    for _ in range(10):
        found = greeted(line, MIDDLE, more=frame)
        if found != (4004, "replaced by a newer link"):
            break
    assert found[0] == code
    assert found[1].startswith(reason)
    line.until_linked()
