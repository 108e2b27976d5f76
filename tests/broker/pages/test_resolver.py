"""The page resolver without sockets: pushed copies, redirects, and a scripted origin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from prometheus_client import CollectorRegistry

from newsstand.auth.signing import URL_LIFETIME_S, SignedUrls
from newsstand.broker.cluster_client.client import (
    AnnounceResponse,
    ClusterUnavailable,
    OriginRedirect,
    RedirectedToPeer,
)
from newsstand.broker.cluster_client.webhook import parse_push
from newsstand.broker.metrics import PageMetrics
from newsstand.broker.pages.content import PageContent, PageResponse, PageTooLarge
from newsstand.broker.pages.fetcher import PageFetcher
from newsstand.broker.pages.hosts import PageHosts
from newsstand.broker.pages.match_cache import MatchCache
from newsstand.broker.pages.push_cache import (
    PushCacheLease,
    PushCacheLimits,
    PushCacheService,
)
from newsstand.broker.pages.resolver import (
    NotModified,
    PageRequest,
    PageResolver,
    PageResolverLimits,
    Peer,
    RedirectTable,
    RedirectTo,
    ResolvedPage,
)
from newsstand.errors import BadInput, NotFound
from newsstand.geo.location import Location
from newsstand.http.client import RequestError
from newsstand.model import is_page_path, page_id
from newsstand.wire.notifications import PushedPage, PushResult

HERE, THERE = Location(52.5, 13.4), Location(35.7, 139.7)
LOCAL = PageRequest(HERE)
FRONT = "named/front.html"
FIXED = f"pages/{page_id(b'fixed')}"
EAST = Peer("east", "http://east.example:8790")


def response(
    path: str, status: int, headers: Mapping[str, str] | None = None, content: bytes = b""
) -> PageResponse:
    async def chunks() -> AsyncIterator[bytes]:
        yield content

    return PageResponse(path, status, CIMultiDict(headers or {}), chunks())


class Origin:
    """An origin of pages with versions; `asked` lists its requests with their headers."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[bytes, str, int]] = {}
        self.redirects: dict[str, OriginRedirect] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.away = False
        self.gate = asyncio.Event()
        self.gate.set()

    def put(self, path: str, data: bytes, modified_ms: int = 0) -> None:
        self.pages[path] = (data, page_id(data), modified_ms)

    @asynccontextmanager
    async def page(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[PageResponse]:
        self.asked.append((path, dict(headers)))
        await self.gate.wait()
        if self.away:
            raise ClusterUnavailable("the data cluster does not answer")
        if path in self.redirects and "Newsstand-Near" in headers and "Newsstand-Invalid-At" not in headers:
            raise RedirectedToPeer(self.redirects[path])
        if path not in self.pages:
            yield response(path, 404)
            return
        data, version, modified = self.pages[path]
        page_headers = {"etag": f'"{version}"', "newsstand-modified": str(modified), "content-type": "text/html"}
        if headers.get("If-None-Match") == f'"{version}"':
            yield response(path, 304, page_headers)
        else:
            yield response(path, 200, page_headers, data)


class World:
    """A page resolver with an origin, other brokers and a manual clock."""

    def __init__(self, room: int = 1000, match_cache: int = 1000, largest: int = 500) -> None:
        self.now = 1_000_000.0
        self.origin = Origin()
        self.at_peers: dict[str, bytes] = {}
        self.peer_calls: list[str] = []
        self.dead = False
        self.odd: dict[str, str] = {}
        """Headers of other brokers that are not as they should be."""
        self.push_cache = PushCacheService(room, largest, self._fetch_current, lambda: self.now)
        self.match_cache = MatchCache("sg2", match_cache, self._match)
        self.pages = PageResolver(
            "west",
            self.match_cache,
            self.push_cache,
            self.origin,  # type: ignore[arg-type]
            PageFetcher(PageHosts(), verify=False),
            self,  # type: ignore[arg-type]
            SignedUrls("key"),
            PageMetrics(CollectorRegistry()),
            largest=largest,
            now_s=lambda: self.now,
        )

    @classmethod
    async def with_front(cls, data: bytes = b"monday", **sizes: int) -> World:
        """Return a world whose origin has changed its front page just now, and pushed it."""
        world = cls(**sizes)
        world.origin.put(FRONT, data, modified_ms=int(world.now * 1000))
        await world.push(FRONT)
        return world

    async def _fetch_current(self, path: str, version: str) -> PageContent | None:
        return await self.pages.fetch_current(path, version)

    async def _match(self, page: str) -> PageContent:
        content = await self.pages.fetch_current(f"pages/{page}", "")
        assert content is not None
        return content

    @asynccontextmanager
    async def stream(self, method: str, url: str, *, timeout_s: float) -> AsyncIterator[SimpleNamespace]:
        """Respond as another broker."""
        self.peer_calls.append(url)
        if self.dead:
            raise RequestError(url, "cannot connect")
        request = httpx.URL(url)
        path = request.path.removeprefix("/copies/")
        assert SignedUrls("key").verify(request.params["signature"], path, self.now)
        data = self.at_peers.get(path)
        tag = {} if data is None else {"etag": f'"{page_id(data)}"'}
        found = response(path, 404 if data is None else 200, {**tag, **self.odd}, data or b"")
        content = SimpleNamespace(iter_any=lambda: found.chunks)
        yield SimpleNamespace(url=request, status=found.status, headers=found.headers, content=content)

    async def get(self, path: str, asker: PageRequest = LOCAL) -> tuple[bytes, str, str]:
        served = await self.pages.get(path, asker)
        assert isinstance(served, ResolvedPage)
        return served.content.data, served.source, served.by

    async def push(self, *paths: str, requests: float = 5.0) -> PushResult:
        offers = [
            PushedPage(path, len(self.origin.pages[path][0]), self.origin.pages[path][2], requests)
            for path in paths
        ]
        return await self.push_cache.push(offers)


# Copies


def test_pushed_page_served_until_stale() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"monday", modified_ms=int((world.now - 1000) * 1000))
        assert await world.push(FRONT) == PushResult([FRONT], [])
        world.origin.asked.clear()
        world.now += 100  # a tenth of its age, 1100 s, is 110 s
        assert await world.get(FRONT) == (b"monday", "pushed", "west")
        assert world.origin.asked == []
        world.now += 20  # now it has to be asked for: 120 s are more than a tenth of 1120 s
        assert await world.get(FRONT) == (b"monday", "pushed", "west")
        assert world.origin.asked == [(FRONT, {"If-None-Match": f'"{page_id(b"monday")}"'})]

    asyncio.run(story())


def test_changed_page_served_fresh_within_the_rule() -> None:
    async def story() -> None:
        world = World()
        written = world.now - 500
        world.origin.put(FRONT, b"monday", modified_ms=int(written * 1000))
        await world.push(FRONT)
        pushed = world.now
        world.origin.put(FRONT, b"tuesday", modified_ms=int(world.now * 1000))
        late = 0.0
        while (await world.get(FRONT))[0] == b"monday":
            late = world.now - pushed
            assert late <= 0.1 * (world.now - written), "served stale longer than the rule allows"
            world.now += 1
        assert late > 0, "without a copy that was still trusted this shows nothing"
        assert await world.get(FRONT) == (b"tuesday", "pushed", "west")

    asyncio.run(story())


def test_pushed_page_survives_an_unavailable_origin_only() -> None:
    async def story() -> None:
        world = await World.with_front()
        world.now += 5
        world.origin.away = True
        assert await world.get(FRONT) == (b"monday", "pushed", "west")
        world.origin.away = False
        world.now += PushCacheLimits().recheck_s
        del world.origin.pages[FRONT]
        with pytest.raises(NotFound):
            await world.get(FRONT)
        assert FRONT not in world.push_cache

    asyncio.run(story())


def test_push_cache_check_shared_by_readers() -> None:
    async def story() -> None:
        world = await World.with_front()
        world.now += 5
        world.origin.asked.clear()
        world.origin.gate.clear()
        waiting = [asyncio.create_task(world.get(FRONT)) for _ in range(10)]
        await asyncio.sleep(0)
        world.origin.gate.set()
        assert {one[0] for one in await asyncio.gather(*waiting)} == {b"monday"}
        assert len(world.origin.asked) == 1

    asyncio.run(story())


def test_push_not_stored_when_fetch_fails_or_too_large() -> None:
    async def story() -> None:
        world = World(room=10)
        world.origin.put("named/small", b"12345")
        world.origin.put("named/large", b"1234567890123")
        assert await world.push("named/large", "named/small") == PushResult(["named/small"], [])
        missing = await world.push_cache.push([PushedPage("named/missing", 1, 0, 99.0)])
        assert missing.stored == []
        assert world.push_cache.paths == ["named/small"]
        # A page that is larger than its origin said.
        lied = await world.push_cache.push([PushedPage("named/large", 1, 0, 99.0)])
        assert lied.stored == []
        assert world.push_cache.bytes <= 10

    asyncio.run(story())


def test_push_leaves_out_slow_pages() -> None:
    async def story() -> None:
        async def fetch(path: str, _: str) -> PageContent:
            if path != "named/quick":
                await asyncio.Event().wait()
            return PageContent(b"12345", "text/html", "v")

        copies = PushCacheService(1000, 500, fetch, lambda: 1_000_000.0, PushCacheLimits(push_s=0.3))
        paths = [*(f"named/slow{number}" for number in range(20)), "named/quick"]
        async with asyncio.timeout(30):
            kept = await copies.push([PushedPage(path, 5, 0, 9.0) for path in paths])
        assert kept == PushResult(["named/quick"], [])
        assert copies.paths == ["named/quick"]

    asyncio.run(story())


def test_push_evicts_nothing_for_a_failed_fetch() -> None:
    async def story() -> None:
        world = World(room=20, largest=15)
        for name in ("a", "b"):
            world.origin.put(f"named/{name}", b"12345")
        await world.push("named/a", "named/b")
        world.origin.put("named/large", b"x" * 16)
        assert await world.push("named/large") == PushResult([], [])
        world.origin.put("named/c", b"x" * 15)
        world.origin.away = True
        assert await world.push("named/c", requests=99.0) == PushResult([], [])
        assert sorted(world.push_cache.paths) == ["named/a", "named/b"]

    asyncio.run(story())


def test_pushed_page_dropped_when_it_grows_too_large() -> None:
    async def story() -> None:
        world = await World.with_front(b"small", largest=10)
        world.now += 5
        world.origin.put(FRONT, b"much larger than ten bytes", modified_ms=int(world.now * 1000))
        with pytest.raises(PageTooLarge):  # it is passed on
            await world.get(FRONT)
        assert FRONT not in world.push_cache

    asyncio.run(story())


def test_failed_check_not_repeated_for_a_while() -> None:
    async def story() -> None:
        world = await World.with_front()
        world.now += 5
        world.origin.asked.clear()
        world.origin.away = True
        for _ in range(3):
            assert (await world.get(FRONT))[0] == b"monday"
        assert len(world.origin.asked) == 1
        world.now += PushCacheLimits().recheck_s
        world.origin.away = False
        world.origin.put(FRONT, b"tuesday", modified_ms=int(world.now * 1000))
        assert (await world.get(FRONT))[0] == b"tuesday"

    asyncio.run(story())


def test_slow_check_does_not_undo_a_push() -> None:
    async def story() -> None:
        world = await World.with_front()
        world.now += 5
        slow = asyncio.Event()
        fetch = world.pages.fetch_current

        async def slowly(path: str, version: str) -> PageContent | None:
            found = await fetch(path, version)
            await slow.wait()
            return found

        world.origin.put(FRONT, b"tuesday", modified_ms=int(world.now * 1000))
        world.pages.fetch_current = slowly  # type: ignore[method-assign]
        checking = asyncio.create_task(world.get(FRONT))
        await asyncio.sleep(0.01)
        world.pages.fetch_current = fetch  # type: ignore[method-assign]
        world.origin.put(FRONT, b"wednesday", modified_ms=int(world.now * 1000) + 1)
        await world.push(FRONT)
        slow.set()
        assert (await checking)[0] == b"wednesday"
        assert (await world.get(FRONT))[0] == b"wednesday"

    asyncio.run(story())


def test_push_result_lists_evicted_pages() -> None:
    async def story() -> None:
        world = World(room=10)
        for name in ("a", "b", "c"):
            world.origin.put(f"named/{name}", b"12345")
        assert (await world.push("named/a", "named/b")).stored == ["named/a", "named/b"]
        await world.get("named/b")
        assert await world.push("named/c") == PushResult(["named/c"], ["named/a"])
        assert sorted(world.push_cache.paths) == ["named/b", "named/c"]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"{", "body: Input data was truncated"),
        (b"{}", "body: Object missing required field `pages`"),
        (b'{"pages": [{"path": "named/../x", "size": 1}]}', "pages.0.path: 'named/../x' is not the path"),
        (b'{"pages": [{"path": "other/x", "size": 1}]}', "pages.0.path: 'other/x' is not the path"),
        (b'{"pages": [{"path": "named/x", "size": "1"}]}', "body: Expected `int`, got `str`"),
        (b'{"pages": [{"path": "named/x", "size": -1}]}', "body: Expected `int` >= 0"),
        (b'{"pages": [{"path": "named/x", "size": 1, "requests": 1e999}]}', "body: "),
    ],
)
def test_malformed_push_rejected(body: bytes, line: str) -> None:
    with pytest.raises(BadInput, match="body: ") as error:
        parse_push(body)
    assert line in str(error.value)


class Listening:
    """An origin that records announcements."""

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self.heard: list[Mapping[str, object]] = []
        self.failing: list[Exception] = []
        self.withdrawn = 0

    async def announce(self, announcement: Mapping[str, object]) -> AnnounceResponse:
        self.heard.append(announcement)
        if self.failing:
            raise self.failing.pop()
        return AnnounceResponse(self.enabled, 300.0)

    async def withdraw(self) -> None:
        self.withdrawn += 1


def test_lease_renewed_after_a_push() -> None:
    async def story() -> None:
        world, origin = World(), Listening()
        origin.failing = [ValueError("a defect"), ClusterUnavailable("nobody answers")]
        timing = PushCacheLimits(retry_s=0.001)
        lease = PushCacheLease(origin, world.push_cache, {"node": "berlin"}, timing)  # type: ignore[arg-type]
        await PushCacheLease(origin, world.push_cache, {}).withdraw()  # type: ignore[arg-type]
        assert origin.withdrawn == 0, "it was never announced"
        running = asyncio.create_task(lease.run())
        while len(origin.heard) < 3:
            await asyncio.sleep(0.001)
        world.origin.put(FRONT, b"monday")
        await world.push(FRONT)
        while len(origin.heard) < 4:
            await asyncio.sleep(0.001)
        assert origin.heard[-2:] == [{"node": "berlin", "pages": []}, {"node": "berlin", "pages": [FRONT]}]
        await lease.withdraw()
        world.push_cache.changed.set()
        async with asyncio.timeout(5):
            await running
        assert (origin.withdrawn, len(origin.heard)) == (1, 4), "after the goodbye it says nothing"

    asyncio.run(story())


# Match cache, other brokers, origin


def test_matched_page_served_from_match_cache() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FIXED, b"fixed")
        world.match_cache.offer(FIXED.removeprefix("pages/"), 5, 3)
        # Who asks while it is on its way waits for it, and nobody is asked twice.
        assert await world.get(FIXED) == (b"fixed", "miss", "origin")
        assert await world.get(FIXED) == (b"fixed", "hit", "west")
        assert world.origin.asked == [(FIXED, {})]

    asyncio.run(story())


def test_page_in_both_caches_served() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FIXED, b"fixed")
        assert (await world.push(FIXED)).stored == [FIXED]
        assert await world.get(FIXED) == (b"fixed", "pushed", "west")
        world.match_cache.offer(FIXED.removeprefix("pages/"), 5, 3)
        while world.match_cache.is_fetching(FIXED.removeprefix("pages/")):
            await asyncio.sleep(0)
        assert await world.get(FIXED) == (b"fixed", "hit", "west")

    asyncio.run(story())


def test_origin_request_carries_client_location() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"monday")
        await world.get(FRONT, PageRequest(Location(52.5, 13.4, "berlin")))
        near = {"Newsstand-Near": "52.500000,13.400000", "Newsstand-Node": "berlin"}
        assert world.origin.asked == [(FRONT, near)]

    asyncio.run(story())


def test_redirect_remembered_for_its_place_only() -> None:
    async def story() -> None:
        world = World()
        for name in ("a", "b"):
            world.origin.put(f"named/{name}", b"from the origin")
            world.at_peers[f"named/{name}"] = b"from the peer"
        world.origin.redirects["named/a"] = OriginRedirect(
            "east", "http://east.example:8790", ["named/a", "named/b"]
        )
        assert await world.get("named/a") == (b"from the peer", "peer", "east")
        assert await world.get("named/b") == (b"from the peer", "peer", "east")
        assert len(world.origin.asked) == 1, "the redirect lists both"
        assert await world.get("named/b", PageRequest(THERE)) == (b"from the origin", "miss", "origin")

    asyncio.run(story())


def test_redirect_of_a_client_has_a_signed_url() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"from the origin")
        world.origin.redirects[FRONT] = OriginRedirect("east", "http://east.example:8790/", [FRONT])
        sent = await world.pages.get(FRONT, PageRequest(HERE, follows_redirects=True))
        assert isinstance(sent, RedirectTo)
        assert sent.peer.server == "east"
        url = httpx.URL(sent.location)
        assert f"{url.host}{url.path}" == f"east.example/copies/{FRONT}"
        assert world.pages.signed_urls.verify(url.params["signature"], FRONT, world.now)
        # It comes back: the origin answers, and this broker sends nobody there for that page any more.
        assert await world.get(FRONT, PageRequest(HERE, follows_redirects=True, invalid_at="east")) == (
            b"from the origin",
            "miss",
            "origin",
        )
        assert world.origin.asked[-1][1]["Newsstand-Invalid-At"] == "east"
        assert world.pages.redirects.peer(HERE, FRONT) is None

    asyncio.run(story())


@pytest.mark.parametrize("dead", [True, False], ids=["dead", "invalid"])
@pytest.mark.parametrize("path", [FRONT, FIXED])
def test_peer_miss_answered_by_origin(dead: bool, path: str) -> None:
    async def story() -> None:
        world = World()
        world.origin.put(path, b"fixed")
        world.origin.redirects[path] = OriginRedirect("east", "http://east.example:8790", [path])
        world.dead = dead
        assert await world.get(path) == (b"fixed", "miss", "origin")
        assert len(world.peer_calls) == 1
        assert [headers.get("Newsstand-Invalid-At") for _, headers in world.origin.asked] == [None, "east"]

    asyncio.run(story())


def test_redirect_to_itself_answered_by_origin() -> None:
    """The origin may not know yet that this broker has evicted the page."""

    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"from the origin")
        world.origin.redirects[FRONT] = OriginRedirect("west", "http://west.example:8790", [FRONT])
        for goes in (True, False):
            assert await world.get(FRONT, PageRequest(HERE, goes)) == (b"from the origin", "miss", "origin")
        assert world.peer_calls == []

    asyncio.run(story())


@pytest.mark.parametrize("path", [FRONT, FIXED])
def test_peer_response_verified_by_digest(path: str) -> None:
    async def story() -> None:
        world = World()
        world.origin.put(path, b"fixed")
        world.origin.redirects[path] = OriginRedirect("east", "http://east.example:8790", [path])
        world.at_peers[path] = b"<html>Log in to this network</html>"
        world.odd = {"etag": f'"{page_id(b"fixed")}"'}
        assert await world.get(path) == (b"fixed", "miss", "origin")
        world.at_peers[path] = b""
        world.now += PageResolverLimits().unavailable_s
        assert (await world.get(path))[0] == b"fixed"

    asyncio.run(story())


def test_peer_headers_sanitized() -> None:
    async def story() -> None:
        world = World()
        world.origin.redirects[FRONT] = OriginRedirect("east", "http://east.example:8790", [FRONT])
        world.at_peers[FRONT] = b"fixed"
        world.odd = {"content-type": "text/\u0142", "newsstand-modified": "9" * 5000}
        served = await world.pages.get(FRONT, LOCAL)
        assert isinstance(served, ResolvedPage)
        assert (served.content.type, served.content.modified_ms) == ("application/octet-stream", 0)

    asyncio.run(story())


def test_unavailable_peer_tried_once_for_all_pages() -> None:
    async def story() -> None:
        world = World()
        paths = [f"named/{number}" for number in range(5)]
        for path in paths:
            world.origin.put(path, b"from the origin")
            world.origin.redirects[path] = OriginRedirect("east", "http://east.example:8790", paths)
        world.dead = True
        for path in paths:
            assert (await world.get(path))[1] == "miss"
            assert (await world.get(path, PageRequest(THERE)))[1] == "miss"
        assert len(world.peer_calls) == 1
        world.dead, world.now = False, world.now + PageResolverLimits().unavailable_s
        world.at_peers |= dict.fromkeys(paths, b"from the peer")
        assert (await world.get(paths[0]))[1] == "peer"

    asyncio.run(story())


def test_resolver_reports_page_not_modified() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"monday")
        with pytest.raises(NotModified):
            await world.get(FRONT, PageRequest(HERE, version=page_id(b"monday")))
        assert world.origin.asked[-1][1]["If-None-Match"] == f'"{page_id(b"monday")}"'
        assert (await world.get(FRONT, PageRequest(HERE, version=page_id(b"sunday"))))[0] == b"monday"

    asyncio.run(story())


def test_head_request_is_no_demand() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"monday")
        await world.get(FRONT, PageRequest(HERE, is_demand=False))
        assert world.origin.asked == [(FRONT, {})]

    asyncio.run(story())


def test_cluster_fetches_limited() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"monday")
        world.origin.gate.clear()
        waiting = [asyncio.create_task(world.get(FRONT, PageRequest(Location(0.0, lon)))) for lon in range(100)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(world.origin.asked) <= 16
        world.origin.gate.set()
        assert {one[0] for one in await asyncio.gather(*waiting)} == {b"monday"}

    asyncio.run(story())


def test_resolver_shares_fetches_of_equal_requests_only() -> None:
    """Three concurrent requests for one page go to a dead broker, to the origin and to a redirect."""

    async def story() -> None:
        world = World()
        world.origin.put(FIXED, b"fixed")
        world.origin.redirects[FIXED] = OriginRedirect("east", "http://east.example:8790", [FIXED])
        world.dead = True
        world.origin.gate.clear()
        askers = [
            PageRequest(HERE),
            PageRequest(HERE),
            PageRequest(HERE, follows_redirects=True),
            PageRequest(THERE),
            PageRequest(HERE, invalid_at="east"),
        ]
        waiting = [asyncio.create_task(world.pages.get(FIXED, asker)) for asker in askers]
        await asyncio.sleep(0)
        world.origin.gate.set()
        found = await asyncio.gather(*waiting)
        kinds = [one.source if isinstance(one, ResolvedPage) else one.peer.server for one in found]
        assert kinds == ["miss", "miss", "east", "miss", "miss"]
        assert all(one.content.data == b"fixed" for one in found if isinstance(one, ResolvedPage))

    asyncio.run(story())


def test_resolver_rejects_too_large_page() -> None:
    async def story() -> None:
        world = World(largest=4)
        world.origin.put(FIXED, b"12345")
        with pytest.raises(PageTooLarge):
            await world.get(FIXED)

    asyncio.run(story())


# Memory and signed URLs


def test_redirect_table_keeps_the_newest() -> None:
    memory = RedirectTable(PageResolverLimits(redirects=10))
    for lon in range(11):
        memory.learn(Location(0.0, lon), OriginRedirect("east", EAST.url, ["named/a"]))
    assert [memory.peer(Location(0.0, lon), "named/a") for lon in range(3)] == [None, EAST, EAST]
    memory.learn(Location(0.0, 1), OriginRedirect("east", "http://moved.example", []))
    assert memory.peer(Location(0.0, 2), "named/a") == Peer("east", "http://moved.example"), (
        "it is reached elsewhere"
    )
    memory.learn(Location(0.0, 2), OriginRedirect("east", EAST.url, [f"named/{number}" for number in range(10)]))
    assert memory.peer(Location(0.0, 1), "named/a") is None
    assert memory.peer(Location(0.0, 2), "named/9") == EAST


def test_redirect_table_avoids_unavailable_broker() -> None:
    memory = RedirectTable()
    memory.learn(HERE, OriginRedirect("east", EAST.url, ["named/a"]))
    memory.learn(THERE, OriginRedirect("east", EAST.url, ["named/b"]))
    memory.mark_unavailable("east", 100.0)
    assert (memory.peer(HERE, "named/a"), memory.peer(THERE, "named/b")) == (None, None)
    assert (
        memory.is_unavailable("east", 100.0 + PageResolverLimits().unavailable_s - 1),
        memory.is_unavailable("east", 100.0 + PageResolverLimits().unavailable_s),
    ) == (
        True,
        False,
    )
    memory.learn(HERE, OriginRedirect("east", EAST.url, ["named/c"]))
    assert (memory.peer(HERE, "named/c"), memory.peer(HERE, "named/a")) == (EAST, None)


@given(st.text(max_size=30), st.text(max_size=30), st.integers(0, 3 * URL_LIFETIME_S))
def test_signed_url_is_valid_for_one_page_and_a_while(path: str, other: str, later: int) -> None:
    signed_urls = SignedUrls("key")
    signature = signed_urls.sign(path, 1000.5)
    assert signed_urls.verify(signature, path, 1000.5 + later) == (1000.5 + later <= 1000 + URL_LIFETIME_S)
    assert signed_urls.verify(signature, other, 1001.0) == (path == other)
    assert not SignedUrls("another key").verify(signature, path, 1001.0)


@pytest.mark.parametrize("signature", ["", "1", "1.2", "x.y", "99999999999." + "0" * 64, "٣." + "0" * 64])
def test_signed_url_rejected_when_malformed(signature: str) -> None:
    assert not SignedUrls("key").verify(signature, "named/a", 0.0)


@pytest.mark.parametrize(
    ("path", "good"),
    [
        (FIXED, True),
        ("named/a", True),
        ("named/a/b.html", True),
        ("named/.hidden", True),
        ("named/" + "a" * 200, True),
        ("named/" + "a" * 201, False),
        ("named/", False),
        ("named/a//b", False),
        ("named/a/", False),
        ("named//a", False),
        ("named/.", False),
        ("named/a/../b", False),
        ("named/a b", False),
        ("named/ä", False),
        ("named/a?b", False),
        ("pages/0123", False),
        ("other/a", False),
        ("", False),
    ],
)
def test_page_paths(path: str, good: bool) -> None:
    assert is_page_path(path) == good
