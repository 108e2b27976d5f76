"""Keeps the cluster's subscriptions of this broker equal to the streams that somebody follows here.

Whatever changes, a stream is marked, and one task tells the cluster of all that is marked in a few large calls: of
new streams at once, of numbers of frontends after a moment. What was not told stays marked, so it does not matter
whether the cluster was away, or forgot the broker, or the broker has just started.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from newsstand.broker.upstream import Away, Standing, Upstream, Wanted
from newsstand.errors import BadInput, NewsstandError, NotFound
from newsstand.model import Scalar

logger = logging.getLogger(__name__)
TOGETHER_S = 0.01
"""Those who come within this time go together."""
MOST = 50_000
"""Subscriptions in one call."""


@dataclass(slots=True)
class _Backend:
    channel: str
    values: tuple[Scalar, ...]
    frontends: int = 0
    told: int = 0


class Backends:
    """`stood` is called with where a stream stands each time the cluster was told of it.

    `register` tells the cluster where the broker is, and whether it was new there.
    """

    def __init__(
        self,
        upstream: Upstream,
        register: Callable[[], Awaitable[bool]],
        stood: Callable[[str, Standing], None],
        lazily_s: float = 1.0,
    ) -> None:
        self._upstream = upstream
        self._register = register
        self._stood = stood
        self._lazily_s = lazily_s
        self._backends: dict[str, _Backend] = {}
        self._marked: dict[str, None] = {}
        self._waiting: dict[str, list[asyncio.Future[Standing]]] = defaultdict(list)
        self._wake = asyncio.Event()

    def __contains__(self, stream: str) -> bool:
        return stream in self._backends

    def frontend(self, stream: str, channel: str, values: tuple[Scalar, ...], change: int) -> None:
        """One frontend more (+1) or less (-1) stands behind a stream."""
        backend = self._backends.get(stream)
        if backend is None:
            backend = self._backends[stream] = _Backend(channel, values)
        backend.frontends += change
        self._marked[stream] = None
        if backend.frontends in (0, change):  # not wanted any more, or new
            self._wake.set()
        else:
            asyncio.get_running_loop().call_later(self._lazily_s, self._wake.set)

    async def standing(self, stream: str) -> Standing:
        """Where a stream stands at the cluster now; Away if the cluster cannot be told of it."""
        waiting: asyncio.Future[Standing] = asyncio.get_running_loop().create_future()
        self._waiting[stream].append(waiting)
        self._marked[stream] = None
        self._wake.set()
        return await waiting

    def mark(self, stream: str) -> None:
        """Tell the cluster of a stream again."""
        if stream in self._backends:
            self._marked[stream] = None
            self._wake.set()

    def mark_all(self) -> None:
        """Tell the cluster of everything again."""
        self._marked.update(dict.fromkeys(self._backends))
        self._wake.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        pause = 0.0
        while True:
            await self._wake.wait()
            await asyncio.sleep(max(pause, TOGETHER_S))
            self._wake.clear()
            marked, self._marked = list(self._marked), {}
            try:
                await self._drop([key for key in marked if not self.frontends(key)])
                wanted = [key for key in marked if self.frontends(key)]
                for first in range(0, len(wanted), MOST):
                    await self._subscribe(wanted[first : first + MOST])
                pause = 0.0
            except NewsstandError as error:
                self._marked.update(dict.fromkeys(marked))
                self._wake.set()
                pause = min(5.0, max(0.1, pause * 2))
                logger.warning("the cluster could not be told of subscriptions: %s", error)
                self._fail(marked, error)

    def frontends(self, stream: str) -> int:
        """How many frontends stand behind a stream."""
        backend = self._backends.get(stream)
        return 0 if backend is None else backend.frontends

    async def _subscribe(self, streams: list[str]) -> None:
        backends = [self._backends[key] for key in streams]
        wanted = [Wanted(one.channel, one.values, one.frontends) for one in backends]
        try:
            answers = await self._upstream.subscribe(wanted)
        except BadInput as error:
            if isinstance(error, NotFound) and await self._register():
                self.mark_all()  # the cluster had forgotten this broker
                return
            if len(streams) > 1:  # all or none is taken: find the one that is not
                half = len(streams) // 2
                await self._subscribe(streams[:half])
                await self._subscribe(streams[half:])
                return
            logger.warning("the cluster does not take %s %s: %s", backends[0].channel, backends[0].values, error)
            self._fail(streams, error)
            return
        for stream, standing in answers:
            self._stood(stream, standing)
            for waiting in self._waiting.pop(stream, ()):
                if not waiting.done():
                    waiting.set_result(standing)
        self._fail(streams, Away("the data cluster does not say where the stream stands"))

    async def _drop(self, streams: list[str]) -> None:
        if streams:
            try:
                await self._upstream.drop(streams)
            except NotFound:  # the cluster has forgotten this broker, with all its subscriptions
                if await self._register():
                    self.mark_all()
            for stream in streams:
                if not self.frontends(stream):
                    self._backends.pop(stream, None)

    def _fail(self, streams: Iterable[str], error: NewsstandError) -> None:
        for stream in streams:
            for waiting in self._waiting.pop(stream, ()):
                if not waiting.done():
                    waiting.set_exception(error)
