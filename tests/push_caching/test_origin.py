"""An origin pushes its most popular pages to the cluster with most requests when its load is above a threshold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples
from support.push_caching.worlds import Table, internets

from newsstand.errors import BadOption
from newsstand.geo.backbone import Internet
from newsstand.push_caching.cache import PushCache, Verdict
from newsstand.push_caching.clusters import cluster_requests
from newsstand.push_caching.copies import Capacity, Offer
from newsstand.push_caching.origin import PushCandidate, PushDecision, PushOrigin, PushOriginSettings
from newsstand.push_caching.redirects import Redirect, RedirectCache
from newsstand.push_caching.strategies import nearness

HALF_HOUR = 1800.0
ORIGIN = 0
WORLD = Table([[9, 1, 5], [9, 5, 1], [1, 9, 9]])
"""Subnet 0 is near server 1, subnet 1 near server 2, and subnet 2 near the origin."""


def origin_with(threshold: float = 2.0, pages_to_push: int = 2, redirects_count: bool = False) -> PushOrigin[str]:
    settings = PushOriginSettings(threshold, pages_to_push, redirects_count=redirects_count)
    return PushOrigin(ORIGIN, settings, WORLD, WORLD, started=0.0)


def ask(origin: PushOrigin[str], subnet: int, pages: str, now: float = 0.0) -> None:
    for page in pages:
        origin.request(page, subnet, now)


def test_origin_pushes_above_threshold_only() -> None:
    origin = origin_with(threshold=2.0)
    ask(origin, 0, "abcd")
    assert origin.decides_at == HALF_HOUR
    assert origin.decide(HALF_HOUR, [1, 2]) is None
    assert origin.load == 2.0
    ask(origin, 0, "abc", now=HALF_HOUR)
    assert origin.decide(2 * HALF_HOUR - 1, [1, 2]) is None
    push = origin.decide(2 * HALF_HOUR, [1, 2])
    assert push is not None
    assert push.requests == 7
    assert origin.load == 0.0


def test_origin_pushes_most_popular_pages_to_winner() -> None:
    origin = origin_with()
    ask(origin, 0, "aab")
    ask(origin, 1, "abcccc")
    ask(origin, 2, "d")
    assert origin.decide(HALF_HOUR, [2, 1]) == PushDecision(
        server=2,
        pages=(PushCandidate("c", 4, 4 * 0.6), PushCandidate("a", 3, 3 * 0.6)),
        cluster=6,
        requests=10,
    )


def test_origin_resets_load_and_history_after_push() -> None:
    origin = origin_with(threshold=1.0)
    ask(origin, 0, "aaa")
    ask(origin, 1, "b")
    assert origin.decide(HALF_HOUR, [1, 2]) is not None
    assert origin.decide(HALF_HOUR, [1, 2]) is None
    ask(origin, 1, "cccc", now=HALF_HOUR)
    push = origin.decide(2 * HALF_HOUR, [1, 2])
    assert push == PushDecision(2, (PushCandidate("c", 4, 4.0),), 4, 4)


def test_origin_waits_without_other_servers() -> None:
    origin = origin_with(threshold=1.0)
    ask(origin, 2, "aaaa")
    assert origin.decide(HALF_HOUR, [ORIGIN]) is None
    assert origin.load == 2.0
    ask(origin, 2, "aa", now=HALF_HOUR)
    push = origin.decide(2 * HALF_HOUR, [ORIGIN, 1])
    assert push is not None
    assert (push.server, push.requests) == (1, 6)


def test_origin_pushes_for_past_load_when_decided_late() -> None:
    origin = origin_with(threshold=2.0)
    ask(origin, 0, "aaaaaa")
    ask(origin, 0, "b", now=HALF_HOUR + 1)
    push = origin.decide(9 * HALF_HOUR, [1])
    assert push is not None
    assert push.requests == 7
    assert origin.decides_at == 10 * HALF_HOUR


def test_origin_forgets_old_requests() -> None:
    origin = PushOrigin[str](ORIGIN, PushOriginSettings(1.0, remember_s=HALF_HOUR), WORLD, WORLD, 0.0)
    ask(origin, 0, "aa")
    ask(origin, 1, "bbb", now=2 * HALF_HOUR)
    push = origin.decide(3 * HALF_HOUR, [1, 2])
    assert push == PushDecision(2, (PushCandidate("b", 3, 3.0),), 3, 3)


def test_origin_redirects_to_closer_cache_without_counting() -> None:
    origin = origin_with(threshold=0.0)
    origin.add_copies(1, ["a", "b"])
    assert origin.request("a", 0, 0.0) == Redirect(ORIGIN, 1, ("a", "b"))
    assert origin.request("a", 2, 0.0) is None
    assert origin.request("c", 0, 0.0) is None
    push = origin.decide(HALF_HOUR, [1])
    assert push is not None
    assert push.requests == 2
    origin.remove_copies(1, ["a"])
    assert origin.request("a", 0, HALF_HOUR) is None


def test_origin_counts_redirected_requests_if_configured() -> None:
    origin = origin_with(threshold=0.0, redirects_count=True)
    origin.add_copies(1, ["a"])
    assert origin.request("a", 0, 0.0) is not None
    push = origin.decide(HALF_HOUR, [1])
    assert push == PushDecision(1, (PushCandidate("a", 1, 1.0),), 1, 1)


def test_origin_drops_redirect_after_invalid() -> None:
    origin = origin_with()
    origin.add_copies(1, ["a", "b"])
    origin.add_copies(2, ["a"])
    assert origin.request("a", 0, 0.0, invalid_at=1) is None
    assert origin.request("a", 0, 0.0) == Redirect(ORIGIN, 2, ("a",))
    assert origin.request("b", 0, 0.0) == Redirect(ORIGIN, 1, ("b",))


def test_origin_push_cache_and_client_cooperate() -> None:
    origin = origin_with(threshold=1.0, pages_to_push=2)
    cache: PushCache[str] = PushCache(Capacity(slots=4), origin_share=0.5, check_share=math.inf)
    client: RedirectCache[str] = RedirectCache()
    ask(origin, 0, "aaabbc")
    push = origin.decide(HALF_HOUR, [1, 2])
    assert push is not None
    offers = [Offer(one.page, 100, requests=one.expected) for one in push.pages]
    origin.add_copies(push.server, cache.push(ORIGIN, offers, HALF_HOUR).cached)

    redirect = origin.request("b", 0, HALF_HOUR)
    assert redirect == Redirect(ORIGIN, 1, ("a", "b"))
    client.learn(redirect)
    assert client.server(ORIGIN, "a") == 1
    assert cache.request(ORIGIN, "a", HALF_HOUR) is Verdict.HIT

    cache.drop(ORIGIN, "b")
    assert cache.request(ORIGIN, "b", HALF_HOUR) is Verdict.INVALID
    client.invalid(ORIGIN, "b", 1)
    assert client.server(ORIGIN, "b") is None
    assert origin.request("b", 0, HALF_HOUR, invalid_at=1) is None
    assert origin.redirects.pages_at(1) == ("a",)


@given(internet=internets(), data=st.data())
@settings(max_examples=examples(60))
def test_origin_decides_like_plain_counting(internet: Internet, data: st.DataObject) -> None:
    way = nearness("hops", internet, np.random.default_rng(0))
    threshold, wanted = data.draw(st.sampled_from([0.0, 2.0, 5.0])), data.draw(st.integers(1, 3))
    origin: PushOrigin[int] = PushOrigin(0, PushOriginSettings(threshold, wanted, remember_s=1e9), way, way, 0.0)
    servers = range(1, len(internet.servers))
    load = 0.0
    asked: list[tuple[int, int]] = []
    halves = data.draw(
        st.lists(
            st.lists(st.tuples(st.integers(0, len(internet.subnets) - 1), st.integers(0, 5)), max_size=12),
            max_size=5,
        )
    )
    for number, requests in enumerate(halves):
        for subnet, page in requests:
            origin.request(page, subnet, number * HALF_HOUR)
        asked += requests
        load = 0.5 * load + 0.5 * len(requests)
        push = origin.decide((number + 1) * HALF_HOUR, servers)
        if not (load > threshold and asked and servers):
            assert push is None
            continue
        subnets = [subnet for subnet, _ in asked]
        pages = [page for _, page in asked]
        clusters = cluster_requests({one: subnets.count(one) for one in subnets}, servers, way)
        assert push is not None
        assert clusters[push.server] == push.cluster == max(clusters.values())
        assert [(one.page, one.requests) for one in push.pages] == [
            (page, pages.count(page))
            for page in sorted(set(pages), key=lambda page: (-pages.count(page), page))[:wanted]
        ]
        load, asked = 0.0, []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": -1.0}, "threshold -1: must not be negative"),
        ({"pages_to_push": 0}, "pages_to_push 0: must be at least 1"),
    ],
)
def test_origin_settings_reject_invalid_values(options: dict[str, float], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        PushOriginSettings(**options)  # type: ignore[arg-type]
