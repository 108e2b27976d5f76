"""Whose request it is: the client's address in logs and limits, behind a proxy or not."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from newsstand.config.types import require_proxies
from newsstand.errors import BadOption
from newsstand.http.request_log import RequestLog, log_caller
from newsstand.http.server import client_of, network_of, proxy_options


class NoMetrics:
    def requested(self, method: str, route: str | None, status: int, seconds: float) -> None:
        pass


async def whoami(scope: Scope, receive: Receive, send: Send) -> None:
    log_caller(scope, "ann")
    await PlainTextResponse(client_of(scope))(scope, receive, send)


@contextmanager
def served(trusted: list[str]) -> Iterator[str]:
    app = RequestLog(whoami, NoMetrics())
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, lifespan="off", ws="none", **proxy_options(trusted))
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(15)


@pytest.mark.parametrize(
    ("trusted", "forwarded", "logged"),
    [
        ([], "192.0.2.1", "127.0.0.1"),
        (["10.0.0.0/8"], "192.0.2.1", "127.0.0.1"),
        (["127.0.0.1"], "192.0.2.1", "192.0.2.1"),
        (["127.0.0.0/8"], "203.0.113.5, 192.0.2.1", "192.0.2.1"),
        (["127.0.0.1", "192.0.2.0/24"], "203.0.113.5, 192.0.2.1", "203.0.113.5"),
        (["127.0.0.1"], "x" * 5000, "x" * 64),
    ],
)
def test_forwarded_address_counts_from_trusted_proxies_only(
    trusted: list[str], forwarded: str, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    with served(trusted) as url, caplog.at_level(logging.INFO, "newsstand.http.request_log"):
        answer = httpx.get(
            url, headers={"X-Forwarded-For": forwarded, "Authorization": "Bearer secret-token"}, verify=False
        )
        assert answer.text == logged
    (line,) = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "request"]
    assert (line["client"], line["token"], line["status"]) == (logged, "ann", 200)
    assert "secret-token" not in str(line)


def test_proxies_are_addresses_and_networks() -> None:
    assert require_proxies("10.0.0.1, 10.1.0.0/16") == ("10.0.0.1", "10.1.0.0/16")
    for mistake in (["*"], ["proxy.example"], [""], 5, [5]):
        with pytest.raises(BadOption):
            require_proxies(mistake)


def test_limits_count_by_networks() -> None:
    assert network_of("192.0.2.1") == network_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert network_of("2001:db8::1:2:3:4") == "2001:db8::/64"
    assert network_of("") == ""
