"""Two thousand clients in one process, whose broker is killed and whose connections are cut at the same time."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import httpx
import pytest
from support.broker.process import Process, start_broker, start_coordinator, start_press, wait_ready
from support.client.crowd import Reader, enrol, readers, until_all_have

from newsstand.client import Pace, new_http

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CLIENTS = int(os.environ.get("NEWSSTAND_TEST_CLIENTS", "2000"))
KINDS, ROUNDS = 20, 5


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[dict[str, Process]]:
    press = start_press(tmp_path / "press")
    coordinator = start_coordinator(tmp_path / "coordinator")
    running = {"press": press, "coordinator": coordinator}
    for name in ("north", "south"):
        more = ("--coordinator", coordinator.url)
        running[name] = start_broker(tmp_path / name, press.url, name, 0, *more)
    for name in ("north", "south"):
        wait_ready(running[name].url)
    time.sleep(1)
    yield running
    for process in running.values():
        process.kill()


async def until(is_so: Callable[[], bool], patience: float) -> float:
    begun = time.monotonic()
    async with asyncio.timeout(patience):
        while not is_so():
            await asyncio.sleep(0.05)
    return time.monotonic() - begun


async def load(press: str, rounds: int) -> None:
    """Publish a result of each kind in each round, five kinds a second."""
    async with httpx.AsyncClient(timeout=30, verify=False) as http:
        for number in range(rounds * KINDS):
            item = {"channel": "of_kind", "values": [f"k{number % KINDS}"], "payload": {"id": "x", "n": number}}
            (await http.post(f"{press}/press", json=[item])).raise_for_status()
            await asyncio.sleep(0.2)


def megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def cut(one: Reader) -> None:
    socket = one.client._notifications._socket
    assert socket is not None
    connection = socket._response.connection
    assert connection is not None
    assert connection.transport is not None
    connection.transport.abort()


def test_process_holds_two_thousand_clients(
    tmp_path: Path, processes: dict[str, Process], record_property: Callable[[str, object], None]
) -> None:
    def record(name: str, value: float) -> None:
        """Record a value, and print it with the processor time so far, since others may use the machine."""
        record_property(name, round(value, 2))
        print(f"{name}: {value:.2f} (clients' processor time so far: {time.process_time():.1f} s)", flush=True)

    async def work() -> None:
        coordinator, press = processes["coordinator"].url, processes["press"].url
        tokens = enrol(coordinator, tmp_path / "coordinator", "north", [f"c{number}" for number in range(CLIENTS)])
        answers: Counter[int] = Counter()

        async def count(_: object, __: object, end: aiohttp.TraceRequestEndParams) -> None:
            answers[end.response.status] += 1

        counting = aiohttp.TraceConfig()
        counting.on_request_end.append(count)
        counting.freeze()

        async with new_http() as http:
            http.trace_configs.append(counting)
            before, begun = megabytes(), time.monotonic()
            everybody = readers(coordinator, tokens, KINDS, http, Pace())
            await asyncio.gather(*(one.enter() for one in everybody))
            reading = [asyncio.create_task(one.read()) for one in everybody]
            await until(lambda: all(one.client.connected for one in everybody), 120)
            record("first connections, s", time.monotonic() - begun)
            record("kilobytes a client", (megabytes() - before) * 1024 / CLIENTS)

            loading = asyncio.create_task(load(press, ROUNDS))
            await asyncio.sleep(3)
            processes["north"].kill()
            killed = time.monotonic()
            await until(lambda: not any(one.client.connected for one in everybody), 30)
            record("all have noticed the kill, s", time.monotonic() - killed)
            await until(lambda: all(one.client.connected for one in everybody), 120)
            record("all at the other broker, s after the kill", time.monotonic() - killed)
            await loading
            record("everything delivered, s after the kill", await until_all_have(everybody, ROUNDS, 120) - killed)

            begun = time.monotonic()
            for one in everybody:
                cut(one)
            await until(lambda: not any(one.client.connected for one in everybody), 30)
            await until(lambda: all(one.client.connected for one in everybody), 120)
            record("reconnect storm, s", time.monotonic() - begun)
            await load(press, 1)
            await until_all_have(everybody, ROUNDS + 1, 60)
            print("answers:", dict(answers))
            assert set(answers) <= {101, 200, 201, 429, 503}
            begun = time.monotonic()
            await asyncio.gather(*(one.client.close() for one in everybody))
            await asyncio.gather(*reading)
            record("all closed, s", time.monotonic() - begun)

    asyncio.run(work())
