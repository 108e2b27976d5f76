"""How a broker opens a link to a neighbour: a WebSocket at its `/overlay`, and a greeting from both sides."""

from __future__ import annotations

import asyncio
import ssl
from typing import NamedTuple, cast

import msgspec
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidURI
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from newsstand.broker.overlay_line import LARGEST_FRAME
from newsstand.errors import NewsstandError

PATIENCE_S = 5.0
"""How long a neighbour may take to answer."""


class NoLink(NewsstandError):
    """A neighbour does not answer, or does not want the link."""


class Hello(msgspec.Struct, frozen=True):
    """Who speaks, and which version of the tree it knows."""

    name: str
    version: int = 0


class Greeting(msgspec.Struct, frozen=True):
    """The first message of each side."""

    hello: Hello


class Dialled(NamedTuple):
    """A connection to a neighbour, with what has come over it after the greeting."""

    transport: asyncio.Transport
    frames: ClientProtocol
    early: list[Frame]
    hello: Hello


async def dial(url: str, key: str, hello: Hello, tls: ssl.SSLContext | None) -> Dialled:
    """A connection to a neighbour over which both have said who they are; NoLink if there is none."""
    address = "ws" + url.removeprefix("http").rstrip("/") + "/overlay"
    try:
        uri = parse_uri(address)
    except (InvalidURI, ValueError) as error:
        raise NoLink(f"{url}: is no address of a broker") from error
    loop = asyncio.get_running_loop()
    context = (tls or ssl.create_default_context()) if uri.secure else None
    try:
        async with asyncio.timeout(PATIENCE_S):
            transport, dialling = await loop.create_connection(
                lambda: _Dialling(ClientProtocol(uri, max_size=LARGEST_FRAME), key, hello),
                uri.host,
                uri.port,
                ssl=context,
            )
            try:
                return Dialled(transport, dialling.frames, dialling.early, await dialling.answer)
            except BaseException:
                transport.abort()
                raise
    except TimeoutError:
        raise NoLink(f"{url} does not answer") from None
    except (OSError, ValueError) as error:
        raise NoLink(f"{url} cannot be reached ({getattr(error, 'strerror', None) or error})") from error


class _Dialling(asyncio.Protocol):
    """A connection until the other side has greeted."""

    def __init__(self, frames: ClientProtocol, key: str, hello: Hello) -> None:
        self.frames = frames
        self._key = key
        self._hello = hello
        self._transport: asyncio.Transport | None = None
        self.early: list[Frame] = []
        self.answer: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        request = self.frames.connect()
        request.headers["Authorization"] = f"Bearer {self._key}"
        self.frames.send_request(request)
        self._write()

    def data_received(self, data: bytes) -> None:
        self.frames.receive_data(data)
        for event in self.frames.events_received():
            if isinstance(event, Response) and self.frames.state is State.OPEN:
                self.frames.send_text(msgspec.json.encode(Greeting(self._hello)))
            elif isinstance(event, Frame) and self.answer.done():
                self.early.append(event)
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                self._greeted(bytes(event.data))
        self._write()
        refused = self.frames.handshake_exc
        if isinstance(refused, InvalidHandshake):
            self._fail(str(refused))
        elif self.frames.close_rcvd is not None:
            self._fail(f"{self.frames.close_rcvd.code} {self.frames.close_rcvd.reason}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the connection was lost")

    def _greeted(self, text: bytes) -> None:
        try:
            greeting = msgspec.json.decode(text, type=Greeting)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._fail(f"a greeting is not understood: {error}")
            return
        if not self.answer.done():
            self.answer.set_result(greeting.hello)

    def _fail(self, why: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(NoLink(why))

    def _write(self) -> None:
        out = b"".join(self.frames.data_to_send())
        if out and self._transport is not None:
            self._transport.write(out)
