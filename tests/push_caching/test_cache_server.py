"""A push-cache keeps popular pages whatever origins claim, and limits each origin to its share."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from newsstand.errors import BadOption
from newsstand.push_caching.cache import PushCache, TrackRecords, Verdict
from newsstand.push_caching.copies import CacheChanges, Capacity, Offer, Usage, must_check

DAY = 86_400.0
NEVER_CHECK = math.inf


def counting(room: Capacity, origin_share: float = 1.0) -> PushCache[str]:
    """Popularity is a plain count, and no copy is ever checked."""
    return PushCache(room, origin_share, half_life_s=math.inf, check_share=NEVER_CHECK)


def offers(pages: str, requests: float = 0.0, size: int = 1) -> list[Offer[str]]:
    return [Offer(page, size, requests=requests) for page in pages]


def ask(cache: PushCache[str], origin: int, pages: str) -> None:
    for page in pages:
        cache.request(origin, page, now=0.0)


def test_push_cache_evicts_least_popular_page() -> None:
    cache = counting(Capacity(slots=4))
    cache.push(1, offers("abcd"), now=0.0)
    ask(cache, 1, "aaabbddd")
    assert cache.push(2, offers("x"), now=0.0) == CacheChanges(("x",), ((1, "c"),))
    assert cache.pages() == ((1, "a"), (1, "b"), (1, "d"), (2, "x"))


def test_push_cache_evicts_oldest_of_equals() -> None:
    cache = counting(Capacity(slots=3))
    cache.push(1, offers("cab"), now=0.0)
    assert cache.push(2, offers("x"), now=0.0).evicted == ((1, "c"),)
    assert cache.push(2, offers("y"), now=0.0).evicted == ((1, "a"),)


def test_push_cache_keeps_first_pages_of_large_push() -> None:
    cache = counting(Capacity(slots=4), origin_share=0.5)
    assert cache.push(1, offers("abcde"), now=0.0) == CacheChanges(("a", "b"), ())
    assert cache.counts.rejected == 3


def test_claim_is_limited_to_median() -> None:
    cache = counting(Capacity(slots=5))
    cache.push(1, offers("abcde"), now=0.0)
    ask(cache, 1, "abbcccddddeeeee")
    cache.push(2, offers("x", requests=1e9), now=0.0)
    assert cache.popularity(2, "x", 0.0) == 3
    cache.push(3, offers("y", requests=2.5), now=0.0)
    assert cache.popularity(3, "y", 0.0) == 2.5
    assert cache.pages() == ((1, "c"), (1, "d"), (1, "e"), (2, "x"), (3, "y"))
    assert cache.push(4, offers("z", requests=2), now=0.0) == CacheChanges((), ())


def test_trust_follows_earlier_claims() -> None:
    cache = counting(Capacity(slots=4))
    cache.push(1, offers("abcd"), now=0.0)
    ask(cache, 1, "abcd" * 9)
    cache.push(2, offers("x", requests=1e9), now=0.0)
    cache.push(3, offers("y", requests=5), now=0.0)
    assert cache.popularity(2, "x", 0.0) == 9
    assert (3, "y") not in cache
    ask(cache, 2, "xxxx")
    cache.drop(2, "x")
    cache.push(2, offers("z", requests=1e9), now=0.0)
    assert cache.popularity(2, "z", 0.0) == 9 * (4 + 1) / (9 + 1)


@pytest.mark.parametrize("claim", [math.nan, -5.0, -math.inf])
def test_claim_of_nan_counts_as_zero(claim: float) -> None:
    cache = counting(Capacity(slots=1))
    cache.push(1, offers("a"), now=0.0)
    ask(cache, 1, "a")
    assert cache.push(2, offers("x", requests=claim), now=0.0) == CacheChanges()


def test_track_records_forget_oldest_origin() -> None:
    records = TrackRecords(most=2)
    for origin in (1, 2, 3):
        records.grant(origin, 3.0)
    records.earn(2, 1.0)
    assert [records.trust(origin, unit=1.0) for origin in (1, 2, 3)] == [1.0, 0.5, 0.25]
    records.scale(0.5)
    assert records.trust(2, unit=0.5) == 0.5
    records.earn(3, 99.0)
    assert records.trust(3, unit=0.5) == 1.0


def test_median_counts_free_room_as_unpopular() -> None:
    cache = counting(Capacity(slots=8))
    cache.push(1, offers("abcd"), now=0.0)
    ask(cache, 1, "abcd" * 9)
    cache.push(2, offers("x", requests=1e9), now=0.0)
    assert cache.popularity(2, "x", 0.0) == 0
    cache.push(2, offers("y", requests=1e9), now=0.0)
    assert cache.popularity(2, "y", 0.0) == 0


def test_origin_at_its_share_evicts_own_pages() -> None:
    cache = counting(Capacity(slots=8), origin_share=0.25)
    cache.push(1, offers("ab"), now=0.0)
    ask(cache, 1, "a")
    assert cache.push(1, offers("c"), now=0.0) == CacheChanges(("c",), ((1, "b"),))
    ask(cache, 1, "c")
    assert cache.push(1, offers("d"), now=0.0) == CacheChanges()
    assert cache.used_by(1) == Usage(2, 2)
    assert cache.used_by(2) == Usage(0, 0)


def test_origin_alone_replaces_unpopular_pages() -> None:
    """Three quarters of the room are free, so that the median of the room is 0; that of its share is not."""
    cache = PushCache[str](Capacity(slots=16), 0.25, half_life_s=10.0, check_share=NEVER_CHECK)
    cache.push(1, offers("abcd"), now=0.0)
    ask(cache, 1, "aabbcd")
    assert cache.push(1, offers("x", requests=5.0), now=0.0) == CacheChanges(("x",), ((1, "c"),))
    assert cache.popularity(1, "x", 0.0) == 0, "to all it is worth what it earns here"
    # A year later nothing of what was wanted is left, and new pages come in as they are claimed.
    taken = cache.push(1, offers("klmn", requests=5.0), now=365 * 86_400.0)
    assert {"k", "l"} <= set(taken.cached)


def test_push_cache_keeps_earlier_page_of_push() -> None:
    cache = counting(Capacity(slots=8), origin_share=0.25)
    cache.push(1, offers("ab"), now=0.0)
    ask(cache, 1, "ab")
    assert cache.push(1, [Offer("c", 1, requests=1.0), Offer("d", 1, requests=9.0)], now=0.0).cached == ("c", "d")
    assert cache.push(1, [Offer(page, 1, requests=9.0) for page in "efg"], now=0.0).cached == ("e", "f")


def test_origin_share_is_at_least_one_slot() -> None:
    assert PushCache[int](Capacity(slots=11)).origin_room == Capacity(slots=2)
    assert PushCache[int](Capacity(slots=3)).origin_room == Capacity(slots=1)
    assert PushCache[int](Capacity(size=1003)).origin_room == Capacity(size=250)
    assert PushCache[int](Capacity(100, 1000), origin_share=0.29).origin_room == Capacity(29, 290)


def test_push_cache_evicts_fewest_bytes() -> None:
    cache = counting(Capacity(size=10))
    cache.push(1, [Offer("a", 3), Offer("b", 3), Offer("c", 3)], now=0.0)
    assert cache.push(2, [Offer("x", 5)], now=0.0) == CacheChanges(("x",), ((1, "a"), (1, "b")))
    assert cache.used == Usage(2, 8)
    assert cache.push(2, [Offer("y", 11)], now=0.0) == CacheChanges()
    assert cache.push(2, [Offer("z", 2)], now=0.0) == CacheChanges(("z",), ())


def test_push_cache_rejects_page_less_popular_than_victims() -> None:
    cache = counting(Capacity(size=9))
    cache.push(1, [Offer("a", 3), Offer("b", 3), Offer("c", 3)], now=0.0)
    ask(cache, 1, "bc")
    assert cache.push(2, [Offer("x", 4)], now=0.0) == CacheChanges()
    assert len(cache) == 3


def test_repeated_push_keeps_popularity() -> None:
    cache = counting(Capacity(slots=4))
    cache.push(1, [Offer("a", 5, modified=1.0)], now=0.0)
    ask(cache, 1, "aa")
    assert cache.push(1, [Offer("a", 7, modified=2.0, requests=1e9)], now=0.0) == CacheChanges(("a",), ())
    assert cache.popularity(1, "a", 0.0) == 2
    assert cache.used == Usage(1, 7)
    cache.request(1, "a", now=0.0, modified=2.0)
    assert cache.counts.stale_hits == 0


def test_popularity_halves_with_every_half_life() -> None:
    cache: PushCache[str] = PushCache(Capacity(slots=2), origin_share=1, half_life_s=10.0)
    cache.push(1, offers("ab"), now=0.0)
    for _ in range(3):
        cache.request(1, "a", now=0.0)
    cache.request(1, "b", now=20.0)
    assert cache.popularity(1, "a", now=20.0) == 0.75
    assert cache.popularity(1, "b", now=20.0) == 1.0
    assert cache.push(2, offers("x", requests=0.7), now=20.0) == CacheChanges()
    assert cache.push(2, offers("x", requests=0.9), now=20.0) == CacheChanges(("x",), ((1, "a"),))


def test_popularity_survives_thousands_of_half_lives() -> None:
    cache: PushCache[str] = PushCache(Capacity(slots=2), origin_share=1, half_life_s=1.0)
    cache.push(1, offers("ab"), now=0.0)
    for now in (0.0, 400.0, 5000.0, 5001.0):
        cache.request(1, "a", now)
    assert cache.popularity(1, "a", now=5001.0) == 1.5
    assert cache.popularity(1, "b", now=5001.0) == 0.0


def test_request_is_invalid_without_copy() -> None:
    cache = counting(Capacity(slots=4))
    cache.push(1, offers("a"), now=0.0)
    assert cache.request(2, "a", now=0.0) is Verdict.INVALID
    cache.drop(1, "a")
    cache.drop(1, "a")
    assert cache.request(1, "a", now=0.0) is Verdict.INVALID
    assert (cache.counts.invalid, cache.used, cache.used_by(1)) == (2, Usage(), Usage())


@pytest.mark.parametrize(
    ("now", "checked", "modified", "expected"),
    [
        (30 * DAY, 29 * DAY, 0.0, False),
        (30 * DAY, 27 * DAY, 0.0, False),
        (30 * DAY, 26.9 * DAY, 0.0, True),
        (100.0, 100.0, 100.0, False),
        (101.0, 100.0, 100.0, True),
        (101.0, 100.0, 500.0, True),
        (100.0, 100.0, 500.0, False),
    ],
)
def test_copy_is_checked_after_tenth_of_its_age(
    now: float, checked: float, modified: float, expected: bool
) -> None:
    assert must_check(now, checked, modified) == expected


def test_copy_is_good_again_after_confirmation() -> None:
    cache: PushCache[str] = PushCache(Capacity(slots=4))
    cache.push(1, [Offer("a", modified=0.0)], now=100.0)
    assert cache.request(1, "a", now=110.0) is Verdict.HIT
    assert cache.request(1, "a", now=112.0) is Verdict.CHECK
    assert cache.request(1, "a", now=112.0) is Verdict.CHECK
    cache.confirm(1, "a", now=112.0)
    assert cache.request(1, "a", now=124.0) is Verdict.HIT
    assert cache.request(1, "a", now=125.0) is Verdict.CHECK
    assert (cache.counts.hits, cache.counts.checks) == (2, 3)
    cache.confirm(1, "gone", now=112.0)


def test_stale_hits_count_until_renewal() -> None:
    cache: PushCache[str] = PushCache(Capacity(slots=4))
    cache.push(1, [Offer("a", 3, modified=0.0)], now=1000.0)
    assert cache.request(1, "a", now=1050.0, modified=1040.0) is Verdict.HIT
    assert cache.request(1, "a", now=1200.0, modified=1040.0) is Verdict.CHECK
    assert cache.counts.stale_hits == 1
    assert cache.renew(1, Offer("a", 4, modified=1040.0), now=1200.0) == CacheChanges(("a",), ())
    assert cache.request(1, "a", now=1210.0, modified=1040.0) is Verdict.HIT
    assert cache.counts.stale_hits == 1
    assert cache.used == Usage(1, 4)


def test_renewal_drops_page_that_no_longer_fits() -> None:
    cache = counting(Capacity(size=10))
    cache.push(1, [Offer("a", 5), Offer("b", 5)], now=0.0)
    ask(cache, 1, "abb")
    assert cache.renew(1, Offer("a", 6), now=0.0) == CacheChanges((), ((1, "a"),))
    assert cache.renew(1, Offer("a", 1), now=0.0) == CacheChanges()
    ask(cache, 1, "b")
    assert cache.renew(1, Offer("b", 9), now=0.0) == CacheChanges(("b",), ())
    assert cache.pages() == ((1, "b"),)
    assert cache.counts.evicted == 1


def test_rogue_origin_does_not_displace_popular_pages() -> None:
    cache: PushCache[int] = PushCache(Capacity(slots=100))
    for origin in range(4):
        cache.push(origin, [Offer(page) for page in range(25)], now=0.0)
    popular = [(origin, page) for origin in range(4) for page in range(12)]
    for origin, page in popular:
        cache.request(origin, page, now=1.0)
    for rogue in (99, 98, 97, 96, 95):
        cache.push(rogue, [Offer(page, requests=1e12) for page in range(3000)], now=2.0)
        assert cache.used_by(rogue).slots <= 25
    assert all(key in cache for key in popular)


ROOMS = st.one_of(
    st.builds(Capacity, slots=st.integers(1, 9)),
    st.builds(Capacity, size=st.integers(1, 30)),
    st.builds(Capacity, slots=st.integers(1, 9), size=st.integers(1, 30)),
)
PUSHED = st.lists(
    st.builds(
        Offer,
        page=st.integers(0, 7),
        size=st.integers(0, 9),
        requests=st.one_of(st.integers(0, 6).map(float), st.just(1e30)),
    ),
    max_size=6,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 3), PUSHED, st.floats(0, 50)),
        st.tuples(st.just("ask"), st.integers(0, 3), st.integers(0, 7), st.floats(0, 50)),
    ),
    max_size=40,
)


def median(
    cache: PushCache[int], sizes: dict[tuple[int, int], int], now: float, origin: int | None = None
) -> float:
    """The least popularity, 0 or that of a page, above which pages have at most half of the room or share."""
    room = cache.room if origin is None else cache.origin_room
    popularity = {key: cache.popularity(*key, now) for key in cache.pages() if origin is None or key[0] == origin}
    for least in sorted({0.0, *popularity.values()}):
        above = [key for key, value in popularity.items() if value > least]
        slots, size = len(above), sum(sizes[key] for key in above)
        if (room.slots is None or slots <= max(1, room.slots // 2)) and (
            room.size is None or size <= room.size // 2
        ):
            return least
    raise AssertionError


@given(
    room=ROOMS,
    share=st.sampled_from([0.25, 0.5, 1.0]),
    half_life=st.sampled_from([1.0, 30.0, math.inf]),
    steps=STEPS,
)
@settings(max_examples=examples(100))
def test_push_cache_keeps_room_and_shares(
    room: Capacity, share: float, half_life: float, steps: list[tuple[str, int, object, float]]
) -> None:
    cache: PushCache[int] = PushCache(room, share, half_life, NEVER_CHECK)
    sizes: dict[tuple[int, int], int] = {}
    now = 0.0
    for kind, origin, what, later in steps:
        now += later
        if kind == "ask":
            assert isinstance(what, int)
            expected = Verdict.HIT if (origin, what) in cache else Verdict.INVALID
            assert cache.request(origin, what, now) is expected
            continue
        assert isinstance(what, list)
        here = set(cache.pages())
        fresh = [offer for offer in what if (origin, offer.page) not in here]
        # Each page once, as one that is pushed again may grow beyond what it was taken for.
        fresh = list({offer.page: offer for offer in fresh}.values())
        limit = median(cache, sizes, now)
        own_limit = max(limit, median(cache, sizes, now, origin))
        safe = [
            key
            for key in cache.pages()
            if cache.popularity(*key, now) > (own_limit if key[0] == origin else limit)
        ]
        taken = cache.push(origin, fresh, now)
        sizes |= {(origin, offer.page): offer.size for offer in fresh}
        assert all(key in cache for key in safe)
        assert set(taken.evicted) == here - set(cache.pages())
        assert {(origin, page) for page in taken.cached} == set(cache.pages()) - here
        assert median(cache, sizes, now) <= limit
        assert cache.room.holds(cache.used)
        assert cache.used == Usage(len(cache), sum(sizes[key] for key in cache.pages()))
        for one in range(4):
            own = [key for key in cache.pages() if key[0] == one]
            assert cache.used_by(one) == Usage(len(own), sum(sizes[key] for key in own))
            assert cache.origin_room.holds(cache.used_by(one))


@dataclass
class PlainCache:
    """Slots and plain counts, by the rule and without any thought of speed."""

    slots: int
    most: int
    kept: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    granted: Counter[int] = field(default_factory=Counter)
    earned: Counter[int] = field(default_factory=Counter)
    clock: int = 0

    def ask(self, origin: int, page: int) -> None:
        if (origin, page) in self.kept:
            self.kept[origin, page][0] += 1
            self.earned[origin] += 1

    def push(self, origin: int, offered: list[Offer[int]]) -> None:
        counts = sorted((count for count, _ in self.kept.values()), reverse=True)
        half = max(1, self.slots // 2)
        median = counts[half] if len(counts) > half else 0.0
        own = sorted((count for key, (count, _) in self.kept.items() if key[0] == origin), reverse=True)
        own_half = max(1, self.most // 2)
        own_median = own[own_half] if len(own) > own_half else 0.0
        trust = min(1.0, (self.earned[origin] + 1) / (self.granted[origin] + 1))
        together = set()
        for offer in offered:
            key = (origin, offer.page)
            self.clock += 1
            old, arrival = self.kept.pop(key, [0.0, self.clock])
            value = max(trust * min(offer.requests, median), old)
            together.add(key)
            pool = [one for one in self.kept if one[0] == origin]
            worth = value
            if len(pool) >= self.most:
                pool = [one for one in pool if one not in together]
                worth = max(value, trust * min(offer.requests, own_median))
                if not pool:
                    continue
            else:
                pool = list(self.kept) if len(self.kept) >= self.slots else []
            if pool:
                least = min(pool, key=lambda one: self.kept[one])
                if self.kept[least][0] > worth or (self.kept[least][0] == worth and least in together):
                    continue
                del self.kept[least]
            self.kept[key] = [value, arrival]
            self.granted[origin] += value - old  # type: ignore[assignment]


@given(slots=st.integers(1, 8), steps=STEPS)
@settings(max_examples=examples(100))
def test_push_cache_agrees_with_plain_rule(slots: int, steps: list[tuple[str, int, object, float]]) -> None:
    cache: PushCache[int] = PushCache(Capacity(slots=slots), 0.5, math.inf, NEVER_CHECK)
    plain = PlainCache(slots, max(1, slots // 2))
    for kind, origin, what, _ in steps:
        if isinstance(what, int):
            cache.request(origin, what, 0.0)
            plain.ask(origin, what)
        elif kind == "push":
            assert isinstance(what, list)
            cache.push(origin, what, 0.0)
            plain.push(origin, what)
        assert {key: cache.popularity(*key, 0.0) for key in cache.pages()} == {
            key: count for key, (count, _) in plain.kept.items()
        }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"room": Capacity()}, "room: give slots, size or both"),
        ({"origin_share": 0.0}, "origin_share 0: must be above 0"),
        ({"origin_share": 1.5}, "origin_share 1.5: must be above 0 and at most 1"),
        ({"half_life_s": 0.0}, "half_life_s 0: must be above 0"),
        ({"check_share": -1.0}, "check_share -1: must not be negative"),
    ],
)
def test_push_cache_rejects_invalid_parameters(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        PushCache(**{"room": Capacity(slots=4), **options})  # type: ignore[arg-type]


def test_capacity_rejects_negative_sizes() -> None:
    with pytest.raises(BadOption, match="page a, size -1"):
        Offer("a", -1)
    with pytest.raises(BadOption, match="slots -1"):
        Capacity(slots=-1)
