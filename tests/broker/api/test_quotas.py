"""Limits of subscribers at a broker, and delays after wrong passwords."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest
from support.broker.calls import PASSWORD, login, sockets
from support.broker.press import Press
from support.broker.process import Process, as_operator, start_broker, start_coordinator, wait_ready
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

LIMITS = """
[broker.limits]
subscriptions = 3
sessions = 2
sockets = 2
filters = 2
value_bytes = 40
values_bytes = 60
"""


def started(folder: Path, press: Press, name: str, settings: str, *more: object) -> Process:
    config = folder / "broker.toml"
    config.write_text(f"[broker]\n{settings}")
    broker = start_broker(folder / name, press.url, name, 0, "--config", config, *more)
    wait_ready(broker.url)
    return broker


@pytest.fixture(scope="module")
def broker(press: Press, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    made = started(tmp_path_factory.mktemp("limits"), press, "limited", LIMITS)
    try:
        yield made
    finally:
        assert made.stop() == 0


@pytest.fixture
def ann(broker: Process, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    with closing(login(broker.url, f"ann-{abs(hash(request.node.name))}")) as client:
        yield client


def refused(answer: httpx.Response, status: int, *words: str) -> None:
    assert answer.status_code == status, answer.text
    assert all(word in answer.json()["error"] for word in words), answer.text


def test_concurrent_subscriptions_are_limited(ann: httpx.Client) -> None:
    def subscribe(kind: str) -> httpx.Response:
        return ann.post("/subscriptions", json={"channel": "of_kind", "values": {"kind": kind}})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(subscribe, (f"kind {number}" for number in range(8))))
    made = [one for one in answers if one.status_code == 201]
    assert len(made) == 3
    for one in answers:
        if one not in made:
            refused(one, 409, "limits.subscriptions", "3")
    values = made[0].json()["values"]
    again = ann.post("/subscriptions", json={"channel": "of_kind", "values": values})
    assert again.status_code == 200, "one that is there needs no room"
    assert ann.delete(f"/subscriptions/{made[0].json()['id']}").status_code == 204
    assert subscribe("another").status_code == 201


def test_values_are_limited_in_bytes(ann: httpx.Client) -> None:
    def subscribe(kind: str) -> httpx.Response:
        return ann.post("/subscriptions", json={"channel": "of_kind", "values": {"kind": kind}})

    assert subscribe("x" * 38).status_code == 201
    refused(subscribe("x" * 39), 422, "limits.value_bytes")
    refused(subscribe("\u00e9" * 30), 422, "limits.value_bytes")


def test_websockets_of_a_subscriber_are_limited_over_its_sessions(broker: Process, ann: httpx.Client) -> None:
    topics = f"ws{broker.url.removeprefix('http')}/topics"
    headers = {"Authorization": ann.headers["Authorization"]}
    with sockets(ann) as first:
        assert json.loads(first.recv(timeout=20)) == {"ready": True}
        with connect(topics, additional_headers=headers) as second:
            assert json.loads(second.recv(timeout=20)) == {"ready": True}
            for opened in (lambda: sockets(ann), lambda: connect(topics, additional_headers=headers)):
                assert closed_with(opened) == (4005, True)
        wait_for(lambda: _is_let_in(ann))


def _is_let_in(ann: httpx.Client) -> bool:
    with sockets(ann) as socket:
        try:
            return bool(json.loads(socket.recv(timeout=20)) == {"ready": True})
        except ConnectionClosed:
            return False


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(400):
        if condition():
            return
    raise AssertionError("it does not come to be")


def closed_with(opened: Callable[[], ClientConnection]) -> tuple[int, bool]:
    """The code with which a connection is closed, and whether the reason names the limit."""
    with opened() as socket, pytest.raises(ConnectionClosed) as end:
        socket.recv(timeout=20)
    assert end.value.rcvd is not None
    return end.value.rcvd.code, "limits.sockets" in end.value.rcvd.reason


def test_interests_in_topics_are_limited_over_all_connections(broker: Process, ann: httpx.Client) -> None:
    topics = f"ws{broker.url.removeprefix('http')}/topics"
    headers = {"Authorization": ann.headers["Authorization"]}

    def said(socket: ClientConnection, **message: object) -> dict[str, object]:
        socket.send(json.dumps(message))
        received: dict[str, object] = json.loads(socket.recv(timeout=20))
        return received

    with connect(topics, additional_headers=headers) as one, connect(topics, additional_headers=headers) as two:
        for socket in (one, two):
            assert json.loads(socket.recv(timeout=20)) == {"ready": True}
        assert said(one, subscribe="topic = 'a'", id=1) == {"done": 1}
        assert said(two, subscribe="topic = 'b'", id=1) == {"done": 1}
        for socket in (one, two):
            received = said(socket, subscribe="topic = 'c'", id=2)
            assert received["error"] == 2
            assert "limits.filters" in str(received["message"])
        assert said(one, subscribe="topic = 'd'", id=1) == {"done": 1}, "in the place of the one with that number"
        assert said(two, unsubscribe=1) == {"done": 1}
        assert said(one, subscribe="topic = 'c'", id=2) == {"done": 2}


def test_new_session_over_the_limit_ends_the_oldest(broker: Process) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(login(broker.url, "sam"))) for _ in range(3)]
        assert [one.get("/subscriptions").status_code for one in clients] == [401, 200, 200]


RATED = """
[broker.limits]
accounts = 5
registrations_per_hour = 4
"""


def register(url: str, name: str, address: str = "127.0.0.1", **headers: str) -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(local_address=address, verify=False), timeout=20) as client:
        body = {"name": name, "password": PASSWORD}
        return client.post(f"{url}/subscribers", json=body, headers=headers)


@pytest.mark.parametrize("with_coordinator", [False, True])
def test_accounts_and_registrations_are_limited(press: Press, tmp_path: Path, with_coordinator: bool) -> None:
    coordinator = None
    more: tuple[object, ...] = ()
    settings = RATED
    if with_coordinator:
        config = tmp_path / "coordinator.toml"
        config.write_text(RATED.replace("broker", "coordinator"))
        coordinator = start_coordinator(tmp_path / "coordinator", 0, "--config", config)
        more = ("--coordinator", coordinator.url)
        settings = ""  # the coordinator alone limits them: at every broker
    name = f"counted{int(with_coordinator)}"
    operator = {"Authorization": f"Bearer {as_operator(name)}"}
    broker = started(tmp_path, press, name, settings, *more)
    try:
        for number in range(4):
            # Nobody has called this proxy a trusted one.
            forwarded = {"X-Forwarded-For": f"192.0.2.{number}"}
            assert register(broker.url, f"ann-{number}", **forwarded).status_code == 201
        over = register(broker.url, "ann-4")
        refused(over, 429, "registrations from this address")
        assert int(over.headers["Retry-After"]) > 600
        assert register(broker.url, "ann-4", **operator).status_code == 201
        for answer in (register(broker.url, "ann-5", "127.0.0.2"), register(broker.url, "ann-5", **operator)):
            refused(answer, 409, "limits.accounts", "5")
        refused(register(broker.url, "ann-3", **operator), 409, "taken")
        assert (
            httpx.delete(f"{broker.url}/subscribers/ann-0", headers=operator, timeout=20, verify=False).status_code
            == 204
        )
        assert register(broker.url, "ann-5", **operator).status_code == 201
    finally:
        assert broker.stop() == 0
        if coordinator is not None:
            coordinator.stop()


def attempt(url: str, name: str, password: str, address: str = "127.0.0.1", **headers: str) -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(local_address=address, verify=False), timeout=20) as client:
        return client.post(f"{url}/login", json={"name": name, "password": password}, headers=headers)


def test_wrong_passwords_delay_their_address(broker: Process) -> None:
    with closing(login(broker.url, "eve")) as eve:
        pair = attempt(broker.url, "eve", PASSWORD, "127.0.0.3").json()
        for number in range(5):
            forwarded = {"X-Forwarded-For": f"192.0.2.{number}"}
            guess = f"wrong password {number}"
            assert attempt(broker.url, "eve", guess, "127.0.0.4", **forwarded).status_code == 401
        for password in ("wrong password 5", PASSWORD):
            late = attempt(broker.url, "eve", password, "127.0.0.4")
            refused(late, 429, "too many logins have failed")
            assert int(late.headers["Retry-After"]) >= 1
        for number in range(5):
            assert attempt(broker.url, "nobody-here", f"wrong password {number}", "127.0.0.5").status_code == 401
        refused(attempt(broker.url, "nobody-here", PASSWORD, "127.0.0.5"), 429)
        assert attempt(broker.url, "eve", PASSWORD, "127.0.0.3").status_code == 200
        refresh = httpx.post(f"{broker.url}/refresh", json={"refresh": pair["refresh"]}, timeout=20, verify=False)
        assert refresh.status_code in (200, 401)  # 401: the third session has ended the first
        assert eve.get("/healthz").status_code == 200
    lines = [json.loads(line) for line in broker.said if line.startswith("{")]
    failed = [one for one in lines if one["message"] == "login failed" and one["account"] == "eve"]
    assert len(failed) == 7
    assert {(one["level"], one["client"], one["account"]) for one in failed} == {("warning", "127.0.0.4", "eve")}
    requests = [one for one in lines if one["message"] == "request" and one["client"] == "127.0.0.4"]
    assert {(one["token"], one["status"]) for one in requests} == {("eve", 401), ("eve", 429)}
    said = "\n".join(broker.said)
    for secret in (PASSWORD, "wrong password", pair["access"], pair["refresh"]):
        assert secret not in said


def test_guesses_of_the_current_password_are_limited(broker: Process) -> None:
    with closing(login(broker.url, "dot")) as dot:
        for status in [401] * 5 + [429]:
            body = {"current": "wrong password", "password": "quite another password"}
            assert dot.put("/subscribers/dot/password", json=body).status_code == status
