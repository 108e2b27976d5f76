"""Retries and deadlines of a client, the modules that it loads, and the synchronous client."""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import signal
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path

import aiohttp
import pytest
from support.broker.press import Press
from support.client.results import PASSWORD, a_name, print_numbers
from support.client.transport import Reply, answering
from support.cluster.standin import StandIn, serving

from newsstand.auth.api_tokens import ApiToken, digest_of
from newsstand.client import (
    Client,
    Pace,
    Publisher,
    Rejection,
    RequestRejected,
    ResourceNotFound,
    SyncClient,
    SyncPublisher,
    Unreachable,
    UsageError,
)
from newsstand.client.http import HttpCalls, TransientError
from newsstand.client.session import BrokerLocator
from newsstand.client.sync import ClientOptions
from newsstand.errors import Busy

SOON = Pace(first_s=0.01, longest_s=0.02, deadline_s=0.5)


def pair(number: int) -> dict[str, object]:
    return {"access": f"access-{number}", "refresh": f"refresh-{number}", "expires_in": 900, "subscriber": "ana"}


def test_calls_retry_a_busy_broker_and_replace_a_lost_one() -> None:
    answers = (
        Reply(200, {"broker": {"name": "a", "url": "http://a"}, "sticky": False}),
        Reply(429, {"error": "too many logins"}, headers={"Retry-After": "0"}),
        Reply(200, pair(1)),
        aiohttp.ClientConnectionError("refused"),
        Reply(200, {"broker": {"name": "b", "url": "http://b"}, "sticky": True}),
        Reply(421, {"error": "another"}),
        Reply(503, {"error": "no broker is up"}),
        Reply(200, {"broker": {"name": "c", "url": "http://c"}, "sticky": True}),
        Reply(401, {"error": "the session has ended: log in"}),
        Reply(200, pair(2)),
        Reply(200, {"channels": []}),
    )

    async def work() -> list[str]:
        async with (
            answering(*answers) as (http, asked),
            Client("http://where", "ana", PASSWORD, http=http, pace=SOON, rng=random.Random(1)) as client,
        ):
            assert await client.channels() == []
            assert client.tokens is not None
            assert client.tokens.access == "access-2"
            return asked

    assert asyncio.run(work()) == [
        "GET where/broker",
        "POST a/login",
        "POST a/login",
        "GET a/channels",
        "GET where/broker",
        "GET b/channels",
        "GET where/broker",
        "GET where/broker",
        "GET c/channels",
        "POST c/refresh",
        "GET c/channels",
    ]


def test_locator_avoids_a_lost_broker_that_the_coordinator_names() -> None:
    clock = [0.0]
    named = [Reply(200, {"broker": {"name": name, "url": f"http://{name}"}}) for name in ("a", "a", "a", "a", "b")]

    async def work() -> None:
        async with answering(*named) as (http, asked):
            locator = BrokerLocator(
                HttpCalls(http, None, SOON, random.Random(1)), "http://where", None, None, None, lambda: clock[0]
            )
            assert await locator.url(None) == "http://a"
            locator.discard("http://a")  # a line was cut: it may be there
            assert await locator.url(None) == "http://a"
            locator.discard("http://a", is_down=True)
            with pytest.raises(TransientError, match="connection refused") as rests:
                await locator.url(None)
            clock[0] += rests.value.after_s
            assert await locator.url(None) == "http://a"  # it may be back
            locator.discard("http://a", is_down=True)
            assert await locator.url(None) == "http://b"
            assert len(asked) == 5

    asyncio.run(work())


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (aiohttp.ClientConnectionError(), r"http://a/login does not answer \(ClientConnectionError\); given up"),
        (Reply(503, {"error": "not\n ready"}), "not ready; given up after 0.5 s"),
        (Reply(502, "<html>"), "http://a/login returned status 502; given up after 0.5 s"),
    ],
)
def test_calls_given_up_at_their_deadline(answer: Reply | Exception, match: str) -> None:
    async def work() -> None:
        async with answering(answer) as (http, asked):
            begun = time.monotonic()
            with pytest.raises(Unreachable, match=match):
                await Client(broker="http://a", name="ana", password=PASSWORD, http=http, pace=SOON).__aenter__()
            assert len(asked) > 3
            assert time.monotonic() - begun < 5

    asyncio.run(work())


def test_malformed_response_is_an_error_of_one_line() -> None:
    async def work() -> None:
        async with answering(Reply(200, "<html>\n</html>")) as (http, _):
            with pytest.raises(RequestRejected, match="unexpected body") as raised:
                await Client(broker="http://a", name="ana", password=PASSWORD, http=http).__aenter__()
            assert "\n" not in str(raised.value)

    asyncio.run(work())


NEVER = {
    "httpx",
    "websockets",
    "pyspark",
    "fastapi",
    "starlette",
    "uvicorn",
    "pyarrow",
    "pandas",
    "numpy",
    "numba",
    "argon2",
    "pydantic",
}


def test_client_loads_nothing_of_the_servers_and_is_quick_to_load() -> None:
    code = "import newsstand.client, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    response = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20)
    assert not NEVER & set(response.stdout.split())
    code = "import newsstand.client, sys; print(*[name for name in sys.modules if name.startswith('newsstand.')])"
    response = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20)
    rooms = {name.split(".")[1] for name in response.stdout.split()}
    assert rooms <= {"client", "errors", "model", "values", "wire", "concurrency", "auth"}


def test_sync_client_has_the_same_methods_and_options() -> None:
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_"):
            there, here = inspect.signature(method), inspect.signature(getattr(SyncClient, name))
            assert list(there.parameters.values()) == list(here.parameters.values()), name
    options = set(inspect.signature(Client).parameters) - {"coordinator", "name", "password", "http"}
    assert options == set(ClientOptions.__annotations__)


def of_clients() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("newsstand")]


def test_sync_client_reads_and_acknowledges_results(press: Press, broker: str) -> None:
    with SyncClient(broker=broker, name=a_name(), password=PASSWORD, register=True) as client:
        assert "of_kind" in {one.name for one in client.channels()}
        subscription = client.subscribe("of_kind", "sync")
        print_numbers(press, "sync", 1, 3)
        positions = []
        for result in client.results(subscription):
            positions.append(result.position)
            if result.position == 3:
                break
        assert positions == [1, 2, 3]
        assert client.subscriptions()[0].position == 2
        (result,) = list(islice(client.results(subscription, acknowledge=False), 1))
        client.acknowledge(result)
        assert client.subscriptions()[0].position == 3
        page = client.page(press.keep_page(b"sync"))
        assert client.page(page.id, etag=page.etag) is None
        client.unsubscribe(subscription)
        with pytest.raises(ResourceNotFound):
            client.subscribe("floods")
        assert client.tokens is not None
        client.logout()
    assert not of_clients()
    with pytest.raises(Unreachable):
        SyncClient(broker="http://127.0.0.1:9", name="ana", password=PASSWORD, pace=SOON).__enter__()
    assert not of_clients()


@pytest.mark.parametrize("address", ["127.0.0.1:8770", "localhost:8770", "ftp://127.0.0.1", "http://", "nowhere"])
def test_address_that_is_no_url_is_rejected_at_once(address: str) -> None:
    with pytest.raises(UsageError, match="not a URL such as http://"):
        SyncClient(address, "ana", PASSWORD).__enter__()
    assert not of_clients()


def test_refused_connection_says_what_to_do() -> None:
    with pytest.raises(Unreachable, match=r"nothing listens at 127\.0\.0\.1:9; start the server, or correct the"):
        SyncClient("http://127.0.0.1:9", "ana", PASSWORD, pace=SOON).__enter__()


def test_failed_constructor_leaves_no_threads() -> None:
    with pytest.raises(UsageError):
        SyncClient()
    with pytest.raises(AttributeError):
        SyncPublisher(None, "token")  # type: ignore[arg-type]
    assert not of_clients()


CTRL_C = """
import sys, threading
from newsstand.client import SyncClient
try:
    with SyncClient(broker=sys.argv[1], name=sys.argv[2], password=sys.argv[3], register=True) as client:
        subscription = client.subscribe("of_kind", "ctrl-c")
        print("reading", flush=True)
        for result in client.results(subscription):
            pass
except KeyboardInterrupt:
    print("threads:", threading.active_count(), flush=True)
"""


def test_sync_client_ends_its_threads_on_ctrl_c(broker: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CTRL_C, broker, a_name(), PASSWORD],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (out, err, process.returncode) == ("threads: 1\n", "", 0)


def test_publisher_repeats_safely_and_reports_rejected_records(tmp_path: Path) -> None:
    cluster = StandIn(tmp_path)
    secret = "newsstand_" + "b" * 64
    tokens = {"gate": ApiToken("gate", digest_of(secret), frozenset(["publish:emergencies", "publish:lost"]))}

    async def work(url: str) -> None:
        async with Publisher(url, secret, pace=Pace(first_s=0.01), rng=random.Random(3)) as publisher:
            cluster.failing = [Busy("a channel is behind", 0.01)]
            receipt = await publisher.publish("emergencies", {"id": "e1", "kind": "fire"})
            assert (receipt.accepted, receipt.first, receipt.last, receipt.rejected) == (1, 1, 1, [])
            many = [{"id": "e2", "kind": "flood"}, {"id": "e3"}]
            receipt = await publisher.publish("emergencies", many, key="gate-7")
            assert (receipt.accepted, receipt.first) == (1, 2)
            assert receipt.rejected == [Rejection(1, "field 'kind': is missing")]
            again = await publisher.publish("emergencies", many, key="gate-7")
            assert (again.repeated, again.first) == (True, 2)
            nothing = await publisher.publish("emergencies", iter([{"id": "e4"}]))
            assert (nothing.accepted, len(nothing.rejected)) == (0, 1)
            with pytest.raises(ResourceNotFound):
                await publisher.publish("lost", {"name": "hall"})
            with pytest.raises(RequestRejected) as rejected:
                await publisher.publish("shelters", {"name": "hall"})
            assert rejected.value.status == 403

    with serving(cluster, tokens) as url:
        asyncio.run(work(url))
        with SyncPublisher(url, secret) as publisher:
            assert publisher.publish("emergencies", {"id": "e5", "kind": "fire"}).last == 3
