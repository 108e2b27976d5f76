"""Signed requests to a broker: whoever cannot sign costs it no memory and delays nobody."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import httpx
import pytest
from press import Press

from newsstand.broker.webhook import Webhook, path_of
from newsstand.signing import HEADER, BadSignature, Recipient, sign

BODY = b'{"streams":[]}'
FAR = 10**15
"""Numbers of deliveries that the press does not come to."""


@pytest.fixture
def secret(press: Press, broker_url: str) -> str:
    return next(broker.secret for broker in press._results.brokers() if broker.name == "edge")


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
    forged = sign("a guess", Recipient("edge", "/told"), b"x" * announced, int(time.time()), FAR)
    for sent in (*[announced - 1] * 2, *[0] * 50):
        silent.enter_context(send_part(broker_url, "/told", forged, announced, sent))
    header = sign(secret, Recipient("edge", "/told"), BODY, int(time.time()), FAR)
    answer = httpx.post(f"{broker_url}/told", content=BODY, headers={HEADER: header}, timeout=30)
    assert answer.status_code == 204, answer.text


@pytest.mark.parametrize("path", ["/told", "/pushed"])
def test_a_forged_request_is_answered_before_its_body_comes(broker_url: str, silent: ExitStack, path: str) -> None:
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
        (Recipient("edge", "/told"), BODY + b" ", 401),
        (Recipient("edge", "/told"), b'{"streams":{}}', 401),
        (Recipient("edge", "/pushed"), BODY, 401),
        (Recipient("west", "/told"), BODY, 401),
        (Recipient("edge", "/told", "PUT"), BODY, 401),
        (Recipient("edge", "/told"), BODY, 204),
    ],
)
def test_a_signature_is_for_one_body_path_and_broker(
    broker_url: str, secret: str, recipient: Recipient, content: bytes, status: int
) -> None:
    header = sign(secret, recipient, BODY, int(time.time()), FAR + 1)
    answer = httpx.post(f"{broker_url}/told", content=content, headers={HEADER: header})
    assert answer.status_code == status, answer.text


def test_a_delivery_that_was_acted_on_is_answered_without_its_body(
    broker_url: str, secret: str, silent: ExitStack
) -> None:
    header = sign(secret, Recipient("edge", "/told"), BODY, int(time.time()), FAR + 2)
    assert httpx.post(f"{broker_url}/told", content=BODY, headers={HEADER: header}).status_code == 204
    connection = silent.enter_context(send_part(broker_url, "/told", header, len(BODY), 0))
    connection.settimeout(30)
    assert b" 204 " in connection.recv(4096)


def test_a_broker_behind_a_proxy_verifies_the_path_that_the_cluster_knows() -> None:
    webhook = Webhook("edge", "https://news.example/edge one/")
    webhook.trust("secret")
    assert path_of("https://news.example/edge one/", "/told") == "/edge%20one/told"
    good = sign("secret", Recipient("edge", "/edge%20one/told"), BODY, 1000, 7)
    assert webhook.admit("cluster", good, 1000).delivery_id == 7
    with pytest.raises(BadSignature, match="path '/edge%20one/pushed'"):
        webhook.admit("origin", good, 1000)
