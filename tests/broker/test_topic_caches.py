"""What nobody stores: three real brokers in a line that cache what passes, and one broker alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from lone_topics import lone_topics, running
from topic_world import Client, World, until, world

from newsstand.broker.home import NoCoordinator
from newsstand.broker.metrics import Metrics
from newsstand.broker.overlay_told import Opportunistic, OverlayTold
from newsstand.broker.settings import BrokerSettings
from newsstand.broker.topic_past import Page
from newsstand.broker.topics import Topics
from newsstand.errors import BadOption
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import Advertise, Publication

WEST, MIDDLE, EAST = "b1", "b2", "b3"
STORMS = "topic = 'storms'"


@pytest.fixture
def line(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, (WEST, MIDDLE, EAST)) as made:
        assert made.overlay()["links"] == [[WEST, MIDDLE], [MIDDLE, EAST]]
        yield made


def numbers(client: Client, wanted: str = STORMS) -> list[object]:
    """What a client finds, as it says, in caches alone."""
    number = client.say(request=wanted)
    end = client.last(number)
    assert (end["missing"], end["cached"]) == ([], ["storms"])
    found = [one["message"]["body"] for one in client.answers[number] if "response" in one]
    return [body for body in found if isinstance(body, int)]


def event(line: World, broker: str, name: str) -> float:
    return line.metric(broker, f'topic_cache_events_total{{event="{name}"}}')


def test_what_was_published_survives_its_publisher_and_the_broker_that_cached_it(line: World) -> None:
    with line.client(MIDDLE) as bob:
        bob.subscribe(STORMS)
        with line.client(WEST) as ann:
            ann.until_heard(bob, "storms")
            told = [ann.publish("storms", number) for number in range(5)]
            assert not any(one["stored"] for one in told)
        until(lambda: 4 in bob.bodies("storms"), "all are delivered")
        assert line.metric(MIDDLE, "topic_cache_messages") == len(bob.bodies("storms"))
        assert line.metric(WEST, "topic_cache_messages") == line.metric(EAST, "topic_cache_messages") == 0

        with line.client(EAST) as dora:
            dora.subscribe(STORMS)
            until(lambda: numbers(dora) == [0, 1, 2, 3, 4], "the cache of another broker answers")
            cached = line.metric(MIDDLE, "topic_cache_messages")
            assert line.metric(EAST, "topic_cache_messages") == event(line, EAST, "copied") == cached
            assert line.metric(WEST, "topic_cache_messages") == 0, "nobody in between keeps a copy"
            line.kill(MIDDLE)
            line.until_linked()
            with line.client(EAST) as late:
                page = late.http.get("/topics", params={"filter": STORMS}).raise_for_status().json()
                assert [one["body"] for one in page["messages"]][-5:] == [0, 1, 2, 3, 4]
                assert (page["next"], page["missing"], page["cached"]) == (None, [], ["storms"])
            with line.client(WEST) as later:
                until(lambda: numbers(later) == [0, 1, 2, 3, 4], "the copy answers a broker beyond")
                narrow = "topic = 'storms' and severity > 3"
                assert numbers(later, narrow) == []
        until(lambda: event(line, EAST, "degraded") == cached, "the last client has gone")
        with line.client(WEST) as last, line.client(EAST) as unknown:
            assert numbers(last) == [0, 1, 2, 3, 4], "its own broker has a copy by now"
            assert numbers(unknown) == [0, 1, 2, 3, 4]


def test_the_coordinator_tells_all_brokers_how_to_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEWSSTAND_COORDINATOR_OPPORTUNISTIC_POLICY", "all-fld-nop")
    monkeypatch.setenv("NEWSSTAND_COORDINATOR_OPPORTUNISTIC_SLOTS", "3")
    with world(tmp_path, (WEST, MIDDLE, EAST)) as made:
        with made.client(WEST) as ann:
            for number in range(5):
                ann.publish("storms", number)
        for name in (WEST, MIDDLE, EAST):
            until(lambda name=name: event(made, name, "cached") == 5, "publications go everywhere")
            assert made.metric(name, "topic_cache_messages") == 3
        made.kill(WEST, MIDDLE)
        with made.client(EAST) as eve:
            assert numbers(eve) == [2, 3, 4]


class Ear:
    """A client who does not listen."""

    def deliver(self, publication: Publication, written: bytes) -> None:
        pass


Story = Callable[[Callable[[Topics, Metrics], Awaitable[None]]], None]


@pytest.fixture
def broker(tmp_path: Path) -> Story:
    async def told(story: Callable[[Topics, Metrics], Awaitable[None]]) -> None:
        metrics = Metrics()
        topics = lone_topics(tmp_path, metrics)
        async with running(topics):
            await story(topics, metrics)

    return lambda story: asyncio.run(told(story))


async def filled(topics: Topics, opportunistic: Opportunistic | None) -> None:
    """Storms are stored; seven fires and two floods are published to somebody who wants all."""
    topics.alone(["storms"], opportunistic)
    async with asyncio.timeout(10):
        while topics.whole != ["storms"]:
            await asyncio.sleep(0.01)
    topics.subscribe(Ear(), Filter.parse("true"))
    for topic in ("fires", "storms", "fires", "floods") * 2 + ("fires",) * 3:
        await topics.publish(topic, {}, b"1")


def shown(page: Page) -> tuple[list[str], bool, tuple[str, ...], tuple[str, ...]]:
    return [one.topic for one in page.publications], page.next is not None, page.missing, page.cached


def test_storages_answer_for_their_topics_and_caches_for_the_others(broker: Story) -> None:
    async def story(topics: Topics, metrics: Metrics) -> None:
        await filled(topics, Opportunistic(slots=100))
        value = metrics.registry.get_sample_value
        assert value("newsstand_broker_topic_cache_messages") == 9, "storms are stored, and not cached"
        assert (value("newsstand_broker_topic_cache_bytes") or 0) > 9
        ask = topics.past
        assert shown(await ask(Filter.of_topic("storms"), None, 100)) == (["storms"] * 2, False, (), ())
        assert shown(await ask(Filter.of_topic("fires"), None, 100)) == (["fires"] * 7, False, (), ("fires",))
        assert shown(await ask(Filter.of_topic("snow"), None, 100)) == ([], False, (), ("snow",))
        both = Filter.parse("topic in ('storms', 'floods')")
        assert shown(await ask(both, None, 3)) == (["storms", "floods", "storms"], True, (), ("floods",))
        whole = await ask(Filter.parse("true"), None, 100)
        assert shown(whole)[2:] == ((), ("fires", "floods"))
        pages: list[Publication] = []
        page = await ask(Filter.parse("true"), None, 4)
        while page.next is not None:
            pages += page.publications
            page = await ask(Filter.parse("true"), page.next, 4)
        assert pages + page.publications == whole.publications
        assert len(whole.publications) == 11

    broker(story)


def test_without_slots_what_nobody_stores_is_missing(broker: Story) -> None:
    async def story(topics: Topics, metrics: Metrics) -> None:
        await filled(topics, None)
        assert shown(await topics.past(Filter.of_topic("fires"), None, 100)) == ([], False, ("fires",), ())
        assert metrics.registry.get_sample_value("newsstand_broker_topic_cache_messages") == 0

    broker(story)


@pytest.mark.parametrize("wanted", [True, False, None])
def test_what_ought_to_be_stored_is_missing_and_not_taken_for_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool | None
) -> None:
    async def elsewhere(topic: str) -> bool:
        if wanted is None:
            raise NoCoordinator("cannot be reached")
        return wanted

    async def story() -> None:
        topics = lone_topics(tmp_path)
        monkeypatch.setattr(topics._advertised, "_elsewhere", elsewhere)
        async with running(topics):
            await filled(topics, Opportunistic(slots=100))
            topics._linked("b")
            topics._received("b", [Advertise(("hail",), (("b", 1),))])
            topics._unlinked("b")
            page = await topics.past(Filter.parse("topic in ('hail', 'floods')"), None, 100)
            expected = (("hail",), ("floods",)) if wanted is not False else ((), ("floods", "hail"))
            assert (page.missing, page.cached) == expected
            assert [one.topic for one in page.publications] == ["floods"] * 2

    asyncio.run(story())


def test_a_policy_that_is_not_known_turns_caches_off_and_is_told(
    broker: Story, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(topics: Topics, metrics: Metrics) -> None:
        await filled(topics, Opportunistic(slots=5))
        value = metrics.registry.get_sample_value
        assert value("newsstand_broker_topic_cache_messages") == 5
        topics.told(OverlayTold(opportunistic=Opportunistic("some-day-else", 5)))
        assert value("newsstand_broker_topic_cache_messages") == 0
        assert "are not cached any more: some-day-else: must be sel or all" in caplog.text

    broker(story)


def test_a_coordinator_that_does_not_know_of_caches_leaves_them_off() -> None:
    told = msgspec.json.decode(b'{"version": 1, "links": [], "storage": {"topics": []}}', type=OverlayTold)
    assert told.opportunistic.slots == 0


SET = {"name": "edge", "cluster": "http://127.0.0.1:1", "data": Path("data")}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"opportunistic_policy": "sel-sub"},
            "opportunistic_policy: sel-sub: must be sel or all, sub or fld, prt or nop, as in sel-sub-prt",
        ),
        (
            {"opportunistic_slots": 5, "coordinator": "http://127.0.0.1:2"},
            "opportunistic_slots: is for a broker without a coordinator, which says how all cache",
        ),
        (
            {"opportunistic_policy": "sel-sub-prt", "coordinator": "http://127.0.0.1:2"},
            "opportunistic_policy: is for a broker without a coordinator, which says how all cache",
        ),
    ],
)
def test_a_wrong_setting_is_told_in_one_line(given: dict[str, object], told: str) -> None:
    with pytest.raises(BadOption) as refused:
        BrokerSettings(**SET | given)  # type: ignore[arg-type]
    assert str(refused.value) == told


def test_a_broker_alone_caches_as_coordinators_tell_others_to() -> None:
    assert BrokerSettings(**SET).opportunistic == Opportunistic("sel-sub-prt", 1000)  # type: ignore[arg-type]
    chosen = BrokerSettings(**SET, opportunistic_policy="all-fld-nop", opportunistic_slots=0)  # type: ignore[arg-type]
    assert chosen.opportunistic == Opportunistic("all-fld-nop", 0)
