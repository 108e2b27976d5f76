"""Topics without a storage: three real brokers in a line that cache messages, and one broker alone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path

import msgspec
import pytest
from support.broker.lone_topics import lone_topics, running
from support.broker.topic_world import Client, World, until, world

from newsstand.broker.assembly import BrokerAssembly
from newsstand.broker.coordinator_client.client import CoordinatorUnavailable
from newsstand.broker.metrics import Metrics
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.broker.settings import BrokerSettings
from newsstand.broker.topics.history import CacheReadLimits, HistoryPage, PeerQueryLimits, StorageReadLimits
from newsstand.broker.topics.service import TopicService
from newsstand.coordinator.server import CoordinatorSettings
from newsstand.errors import BadOption
from newsstand.overlay.broker.requests import GatherLimits
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import Advertise, CacheRequest, CacheResponse, Message, Publication, Subscribe
from newsstand.wire.coordination import OpportunisticCaching, OverlayDuties

WEST, MIDDLE, EAST = "b1", "b2", "b3"
STORMS = "topic = 'storms'"


@pytest.fixture
def line(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, (WEST, MIDDLE, EAST)) as made:
        assert made.overlay()["links"] == [[WEST, MIDDLE], [MIDDLE, EAST]]
        yield made


def numbers(client: Client, wanted: str = STORMS) -> list[object]:
    """Return the numbers of a history that comes from caches alone."""
    number = client.say(request=wanted)
    end = client.last(number)
    assert (end["unavailable"], end["from_cache"]) == ([], ["storms"])
    found = [one["message"]["body"] for one in client.answers[number] if "response" in one]
    return [body for body in found if isinstance(body, int)]


def event(line: World, broker: str, name: str) -> float:
    return line.metric(broker, f'topic_cache_events_total{{event="{name}"}}')


def test_cached_messages_survive_publisher_and_caching_broker(line: World) -> None:
    with line.client(MIDDLE) as bob:
        bob.subscribe(STORMS)
        with line.client(WEST) as ann:
            ann.until_heard(bob, "storms")
            results = [ann.publish("storms", number) for number in range(5)]
            assert not any(one["stored"] for one in results)
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
                assert (page["next"], page["unavailable"], page["from_cache"]) == (None, [], ["storms"])
            with line.client(WEST) as later:
                later.subscribe(STORMS)
                until(lambda: numbers(later) == [0, 1, 2, 3, 4], "the copy answers a broker beyond")
                narrow = "topic = 'storms' and severity > 3"
                assert numbers(later, narrow) == []
        until(lambda: event(line, EAST, "degraded") == cached, "the last client has gone")
        with line.client(WEST) as last, line.client(EAST) as unknown:
            assert numbers(last) == [0, 1, 2, 3, 4], "its own broker has a copy by now"
            assert numbers(unknown) == [0, 1, 2, 3, 4]


def test_cache_policy_comes_from_the_coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    """A client that ignores its deliveries."""

    def deliver(self, publication: Publication, encoded: bytes) -> None:
        pass


LIMITS = PeerQueryLimits()
Story = Callable[[Callable[[TopicService, Metrics], Awaitable[None]]], None]


@pytest.fixture
def broker(tmp_path: Path) -> Story:
    async def run(story: Callable[[TopicService, Metrics], Awaitable[None]]) -> None:
        metrics = Metrics()
        topics = lone_topics(tmp_path, metrics)
        async with running(topics):
            await story(topics, metrics)

    return lambda story: asyncio.run(run(story))


async def filled(topics: TopicService, opportunistic: OpportunisticCaching | None) -> None:
    """Store storms; publish seven fires and two floods to a client that subscribes to everything."""
    topics.configure_standalone(["storms"], opportunistic)
    async with asyncio.timeout(10):
        while topics.complete_topics != ["storms"]:
            await asyncio.sleep(0.01)
    topics.subscribe(Ear(), Filter.parse("true"))
    for topic in ("fires", "storms", "fires", "floods") * 2 + ("fires",) * 3:
        await topics.publish(topic, {}, b"1")


def shown(page: HistoryPage) -> tuple[list[str], bool, tuple[str, ...], tuple[str, ...]]:
    return [one.topic for one in page.publications], page.next is not None, page.unavailable, page.from_cache


def test_history_from_storages_and_caches(broker: Story) -> None:
    async def story(topics: TopicService, metrics: Metrics) -> None:
        await filled(topics, OpportunisticCaching(slots=100))
        value = metrics.registry.get_sample_value
        assert value("newsstand_broker_topic_cache_messages") == 9, "storms are stored, and not cached"
        assert (value("newsstand_broker_topic_cache_bytes") or 0) > 9
        ask = topics.history
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


def test_topic_without_storage_unavailable_without_slots(broker: Story) -> None:
    async def story(topics: TopicService, metrics: Metrics) -> None:
        await filled(topics, None)
        assert shown(await topics.history(Filter.of_topic("fires"), None, 100)) == ([], False, ("fires",), ())
        assert metrics.registry.get_sample_value("newsstand_broker_topic_cache_messages") == 0

    broker(story)


@pytest.mark.parametrize("wanted", [True, False, None])
def test_assigned_topic_unavailable_and_not_from_cache(tmp_path: Path, wanted: bool | None) -> None:
    asked: list[list[str]] = []

    async def elsewhere(topics: Collection[str]) -> set[str]:
        asked.append(list(topics))
        if wanted is None:
            raise CoordinatorUnavailable("cannot be reached")
        return {"hail", "snow"} if wanted else set()

    async def story() -> None:
        topics = lone_topics(tmp_path, find_assigned=elsewhere)
        topics.reader.limits = StorageReadLimits(answer_s=0.3)
        async with running(topics):
            await filled(topics, OpportunisticCaching(slots=100))
            topics.link_up("b")
            topics.receive("b", [Advertise(("hail", "snow"), (("b", 1),))])
            topics.link_down("b")
            for number, topic in enumerate(("hail", "snow")):
                topics.node.cache.put(Publication("z", number, topic))  # of before it was stored
            named = await topics.history(Filter.parse("topic in ('hail', 'snow', 'floods')"), None, 100)
            whole = await topics.history(Filter.parse("true"), None, 100)
            if wanted is False:
                assert (named.unavailable, named.from_cache) == ((), ("floods", "hail", "snow"))
                assert whole.from_cache == ("fires", "floods", "hail", "snow")
            else:
                assert (named.unavailable, named.from_cache) == (("hail", "snow"), ("floods",))
                assert [one.topic for one in named.publications] == ["floods"] * 2
                assert whole.from_cache == ("fires", "floods")
            assert asked == [["hail", "snow"]], "once for all, however often it is tried"

    asyncio.run(story())


def test_advertised_topics_remembered_over_a_restart(tmp_path: Path) -> None:
    async def elsewhere(topics: Collection[str]) -> set[str]:
        return set(topics)

    async def story() -> None:
        async with running(topics := lone_topics(tmp_path)):
            topics.link_up("b")
            topics.receive("b", [Advertise(("hail",), (("b", 1),))])
        topics = lone_topics(tmp_path, find_assigned=elsewhere)
        topics.reader.limits = StorageReadLimits(answer_s=0.1)
        async with running(topics):
            topics.configure_standalone([], OpportunisticCaching(slots=9))
            page = await topics.history(Filter.of_topic("hail"), None, 100)
            assert (page.unavailable, page.from_cache) == (("hail",), ())

    asyncio.run(story())


def test_silent_neighbour_delays_but_keeps_local_results(broker: Story) -> None:
    async def story(topics: TopicService, metrics: Metrics) -> None:
        await filled(topics, OpportunisticCaching(slots=100))
        topics.reader.limits = StorageReadLimits(answer_s=0.2)
        topics.link_up("a")
        topics.receive("a", [Subscribe(Filter.of_topic("fires"))])
        page = await topics.history(Filter.of_topic("fires"), None, 100)
        assert shown(page) == (["fires"] * 7, False, (), ("fires",))
        assert not page.complete
        assert len(topics.node.gathers) == 0
        assert (await topics.history(Filter.of_topic("floods"), None, 100)).complete, "nobody else has floods"

    broker(story)


def test_cached_read_gathered_once_for_all_pages(broker: Story) -> None:
    async def story(topics: TopicService, metrics: Metrics) -> None:
        await filled(topics, OpportunisticCaching(slots=100))
        found: list[Publication] = []
        page = await topics.history(Filter.parse("true"), None, 2, "ann")
        while page.next is not None:
            found += page.publications
            page = await topics.history(Filter.parse("true"), page.next, 2, "ann")
            assert page.complete
        assert len(found + page.publications) == 11
        assert topics.node.cache_events["requests"] == 1
        first = await topics.history(Filter.parse("true"), None, 2, "ann")
        assert topics.node.cache_events["requests"] == 2, "a new read starts a new request"
        await topics.history(Filter.parse("true"), first.next, 2, "eve")
        assert topics.node.cache_events["requests"] == 3, "what is kept is kept for one"

    broker(story)


def test_cache_reads_limited_per_client_and_shared(broker: Story) -> None:
    async def story(topics: TopicService, metrics: Metrics) -> None:
        await filled(topics, OpportunisticCaching(slots=100))
        topics.reader.limits = StorageReadLimits(answer_s=0.2)
        topics.link_up("a")
        topics.receive("a", [Subscribe(Filter.parse("true"))])
        several = [Filter.parse(f"topic in ('fires', 'smoke {number}')") for number in range(6)]
        asking = [asyncio.create_task(topics.history(one, None, 9, "eve")) for one in several]
        asking += [asyncio.create_task(topics.history(several[0], None, 9, f"client {n}")) for n in range(9)]
        await asyncio.sleep(0)
        asking.append(asyncio.create_task(topics.history(Filter.of_topic("floods"), None, 9, "ann")))
        async with asyncio.timeout(10):
            while len(topics.node.gathers) < CacheReadLimits().per_client + 1:
                await asyncio.sleep(0.01)
        assert topics.node.cache_events["requests"] == CacheReadLimits().per_client + 1, (
            "four of eve's, one of ann's"
        )
        pages = await asyncio.gather(*asking)
        assert topics.node.cache_events["requests"] == 6 + 1
        assert [len(page.publications) for page in pages] == [7] * 15 + [2]
        gone = asyncio.create_task(topics.history(several[0], None, 9, "eve"))
        async with asyncio.timeout(10):
            while not len(topics.node.gathers):
                await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        await asyncio.sleep(0.01)
        assert len(topics.node.gathers) == 0, "nobody waits for it"

    broker(story)


def responses(topics: TopicService, monkeypatch: pytest.MonkeyPatch) -> list[CacheResponse]:
    """Record responses to neighbours from now on."""
    sent: list[CacheResponse] = []

    def send(neighbour: str, message: Message) -> None:
        if isinstance(message, CacheResponse):
            sent.append(message)

    monkeypatch.setattr(topics.links, "send", send)
    return sent


def test_peer_queries_paced_by_unsent_bytes(broker: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(topics: TopicService, metrics: Metrics) -> None:
        await filled(topics, OpportunisticCaching(slots=100))
        sent = responses(topics, monkeypatch)
        waiting = [0]
        monkeypatch.setattr(topics.peer_queries, "unsent_bytes", lambda neighbour: waiting[0])
        fires = Filter.of_topic("fires")
        topics.link_up("a")

        def ask(first: int, last: int) -> None:
            topics.receive("a", [CacheRequest(number, fires, ("a",)) for number in range(first, last)])

        ask(1, 6)
        assert sent == []
        topics.peer_queries.turn()
        assert [one.number for one in sent] == [1, 2], "a few in each turn"
        waiting[0] = LIMITS.unsent_bytes
        topics.peer_queries.turn()
        assert len(sent) == 2, "none while the line is full"
        ask(6, 6 + LIMITS.queued)
        assert [(one.number, one.complete) for one in sent[2:]] == [(LIMITS.queued + n, False) for n in (3, 4, 5)]
        waiting[0] = 0
        async with asyncio.timeout(10):
            while len(sent) < 5 + LIMITS.queued:
                await asyncio.sleep(0.01)
        whole = [one for one in sent if one.complete]
        assert [one.number for one in whole] == list(range(1, 3 + LIMITS.queued))
        assert all(len(one.publications) == 7 and one.last for one in whole)

    broker(story)


def test_peer_that_does_not_read_keeps_its_link(broker: Story) -> None:
    async def story(topics: TopicService, metrics: Metrics) -> None:
        topics.configure_standalone([], OpportunisticCaching(slots=1000))
        fires = Filter.of_topic("fires")
        topics.subscribe(Ear(), fires)
        for _ in range(40):
            await topics.publish("fires", {}, b'"' + b"x" * 25_000 + b'"')
        ours, theirs = socket.socketpair()
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
        line = topics.links.accept("a", transport, lambda line: None)
        topics.receive("a", [CacheRequest(number, fires, ("a",)) for number in range(100)])
        async with asyncio.timeout(30):
            while topics.links.unsent_bytes("a") < LIMITS.unsent_bytes:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert (
            topics.links.unsent_bytes("a")
            < LIMITS.unsent_bytes + 2 * LIMITS.per_turn * GatherLimits().answer_bytes
        )
        assert len(topics.links) == 1
        line.close(1000, "enough")
        theirs.close()

    broker(story)


def test_peer_queries_do_not_wait_for_a_silent_neighbour(broker: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(topics: TopicService, metrics: Metrics) -> None:
        await filled(topics, OpportunisticCaching(slots=100))
        topics.peer_queries.limits = PeerQueryLimits(timeout_s=0.1)
        sent = responses(topics, monkeypatch)
        fires = Filter.of_topic("fires")
        for name in ("a", "silent"):
            topics.link_up(name)
            topics.receive(name, [Subscribe(fires)])
        topics.receive("a", [CacheRequest(number, fires, ("a",)) for number in range(20)])
        async with asyncio.timeout(10):
            while sum(one.last for one in sent) < 20:
                await asyncio.sleep(0.01)
        assert not any(one.complete for one in sent if one.last)
        found = [len(one.publications) for one in sent if not one.last]
        assert found == [7] * LIMITS.open, "what is here has come at once"

    broker(story)


def test_unknown_cache_policy_turns_caches_off(broker: Story, caplog: pytest.LogCaptureFixture) -> None:
    async def story(topics: TopicService, metrics: Metrics) -> None:
        await filled(topics, OpportunisticCaching(slots=5))
        value = metrics.registry.get_sample_value
        assert value("newsstand_broker_topic_cache_messages") == 5
        topics.configure(OverlayDuties(opportunistic=OpportunisticCaching("some-day-else", 5)))
        assert value("newsstand_broker_topic_cache_messages") == 0
        assert "are no longer cached: some-day-else: must be sel or all" in caplog.text

    broker(story)


def test_caches_off_with_an_older_coordinator() -> None:
    duties = msgspec.json.decode(b'{"version": 1, "links": [], "storage": {"topics": []}}', type=OverlayDuties)
    assert duties.opportunistic.slots == 0


SET = {"name": "edge", "cluster": "http://127.0.0.1:1", "data": Path("data")}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"opportunistic_policy": "sel-sub"},
            "opportunistic_policy: sel-sub: must be sel or all, sub or fld, prt or nop, as in sel-sub-prt",
        ),
        (
            {"opportunistic_slots": 5, "coordinator": "http://127.0.0.1:2"},
            "opportunistic_slots: only for a broker without a coordinator, which sets this for all brokers",
        ),
        (
            {"opportunistic_policy": "sel-sub-prt", "coordinator": "http://127.0.0.1:2"},
            "opportunistic_policy: only for a broker without a coordinator, which sets this for all brokers",
        ),
    ],
)
def test_wrong_cache_setting_rejected(given: dict[str, object], expected: str) -> None:
    with pytest.raises(BadOption) as refused:
        BrokerSettings(**SET | given)  # type: ignore[arg-type]
    assert str(refused.value) == expected


def test_standalone_cache_defaults_equal_the_coordinators() -> None:
    default = OpportunisticCaching("sel-sub-prt", 1000)
    assert BrokerSettings(**SET).opportunistic == default  # type: ignore[arg-type]
    settings = CoordinatorSettings(secret="a secret " * 9)
    assert OpportunisticCaching(settings.opportunistic_policy, settings.opportunistic_slots) == default
    chosen = BrokerSettings(**SET, opportunistic_policy="all-fld-nop", opportunistic_slots=0)  # type: ignore[arg-type]
    assert chosen.opportunistic == OpportunisticCaching("all-fld-nop", 0)


@pytest.mark.parametrize(
    ("given", "most_bytes"), [({}, 64 * 1024 * 1024), ({"opportunistic_bytes": 123_456}, 123_456)]
)
def test_cache_bytes_come_from_settings(tmp_path: Path, given: dict[str, int], most_bytes: int) -> None:
    settings = BrokerSettings(name="edge", cluster="http://127.0.0.1:1", token="t", data=tmp_path, **given)
    store = SubscriberStore(tmp_path / "broker.sqlite", replicate=False)
    parts = BrokerAssembly(settings, store, "http://127.0.0.1:2")
    store.close()
    assert parts.topics.node.cache.most_bytes == most_bytes
