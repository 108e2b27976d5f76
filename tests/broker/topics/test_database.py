"""The database of topics, whose writer must continue after failures."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from newsstand.broker.topics.database import TopicDatabase
from newsstand.errors import NoRoom

KEPT = "INSERT OR IGNORE INTO stored_topics VALUES (?)"


def test_database_write_fails_for_unstorable_values(tmp_path: Path) -> None:
    async def story() -> None:
        database = TopicDatabase(tmp_path / "topics.sqlite", retry_s=0.01)
        database.write(KEPT, "fires")
        database.write(KEPT, 2**64)
        database.write(KEPT, "storms")
        async with asyncio.timeout(10):
            with pytest.raises(NoRoom, match="topics cannot be written"):
                await database.commits.flushed()
            await database.commits.flushed()
        assert database.read("SELECT topic FROM stored_topics ORDER BY topic") == [("fires",), ("storms",)]
        assert database.commits.fault is None
        database.close()

    asyncio.run(story())


def test_database_commits_despite_a_failing_callback(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        database = TopicDatabase(tmp_path / "topics.sqlite")
        done: list[str] = []
        database.write(KEPT, "storms")
        database.commits.after_commit(lambda: done.remove("never there"))
        database.commits.after_commit(lambda: done.append("done"))
        async with asyncio.timeout(10):
            await database.commits.flushed()
        assert done == ["done"]
        database.close()

    asyncio.run(story())
    assert "a call after a commit failed" in caplog.text


def test_database_writes_do_not_wait_for_shared_threads(tmp_path: Path) -> None:
    async def story() -> None:
        database = TopicDatabase(tmp_path / "topics.sqlite")
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        over = threading.Event()
        searching = loop.run_in_executor(None, over.wait)
        try:
            database.write(KEPT, "storms")
            async with asyncio.timeout(10):
                await database.commits.flushed()
        finally:
            over.set()
        await searching
        database.close()

    asyncio.run(story())
