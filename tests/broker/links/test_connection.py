"""Connections of two brokers over a pair of sockets, and the dialling of addresses without a neighbour."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

import pytest
from websockets.asyncio.connection import Connection
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.protocol import Event, Protocol, Side, State

from newsstand.broker.links.connection import (
    Hello,
    LinkError,
    PeerConnection,
    PeerConnectionLimits,
    accepted_socket,
    dial,
)
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import Message, Publication, Publish, Subscribe, batch_of, decode_batch, encode
from newsstand.wire.notifications import CloseCode

LIMITS = PeerConnectionLimits()
SHORT = PeerConnectionLimits(ping_s=0.05, silence_s=0.4)


def messages(count: int, size: int = 2) -> list[Message]:
    return [Publish(Publication("b1", number, "storms", {}, bytes(size))) for number in range(count)]


class Neighbour(Connection):
    """A WebSocket of the library that records the frames that it receives."""

    def __init__(self) -> None:
        super().__init__(Protocol(Side.CLIENT, state=State.OPEN, max_size=None), ping_interval=None)
        self.opcodes: set[Opcode] = set()

    def process_event(self, event: Event) -> None:
        assert isinstance(event, Frame)
        self.opcodes.add(event.opcode)
        super().process_event(event)


class Ends:
    """A connection, its neighbour, and what the connection has reported."""

    def __init__(self, neighbour: Neighbour) -> None:
        self.connection: PeerConnection
        self.neighbour = neighbour
        self.received: list[Message] = []
        self.lost: list[str] = []

    async def wait(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.01)


def with_ends(story: Callable[[Ends], Awaitable[None]], limits: PeerConnectionLimits = LIMITS) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        _, neighbour = await loop.create_connection(Neighbour, sock=theirs)
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        ends = Ends(neighbour)
        ends.connection = PeerConnection(
            accepted_socket(transport), ends.received.extend, lambda _, why: ends.lost.append(why), limits
        )
        await story(ends)
        ends.connection.close(1000, "")
        neighbour.transport.abort()
        await ends.connection.closed()

    asyncio.run(run())


async def read(neighbour: Connection, count: int) -> list[Sequence[Message]]:
    """Return batches of the connection, up to a number of messages."""
    batches: list[Sequence[Message]] = []
    async with asyncio.timeout(10):
        while sum(map(len, batches)) < count:
            data = await neighbour.recv()
            assert isinstance(data, bytes)
            batches.append(decode_batch(data))
    return batches


def test_peer_connection_batches_messages_in_order() -> None:
    async def story(ends: Ends) -> None:
        sent = messages(5)
        for message in sent:
            ends.connection.send(message)
        assert await read(ends.neighbour, 5) == [sent]
        wanted: list[Message] = [Subscribe(Filter.parse("true"))]
        await ends.neighbour.send(batch_of([encode(one) for one in wanted]))
        await ends.wait(lambda: ends.received == wanted)
        assert not ends.lost

    with_ends(story)


def test_peer_connection_bounds_batches() -> None:
    async def story(ends: Ends) -> None:
        sent = messages(500, 40_000)
        for message in sent:
            ends.connection.send(message)
        batches = await read(ends.neighbour, 500)
        assert [message for batch in batches for message in batch] == sent
        assert max(map(len, batches)) == 1024 * 1024 // len(encode(sent[-1]))
        await ends.wait(lambda: ends.connection.unsent_bytes == 0)
        assert not ends.lost

    with_ends(story)


def test_peer_connection_limits_messages_of_a_batch() -> None:
    async def story(ends: Ends) -> None:
        for message in messages(7):
            ends.connection.send(message)
        assert [len(batch) for batch in await read(ends.neighbour, 7)] == [3, 3, 1]

    with_ends(story, PeerConnectionLimits(batch=3))


def test_peer_connection_closed_when_neighbour_stops_reading() -> None:
    async def story(ends: Ends) -> None:
        for message in messages(200, 100_000):
            ends.connection.send(message)
            await asyncio.sleep(0)
        assert ends.lost == ["stopped reading"]
        ends.connection.send(messages(1)[0])
        with pytest.raises(ConnectionClosed) as closed:
            await read(ends.neighbour, 200)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (CloseCode.TOO_SLOW, "stopped reading")
        await ends.connection.closed()
        assert ends.lost == ["stopped reading"], "lost is called once"

    with_ends(story, PeerConnectionLimits(unsent_bytes=10_000_000))


def test_peer_connection_aborted_when_neighbour_never_reads() -> None:
    async def story(ends: Ends) -> None:
        ends.neighbour.transport.pause_reading()
        for message in messages(200, 100_000):
            ends.connection.send(message)
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await ends.connection.closed()
        assert ends.lost == ["stopped reading"]

    with_ends(story, PeerConnectionLimits(unsent_bytes=10_000_000, linger_s=0.1))


def test_peer_connection_pings_and_closes_silent_neighbour() -> None:
    async def story(ends: Ends) -> None:
        await asyncio.sleep(0.8)
        assert not ends.lost, "the library answers pings"
        ends.neighbour.transport.pause_reading()
        await ends.wait(lambda: ends.lost)
        assert ends.lost == ["sent nothing for 0.4 s"]

    with_ends(story, SHORT)


def test_peer_connection_open_while_large_batch_arrives_slowly() -> None:
    async def story(ends: Ends) -> None:
        ends.neighbour.transport.pause_reading()  # its pongs would wait behind the batch
        sent = messages(1, 1_000_000)
        frame = Frame(Opcode.BINARY, batch_of([encode(one) for one in sent])).serialize(mask=True)
        for start in range(0, len(frame), 100_000):
            ends.neighbour.transport.write(frame[start : start + 100_000])
            await asyncio.sleep(0.1)
        await ends.wait(lambda: ends.received == sent)
        assert not ends.lost

    with_ends(story, SHORT)


def test_peer_connection_open_while_neighbour_pings_and_pongs_are_late() -> None:
    async def story(ends: Ends) -> None:
        ends.neighbour.transport.pause_reading()  # as if a large batch were on its way to it
        for _ in range(10):
            await ends.neighbour.ping()
            await asyncio.sleep(0.1)
        assert not ends.lost

    with_ends(story, SHORT)


def test_peer_connection_pings_while_batches_arrive() -> None:
    async def story(ends: Ends) -> None:
        batch = batch_of([encode(one) for one in messages(1)])
        while Opcode.PING not in ends.neighbour.opcodes:
            await ends.neighbour.send(batch)
            await asyncio.sleep(0.01)

    with_ends(story, SHORT)


DEEP = b"\x91\x93\xa9subscribe\xa5a = 1" + b"\x91" * 200_000 + b"\xc0"


@pytest.mark.parametrize("frame", ["a text", b"\xc1 is not MessagePack", DEEP], ids=["text", "bytes", "deep"])
def test_peer_connection_closed_when_batch_is_malformed(frame: str | bytes) -> None:
    async def story(ends: Ends) -> None:
        await ends.neighbour.send(frame)
        with pytest.raises(ConnectionClosed) as closed:
            await ends.neighbour.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == CloseCode.MALFORMED
        assert len(ends.lost) == 1

    with_ends(story)


def test_peer_connection_closed_when_batch_fails() -> None:
    async def story(ends: Ends) -> None:
        def fail(_: list[Message]) -> None:
            raise RuntimeError("failed")

        closed: list[PeerConnection] = []
        ends.connection.received, ends.connection.on_close = fail, closed.append
        await ends.neighbour.send(batch_of([encode(one) for one in messages(1)]))
        with pytest.raises(ConnectionClosed) as end:
            await ends.neighbour.recv()
        assert end.value.rcvd is not None
        assert end.value.rcvd.code == CloseCode.INTERNAL_ERROR
        await ends.connection.closed()
        assert (ends.lost, closed) == (["a batch failed"], [ends.connection])

    with_ends(story)


@pytest.mark.parametrize("url", ["http://a..b:1", f"http://{'a' * 64}.b:1", "http://a:99999", "http://[::1", "x"])
def test_dial_rejects_invalid_addresses(url: str) -> None:
    with pytest.raises(LinkError):
        asyncio.run(dial(url, "key", Hello("b1"), None))
