"""The pure `ResultBroker`: examples, and random operations compared with a naive model."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.profiles import examples

from newsstand.broker.results.broker import PositionRange, ResultBroker
from newsstand.caching import RESULT_POLICIES, ResultCaches

Results = list[tuple[int, int, str]]


def broker_of(policy: str = "lsc", budget: int = 1000) -> ResultBroker[str, str]:
    return ResultBroker(ResultCaches[str, str](policy, budget))


def results(*positions: int, size: int = 10) -> Results:
    return [(position, size, f"result {position}") for position in positions]


def with_ann(position: int = 0, head: int = 0, **how: object) -> ResultBroker[str, str]:
    broker = broker_of(**how)  # type: ignore[arg-type]
    broker.follow("ann", "floods", position=position, head=head, now=0)
    return broker


# Examples


def test_stream_created_by_first_follower_and_removed_with_the_last() -> None:
    broker = broker_of()
    assert broker.follow("ann", "floods", position=0, head=0, now=0)
    assert not broker.follow("bob", "floods", position=0, head=0, now=0)
    assert (len(broker), broker.results.subscribers("floods")) == (1, 2)
    assert not broker.unfollow("ann", "floods", now=1)
    assert broker.unfollow("bob", "floods", now=1)
    assert "floods" not in broker


def test_stream_pulled_from_its_head_at_the_first_follow() -> None:
    broker = with_ann(position=3, head=7)
    assert broker.advance("floods", 9, now=1) == PositionRange(7, 9)
    reading = broker.read("ann", "floods", limit=100, now=2)
    assert (reading.hits, reading.missing, reading.head) == ([], (PositionRange(3, 9),), 9)


def test_advance_ignores_repeated_and_reordered_positions() -> None:
    broker = with_ann()
    assert broker.advance("floods", 4, now=1) == PositionRange(0, 4)
    assert broker.advance("floods", 2, now=1) == PositionRange(0, 4)
    broker.put("floods", results(1, 2, 3, 4), now=2)
    broker.put("floods", results(1, 2, 3, 4), now=3)
    assert broker.advance("floods", 4, now=4) is None
    assert (broker.counts.pulled, broker.results.objects) == (4, 4)


def test_stream_without_followers_is_neither_pulled_nor_cached() -> None:
    broker = broker_of()
    assert broker.advance("floods", 4, now=1) is None
    broker.put("floods", results(1), now=1)
    broker.skip("floods", 3)
    assert (len(broker), broker.results.objects) == (0, 0)


def test_read_returns_cached_results_and_missing_ranges() -> None:
    broker = with_ann(budget=30)
    broker.advance("floods", 7, now=1)
    broker.put("floods", results(1, 2, 3, 4, 5), now=1)  # three fit
    reading = broker.read("ann", "floods", limit=100, now=2)
    assert [hit.position for hit in reading.hits] == [3, 4, 5]
    assert reading.missing == (PositionRange(0, 2), PositionRange(5, 7))


def test_page_ends_at_its_limit() -> None:
    broker = with_ann()
    broker.put("floods", results(1, 2, 3), now=1)
    reading = broker.read("ann", "floods", limit=2, now=2)
    assert (reading.span, [hit.position for hit in reading.hits], reading.head) == (PositionRange(0, 2), [1, 2], 3)
    assert [hit.position for hit in broker.read("ann", "floods", limit=2, after=2, now=2).hits] == [3]


def test_read_beyond_the_head_is_empty_and_not_counted() -> None:
    broker = with_ann()
    reading = broker.read("ann", "floods", limit=2, after=50, now=2)
    assert (reading.hits, reading.missing) == ([], ())
    assert broker.counts.hits == 0


def test_acknowledged_position_never_decreases() -> None:
    broker = with_ann()
    broker.put("floods", results(1, 2, 3), now=1)
    assert broker.acknowledge("ann", "floods", 2, now=2) == 2
    assert broker.acknowledge("ann", "floods", 1, now=3) == 2
    assert broker.pending("ann", "floods")
    assert broker.acknowledge("ann", "floods", 3, now=4) == 3
    assert not broker.pending("ann", "floods")


def test_result_removed_when_all_followers_have_it() -> None:
    broker = with_ann()
    broker.follow("bob", "floods", position=0, head=0, now=0)
    broker.put("floods", results(1), now=1)
    broker.acknowledge("ann", "floods", 1, now=2)
    assert broker.results.objects == 1
    broker.acknowledge("bob", "floods", 1, now=3)
    assert broker.results.objects == 0


def test_removed_results_are_not_pulled_again() -> None:
    broker = with_ann()
    assert broker.advance("floods", 4, now=1) == PositionRange(0, 4)
    broker.skip("floods", 3)
    assert broker.advance("floods", 0, now=2) == PositionRange(3, 4)


def test_broker_without_a_cache_pulls_nothing() -> None:
    broker = with_ann(policy="nc")
    assert broker.advance("floods", 3, now=1) is None
    reading = broker.read("ann", "floods", limit=10, now=2)
    assert (reading.hits, reading.missing) == ([], (PositionRange(0, 3),))


def test_fetched_bytes_are_pulled_or_missed() -> None:
    broker = with_ann()
    broker.put("floods", results(1, 2, size=7), now=1)
    broker.count_misses(2, 30)
    assert broker.counts.fetched_bytes == 14 + 30


# A random life

STREAMS = st.sampled_from(["floods", "fires"])
PEOPLE = st.sampled_from(["ann", "bob", "cleo"])


class Life(RuleBasedStateMachine):
    """Whatever the cache does, a reader who reads and acknowledges gets every result once, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.printed: dict[str, list[tuple[int, int, str]]] = {"floods": [], "fires": []}
        self.removed: dict[str, int] = defaultdict(int)
        """Up to where retention has removed results."""
        self.acked: dict[tuple[str, str], int] = {}
        self.got = 0

    @initialize(policy=st.sampled_from(list(RESULT_POLICIES)), budget=st.integers(0, 200))
    def begin(self, policy: str, budget: int) -> None:
        self.broker = ResultBroker(ResultCaches[str, str](policy, budget, window_ms=50, cap_ms=100))

    def followed(self, stream: str) -> bool:
        return any(of == stream for _, of in self.acked)

    def tick(self, by: int = 1) -> int:
        self.now += by
        self.broker.results.advance(self.now)
        return self.now

    @rule(stream=STREAMS, sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6))
    def print(self, stream: str, sizes: list[int]) -> None:
        printed = self.printed[stream]
        for size in sizes:
            printed.append((len(printed) + 1, size, f"{stream} {len(printed) + 1}"))

    @rule(stream=STREAMS, back=st.integers(0, 5))
    def tell(self, stream: str, back: int) -> None:
        position = max(0, len(self.printed[stream]) - back)
        span = self.broker.advance(stream, position, self.tick())
        assert (span is not None and len(span) == 0) is False
        if span is not None:
            assert self.followed(stream)
            assert span.until == self.broker.head(stream) >= position

    @rule(stream=STREAMS, most=st.integers(1, 8), again=st.integers(0, 3))
    def arrive(self, stream: str, most: int, again: int) -> None:
        """A part of what is to be pulled comes, after some that came before."""
        span = self.broker.advance(stream, 0, self.tick())
        if span is not None:
            first = max(self.removed[stream], span.after - again)
            self.broker.put(stream, self.printed[stream][first : min(span.until, span.after + most)], self.now)

    @rule(stream=STREAMS, count=st.integers(1, 4))
    def remove(self, stream: str, count: int) -> None:
        """Retention removes what is oldest, and a pull hears of it."""
        self.removed[stream] = min(len(self.printed[stream]), self.removed[stream] + count)
        span = self.broker.advance(stream, 0, self.tick())
        if span is not None and span.after < self.removed[stream]:
            self.broker.skip(stream, self.removed[stream])

    @rule(who=PEOPLE, stream=STREAMS, since=st.none() | st.integers(0, 10))
    def follow(self, who: str, stream: str, since: int | None) -> None:
        if (who, stream) in self.acked:
            return
        head = len(self.printed[stream])
        position = head if since is None else min(since, head)
        new = self.broker.follow(who, stream, position=position, head=head, now=self.tick())
        assert new == (not self.followed(stream))
        self.acked[who, stream] = position

    @rule(who=PEOPLE, stream=STREAMS)
    def unfollow(self, who: str, stream: str) -> None:
        had = self.acked.pop((who, stream), None)
        last = self.broker.unfollow(who, stream, self.tick())
        assert last == (had is not None and not self.followed(stream))

    @precondition(lambda self: self.acked)
    @rule(data=st.data(), limit=st.integers(1, 12), keep=st.integers(0, 12))
    def read(self, data: st.DataObject, limit: int, keep: int) -> None:
        who, stream = data.draw(st.sampled_from(sorted(self.acked)))
        start = self.acked[who, stream]
        reading = self.broker.read(who, stream, limit=limit, now=self.tick())
        assert reading.span == PositionRange(start, max(start, min(self.broker.head(stream), start + limit)))
        found = [(hit.position, hit.size, hit.value) for hit in reading.hits]
        for span in reading.missing:
            fetched = self.printed[stream][max(span.after, self.removed[stream]) : span.until]
            self.broker.count_misses(len(fetched), sum(size for _, size, _ in fetched))
            found += fetched
        found.sort()
        there = self.printed[stream][max(start, self.removed[stream]) : reading.span.until]
        assert [one for one in found if one[0] > self.removed[stream]] == there
        assert len({position for position, _, _ in found}) == len(found)
        self.got += len(found)
        upto = min(reading.span.until, start + keep)
        assert self.broker.acknowledge(who, stream, upto, self.tick()) == upto
        self.acked[who, stream] = upto

    @rule(policy=st.sampled_from(list(RESULT_POLICIES)))
    def switch(self, policy: str) -> None:
        self.broker.results.switch(policy, self.tick())

    @rule(budget=st.integers(0, 300))
    def resize(self, budget: int) -> None:
        self.broker.results.resize(budget, self.tick())

    @rule(by=st.integers(1, 80))
    def wait(self, by: int) -> None:
        self.tick(by)

    @invariant()
    def everybody_stands_where_they_acknowledged(self) -> None:
        for (who, stream), position in self.acked.items():
            assert self.broker.position(who, stream) == position
            assert self.broker.pending(who, stream) == (position < self.broker.head(stream))
        assert set(self.broker) == {stream for _, stream in self.acked}

    @invariant()
    def nothing_waits_for_who_has_left(self) -> None:
        for stream in self.printed:
            held = self.broker.results.held(stream)
            waited_for = [position for (_, of), position in self.acked.items() if of == stream]
            assert held is None or held[0] > min(waited_for)
        if not self.acked:
            assert (self.broker.results.objects, self.broker.results.bytes) == (0, 0)

    @invariant()
    def hits_and_misses_are_all_that_was_read(self) -> None:
        assert self.broker.counts.hits + self.broker.counts.misses == self.got

    @invariant()
    def a_budget_is_kept_by_who_evicts(self) -> None:
        caches = self.broker.results
        if caches.policy.score is not None:
            assert caches.bytes <= caches.budget
        if not caches.policy.keeps:
            assert caches.objects == 0


Life.TestCase.settings = settings(max_examples=examples(80), stateful_step_count=40)
TestLife = Life.TestCase


@pytest.mark.parametrize("policy", list(RESULT_POLICIES))
def test_pages_contain_every_result_under_every_policy(policy: str) -> None:
    broker = with_ann(policy=policy, budget=35)
    cluster = results(*range(1, 24))
    broker.advance("floods", 23, now=1)
    broker.put("floods", cluster, now=1)
    got: list[int] = []
    while broker.pending("ann", "floods"):
        reading = broker.read("ann", "floods", limit=4, now=2)
        positions = [hit.position for hit in reading.hits]
        positions += [one[0] for span in reading.missing for one in cluster[span.after : span.until]]
        got += sorted(positions)
        broker.acknowledge("ann", "floods", reading.span.until, now=2)
    assert got == list(range(1, 24))
