"""What experiments add to a platform: many subscribers at once, and links to the cluster that are slow.

Subscribers are written into a broker's store before it starts, and no password is hashed for them. The broker must
stand alone: its secret makes sessions for everybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from newsstand.auth.credentials import SharedKeys
from newsstand.auth.tokens import SubscriberTokens
from newsstand.broker.sessions.state import Adopt, frontend_id
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.http.server import make_private_folder
from newsstand.model import Scalar
from newsstand.wire.subscribers import SessionRecord, SubscriberRecord, SubscriptionRecord

Subscribed = tuple[str, list[Scalar]]
"""A channel, and values in the order of its parameters."""

SESSION_S = 24 * 3600


def enrol(data: Path, people: Mapping[str, Sequence[Subscribed]], now_s: int) -> None:
    """Add subscribers to the store of a broker, each with a session and subscriptions."""
    make_private_folder(data)
    store = SubscriberStore(data / "broker.sqlite", replicate=False)
    try:
        store.write([Adopt(_record(name, subscribed, now_s)) for name, subscribed in people.items()])
    finally:
        store.close()


def access_token(name: str, secret: str, now_s: int) -> str:
    """Return a token for the session of a subscriber that `enrol` added."""
    tokens = SubscriberTokens(SharedKeys.of(secret).subscribers)
    return tokens.access(name, _session(name), None, now_s, SESSION_S)


def _record(name: str, subscribed: Sequence[Subscribed], now_s: int) -> SubscriberRecord:
    session = SessionRecord(1, (now_s + SESSION_S) * 1000)
    held = {
        frontend_id(name, channel, values): SubscriptionRecord(channel, values, 0)
        for channel, values in subscribed
    }
    return SubscriberRecord(name, "$argon2id$none", {_session(name): session}, held)


def _session(name: str) -> str:
    return f"s-{name}"


PIECE = 1 << 16


@asynccontextmanager
async def slow_link(url: str, delay_s: float) -> AsyncIterator[str]:
    """Yield an address that forwards to a server, with half of `delay_s` in each direction."""
    parts = urlsplit(url)
    open_links: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_links.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                there, back = await asyncio.open_connection(parts.hostname, parts.port)
                await asyncio.gather(_pass_on(reader, back, delay_s / 2), _pass_on(there, writer, delay_s / 2))
        finally:
            writer.close()
            open_links.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"{parts.scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(open_links):
            task.cancel()
        await asyncio.gather(*open_links, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Forward bytes until the sender is done; pieces under way do not delay later ones."""
    loop = asyncio.get_running_loop()
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def arrive() -> None:
        while True:
            due, piece = await under_way.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            with suppress(OSError):
                writer.write_eof()

    arriving = asyncio.create_task(arrive())
    try:
        while piece := await reader.read(PIECE):
            under_way.put_nowait((loop.time() + delay_s, piece))
        under_way.put_nowait((loop.time() + delay_s, b""))
        await arriving
    finally:
        arriving.cancel()
