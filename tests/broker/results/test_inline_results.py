"""Results in notifications to subscribers: which frames have them, how they count, and who gets them."""

from __future__ import annotations

import asyncio
import csv
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.broker.scripted_cluster import channel, result
from support.broker.service_scene import Scene, play
from support.profiles import examples

from newsstand.auth.tokens import ChannelScope
from newsstand.broker.results.broker import PositionRange
from newsstand.broker.results.puller import PullerLimits
from newsstand.broker.sessions.subscribers import AuthenticatedSubscriber
from newsstand.client.models import Result, Subscription
from newsstand.client.notifications import Cursor
from newsstand.errors import NotFound
from newsstand.model import ChannelDefinition, Parameter
from newsstand.wire.cluster import FetchedResult
from newsstand.wire.notifications import Notification, StreamProgress


def accesses(at: Scene, kind: str) -> list[tuple[int, int]]:
    """Return the numbers and bytes of logged accesses."""
    at.edge.tick()
    if not (at.folder / "accesses.csv").exists():
        return []
    with (at.folder / "accesses.csv").open() as file:
        return [(int(row["hit"] or 0), int(row["bytes"])) for row in csv.DictReader(file) if row["kind"] == kind]


def test_pushed_and_pulled_results_sent_and_counted_as_reads(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        people = [await at.follower(name, "fire") for name in ("ann", "bob", "cleo")]
        ann, bob, cleo = (at.connect(who, inline=who.name != "cleo") for who, _ in people)
        at.cluster.print("fire", *"abc")
        at.tell("fire", 2, result(1, "a"), result(2, "b"))
        assert ann.sent() == bob.sent() == [(2, ["a", "b"])]
        assert cleo.sent() == [(2, [])]
        at.tell("fire", 3)
        await at.settled()
        assert ann.sent()[1:] == bob.sent()[1:] == [(3, ["c"])]
        assert cleo.sent()[1:] == [(3, [])]
        assert ann.frames[0]["results"][0]["origin"] == "cache"
        counts = at.edge.core.counts
        assert (counts.hits, counts.misses, counts.pulled) == (6, 0, 3)
        assert counts.hit_bytes == 2 * counts.pulled_bytes
        assert 'newsstand_broker_results_total{origin="cache"} 6.0' in at.edge.metrics.text().decode()
        logged = accesses(at, "result")
        assert [hits for hits, _ in logged] == [4, 2]
        assert sum(size for _, size in logged) == counts.hit_bytes
        assert at.edge.core.results.objects == 3, "an acknowledgement removes a result, its reading does not"
        for who, key in people:
            await at.edge.acknowledge(who, {key: 2})
        assert at.edge.core.results.held(at.cluster.stream("fire")) == (3, 3)

    play(tmp_path, story)


@pytest.mark.parametrize(("room", "sizes", "carried"), [(400, (99, 99), 2), (300, (99, 99), 0), (300, (300,), 0)])
def test_results_above_the_limit_left_out(tmp_path: Path, room: int, sizes: tuple[int, ...], carried: int) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        at.edge.puller.limits = PullerLimits(inline_bytes=room)
        connection = at.connect(ann)
        results = [result(position, "x" * size) for position, size in enumerate(sizes, 1)]
        at.tell("fire", len(sizes), *results)
        ((position, payloads),) = connection.sent()
        assert (position, len(payloads)) == (len(sizes), carried)
        assert at.edge.core.counts.hits == carried
        assert len((await at.edge.read(ann, key, None, 10)).results) == len(sizes)

    play(tmp_path, story)


@pytest.mark.parametrize(("policy", "budget"), [("nc", 100_000), ("lsc", 0)])
def test_results_that_are_not_cached_left_out(tmp_path: Path, policy: str, budget: int) -> None:
    async def story(at: Scene) -> None:
        ann, _ = await at.follower("ann", "fire")
        connection = at.connect(ann)
        at.tell("fire", 1, result(1, "a"))
        assert connection.sent() == [(1, [])]
        assert at.edge.core.counts.hits == 0

    play(tmp_path, story, policy=policy, budget=budget)


def test_repeated_notification_sends_no_results_again(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, _ = await at.follower("ann", "fire")
        connection = at.connect(ann)
        for _ in range(2):
            at.tell("fire", 1, result(1, "a"))
        at.tell("fire", 2, result(1, "a"), result(2, "b"))
        assert connection.sent() == [(1, ["a"]), (1, []), (2, ["b"])]

    play(tmp_path, story)


def during_reads(at: Scene, *steps: Callable[[], None]) -> None:
    """Take one step after each read of the cluster, before its results arrive."""
    read, left = at.cluster.read, list(steps)

    async def reading(spans: Mapping[str, PositionRange]) -> dict[str, list[FetchedResult] | Exception]:
        found = await read(spans)
        if left:
            left.pop(0)()
        return found

    at.cluster.read = reading  # type: ignore[method-assign]


def test_result_of_notification_during_its_pull_sent_and_counted_once(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, _ = await at.follower("ann", "fire")
        connection = at.connect(ann)
        at.cluster.print("fire", *"ab")
        during_reads(at, lambda: at.tell("fire", 1, result(1, "a")))
        at.tell("fire", 1)
        await at.settled()
        at.tell("fire", 2, result(2, "b"))
        assert [one for one in connection.sent() if one[1]] == [(1, ["a"]), (2, ["b"])]
        assert at.edge.core.counts.hits == 2
        assert sum(hits for hits, _ in accesses(at, "result")) == 2

    play(tmp_path, story)


def test_results_pushed_before_pulled_ones_replaced_by_later_ones(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, _ = await at.follower("ann", "fire")
        connection = at.connect(ann)
        at.cluster.print("fire", *"abcdef")
        during_reads(
            at,
            lambda: at.tell("fire", 3, result(3, "c")),  # 1 is being pulled, 2 is missing
            lambda: at.tell("fire", 5),  # 2 and 3 are being pulled
            lambda: at.tell("fire", 6, result(6, "f")),  # 4 and 5 are being pulled
        )
        at.tell("fire", 1)
        await at.settled()
        assert connection.sent()[-1] == (6, ["d", "e", "f"])
        assert at.cluster.calls.count("read 1") == 3

    play(tmp_path, story)


def test_results_removed_by_retention_are_not_sent(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, _ = await at.follower("ann", "fire")
        connection = at.connect(ann)
        at.cluster.print("fire", *"abcd")
        at.cluster.removed[at.cluster.stream("fire")] = 2
        at.tell("fire", 4, result(3, "c"), result(4, "d"))
        await at.settled()
        assert connection.sent()[-1] == (4, ["c", "d"])
        assert at.edge.core.counts.hits == 2

    play(tmp_path, story)


def test_limited_session_gets_results_of_its_channels_only(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        whole, key = await at.follower("ann", "fire")
        await at.follows(whole, "flood")
        limited = await at.member("ann", [ChannelScope("of_kind", {"kind": "flood"})])
        connection = at.connect(limited)
        at.tell("fire", 1, result(1, "secret"))
        at.tell("flood", 1, result(1, "open"))
        assert connection.sent() == [(1, ["open"])]
        with pytest.raises(NotFound):
            await at.edge.read(limited, key, None, 10)

    play(tmp_path, story)


def test_rule_of_a_channel_applies_to_open_connections(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, fire = await at.follower("ann", "fire")
        own = await at.follows(ann, "ann")
        connection = at.connect(ann)
        at.cluster.known["of_kind"] = replace(channel("of_kind"), bind=(("kind", "subscriber"),))
        await at.edge.channels.get(0)
        at.tell("fire", 1, result(1, "secret"))
        at.tell("ann", 1, result(1, "own"))
        assert connection.sent() == [(1, ["own"])]
        with pytest.raises(NotFound):
            await at.edge.read(ann, fire, None, 10)
        assert len((await at.edge.read(ann, own, None, 10)).results) == 1
        at.cluster.known["of_kind"] = channel("of_kind")
        await at.edge.channels.get(0)
        at.tell("fire", 2, result(2, "open"))
        assert connection.sent()[1:] == [(2, ["open"])]

    play(tmp_path, story)


def test_only_subscriptions_of_channels_with_other_rules_are_visited(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        at.cluster.known["other"] = channel("other")
        ann, _ = await at.follower("ann", "fire")
        await at.edge.subscribe(ann, "other", {"kind": "ann"}, "now")
        at.connect(ann)
        visited: list[str] = []
        follow, unfollow = at.hub.follow, at.hub.unfollow
        at.hub.follow = lambda sid, stream: (visited.append(stream), follow(sid, stream))  # type: ignore
        at.hub.unfollow = lambda sid, stream: (visited.append(stream), unfollow(sid, stream))  # type: ignore
        fire, other = at.cluster.stream("fire"), at.cluster.stream("ann", "other")
        changes: list[tuple[ChannelDefinition | None, list[str]]] = [
            (replace(channel("other"), query="SELECT 2"), []),
            (replace(channel("other"), period_s=1.0), []),
            (replace(channel("other"), bind=(("kind", "subscriber"),)), [other]),
            (replace(channel("other"), parameters=(Parameter("class", "string"),)), [other]),
            (None, [other]),
            (channel("other"), [other]),
        ]
        for definition, expected in changes:
            if definition is None:
                del at.cluster.known["other"]
            else:
                at.cluster.known["other"] = definition
            visited.clear()
            await at.edge.channels.get(0)
            assert visited == expected
        assert at.hub.streams == {fire, other}

    play(tmp_path, story)


def test_metrics_of_dropped_channel_are_removed(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        progress = [StreamProgress(at.cluster.stream("fire"), 1, [result(1, "a")])]
        at.edge.on_notification(Notification(channel="of_kind", at_ms=0, streams=progress))
        assert 'channel="of_kind"' in at.edge.metrics.text().decode()
        del at.cluster.known["of_kind"]
        await at.edge.channels.get(0)
        await at.edge.acknowledge(ann, {key: 1})
        assert 'channel="of_kind"' not in at.edge.metrics.text().decode()

    play(tmp_path, story)


def test_ended_session_and_dropped_subscription_get_nothing(tmp_path: Path) -> None:
    async def story(at: Scene) -> None:
        ann, key = await at.follower("ann", "fire")
        bob, _ = await at.follower("bob", "fire")
        of_ann, of_bob = at.connect(ann), at.connect(bob)
        await at.edge.unsubscribe(ann, key)
        at.tell("fire", 1, result(1, "a"))
        assert (of_ann.sent(), of_bob.sent()) == ([], [(1, ["a"])])
        assert at.edge.core.counts.hits == 1

    play(tmp_path, story)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "tell", "large", "repeat", "wait", "pause", "resume", "consume", "ack"]),
        st.integers(1, 4),
    ),
    max_size=20,
)


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, policy=st.sampled_from(["lsc", "lscz-any", "nc"]), budget=st.sampled_from([300, 100_000]))
def test_reader_gets_each_position_once_in_order(
    tmp_path: Path, steps: list[tuple[str, int]], policy: str, budget: int
) -> None:
    """Rule: whatever comes inline, late, large or again, a reader that uses frames and reads sees 1, 2, 3 …"""

    async def story(at: Scene) -> None:
        reader = ModelReader(at, *await at.follower("ann", "fire"))
        head, sent = 0, [(0, 0)]
        for what, count in steps:
            if what in ("push", "tell", "large"):
                payloads = [content(head + n, large=what == "large") for n in range(1, count + 1)]
                first, head = head + 1, at.cluster.print("fire", *payloads)
                sent.append((first, head))
                at.tell("fire", head, *([] if what == "tell" else pushed(at, first, head)))
            elif what == "repeat":
                first, last = sent[-min(count, len(sent))]
                at.tell("fire", last, *pushed(at, max(1, first), last))
            elif what == "wait":
                await asyncio.sleep(0.001)
            else:
                await reader.do(what, count)
        at.tell("fire", head)
        await at.settled()
        await reader.do("resume", 0)
        await reader.do("consume", 1000)
        assert [position for position, _ in reader.seen] == list(range(1, head + 1))
        stored = at.cluster.streams.get(at.cluster.stream("fire"), [])
        assert [payload for _, payload in reader.seen] == stored
        reader.check_frames(stored)
        assert at.edge.core.counts.hits == reader.inline_results + reader.read_hits
        assert sum(hits for hits, _ in accesses(at, "result")) == at.edge.core.counts.hits

    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        play(Path(folder), story, policy=policy, budget=budget)


def content(position: int, *, large: bool) -> dict[str, str]:
    return {"id": f"r{position}" + "x" * (20_000 if large else 0)}


def pushed(at: Scene, first: int, last: int) -> list[FetchedResult]:
    stored = at.cluster.streams.get(at.cluster.stream("fire"), [])
    return [result(position, stored[position - 1]) for position in range(first, last + 1)]


class ModelReader:
    """A reader with the cursor of the SDK; frames and reads are calls."""

    def __init__(self, at: Scene, member: AuthenticatedSubscriber, key: str) -> None:
        self._at = at
        self._member = member
        self._key = key
        self._connection = at.connect(member)
        self._handled = 0
        subscription = Subscription(key, "of_kind", {"kind": "fire"}, at.cluster.stream("fire"), 0, 0)
        self._cursor = Cursor(subscription, 0, asyncio.Event())
        self.seen: list[tuple[int, object]] = []
        self.inline_results = 0
        self.read_hits = 0

    async def do(self, what: str, count: int) -> None:
        if what == "pause":
            self._connection.paused = True
        elif what == "resume":
            self._connection.resume()
        elif what == "ack":
            await self._at.edge.acknowledge(self._member, {self._key: self._cursor.seen})
        else:
            self._handle_frames()
            while count > 0 and self._cursor.head > self._cursor.seen:
                found = self._cursor.take_inline() or await self._read(min(count, 3))
                for one in found:
                    self._cursor.seen = one.position
                    self.seen.append((one.position, one.payload))
                count -= len(found)

    def _handle_frames(self) -> None:
        for frame in self._connection.frames[self._handled :]:
            results = msgspec.convert([complete(one) for one in frame.get("results", [])], list[Result])
            self.inline_results += len(results)
            self._cursor.add_inline(results, 5)
            self._cursor.advance(frame["position"])
        self._handled = len(self._connection.frames)

    async def _read(self, limit: int) -> list[Result]:
        page = await self._at.edge.read(self._member, self._key, self._cursor.seen, limit)
        results = msgspec.convert([complete(json.loads(one)) for one in page.results], list[Result])
        self.read_hits += sum(one.origin == "cache" for one in results)
        return results

    def check_frames(self, stored: list[object]) -> None:
        """Check that results of a frame are those up to its position, without a gap."""
        for frame in self._connection.frames:
            if results := frame.get("results", []):
                last = frame["position"]
                positions = [one["position"] for one in results]
                assert positions == list(range(last - len(results) + 1, last + 1))
                assert [one["payload"] for one in results] == stored[positions[0] - 1 : last]


def complete(one: dict[str, object]) -> dict[str, object]:
    """Return a result of the scripted cluster with all fields of the client's."""
    return {"at_ms": 0, "publication": None, "page": None, **one}
