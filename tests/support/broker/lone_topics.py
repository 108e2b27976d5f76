"""The topics of one broker without a coordinator, with a fixed clock."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

from newsstand.broker.metrics import Metrics, TopicMetrics
from newsstand.broker.topics.replicas import FindAssigned
from newsstand.broker.topics.service import TopicLimits, TopicService


def lone_topics(
    folder: Path,
    metrics: Metrics | None = None,
    find_assigned: FindAssigned | None = None,
    limits: TopicLimits = TopicLimits(),  # noqa: B008  it is frozen
) -> TopicService:
    """Return the topics of a broker with its files in a folder; by default no other broker stores any."""
    return TopicService(
        "edge",
        folder,
        "key",
        TopicMetrics(metrics or Metrics()),
        None,
        lambda: 1000,
        find_assigned=find_assigned or _nowhere,
        limits=limits,
        on_request=lambda topic, hops: None,
        most=1000,
    )


async def _nowhere(topics: Collection[str]) -> set[str]:
    return set()


@asynccontextmanager
async def running(topics: TopicService) -> AsyncIterator[None]:
    """Their loop runs meanwhile; afterwards they are closed."""
    loop = asyncio.create_task(topics.run())
    try:
        yield
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await topics.close()


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Let all writes of publications fail meanwhile, as on a full disk."""
    with closing(sqlite3.connect(folder / "topics.sqlite", isolation_level=None)) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON publications BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        )
        try:
            yield
        finally:
            connection.execute("DROP TRIGGER full")
