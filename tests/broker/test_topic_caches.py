"""What nobody stores: three real brokers in a line that cache what passes, and one broker alone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path

import msgspec
import pytest
from lone_topics import lone_topics, running
from topic_world import Client, World, until, world

from newsstand.broker import topic_past, topic_searches
from newsstand.broker.change_sender import NoCoordinator
from newsstand.broker.metrics import Metrics
from newsstand.broker.overlay_line import Line, accepted_frames
from newsstand.broker.overlay_told import Opportunistic, OverlayTold
from newsstand.broker.serve import Parts
from newsstand.broker.settings import BrokerSettings
from newsstand.broker.store_sqlite import SqliteStore
from newsstand.broker.topic_gathering import MOST_OF_ONE
from newsstand.broker.topic_past import Page
from newsstand.broker.topic_searches import AT_ONCE, MOST_QUEUED, MOST_WAITING
from newsstand.broker.topics import Topics
from newsstand.coordinator import standing
from newsstand.errors import BadOption
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import Advertise, CacheRequest, CacheResponse, Message, Publication, Subscribe
from newsstand.overlay.opportunistic import ANSWER_BYTES

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
                later.subscribe(STORMS)
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
    asked: list[list[str]] = []

    async def elsewhere(topics: Collection[str]) -> set[str]:
        asked.append(list(topics))
        if wanted is None:
            raise NoCoordinator("cannot be reached")
        return {"hail", "snow"} if wanted else set()

    async def story() -> None:
        monkeypatch.setattr(topic_past, "PATIENCE_S", 0.3)
        topics = lone_topics(tmp_path)
        monkeypatch.setattr(topics._storages, "_elsewhere", elsewhere)
        async with running(topics):
            await filled(topics, Opportunistic(slots=100))
            topics._linked("b")
            topics._received("b", [Advertise(("hail", "snow"), (("b", 1),))])
            topics._unlinked("b")
            for number, topic in enumerate(("hail", "snow")):
                topics._node.cache.put(Publication("z", number, topic))  # of before it was stored
            named = await topics.past(Filter.parse("topic in ('hail', 'snow', 'floods')"), None, 100)
            whole = await topics.past(Filter.parse("true"), None, 100)
            if wanted is False:
                assert (named.missing, named.cached) == ((), ("floods", "hail", "snow"))
                assert whole.cached == ("fires", "floods", "hail", "snow")
            else:
                assert (named.missing, named.cached) == (("hail", "snow"), ("floods",))
                assert [one.topic for one in named.publications] == ["floods"] * 2
                assert whole.cached == ("fires", "floods")
            assert asked == [["hail", "snow"]], "once for all, however often it is tried"

    asyncio.run(story())


def test_what_was_advertised_is_remembered_over_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def elsewhere(topics: Collection[str]) -> set[str]:
        return set(topics)

    async def story() -> None:
        monkeypatch.setattr(topic_past, "PATIENCE_S", 0.1)
        async with running(topics := lone_topics(tmp_path)):
            topics._linked("b")
            topics._received("b", [Advertise(("hail",), (("b", 1),))])
        topics = lone_topics(tmp_path)
        monkeypatch.setattr(topics._storages, "_elsewhere", elsewhere)
        async with running(topics):
            topics.alone([], Opportunistic(slots=9))
            page = await topics.past(Filter.of_topic("hail"), None, 100)
            assert (page.missing, page.cached) == (("hail",), ())

    asyncio.run(story())


def test_a_silent_neighbour_costs_patience_and_not_what_is_here(
    broker: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(topics: Topics, metrics: Metrics) -> None:
        await filled(topics, Opportunistic(slots=100))
        monkeypatch.setattr(topic_past, "PATIENCE_S", 0.2)
        topics._linked("a")
        topics._received("a", [Subscribe(Filter.of_topic("fires"))])
        page = await topics.past(Filter.of_topic("fires"), None, 100)
        assert shown(page) == (["fires"] * 7, False, (), ("fires",))
        assert not page.whole
        assert len(topics._node.gatherings) == 0
        assert (await topics.past(Filter.of_topic("floods"), None, 100)).whole, "nobody else has floods"

    broker(story)


def test_a_read_is_gathered_once_whatever_its_pages(broker: Story) -> None:
    async def story(topics: Topics, metrics: Metrics) -> None:
        await filled(topics, Opportunistic(slots=100))
        found: list[Publication] = []
        page = await topics.past(Filter.parse("true"), None, 2, "ann")
        while page.next is not None:
            found += page.publications
            page = await topics.past(Filter.parse("true"), page.next, 2, "ann")
            assert page.whole
        assert len(found + page.publications) == 11
        assert topics._node.cached["requests"] == 1
        first = await topics.past(Filter.parse("true"), None, 2, "ann")
        assert topics._node.cached["requests"] == 2, "who begins anew asks anew"
        await topics.past(Filter.parse("true"), first.next, 2, "eve")
        assert topics._node.cached["requests"] == 3, "what is kept is kept for one"

    broker(story)


def test_a_client_has_few_requests_open_and_equal_ones_are_one(
    broker: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(topics: Topics, metrics: Metrics) -> None:
        await filled(topics, Opportunistic(slots=100))
        monkeypatch.setattr(topic_past, "PATIENCE_S", 0.2)
        topics._linked("a")
        topics._received("a", [Subscribe(Filter.parse("true"))])
        several = [Filter.parse(f"topic in ('fires', 'smoke {number}')") for number in range(6)]
        asking = [asyncio.create_task(topics.past(one, None, 9, "eve")) for one in several]
        asking += [asyncio.create_task(topics.past(several[0], None, 9, f"client {n}")) for n in range(9)]
        await asyncio.sleep(0)
        asking.append(asyncio.create_task(topics.past(Filter.of_topic("floods"), None, 9, "ann")))
        async with asyncio.timeout(10):
            while len(topics._node.gatherings) < MOST_OF_ONE + 1:
                await asyncio.sleep(0.01)
        assert topics._node.cached["requests"] == MOST_OF_ONE + 1, "four of eve's, one of ann's"
        pages = await asyncio.gather(*asking)
        assert topics._node.cached["requests"] == 6 + 1
        assert [len(page.publications) for page in pages] == [7] * 15 + [2]
        gone = asyncio.create_task(topics.past(several[0], None, 9, "eve"))
        async with asyncio.timeout(10):
            while not len(topics._node.gatherings):
                await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        await asyncio.sleep(0.01)
        assert len(topics._node.gatherings) == 0, "nobody waits for it"

    broker(story)


def responses(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> list[CacheResponse]:
    """What neighbours are told of caches from now on."""
    sent: list[CacheResponse] = []

    def send(neighbour: str, message: Message) -> None:
        if isinstance(message, CacheResponse):
            sent.append(message)

    monkeypatch.setattr(topics.links, "send", send)
    return sent


def test_neighbours_are_answered_no_faster_than_they_read(broker: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(topics: Topics, metrics: Metrics) -> None:
        await filled(topics, Opportunistic(slots=100))
        sent = responses(topics, monkeypatch)
        waiting = [0]
        monkeypatch.setattr(topics._searches, "_waiting", lambda neighbour: waiting[0])
        fires = Filter.of_topic("fires")
        topics._linked("a")

        def ask(first: int, last: int) -> None:
            topics._received("a", [CacheRequest(number, fires, ("a",)) for number in range(first, last)])

        ask(1, 6)
        assert sent == []
        topics._searches._turn()
        assert [one.number for one in sent] == [1, 2], "a few in each turn"
        waiting[0] = MOST_WAITING
        topics._searches._turn()
        assert len(sent) == 2, "none while the line is full"
        ask(6, 6 + MOST_QUEUED)
        assert [(one.number, one.whole) for one in sent[2:]] == [(MOST_QUEUED + n, False) for n in (3, 4, 5)]
        waiting[0] = 0
        async with asyncio.timeout(10):
            while len(sent) < 5 + MOST_QUEUED:
                await asyncio.sleep(0.01)
        whole = [one for one in sent if one.whole]
        assert [one.number for one in whole] == list(range(1, 3 + MOST_QUEUED))
        assert all(len(one.publications) == 7 and one.last for one in whole)

    broker(story)


def test_a_neighbour_that_asks_for_much_and_does_not_read_keeps_its_link(broker: Story) -> None:
    async def story(topics: Topics, metrics: Metrics) -> None:
        topics.alone([], Opportunistic(slots=1000))
        fires = Filter.of_topic("fires")
        topics.subscribe(Ear(), fires)
        for _ in range(40):
            await topics.publish("fires", {}, b'"' + b"x" * 25_000 + b'"')
        ours, theirs = socket.socketpair()
        ended: list[str] = []
        line = Line(accepted_frames(), lambda messages: None, lambda line, why: ended.append(why))
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: line, sock=ours)
        line.begin(transport)
        topics.links._lines["a"] = line
        topics._linked("a")
        topics._received("a", [CacheRequest(number, fires, ("a",)) for number in range(100)])
        async with asyncio.timeout(30):
            while topics.links.waiting("a") < MOST_WAITING:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert topics.links.waiting("a") < MOST_WAITING + 2 * AT_ONCE * ANSWER_BYTES
        assert not ended
        line.close(1000, "enough")
        theirs.close()

    broker(story)


def test_a_neighbour_that_asks_does_not_wait_for_one_that_is_silent(
    broker: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(topics: Topics, metrics: Metrics) -> None:
        await filled(topics, Opportunistic(slots=100))
        monkeypatch.setattr(topic_searches, "PATIENCE_S", 0.1)
        sent = responses(topics, monkeypatch)
        fires = Filter.of_topic("fires")
        for name in ("a", "silent"):
            topics._linked(name)
            topics._received(name, [Subscribe(fires)])
        topics._received("a", [CacheRequest(number, fires, ("a",)) for number in range(20)])
        async with asyncio.timeout(10):
            while sum(one.last for one in sent) < 20:
                await asyncio.sleep(0.01)
        assert not any(one.whole for one in sent if one.last)
        found = [len(one.publications) for one in sent if not one.last]
        assert found == [7] * topic_searches.MOST_OPEN, "what is here has come at once"

    broker(story)


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
    told = standing.Opportunistic()
    assert BrokerSettings(**SET).opportunistic == Opportunistic(told.policy, told.slots)  # type: ignore[arg-type]
    assert (told.policy, told.slots) == ("sel-sub-prt", 1000)
    chosen = BrokerSettings(**SET, opportunistic_policy="all-fld-nop", opportunistic_slots=0)  # type: ignore[arg-type]
    assert chosen.opportunistic == Opportunistic("all-fld-nop", 0)


@pytest.mark.parametrize(
    ("given", "most_bytes"), [({}, 64 * 1024 * 1024), ({"opportunistic_bytes": 123_456}, 123_456)]
)
def test_the_bytes_of_the_settings_bound_the_cache(tmp_path: Path, given: dict[str, int], most_bytes: int) -> None:
    settings = BrokerSettings(name="edge", cluster="http://127.0.0.1:1", token="t", data=tmp_path, **given)
    store = SqliteStore(tmp_path / "broker.sqlite", tell=False)
    parts = Parts(settings, store, "http://127.0.0.1:2")
    store.close()
    assert parts.topics._node.cache.most_bytes == most_bytes
