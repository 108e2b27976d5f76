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
PATIENCE_S = 30.0
"""How long a subscriber waits for the cluster to be told of a new stream."""
MOST = 50_000
"""Subscriptions in one call."""


@dataclass(slots=True)
class _Backend:
    channel: str
    values: tuple[Scalar, ...]
    frontends: int = 0
    idle_since: float = 0.0


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
        linger_s: float = 10.0,
    ) -> None:
        self._upstream = upstream
        self._register = register
        self._stood = stood
        self._lazily_s = lazily_s
        self._linger_s = linger_s
        self._backends: dict[str, _Backend] = {}
        self._marked: dict[str, None] = {}
        self._waiting: dict[str, list[asyncio.Future[Standing]]] = defaultdict(list)
        self._wake = asyncio.Event()

    def __contains__(self, stream: str) -> bool:
        return stream in self._backends

    def more(self, stream: str, channel: str, values: tuple[Scalar, ...]) -> None:
        """One frontend more stands behind a stream."""
        backend = self._backends.get(stream)
        if backend is None or not backend.frontends:
            backend = self._backends[stream] = _Backend(channel, values)
        backend.frontends += 1
        self._marked[stream] = None
        self._wake_in(0 if backend.frontends == 1 else self._lazily_s)

    def fewer(self, stream: str) -> None:
        """One frontend less stands behind a stream. Without any it lingers: another broker may take it up."""
        backend = self._backends.get(stream)
        if backend is None:
            return
        backend.frontends -= 1
        self._marked[stream] = None
        if not backend.frontends:
            backend.idle_since = asyncio.get_running_loop().time()
        self._wake_in(self._lazily_s if backend.frontends else self._linger_s)

    def linger(self, streams: Iterable[str]) -> None:
        """Drop streams that the cluster has and nobody follows here, but only when they have lingered."""
        for stream in streams:
            if stream not in self._backends:
                self.more(stream, "", ())
                self.fewer(stream)

    def cluster_is_away(self) -> None:
        """Let streams linger anew: a broker that takes them up cannot tell the cluster now, either."""
        now = asyncio.get_running_loop().time()
        for stream, backend in self._backends.items():
            if not backend.frontends:
                backend.idle_since = now
                self._marked[stream] = None
                self._wake_in(self._linger_s)

    async def standing(self, stream: str) -> Standing:
        """Where a stream stands at the cluster now; Away if the cluster cannot be told of it."""
        waiting: asyncio.Future[Standing] = asyncio.get_running_loop().create_future()
        self._waiting[stream].append(waiting)
        self._marked[stream] = None
        self._wake.set()
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await waiting
        except TimeoutError:
            raise Away("the data cluster takes too long to answer") from None

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
                await self._tell(marked)
                pause = 0.0
            except Exception as error:
                self._marked.update(dict.fromkeys(marked))
                self.cluster_is_away()
                self._wake.set()
                pause = min(5.0, max(0.1, pause * 2))
                fault = error if isinstance(error, NewsstandError) else Away("the data cluster was not understood")
                if fault is not error:
                    logger.exception("the cluster could not be told of subscriptions")
                else:
                    logger.warning("the cluster could not be told of subscriptions: %s", error)
                self._fail(marked, fault)

    async def _tell(self, marked: list[str]) -> None:
        idle = [key for key in marked if not self.frontends(key)]
        over = asyncio.get_running_loop().time() - self._linger_s
        known = {key: self._backends[key] for key in idle if key in self._backends}
        gone = [key for key, backend in known.items() if backend.idle_since <= over]
        self._marked.update(dict.fromkeys(known.keys() - set(gone)))
        wanted = [key for key in marked if self.frontends(key)]
        for first in range(0, len(wanted), MOST):
            await self._subscribe(wanted[first : first + MOST])
        await self._drop(gone)

    def _wake_in(self, seconds: float) -> None:
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self._wake.set)
        else:
            self._wake.set()

    def channel(self, stream: str) -> str | None:
        """The channel of a stream."""
        backend = self._backends.get(stream)
        return None if backend is None else backend.channel

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
