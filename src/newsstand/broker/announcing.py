"""A broker that keeps copies says so to its origin, again and again: where it is, and what it has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from newsstand.broker.copies import Copies
from newsstand.broker.upstream import Upstream
from newsstand.errors import NewsstandError

logger = logging.getLogger(__name__)
AGAIN_S = 1.0
"""After an announcement that failed."""
MOST_ANNOUNCED = 10_000
"""Pages that are told of, the newest."""
IDLE_S = 30.0
"""How often an origin that does not push is asked whether it does now."""


class Announcer:
    """Announces the copies of one broker, from time to time and after each push.

    What it has is told as a whole, so that either side may start anew.
    """

    def __init__(self, upstream: Upstream, copies: Copies, where: Mapping[str, object]) -> None:
        """`where` has the addresses and the place that the origin is told."""
        self._upstream = upstream
        self._copies = copies
        self._where = where
        self._told = False
        self._leaving = False
        self._turn = asyncio.Lock()
        """One word at a time: the last one is the goodbye."""

    async def run(self) -> None:
        """Announce until cancelled, or withdrawn."""
        complaint = ""
        while True:
            try:
                async with self._turn:
                    if self._leaving:
                        return
                    pages = self._copies.paths[-MOST_ANNOUNCED:]
                    answer = await self._upstream.announce({**self._where, "pages": pages})
                self._told = answer.enabled
                pause = answer.lease_s / 3 if answer.enabled else IDLE_S
                complaint = ""
            except NewsstandError as error:
                pause = AGAIN_S
                if str(error) != complaint:
                    complaint = str(error)
                    logger.info("the origin was not told what is kept here: %s", error)
            except Exception:
                pause = AGAIN_S
                logger.exception("the origin was not told what is kept here")
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._copies.changed.wait()
            self._copies.changed.clear()

    async def withdraw(self) -> None:
        """Say that this broker goes, so that nobody is sent here in vain."""
        self._leaving = True
        async with self._turn:
            if self._told:
                await self._upstream.withdraw()
