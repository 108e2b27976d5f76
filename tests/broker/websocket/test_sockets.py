"""WebSockets of a broker: real servers and real clients, also misbehaving ones."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from support.broker.socket_server import NEVER, STREAM, SocketServer, masked, socket_server
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from newsstand.broker.websocket.hub import NotifiedConnections

READY = {"ready": True}


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def shared(request: pytest.FixtureRequest) -> Iterator[SocketServer]:
    with socket_server(token_s=0.3, loop=request.param) as server:
        yield server


@pytest.fixture
def server(shared: SocketServer) -> Iterator[SocketServer]:
    """A server without state of earlier tests."""
    yield shared
    shared.follows = {STREAM: None}
    shared.do(shared.durable.set)
    shared.acknowledged.clear()
    shared.do(lambda: shared.hub.close(1000, ""))
    shared.until(lambda: len(shared.hub) == 0)


def received(client: ClientConnection) -> object:
    return json.loads(client.recv(5))


def reported(stream: str, position: int) -> dict[str, object]:
    return {"stream": stream, "position": position}


def closed(client: ClientConnection) -> int:
    """Return the close code of the server."""
    try:
        while True:
            client.recv(8)
    except ConnectionClosed as end:
        return end.rcvd.code if end.rcvd else 1006


def test_notification_reaches_only_followers(server: SocketServer) -> None:
    with server.client("ana") as ana, server.client("ana") as again, server.client("bo") as bo:
        assert received(ana) == received(again) == received(bo) == READY
        server.do(lambda: server.hub.unfollow("bo", STREAM))
        server.do(lambda: server.hub.follow("bo", "its own"))
        assert server.notify(7) == 2
        assert server.notify(3, stream="its own") == 1
        assert server.notify(1, stream="nobody's") == 0
        assert received(ana) == received(again) == reported(STREAM, 7)
        assert received(bo) == reported("its own", 3)
        assert server.do(lambda: (len(server.hub), server.hub.subscribers)) == (3, 2)
    server.until(lambda: not server.hub.online("ana") and not server.hub.online("bo"))
    assert server.notify(8) == 0


def test_pending_streams_notified_before_ready(server: SocketServer) -> None:
    server.follows = {"a": 4, "b": None, "c": 9}
    with server.client() as client:
        assert [received(client) for _ in range(3)] == [reported("a", 4), reported("c", 9), READY]
        server.notify(5, stream="b")
        assert received(client) == reported("b", 5)


def test_token_accepted_as_first_message(server: SocketServer) -> None:
    with server.client(None) as client:
        client.send('{"token": "ana"}')
        assert received(client) == READY


def test_messages_answered_in_order(server: SocketServer) -> None:
    with server.client() as client:
        client.send('{"ack": {"s1": 4, "s2": 0}}')
        for number in range(1000):
            client.send(json.dumps({"ping": [number, "é", None]}, ensure_ascii=False))
        client.send('{"ack": {"s1": 5}}')
        client.send(["{", '"ping"', ': "in pieces"', "}"])
        assert received(client) == READY
        assert received(client) == {"acked": {"s1": 4, "s2": 0}}
        for number in range(1000):
            assert received(client) == {"pong": [number, "é", None]}
        assert received(client) == {"acked": {"s1": 5}}
        assert received(client) == {"pong": "in pieces"}
        assert client.ping().wait(5)
    assert server.acknowledged == [("ana", {"s1": 4, "s2": 0}), ("ana", {"s1": 5})]


def test_connection_survives_a_slow_acknowledgement(server: SocketServer) -> None:
    server.do(server.durable.clear)
    with server.client() as client:
        assert received(client) == READY
        client.send('{"ack": {"s": 1}}')
        server.until(lambda: next(iter(server.hub)).busy)
        server.do(lambda: [server.hub.sweep(now) for now in range(0, 100_000, 1000)])
        server.do(server.durable.set)
        assert received(client) == {"acked": {"s": 1}}


def test_connection_not_read_during_an_acknowledgement(server: SocketServer) -> None:
    """A client that sends endlessly while the disk is slow fills its own buffers, not the broker's."""
    server.do(server.durable.clear)
    with server.raw() as client:
        client.sendall(masked(b'{"ack": {"s": 1}}'))
        _send_until_nobody_reads(client, masked(b'{"ping": "%s"}' % (b"x" * 60_000)))
        server.notify(5)
        assert b'"position":5' in client.recv(100)
        server.do(server.durable.set)
        client.settimeout(5)
        assert b'"acked"' in client.recv(100)


@pytest.mark.parametrize(
    "message",
    [
        "garbage",
        "{}",
        "[]",
        "null",
        '{"ack": 3}',
        '{"ack": {"s": -1}}',
        '{"ack": {"s": 1.5}}',
        '{"ack": {"s": 18446744073709551616}}',
        '{"ack": {"s": 1}, "ping": 1}',
        '{"ping": 1} ',
        '{"token": "ana"}',
        '{"ack": {"unknown": 1}}',
        '{"ping": ' + "[" * 30_000 + "]" * 30_000 + "}",
        b'{"ping": 1}',
    ],
)
def test_connection_closed_by_malformed_message(server: SocketServer, message: str | bytes) -> None:
    with server.client() as client:
        client.send(message)
        if message == '{"ping": 1} ':  # white space is no fault
            assert [received(client), received(client)] == [READY, {"pong": 1}]
        else:
            assert closed(client) == 4000


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (masked(b'{"ping": "\xff"}'), 4000),
        (b"\xff" * 100, 1002),
        (b"GET / HTTP/1.1\r\n\r\n", 1002),
        (b"\x81\x02{}", 1002),
        (masked(b"x" * 65_537), 1009),
        (masked(b"x" * 40_000, 0x01) + masked(b"x" * 40_000, 0x80), 1009),
    ],
    ids=["not UTF-8", "noise", "HTTP", "no mask", "too large", "too large in pieces"],
)
def test_connection_closed_by_broken_frames(server: SocketServer, frames: bytes, code: int) -> None:
    with server.raw() as client:
        client.sendall(frames)
        assert _close_code(_rest(client)) == code


def test_message_of_the_largest_size_accepted(server: SocketServer) -> None:
    with server.client() as client:
        client.send('{"ping": "' + "x" * (65_536 - 12) + '"}')
        assert received(client) == READY
        assert len(received(client)["pong"]) == 65_524  # type: ignore[index]


def test_message_of_hundred_megabytes_rejected_at_its_header(server: SocketServer) -> None:
    with server.client() as client:
        assert received(client) == READY
        with suppress(ConnectionClosed):
            client.send("x" * 100_000_000)
        assert closed(client) == 1009


def test_endless_empty_fragments_use_no_memory(server: SocketServer) -> None:
    with server.raw() as client:
        client.sendall(masked(b"", 0x01))
        for _ in range(5):
            client.sendall(masked(b"", 0x00) * 10_000)
        client.sendall(masked(b'{"ping": 1}', 0x80))
        client.settimeout(5)
        assert b'{"pong":1}' in client.recv(100)


def test_connection_closed_without_a_token(server: SocketServer) -> None:
    with server.client(None) as silent, server.client("nobody") as unknown, server.client(None) as wrong:
        wrong.send('{"token": "nobody"}')
        assert closed(wrong) == closed(unknown) == closed(silent) == 4001
    with server.client(None) as client:
        client.send('{"ping": 1}')
        assert closed(client) == 4000
    assert server.do(lambda: len(server.hub)) == 0


def test_connection_closed_when_the_app_fails(server: SocketServer, caplog: pytest.LogCaptureFixture) -> None:
    with server.client("failing") as client:
        assert closed(client) == 1011
    assert "ZeroDivisionError" in caplog.text


def test_connection_closed_when_its_token_expires(server: SocketServer) -> None:
    with server.client("ana until 1000") as ana, server.client("bo") as bo:
        assert received(ana) == received(bo) == READY
        server.do(lambda: server.hub.sweep(999))
        server.notify(1)
        assert received(ana) == reported(STREAM, 1)
        server.do(lambda: server.hub.sweep(1000))
        assert closed(ana) == 4001
        assert received(bo) == reported(STREAM, 1)


def test_connections_of_sessions_and_subscribers_closed(server: SocketServer) -> None:
    with server.client("ana") as ana, server.client("bo") as bo, server.client("cy") as cy:
        assert received(ana) == received(bo) == received(cy) == READY
        close = server.hub.close
        assert server.do(lambda: close(4001, "", subscriber="ana", session="another")) == 0
        assert server.do(lambda: close(4001, "", subscriber="ana", session="session of ana")) == 1
        assert server.do(lambda: close(4003, "moved " * 100, subscriber="bo")) == 1
        assert server.do(lambda: close(1012, "")) == 1
        assert (closed(ana), closed(bo), closed(cy)) == (4001, 4003, 1012)
        assert server.do(lambda: len(server.hub)) == 0


def test_paused_client_receives_newest_positions_later(server: SocketServer) -> None:
    server.follows = {"a": None, "b": None}
    with server.raw("slow") as slow:
        connection = server.do(lambda: next(iter(server.hub)))
        position = 0
        while not server.do(lambda: connection.queued):
            position += 1000
            for_a = range(position - 999, position + 1)
            server.do(lambda for_a=for_a: [server.hub.notify("a", n, 1) for n in for_a])  # type: ignore[misc]
            server.notify(position, stream="b")
        server.do(lambda: [server.hub.notify("a", position + n, 1) for n in range(1, 5001)])
        server.notify(position + 1, stream="b")
        assert server.do(lambda: connection.queued) == 2
        written = server.do(connection.transport.get_write_buffer_size)
        assert 65_536 < written < 70_000
        newest = {"a": position + 5000, "b": position + 1}
        slow.settimeout(5)
        text = b""
        while f'"position":{position + 1}}}'.encode() not in text or str(position + 5000).encode() not in text:
            text += slow.recv(65_536)
        last = {}
        for stream, at in re.findall(rb'"stream":"(.)","position":(\d+)', text):
            assert int(at) > last.get(stream.decode(), 0)
            last[stream.decode()] = int(at)
        assert last == newest
        assert server.do(lambda: connection.queued) == 0
        server.notify(position + 5001, stream="a")
        assert str(position + 5001).encode() in slow.recv(1000)
        assert server.do(lambda: len(server.hub)) == 1


INLINE = "?results=inline"


def reported_with(position: int, *results: int) -> dict[str, object]:
    return {**reported(STREAM, position), "results": list(results)}


def test_results_sent_to_those_that_want_them_in_one_frame(server: SocketServer) -> None:
    with server.client("ana", INLINE) as ana, server.client("bo") as bo, server.client("cy", INLINE) as cy:
        assert received(ana) == received(bo) == received(cy) == READY
        asked: list[int] = []
        written: list[bytes] = []

        def results() -> list[bytes]:
            asked.append(1)
            return [b"6", b"7"]

        def notify() -> NotifiedConnections:
            for connection in server.hub:
                write = connection.transport.write
                connection.write = lambda frame, write=write: (written.append(frame), write(frame))[1]  # type: ignore[misc]
            return server.hub.notify(STREAM, 7, 0, results)

        assert server.do(notify) == (3, 2, [b"6", b"7"])
        assert received(ana) == received(cy) == reported_with(7, 6, 7)
        assert received(bo) == reported(STREAM, 7)
        assert asked == [1]
        assert len({id(frame) for frame in written}) == 2, "each frame is encoded once"
        assert server.notify_results(8) == (3, 0, ())
        assert received(ana) == received(bo) == received(cy) == reported(STREAM, 8)


def test_results_not_asked_for_if_nobody_wants_them(server: SocketServer) -> None:
    with server.client("bo") as bo:
        assert received(bo) == READY
        assert server.do(lambda: server.hub.notify(STREAM, 7, 0, lambda: [b"%d" % (1 // 0)])) == (1, 0, ())
        assert received(bo) == reported(STREAM, 7)


@pytest.mark.parametrize("query", ["?results=all", "?results=", "?results"])
def test_unknown_wish_for_results_rejected(server: SocketServer, query: str) -> None:
    with server.client("ana", query) as client:
        assert closed(client) == 4000
    assert server.do(lambda: len(server.hub)) == 0


def test_results_not_sent_after_a_token_has_expired(server: SocketServer) -> None:
    with server.client("ana until 1000", INLINE) as ana:
        assert received(ana) == READY
        assert server.notify_results(1, b"1", now=999) == (1, 1, (b"1",))
        assert server.notify_results(2, b"2", now=1000) == (1, 0, ())
        assert [received(ana), received(ana)] == [reported_with(1, 1), reported(STREAM, 2)]


def test_results_sent_only_in_the_lease_that_confirmed_the_subscriber(server: SocketServer) -> None:
    lease: int | None = 1
    confirmed: int | None = 1
    server.hub.lease, server.hub.lease_of = lambda: lease, lambda subscriber: confirmed
    try:
        with server.client("ana", INLINE) as ana:
            assert received(ana) == READY
            assert server.notify_results(1, b"1") == (1, 1, (b"1",))
            lease = 2
            server.do(lambda: server.hub.sweep(0))
            assert server.notify_results(2, b"2") == (1, 0, ())
            confirmed = 2  # as by its next read
            server.do(lambda: server.hub.sweep(0))
            assert server.notify_results(3, b"3") == (1, 1, (b"3",))
            lease = None
            assert server.notify_results(4, b"4") == (1, 0, ())
            confirmed = None
            server.do(lambda: server.hub.sweep(0))
            assert server.notify_results(5, b"5") == (1, 0, ()), "neither has a lease"
            expected = [reported_with(1, 1), reported(STREAM, 2), reported_with(3, 3)]
            expected += [reported(STREAM, 4), reported(STREAM, 5)]
            assert [received(ana) for _ in range(5)] == expected
    finally:
        server.hub.lease, server.hub.lease_of = lambda: 0, lambda subscriber: 0


def test_paused_client_receives_the_newest_position_without_results(server: SocketServer) -> None:
    payload = b'"%b"' % (b"x" * 16_000)
    with server.raw("slow", query=INLINE) as slow:
        connection = server.do(lambda: next(iter(server.hub)))
        position = 0
        while not server.do(lambda: connection.paused):
            position += 1
            server.notify_results(position, payload)
        written = server.do(connection.transport.get_write_buffer_size)
        assert 65_536 < written < 65_536 + 17_000
        for _ in range(1000):
            position += 1
            assert server.notify_results(position, payload) == (1, 0, ())
        assert server.do(connection.transport.get_write_buffer_size) <= written
        assert server.do(lambda: (connection.queued, connection.queued_bytes < 100)) == (1, True)
        slow.settimeout(5)
        text = b""
        while b'"position":%d}' % position not in text:
            text += slow.recv(65_536)
        assert server.notify_results(position + 1, b"1") == (1, 1, (b"1",))


def test_client_that_never_reads_is_closed(server: SocketServer) -> None:
    with server.raw("slow") as slow:
        connection = server.do(lambda: next(iter(server.hub)))
        while not server.do(lambda: connection.queued):
            server.do(lambda: [server.hub.notify(STREAM, n, 100) for n in range(1000)])
        server.do(lambda: server.hub.sweep(30_099))
        assert server.do(lambda: server.hub.online("slow"))
        server.do(lambda: server.hub.sweep(30_100))
        assert not server.do(lambda: server.hub.online("slow"))
        assert server.notify(5) == 0
        assert _close_code(_rest(slow)) == 4002


def test_client_that_never_answers_is_aborted() -> None:
    with socket_server(linger_s=0.2) as server, server.raw("slow") as slow:
        connection = server.do(lambda: next(iter(server.hub)))
        while not server.do(lambda: connection.queued):
            server.do(lambda: [server.hub.notify(STREAM, n, 100) for n in range(1000)])
        server.do(lambda: server.hub.sweep(40_000))
        server.until(connection.transport.is_closing, 2)
        assert b"stopped reading" not in _rest(slow)


def test_endless_pings_of_a_paused_client_use_little_memory(server: SocketServer) -> None:
    with server.raw("slow") as slow:
        connection = server.do(lambda: next(iter(server.hub)))
        _send_until_nobody_reads(slow, masked(b"p" * 125, 0x89) * 100)
        assert server.do(connection.transport.get_write_buffer_size) < 100_000
        assert server.do(lambda: connection.paused)


def test_silent_clients_are_pinged(server: SocketServer) -> None:
    with server.raw("frozen") as frozen, server.client("idle") as idle:
        assert received(idle) == READY
        for now in (0, 20_000, 40_000):
            server.do(lambda now=now: server.hub.sweep(now))  # type: ignore[misc]
            time.sleep(0.1)
        assert frozen.recv(100) == b"\x89\x00"
        server.do(lambda: server.hub.sweep(50_000))
        assert _close_code(_rest(frozen)) == 4002
        server.do(lambda: server.hub.sweep(NEVER - 1))
        server.notify(1)
        assert received(idle) == reported(STREAM, 1)


@pytest.mark.parametrize("goodbye", [b"", masked(b"", 0x88)], ids=["rudely", "politely"])
def test_acknowledgement_before_disconnect_counts(
    server: SocketServer, caplog: pytest.LogCaptureFixture, goodbye: bytes
) -> None:
    server.do(server.durable.clear)
    with server.raw() as client:
        client.sendall(masked(b'{"ack": {"s": 1}}') + masked(b'{"ack": {"s": 2}}') + goodbye)
    time.sleep(0.05)
    server.do(server.durable.set)
    server.until(lambda: server.acknowledged == [("ana", {"s": 1}), ("ana", {"s": 2})])
    server.until(lambda: len(server.hub) == 0)
    assert not caplog.text


def test_hub_forgets_two_hundred_connections(server: SocketServer) -> None:
    async def storm(name: str) -> int:
        count = 0
        for _ in range(3):
            headers = {"Authorization": f"Bearer {name}"}
            uri = f"ws://127.0.0.1:{server.port}/notifications"
            client = await connect_async(uri, additional_headers=headers, proxy=None, open_timeout=20)
            count += json.loads(await client.recv()) == READY
            client.transport.abort()
        return count

    async def storms() -> list[int]:
        return await asyncio.gather(*(storm(f"s{number % 50}") for number in range(200)))

    assert sum(asyncio.run(storms())) == 600
    server.until(lambda: len(server.hub) == 0 and server.hub.subscribers == 0)
    assert server.do(lambda: server.hub.streams) == set()


def test_connections_closed_when_the_server_stops() -> None:
    codes: list[int] = []

    def stay() -> None:
        with server.client() as client:
            codes.append(closed(client))

    with socket_server() as server:
        client = threading.Thread(target=stay)
        client.start()
        server.until(lambda: len(server.hub) == 1)
    client.join(5)
    assert codes == [1012]


def _send_until_nobody_reads(client: socket.socket, frames: bytes) -> None:
    client.settimeout(0.3)
    try:
        for _ in range(3000):
            client.sendall(frames)
    except TimeoutError:
        return
    raise AssertionError("the server reads without end")


def _rest(client: socket.socket) -> bytes:
    """Return everything until the server ends the connection."""
    client.settimeout(8)
    text = b""
    while piece := client.recv(65_536):
        text = (text + piece)[-200:]
        if b"\x88" in text[-125:]:
            client.sendall(masked(b"", 0x88))
    return text


def _close_code(text: bytes) -> int:
    at = text.rindex(b"\x88")
    return int.from_bytes(text[at + 2 : at + 4], "big")
