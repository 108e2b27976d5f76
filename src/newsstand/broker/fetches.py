"""Results on their way from the cluster: who wants what is already coming waits for it with the others."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from newsstand.broker.broker import Span


class Fetched(NamedTuple):
    """A result of the cluster: its position, when it was produced, and its JSON without the closing brace."""

    position: int
    at_ms: int
    opening: bytes


Read = Callable[[str, Span], Awaitable[list[Fetched]]]


ReadMany = Callable[[Mapping[str, Span]], Awaitable[Mapping[str, list[Fetched] | Exception]]]


class Together:
    """Reads of many streams that are asked for at the same moment, in one call."""

    def __init__(self, read: ReadMany, most: int = 2000) -> None:
        self._read = read
        self._most = most
        self._asked: dict[str, tuple[Span, asyncio.Future[list[Fetched]]]] = {}
        self._reading: set[asyncio.Task[None]] = set()

    async def read(self, stream: str, span: Span) -> list[Fetched]:
        """The results of a span of one stream."""
        if stream in self._asked or len(self._asked) >= self._most:
            self._go()
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._go)
        waiting: asyncio.Future[list[Fetched]] = asyncio.get_running_loop().create_future()
        self._asked[stream] = span, waiting
        return await waiting

    def _go(self) -> None:
        if self._asked:
            asked, self._asked = self._asked, {}
            task = asyncio.create_task(self._read_all(asked))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)

    async def _read_all(self, asked: dict[str, tuple[Span, asyncio.Future[list[Fetched]]]]) -> None:
        found: Mapping[str, list[Fetched] | Exception]
        try:
            found = await self._read({stream: span for stream, (span, _) in asked.items()})
        except Exception as error:  # whoever asked has to be told
            found = dict.fromkeys(asked, error)
        for stream, (_, waiting) in asked.items():
            results = found[stream]
            if waiting.done():
                continue
            if isinstance(results, Exception):
                waiting.set_exception(results)
            else:
                waiting.set_result(results)


class Fetches:
    """Reads spans of streams from the cluster; no position is being read twice at a time."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._coming: dict[str, list[tuple[Span, asyncio.Task[list[Fetched]]]]] = defaultdict(list)

    async def get(self, stream: str, span: Span) -> list[Fetched]:
        """The results of a span, oldest first; fewer where the cluster has fewer."""
        shared = [
            (common, task) for other, task in self._coming.get(stream, ()) if len(common := _common(span, other))
        ]
        parts = [
            *shared,
            *((rest, self._start(stream, rest)) for rest in _rest(span, [part for part, _ in shared])),
        ]
        # Shielded: a reader that leaves does not take the results from the others.
        found = await asyncio.gather(*(asyncio.shield(task) for _, task in parts))
        results = [
            one
            for (part, _), fetched in zip(parts, found, strict=True)
            for one in fetched
            if part.after < one.position <= part.until
        ]
        results.sort(key=lambda one: one.position)
        return results

    def _start(self, stream: str, span: Span) -> asyncio.Task[list[Fetched]]:
        async def read() -> list[Fetched]:
            return await self._read(stream, span)

        task = asyncio.create_task(read())
        entry = (span, task)
        self._coming[stream].append(entry)

        def done(finished: asyncio.Task[list[Fetched]]) -> None:
            coming = self._coming[stream]
            coming.remove(entry)
            if not coming:
                del self._coming[stream]
            if not finished.cancelled():
                finished.exception()  # seen here, so that nothing is logged if every reader has left

        task.add_done_callback(done)
        return task


def _common(one: Span, other: Span) -> Span:
    return Span(max(one.after, other.after), min(one.until, other.until))


def _rest(span: Span, taken: list[Span]) -> list[Span]:
    """What is left of a span without these parts."""
    rest, at = [], span.after
    for part in sorted(taken):
        if part.after > at:
            rest.append(Span(at, part.after))
        at = max(at, part.until)
    if at < span.until:
        rest.append(Span(at, span.until))
    return rest
