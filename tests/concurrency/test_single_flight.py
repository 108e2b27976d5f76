"""Calls that are shared by those who make them at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.event_loops import run
from support.profiles import examples

from newsstand.concurrency.coalescing import SingleFlight


class Calls:
    """Calls that end when they are released, with their number."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.cancelled = 0
        self.release = asyncio.Event()
        self.error: Exception | None = None

    def of(self, key: str) -> Callable[[], Awaitable[str]]:
        async def call() -> str:
            self.made[key] += 1
            number = self.made[key]
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            if self.error is not None:
                raise self.error
            return f"{key}{number}"

        return call


async def started(*calls: Awaitable[str]) -> list[asyncio.Future[str]]:
    tasks = [asyncio.ensure_future(one) for one in calls]
    await asyncio.sleep(0.001)
    return tasks


@settings(max_examples=examples(30))
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=10))
def test_calls_of_one_key_are_shared_and_of_others_are_not(keys: list[str]) -> None:
    async def story() -> None:
        flights, calls = SingleFlight[str, str](), Calls()
        tasks = await started(*(flights.run(key, calls.of(key)) for key in keys))
        assert set(flights) == set(keys)
        assert len(flights) == len(set(keys))
        calls.release.set()
        assert await asyncio.gather(*tasks) == [f"{key}1" for key in keys]
        assert not len(flights)
        assert await flights.run(keys[0], calls.of(keys[0])) == f"{keys[0]}2", "a result is not kept"

    run(story)


def test_error_reaches_every_caller_and_the_next_call_is_made_again() -> None:
    async def story() -> None:
        flights, calls = SingleFlight[str, str](), Calls()
        tasks = await started(flights.run("a", calls.of("a")), flights.run("a", calls.of("a")))
        calls.error = ValueError("broken")
        calls.release.set()
        assert [type(one) for one in await asyncio.gather(*tasks, return_exceptions=True)] == [ValueError] * 2
        calls.error = None
        assert await flights.run("a", calls.of("a")) == "a2"

    run(story)


@pytest.mark.parametrize("cancel_abandoned", [False, True])
def test_cancelled_caller_takes_the_result_from_no_other(cancel_abandoned: bool) -> None:
    async def story() -> None:
        flights, calls = SingleFlight[str, str](cancel_abandoned=cancel_abandoned), Calls()
        leaving, staying = await started(flights.run("a", calls.of("a")), flights.run("a", calls.of("a")))
        leaving.cancel()
        await asyncio.sleep(0)
        calls.release.set()
        assert await staying == "a1"

    run(story)


def test_abandoned_call_is_cancelled_only_if_asked_for() -> None:
    async def story() -> None:
        for cancel_abandoned, cancelled in ((False, 0), (True, 1)):
            flights, calls = SingleFlight[str, str](cancel_abandoned=cancel_abandoned), Calls()
            (task,) = await started(flights.run("a", calls.of("a")))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0)
            assert calls.cancelled == cancelled
            assert ("a" in flights) is not cancel_abandoned
            calls.release.set()
            assert await flights.run("a", calls.of("a")) == ("a2" if cancel_abandoned else "a1")

    run(story)


def test_error_that_nobody_waits_for_is_not_reported() -> None:
    async def story() -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        flights, calls = SingleFlight[str, str](), Calls()
        calls.error = ValueError("broken")
        task = flights.start("a", calls.of("a"))
        assert flights.task("a") is task
        calls.release.set()
        await asyncio.wait([task])
        await asyncio.sleep(0)
        assert flights.task("a") is None
        del task
        assert not reported

    run(story)
