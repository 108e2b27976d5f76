"""The broker as pure logic: examples that read as sentences, and a random life compared with a naive model."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from newsstand.broker.broker import Broker, Span
from newsstand.caching import RESULT_POLICIES, ResultCaches

Results = list[tuple[int, int, str]]


def broker_of(policy: str = "lsc", budget: int = 1000) -> Broker[str, str]:
    return Broker(ResultCaches[str, str](policy, budget))


def results(*positions: int, size: int = 10) -> Results:
    return [(position, size, f"result {position}") for position in positions]


def with_ann(position: int = 0, head: int = 0, **how: object) -> Broker[str, str]:
    broker = broker_of(**how)  # type: ignore[arg-type]
    broker.follow("ann", "floods", position=position, head=head, now=0)
    return broker


# Examples


def test_the_first_to_follow_a_stream_makes_it_and_the_last_to_leave_drops_it() -> None:
    broker = broker_of()
    assert broker.follow("ann", "floods", position=0, head=0, now=0)
    assert not broker.follow("bob", "floods", position=0, head=0, now=0)
    assert (len(broker), broker.followers("floods")) == (1, 2)
    assert not broker.unfollow("ann", "floods", now=1)
    assert broker.unfollow("bob", "floods", now=1)
    assert "floods" not in broker


def test_a_stream_is_pulled_from_where_it_stood_when_the_broker_began_to_follow() -> None:
    broker = with_ann(position=3, head=7)
    assert broker.told("floods", 9, now=1) == Span(7, 9)
    reading = broker.read("ann", "floods", limit=100, now=2)
    assert (reading.hits, reading.missing, reading.head) == ([], (Span(3, 9),), 9)


def test_told_twice_or_out_of_order_changes_nothing() -> None:
    broker = with_ann()
    assert broker.told("floods", 4, now=1) == Span(0, 4)
    assert broker.told("floods", 2, now=1) == Span(0, 4)
    broker.arrived("floods", results(1, 2, 3, 4), now=2)
    broker.arrived("floods", results(1, 2, 3, 4), now=3)
    assert broker.told("floods", 4, now=4) is None
    assert (broker.counts.pulled, broker.results.objects) == (4, 4)


def test_what_nobody_follows_is_not_pulled_and_not_kept() -> None:
    broker = broker_of()
    assert broker.told("floods", 4, now=1) is None
    broker.arrived("floods", results(1), now=1)
    broker.skip("floods", 3)
    assert (len(broker), broker.results.objects) == (0, 0)


def test_a_reader_gets_the_cached_and_is_told_what_is_missing_on_both_sides() -> None:
    broker = with_ann(budget=30)
    broker.told("floods", 7, now=1)
    broker.arrived("floods", results(1, 2, 3, 4, 5), now=1)  # three fit
    reading = broker.read("ann", "floods", limit=100, now=2)
    assert [hit.position for hit in reading.hits] == [3, 4, 5]
    assert reading.missing == (Span(0, 2), Span(5, 7))


def test_a_page_ends_at_its_limit() -> None:
    broker = with_ann()
    broker.arrived("floods", results(1, 2, 3), now=1)
    reading = broker.read("ann", "floods", limit=2, now=2)
    assert (reading.span, [hit.position for hit in reading.hits], reading.head) == (Span(0, 2), [1, 2], 3)
    assert [hit.position for hit in broker.read("ann", "floods", limit=2, after=2, now=2).hits] == [3]


def test_who_asks_beyond_the_head_gets_nothing_and_counts_for_nothing() -> None:
    broker = with_ann()
    reading = broker.read("ann", "floods", limit=2, after=50, now=2)
    assert (reading.hits, reading.missing) == ([], ())
    assert broker.counts.hits == 0


def test_an_acknowledgement_never_goes_back() -> None:
    broker = with_ann()
    broker.arrived("floods", results(1, 2, 3), now=1)
    assert broker.acknowledge("ann", "floods", 2, now=2) == 2
    assert broker.acknowledge("ann", "floods", 1, now=3) == 2
    assert broker.pending("ann", "floods")
    assert broker.acknowledge("ann", "floods", 3, now=4) == 3
    assert not broker.pending("ann", "floods")


def test_a_result_that_everybody_has_leaves_the_cache() -> None:
    broker = with_ann()
    broker.follow("bob", "floods", position=0, head=0, now=0)
    broker.arrived("floods", results(1), now=1)
    broker.acknowledge("ann", "floods", 1, now=2)
    assert broker.results.objects == 1
    broker.acknowledge("bob", "floods", 1, now=3)
    assert broker.results.objects == 0


def test_results_that_retention_has_removed_are_not_asked_for_again() -> None:
    broker = with_ann()
    assert broker.told("floods", 4, now=1) == Span(0, 4)
    broker.skip("floods", 3)
    assert broker.told("floods", 0, now=2) == Span(3, 4)


def test_a_broker_without_a_cache_pulls_nothing() -> None:
    broker = with_ann(policy="nc")
    assert broker.told("floods", 3, now=1) is None
    reading = broker.read("ann", "floods", limit=10, now=2)
    assert (reading.hits, reading.missing) == ([], (Span(0, 3),))


def test_bytes_that_came_from_the_cluster_are_pulled_or_missed() -> None:
    broker = with_ann()
    broker.arrived("floods", results(1, 2, size=7), now=1)
    broker.missed(2, 30)
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
        self.broker = Broker(ResultCaches[str, str](policy, budget, window_ms=50, cap_ms=100))

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
        span = self.broker.told(stream, position, self.tick())
        assert (span is not None and len(span) == 0) is False
        if span is not None:
            assert self.followed(stream)
            assert span.until == self.broker.head(stream) >= position

    @rule(stream=STREAMS, most=st.integers(1, 8), again=st.integers(0, 3))
    def arrive(self, stream: str, most: int, again: int) -> None:
        """A part of what is to be pulled comes, after some that came before."""
        span = self.broker.told(stream, 0, self.tick())
        if span is not None:
            first = max(self.removed[stream], span.after - again)
            self.broker.arrived(stream, self.printed[stream][first : min(span.until, span.after + most)], self.now)

    @rule(stream=STREAMS, count=st.integers(1, 4))
    def remove(self, stream: str, count: int) -> None:
        """Retention removes what is oldest, and a pull hears of it."""
        self.removed[stream] = min(len(self.printed[stream]), self.removed[stream] + count)
        span = self.broker.told(stream, 0, self.tick())
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
        assert reading.span == Span(start, max(start, min(self.broker.head(stream), start + limit)))
        found = [(hit.position, hit.size, hit.value) for hit in reading.hits]
        for span in reading.missing:
            fetched = self.printed[stream][max(span.after, self.removed[stream]) : span.until]
            self.broker.missed(len(fetched), sum(size for _, size, _ in fetched))
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


Life.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestLife = Life.TestCase


@pytest.mark.parametrize("policy", list(RESULT_POLICIES))
def test_a_reader_gets_everything_in_pages_under_every_policy(policy: str) -> None:
    broker = with_ann(policy=policy, budget=35)
    cluster = results(*range(1, 24))
    broker.told("floods", 23, now=1)
    broker.arrived("floods", cluster, now=1)
    got: list[int] = []
    while broker.pending("ann", "floods"):
        reading = broker.read("ann", "floods", limit=4, now=2)
        positions = [hit.position for hit in reading.hits]
        positions += [one[0] for span in reading.missing for one in cluster[span.after : span.until]]
        got += sorted(positions)
        broker.acknowledge("ann", "floods", reading.span.until, now=2)
    assert got == list(range(1, 24))
