"""A broker of topics in which something fails: it continues, and no caller waits without end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.broker.lone_topics import lone_topics

from newsstand.broker.topics.service import TopicLimits, TopicService
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import LinkChange, Message, StorageRequest, StorageResponse

EVERYTHING = Filter.parse("true")


def with_topics(folder: Path, story: Callable[[TopicService], Awaitable[None]]) -> None:
    async def run() -> None:
        made = lone_topics(folder, limits=TopicLimits(tick_s=0.001))
        async with asyncio.timeout(10):
            await story(made)
        await made.close()

    asyncio.run(run())


def fail(*_: object) -> None:
    raise RuntimeError("something that nobody thought of")


def test_tick_continues_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(made: TopicService) -> None:
        ticks = 0
        third = asyncio.Event()

        def tick() -> None:
            nonlocal ticks
            ticks += 1
            if ticks == 3:
                third.set()
            fail()

        monkeypatch.setattr(made.peer_queries, "tick", tick)
        running = asyncio.create_task(made.run())
        await third.wait()
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    with_topics(tmp_path, story)


def test_failed_storage_request_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(made: TopicService) -> None:
        sent: list[Message] = []
        answered = asyncio.Event()

        def send(neighbour: str, message: Message) -> None:
            sent.append(message)
            answered.set()

        running = asyncio.create_task(made.run())
        made.configure_standalone(["storms"])
        while made.complete_topics != ["storms"]:
            await asyncio.sleep(0.01)
        made.link_up("b2")
        monkeypatch.setattr(made.links, "send", send)
        monkeypatch.setattr(made.storage, "matching", fail)
        made.receive("b2", [StorageRequest(7, EVERYTHING, ("storms",), ("b2",))])
        await answered.wait()
        assert sent == [StorageResponse(7, ("storms",), ("b2",), "nowhere")]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    with_topics(tmp_path, story)


def test_failed_message_does_not_stop_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(made: TopicService) -> None:
        monkeypatch.setattr(made.node, "receive", fail)
        made.receive("b2", [LinkChange(("b2",)), LinkChange(("b2",))])

    with_topics(tmp_path, story)
    assert caplog.text.count("message of b2 dropped") == 2
