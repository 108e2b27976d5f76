"""New results on their way from the cluster into the caches, and the signals that tell of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from newsstand.broker.access_log import AccessLog
from newsstand.broker.backends import Backends
from newsstand.broker.broker import Broker, Span
from newsstand.broker.fetches import Fetched, Fetches, Together
from newsstand.broker.metrics import Metrics
from newsstand.broker.sockets import Hub
from newsstand.broker.upstream import Away, Gone, Upstream
from newsstand.errors import NewsstandError, NotFound

logger = logging.getLogger(__name__)
FROM_CACHE = b',"origin":"cache","latency_ms":0}'
AT_ONCE = 64
"""Streams that are pulled at the same time."""
PULLED = 1000
"""Results of one stream that are held in memory on their way to the cache."""


class Pulls:
    """Pulls what the cluster tells of, in the order of each stream, and signals when it is there."""

    def __init__(
        self,
        core: Broker[str, bytes],
        upstream: Upstream,
        backends: Backends,
        hub: Hub,
        metrics: Metrics,
        log: AccessLog,
        now_ms: Callable[[], int],
    ) -> None:
        self._core = core
        self._upstream = upstream
        self._backends = backends
        self._hub = hub
        self._metrics = metrics
        self._log = log
        self._now_ms = now_ms
        self._pulling: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Semaphore(AT_ONCE)
        self.fetches = Fetches(Together(self._read).read)

    def told(self, stream: str, position: int, results: list[Fetched], at_ms: int | None) -> None:
        """The cluster says how far a stream has come, and may have brought the results along."""
        now = self._now_ms()
        span = self._core.told(stream, position, now)
        if span is not None and results and results[0].position == span.after + 1:
            self._arrived(stream, results, now)
            span = self._core.told(stream, position, now)
        if span is not None:
            self._pull(stream)
        else:
            self._signal(stream, at_ms or now)

    def stands(self, stream: str, head: int) -> None:
        """A stream stands there at the cluster, as it says after a start or for a new subscription."""
        grown = stream in self._core and head > self._core.head(stream)
        if self._core.told(stream, head, self._now_ms()) is not None:
            self._pull(stream)
        elif grown:
            self._signal(stream, self._now_ms())

    def close(self) -> None:
        """Stop pulling."""
        for task in list(self._pulling.values()):
            task.cancel()

    def _pull(self, stream: str) -> None:
        if stream not in self._pulling:
            self._pulling[stream] = asyncio.create_task(self._pull_all(stream))

    async def _pull_all(self, stream: str) -> None:
        """Pull until nothing is left; a cluster that is away is asked again and again."""
        pause, signalled = 0.1, 0
        try:
            while (span := self._core.told(stream, 0, self._now_ms())) is not None:
                part = Span(span.after, min(span.until, span.after + PULLED))
                try:
                    async with self._turn:
                        fetched = await self.fetches.get(stream, part)
                except Gone as gone:
                    self._core.skip(stream, max(gone.earliest - 1, span.after + 1))
                except NewsstandError as error:
                    logger.warning("results of %s could not be pulled: %s", stream, error)
                    await asyncio.sleep(pause)
                    pause = min(5.0, pause * 2)
                else:
                    pause = 0.1
                    if not fetched:
                        self._core.skip(stream, part.until)
                    self._arrived(stream, fetched, self._now_ms())
                    signalled = self._signal(stream, fetched[-1].at_ms if fetched else self._now_ms())
        except Exception:  # followers have to hear of it all the same
            logger.exception("results of %s could not be pulled", stream)
        finally:
            self._pulling.pop(stream, None)  # not later: what is told from now on needs another pull
            if stream in self._core and signalled < self._core.head(stream):  # it is not to be pulled any more
                self._signal(stream, self._now_ms())

    async def _read(self, spans: Mapping[str, Span]) -> Mapping[str, list[Fetched] | Exception]:
        """Read from the cluster; one that does not know this broker or a stream any more is told again."""
        try:
            found = await self._upstream.read(spans)
        except NotFound as error:
            self._backends.mark_all()
            raise Away(f"the data cluster is being told of this broker again: {error}") from error
        for stream, results in found.items():
            if isinstance(results, Away):
                self._backends.mark(stream)
        return found

    def _arrived(self, stream: str, fetched: list[Fetched], now: int) -> None:
        self._core.results.advance(now)
        pulled = self._core.pulled(stream)
        values = [(one.position, one.opening + FROM_CACHE) for one in fetched if one.position > pulled]
        self._core.arrived(stream, ((position, len(value), value) for position, value in values), now)
        self._log.arrived(now, stream, [len(value) for _, value in values])

    def _signal(self, stream: str, produced_ms: int) -> int:
        """Tell followers how far a stream has come; returns that."""
        if stream not in self._core:
            return 0
        now, head = self._now_ms(), self._core.head(stream)
        reached = self._hub.signal(stream, head, now)
        self._metrics.signalled(reached, max(0, now - produced_ms) / 1000)
        return head
