"""Event loops in threads of their own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from newsstand.concurrency.background_loop import BackgroundLoop, BackgroundTask


def test_loop_returns_results_and_raises_errors() -> None:
    async def half(number: int) -> int:
        await asyncio.sleep(0)
        if number % 2:
            raise ValueError(number)
        return number // 2

    threads = threading.active_count()
    loop = BackgroundLoop("test")
    assert loop.run(half(4)) == 2
    with pytest.raises(ValueError, match="3"):
        loop.run(half(3))
    loop.stop()
    loop.stop()
    assert threading.active_count() == threads


def test_task_runs_to_its_first_pause_and_ends_when_stopped() -> None:
    events: list[str] = []

    async def work() -> None:
        events.append("started")
        try:
            await asyncio.sleep(60)
        finally:
            events.append("cancelled")

    task = BackgroundTask("test", work)
    task.stop()
    for _ in range(2):
        task.start()
        assert events.pop() == "started"
        task.stop()
        assert events.pop() == "cancelled"


def test_task_that_failed_can_be_stopped() -> None:
    async def work() -> None:
        raise ValueError

    task = BackgroundTask("test", work)
    task.start()
    task.stop()
