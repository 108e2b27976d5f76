"""The channels of the data cluster, as far as a broker has to know them: what parameters they have."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence

from newsstand.errors import NewsstandError, NotFound
from newsstand.model import Channel, Scalar

BELIEVED_S = 30.0
"""How long the list is believed."""


class ChannelList:
    """A list that is asked for when it is old; an old one is better than none."""

    def __init__(self, ask: Callable[[], Awaitable[dict[str, Channel]]]) -> None:
        self._ask = ask
        self._asked = -math.inf
        self._asking: asyncio.Task[dict[str, Channel]] | None = None
        self.known: dict[str, Channel] = {}

    async def get(self, older_than_s: float = BELIEVED_S) -> dict[str, Channel]:
        """All channels by name; asked for if the list is older than that."""
        if time.monotonic() - self._asked >= older_than_s:
            if self._asking is None or self._asking.done():  # of many at once, one asks for all
                self._asking = asyncio.create_task(self._fresh())
            try:
                self.known = await asyncio.shield(self._asking)
            except NewsstandError:
                if not self.known:
                    raise
            self._asked = time.monotonic()
        return self.known

    async def find(self, name: str) -> Channel:
        """One channel; raise NotFound."""
        channels = await self.get()
        if name not in channels:
            channels = await self.get(older_than_s=1.0)  # it may be new
        if name not in channels:
            raise NotFound(f"there is no channel '{name}'")
        return channels[name]

    def named(self, channel: str, values: Sequence[Scalar]) -> dict[str, Scalar]:
        """The values of a channel's parameters by name; empty if the channel is not known."""
        known = self.known.get(channel)
        names = [one.name for one in known.parameters] if known is not None else []
        return dict(zip(names, values, strict=False))

    async def _fresh(self) -> dict[str, Channel]:
        return await self._ask()
