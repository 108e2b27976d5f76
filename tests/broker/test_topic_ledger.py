"""A file of topics whose writer must go on, whatever happens."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from newsstand.broker import topic_ledger
from newsstand.broker.topic_ledger import Ledger
from newsstand.errors import NoRoom

KEPT = "INSERT OR IGNORE INTO kept VALUES (?)"


def test_whoever_waits_for_what_no_file_can_hold_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_ledger, "AGAIN_S", 0.01)

    async def story() -> None:
        ledger = Ledger(tmp_path / "topics.sqlite")
        ledger.write(KEPT, "fires")
        ledger.write(KEPT, 2**64)
        ledger.write(KEPT, "storms")
        async with asyncio.timeout(10):
            with pytest.raises(NoRoom, match="topics cannot be written"):
                await ledger.written()
            await ledger.written()
        assert ledger.read("SELECT topic FROM kept ORDER BY topic") == [("fires",), ("storms",)]
        assert ledger.fault is None
        ledger.close()

    asyncio.run(story())


def test_a_call_that_fails_keeps_nobody_waiting(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        ledger = Ledger(tmp_path / "topics.sqlite")
        done: list[str] = []
        ledger.write(KEPT, "storms")
        ledger.then(lambda: done.remove("never there"))
        ledger.then(lambda: done.append("done"))
        async with asyncio.timeout(10):
            await ledger.written()
        assert done == ["done"]
        ledger.close()

    asyncio.run(story())
    assert "what waited for topics to be written went wrong" in caplog.text


def test_writing_does_not_wait_for_what_other_threads_do(tmp_path: Path) -> None:
    async def story() -> None:
        ledger = Ledger(tmp_path / "topics.sqlite")
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        over = threading.Event()
        searching = loop.run_in_executor(None, over.wait)
        try:
            ledger.write(KEPT, "storms")
            async with asyncio.timeout(10):
                await ledger.written()
        finally:
            over.set()
        await searching
        ledger.close()

    asyncio.run(story())
