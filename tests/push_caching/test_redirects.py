"""Redirects lead to push-caches that are closer than the origin, and clients remember them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.push_caching.worlds import Table, internets

from newsstand.errors import BadOption
from newsstand.geo.backbone import Internet
from newsstand.push_caching.redirects import OriginRedirects, Redirect, RedirectCache
from newsstand.push_caching.strategies import ByChance, nearness


def table_with(origin: int, places: dict[int, str]) -> OriginRedirects[str]:
    table: OriginRedirects[str] = OriginRedirects(origin)
    for server, pages in places.items():
        table.add(server, pages)
    return table


def test_redirect_lists_all_pages_at_nearest_holder() -> None:
    table = table_with(0, {1: "ab", 2: "bcd", 3: "cb"})
    way = Table([[10, 9, 5, 1]])
    assert table.redirect("b", 0, way) == Redirect(0, 3, ("c", "b"))
    assert table.redirect("d", 0, way) == Redirect(0, 2, ("b", "c", "d"))
    assert table.redirect("a", 0, way) == Redirect(0, 1, ("a", "b"))
    assert table.redirect("e", 0, way) is None


def test_redirect_is_none_for_cache_as_far_as_origin() -> None:
    table = table_with(0, {1: "a", 2: "a"})
    assert table.redirect("a", 0, Table([[5, 5, 6]])) is None
    assert table.redirect("a", 0, Table([[5, 4, 4]])) == Redirect(0, 1, ("a",))


def test_redirect_ignores_removed_copies() -> None:
    table = table_with(9, {1: "ab", 2: "b"})
    table.remove(1, "bz")
    assert (table.holders("b"), table.pages_at(1), table.servers()) == ((2,), ("a",), (1, 2))
    table.remove(2, "b")
    table.remove(2, "b")
    assert (table.holders("b"), table.servers()) == ((), (1,))
    table.remove_server(1)
    table.remove_server(7)
    assert (table.holders("a"), table.pages_at(1), table.servers()) == ((), (), ())


def test_redirect_size_is_34_bytes_per_page() -> None:
    assert Redirect(0, 1, ("a", "b", "c")).size == 102


@pytest.mark.parametrize("strategy", ["hops", "miles"])
@given(internet=internets(), data=st.data())
def test_redirect_leads_to_closest_cache_only(strategy: str, internet: Internet, data: st.DataObject) -> None:
    servers = st.integers(0, len(internet.servers) - 1)
    origin = data.draw(servers)
    table: OriginRedirects[int] = OriginRedirects(origin)
    for server in data.draw(st.lists(servers, unique=True)):
        table.add(server, data.draw(st.lists(st.integers(0, 3))))
    way = nearness(strategy, internet, np.random.default_rng(0))
    for subnet in range(len(internet.subnets)):
        own = way.distance(subnet, origin)
        for page in range(4):
            found = table.redirect(page, subnet, way)
            holders = {server: way.distance(subnet, server) for server in table.holders(page)}
            if found is None:
                assert all(distance >= own for distance in holders.values())
                continue
            assert page in found.pages
            assert found.pages == table.pages_at(found.server)
            assert holders[found.server] == min(holders.values()) < own


def test_redirect_by_chance_includes_origin() -> None:
    table = table_with(0, {1: "a", 2: "a"})
    way = ByChance(np.random.default_rng(3))
    found = Counter(
        redirect and redirect.server for redirect in (table.redirect("a", 0, way) for _ in range(3000))
    )
    assert set(found) == {None, 1, 2}
    assert all(count == pytest.approx(1000, abs=5 * np.sqrt(3000 * 2 / 9)) for count in found.values())


def test_redirect_cache_uses_last_redirect() -> None:
    client: RedirectCache[str] = RedirectCache()
    assert client.server(5, "a") is None
    client.learn(Redirect(5, 1, ("a", "b")))
    client.learn(Redirect(5, 2, ("b", "c")))
    assert [client.server(5, page) for page in "abcd"] == [1, 2, 2, None]
    assert client.server(6, "a") is None


def test_redirect_cache_forgets_one_page_after_invalid() -> None:
    client: RedirectCache[str] = RedirectCache()
    client.learn(Redirect(5, 1, ("a", "b")))
    client.invalid(5, "a", server=1)
    client.invalid(5, "a", server=1)
    assert [client.server(5, page) for page in "ab"] == [None, 1]
    client.learn(Redirect(5, 2, ("b",)))
    client.invalid(5, "b", server=1)
    assert client.server(5, "b") == 2


def test_redirect_cache_forgets_least_recently_used() -> None:
    client: RedirectCache[str] = RedirectCache(most=3)
    client.learn(Redirect(5, 1, ("a", "b", "c")))
    client.server(5, "a")
    client.learn(Redirect(5, 1, ("d",)))
    assert [client.server(5, page) for page in "abcd"] == [1, None, 1, 1]
    assert len(client) == 3
    with pytest.raises(BadOption, match="redirects 0: must be at least 1"):
        RedirectCache(most=0)
