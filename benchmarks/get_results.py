"""Reads of pending results from a broker's cache, beside a bare Starlette endpoint that returns the same bytes.

Both servers run under uvicorn, each in a process of its own, in turns for several rounds. The same client asks
both over keep-alive connections, as fast as it is answered. Rates depend on the client's work
and on what else the machine does, the server's CPU time (user and system) hardly.

    python benchmarks/get_results.py [--seconds 5] [--connections 16] [--rounds 3] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.broker.process import start_broker, start_press, wait_ready

PASSWORD = "a password for measuring"
RESULTS = 10


class Server(NamedTuple):
    """The port and the process of a server."""

    port: int
    pid: int


class Asking(asyncio.Protocol):
    """One connection that asks again as soon as it is answered."""

    def __init__(self, request: bytes, until: float, done: asyncio.Future[None]) -> None:
        self.latencies: list[float] = []
        self.bad = 0
        self._request = request
        self._until = until
        self._done = done
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._asked = time.perf_counter()
        if self._asked >= self._until:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
            return
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        at = lower.index(b"content-length:") + 15
        length = int(lower[at : (lower + b"\r\n").index(b"\r\n", at)])
        if len(body) < length:
            return
        self.bad += not head.startswith(b"HTTP/1.1 200")
        self._buffer = body[length:]
        self.latencies.append(time.perf_counter() - self._asked)
        self._ask()


async def load(port: int, request: bytes, seconds: float, connections: int) -> list[float]:
    loop = asyncio.get_running_loop()
    until = time.perf_counter() + seconds
    made = []
    waiting = []
    for _ in range(connections):
        done: asyncio.Future[None] = loop.create_future()
        _, protocol = await loop.create_connection(lambda d=done: Asking(request, until, d), "127.0.0.1", port)
        made.append(protocol)
        waiting.append(done)
    await asyncio.gather(*waiting)
    assert not sum(one.bad for one in made), "an answer was not 200"
    return [latency for one in made for latency in one.latencies]


def measure(server: Server, request: bytes, seconds: float, connections: int) -> tuple[float, float, float, float]:
    """Requests per second, the median and the 99th percentile in ms, and the CPU time per request in µs."""
    process = psutil.Process(server.pid)
    begun = sum(process.cpu_times()[:2])
    latencies = sorted(asyncio.run(load(server.port, request, seconds, connections)))
    spent = sum(process.cpu_times()[:2]) - begun
    return (
        len(latencies) / seconds,
        latencies[len(latencies) // 2] * 1000,
        latencies[len(latencies) * 99 // 100] * 1000,
        spent / len(latencies) * 1e6,
    )


def bare(body: bytes, port: multiprocessing.Queue[int]) -> None:
    async def endpoint(_: Request) -> Response:
        return Response(body, media_type="application/json")

    config = uvicorn.Config(
        Starlette(routes=[Route("/{path:path}", endpoint)]), log_level="error", access_log=False
    )
    socket = config.bind_socket()
    port.put(socket.getsockname()[1])
    uvicorn.Server(config).run(sockets=[socket])


def request_of(path: str, token: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seconds", type=float, default=5)
    options.add_argument("--connections", type=int, default=16)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        press = start_press(Path(folder) / "press")
        broker = start_broker(Path(folder) / "broker", press.url)
        try:
            wait_ready(broker.url)
            path, token = prepare(broker.url, press.url)
            body = httpx.get(f"{broker.url}{path}", headers={"Authorization": f"Bearer {token}"}).content
            assert body.count(b'"origin":"cache"') == RESULTS, body
            ports: multiprocessing.Queue[int] = multiprocessing.Queue()
            peer = multiprocessing.Process(target=bare, args=(body, ports), daemon=True)
            peer.start()
            assert peer.pid is not None
            servers = {
                "starlette": Server(ports.get(), peer.pid),
                "broker": Server(int(broker.url.rpartition(":")[2]), broker.pid),
            }
            time.sleep(1)
            found: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in servers}
            for server in servers.values():
                measure(server, request_of(path, token), 1, given.connections)
            for _ in range(given.rounds):
                for name, server in servers.items():
                    found[name].append(measure(server, request_of(path, token), given.seconds, given.connections))
            peer.terminate()
        finally:
            broker.stop()
            press.kill()
    medians = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in found.items()
    }
    ratio = medians["broker"][0] / medians["starlette"][0]
    cpu_ratio = medians["starlette"][3] / medians["broker"][3]
    if given.json:
        print(
            json.dumps(
                {
                    "medians": medians,
                    "ratio": ratio,
                    "cpu_ratio": cpu_ratio,
                    "bytes": len(body),
                    "connections": given.connections,
                }
            )
        )
        return
    print(
        f"{RESULTS} results, {len(body)} bytes, {given.connections} connections, median of {given.rounds} rounds"
    )
    print(f"{'server':<12}{'requests/s':>12}{'p50 ms':>10}{'p99 ms':>10}{'CPU µs':>10}")
    for name, (rate, p50, p99, cpu) in medians.items():
        print(f"{name:<12}{rate:>12.0f}{p50:>10.2f}{p99:>10.2f}{cpu:>10.1f}")
    print(f"the broker's rate is {ratio:.2f} of the bare endpoint's, by CPU time {cpu_ratio:.2f}")


def prepare(broker: str, press: str) -> tuple[str, str]:
    """A subscriber with pending results in the cache: the path to read them at, and its token."""
    with httpx.Client(base_url=broker, timeout=20) as client:
        client.post("/subscribers", json={"name": "reader", "password": PASSWORD}).raise_for_status()
        token = client.post("/login", json={"name": "reader", "password": PASSWORD}).json()["access"]
        client.headers["Authorization"] = f"Bearer {token}"
        made = client.post("/subscriptions", json={"channel": "of_kind", "values": ["fire"]}).json()
        report = {"id": "r1", "kind": "fire", "lat": 33.68, "lon": -117.83, "severity": 4, "text": "x" * 200}
        items = [{"channel": "of_kind", "values": ["fire"], "payload": report} for _ in range(RESULTS)]
        httpx.post(f"{press}/press", json=items, timeout=20).raise_for_status()
        while client.get(f"/subscriptions/{made['id']}").json()["head"] < RESULTS:
            time.sleep(0.05)
        time.sleep(0.5)
        return f"/subscriptions/{made['id']}/results", token


if __name__ == "__main__":
    main()
