"""The channels of the data cluster, as far as a broker has to know them: what parameters they have."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from newsstand.broker.store import Store
from newsstand.errors import NewsstandError, NotFound
from newsstand.model import Channel, Scalar

logger = logging.getLogger(__name__)
BELIEVED_S = 30.0
"""How long the list is believed."""


class ChannelList:
    """A list that is asked for when it is old; an old one is better than none, also after a restart."""

    def __init__(self, ask: Callable[[], Awaitable[dict[str, Channel]]], store: Store | None = None) -> None:
        """`store`: keep the list there, and begin with the one that is there."""
        self._ask = ask
        self._store = store
        self._asked = -math.inf
        self._asking: asyncio.Task[dict[str, Channel]] | None = None
        self._kept = store.recall("channels") if store is not None else None
        self.known: dict[str, Channel] = {}
        self.is_told = False
        """Whether the cluster has told its channels, now or before a restart: until then no rule is known."""
        if self._kept is not None:
            try:
                self.known, self.is_told = msgspec.json.decode(self._kept, type=dict[str, Channel]), True
            except msgspec.DecodeError:  # of another version
                logger.warning("the kept list of channels is not read; the data cluster is asked")

    async def get(self, older_than_s: float = BELIEVED_S) -> dict[str, Channel]:
        """All channels by name; asked for if the list is older than that."""
        if time.monotonic() - self._asked >= older_than_s:
            if self._asking is None or self._asking.done():  # of many at once, one asks for all
                self._asking = asyncio.create_task(self._fresh())
            try:
                self.known = await asyncio.shield(self._asking)
            except NewsstandError:
                if not self.is_told:
                    raise
            self.is_told = True
            self._asked = time.monotonic()
        return self.known

    async def told(self) -> None:
        """Wait until the channels are known; raise what keeps the cluster from telling them."""
        if not self.is_told:
            await self.get(math.inf)

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
        channels = await self._ask()
        text = msgspec.json.encode(channels).decode()
        if self._store is not None and text != self._kept:
            try:
                await asyncio.to_thread(self._store.remember, "channels", text)
                self._kept = text
            except Exception:  # the list is good all the same
                logger.exception("the list of channels is not kept")
        return channels
