"""A broker of topics in which something fails: it goes on, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from lone_topics import lone_topics

from newsstand.broker import topics
from newsstand.broker.topics import Topics
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import Mended, Message, Request, Response

EVERYTHING = Filter.parse("true")


def with_topics(folder: Path, story: Callable[[Topics], Awaitable[None]]) -> None:
    async def told() -> None:
        made = lone_topics(folder)
        async with asyncio.timeout(10):
            await story(made)
        await made.close()

    asyncio.run(told())


def fail(*_: object) -> None:
    raise RuntimeError("something that nobody thought of")


def test_a_tick_that_fails_is_followed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "TICK_S", 0.001)

    async def story(made: Topics) -> None:
        ticks = 0
        third = asyncio.Event()

        def tick() -> None:
            nonlocal ticks
            ticks += 1
            if ticks == 3:
                third.set()
            fail()

        monkeypatch.setattr(made.links, "tick", tick)
        running = asyncio.create_task(made.run())
        await third.wait()
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    with_topics(tmp_path, story)


def test_a_request_that_fails_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(made: Topics) -> None:
        sent: list[Message] = []
        answered = asyncio.Event()

        def send(neighbour: str, message: Message) -> None:
            sent.append(message)
            answered.set()

        made._linked("b2")
        made._do(made._node.keep("storms"))
        made._do(made._node.advertise(["storms"]))
        monkeypatch.setattr(made.links, "send", send)
        monkeypatch.setattr(made._storage, "matching", fail)
        made._received("b2", [Request(7, EVERYTHING, ("storms",), ("b2",))])
        await answered.wait()
        assert sent == [Response(7, ("storms",), ("b2",), "nowhere")]

    with_topics(tmp_path, story)


def test_a_message_that_fails_does_not_end_those_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(made: Topics) -> None:
        monkeypatch.setattr(made._node, "receive", fail)
        made._received("b2", [Mended(("b2",)), Mended(("b2",))])

    with_topics(tmp_path, story)
    assert caplog.text.count("a message of b2 was dropped") == 2
