"""The cluster as an origin: redirects, decisions about pushes, and the HTTP API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster.standin import ApiClient, StandIn, serving
from support.profiles import examples

from newsstand.auth.api_tokens import new_token
from newsstand.cluster.app_folder import PushCachingSettings
from newsstand.cluster.pages.redirector import KnownCache, PageRedirector, RedirectorLimits
from newsstand.geo.location import Location, great_circle_miles
from newsstand.http.pages import ClientLocation

NEW_YORK, BERLIN, PARIS, TOKYO = (
    Location(40.7, -74.0),
    Location(52.5, 13.4),
    Location(48.9, 2.4),
    Location(35.7, 139.7),
)
LEASE = RedirectorLimits().lease_s
LISTED = RedirectorLimits().redirect_pages


def origin(**options: object) -> PageRedirector:
    """Return a redirector in New York that decides every 100 seconds by the requests of that period."""
    usual = {"threshold": 2.0, "pages": 2, "period_s": 100.0, "decay": 0.0, "lat": 40.7, "lon": -74.0}
    return PageRedirector(PushCachingSettings(enabled=True, **{**usual, **options}), started=0.0)  # type: ignore[arg-type]


def cache(name: str, place: Location) -> KnownCache:
    return KnownCache(name, f"http://{name}", f"http://{name}/pushes", place)


def test_request_not_redirected_before_copy_exists() -> None:
    one = origin()
    assert one.request("named/a", PARIS, 1.0) is None
    one.announce(cache("berlin", BERLIN), ["named/b"], 2.0)
    assert one.request("named/a", PARIS, 3.0) is None


def test_request_redirected_to_copy_nearer_than_origin() -> None:
    one = origin()
    one.announce(cache("berlin", BERLIN), ["named/a", "named/b"], 1.0)
    one.announce(cache("tokyo", TOKYO), ["named/a"], 1.0)
    found = one.request("named/a", PARIS, 2.0)
    assert found is not None
    assert (found.cache.name, set(found.pages)) == ("berlin", {"named/a", "named/b"})
    assert one.request("named/a", Location(35.0, 135.8), 2.0) is not None
    assert one.request("named/a", Location(42.4, -71.1), 2.0) is None, "Boston is nearer to New York"
    assert one.request("named/a", Location(node="unknown"), 2.0) is None


def test_redirect_by_hops_uses_network() -> None:
    links = (("core", "north"), ("north", "far"))
    one = origin(lat=None, lon=None, node="core", links=links)
    one.announce(cache("edge", Location(node="north")), ["named/a"], 1.0)
    assert one.request("named/a", Location(node="far"), 2.0) is not None
    assert one.request("named/a", Location(node="core"), 2.0) is None


def test_report_of_missing_page_ends_redirects_to_it() -> None:
    one = origin()
    one.announce(cache("berlin", BERLIN), ["named/a", "named/b"], 1.0)
    assert one.request("named/a", PARIS, 2.0, invalid_at="berlin") is None
    assert one.request("named/a", PARIS, 2.0) is None
    assert one.request("named/b", PARIS, 2.0) is not None


def test_report_about_unknown_broker_changes_nothing() -> None:
    one = origin()
    one.announce(cache("berlin", BERLIN), ["named/a"], 1.0)
    assert one.request("named/a", PARIS, 2.0, invalid_at="nobody") is None
    assert one.request("named/a", PARIS, 2.0) is not None


def test_announcement_replaces_previous_one() -> None:
    one = origin()
    one.announce(cache("berlin", BERLIN), ["named/a"], 1.0)
    one.announce(KnownCache("berlin", "http://moved", "http://moved/pushes", BERLIN), ["named/b"], 2.0)
    assert one.request("named/a", PARIS, 3.0) is None
    found = one.request("named/b", PARIS, 3.0)
    assert found is not None
    assert (found.cache.url, found.pages) == ("http://moved", ("named/b",))


def test_expired_lease_ends_redirects_and_pushes() -> None:
    one = origin()
    one.announce(cache("berlin", BERLIN), ["named/a"], 1.0)
    assert one.request("named/a", PARIS, 1.0 + LEASE - 0.1) is not None
    assert one.status(1.0 + LEASE - 0.1)[1] == 1
    for _ in range(3):
        assert one.request("named/a", PARIS, 1.0 + LEASE) is None
    assert one.status(1.0 + LEASE)[1] == 0
    assert one.decide(100.0) is None, "no push-cache is left"
    one.announce(cache("berlin", BERLIN), ["named/a"], 101.0)
    assert one.request("named/a", PARIS, 102.0) is not None


def test_announcement_renews_lease() -> None:
    one = origin()
    for now in range(0, 200, 10):
        one.announce(cache("berlin", BERLIN), ["named/a"], float(now))
        assert one.request("named/a", PARIS, now + 9.9) is not None
    assert one.status(190.0 + LEASE)[1] == 0


def test_removed_cache_gets_nothing_until_announced() -> None:
    one = origin()
    one.announce(cache("berlin", BERLIN), ["named/a"], 1.0)
    one.remove_cache("berlin")
    one.remove_cache("nobody")
    one.record_push("berlin", ["named/a"], [])
    assert one.request("named/a", PARIS, 2.0) is None
    one.announce(cache("berlin", BERLIN), [], 3.0)
    assert one.request("named/a", PARIS, 4.0) is None
    one.record_push("berlin", ["named/a"], [])
    assert one.request("named/a", PARIS, 5.0) is not None


def test_push_of_most_popular_pages_goes_to_most_requests() -> None:
    one = origin()
    one.announce(cache("berlin", BERLIN), [], 90.0)
    one.announce(cache("tokyo", TOKYO), [], 90.0)
    wanted = {"named/a": 1, "named/b": 3, "named/c": 2}
    for path, count in wanted.items():
        for _ in range(count):
            one.request(path, PARIS, 91.0)
    one.request("named/b", Location(35.0, 135.8), 91.0)
    assert one.decides_at == 100.0
    assert one.decide(99.9) is None
    push = one.decide(100.0)
    assert push is not None
    assert push.cache.name == "berlin"
    assert [(page.page, page.requests) for page in push.pages] == [("named/b", 4), ("named/c", 2)]
    assert [page.expected for page in push.pages] == [4 * 6 / 7, 2 * 6 / 7], "six of seven requests are from there"
    assert one.decide(100.0) is None
    assert one.decides_at == 200.0
    one.record_push("berlin", ["named/b"], [])
    found = one.request("named/b", PARIS, 101.0)
    assert found is not None
    assert found.pages == ("named/b",)


def test_push_requires_load_above_threshold() -> None:
    one = origin()
    one.announce(cache("berlin", BERLIN), [], 90.0)
    for _ in range(2):
        one.request("named/a", PARIS, 91.0)
    assert one.decide(100.0) is None
    assert one.status(100.0)[0] == 2.0


def test_evicted_pages_are_not_redirected() -> None:
    one = origin()
    one.announce(cache("berlin", BERLIN), ["named/a"], 1.0)
    one.record_push("berlin", ["named/b"], ["named/a"])
    assert one.request("named/a", PARIS, 2.0) is None
    assert one.request("named/b", PARIS, 2.0) is not None


def test_server_number_excludes_later_caches() -> None:
    one = origin(servers=1)
    one.announce(cache("tokyo", TOKYO), [], 90.0)
    one.announce(cache("berlin", BERLIN), [], 90.0)
    for _ in range(3):
        one.request("named/a", PARIS, 91.0)
    push = one.decide(100.0)
    assert push is not None
    assert push.cache.name == "tokyo"


@pytest.mark.parametrize("held", [LISTED, LISTED + 1, 3 * LISTED])
def test_redirect_lists_limited_pages_with_requested_one(held: int) -> None:
    one = origin()
    pages = [f"named/{number}" for number in range(held)]
    one.announce(cache("berlin", BERLIN), pages, 1.0)
    for asked in (pages[0], pages[-1]):
        found = one.request(asked, PARIS, 2.0)
        assert found is not None
        assert len(found.pages) == len(set(found.pages)) == LISTED
        assert asked in found.pages
        assert set(found.pages) <= set(pages)


def test_random_strategy_is_determined_by_seed() -> None:
    def sent(seed: int) -> list[str | None]:
        one = origin(lookup="random", caching="random", seed=seed)
        one.announce(cache("berlin", BERLIN), ["named/a"], 1.0)
        one.announce(cache("tokyo", TOKYO), ["named/a"], 1.0)
        found = [one.request("named/a", PARIS, 2.0) for _ in range(60)]
        return [None if each is None else each.cache.name for each in found]

    assert sent(1) == sent(1)
    assert sent(1) != sent(2)
    assert set(sent(1)) == {"berlin", "tokyo", None}, "the origin is selected, too"


BROKERS = {"berlin": BERLIN, "tokyo": TOKYO, "boston": Location(42.4, -71.1)}
PAGES = st.sampled_from(["named/a", "named/b", "pages/" + "0" * 32])
STEPS = st.one_of(
    st.tuples(st.just("announce"), st.sampled_from(sorted(BROKERS)), st.lists(PAGES)),
    st.tuples(st.just("gone"), st.sampled_from(sorted(BROKERS)), st.none()),
    st.tuples(st.just("left"), st.sampled_from(sorted(BROKERS)), st.lists(PAGES)),
    st.tuples(st.just("invalid"), st.sampled_from(sorted(BROKERS)), PAGES),
    st.tuples(st.just("request"), st.sampled_from([PARIS, TOKYO, NEW_YORK]), PAGES),
    st.tuples(st.just("wait"), st.floats(0.5, 40.0), st.none()),
)


@settings(max_examples=examples(200))
@given(st.lists(STEPS, max_size=40))
def test_redirects_agree_with_reference_model(
    steps: list[tuple[str, object, object]],
) -> None:
    one = origin()
    now = 0.0
    held: dict[str, set[str]] = {}
    ends: dict[str, float] = {}
    reported: dict[tuple[str, str], float] = {}
    for kind, who, what in steps:
        now += float(who) if kind == "wait" else 0.0  # type: ignore[arg-type]
        for name in [name for name, end in ends.items() if end <= now]:
            del ends[name], held[name]
        name = str(who)
        if kind == "announce":
            one.announce(cache(name, BROKERS[name]), list(what), now)  # type: ignore[call-overload]
            believed = {page for page in what if reported.get((name, page), now) <= now}  # type: ignore[attr-defined]
            held[name], ends[name] = believed, now + LEASE
        elif kind == "gone":
            one.remove_cache(name)
            held.pop(name, None)
            ends.pop(name, None)
        elif kind == "left":
            one.record_push(name, [], list(what))  # type: ignore[call-overload]
            held.get(name, set()).difference_update(what)  # type: ignore[call-overload]
        elif kind == "invalid":
            assert one.request(str(what), PARIS, now, invalid_at=name) is None
            held.get(name, set()).discard(str(what))
            reported[name, str(what)] = now + LEASE
        elif kind == "request":
            assert isinstance(who, Location)
            found = one.request(str(what), who, now)
            miles = {name: great_circle_miles(who, BROKERS[name]) for name in held if str(what) in held[name]}
            nearest = min(miles, key=lambda name: miles[name], default=None)
            if nearest is None or miles[nearest] >= great_circle_miles(who, NEW_YORK):
                assert found is None
            else:
                assert found is not None
                assert (found.cache.name, set(found.pages)) == (nearest, held[nearest])


def test_requests_of_many_threads_are_counted() -> None:
    one = origin(period_s=1000.0, threshold=1e9)
    names = sorted(BROKERS)

    def ask(thread: int) -> Counter[bool]:
        seen: Counter[bool] = Counter()
        for number in range(300):
            seen[one.request(f"named/{number % 5}", PARIS, 1.0) is not None] += 1
            if number % 30 == thread:
                name = names[thread % 3]
                one.announce(cache(name, BROKERS[name]), [f"named/{number % 5}"], 1.0)
            if number % 50 == thread:
                one.remove_cache(names[(thread + 1) % 3])
                one.decide(2.0)
                one.record_push(names[thread % 3], ["named/1"], ["named/2"])
        return seen

    with ThreadPoolExecutor(8) as pool:
        seen = sum((each.result(60) for each in [pool.submit(ask, n) for n in range(8)]), Counter())
    assert seen.total() == 8 * 300
    assert seen[True] > 0
    one.decide(1000.0)
    assert one.status(1000.0)[0] == seen[False], "the load is the number of answers of the origin"


# Over HTTP

PUSH = """
[push]
enabled = true
threshold = 2
period = "100s"
decay = 0
lat = 40.7
lon = -74.0
"""
SCOPES = {"admin": "admin", "north": "broker:north", "south": "broker:south", "reader": "read"}
MADE = {name: new_token(name, [scope], bytes([n]) * 32) for n, (name, scope) in enumerate(SCOPES.items(), 1)}
TOKENS = {name: token for name, (_, token) in MADE.items()}
IN_PARIS = {"Newsstand-Near": "48.9,2.4"}
ANNOUNCED = {
    "url": "http://127.0.0.1:9",
    "push": "http://127.0.0.1:9/pushes",
    "lat": 52.5,
    "lon": 13.4,
    "pages": ["named/a"],
}


@pytest.fixture
def cluster(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path, PUSH)


@pytest.fixture
def call(cluster: StandIn) -> Iterator[ApiClient]:
    cluster.register_broker("north", "http://127.0.0.1:9/")
    cluster.origin.named.put("a", b"0123456789", "text/plain", 1000)
    with serving(cluster, TOKENS) as url:
        caller = ApiClient(url, MADE)
        yield caller
        caller.client.close()


def test_request_with_location_is_redirected(call: ApiClient) -> None:
    assert call("north", "GET", "/named/a", headers=IN_PARIS).content == b"0123456789"
    announced = call("north", "PUT", "/brokers/north/push-cache", json=ANNOUNCED)
    assert announced.json() == {"enabled": True, "lease_s": 30.0}
    sent = call("north", "GET", "/named/a", 307, headers=IN_PARIS)
    assert sent.headers["Newsstand-Redirect"] == "north"
    assert sent.headers["Location"] == "http://127.0.0.1:9/copies/named/a"
    assert sent.headers["Cache-Control"] == "no-store"
    assert sent.json() == {"server": "north", "url": "http://127.0.0.1:9", "pages": ["named/a"]}
    assert call("north", "GET", "/named/a").content == b"0123456789", "a request without a location gets the page"
    assert call("north", "HEAD", "/named/a", headers=IN_PARIS).headers["Content-Length"] == "10"
    vain = IN_PARIS | {"Newsstand-Invalid-At": "north"}
    assert call("north", "GET", "/named/a", headers=vain).content == b"0123456789"
    call("north", "GET", "/named/a", headers=IN_PARIS)


def test_pages_of_publications_are_redirected(call: ApiClient, cluster: StandIn) -> None:
    page = cluster.pages.put(b"Hello", "text/plain").id
    there = cluster.pages.link("http://example.org/", 5).id
    paths = [f"pages/{page}", f"pages/{there}", "pages/" + "0" * 32]
    call("north", "PUT", "/brokers/north/push-cache", json=ANNOUNCED | {"pages": paths})
    sent = call("north", "GET", f"/pages/{page}", 307, headers=IN_PARIS)
    assert sent.headers["Location"] == f"http://127.0.0.1:9/copies/pages/{page}"
    assert sent.json()["pages"] == paths
    assert call("north", "HEAD", f"/pages/{page}", headers=IN_PARIS).headers["Content-Length"] == "5"
    assert call("north", "GET", f"/pages/{page}").content == b"Hello"
    call("north", "GET", "/pages/" + "0" * 32, 404, headers=IN_PARIS)
    elsewhere = call("north", "GET", f"/pages/{there}", 307, headers=IN_PARIS)
    assert elsewhere.headers["Location"] == "http://example.org/"
    assert "Newsstand-Redirect" not in elsewhere.headers


def test_unknown_page_is_not_redirected(call: ApiClient) -> None:
    call("north", "PUT", "/brokers/north/push-cache", json=ANNOUNCED)
    call("admin", "DELETE", "/named/a")
    call("north", "GET", "/named/a", 404, headers=IN_PARIS)
    assert call.metric("origin_requests_total") == 0
    assert call.metric("origin_redirects_total") == 0


def test_responses_and_redirects_are_counted(call: ApiClient, cluster: StandIn) -> None:
    call("north", "GET", "/named/a", headers=IN_PARIS)
    call("north", "GET", "/named/a", 206, headers=IN_PARIS | {"Range": "bytes=0-3"})
    tag = call("north", "HEAD", "/named/a", headers=IN_PARIS).headers["ETag"]
    call("north", "GET", "/named/a", 304, headers=IN_PARIS | {"If-None-Match": tag})
    call("north", "GET", "/named/a")
    assert (call.metric("origin_requests_total"), call.metric("origin_bytes_total")) == (3, 14)
    cluster.now = 100.0
    call("north", "PUT", "/brokers/north/push-cache", json=ANNOUNCED)
    call("north", "GET", "/named/a", 307, headers=IN_PARIS)
    assert call.metric("origin_redirects_total") == 1
    assert (call.metric("origin_requests_total"), call.metric("push_caches")) == (3, 1)
    call("north", "GET", "/named/a", headers={"Newsstand-Near": "42.4,-71.1"})
    assert call.metric("origin_load") == 3, "the load at the end of the period"


def test_requests_of_many_connections_are_counted(call: ApiClient) -> None:
    def ask(number: int) -> int:
        if number % 10 == 0:
            call("north", "PUT", "/brokers/north/push-cache", json=ANNOUNCED)
        if number % 10 == 5:
            call("north", "DELETE", "/brokers/north/push-cache")
        token = f"Bearer {MADE['north'][0]}"
        return call.client.get("/named/a", headers=IN_PARIS | {"Authorization": token}).status_code

    with ThreadPoolExecutor(8) as pool:
        seen = Counter(pool.map(ask, range(200)))
    assert set(seen) <= {200, 307}
    assert seen.total() == 200
    assert call.metric("origin_requests_total") == seen[200]
    assert call.metric("origin_redirects_total") == seen[307]


def test_redirects_end_after_expiry_withdrawal_and_removal(call: ApiClient, cluster: StandIn) -> None:
    call("north", "PUT", "/brokers/north/push-cache", json=ANNOUNCED)
    call("north", "GET", "/named/a", 307, headers=IN_PARIS)
    cluster.now = 30.0
    call("north", "GET", "/named/a", headers=IN_PARIS)
    assert call.metric("push_caches") == 0
    for method, path in (("DELETE", "/brokers/north/push-cache"), ("DELETE", "/brokers/north")):
        call("north", "PUT", "/brokers/north/push-cache", json=ANNOUNCED)
        call("north", "GET", "/named/a", 307, headers=IN_PARIS)
        call("north", method, path)
        call("north", "GET", "/named/a", headers=IN_PARIS)
    call("north", "PUT", "/brokers/north/push-cache", 404, json=ANNOUNCED)
    call("north", "DELETE", "/brokers/north/push-cache", 404)


def test_announcements_restore_redirects_after_restart(call: ApiClient, tmp_path: Path) -> None:
    call("north", "PUT", "/brokers/north/push-cache", json=ANNOUNCED)
    call("north", "GET", "/named/a", 307, headers=IN_PARIS)
    again = StandIn(tmp_path, PUSH)
    again.register_broker("north", "http://127.0.0.1:9/")
    with serving(again, TOKENS) as url:
        caller = ApiClient(url, MADE)
        assert caller("north", "GET", "/named/a", headers=IN_PARIS).content == b"0123456789"
        caller("north", "PUT", "/brokers/north/push-cache", json=ANNOUNCED)
        caller("north", "GET", "/named/a", 307, headers=IN_PARIS)
        caller.client.close()


@pytest.mark.parametrize(
    "headers",
    [
        {"Newsstand-Near": "91,0"},
        {"Newsstand-Near": "0,181"},
        {"Newsstand-Near": "48.9"},
        {"Newsstand-Near": "nan,0"},
        {"Newsstand-Near": "1,2,3"},
        {"Newsstand-Near": ""},
        {"Newsstand-Node": ""},
        {"Newsstand-Node": "%00"},
        {"Newsstand-Node": "a" * 65},
        IN_PARIS | {"Newsstand-Invalid-At": "No Name"},
    ],
)
def test_location_headers_rejected_when_malformed(
    call: ApiClient, cluster: StandIn, headers: dict[str, str]
) -> None:
    page = cluster.pages.put(b"Hello", "text/plain").id
    for path in ("/named/a", f"/pages/{page}"):
        assert "header Newsstand-" in call("north", "GET", path, 422, headers=headers).json()["error"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"lon": None}, "lat and lon: give both or neither"),
        ({"lat": 91}, "body:"),
        ({"url": "nonsense"}, "url: must be a URL"),
        ({"url": "http://a/?b=c"}, "url: must not have a query"),
        ({"push": "ftp://a/"}, "push: must be a URL"),
        (
            {"push": "http://127.0.0.2:9/pushes"},
            "push: must have the scheme, host and port",
        ),
        ({"pages": ["named/a"] * 10_001}, "body: "),
        ({"pages": ["named/../a"]}, "pages: 'named/../a' is neither"),
        ({"pages": ["pages/xyz"]}, "pages: 'pages/xyz' is neither"),
        ({"pages": "named/a"}, "body:"),
        ({"more": 1}, "body:"),
        ({"node": ""}, "body:"),
    ],
)
def test_announcement_rejected_when_malformed(call: ApiClient, change: dict[str, object], expected: str) -> None:
    rejected = call("north", "PUT", "/brokers/north/push-cache", 422, json=ANNOUNCED | change)
    assert rejected.json()["error"].startswith(expected)
    call("north", "GET", "/named/a", headers=IN_PARIS)


def test_announcement_requires_token_of_broker(call: ApiClient) -> None:
    for who in ("south", "reader"):
        call(who, "PUT", "/brokers/north/push-cache", 403, json=ANNOUNCED)
        call(who, "DELETE", "/brokers/north/push-cache", 403)
    call("south", "PUT", "/brokers/south/push-cache", 404, json=ANNOUNCED)


def test_push_caching_disabled_neither_counts_nor_redirects(tmp_path: Path) -> None:
    cluster = StandIn(tmp_path)
    cluster.register_broker("north", "http://127.0.0.1:9/")
    cluster.origin.named.put("a", b"x", "text/plain", 1000)
    with serving(cluster, TOKENS) as url:
        call = ApiClient(url, MADE)
        assert call("north", "PUT", "/brokers/north/push-cache", json=ANNOUNCED).json()["enabled"] is False
        assert call("north", "GET", "/named/a", headers=IN_PARIS).content == b"x"
        assert (call.metric("origin_requests_total"), call.metric("push_caches")) == (0, 0)
        call("north", "DELETE", "/brokers/north/push-cache")
        call.client.close()


def test_node_name_is_percent_decoded() -> None:
    for name in ("Frankfurt am Main", "zürich", "a,b", "100%"):
        assert ClientLocation.read(ClientLocation(None, None, name).headers()) == (None, None, name)
    assert ClientLocation.read({"Newsstand-Node": "Frankfurt am Main"}) == (None, None, "Frankfurt am Main")


def test_report_overrules_announcement_for_one_lease() -> None:
    """A broker that reaches the origin but is not reachable."""
    one = PageRedirector(PushCachingSettings(enabled=True, lat=NEW_YORK.lat, lon=NEW_YORK.lon), 0.0)
    berlin = cache("berlin", BERLIN)
    one.announce(berlin, ["named/a", "named/b"], 0.0)
    assert one.request("named/a", PARIS, 1.0) is not None
    assert one.request("named/a", PARIS, 2.0, "berlin") is None
    one.announce(berlin, ["named/a", "named/b"], 10.0)
    assert one.request("named/a", PARIS, 11.0) is None
    assert one.request("named/b", PARIS, 11.0) is not None, "other pages were not reported"
    one.announce(berlin, ["named/a", "named/b"], 32.5)
    assert one.request("named/a", PARIS, 33.0) is not None
