"""Ways to a page, without sockets: pushed copies, redirects, and an origin that does what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from newsstand.broker.announcing import Announcer
from newsstand.broker.copies import AGAIN_S, Copies, Kept, PushedPage, read_pushed
from newsstand.broker.page_content import Content, TooLarge
from newsstand.broker.page_fetcher import PageFetcher
from newsstand.broker.page_hosts import PageHosts
from newsstand.broker.page_metrics import PageMetrics
from newsstand.broker.pages import Asker, Pages, SentTo, Served, Unchanged
from newsstand.broker.redirects import REST_S, Peer, Redirected, RedirectMemory, RedirectTold
from newsstand.broker.shelf import Shelf
from newsstand.broker.tickets import LIFETIME_S, Tickets
from newsstand.broker.upstream import Announced, Away
from newsstand.errors import BadInput, NotFound
from newsstand.model import is_page_path, page_id
from newsstand.planning.places import Place

HERE, THERE = Place(52.5, 13.4), Place(35.7, 139.7)
AT_HOME = Asker(HERE)
FRONT = "named/front.html"
FIXED = f"pages/{page_id(b'fixed')}"
EAST = Peer("east", "http://east.example:8790")


class Origin:
    """Pages with versions; `asked` are the requests that it got, with their headers."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[bytes, str, int]] = {}
        self.redirects: dict[str, RedirectTold] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.away = False
        self.gate = asyncio.Event()
        self.gate.set()

    def put(self, path: str, data: bytes, modified_ms: int = 0) -> None:
        self.pages[path] = (data, page_id(data), modified_ms)

    @asynccontextmanager
    async def page(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        self.asked.append((path, dict(headers)))
        await self.gate.wait()
        if self.away:
            raise Away("the data cluster does not answer")
        if path in self.redirects and "Newsstand-Near" in headers and "Newsstand-Invalid-At" not in headers:
            raise Redirected(self.redirects[path])
        request = httpx.Request("GET", f"http://origin.example/{path}")
        if path not in self.pages:
            yield httpx.Response(404, request=request)
            return
        data, version, modified = self.pages[path]
        told = {"etag": f'"{version}"', "newsstand-modified": str(modified), "content-type": "text/html"}
        if headers.get("If-None-Match") == f'"{version}"':
            yield httpx.Response(304, headers=told, request=request)
        else:
            yield httpx.Response(200, headers=told, content=data, request=request)


class World:
    """A broker's pages with an origin, other brokers and a clock of the test's."""

    def __init__(self, room: int = 1000, shelf: int = 1000, largest: int = 500) -> None:
        self.now = 1_000_000.0
        self.origin = Origin()
        self.at_peers: dict[str, bytes] = {}
        self.peer_calls: list[httpx.Request] = []
        self.dead = False
        self.odd: dict[str, bytes] = {}
        """Headers of other brokers that are not as they should be."""
        self.copies = Copies(room, largest, self._origin_has, lambda: self.now)
        self.shelf = Shelf("sg2", shelf, self._match)
        self.pages = Pages(
            "west",
            self.shelf,
            self.copies,
            self.origin,  # type: ignore[arg-type]
            PageFetcher(PageHosts(), verify=False),
            httpx.AsyncClient(transport=httpx.MockTransport(self._peer)),
            Tickets("key"),
            PageMetrics(CollectorRegistry()),
            largest=largest,
            now_s=lambda: self.now,
        )

    async def _origin_has(self, path: str, version: str) -> Content | None:
        return await self.pages.origin_has(path, version)

    async def _match(self, page: str) -> Content:
        content = await self.pages.origin_has(f"pages/{page}", "")
        assert content is not None
        return content

    def _peer(self, request: httpx.Request) -> httpx.Response:
        self.peer_calls.append(request)
        if self.dead:
            raise httpx.ConnectError("nobody is there")
        path = request.url.path.removeprefix("/copies/")
        assert Tickets("key").admits(request.url.params["ticket"], path, self.now)
        if path not in self.at_peers:
            return httpx.Response(404)
        data = self.at_peers[path]
        return httpx.Response(200, content=data, headers={"etag": f'"{page_id(data)}"'.encode(), **self.odd})

    async def get(self, path: str, asker: Asker = AT_HOME) -> tuple[bytes, str, str]:
        served = await self.pages.get(path, asker)
        assert isinstance(served, Served)
        return served.content.data, served.source, served.by

    async def push(self, *paths: str, requests: float = 5.0) -> Kept:
        offers = [
            PushedPage(path, len(self.origin.pages[path][0]), self.origin.pages[path][2], requests)
            for path in paths
        ]
        return await self.copies.pushed(offers)


# Copies


def test_a_pushed_page_is_served_here_until_it_may_be_stale() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"monday", modified_ms=int((world.now - 1000) * 1000))
        assert await world.push(FRONT) == Kept([FRONT], [])
        world.origin.asked.clear()
        world.now += 100  # a tenth of its age, 1100 s, is 110 s
        assert await world.get(FRONT) == (b"monday", "pushed", "west")
        assert world.origin.asked == []
        world.now += 20  # now it has to be asked for: 120 s are more than a tenth of 1120 s
        assert await world.get(FRONT) == (b"monday", "pushed", "west")
        assert world.origin.asked == [(FRONT, {"If-None-Match": f'"{page_id(b"monday")}"'})]

    asyncio.run(story())


def test_a_page_that_changed_is_served_fresh_within_the_rule() -> None:
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


def test_a_copy_outlives_an_origin_that_is_away_but_not_one_that_has_dropped_it() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"monday", modified_ms=int(world.now * 1000))
        await world.push(FRONT)
        world.now += 5
        world.origin.away = True
        assert await world.get(FRONT) == (b"monday", "pushed", "west")
        world.origin.away = False
        world.now += AGAIN_S
        del world.origin.pages[FRONT]
        with pytest.raises(NotFound):
            await world.get(FRONT)
        assert FRONT not in world.copies

    asyncio.run(story())


def test_one_check_serves_all_who_wait_for_it() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"monday", modified_ms=int(world.now * 1000))
        await world.push(FRONT)
        world.now += 5
        world.origin.asked.clear()
        world.origin.gate.clear()
        waiting = [asyncio.create_task(world.get(FRONT)) for _ in range(10)]
        await asyncio.sleep(0)
        world.origin.gate.set()
        assert {one[0] for one in await asyncio.gather(*waiting)} == {b"monday"}
        assert len(world.origin.asked) == 1

    asyncio.run(story())


def test_a_push_that_cannot_be_fetched_or_does_not_fit_is_not_kept() -> None:
    async def story() -> None:
        world = World(room=10)
        world.origin.put("named/small", b"12345")
        world.origin.put("named/large", b"1234567890123")
        assert await world.push("named/large", "named/small") == Kept(["named/small"], [])
        missing = await world.copies.pushed([PushedPage("named/missing", 1, 0, 99.0)])
        assert missing.kept == []
        assert world.copies.paths == ["named/small"]
        # A page that is larger than its origin said.
        lied = await world.copies.pushed([PushedPage("named/large", 1, 0, 99.0)])
        assert lied.kept == []
        assert world.copies.bytes <= 10

    asyncio.run(story())


def test_slow_pages_of_a_push_are_left_out_and_delay_no_others() -> None:
    async def story() -> None:
        async def fetch(path: str, _: str) -> Content:
            if path != "named/quick":
                await asyncio.Event().wait()
            return Content(b"12345", "text/html", "v")

        copies = Copies(1000, 500, fetch, lambda: 1_000_000.0, push_s=0.3)
        paths = [*(f"named/slow{number}" for number in range(20)), "named/quick"]
        async with asyncio.timeout(30):
            kept = await copies.pushed([PushedPage(path, 5, 0, 9.0) for path in paths])
        assert kept == Kept(["named/quick"], [])
        assert copies.paths == ["named/quick"]

    asyncio.run(story())


def test_nothing_makes_room_for_a_page_that_does_not_come() -> None:
    async def story() -> None:
        world = World(room=20, largest=15)
        for name in ("a", "b"):
            world.origin.put(f"named/{name}", b"12345")
        await world.push("named/a", "named/b")
        world.origin.put("named/large", b"x" * 16)
        assert await world.push("named/large") == Kept([], [])
        world.origin.put("named/c", b"x" * 15)
        world.origin.away = True
        assert await world.push("named/c", requests=99.0) == Kept([], [])
        assert sorted(world.copies.paths) == ["named/a", "named/b"]

    asyncio.run(story())


def test_a_copy_that_has_become_too_large_leaves() -> None:
    async def story() -> None:
        world = World(largest=10)
        world.origin.put(FRONT, b"small", modified_ms=int(world.now * 1000))
        await world.push(FRONT)
        world.now += 5
        world.origin.put(FRONT, b"much larger than ten bytes", modified_ms=int(world.now * 1000))
        with pytest.raises(TooLarge):  # it is passed on
            await world.get(FRONT)
        assert FRONT not in world.copies

    asyncio.run(story())


def test_after_a_check_that_failed_copies_are_served_at_once_for_a_while() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"monday", modified_ms=int(world.now * 1000))
        await world.push(FRONT)
        world.now += 5
        world.origin.asked.clear()
        world.origin.away = True
        for _ in range(3):
            assert (await world.get(FRONT))[0] == b"monday"
        assert len(world.origin.asked) == 1
        world.now += AGAIN_S
        world.origin.away = False
        world.origin.put(FRONT, b"tuesday", modified_ms=int(world.now * 1000))
        assert (await world.get(FRONT))[0] == b"tuesday"

    asyncio.run(story())


def test_a_slow_check_does_not_undo_a_push() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"monday", modified_ms=int(world.now * 1000))
        await world.push(FRONT)
        world.now += 5
        slow = asyncio.Event()
        fetch = world.pages.origin_has

        async def slowly(path: str, version: str) -> Content | None:
            found = await fetch(path, version)
            await slow.wait()
            return found

        world.origin.put(FRONT, b"tuesday", modified_ms=int(world.now * 1000))
        world.pages.origin_has = slowly  # type: ignore[method-assign]
        checking = asyncio.create_task(world.get(FRONT))
        await asyncio.sleep(0.01)
        world.pages.origin_has = fetch  # type: ignore[method-assign]
        world.origin.put(FRONT, b"wednesday", modified_ms=int(world.now * 1000) + 1)
        await world.push(FRONT)
        slow.set()
        assert (await checking)[0] == b"wednesday"
        assert (await world.get(FRONT))[0] == b"wednesday"

    asyncio.run(story())


def test_what_makes_room_is_told() -> None:
    async def story() -> None:
        world = World(room=10)
        for name in ("a", "b", "c"):
            world.origin.put(f"named/{name}", b"12345")
        assert (await world.push("named/a", "named/b")).kept == ["named/a", "named/b"]
        await world.get("named/b")
        assert await world.push("named/c") == Kept(["named/c"], ["named/a"])
        assert sorted(world.copies.paths) == ["named/b", "named/c"]

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
def test_a_push_that_is_none(body: bytes, line: str) -> None:
    with pytest.raises(BadInput, match="body: ") as error:
        read_pushed(body)
    assert line in str(error.value)


class Listening:
    """An origin that hears announcements."""

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self.heard: list[Mapping[str, object]] = []
        self.failing: list[Exception] = []
        self.withdrawn = 0

    async def announce(self, announcement: Mapping[str, object]) -> Announced:
        self.heard.append(announcement)
        if self.failing:
            raise self.failing.pop()
        return Announced(self.enabled, 300.0)

    async def withdraw(self) -> None:
        self.withdrawn += 1


def test_what_is_here_is_announced_again_after_a_push(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        world, origin = World(), Listening()
        origin.failing = [ValueError("a defect"), Away("nobody answers")]
        monkeypatch.setattr("newsstand.broker.announcing.AGAIN_S", 0.001)
        announcer = Announcer(origin, world.copies, {"node": "berlin"})  # type: ignore[arg-type]
        await Announcer(origin, world.copies, {}).withdraw()  # type: ignore[arg-type]
        assert origin.withdrawn == 0, "it was never announced"
        running = asyncio.create_task(announcer.run())
        while len(origin.heard) < 3:
            await asyncio.sleep(0.001)
        world.origin.put(FRONT, b"monday")
        await world.push(FRONT)
        while len(origin.heard) < 4:
            await asyncio.sleep(0.001)
        assert origin.heard[-2:] == [{"node": "berlin", "pages": []}, {"node": "berlin", "pages": [FRONT]}]
        await announcer.withdraw()
        world.copies.changed.set()
        async with asyncio.timeout(5):
            await running
        assert (origin.withdrawn, len(origin.heard)) == (1, 4), "after the goodbye it says nothing"

    asyncio.run(story())


# The shelf, others, the origin


def test_a_page_that_a_match_announced_is_on_the_shelf() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FIXED, b"fixed")
        world.shelf.offered(FIXED.removeprefix("pages/"), 5, 3)
        # Who asks while it is on its way waits for it, and nobody is asked twice.
        assert await world.get(FIXED) == (b"fixed", "miss", "origin")
        assert await world.get(FIXED) == (b"fixed", "hit", "west")
        assert world.origin.asked == [(FIXED, {})]

    asyncio.run(story())


def test_pushed_by_both_a_page_is_here_once_or_twice_and_served_all_the_same() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FIXED, b"fixed")
        assert (await world.push(FIXED)).kept == [FIXED]
        assert await world.get(FIXED) == (b"fixed", "pushed", "west")
        world.shelf.offered(FIXED.removeprefix("pages/"), 5, 3)
        while world.shelf.is_coming(FIXED.removeprefix("pages/")):
            await asyncio.sleep(0)
        assert await world.get(FIXED) == (b"fixed", "hit", "west")

    asyncio.run(story())


def test_the_origin_hears_where_the_demand_is() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"monday")
        await world.get(FRONT, Asker(Place(52.5, 13.4, "berlin")))
        near = {"Newsstand-Near": "52.500000,13.400000", "Newsstand-Node": "berlin"}
        assert world.origin.asked == [(FRONT, near)]

    asyncio.run(story())


def test_a_redirect_is_followed_remembered_and_holds_for_its_place_only() -> None:
    async def story() -> None:
        world = World()
        for name in ("a", "b"):
            world.origin.put(f"named/{name}", b"from the origin")
            world.at_peers[f"named/{name}"] = b"from the peer"
        world.origin.redirects["named/a"] = RedirectTold(
            "east", "http://east.example:8790", ["named/a", "named/b"]
        )
        assert await world.get("named/a") == (b"from the peer", "peer", "east")
        assert await world.get("named/b") == (b"from the peer", "peer", "east")
        assert len(world.origin.asked) == 1, "the redirect told of both"
        assert await world.get("named/b", Asker(THERE)) == (b"from the origin", "miss", "origin")

    asyncio.run(story())


def test_who_can_is_sent_there_itself_with_a_ticket() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"from the origin")
        world.origin.redirects[FRONT] = RedirectTold("east", "http://east.example:8790/", [FRONT])
        sent = await world.pages.get(FRONT, Asker(HERE, goes=True))
        assert isinstance(sent, SentTo)
        assert sent.peer.server == "east"
        url = httpx.URL(sent.location)
        assert f"{url.host}{url.path}" == f"east.example/copies/{FRONT}"
        assert world.pages.tickets.admits(url.params["ticket"], FRONT, world.now)
        # It comes back: the origin answers, and this broker sends nobody there for that page any more.
        assert await world.get(FRONT, Asker(HERE, goes=True, invalid_at="east")) == (
            b"from the origin",
            "miss",
            "origin",
        )
        assert world.origin.asked[-1][1]["Newsstand-Invalid-At"] == "east"
        assert world.pages.memory.peer(HERE, FRONT) is None

    asyncio.run(story())


@pytest.mark.parametrize("dead", [True, False], ids=["dead", "invalid"])
@pytest.mark.parametrize("path", [FRONT, FIXED])
def test_a_redirect_in_vain_costs_one_trip_and_no_error(dead: bool, path: str) -> None:
    async def story() -> None:
        world = World()
        world.origin.put(path, b"fixed")
        world.origin.redirects[path] = RedirectTold("east", "http://east.example:8790", [path])
        world.dead = dead
        assert await world.get(path) == (b"fixed", "miss", "origin")
        assert len(world.peer_calls) == 1
        assert [headers.get("Newsstand-Invalid-At") for _, headers in world.origin.asked] == [None, "east"]

    asyncio.run(story())


def test_a_redirect_to_itself_is_in_vain_at_once() -> None:
    """The origin may believe for a while that a page is here which has just left."""

    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"from the origin")
        world.origin.redirects[FRONT] = RedirectTold("west", "http://west.example:8790", [FRONT])
        for goes in (True, False):
            assert await world.get(FRONT, Asker(HERE, goes)) == (b"from the origin", "miss", "origin")
        assert world.peer_calls == []

    asyncio.run(story())


@pytest.mark.parametrize("path", [FRONT, FIXED])
def test_what_another_broker_answers_has_to_be_the_page(path: str) -> None:
    async def story() -> None:
        world = World()
        world.origin.put(path, b"fixed")
        world.origin.redirects[path] = RedirectTold("east", "http://east.example:8790", [path])
        world.at_peers[path] = b"<html>Log in to this network</html>"
        world.odd = {"etag": f'"{page_id(b"fixed")}"'.encode()}
        assert await world.get(path) == (b"fixed", "miss", "origin")
        world.at_peers[path] = b""
        world.now += REST_S
        assert (await world.get(path))[0] == b"fixed"

    asyncio.run(story())


def test_odd_headers_of_another_broker_do_no_harm() -> None:
    async def story() -> None:
        world = World()
        world.origin.redirects[FRONT] = RedirectTold("east", "http://east.example:8790", [FRONT])
        world.at_peers[FRONT] = b"fixed"
        world.odd = {"content-type": "text/\u0142".encode(), "newsstand-modified": b"9" * 5000}
        served = await world.pages.get(FRONT, AT_HOME)
        assert isinstance(served, Served)
        assert (served.content.type, served.content.modified_ms) == ("application/octet-stream", 0)

    asyncio.run(story())


def test_a_dead_broker_is_tried_once_for_all_of_its_pages() -> None:
    async def story() -> None:
        world = World()
        paths = [f"named/{number}" for number in range(5)]
        for path in paths:
            world.origin.put(path, b"from the origin")
            world.origin.redirects[path] = RedirectTold("east", "http://east.example:8790", paths)
        world.dead = True
        for path in paths:
            assert (await world.get(path))[1] == "miss"
            assert (await world.get(path, Asker(THERE)))[1] == "miss"
        assert len(world.peer_calls) == 1
        world.dead, world.now = False, world.now + REST_S
        world.at_peers |= dict.fromkeys(paths, b"from the peer")
        assert (await world.get(paths[0]))[1] == "peer"

    asyncio.run(story())


def test_a_reader_who_has_the_page_gets_no_bytes() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"monday")
        with pytest.raises(Unchanged):
            await world.get(FRONT, Asker(HERE, has=page_id(b"monday")))
        assert world.origin.asked[-1][1]["If-None-Match"] == f'"{page_id(b"monday")}"'
        assert (await world.get(FRONT, Asker(HERE, has=page_id(b"sunday"))))[0] == b"monday"

    asyncio.run(story())


def test_who_only_looks_is_no_demand() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"monday")
        await world.get(FRONT, Asker(HERE, wants=False))
        assert world.origin.asked == [(FRONT, {})]

    asyncio.run(story())


def test_few_pages_are_fetched_at_once() -> None:
    async def story() -> None:
        world = World()
        world.origin.put(FRONT, b"monday")
        world.origin.gate.clear()
        waiting = [asyncio.create_task(world.get(FRONT, Asker(Place(0.0, lon)))) for lon in range(100)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(world.origin.asked) <= 16
        world.origin.gate.set()
        assert {one[0] for one in await asyncio.gather(*waiting)} == {b"monday"}

    asyncio.run(story())


def test_askers_in_different_ways_do_not_share_their_mishaps() -> None:
    """One goes to a dead broker, one to the origin, one is sent: all at once, for the same page."""

    async def story() -> None:
        world = World()
        world.origin.put(FIXED, b"fixed")
        world.origin.redirects[FIXED] = RedirectTold("east", "http://east.example:8790", [FIXED])
        world.dead = True
        world.origin.gate.clear()
        askers = [Asker(HERE), Asker(HERE), Asker(HERE, goes=True), Asker(THERE), Asker(HERE, invalid_at="east")]
        waiting = [asyncio.create_task(world.pages.get(FIXED, asker)) for asker in askers]
        await asyncio.sleep(0)
        world.origin.gate.set()
        found = await asyncio.gather(*waiting)
        kinds = [one.source if isinstance(one, Served) else one.peer.server for one in found]
        assert kinds == ["miss", "miss", "east", "miss", "miss"]
        assert all(one.content.data == b"fixed" for one in found if isinstance(one, Served))

    asyncio.run(story())


def test_a_page_that_is_too_large_says_so() -> None:
    async def story() -> None:
        world = World(largest=4)
        world.origin.put(FIXED, b"12345")
        with pytest.raises(TooLarge):
            await world.get(FIXED)

    asyncio.run(story())


# Memory and tickets


def test_of_many_redirects_the_newest_are_remembered() -> None:
    memory = RedirectMemory(most_places=2, most=10)
    for lon in range(3):
        memory.learn(Place(0.0, lon), RedirectTold("east", EAST.url, ["named/a"]))
    assert [memory.peer(Place(0.0, lon), "named/a") for lon in range(3)] == [None, EAST, EAST]
    memory.learn(Place(0.0, 1), RedirectTold("east", "http://moved.example", []))
    assert memory.peer(Place(0.0, 2), "named/a") == Peer("east", "http://moved.example"), "it is reached elsewhere"
    memory.learn(Place(0.0, 2), RedirectTold("east", EAST.url, [f"named/{number}" for number in range(10)]))
    assert memory.peer(Place(0.0, 1), "named/a") is None
    assert memory.peer(Place(0.0, 2), "named/9") == EAST


def test_a_broker_that_is_lost_is_left_alone_for_a_while() -> None:
    memory = RedirectMemory()
    memory.learn(HERE, RedirectTold("east", EAST.url, ["named/a"]))
    memory.learn(THERE, RedirectTold("east", EAST.url, ["named/b"]))
    memory.lost("east", 100.0)
    assert (memory.peer(HERE, "named/a"), memory.peer(THERE, "named/b")) == (None, None)
    assert (memory.rests("east", 100.0 + REST_S - 1), memory.rests("east", 100.0 + REST_S)) == (True, False)
    memory.learn(HERE, RedirectTold("east", EAST.url, ["named/c"]))
    assert (memory.peer(HERE, "named/c"), memory.peer(HERE, "named/a")) == (EAST, None)


@given(st.text(max_size=30), st.text(max_size=30), st.integers(0, 3 * LIFETIME_S))
def test_a_ticket_is_for_one_page_and_a_while(path: str, other: str, later: int) -> None:
    tickets = Tickets("key")
    ticket = tickets.ticket(path, 1000.5)
    assert tickets.admits(ticket, path, 1000.5 + later) == (1000.5 + later <= 1000 + LIFETIME_S)
    assert tickets.admits(ticket, other, 1001.0) == (path == other)
    assert not Tickets("another key").admits(ticket, path, 1001.0)


@pytest.mark.parametrize("ticket", ["", "1", "1.2", "x.y", "99999999999." + "0" * 64, "٣." + "0" * 64])
def test_what_is_no_ticket(ticket: str) -> None:
    assert not Tickets("key").admits(ticket, "named/a", 0.0)


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
def test_paths(path: str, good: bool) -> None:
    assert is_page_path(path) == good
