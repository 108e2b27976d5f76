"""Fan-out of notifications: the broker's hub beside a minimal Tornado broadcaster, by the server's CPU time.

    make bench-broker

Each server is a process of its own with 1,000 and then 5,000 connected clients, which a third process holds: plain
sockets that do the handshake and read. All clients follow one stream. A notification goes out when all clients
have the one before, so nothing is coalesced and no two notifications share a write: each costs either server a
write per client. CPU time is user and system time of the server's process, for the notifications alone, per
delivered message; memory is its resident size after all have connected, less before, per connection. The two
servers take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import multiprocessing
import os
import resource
import select
import socket
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection as Pipe

import psutil
import tornado.httpserver
import tornado.web
import tornado.websocket
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from newsstand.broker.websocket.connection import Connection
from newsstand.broker.websocket.hub import Hub
from newsstand.broker.websocket.protocol import SocketIdentity, serve_socket

STREAM = "b3f1c2d4e5f60718"
PATH = "/notifications"
LOWEST_RATIO = 2.0
MOST_BYTES = 30_000


def serve_hub(pipe: Pipe) -> None:
    """The broker's hub on uvicorn, behind the WebSocket endpoint of a Starlette app."""
    hub = Hub()
    names = iter(range(10**9))

    async def admit(token: str) -> SocketIdentity:
        return SocketIdentity(f"{token}{next(names)}", "session", 2**60)

    async def on_ack(_: SocketIdentity, positions: dict[str, int]) -> dict[str, int]:
        return positions

    async def notifications(websocket: WebSocket) -> None:
        await serve_socket(websocket, hub, admit=admit, on_ready=lambda _: [(STREAM, None)], on_ack=on_ack)

    api = Starlette(routes=[WebSocketRoute(PATH, notifications)])

    async def main() -> None:
        bound = socket.create_server(("127.0.0.1", 0), backlog=4096)
        _obey(pipe, bound.getsockname()[1], lambda position: hub.notify(STREAM, position, 0))
        config = uvicorn.Config(api, log_config=None, access_log=False, ws=Connection, ws_ping_interval=None)
        await uvicorn.Server(config).serve([bound])

    uvloop.run(main())


def serve_tornado(pipe: Pipe) -> None:
    """What a broker on Tornado does: a set of handlers, and `write_message` to each."""
    handlers: set[Notifications] = set()

    class Notifications(tornado.websocket.WebSocketHandler):
        def open(self, *_: str, **__: str) -> None:
            handlers.add(self)
            self.write_message('{"ready":true}')

        def on_close(self) -> None:
            handlers.discard(self)

    def broadcast(position: int) -> None:
        message = json.dumps({"stream": STREAM, "position": position}, separators=(",", ":"))
        for handler in handlers:
            handler.write_message(message)

    async def main() -> None:
        bound = socket.create_server(("127.0.0.1", 0), backlog=4096)
        bound.setblocking(False)
        server = tornado.httpserver.HTTPServer(tornado.web.Application([(PATH, Notifications)]))
        server.add_sockets([bound])
        _obey(pipe, bound.getsockname()[1], broadcast)
        await asyncio.Event().wait()

    asyncio.run(main())


def _obey(pipe: Pipe, port: int, notify: Callable[[int], object]) -> None:
    """Send a notification for each number that comes; answer a 0, which comes after all that is under way."""

    def command() -> None:
        position = pipe.recv()
        if position:
            notify(position)
        else:
            pipe.send(0)

    asyncio.get_running_loop().add_reader(pipe.fileno(), command)
    pipe.send(port)


def hold_clients(pipe: Pipe) -> None:
    """Connect a number of clients to a port, then say each time when all have read a number of bytes."""
    port, count = pipe.recv()
    poll = select.epoll()
    clients: dict[int, socket.socket] = {}
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", port))
        key = base64.b64encode(os.urandom(16)).decode()
        client.sendall(
            f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nAuthorization: Bearer ana\r\n\r\n".encode()
        )
        received = b""
        while not received.endswith(b'{"ready":true}'):
            piece = client.recv(4096)
            if not piece:
                raise SystemExit(f"a client was not let in: {received!r}")
            received += piece
        client.setblocking(False)
        poll.register(client, select.EPOLLIN)
        clients[client.fileno()] = client
    pipe.send(0)
    while expected := pipe.recv():
        left = expected * count
        while left > 0:
            for number, _ in poll.poll(10, 8192) or _gave_up(left):
                left -= len(clients[number].recv(65_536))
        pipe.send(left)


def _gave_up(left: int) -> list[tuple[int, int]]:
    raise SystemExit(f"{left} bytes of a notification did not arrive")


@dataclass(frozen=True)
class ServerCost:
    """What one server cost with a number of clients."""

    server: str
    clients: int
    microseconds: float
    """CPU time per delivered message."""
    bytes_per_connection: float


def measure(name: str, serve: Callable[[Pipe], None], clients: int, notifications: int) -> ServerCost:
    """Start a server and its clients, and send notifications."""
    context = multiprocessing.get_context("spawn")
    to_server, server_end = context.Pipe()
    to_clients, clients_end = context.Pipe()
    server = context.Process(target=serve, args=(server_end,), daemon=True)
    holder = context.Process(target=hold_clients, args=(clients_end,), daemon=True)
    server.start()
    holder.start()
    try:
        port = to_server.recv()
        process = psutil.Process(server.pid)

        def resident() -> int:
            to_server.send(0)
            to_server.recv()
            return int(process.memory_info().rss)

        before = resident()
        to_clients.send((port, clients))
        to_clients.recv()
        held = (resident() - before) / clients

        def notify(position: int) -> None:
            text = json.dumps({"stream": STREAM, "position": position}, separators=(",", ":"))
            to_clients.send(len(text) + 2)
            to_server.send(position)
            if to_clients.recv() != 0:
                raise SystemExit(f"{name} sends other frames than it should")

        for position in range(1, 4):  # to warm up
            notify(position)
        begun = sum(process.cpu_times()[:2])
        for position in range(1000, 1000 + notifications):
            notify(position)
        spent = sum(process.cpu_times()[:2]) - begun
        return ServerCost(name, clients, spent / (notifications * clients) * 1e6, held)
    finally:
        for child in (holder, server):
            child.kill()
            child.join()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    arguments.add_argument("--clients", type=int, nargs="+", default=[1000, 5000])
    arguments.add_argument("--messages", type=int, default=200_000, help="delivered in each round")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    needed = max(options.clients) + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), hard))

    rounds: list[ServerCost] = []
    for clients in options.clients:
        for _ in range(options.rounds):
            for name, serve in (("newsstand", serve_hub), ("tornado", serve_tornado)):
                rounds.append(measure(name, serve, clients, options.messages // clients))
                print(rounds[-1], file=sys.stderr)
    compared = [compare(rounds, clients) for clients in options.clients]
    if options.json:
        print(json.dumps({"compared": compared, "rounds": [asdict(each) for each in rounds]}, indent=2))
        return
    print(
        "| clients | ours µs/message | Tornado µs/message | ratio | ours bytes/connection | Tornado's | verdict |"
    )
    print("|---|---|---|---|---|---|---|")
    for row in compared:
        print(
            f"| {row['clients']:,} | {row['microseconds']:.1f} | {row['tornado_microseconds']:.1f} "
            f"| {row['ratio']:.1f}x | {row['bytes']:,.0f} | {row['tornado_bytes']:,.0f} | {row['verdict']} |"
        )


def compare(rounds: list[ServerCost], clients: int) -> dict[str, float | str]:
    """Medians of the rounds, side by side."""

    def median(server: str, field: str) -> float:
        return statistics.median(
            getattr(each, field) for each in rounds if (each.server, each.clients) == (server, clients)
        )

    ratio = median("tornado", "microseconds") / median("newsstand", "microseconds")
    held = median("newsstand", "bytes_per_connection")
    good = ratio >= LOWEST_RATIO and held <= MOST_BYTES
    return {
        "clients": clients,
        "microseconds": median("newsstand", "microseconds"),
        "tornado_microseconds": median("tornado", "microseconds"),
        "ratio": ratio,
        "bytes": held,
        "tornado_bytes": median("tornado", "bytes_per_connection"),
        "verdict": f"{'OK' if good else 'MISSED'} (at least {LOWEST_RATIO:g}x, at most {MOST_BYTES:,} bytes)",
    }


if __name__ == "__main__":
    main()
