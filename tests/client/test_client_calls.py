"""How a client waits, repeats and gives up; what it loads; and the client without asyncio."""

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
from meddling import Told, answering
from press import Press
from printing import PASSWORD, a_name, print_numbers
from standin import StandIn, serving

from newsstand.client import (
    Client,
    Misused,
    NotThere,
    Pace,
    Publisher,
    Refusal,
    Refused,
    SyncClient,
    SyncPublisher,
    Unreachable,
)
from newsstand.client.calls import Calls, NotNow
from newsstand.client.home import Home
from newsstand.client.pace import full_jitter
from newsstand.client.sync import Options
from newsstand.cluster.tokens import Token, digest_of
from newsstand.errors import Busy

SOON = Pace(first_s=0.01, longest_s=0.02, deadline_s=0.5)


def test_waits_are_random_below_a_ceiling_that_doubles() -> None:
    waits = list(islice(full_jitter(Pace(first_s=0.5, longest_s=5), random.Random(7)), 8))
    assert [round(wait, 3) for wait in waits] == [0.162, 0.151, 1.302, 0.29, 2.679, 1.828, 0.29, 2.537]
    for wait, ceiling in zip(waits, [0.5, 1, 2, 4, 5, 5, 5, 5], strict=True):
        assert 0 <= wait <= ceiling


def pair(number: int) -> dict[str, object]:
    return {"access": f"access-{number}", "refresh": f"refresh-{number}", "expires_in": 900, "subscriber": "ana"}


def test_a_busy_broker_is_asked_again_and_a_lost_one_is_replaced() -> None:
    answers = (
        Told(200, {"broker": {"name": "a", "url": "http://a"}, "sticky": False}),
        Told(429, {"error": "too many logins"}, headers={"Retry-After": "0"}),
        Told(200, pair(1)),
        aiohttp.ClientConnectionError("refused"),
        Told(200, {"broker": {"name": "b", "url": "http://b"}, "sticky": True}),
        Told(421, {"error": "another"}),
        Told(503, {"error": "no broker is up"}),
        Told(200, {"broker": {"name": "c", "url": "http://c"}, "sticky": True}),
        Told(401, {"error": "the session has ended: log in"}),
        Told(200, pair(2)),
        Told(200, {"channels": []}),
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


def test_a_broker_that_is_gone_rests_while_the_coordinator_names_it() -> None:
    clock = [0.0]
    named = [Told(200, {"broker": {"name": name, "url": f"http://{name}"}}) for name in ("a", "a", "a", "a", "b")]

    async def work() -> None:
        async with answering(*named) as (http, asked):
            home = Home(
                Calls(http, None, SOON, random.Random(1)), "http://where", None, None, None, lambda: clock[0]
            )
            assert await home.url(None) == "http://a"
            home.lost("http://a")  # a line was cut: it may be there
            assert await home.url(None) == "http://a"
            home.lost("http://a", gone=True)
            with pytest.raises(NotNow, match="does not know it yet") as rests:
                await home.url(None)
            clock[0] += rests.value.after_s
            assert await home.url(None) == "http://a"  # it may be back
            home.lost("http://a", gone=True)
            assert await home.url(None) == "http://b"
            assert len(asked) == 5

    asyncio.run(work())


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (aiohttp.ClientConnectionError(), r"http://a/login does not answer \(ClientConnectionError\); given up"),
        (Told(503, {"error": "not\n ready"}), "not ready; given up after 0.5 s"),
        (Told(502, "<html>"), "http://a/login answers 502; given up after 0.5 s"),
    ],
)
def test_a_call_is_given_up_at_its_deadline(answer: Told | Exception, match: str) -> None:
    async def work() -> None:
        async with answering(answer) as (http, asked):
            begun = time.monotonic()
            with pytest.raises(Unreachable, match=match):
                await Client(broker="http://a", name="ana", password=PASSWORD, http=http, pace=SOON).__aenter__()
            assert len(asked) > 3
            assert time.monotonic() - begun < 5

    asyncio.run(work())


def test_an_answer_that_is_not_understood_is_an_error_of_one_line() -> None:
    async def work() -> None:
        async with answering(Told(200, "<html>\n</html>")) as (http, _):
            with pytest.raises(Refused, match="not understood") as raised:
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


def test_a_client_loads_nothing_of_the_servers_and_is_quick_to_load() -> None:
    code = "import newsstand.client, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20)
    assert not NEVER & set(told.stdout.split())
    code = "import newsstand.client, sys; print(*[name for name in sys.modules if name.startswith('newsstand.')])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20)
    rooms = {name.split(".")[1] for name in told.stdout.split()}
    assert rooms <= {"client", "errors", "model", "values", "signing"}


def test_both_clients_have_the_same_methods_and_options() -> None:
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_"):
            there, here = inspect.signature(method), inspect.signature(getattr(SyncClient, name))
            assert list(there.parameters.values()) == list(here.parameters.values()), name
    options = set(inspect.signature(Client).parameters) - {"coordinator", "name", "password", "http"}
    assert options == set(Options.__annotations__)


def of_clients() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("newsstand")]


def test_a_client_without_asyncio(press: Press, broker: str) -> None:
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
        with pytest.raises(NotThere):
            client.subscribe("floods")
        assert client.tokens is not None
        client.logout()
    assert not of_clients()
    with pytest.raises(Unreachable):
        SyncClient(broker="http://127.0.0.1:9", name="ana", password=PASSWORD, pace=SOON).__enter__()
    assert not of_clients()


def test_what_cannot_be_made_leaves_no_threads() -> None:
    with pytest.raises(Misused):
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


def test_ctrl_c_leaves_no_threads(broker: str) -> None:
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


def test_publishing_is_repeated_safely_and_tells_what_was_refused(tmp_path: Path) -> None:
    cluster = StandIn(tmp_path)
    secret = "newsstand_" + "b" * 64
    tokens = {"gate": Token("gate", digest_of(secret), frozenset(["publish:emergencies", "publish:lost"]))}

    async def work(url: str) -> None:
        async with Publisher(url, secret, pace=Pace(first_s=0.01), rng=random.Random(3)) as publisher:
            cluster.failing = [Busy("a channel is behind", 0.01)]
            receipt = await publisher.publish("emergencies", {"id": "e1", "kind": "fire"})
            assert (receipt.accepted, receipt.first, receipt.last, receipt.refused) == (1, 1, 1, [])
            many = [{"id": "e2", "kind": "flood"}, {"id": "e3"}]
            receipt = await publisher.publish("emergencies", many, key="gate-7")
            assert (receipt.accepted, receipt.first) == (1, 2)
            assert receipt.refused == [Refusal(1, "field 'kind': is missing")]
            again = await publisher.publish("emergencies", many, key="gate-7")
            assert (again.repeated, again.first) == (True, 2)
            nothing = await publisher.publish("emergencies", iter([{"id": "e4"}]))
            assert (nothing.accepted, len(nothing.refused)) == (0, 1)
            with pytest.raises(NotThere):
                await publisher.publish("lost", {"name": "hall"})
            with pytest.raises(Refused) as refused:
                await publisher.publish("shelters", {"name": "hall"})
            assert refused.value.status == 403

    with serving(cluster, tokens) as url:
        asyncio.run(work(url))
        with SyncPublisher(url, secret) as publisher:
            assert publisher.publish("emergencies", {"id": "e5", "kind": "fire"}).last == 3
