"""Parts of a live broker, each alone: fetches, backend subscriptions, calls of the cluster, the shelf of pages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_cluster import ScriptedCluster, result

from newsstand.broker.backends import Backends
from newsstand.broker.broker import Span
from newsstand.broker.fetches import Fetched, Fetches, Together
from newsstand.broker.page_content import Content
from newsstand.broker.shelf import Shelf
from newsstand.broker.told import read_told
from newsstand.broker.upstream import Away, Gone, Standing, Upstream, Wanted
from newsstand.caching import POLICIES
from newsstand.errors import BadInput, BadOption, BadValues, NewsstandError, NotFound


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def patiently() -> None:
        await asyncio.wait_for(story(), 20)

    asyncio.run(patiently())


# Fetches


class Reads:
    """Reads of a cluster that wait until they are let."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Span]] = []
        self.let = asyncio.Event()
        self.fault: Exception | None = None

    async def __call__(self, stream: str, span: Span) -> list[Fetched]:
        self.asked.append((stream, span))
        await self.let.wait()
        if self.fault is not None:
            raise self.fault
        return [result(position, stream) for position in range(span.after + 1, span.until + 1)]


async def begun(*coroutines: Awaitable[list[Fetched]]) -> list[asyncio.Future[list[Fetched]]]:
    tasks = [asyncio.ensure_future(one) for one in coroutines]
    await asyncio.sleep(0.001)
    return tasks


def positions(results: list[Fetched]) -> list[int]:
    return [one.position for one in results]


def test_concurrent_misses_of_the_same_results_are_one_fetch() -> None:
    async def story() -> None:
        reads = Reads()
        fetches = Fetches(reads)
        tasks = await begun(*(fetches.get("fire", Span(0, 3)) for _ in range(5)))
        reads.let.set()
        assert [positions(one) for one in await asyncio.gather(*tasks)] == [[1, 2, 3]] * 5
        assert reads.asked == [("fire", Span(0, 3))]
        await fetches.get("fire", Span(0, 3))
        assert len(reads.asked) == 2, "what has come is not kept"

    run(story)


def test_of_overlapping_spans_only_what_is_not_coming_is_asked_for() -> None:
    async def story() -> None:
        reads = Reads()
        fetches = Fetches(reads)
        tasks = await begun(fetches.get("fire", Span(2, 4)), fetches.get("fire", Span(6, 8)))
        tasks += await begun(fetches.get("fire", Span(0, 10)), fetches.get("flood", Span(0, 10)))
        reads.let.set()
        found = await asyncio.gather(*tasks)
        assert [positions(one) for one in found[:2]] == [[3, 4], [7, 8]]
        assert [positions(one) for one in found[2:]] == [list(range(1, 11))] * 2
        asked = [span for stream, span in reads.asked if stream == "fire"]
        assert asked == [Span(2, 4), Span(6, 8), Span(0, 2), Span(4, 6), Span(8, 10)]

    run(story)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), min_size=1, max_size=8))
def test_everybody_gets_what_they_asked_for_and_no_position_is_read_twice_at_a_time(
    asked: list[tuple[int, int]],
) -> None:
    async def story() -> None:
        reads = Reads()
        fetches = Fetches(reads)
        spans = [Span(after, after + length) for after, length in asked]
        tasks = await begun(*(fetches.get("fire", span) for span in spans))
        reads.let.set()
        for span, found in zip(spans, await asyncio.gather(*tasks), strict=True):
            assert positions(found) == list(range(span.after + 1, span.until + 1))
        read = [position for _, span in reads.asked for position in range(span.after, span.until)]
        assert len(set(read)) == len(read)

    run(story)


def test_a_reader_that_leaves_does_not_take_the_results_from_the_others() -> None:
    async def story() -> None:
        reads = Reads()
        fetches = Fetches(reads)
        leaving, staying = await begun(fetches.get("fire", Span(0, 3)), fetches.get("fire", Span(0, 2)))
        leaving.cancel()
        await asyncio.sleep(0)
        reads.let.set()
        assert positions(await staying) == [1, 2]

    run(story)


def test_a_fault_is_told_to_all_who_wait_and_the_next_reader_asks_anew() -> None:
    async def story() -> None:
        reads = Reads()
        fetches = Fetches(reads)
        tasks = await begun(fetches.get("fire", Span(0, 3)), fetches.get("fire", Span(1, 2)))
        reads.fault = Away("not now")
        reads.let.set()
        told = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in told] == [Away, Away]
        reads.fault = None
        assert positions(await fetches.get("fire", Span(0, 3))) == [1, 2, 3]

    run(story)


def test_reads_of_one_moment_go_together() -> None:
    async def story() -> None:
        calls: list[dict[str, Span]] = []

        async def read(spans: Mapping[str, Span]) -> Mapping[str, list[Fetched] | Exception]:
            calls.append(dict(spans))
            return {stream: Gone(9) if stream == "gone" else [result(1, stream)] for stream in spans}

        together = Together(read, most=3)
        names = ["a", "b", "gone", "c", "a"]
        told = await asyncio.gather(*(together.read(name, Span(0, 1)) for name in names), return_exceptions=True)
        assert [type(one) for one in told] == [list, list, Gone, list, list]
        assert [list(call) for call in calls] == [["a", "b", "gone"], ["c", "a"]]

    run(story)


def test_a_fault_of_reads_that_go_together_is_told_to_each() -> None:
    async def story() -> None:
        async def read(_: Mapping[str, Span]) -> Mapping[str, list[Fetched] | Exception]:
            raise Away("not now")

        together = Together(read)
        told = await asyncio.gather(*(together.read(name, Span(0, 1)) for name in "ab"), return_exceptions=True)
        assert [type(one) for one in told] == [Away, Away]

    run(story)


# Backend subscriptions


class Backing:
    """Backends over a scripted cluster."""

    def __init__(self, linger_s: float = 0) -> None:
        self.cluster = ScriptedCluster()
        self.stood: list[tuple[str, Standing]] = []
        self.backends = Backends(
            self.cluster,  # type: ignore[arg-type]
            self.cluster.register,
            lambda *standing: self.stood.append(standing),
            lazily_s=0.05,
            linger_s=linger_s,
        )

    async def __aenter__(self) -> Backing:
        self.task = asyncio.create_task(self.backends.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert not self.task.done(), "it has to go on, whatever happens"
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def frontend(self, kind: str, change: int = 1, channel: str = "of_kind") -> str:
        stream = self.cluster.stream(kind, channel)
        if change > 0:
            self.backends.more(stream, channel, (kind,))
        else:
            self.backends.fewer(stream)
        return stream

    async def until(self, wanted: Mapping[str, int]) -> None:
        for _ in range(400):
            if self.cluster.frontends == wanted:
                return
            await asyncio.sleep(0.01)
        assert self.cluster.frontends == wanted


def test_new_streams_go_to_the_cluster_together_and_the_last_frontend_drops_one() -> None:
    async def story() -> None:
        async with Backing() as at:
            streams = [at.frontend(str(n)) for n in range(50)]
            await at.until(dict.fromkeys(streams, 1))
            assert at.cluster.calls == ["subscribe 50"]
            at.frontend("0")
            at.frontend("1", -1)
            await at.until({streams[0]: 2} | dict.fromkeys(streams[2:], 1))
            assert streams[1] not in at.backends
            at.frontend("0", -1)
            await at.until(dict.fromkeys([streams[0], *streams[2:]], 1))

    run(story)


def test_a_stream_that_is_left_and_wanted_again_at_once_stays() -> None:
    async def story() -> None:
        async with Backing() as at:
            stream = at.frontend("fire")
            await at.until({stream: 1})
            at.frontend("fire", -1)
            at.frontend("fire")
            await asyncio.sleep(0.1)
            assert at.cluster.frontends == {stream: 1}

    run(story)


def test_a_stream_lingers_anew_after_the_cluster_was_away_for_another_broker_takes_it_up_late_too() -> None:
    async def story() -> None:
        async with Backing(linger_s=1000) as at:
            left, other = at.frontend("left"), at.frontend("other")
            await at.until({left: 1, other: 1})
            at.frontend("left", -1)
            at.backends._backends[left].idle_since -= 2000
            at.cluster.failing = [Away("not now")]
            more = at.frontend("more")
            await at.until({left: 1, other: 1, more: 1})
            at.backends._backends[left].idle_since -= 2000
            at.backends.mark(left)
            await at.until({other: 1, more: 1})

    run(story)


def test_a_stream_of_before_the_start_that_nobody_follows_lingers_and_is_dropped() -> None:
    async def story() -> None:
        async with Backing(linger_s=1000) as at:
            kept, left = at.frontend("kept"), at.frontend("left")
            await at.until({kept: 1, left: 1})
            at.backends._backends.clear()  # as in a process that has just started
            at.frontend("kept")
            at.backends.linger([kept, left])
            await at.until({kept: 1, left: 1})
            at.backends._backends[left].idle_since -= 2000
            at.backends.mark(left)
            await at.until({kept: 1})

    run(story)


def test_what_could_not_be_told_is_told_later_and_who_waits_hears_why() -> None:
    async def story() -> None:
        async with Backing() as at:
            at.cluster.failing = [Away("not now"), Away("not now")]
            stream = at.frontend("fire")
            with pytest.raises(Away):
                await at.backends.standing(stream)
            await at.until({stream: 1})

    run(story)


def test_a_cluster_that_forgot_the_broker_gets_all_again() -> None:
    async def story() -> None:
        async with Backing() as at:
            one, two = at.frontend("1"), at.frontend("2")
            await at.until({one: 1, two: 1})
            at.cluster.forget()
            three = at.frontend("3")
            assert await at.backends.standing(three) == Standing(0, 1)
            await at.until({one: 1, two: 1, three: 1})

    run(story)


def test_a_stream_to_drop_at_a_cluster_that_forgot_the_broker_does_not_stop_the_others() -> None:
    async def story() -> None:
        async with Backing() as at:
            one, two = at.frontend("1"), at.frontend("2")
            await at.until({one: 1, two: 1})
            at.cluster.forget()
            at.frontend("1", -1)
            await at.until({two: 1})

    run(story)


def test_one_that_the_cluster_does_not_take_does_not_stop_the_others() -> None:
    async def story() -> None:
        async with Backing() as at:
            at.cluster.refused = {"bad"}
            streams = [at.frontend(str(n)) for n in range(10)]
            bad = at.frontend("x", channel="bad")
            with pytest.raises(BadValues):
                await at.backends.standing(bad)
            await at.until(dict.fromkeys(streams, 1))
            assert len(at.cluster.calls) < 12

    run(story)


def test_a_cluster_that_does_not_say_where_a_stream_stands_leaves_nobody_waiting() -> None:
    async def story() -> None:
        async with Backing() as at:

            async def silent(_: object) -> list[tuple[str, Standing]]:
                return []

            at.cluster.subscribe = silent  # type: ignore[method-assign, assignment]
            with pytest.raises(Away):
                await at.backends.standing(at.frontend("fire"))

    run(story)


# Calls of the cluster


def upstream(answers: Callable[[httpx.Request], httpx.Response]) -> Upstream:
    http = httpx.AsyncClient(base_url="http://cluster", transport=httpx.MockTransport(answers))
    return Upstream(http, "edge")


def test_channels_are_read_to_the_last_page() -> None:
    pages = {"": (["a", "b"], "b"), "b": (["c"], None)}

    def answers(request: httpx.Request) -> httpx.Response:
        names, following = pages[request.url.params.get("after", "")]
        return httpx.Response(200, json={"channels": [{"name": name} for name in names], "next": following})

    async def story() -> None:
        assert list(await upstream(answers).channels()) == ["a", "b", "c"]

    run(story)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (404, b'{"error": "no broker"}', NotFound),
        (410, b'{"error": "gone", "earliest": 7}', Gone),
        (422, b'{"error": "bad"}', BadValues),
        (413, b"", BadInput),
        (401, b'{"error": "token"}', Away),
        (403, b'{"error": "scope"}', Away),
        (429, b"{}", Away),
        (500, b"<html>", Away),
        (503, b"[]", Away),
        (200, b"<html>", Away),
        (200, b"{}", Away),
        (200, b"[" * 100_000, Away),
    ],
)
def test_what_the_cluster_answers_is_an_error_of_ours(status: int, body: bytes, error: type[Exception]) -> None:
    async def story() -> None:
        cluster = upstream(lambda _: httpx.Response(status, content=body))
        for call in (
            cluster.channels(),
            cluster.subscribe([Wanted("near", ("x",), 1)]),
            cluster.read({"s": Span(0, 1)}),
        ):
            with pytest.raises(error):
                await call
        with pytest.raises(error):
            [one async for one in cluster.subscriptions()]
        assert cluster.is_up == (status < 500)

    run(story)


def test_a_cluster_that_does_not_answer_is_away() -> None:
    async def story() -> None:
        def broken(request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("refused", request=request)

        cluster = upstream(broken)
        with pytest.raises(Away):
            await cluster.register("http://here/told")
        with pytest.raises(Away):
            async with cluster.page("a" * 32, {}):
                pass
        assert not cluster.is_up

    run(story)


def test_a_long_span_is_read_in_as_many_calls_as_it_takes() -> None:
    """The cluster stops at a number of bytes, which nobody can know before."""
    calls = []

    def answers(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        calls.append([one["subscription"] for one in asked])
        room, slices = 3, []
        for one in asked:
            until = min(one["until"], one["after"] + min(room, one["limit"]))
            found = [{"position": n, "at_ms": 0} for n in range(one["after"] + 1, until + 1)]
            room -= len(found) if one["subscription"].startswith("f") else 0
            stream = {"subscription": one["subscription"], "results": found, "head": 5, "earliest": 1}
            if one["subscription"] == "old":
                stream |= {"results": [], "earliest": 4}
            if one["subscription"] != "unknown":
                slices.append(stream)
        return httpx.Response(200, json={"streams": slices})

    async def story() -> None:
        spans = dict.fromkeys(["old", "unknown", "fire", "flood"], Span(0, 5))
        found = await upstream(answers).read(spans)
        assert isinstance(found["old"], Gone)
        assert isinstance(found["unknown"], Away)
        for name in ("fire", "flood"):
            results = found[name]
            assert isinstance(results, list)
            assert positions(results) == [1, 2, 3, 4, 5]
        assert len(calls) == 4

    run(story)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"streams":[1]}', b'{"streams":[{"subscription":1}]}'])
def test_a_notification_that_cannot_be_read_is_bad_input(body: bytes) -> None:
    with pytest.raises(BadInput, match="body"):
        read_told(body)


# The shelf


class Origin:
    """Where pages come from."""

    def __init__(self, **sizes: int) -> None:
        self.sizes = sizes
        self.fetched: list[str] = []
        self.let = asyncio.Event()
        self.let.set()
        self.fault: NewsstandError | None = None

    async def __call__(self, page: str) -> Content:
        self.fetched.append(page)
        await self.let.wait()
        if self.fault is not None:
            raise self.fault
        if page not in self.sizes:
            raise NotFound(f"there is no page '{page}'")
        return Content(page.encode()[:1] * self.sizes[page], "text/plain")


async def quiet() -> None:
    await asyncio.sleep(0.005)


def test_a_page_that_is_wanted_is_pushed_and_read_from_the_shelf() -> None:
    async def story() -> None:
        origin = Origin(a=10)
        shelf = Shelf("sg2", 100, origin)
        told = []
        shelf.on_push = lambda *offered: told.append(offered)
        shelf.offered("a", 10, 3)
        shelf.offered("a", 10, 3)
        await quiet()
        content, hit = await shelf.get("a")
        assert (content.data, hit) == (b"a" * 10, True)
        assert (origin.fetched, shelf.bytes, len(shelf), shelf.counts.pushed) == (["a"], 10, 1, 1)
        assert told == [("a", 10, 3, True)]

    run(story)


def test_needed_fetches_nothing_that_would_not_be_stored_and_always_does() -> None:
    async def story() -> None:
        origin = Origin(large=500, small=10)
        shelf = Shelf("sg2", 100, origin)
        shelf.offered("large", 500, 3)
        shelf.offered("empty", 0, 3)
        await quiet()
        assert (origin.fetched, shelf.counts.push_refused) == ([], 1)
        shelf.arrange("sg2", 100, "always")
        shelf.offered("large", 500, 3)
        shelf.offered("small", 10, 3)
        await quiet()
        assert origin.fetched == ["large", "small"]
        assert (shelf.counts.pushed, shelf.counts.push_refused, len(shelf)) == (2, 2, 1)

    run(story)


def test_concurrent_readers_of_a_page_fetch_it_once() -> None:
    async def story() -> None:
        origin = Origin(a=10)
        origin.let.clear()
        shelf = Shelf("gdstar", 100, origin)
        readers = [asyncio.create_task(shelf.get("a")) for _ in range(5)]
        await quiet()
        readers.pop().cancel()
        shelf.offered("a", 10, 1)
        origin.let.set()
        got = await asyncio.gather(*readers)
        assert {hit for _, hit in got} == {False}
        assert (await shelf.get("a"))[1] is True
        assert (origin.fetched, shelf.counts.misses, shelf.counts.hits) == (["a"], 4, 1)

    run(story)


def test_a_reader_during_a_push_waits_for_it() -> None:
    async def story() -> None:
        origin = Origin(a=10)
        origin.let.clear()
        shelf = Shelf("sg2", 100, origin)
        shelf.offered("a", 10, 1)
        reader = asyncio.create_task(shelf.get("a"))
        await quiet()
        origin.let.set()
        await reader
        assert origin.fetched == ["a"]
        assert (await shelf.get("a"))[1] is True

    run(story)


def test_what_is_evicted_is_not_there_any_more() -> None:
    async def story() -> None:
        origin = Origin(a=60, b=60)
        shelf = Shelf("lru", 100, origin)
        for page in "ab":
            await shelf.get(page)
        assert (len(shelf), shelf.bytes) == (1, 60)
        assert (await shelf.get("a"))[1] is False

    run(story)


def test_a_page_that_cannot_be_fetched_is_no_accident() -> None:
    async def story() -> None:
        origin = Origin(a=10)
        origin.fault = Away("not now")
        shelf = Shelf("sg2", 100, origin)
        shelf.offered("a", 10, 2)
        await quiet()
        with pytest.raises(Away):
            await shelf.get("a")
        origin.fault = None
        assert (await shelf.get("a"))[1] is False
        assert (await shelf.get("a"))[1] is True
        with pytest.raises(NotFound):
            await shelf.get("b")

    run(story)


def test_a_page_too_large_for_memory_takes_no_room() -> None:
    async def story() -> None:
        origin = Origin(b=60)
        shelf = Shelf("sg2", 100, origin, largest=70)
        shelf.offered("a", 80, 9)
        await quiet()
        assert (origin.fetched, shelf.counts.push_refused) == ([], 1)
        shelf.offered("b", 60, 1)
        await quiet()
        assert (await shelf.get("b"))[1] is True

    run(story)


LIVE = [name for name in POLICIES if POLICIES[name].score is not None or POLICIES[name].machine is not None]


@pytest.mark.parametrize("policy", LIVE)
def test_a_switch_to_any_policy_keeps_what_fits(policy: str) -> None:
    async def story() -> None:
        origin = Origin(a=10, b=20, c=30)
        shelf = Shelf("sg2", 100, origin)
        for page, size in origin.sizes.items():
            shelf.offered(page, size, 2)
        await quiet()
        shelf.arrange(policy, 45, "needed")
        assert shelf.bytes <= 45
        for _ in range(2):
            for page, size in origin.sizes.items():
                content, _ = await shelf.get(page)
                assert len(content.data) == size
        assert shelf.bytes <= 45

    run(story)


def test_an_arrangement_that_cannot_be_changes_nothing() -> None:
    async def story() -> None:
        shelf = Shelf("sg2", 100, Origin())
        future = next(name for name in POLICIES if name not in LIVE)
        for policy, capacity, push in ((future, 1, "needed"), ("nonsense", 1, "needed"), ("sg2", -1, "needed")):
            with pytest.raises(BadInput):
                shelf.arrange(policy, capacity, push)  # type: ignore[arg-type]
        with pytest.raises(BadOption):
            shelf.arrange("sg2", 1, "sometimes")  # type: ignore[arg-type]
        assert (shelf.policy, shelf.capacity, shelf.push) == ("sg2", 100, "needed")

    run(story)
