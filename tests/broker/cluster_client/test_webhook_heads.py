"""Signed requests to a broker: an unsigned one uses no memory and delays no other."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
from starlette.requests import Request
from support.broker.press import Press

from newsstand.auth.signing import HEADER, BadSignature, Recipient, sign
from newsstand.broker.cluster_client.webhook import DELIVERIES_BODY, NOTIFICATION_BODY, PUSH_BODY, Webhook
from newsstand.errors import Busy
from newsstand.http.app import SMALL_BODY
from newsstand.http.bodies import Bodies
from newsstand.wire.notifications import DeliveryReport, DeliveryRequest, StreamPosition

BODY = b'{"streams":[]}'
FAR = 10**15
"""Numbers of deliveries that the press does not come to."""


@pytest.fixture
def secret(press: Press, broker_url: str) -> str:
    return next(broker.secret for broker in press.stores.outbox.brokers() if broker.name == "edge")


def send_part(url: str, path: str, header: str, announced: int, sent: int) -> socket.socket:
    """Send a part of a body, then nothing more; the connection stays open."""
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    connection = socket.create_connection((address.hostname, address.port))
    head = f"POST {path} HTTP/1.1\r\nHost: broker\r\nContent-Length: {announced}\r\n{HEADER}: {header}\r\n\r\n"
    connection.sendall(head.encode())
    with suppress(OSError):  # a broker that refuses reads no more
        connection.settimeout(1)
        connection.sendall(b"x" * sent)
    return connection


@pytest.fixture
def silent() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_silent_connections_that_cannot_sign_do_not_block_webhooks(
    broker_url: str, secret: str, silent: ExitStack
) -> None:
    announced = 64 * 1024 * 1024
    forged = sign("a guess", Recipient("edge", "/notifications"), b"x" * announced, int(time.time()), FAR)
    for sent in (*[announced - 1] * 2, *[0] * 50):
        silent.enter_context(send_part(broker_url, "/notifications", forged, announced, sent))
    header = sign(secret, Recipient("edge", "/notifications"), BODY, int(time.time()), FAR)
    answer = httpx.post(
        f"{broker_url}/notifications", content=BODY, headers={HEADER: header}, timeout=30, verify=False
    )
    assert answer.status_code == 204, answer.text


@pytest.mark.parametrize("path", ["/notifications", "/pushes"])
def test_forged_request_rejected_before_its_body(broker_url: str, silent: ExitStack, path: str) -> None:
    forged = sign("a guess", Recipient("edge", path), BODY, int(time.time()), FAR)
    for header in (forged, "", "t=1,id=1,v1=0"):
        connection = silent.enter_context(send_part(broker_url, path, header, len(BODY), 0))
        connection.settimeout(30)
        answer = b""
        while piece := connection.recv(4096):  # until the broker closes the connection
            answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b" 401 " in head
        assert HEADER in json.loads(body)["error"]


@pytest.mark.parametrize(
    ("recipient", "content", "status"),
    [
        (Recipient("edge", "/notifications"), BODY + b" ", 401),
        (Recipient("edge", "/notifications"), b'{"streams":{}}', 401),
        (Recipient("edge", "/pushes"), BODY, 401),
        (Recipient("west", "/notifications"), BODY, 401),
        (Recipient("edge", "/notifications", "PUT"), BODY, 401),
        (Recipient("edge", "/notifications"), BODY, 204),
    ],
)
def test_signature_is_for_one_body_path_and_broker(
    broker_url: str, secret: str, recipient: Recipient, content: bytes, status: int
) -> None:
    header = sign(secret, recipient, BODY, int(time.time()), FAR + 1)
    answer = httpx.post(f"{broker_url}/notifications", content=content, headers={HEADER: header}, verify=False)
    assert answer.status_code == status, answer.text


def test_repeated_delivery_answered_without_its_body(broker_url: str, secret: str, silent: ExitStack) -> None:
    header = sign(secret, Recipient("edge", "/notifications"), BODY, int(time.time()), FAR + 2)
    assert (
        httpx.post(f"{broker_url}/notifications", content=BODY, headers={HEADER: header}, verify=False).status_code
        == 204
    )
    connection = silent.enter_context(send_part(broker_url, "/notifications", header, len(BODY), 0))
    connection.settimeout(30)
    assert b" 204 " in connection.recv(4096)


def test_path_of_the_callback_verified_behind_a_proxy() -> None:
    webhook = Webhook("edge", "https://news.example/edge one/")
    webhook.set_secret("secret")
    good = sign("secret", Recipient("edge", "/edge%20one/notifications"), BODY, 1000, 7)
    assert webhook.verify("cluster", good, 1000).delivery_id == 7
    with pytest.raises(BadSignature, match="path '/edge%20one/pushes'"):
        webhook.verify("origin", good, 1000)


def test_webhook_bodies_have_their_own_memory() -> None:
    """Clients that may log in may send bodies; the memory for those of each size is limited."""

    def sending(size: int) -> Request:
        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b"x" * size, "more_body": False}

        return Request({"type": "http", "headers": []}, receive)  # type: ignore[arg-type]

    async def story() -> None:
        bodies = Bodies()
        async with AsyncExitStack() as held:
            with suppress(Busy):
                for _ in range(2000):
                    await held.enter_async_context(bodies.read(sending(SMALL_BODY), SMALL_BODY))
            for most in (NOTIFICATION_BODY, PUSH_BODY):
                assert len(await held.enter_async_context(bodies.read(sending(1000), most))) == 1000

    asyncio.run(story())


# Questions about deliveries

ASKED = msgspec.json.encode(DeliveryRequest([StreamPosition("a stream that nobody has", 1)]))


def ask(url: str, secret: str, path: str = "/deliveries", body: bytes = ASKED) -> httpx.Response:
    header = sign(secret, Recipient("edge", path), body, int(time.time()), 0)
    return httpx.post(f"{url}/deliveries", content=body, headers={HEADER: header})


def test_deliveries_are_reported_to_cluster_as_often_as_it_asks(broker_url: str, secret: str) -> None:
    for _ in range(2):
        answer = ask(broker_url, secret)
        assert answer.status_code == 200, answer.text
        assert msgspec.json.decode(answer.content, type=DeliveryReport) == DeliveryReport([])


def test_deliveries_are_reported_to_nobody_else(broker_url: str, secret: str) -> None:
    assert ask(broker_url, "a guess").status_code == 401
    assert ask(broker_url, secret, "/notifications").status_code == 401
    assert httpx.post(f"{broker_url}/deliveries", content=ASKED).status_code == 401


def test_malformed_questions_about_deliveries_are_rejected(broker_url: str, secret: str) -> None:
    assert ask(broker_url, secret, body=b"nonsense").status_code == 400
    assert ask(broker_url, secret, body=b"{}").status_code == 422
    many = DeliveryRequest([StreamPosition("one", number) for number in range(1001)])
    assert ask(broker_url, secret, body=msgspec.json.encode(many)).status_code == 422
    assert ask(broker_url, secret, body=b" " * (DELIVERIES_BODY + 1)).status_code == 413
