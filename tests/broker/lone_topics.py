"""The topics of one broker, with no coordinator and a clock that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from newsstand.broker.metrics import Metrics
from newsstand.broker.topic_metrics import TopicMetrics
from newsstand.broker.topics import Topics


def lone_topics(folder: Path, metrics: Metrics | None = None) -> Topics:
    """The topics of a broker that keeps its files in a folder; nobody else keeps any."""
    return Topics(
        "edge",
        folder,
        "key",
        TopicMetrics(metrics or Metrics()),
        None,
        lambda: 1000,
        elsewhere=_nowhere,
        asked=lambda topic, hops: None,
        most=1000,
    )


async def _nowhere(topics: Collection[str]) -> set[str]:
    return set()


@asynccontextmanager
async def running(topics: Topics) -> AsyncIterator[None]:
    """Their loop runs meanwhile; afterwards they are closed."""
    loop = asyncio.create_task(topics.run())
    try:
        yield
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await topics.close()
