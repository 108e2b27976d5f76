"""The live broker over a cluster that does what the test says: what is lost when things happen at once."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from scripted_cluster import ScriptedCluster, channel, result

from newsstand.broker.access_log import AccessLog
from newsstand.broker.accounts import Claims, Passwords, Tokens
from newsstand.broker.edge import Delivery, Edge
from newsstand.broker.fetches import Fetched
from newsstand.broker.journal import Journal
from newsstand.broker.members import Elsewhere, Member, Members
from newsstand.broker.metrics import Metrics
from newsstand.broker.page_content import Content
from newsstand.broker.records import Allowed, Change, Held, Record, Session, Subscribe, frontend_id
from newsstand.broker.shelf import Shelf
from newsstand.broker.sockets import Hub
from newsstand.broker.store_sqlite import SqliteStore
from newsstand.broker.told import Moved, Told
from newsstand.broker.upstream import Away, Gone
from newsstand.caching import ResultCaches
from newsstand.errors import BadInput, NotFound
from newsstand.model import Channel


class Signals(Hub):
    """Notes what is signalled."""

    def __init__(self) -> None:
        super().__init__()
        self.signals: list[tuple[str, int]] = []

    def signal(self, stream: str, position: int, now: int) -> int:
        self.signals.append((stream, position))
        return super().signal(stream, position, now)


class Scene:
    """An edge with its parts, and subscribers made by hand."""

    def __init__(self, folder: Path, policy: str = "lsc", budget: int = 100_000) -> None:
        self.cluster = ScriptedCluster()
        self.store = SqliteStore(folder / "broker.sqlite", tell=False)
        self.folder = folder / "access"
        clock = itertools.count(1_000_000)
        now = lambda: next(clock)  # noqa: E731
        journal = Journal(self.store)
        self.members = Members(self.store.load(), journal, Tokens("k" * 32), Passwords(), str, now)
        self.hub = Signals()
        self.edge = Edge(
            "edge",
            ResultCaches[str, bytes](policy, budget, start_ms=1_000_000),
            Shelf("sg2", 1000, _no_page),
            self.members,
            self.hub,
            self.cluster,  # type: ignore[arg-type]
            Metrics(),
            AccessLog(self.folder, 1_000_000),
            now,
            self.cluster.register,
            linger_s=0,
            store=self.store,
        )
        self.members.comings = self.edge

    async def __aenter__(self) -> Scene:
        for record in self.members.records.values():
            self.edge.came(record)
        self.running = asyncio.create_task(self.edge.backends.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.edge.close()
        self.store.close()

    async def member(self, name: str, allow: list[Allowed] | None = None) -> Member:
        record = self.members.records.get(name)
        if record is None:
            await self.members.adopt([Record(name, "hash", {"s": Session(1, 2**50)})])
            record = self.members.records[name]
        return Member(record, Claims(name, "s", 2**40, None if allow is None else tuple(allow)))

    async def follows(self, member: Member, kind: str, since: str | int = "now") -> str:
        frontend, _ = await self.edge.subscribe(member, "of_kind", {"kind": kind}, since)
        return frontend.id

    def tell(self, kind: str, position: int, *pushed: Fetched) -> None:
        self.edge.told(Told([Moved(self.cluster.stream(kind), position, list(pushed))]))

    async def settled(self) -> None:
        for _ in range(500):
            await asyncio.sleep(0.002)
            if not self.edge._pulls._pulling:
                return
        raise AssertionError("a pull does not end")


async def _no_page(page: str) -> Content:
    raise NotFound(page)


def play(folder: Path, story: Callable[[Scene], Awaitable[None]], **how: object) -> None:
    async def run() -> None:
        async with Scene(folder, **how) as scene:  # type: ignore[arg-type]
            await asyncio.wait_for(story(scene), 20)

    asyncio.run(run())


def payloads(delivery: Delivery) -> list[object]:
    return [json.loads(one)["payload"] for one in delivery.results]


def origins(delivery: Delivery) -> list[object]:
    return [json.loads(one)["origin"] for one in delivery.results]


def test_equal_subscriptions_are_one_at_the_cluster_and_the_last_to_leave_drops_it(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, bob = await at.member("ann"), await at.member("bob")
        first, second = await at.follows(ann, "fire"), await at.follows(bob, "fire")
        assert first != second
        assert list(at.cluster.frontends) == [at.cluster.stream("fire")]
        await at.edge.unsubscribe(ann, first)
        await asyncio.sleep(0.05)
        assert list(at.cluster.frontends) == [at.cluster.stream("fire")]
        await at.edge.unsubscribe(bob, second)
        await asyncio.sleep(0.05)
        assert at.cluster.frontends == {}
        assert len(at.edge.core) == 0

    play(tmp_path, story)


def test_since_now_earliest_and_a_position(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        stream = at.cluster.stream("fire")
        at.cluster.print("fire", *"abcde")
        at.cluster.removed[stream] = 2
        people = [await at.member(name) for name in ("ann", "bob", "cleo")]
        keys = [
            await at.follows(who, "fire", since) for who, since in zip(people, ("now", "earliest", 3), strict=True)
        ]
        assert [at.edge.subscription(*one).position for one in zip(people, keys, strict=True)] == [5, 2, 3]
        assert payloads(await at.edge.read(people[1], keys[1], None, 10)) == ["c", "d", "e"]
        for wrong in (6, -1, "later"):
            with pytest.raises(BadInput, match="since"):
                await at.follows(await at.member("dora"), "fire", wrong)
        assert at.edge.backends.frontends(stream) == 3

    play(tmp_path, story)


def test_what_retention_has_removed_is_gone_and_the_reader_goes_on_from_the_earliest(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        key = await at.follows(ann, "fire", "earliest")
        at.cluster.print("fire", *"abcde")
        at.cluster.removed[at.cluster.stream("fire")] = 3
        at.tell("fire", 5)
        await at.settled()
        with pytest.raises(Gone) as gone:
            await at.edge.read(ann, key, None, 10)
        assert gone.value.earliest == 4
        await at.edge.acknowledge(ann, {key: 3})
        delivery = await at.edge.read(ann, key, None, 10)
        assert (payloads(delivery), origins(delivery)) == (["d", "e"], ["cache", "cache"])

    play(tmp_path, story)


def test_a_hole_in_the_cache_is_not_read_over(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        key = await at.follows(ann, "fire")
        at.cluster.print("fire", *"ab")
        at.tell("fire", 2)
        await at.settled()
        at.cluster.print("fire", *"cdef")
        at.cluster.removed[at.cluster.stream("fire")] = 4
        at.tell("fire", 6)
        await at.settled()
        delivery = await at.edge.read(ann, key, None, 10)
        assert (payloads(delivery), delivery.next) == (["a", "b"], 2)
        with pytest.raises(Gone):
            await at.edge.read(ann, key, 2, 10)
        assert payloads(await at.edge.read(ann, key, 4, 10)) == ["e", "f"]

    play(tmp_path, story)


def test_what_is_cached_before_a_gap_that_retention_removed_is_read(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        key = await at.follows(ann, "fire")
        at.cluster.print("fire", "a", "b" * 900, "c")
        at.tell("fire", 3)
        await at.settled()
        at.cluster.removed[at.cluster.stream("fire")] = 2
        delivery = await at.edge.read(ann, key, None, 10)
        assert (payloads(delivery), origins(delivery), delivery.next) == (["a"], ["cache"], 1)
        with pytest.raises(Gone) as gone:
            await at.edge.read(ann, key, 1, 10)
        assert gone.value.earliest == 3
        delivery = await at.edge.read(ann, key, 2, 10)
        assert (payloads(delivery), origins(delivery), delivery.next) == (["c"], ["cache"], None)

    play(tmp_path, story, policy="lscz-any", budget=900)


def test_a_cluster_that_gives_a_part_is_asked_for_the_rest_and_nothing_is_skipped(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        key = await at.follows(ann, "fire")
        at.cluster.print("fire", *"abcd")
        whole = at.cluster.read

        async def half(spans):  # type: ignore[no-untyped-def]
            return {
                key: found[:2] if isinstance(found, list) else found for key, found in (await whole(spans)).items()
            }

        at.cluster.read = half  # type: ignore[method-assign]
        at.tell("fire", 4)
        delivery = await at.edge.read(ann, key, None, 10)
        assert (payloads(delivery), delivery.next) == (["a", "b"], 2)
        assert payloads(await at.edge.read(ann, key, 2, 10)) == ["c", "d"]

    play(tmp_path, story, policy="nc")


def test_a_cluster_that_has_forgotten_the_broker_is_told_of_it_again(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        key = await at.follows(ann, "fire")
        at.cluster.print("fire", *"ab")
        at.cluster.forget()
        at.edge.core.told(at.cluster.stream("fire"), 2, 1)
        with pytest.raises(Away):
            await at.edge.read(ann, key, None, 10)
        await asyncio.sleep(0.1)
        assert at.cluster.frontends == {at.cluster.stream("fire"): 1}
        assert payloads(await at.edge.read(ann, key, None, 10)) == ["a", "b"]

    play(tmp_path, story)


def test_a_stream_that_the_cluster_does_not_know_is_subscribed_to_again(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        key = await at.follows(ann, "fire")
        at.cluster.print("fire", *"ab")
        at.cluster.frontends.clear()
        at.tell("fire", 2)
        await at.settled()
        assert payloads(await at.edge.read(ann, key, None, 10)) == ["a", "b"]

    play(tmp_path, story)


def test_a_subscription_dropped_twice_at_once_is_dropped_once(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, bob = await at.member("ann"), await at.member("bob")
        key = await at.follows(ann, "fire")
        await at.follows(bob, "fire")
        await asyncio.gather(*(at.edge.unsubscribe(ann, key) for _ in range(3)))
        with pytest.raises(NotFound):
            await at.edge.unsubscribe(ann, key)
        assert at.edge.backends.frontends(at.cluster.stream("fire")) == 1

    play(tmp_path, story)


def test_a_subscription_made_twice_at_once_is_one(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        keys = await asyncio.gather(*(at.follows(ann, "fire") for _ in range(4)))
        assert len(set(keys)) == 1
        assert at.edge.backends.frontends(at.cluster.stream("fire")) == 1

    play(tmp_path, story)


def test_who_moves_away_while_it_subscribes_is_told_to_try_again(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        subscribing = asyncio.create_task(at.follows(ann, "fire"))
        await asyncio.sleep(0)
        await at.members.forget(["ann"])
        with pytest.raises(Elsewhere):
            await subscribing
        await asyncio.sleep(0.05)
        assert (len(at.edge.core), at.cluster.frontends) == (0, {})

    play(tmp_path, story)


def test_who_moves_away_takes_its_subscriptions_along(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        key = await at.follows(ann, "fire")
        await asyncio.gather(at.edge.unsubscribe(ann, key), at.members.forget(["ann"]))
        await asyncio.sleep(0.05)
        assert (len(at.edge.core), at.cluster.frontends, at.store.load()) == (0, {}, {})

    play(tmp_path, story)


def test_what_is_told_in_the_moment_a_pull_ends_is_pulled_too(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        key = await at.follows(await at.member("ann"), "fire")
        stream = at.cluster.stream("fire")
        at.cluster.print("fire", *"ab")
        at.tell("fire", 1)
        task = at.edge._pulls._pulling[stream]
        while stream in at.edge._pulls._pulling and not task.done():
            await asyncio.sleep(0)
        at.tell("fire", 2)
        await at.settled()
        assert at.edge.core.told(stream, 0, 1) is None
        assert at.hub.signals[-1] == (stream, 2), key

    play(tmp_path, story)


@pytest.mark.parametrize("policy", ["lsc", "nc"])
def test_followers_are_signalled_once_it_is_known_how_far_the_stream_has_come(tmp_path: Path, policy: str) -> None:
    """After a start: the subscription was there, and the cluster went on meanwhile."""

    async def story(at: Scene) -> None:
        await at.follows(await at.member("ann"), "fire")
        at.cluster.print("fire", *"abc")
        at.edge.backends.mark_all()
        await asyncio.sleep(0.05)
        await at.settled()
        assert at.hub.signals[-1:] == [(at.cluster.stream("fire"), 3)]

    play(tmp_path, story, policy=policy)


def test_a_switch_to_no_cache_during_a_pull_loses_no_signal(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        key = await at.follows(ann, "fire")
        at.cluster.print("fire", "a")
        at.cluster.failing = [Away("not now")]
        at.tell("fire", 1)
        await asyncio.sleep(0.02)
        at.edge.switch("nc", None)
        await at.settled()
        assert at.hub.signals == [(at.cluster.stream("fire"), 1)]
        assert payloads(await at.edge.read(ann, key, None, 10)) == ["a"]

    play(tmp_path, story)


def test_a_stream_that_is_left_during_a_pull_is_no_accident(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        key = await at.follows(ann, "fire")
        at.cluster.print("fire", "a")
        at.cluster.gate.clear()
        at.tell("fire", 1)
        task = at.edge._pulls._pulling[at.cluster.stream("fire")]
        await asyncio.sleep(0.01)
        await at.edge.unsubscribe(ann, key)
        at.cluster.gate.set()
        await task
        assert at.edge.core.results.objects == 0

    play(tmp_path, story)


def test_pulls_go_on_when_the_cluster_is_back(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        key = await at.follows(ann, "fire")
        at.cluster.print("fire", "a")
        at.cluster.failing = [Away("not now"), Away("not now")]
        at.tell("fire", 1)
        await at.settled()
        assert origins(await at.edge.read(ann, key, None, 10)) == ["cache"]

    play(tmp_path, story)


def test_pushed_results_need_no_pull_and_a_hole_before_them_does(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        key = await at.follows(ann, "fire")
        at.cluster.print("fire", *"abc")
        at.tell("fire", 1, result(1, "a"))
        assert not any(call.startswith("read") for call in at.cluster.calls)
        at.tell("fire", 3, result(3, "c"))
        await at.settled()
        assert payloads(await at.edge.read(ann, key, None, 10)) == ["a", "b", "c"]
        at.edge.tick()
        pulled = [line for line in (at.folder / "events.csv").read_text().splitlines() if ",result," in line]
        assert len(pulled) == 3

    play(tmp_path, story)


def test_results_that_are_pushed_while_they_are_pulled_are_logged_once(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        await at.follows(await at.member("ann"), "fire")
        at.cluster.print("fire", *"ab")
        at.cluster.gate.clear()
        at.tell("fire", 2)
        await asyncio.sleep(0.01)
        at.tell("fire", 2, result(1, "a"), result(2, "b"))
        at.cluster.gate.set()
        await at.settled()
        at.edge.tick()
        assert (at.folder / "accesses.csv").read_text().count(",pull,") == 2

    play(tmp_path, story)


def test_many_who_miss_the_same_cost_one_fetch(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        people = [await at.member(f"p{n}") for n in range(20)]
        at.cluster.print("fire", *"abc")
        keys = [await at.follows(who, "fire", "earliest") for who in people]
        at.cluster.calls.clear()
        got = await asyncio.gather(
            *(at.edge.read(who, key, None, 10) for who, key in zip(people, keys, strict=True))
        )
        assert all(payloads(one) == ["a", "b", "c"] for one in got)
        assert at.cluster.calls == ["read 1"]
        assert at.edge.core.counts.misses == 60

    play(tmp_path, story)


def test_nobody_reads_or_acknowledges_what_is_anothers(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, bob = await at.member("ann"), await at.member("bob")
        key = await at.follows(ann, "fire")
        for forbidden in (
            at.edge.read(bob, key, None, 1),
            at.edge.acknowledge(bob, {key: 0}),
            at.edge.unsubscribe(bob, key),
        ):
            with pytest.raises(NotFound):
                await forbidden
        with pytest.raises(NotFound):
            at.edge.subscription(bob, key)
        assert at.edge.subscriptions(bob) == []

    play(tmp_path, story)


def test_acknowledgements_are_all_or_none_and_never_go_back(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        fire, flood = await at.follows(ann, "fire"), await at.follows(ann, "flood")
        for kind in ("fire", "flood"):
            at.cluster.print(kind, *"abc")
            at.tell(kind, 3)
        with pytest.raises(BadInput, match="has come to 3"):
            await at.edge.acknowledge(ann, {fire: 2, flood: 4})
        assert await at.edge.acknowledge(ann, {fire: 2, flood: 3}) == {fire: 2, flood: 3}
        assert await at.edge.acknowledge(ann, {fire: 1, flood: 0}) == {fire: 2, flood: 3}
        assert at.store.load()["ann"].subscriptions[fire].acked == 2

    play(tmp_path, story)


def test_a_channel_that_was_just_made_can_be_subscribed_to(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        await at.follows(ann, "fire")
        at.edge.channels._asked -= 2
        at.cluster.known["newer"] = channel("newer")
        await at.edge.subscribe(ann, "newer", ["x"], "now")
        with pytest.raises(NotFound):
            await at.edge.subscribe(ann, "newest", ["x"], "now")
        assert at.cluster.calls.count("channels") == 2, "not at every call"

    play(tmp_path, story)


def test_of_many_who_want_channels_at_once_one_asks(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        at.edge.channels._asked = float("-inf")
        before = at.cluster.calls.count("channels")
        await asyncio.gather(*(at.edge.channels.get() for _ in range(100)))
        assert at.cluster.calls.count("channels") == before + 1

    play(tmp_path, story)


def test_limits_wait_until_channels_are_known(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        limited = [Allowed("of_kind", {"kind": "fire"})]
        ann = await at.member("ann")
        fire, flood = await at.follows(ann, "fire"), await at.follows(ann, "flood")
        ann = await at.member("ann", limited)
        assert [one.id for one in at.edge.subscriptions(ann)] == [fire]
        at.edge.channels.known, at.edge.channels.is_told = {}, False  # as after a first start
        with pytest.raises(Away):
            at.edge.subscription(ann, fire)
        at.edge.channels._asked = float("-inf")
        await at.edge.channels.get(float("inf"))
        assert at.edge.subscription(ann, fire).values == {"kind": "fire"}
        with pytest.raises(NotFound):
            at.edge.subscription(ann, flood)
        with pytest.raises(NotFound):
            await at.follows(ann, "quake")

    play(tmp_path, story)


def test_rules_hold_when_the_cluster_is_away_after_a_start(tmp_path: Path) -> None:
    bound = replace(channel("of_kind"), bind=(("kind", "subscriber"),))

    async def before(at: Scene) -> None:
        ann = await at.member("ann")
        await at.follows(ann, "fire")
        await at.follows(ann, "ann")
        at.cluster.known["of_kind"] = bound
        await at.edge.channels.get(0)

    async def away() -> dict[str, Channel]:
        raise Away("the data cluster does not answer")

    async def after(at: Scene) -> None:
        ann = await at.member("ann")
        at.edge.channels._ask = away
        await at.edge.channels.get(0)
        assert [one.values for one in at.edge.subscriptions(ann)] == [{"kind": "ann"}]
        with pytest.raises(NotFound):
            await at.edge.read(ann, frontend_id("ann", "of_kind", ["fire"]), None, 10)

    async def never_told(at: Scene) -> None:
        ann = await at.member("ann")
        at.edge.channels._ask = away
        for kind in ("fire", "ann"):
            with pytest.raises(Away):
                await at.edge.read(ann, frontend_id("ann", "of_kind", [kind]), None, 10)

    play(tmp_path, before)
    play(tmp_path, after)
    store = SqliteStore(tmp_path / "broker.sqlite", tell=False)
    store.remember("channels", "of another version")
    store.close()
    play(tmp_path, never_told)


def test_who_is_online_gets_no_signals_of_what_a_rule_forbids(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        at.cluster.known["of_kind"] = replace(channel("of_kind"), bind=(("kind", "subscriber"),))
        await at.edge.channels.get(0)
        followed: list[str] = []
        at.hub.follow = lambda sid, stream: followed.append(stream)  # type: ignore[method-assign]
        for kind in ("fire", "ann"):
            key = frontend_id("ann", "of_kind", [kind])
            made = Subscribe("ann", key, "of_kind", [kind], 0, ann.record.next_version())
            await at.members.change(made)  # as at another broker, before the rule
            at.edge.caught_up(ann.record, [made])
        assert followed == [at.cluster.stream("ann")]

    play(tmp_path, story)


def test_subscriptions_and_positions_are_there_after_a_start(tmp_path: Path) -> None:
    async def before(at: Scene) -> None:
        ann = await at.member("ann")
        key = await at.follows(ann, "fire")
        at.cluster.print("fire", *"abc")
        at.tell("fire", 3)
        await at.edge.acknowledge(ann, {key: 2})

    async def after(at: Scene) -> None:
        ann = await at.member("ann")
        (frontend,) = at.edge.subscriptions(ann)
        assert (frontend.position, frontend.head) == (2, 2)
        at.cluster.print("fire", *"abcd")
        at.edge.backends.mark_all()
        await asyncio.sleep(0.05)
        await at.settled()
        assert payloads(await at.edge.read(ann, frontend.id, None, 10)) == ["c", "d"]

    play(tmp_path, before)
    play(tmp_path, after)


def test_who_goes_and_comes_back_is_signalled_again(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        key = await at.follows(ann, "fire")
        at.cluster.print("fire", *"abcde")
        at.tell("fire", 5)
        await at.settled()
        record = ann.record
        await at.members.forget(["ann"])
        await at.members.adopt([record])
        back = await at.member("ann")
        at.cluster.print("fire", *"fg")
        at.tell("fire", 7)
        await at.settled()
        assert at.hub.signals[-1] == (at.cluster.stream("fire"), 7)
        assert payloads(await at.edge.read(back, key, None, 10)) == list("abcdefg")

    play(tmp_path, story)


def test_now_is_where_the_cluster_stands_and_not_another_reader(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        at.cluster.print("fire", *"abcde")
        stream = at.cluster.stream("fire")
        held = Held("of_kind", ["fire"], 1)
        await at.members.adopt([Record("ann", "hash", {}, {frontend_id("ann", "of_kind", ["fire"]): held})])
        assert at.edge.core.head(stream) < 5
        bob = await at.member("bob")
        key = await at.follows(bob, "fire", "now")
        assert at.edge.subscription(bob, key).position == 5

    play(tmp_path, story)


def test_a_subscription_made_while_its_subscriber_goes_and_comes_is_followed(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        making = asyncio.create_task(at.follows(ann, "fire"))
        await asyncio.sleep(0)
        await at.members.forget(["ann"])
        await at.members.adopt([Record("ann", "hash", {"s": Session(1, 2**50)})])
        try:
            await making
        except Elsewhere:
            return
        back = await at.member("ann")
        assert [one.channel for one in at.edge.subscriptions(back)] == ["of_kind"]

    play(tmp_path, story)


def test_a_change_of_a_subscriber_that_moves_meanwhile_is_taken_up_when_it_returns(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        dropped = await at.follows(ann, "flood")
        write = at.members._journal.write

        async def write_and_move(*changes: Change) -> None:
            await write(*changes)
            at.members.fence({"ann": 0})

        at.members._journal.write = write_and_move  # type: ignore[method-assign]
        for change in (at.follows(ann, "fire"), at.edge.unsubscribe(ann, dropped)):
            with pytest.raises(Elsewhere):
                await change
            at.members._fenced.clear()
        (listed,) = at.edge.subscriptions(ann)
        assert at.edge.subscription(ann, listed.id) == listed
        assert list(at.edge.core) == [at.cluster.stream("fire")]

    play(tmp_path, story)
