"""Tests that run on an event loop of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


def run(story: Callable[[], Awaitable[None]]) -> None:
    """Run a test on an event loop of its own, for 20 seconds at most."""

    async def patiently() -> None:
        await asyncio.wait_for(story(), 20)

    asyncio.run(patiently())
