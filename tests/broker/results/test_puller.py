"""Reads of results from the cluster: no position is read twice at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from support.broker.scripted_cluster import result
from support.event_loops import run
from support.profiles import examples

from newsstand.broker.cluster_client.client import (
    ClusterUnavailable,
)
from newsstand.broker.results.broker import PositionRange
from newsstand.broker.results.puller import RangeFetcher
from newsstand.errors import ResultsExpired
from newsstand.wire.cluster import FetchedResult


class Reads:
    """Reads of a cluster that wait until they are let."""

    def __init__(self) -> None:
        self.requested: list[tuple[str, PositionRange]] = []
        self.let = asyncio.Event()
        self.fault: Exception | None = None

    async def __call__(self, spans: Mapping[str, PositionRange]) -> Mapping[str, list[FetchedResult] | Exception]:
        self.requested += spans.items()
        await self.let.wait()
        if self.fault is not None:
            raise self.fault
        return {
            stream: [result(position, stream) for position in range(span.after + 1, span.until + 1)]
            for stream, span in spans.items()
        }


async def begun(*coroutines: Awaitable[list[FetchedResult]]) -> list[asyncio.Future[list[FetchedResult]]]:
    tasks = [asyncio.ensure_future(one) for one in coroutines]
    await asyncio.sleep(0.001)
    return tasks


def positions(results: list[FetchedResult]) -> list[int]:
    return [one.position for one in results]


def test_concurrent_misses_of_the_same_results_are_one_fetch() -> None:
    async def story() -> None:
        reads = Reads()
        fetches = RangeFetcher(reads)
        tasks = await begun(*(fetches.get("fire", PositionRange(0, 3)) for _ in range(5)))
        reads.let.set()
        assert [positions(one) for one in await asyncio.gather(*tasks)] == [[1, 2, 3]] * 5
        assert reads.requested == [("fire", PositionRange(0, 3))]
        await fetches.get("fire", PositionRange(0, 3))
        assert len(reads.requested) == 2, "what has come is not kept"

    run(story)


def test_overlapping_spans_fetch_only_the_missing_rest() -> None:
    async def story() -> None:
        reads = Reads()
        fetches = RangeFetcher(reads)
        tasks = await begun(fetches.get("fire", PositionRange(2, 4)), fetches.get("fire", PositionRange(6, 8)))
        tasks += await begun(fetches.get("fire", PositionRange(0, 10)), fetches.get("flood", PositionRange(0, 10)))
        reads.let.set()
        found = await asyncio.gather(*tasks)
        assert [positions(one) for one in found[:2]] == [[3, 4], [7, 8]]
        assert [positions(one) for one in found[2:]] == [list(range(1, 11))] * 2
        asked = [span for stream, span in reads.requested if stream == "fire"]
        assert asked == [
            PositionRange(2, 4),
            PositionRange(6, 8),
            PositionRange(0, 2),
            PositionRange(4, 6),
            PositionRange(8, 10),
        ]

    run(story)


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), min_size=1, max_size=8))
def test_concurrent_reads_return_their_spans_and_read_no_position_twice(
    asked: list[tuple[int, int]],
) -> None:
    async def story() -> None:
        reads = Reads()
        fetches = RangeFetcher(reads)
        spans = [PositionRange(after, after + length) for after, length in asked]
        tasks = await begun(*(fetches.get("fire", span) for span in spans))
        reads.let.set()
        for span, found in zip(spans, await asyncio.gather(*tasks), strict=True):
            assert positions(found) == list(range(span.after + 1, span.until + 1))
        read = [position for _, span in reads.requested for position in range(span.after, span.until)]
        assert len(set(read)) == len(read)

    run(story)


def test_cancelled_reader_leaves_the_fetch_to_the_others() -> None:
    async def story() -> None:
        reads = Reads()
        fetches = RangeFetcher(reads)
        leaving, staying = await begun(
            fetches.get("fire", PositionRange(0, 3)), fetches.get("fire", PositionRange(0, 2))
        )
        leaving.cancel()
        await asyncio.sleep(0)
        reads.let.set()
        assert positions(await staying) == [1, 2]

    run(story)


def test_fetch_error_reaches_all_waiters_and_is_not_cached() -> None:
    async def story() -> None:
        reads = Reads()
        fetches = RangeFetcher(reads)
        tasks = await begun(fetches.get("fire", PositionRange(0, 3)), fetches.get("fire", PositionRange(1, 2)))
        reads.fault = ClusterUnavailable("not now")
        reads.let.set()
        received = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in received] == [ClusterUnavailable, ClusterUnavailable]
        reads.fault = None
        assert positions(await fetches.get("fire", PositionRange(0, 3))) == [1, 2, 3]

    run(story)


def test_concurrent_reads_share_one_call() -> None:
    async def story() -> None:
        calls: list[dict[str, PositionRange]] = []

        async def read(spans: Mapping[str, PositionRange]) -> Mapping[str, list[FetchedResult] | Exception]:
            calls.append(dict(spans))
            return {
                stream: ResultsExpired(9) if stream == "gone" else [result(span.until, stream)]
                for stream, span in spans.items()
            }

        fetcher = RangeFetcher(read, most=3)
        names = ["a", "b", "gone", "c", "a"]
        received = await asyncio.gather(
            *(fetcher.get(name, PositionRange(number, number + 1)) for number, name in enumerate(names)),
            return_exceptions=True,
        )
        assert [type(one) for one in received] == [list, list, ResultsExpired, list, list]
        assert [list(call) for call in calls] == [["a", "b", "gone"], ["c", "a"]]

    run(story)


def test_batched_read_error_reaches_each_caller() -> None:
    async def story() -> None:
        async def read(_: Mapping[str, PositionRange]) -> Mapping[str, list[FetchedResult] | Exception]:
            raise ClusterUnavailable("not now")

        fetcher = RangeFetcher(read)
        received = await asyncio.gather(
            *(fetcher.get(name, PositionRange(0, 1)) for name in "ab"), return_exceptions=True
        )
        assert [type(one) for one in received] == [ClusterUnavailable, ClusterUnavailable]

    run(story)
