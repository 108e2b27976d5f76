"""A link that takes time: passes bytes on between its own port and a server, each piece so much later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

PIECE = 1 << 16


@asynccontextmanager
async def slow_link(url: str, delay_s: float) -> AsyncIterator[str]:
    """The address of a server with half of `delay_s` on the way there and half on the way back."""
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
    """Until the sender is done; what follows closely does not wait for what is under way."""
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
