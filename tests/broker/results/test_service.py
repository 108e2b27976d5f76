"""The result service over a scripted cluster: subscriptions, reads, pulls and notifications, also concurrent."""

from __future__ import annotations

import asyncio
import json
import tempfile
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.broker.scripted_cluster import channel, result
from support.broker.service_scene import Scene, play
from support.profiles import examples

from newsstand.auth.tokens import ChannelScope
from newsstand.broker.cluster_client.client import ChannelDirectory, ClusterUnavailable
from newsstand.broker.results.service import ResultPage
from newsstand.broker.sessions.state import Change, frontend_id
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.broker.sessions.subscribers import SubscriberMoved
from newsstand.errors import BadInput, NotFound, ResultsExpired
from newsstand.model import ChannelDefinition
from newsstand.wire.subscribers import AddSubscription, SessionRecord, SubscriberRecord, SubscriptionRecord


def payloads(delivery: ResultPage) -> list[object]:
    return [json.loads(one)["payload"] for one in delivery.results]


def origins(delivery: ResultPage) -> list[object]:
    return [json.loads(one)["origin"] for one in delivery.results]


def test_equal_subscriptions_merged_and_dropped_with_the_last(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, bob = await at.member("ann"), await at.member("bob")
        first, second = await at.follows(ann, "fire"), await at.follows(bob, "fire")
        assert first != second
        assert list(at.cluster.frontends) == [at.cluster.stream("fire")]
        await at.edge.unsubscribe(ann, first)
        await asyncio.sleep(0.05)
        assert list(at.cluster.frontends) == [at.cluster.stream("fire")]
        await at.edge.unsubscribe(bob, second)
        await at.until(lambda: at.cluster.frontends == {})
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
        assert at.edge.sync.frontends(stream) == 3

    play(tmp_path, story)


def test_read_fails_on_removed_results_and_resumes_at_the_earliest(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire", "earliest")
        at.cluster.print("fire", *"abcde")
        at.cluster.removed[at.cluster.stream("fire")] = 3
        at.tell("fire", 5)
        await at.settled()
        with pytest.raises(ResultsExpired) as gone:
            await at.edge.read(ann, key, None, 10)
        assert gone.value.earliest == 4
        await at.edge.acknowledge(ann, {key: 3})
        delivery = await at.edge.read(ann, key, None, 10)
        assert (payloads(delivery), origins(delivery)) == (["d", "e"], ["cache", "cache"])

    play(tmp_path, story)


def test_read_fills_gaps_of_the_cache(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        at.cluster.print("fire", *"ab")
        at.tell("fire", 2)
        await at.settled()
        at.cluster.print("fire", *"cdef")
        at.cluster.removed[at.cluster.stream("fire")] = 4
        at.tell("fire", 6)
        await at.settled()
        delivery = await at.edge.read(ann, key, None, 10)
        assert (payloads(delivery), delivery.next) == (["a", "b"], 2)
        with pytest.raises(ResultsExpired):
            await at.edge.read(ann, key, 2, 10)
        assert payloads(await at.edge.read(ann, key, 4, 10)) == ["e", "f"]

    play(tmp_path, story)


def test_read_returns_cached_results_before_removed_ones(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        at.cluster.print("fire", "a", "b" * 900, "c")
        at.tell("fire", 3)
        await at.settled()
        at.cluster.removed[at.cluster.stream("fire")] = 2
        delivery = await at.edge.read(ann, key, None, 10)
        assert (payloads(delivery), origins(delivery), delivery.next) == (["a"], ["cache"], 1)
        with pytest.raises(ResultsExpired) as gone:
            await at.edge.read(ann, key, 1, 10)
        assert gone.value.earliest == 3
        delivery = await at.edge.read(ann, key, 2, 10)
        assert (payloads(delivery), origins(delivery), delivery.next) == (["c"], ["cache"], None)

    play(tmp_path, story, policy="lscz-any", budget=900)


def test_partial_response_is_continued_without_a_gap(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
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


def test_broker_registered_again_when_the_cluster_has_lost_it(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        at.cluster.print("fire", *"ab")
        at.cluster.forget()
        at.edge.core.advance(at.cluster.stream("fire"), 2, 1)
        with pytest.raises(ClusterUnavailable):
            await at.edge.read(ann, key, None, 10)
        await at.until(lambda: at.cluster.frontends == {at.cluster.stream("fire"): 1})
        assert payloads(await at.edge.read(ann, key, None, 10)) == ["a", "b"]

    play(tmp_path, story)


def test_stream_subscribed_again_when_the_cluster_does_not_know_it(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        at.cluster.print("fire", *"ab")
        at.cluster.frontends.clear()
        at.tell("fire", 2)
        await at.settled()
        assert payloads(await at.edge.read(ann, key, None, 10)) == ["a", "b"]

    play(tmp_path, story)


def test_concurrent_unsubscribes_drop_a_subscription_once(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, bob = await at.member("ann"), await at.member("bob")
        key = await at.follows(ann, "fire")
        await at.follows(bob, "fire")
        await asyncio.gather(*(at.edge.unsubscribe(ann, key) for _ in range(3)))
        with pytest.raises(NotFound):
            await at.edge.unsubscribe(ann, key)
        assert at.edge.sync.frontends(at.cluster.stream("fire")) == 1

    play(tmp_path, story)


def test_concurrent_subscribes_create_one_subscription(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        keys = await asyncio.gather(*(at.follows(ann, "fire") for _ in range(4)))
        assert len(set(keys)) == 1
        assert at.edge.sync.frontends(at.cluster.stream("fire")) == 1

    play(tmp_path, story)


def test_subscribe_fails_with_retry_when_the_subscriber_moves(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        subscribing = asyncio.create_task(at.follows(ann, "fire"))
        await asyncio.sleep(0)
        await at.members.forget(["ann"])
        with pytest.raises(SubscriberMoved):
            await subscribing
        await at.until(lambda: (len(at.edge.core), at.cluster.frontends) == (0, {}))

    play(tmp_path, story)


def test_moved_subscriber_leaves_no_subscriptions(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        await asyncio.gather(at.edge.unsubscribe(ann, key), at.members.forget(["ann"]))
        await at.until(lambda: (len(at.edge.core), at.cluster.frontends, at.store.load()) == (0, {}, {}))

    play(tmp_path, story)


def test_position_at_the_end_of_a_pull_is_pulled_too(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        key = await at.follows(await at.member("ann"), "fire")
        stream = at.cluster.stream("fire")
        at.cluster.print("fire", *"ab")
        at.tell("fire", 1)
        task = at.edge.puller.pulling[stream]
        while stream in at.edge.puller.pulling and not task.done():
            await asyncio.sleep(0)
        at.tell("fire", 2)
        await at.settled()
        assert at.edge.core.advance(stream, 0, 1) is None
        assert at.notifications[-1] == (stream, 2), key

    play(tmp_path, story)


@pytest.mark.parametrize("policy", ["lsc", "nc"])
def test_followers_notified_when_the_extent_is_known(tmp_path: Path, policy: str) -> None:
    """After a start: the subscription was there, and the cluster went on meanwhile."""

    async def story(at: Scene) -> None:
        await at.follows(await at.member("ann"), "fire")
        at.cluster.print("fire", *"abc")
        at.edge.sync.mark_all_dirty()
        await at.until(lambda: at.notifications[-1:] == [(at.cluster.stream("fire"), 3)])

    play(tmp_path, story, policy=policy)


def test_switch_to_no_cache_during_a_pull_loses_no_notification(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        at.cluster.print("fire", "a")
        at.cluster.failing = [ClusterUnavailable("not now")]
        at.tell("fire", 1)
        await asyncio.sleep(0.02)
        at.edge.set_policy("nc", None)
        await at.settled()
        assert at.notifications == [(at.cluster.stream("fire"), 1)]
        assert payloads(await at.edge.read(ann, key, None, 10)) == ["a"]

    play(tmp_path, story)


def test_stream_dropped_during_its_pull_causes_no_error(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        at.cluster.print("fire", "a")
        at.cluster.gate.clear()
        at.tell("fire", 1)
        task = at.edge.puller.pulling[at.cluster.stream("fire")]
        await asyncio.sleep(0.01)
        await at.edge.unsubscribe(ann, key)
        at.cluster.gate.set()
        await task
        assert at.edge.core.results.objects == 0

    play(tmp_path, story)


def test_pulls_resume_when_the_cluster_is_back(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        at.cluster.print("fire", "a")
        at.cluster.failing = [ClusterUnavailable("not now"), ClusterUnavailable("not now")]
        at.tell("fire", 1)
        await at.settled()
        assert origins(await at.edge.read(ann, key, None, 10)) == ["cache"]

    play(tmp_path, story)


def test_pushed_results_need_a_pull_only_after_a_gap(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
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


def test_pushed_results_that_are_known_in_part_need_no_pull(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        at.cluster.print("fire", *"abcde")
        at.tell("fire", 2, result(1, "a"), result(2, "b"))
        at.tell("fire", 2, result(1, "a"), result(2, "b"))  # the answer was lost, and the broker has restarted
        at.tell("fire", 4, *(result(position, "abcd"[position - 1]) for position in (2, 3, 4)))
        assert not any(call.startswith("read") for call in at.cluster.calls)
        assert at.notifications == [(at.cluster.stream("fire"), position) for position in (2, 2, 4)]
        assert payloads(await at.edge.read(ann, key, None, 10)) == list("abcd")
        assert at.edge.core.counts.pulled == 4

    play(tmp_path, story)


def test_pushed_results_with_a_gap_are_used_up_to_it(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        at.cluster.print("fire", *"abcd")
        at.tell("fire", 4, result(1, "a"), result(2, "b"), result(4, "d"))
        await at.settled()
        delivery = await at.edge.read(ann, key, None, 10)
        assert (payloads(delivery), origins(delivery)) == (list("abcd"), ["cache"] * 4)

    play(tmp_path, story)


def test_results_pushed_during_an_earlier_pull_are_not_pulled(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        at.cluster.print("fire", *"abcd")
        at.cluster.calls.clear()
        at.cluster.gate.clear()
        at.tell("fire", 2)
        await asyncio.sleep(0.01)
        at.tell("fire", 4, result(3, "c"), result(4, "d"))
        at.cluster.gate.set()
        await at.settled()
        assert at.cluster.calls == ["read 1"]
        assert at.notifications[-1] == (at.cluster.stream("fire"), 4)
        assert payloads(await at.edge.read(ann, key, None, 10)) == list("abcd")

    play(tmp_path, story)


STEPS = st.lists(st.tuples(st.sampled_from(["push", "tell", "late", "wait"]), st.integers(1, 4)), max_size=12)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_pushes_and_pulls_in_any_order_fill_the_cache_once(tmp_path: Path, steps: list[tuple[str, int]]) -> None:
    """Rule: however notifications come, each position is cached once, in order, and followers see the head."""

    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        head, sent = 0, [(0, 0)]
        for what, count in steps:
            if what == "wait":
                await asyncio.sleep(0.001)
                continue
            if what == "late":  # again, or out of order
                first, last = sent[-min(count, len(sent))]
            else:
                first, last = head + 1, head + count
                head = at.cluster.print("fire", *(f"r{number}" for number in range(first, last + 1)))
                sent.append((first, last))
            pushed = [result(number, f"r{number}") for number in range(first, last + 1) if number]
            at.tell("fire", last, *(() if what == "tell" else pushed))
        at.tell("fire", head)
        await at.settled()
        delivery = await at.edge.read(ann, key, None, 100)
        assert payloads(delivery) == [f"r{number}" for number in range(1, head + 1)]
        assert set(origins(delivery)) <= {"cache"}
        assert at.edge.core.counts.pulled == head
        assert at.notifications[-1:] in ([(at.cluster.stream("fire"), head)], [])

    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        play(Path(folder), story)


def test_results_pushed_during_a_pull_are_logged_once(tmp_path: Path) -> None:
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


def test_concurrent_misses_cost_one_fetch(tmp_path: Path) -> None:
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


def test_subscription_of_another_subscriber_is_not_accessible(tmp_path: Path) -> None:
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


def test_acknowledgements_are_atomic_and_never_decrease(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        fire, flood = await at.follows(ann, "fire"), await at.follows(ann, "flood")
        for kind in ("fire", "flood"):
            at.cluster.print(kind, *"abc")
            at.tell(kind, 3)
        with pytest.raises(BadInput, match="ends at 3"):
            await at.edge.acknowledge(ann, {fire: 2, flood: 4})
        assert await at.edge.acknowledge(ann, {fire: 2, flood: 3}) == {fire: 2, flood: 3}
        assert await at.edge.acknowledge(ann, {fire: 1, flood: 0}) == {fire: 2, flood: 3}
        assert at.store.load()["ann"].subscriptions[fire].acked == 2

    play(tmp_path, story)


def test_new_channel_can_be_subscribed_to(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        await at.follows(ann, "fire")
        at.clock += 2
        at.cluster.known["newer"] = channel("newer")
        await at.edge.subscribe(ann, "newer", ["x"], "now")
        with pytest.raises(NotFound):
            await at.edge.subscribe(ann, "newest", ["x"], "now")
        assert at.cluster.calls.count("channels") == 2, "not at every call"

    play(tmp_path, story)


def test_concurrent_lookups_of_channels_share_one_call(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        before = at.cluster.calls.count("channels")
        await asyncio.gather(*(at.edge.channels.get() for _ in range(100)))
        assert at.cluster.calls.count("channels") == before + 1

    play(tmp_path, story)


def test_scopes_wait_until_channels_are_known(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        limited = [ChannelScope("of_kind", {"kind": "fire"})]
        ann = await at.member("ann")
        fire, flood = await at.follows(ann, "fire"), await at.follows(ann, "flood")
        ann = await at.member("ann", limited)
        assert [one.id for one in at.edge.subscriptions(ann)] == [fire]
        at.edge.channels = ChannelDirectory(at.cluster.channels)  # as after a first start
        with pytest.raises(ClusterUnavailable):
            at.edge.subscription(ann, fire)
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

    async def away() -> dict[str, ChannelDefinition]:
        raise ClusterUnavailable("the data cluster does not answer")

    async def after(at: Scene) -> None:
        ann = await at.member("ann")
        at.edge.channels = ChannelDirectory(away, at.store)
        await at.edge.channels.get(0)
        assert [one.values for one in at.edge.subscriptions(ann)] == [{"kind": "ann"}]
        with pytest.raises(NotFound):
            await at.edge.read(ann, frontend_id("ann", "of_kind", ["fire"]), None, 10)

    async def unreachable(at: Scene) -> None:
        ann = await at.member("ann")
        at.edge.channels = ChannelDirectory(away, at.store)
        for kind in ("fire", "ann"):
            with pytest.raises(ClusterUnavailable):
                await at.edge.read(ann, frontend_id("ann", "of_kind", [kind]), None, 10)

    play(tmp_path, before)
    play(tmp_path, after)
    store = SubscriberStore(tmp_path / "broker.sqlite", replicate=False)
    store.set_meta("channels", "of another version")
    store.close()
    play(tmp_path, unreachable)


def test_forbidden_subscription_is_not_notified(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        at.cluster.known["of_kind"] = replace(channel("of_kind"), bind=(("kind", "subscriber"),))
        await at.edge.channels.get(0)
        followed: list[str] = []
        at.hub.follow = lambda sid, stream: followed.append(stream)  # type: ignore[method-assign]
        for kind in ("fire", "ann"):
            key = frontend_id("ann", "of_kind", [kind])
            made = AddSubscription("ann", key, "of_kind", [kind], 0, ann.record.next_version())
            await at.members.change(made)  # as at another broker, before the rule
            at.edge.on_synced(ann.record, [made])
        assert followed == [at.cluster.stream("ann")]

    play(tmp_path, story)


def test_subscriptions_and_positions_survive_a_restart(tmp_path: Path) -> None:
    async def before(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        at.cluster.print("fire", *"abc")
        at.tell("fire", 3)
        await at.edge.acknowledge(ann, {key: 2})

    async def after(at: Scene) -> None:
        ann = await at.member("ann")
        (frontend,) = at.edge.subscriptions(ann)
        assert (frontend.position, frontend.head) == (2, 2)
        at.cluster.print("fire", *"abcd")
        at.edge.sync.mark_all_dirty()
        await asyncio.sleep(0.05)
        await at.settled()
        assert payloads(await at.edge.read(ann, frontend.id, None, 10)) == ["c", "d"]

    play(tmp_path, before)
    play(tmp_path, after)


def test_returning_subscriber_is_notified_again(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
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
        assert at.notifications[-1] == (at.cluster.stream("fire"), 7)
        assert payloads(await at.edge.read(back, key, None, 10)) == list("abcdefg")

    play(tmp_path, story)


def test_since_now_is_the_head_at_the_cluster(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        at.cluster.print("fire", *"abcde")
        stream = at.cluster.stream("fire")
        held = SubscriptionRecord("of_kind", ["fire"], 1)
        await at.members.adopt(
            [SubscriberRecord("ann", "hash", {}, {frontend_id("ann", "of_kind", ["fire"]): held})]
        )
        assert at.edge.core.head(stream) < 5
        bob, key = await at.follower("bob", "fire", "now")
        assert at.edge.subscription(bob, key).position == 5

    play(tmp_path, story)


def test_subscription_followed_when_its_subscriber_moves_meanwhile(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann = await at.member("ann")
        making = asyncio.create_task(at.follows(ann, "fire"))
        await asyncio.sleep(0)
        await at.members.forget(["ann"])
        await at.members.adopt([SubscriberRecord("ann", "hash", {"s": SessionRecord(1, 2**50)})])
        try:
            await making
        except SubscriberMoved:
            return
        back = await at.member("ann")
        assert [one.channel for one in at.edge.subscriptions(back)] == ["of_kind"]

    play(tmp_path, story)


def test_change_during_a_move_applied_when_the_subscriber_returns(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, dropped = await at.follower("ann", "flood")
        write = at.members.commits.write

        async def write_and_move(*changes: Change) -> None:
            await write(*changes)
            at.members.fence({"ann": 0})

        at.members.commits.write = write_and_move  # type: ignore[method-assign]
        for change in (at.follows(ann, "fire"), at.edge.unsubscribe(ann, dropped)):
            with pytest.raises(SubscriberMoved):
                await change
            await at.members.adopt([deepcopy(ann.record)])  # it returns
        (listed,) = at.edge.subscriptions(ann)
        assert at.edge.subscription(ann, listed.id) == listed
        assert list(at.edge.core) == [at.cluster.stream("fire")]

    play(tmp_path, story)


def test_first_list_of_channels_is_a_change_even_if_it_is_empty() -> None:
    lists: list[dict[str, ChannelDefinition]] = [{}, {}, {"of_kind": channel("of_kind")}, {}]
    previous: list[object] = []

    async def fetch() -> dict[str, ChannelDefinition]:
        return lists.pop(0)

    async def story() -> None:
        channels = ChannelDirectory(fetch, on_change=previous.append)
        while lists:
            await channels.get(0)

    asyncio.run(story())
    assert previous == [None, {}, {"of_kind": channel("of_kind")}]
