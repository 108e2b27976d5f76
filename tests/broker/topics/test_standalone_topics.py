"""Topics of a broker without a coordinator, their settings, and positions in their history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.broker.lone_topics import lone_topics, running

from newsstand.broker.api.topics import parse_position
from newsstand.broker.settings import BrokerSettings
from newsstand.broker.topics.service import TopicService
from newsstand.errors import BadInput
from newsstand.http.errors import HttpError
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import (
    Publication,
    StorageRequest,
    batch_of,
    decode_batch,
    encode,
)

EVERYTHING = Filter.parse("true")


class Ear:
    """A client that records its deliveries."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def deliver(self, publication: Publication, encoded: bytes) -> None:
        self.heard.append(publication.body)


def configure_standalone(folder: Path, story: Callable[[TopicService], Awaitable[None]], *topics: str) -> None:
    """Run a story with a broker that stores topics without a coordinator."""

    async def run() -> None:
        made = lone_topics(folder)
        made.restore()
        made.configure_standalone(topics)
        async with running(made):
            async with asyncio.timeout(10):
                while made.complete_topics != sorted(topics) or made.replicas.topics != len(topics):
                    await asyncio.sleep(0.01)
            await story(made)

    asyncio.run(run())


def test_standalone_broker_stores_topics_of_its_settings(tmp_path: Path) -> None:
    storms = Filter.of_topic("storms")

    async def first(topics: TopicService) -> None:
        ear = Ear()
        topics.subscribe(ear, Filter.parse("severity > 1"))
        results = [await topics.publish("storms", {"severity": n}, b"%d" % n) for n in range(4)]
        assert all(one.stored for one in results)
        assert not (await topics.publish("fires", {"severity": 9}, b"9")).stored
        assert ear.heard == [b"2", b"3", b"9"]
        topics.remove_listener(ear)
        await topics.publish("storms", {"severity": 9}, b"4")
        assert ear.heard == [b"2", b"3", b"9"]

    async def second(topics: TopicService) -> None:
        page = await topics.history(storms, None, 3)
        assert [one.body for one in page.publications] == [b"0", b"1", b"2"]
        page = await topics.history(storms, page.next, 3)
        assert ([one.body for one in page.publications], page.next) == ([b"3", b"4"], None)
        numbers = [one.number for one in page.publications]
        assert (await topics.publish("storms", {}, b"5")).id[1] > max(numbers), "although the clock stands still"

    async def third(topics: TopicService) -> None:
        assert (await topics.history(Filter.parse("true"), None, 9)).publications == []

    configure_standalone(tmp_path, first, "storms")
    configure_standalone(tmp_path, second, "storms")
    configure_standalone(tmp_path, third)
    configure_standalone(tmp_path, third, "storms")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"storages": [""]}, "storages: '' is not a valid topic"),
        ({"storages": ["a"], "coordinator": "http://x"}, "storages: only for a broker without a coordinator"),
    ],
)
def test_wrong_topic_setting_rejected(tmp_path: Path, more: dict[str, Any], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        BrokerSettings(name="edge", cluster="http://127.0.0.1:9", data=tmp_path, **more)


@pytest.mark.parametrize(
    "after",
    [
        '[0,"",0]',
        f'[0,"{"b" * 129}",0]',
        "[0,1,0]",
        f'[{2**63},"b1",0]',
        f'[0,"b1",{2**63}]',
        '[0,"b1",-1]',
        "[0]",
        "{",
    ],
)
def test_position_rejected_when_neighbours_would_reject_it(after: str) -> None:
    with pytest.raises(HttpError, match="after: must be `next` of the page before") as refused:
        parse_position(after)
    assert refused.value.status == 422


def test_position_of_a_page_accepted() -> None:
    for place in [(-(2**63), "b", 0), (2**63 - 1, "b" * 128, 2**63 - 1)]:
        taken = parse_position(msgspec.json.encode(place).decode())
        request = StorageRequest(1, EVERYTHING, ("storms",), ("b1",), taken)
        assert taken == place
        assert decode_batch(batch_of([encode(request)])) == [request]
