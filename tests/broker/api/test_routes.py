"""The HTTP API of a broker over sockets: permissions, responses and errors."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import jwt
import pytest
from support.broker.calls import PASSWORD, login, read, sockets, subscribe, until_head
from support.broker.press import ADMIN, PUBLISHER, Press
from support.broker.process import SECRET, as_operator, running_broker
from websockets.exceptions import ConnectionClosed

from newsstand.auth.signing import HEADER, Recipient, key, sign
from newsstand.auth.tokens import ACCESS_S, SubscriberTokens
from newsstand.model import Retention

LARGEST_PAGE = 200_000
OPERATOR = as_operator()
PLAIN = httpx.Client(timeout=20, verify=False)
"""Asks without a token."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def url(press: Press, data: Path) -> Iterator[str]:
    with running_broker(data, press.url, f"[broker]\nlargest_page = {LARGEST_PAGE}\n") as url:
        yield url


def refused(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, (answer.status_code, answer.text)
    line = answer.json()["error"]
    assert line
    assert "\n" not in line
    return str(line)


def printed(press: Press, kind: str, *payloads: object, **more: object) -> None:
    for payload in payloads:
        press.print([{"channel": "of_kind", "values": [kind], "payload": {"id": payload}, **more}])


def ids(delivery: dict[str, object]) -> list[object]:
    return [one["payload"]["id"] for one in delivery["results"]]  # type: ignore[attr-defined]


# Who may do what

UNKNOWN = {"name": "no/such.html", "path": "named/no/such.html"}
NEW = {"channel": "of_kind", "values": {"kind": "matrix"}}
OPEN = {
    "POST /subscribers": 422,
    "POST /login": 422,
    "POST /refresh": 422,
    "GET /healthz": 200,
    "GET /readyz": 200,
}
"""What anybody may call, and the answer to an empty body."""
SUBSCRIBERS = {
    "GET /channels": (200, 200, 200),
    "POST /subscriptions": (200, 201, 404),
    "GET /subscriptions": (200, 200, 200),
    "GET /subscriptions/{subscription}": (200, 404, 404),
    "GET /subscriptions/{subscription}/results": (200, 404, 404),
    "POST /subscriptions/{subscription}/ack": (200, 404, 404),
    "GET /pages/{page}": (200, 200, 200),
    "HEAD /pages/{page}": (200, 200, 200),
    "GET /named/{name}": (404, 404, 403),
    "HEAD /named/{name}": (404, 404, 403),
    "DELETE /subscriptions/{subscription}": (204, 404, 404),
    "POST /topics/{topic}/messages": (201, 201, 403),
    "GET /topics": (200, 200, 403),
    "POST /logout": (204, 204, 204),
    "DELETE /sessions": (204, 204, 403),
}
"""The answers to who owns the thing, to another subscriber, and to a token that is limited to other channels."""
ENDING = ("POST /logout", "DELETE /sessions")
OPERATORS = ("GET /stats", "GET /policy", "PUT /policy", "GET /metrics")
CLUSTERS = ("POST /notifications", "POST /deliveries", "POST /pushes")
ACCOUNTS = ("PUT /subscribers/{name}/password", "DELETE /subscribers/{name}")
"""For their own subscriber and for operators: test_authorization tries them."""
OPERATORS_ACCOUNTS = (
    "GET /subscribers",
    "GET /subscribers/{name}",
    "PUT /subscribers/{name}/disabled",
    "DELETE /subscribers/{name}/disabled",
)
"""For operators alone."""
SIGNED = ("GET /copies/{path}", "HEAD /copies/{path}")
NOBODYS = ("none", "malformed", "basic", "expired", "ended", "refresh", "cluster", "publisher")
NOT_SUBSCRIBERS = (*NOBODYS, "operator")
BODIES = {
    "POST /subscriptions": NEW,
    "POST /subscriptions/{subscription}/ack": {"position": 0},
    "POST /topics/{topic}/messages": {},
    "PUT /policy": {},
}


def test_permission_tables_cover_every_route(url: str) -> None:
    paths = PLAIN.get(f"{url}/openapi.json").json()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    heads = {route.replace("GET", "HEAD") for route in routes if "{page}" in route or "/named" in route}
    heads |= {"HEAD /copies/{path}"}
    assert routes | heads == {*OPEN, *SUBSCRIBERS, *OPERATORS, *CLUSTERS, *SIGNED, *ACCOUNTS, *OPERATORS_ACCOUNTS}


class Cast:
    """Everybody who could come, each with a token, and a subscription of the owner's."""

    def __init__(self, url: str, page: str) -> None:
        self.page = page
        self.subscription = ""
        self.url = url
        self.tokens: dict[str, str | None] = {}
        self.log_in()
        own = str(self.tokens["own"])
        with closing(login(url, "owner")) as client:
            ended = client.headers["Authorization"]
            assert client.post("/logout").status_code == 204
        pair = PLAIN.post(f"{url}/login", json={"name": "owner", "password": PASSWORD}).json()
        claims = jwt.decode(own.split()[1], options={"verify_signature": False})
        long_ago = int(time.time()) - 2 * ACCESS_S
        expired = SubscriberTokens(key(SECRET, "subscribers")).access("owner", claims["sid"], None, long_ago)
        self.tokens |= {
            "none": None,
            "malformed": "Bearer x.y.z",
            "basic": own.replace("Bearer", "Basic"),
            "expired": f"Bearer {expired}",
            "ended": ended,
            "refresh": f"Bearer {pair['refresh']}",
            "cluster": f"Bearer {ADMIN}",
            "publisher": f"Bearer {PUBLISHER}",
            "operator": f"Bearer {OPERATOR}",
        }
        answer = self("own", "POST /subscriptions")
        assert answer.status_code == 201
        self.subscription = answer.json()["id"]

    def log_in(self) -> None:
        """SubscriberTokens of sessions that have not ended."""
        limits = {"own": None, "other": None, "limited": [{"channel": "near"}]}
        for who, allow in limits.items():
            with closing(login(self.url, "other" if who == "other" else "owner", allow)) as client:
                self.tokens[who] = client.headers["Authorization"]

    def __call__(self, who: str, route: str, body: object = None) -> httpx.Response:
        method, _, path = route.partition(" ")
        token = self.tokens[who]
        return PLAIN.request(
            method,
            self.url + path.format(subscription=self.subscription, page=self.page, topic="matrix", **UNKNOWN),
            headers={} if token is None else {"Authorization": token},
            json=BODIES.get(route, body),
        )


@pytest.fixture(scope="module")
def cast(url: str, press: Press) -> Cast:
    return Cast(url, press.keep_page(b"for everybody"))


@pytest.mark.parametrize("route", OPEN)
def test_open_routes_need_no_token(route: str, cast: Cast) -> None:
    for who in cast.tokens:
        body = None if route.startswith("GET") else {}
        assert cast(who, route, body).status_code == OPEN[route], who


@pytest.mark.parametrize("route", CLUSTERS)
def test_cluster_routes_require_a_signature(route: str, cast: Cast) -> None:
    for who in cast.tokens:
        assert cast(who, route, {"ping": True}).status_code == 401, who


@pytest.mark.parametrize("route", SIGNED)
def test_copy_requires_a_signed_url(route: str, cast: Cast) -> None:
    for who in cast.tokens:
        assert cast(who, route).status_code == 401, who


@pytest.mark.parametrize("route", OPERATORS)
def test_operator_routes_require_an_operator(route: str, cast: Cast) -> None:
    for who in NOBODYS:
        answer = cast(who, route)
        refused(answer, 401)
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    for who in ("own", "other", "limited"):
        refused(cast(who, route), 403)
    assert cast("operator", route).status_code == 200


@pytest.mark.parametrize("route", OPERATORS_ACCOUNTS)
def test_account_routes_require_an_operator(route: str, cast: Cast) -> None:
    route = route.replace("{name}", "ann")
    for who in NOBODYS:
        refused(cast(who, route), 401)
    for who in ("own", "other", "limited"):
        refused(cast(who, route), 403)
    if route == "GET /subscribers":
        assert cast("operator", route).status_code == 200


@pytest.mark.parametrize("route", SUBSCRIBERS)
def test_subscription_visible_to_its_subscriber_only(route: str, cast: Cast) -> None:
    """In the order of the table: the last calls end what the others need."""
    if route in ENDING:
        cast.log_in()
    for who in NOT_SUBSCRIBERS:
        answer = cast(who, route)
        says_for_whom = (who, route) == ("operator", "POST /subscriptions")
        assert answer.status_code == (422 if says_for_whom else 401), who
    wanted = dict(zip(("own", "other", "limited"), SUBSCRIBERS[route], strict=True))
    for who in ("limited", "other", "own"):
        answer = cast(who, route)
        assert answer.status_code == wanted[who], (who, answer.text)


def test_foreign_subscription_looks_like_a_missing_one(ann: httpx.Client, bob: httpx.Client) -> None:
    own = str(subscribe(ann, kind="secret")["id"])
    for method, path in (("GET", ""), ("GET", "/results"), ("POST", "/ack"), ("DELETE", "")):
        body = {"position": 0} if method == "POST" else None
        lines = []
        for one in (own, "nothing"):
            answer = bob.request(method, f"/subscriptions/{one}{path}", json=body)
            lines.append(refused(answer, 404).replace(one, "ID"))
        assert lines[0] == lines[1]


def test_shared_stream_does_not_reveal_its_followers(ann: httpx.Client, bob: httpx.Client) -> None:
    one, other = subscribe(ann, kind="shared"), subscribe(bob, kind="shared")
    assert one["stream"] == other["stream"]
    assert one["id"] != other["id"]
    assert set(one) == {"id", "channel", "values", "stream", "position", "head", "suspended"}


# Accounts


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x y", "password": PASSWORD},
        {"name": "", "password": PASSWORD},
        {"name": "a" * 65, "password": PASSWORD},
        {"name": "short", "password": "1234567"},
        {"name": 5, "password": PASSWORD},
        {"name": "more", "password": PASSWORD, "admin": True},
    ],
)
def test_registration_rejected_when_malformed(url: str, body: object) -> None:
    refused(PLAIN.post(f"{url}/subscribers", json=body), 422)


def test_registration_rejected_when_the_name_is_taken(url: str, ann: httpx.Client) -> None:
    refused(PLAIN.post(f"{url}/subscribers", json={"name": "ann", "password": "another password"}), 409)
    wrong = {"name": "ann", "password": "another password"}
    nobody = {"name": "nobody", "password": "another password"}
    lines = [refused(PLAIN.post(f"{url}/login", json=body), 401) for body in (wrong, nobody)]
    assert lines[0] == lines[1]


def test_refresh_returns_new_tokens_once(url: str, ann: httpx.Client) -> None:
    pair = PLAIN.post(f"{url}/login", json={"name": "ann", "password": PASSWORD}).json()
    assert (pair["expires_in"], pair["subscriber"]) == (ACCESS_S, "ann")
    newer = PLAIN.post(f"{url}/refresh", json={"refresh": pair["refresh"]}).json()
    headers = {"Authorization": f"Bearer {newer['access']}"}
    assert PLAIN.get(f"{url}/subscriptions", headers=headers).status_code == 200
    refused(PLAIN.post(f"{url}/refresh", json={"refresh": pair["refresh"]}), 401)
    refused(PLAIN.get(f"{url}/subscriptions", headers=headers), 401)
    refused(PLAIN.post(f"{url}/refresh", json={"refresh": newer["refresh"]}), 401)
    assert ann.get("/subscriptions").status_code == 200, "another session of hers"


def test_logout_closes_the_sockets_of_its_session_only(url: str) -> None:
    with (
        closing(login(url, "zoe")) as one,
        closing(login(url, "zoe")) as other,
        sockets(one) as first,
        sockets(other) as second,
    ):
        for each in (first, second):
            assert json.loads(each.recv(5)) == {"ready": True}
        assert one.post("/logout").status_code == 204
        with pytest.raises(ConnectionClosed) as closed:
            first.recv(5)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4001
        second.send('{"ping": 1}')
        assert json.loads(second.recv(5)) == {"pong": 1}


def test_limited_token_confined_to_its_scopes(url: str, press: Press) -> None:
    with (
        closing(login(url, "lim")) as full,
        closing(login(url, "lim", [{"channel": "of_*", "values": {"kind": ["f*"]}}])) as limited,
    ):
        fire, quake = subscribe(full, kind="fire-lim"), subscribe(full, kind="quake-lim")
        assert [one["id"] for one in limited.get("/subscriptions").json()["subscriptions"]] == [fire["id"]]
        assert [one["name"] for one in limited.get("/channels").json()["channels"]] == ["of_kind"]
        refused(limited.get(f"/subscriptions/{quake['id']}/results"), 404)
        refused(limited.post(f"/subscriptions/{quake['id']}/ack", json={"position": 0}), 404)
        refused(limited.post("/subscriptions", json={"channel": "of_kind", "values": ["quake"]}), 404)
        refused(limited.post("/subscriptions", json={"channel": "near", "values": ["flood", 1.0]}), 404)
        assert subscribe(limited, kind="flood-lim")["position"] == 0
        with sockets(limited) as received:
            assert json.loads(received.recv(5)) == {"ready": True}
            printed(press, "quake-lim", "q")
            printed(press, "fire-lim", "f")
            assert json.loads(received.recv(10))["stream"] == fire["stream"]


# Subscriptions and results


def test_lists_are_paged(url: str) -> None:
    with closing(login(url, "lister")) as client:
        for kind in ("a", "b", "c"):
            assert client.post("/subscriptions", json={"channel": "of_kind", "values": [kind]}).status_code == 201
        for path, key in (("subscriptions", "id"), ("channels", "name")):
            whole = client.get(f"/{path}").json()
            names = [one[key] for one in whole[path]]
            assert (names, whole["next"]) == (sorted(names), None)
            assert len(names) > 1
            received: list[str] = []
            after: str | None = ""
            while after is not None:
                page = client.get(f"/{path}", params={"limit": 1, "after": after}).json()
                received += [one[key] for one in page[path]]
                after = page["next"]
            assert received == names
            refused(client.get(f"/{path}", params={"limit": 10_001}), 422)


def test_subscription_created_once_by_name_or_in_order(ann: httpx.Client) -> None:
    by_name = {"channel": "near", "values": {"lat": 33, "kind": "fire"}}
    in_order = {"channel": "near", "values": ["fire", 33.0]}
    first, second = (ann.post("/subscriptions", json=body) for body in (by_name, in_order))
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    assert first.json()["values"] == {"kind": "fire", "lat": 33.0}
    assert ann.get(f"/subscriptions/{first.json()['id']}").json() == first.json()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"channel": "nothing", "values": {}}, 404),
        ({"channel": "of_kind"}, 422),
        ({"channel": "of_kind", "values": {"kind": 5}}, 422),
        ({"channel": "of_kind", "values": {"kind": "a\0b"}}, 422),
        ({"channel": "of_kind", "values": {"kind": "x", "more": 1}}, 422),
        ({"channel": "of_kind", "values": ["x", "y"]}, 422),
        ({"channel": "of_kind", "values": ["x"], "since": "later"}, 422),
        ({"channel": "of_kind", "values": ["x"], "since": -1}, 422),
        ({"channel": "of_kind", "values": ["x"], "since": 1}, 422),
        ({"channel": "of_kind", "values": ["x"], "since": 2**70}, 422),
        ({"channel": "near", "values": ["x", 1e999]}, 422),
        ([], 422),
    ],
)
def test_subscription_rejected_when_malformed(ann: httpx.Client, body: object, status: int) -> None:
    content = json.dumps(body).replace("Infinity", "1e999")
    answer = ann.post("/subscriptions", content=content, headers={"Content-Type": "application/json"})
    refused(answer, status)


def test_since_now_earliest_and_a_position(url: str, press: Press, ann: httpx.Client) -> None:
    subscribe(ann, kind="since")
    printed(press, "since", *"abcde")
    stands = {}
    for since in ("now", "earliest", 3):
        with closing(login(url, f"since-{since}")) as client:
            body = {"channel": "of_kind", "values": ["since"], "since": since}
            subscription = client.post("/subscriptions", json=body).json()
            until_head(client, subscription, 5)
            stands[since] = ids(read(client, subscription))
    assert stands["earliest"] == ["a", "b", "c", "d", "e"]
    assert stands[3] == ["d", "e"]


def test_removed_results_return_410_with_the_earliest(url: str, press: Press, ann: httpx.Client) -> None:
    first = subscribe(ann, kind="old")
    printed(press, "old", *"abcde")
    until_head(ann, first, 5)
    assert ann.post(f"/subscriptions/{first['id']}/ack", json={"position": 5}).status_code == 200
    press.stores.cleaner.apply_retention("of_kind", Retention(count=2), time.time_ns() // 1_000_000)
    with closing(login(url, "late")) as late:
        body = {"channel": "of_kind", "values": ["old"], "since": 0}
        subscription = late.post("/subscriptions", json=body).json()
        until_head(late, subscription, 5)
        path = f"/subscriptions/{subscription['id']}"
        answer = late.get(f"{path}/results")
        refused(answer, 410)
        assert answer.json()["earliest"] == 4
        assert ids(read(late, subscription, after=3)) == ["d", "e"]
        assert late.post(f"{path}/ack", json={"position": 3}).json() == {"position": 3}
        assert ids(read(late, subscription)) == ["d", "e"]
        body = {"channel": "of_kind", "values": ["old"], "since": "earliest"}
        with closing(login(url, "later")) as later:
            assert later.post("/subscriptions", json=body).json()["position"] == 3


def test_pages_of_results_join_without_a_gap(press: Press, ann: httpx.Client) -> None:
    subscription = subscribe(ann, kind="paging")
    printed(press, "paging", *range(11))
    until_head(ann, subscription, 11)
    got: list[object] = []
    after: dict[str, object] = {}
    while True:
        page = read(ann, subscription, limit=3, **after)
        got += ids(page)
        assert page["head"] == 11
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert got == list(range(11))
    for query in ("limit=0", "limit=1001", "limit=x", "after=-1", "after=1.5", f"after={2**63}"):
        refused(ann.get(f"/subscriptions/{subscription['id']}/results?{query}"), 422)
    assert read(ann, subscription, after=99)["results"] == []


def test_acknowledgement_is_cumulative_up_to_the_head(press: Press, ann: httpx.Client) -> None:
    subscription = subscribe(ann, kind="acks")
    printed(press, "acks", *"abc")
    until_head(ann, subscription, 3)
    path = f"/subscriptions/{subscription['id']}/ack"
    for position, stands in ((2, 2), (1, 2), (2, 2), (3, 3)):
        assert ann.post(path, json={"position": position}).json() == {"position": stands}
    for position in (4, -1, 2**70, "3", None, 1.5, True):
        refused(ann.post(path, json={"position": position}), 422)
    assert ann.get(path.removesuffix("/ack")).json()["position"] == 3


def test_policy_switch_loses_no_results(url: str, press: Press, ann: httpx.Client, operator: httpx.Client) -> None:
    subscription = subscribe(ann, kind="switch")
    before = operator.get("/policy").json()
    assert before["results"]["policy"] == "lscz-any"
    try:
        for number, policy in enumerate(("nc", "ttl", "lru", "nc", "lsc"), 1):
            received = operator.put("/policy", json={"results": {"policy": policy}}).json()
            assert received == {**before, "results": {**before["results"], "policy": policy}}
            printed(press, "switch", number)
            until_head(ann, subscription, number)
        assert ids(read(ann, subscription)) == [1, 2, 3, 4, 5]
        received = operator.put("/policy", json={"results": {"budget": 0}, "pages": {"push": "always"}}).json()
        assert (received["results"]["budget"], received["pages"]["push"]) == (0, "always")
        assert {one["origin"] for one in read(ann, subscription)["results"]} == {"cluster"}
    finally:
        assert operator.put("/policy", json=before).json() == before


@pytest.mark.parametrize(
    "body",
    [
        {"results": {"policy": "nonsense"}, "pages": {"policy": "lru"}},
        {"results": {"policy": "nc"}, "pages": {"policy": "nonsense"}},
        {"results": {"budget": -1}},
        {"pages": {"capacity": 2**80}},
        {"pages": {"push": "sometimes"}},
        {"pages": {"policy": "belady"}},
        {"results": {"policy": 5}},
    ],
)
def test_invalid_policy_changes_nothing(operator: httpx.Client, body: object) -> None:
    before = operator.get("/policy").json()
    refused(operator.put("/policy", json=body), 422)
    assert operator.get("/policy").json() == before


def test_statistics_have_the_fields_of_the_dashboard(operator: httpx.Client) -> None:
    stats = operator.get("/stats").json()
    assert {"broker", "now_ms", "connections", "subscribers", "frontends", "backends", "results", "pages"} < set(
        stats
    )
    assert (stats["broker"], stats["cluster"], stats["coordinator"]) == ("edge", "up", None)
    assert set(stats["latency_ms"]) == {"notification", "results"}


# Pages


def test_page_fetched_from_its_origin_once(press: Press, ann: httpx.Client) -> None:
    page = press.keep_page(b"0123456789")
    first, second = ann.get(f"/pages/{page}"), ann.get(f"/pages/{page}")
    assert (first.content, second.content) == (b"0123456789", b"0123456789")
    assert first.headers["X-Cache"] == "miss"
    assert first.headers["Content-Type"].startswith("text/plain")
    tag = first.headers["ETag"]
    same = ann.get(f"/pages/{page}", headers={"If-None-Match": tag})
    assert (same.status_code, same.content) == (304, b"")
    assert ann.get(f"/pages/{page}", headers={"If-None-Match": '"other"'}).status_code == 200
    head = ann.head(f"/pages/{page}")
    assert (head.status_code, head.content, head.headers["Content-Length"]) == (200, b"", "10")


@pytest.mark.parametrize("large", [False, True])
def test_ranges_of_a_page(press: Press, ann: httpx.Client, large: bool) -> None:
    content = b"0123456789" * (LARGEST_PAGE // 5 if large else 1)
    page = press.keep_page(content)
    size = len(content)
    for wanted, start, end in (("2-4", 2, 5), ("-3", size - 3, size), ("5-", 5, size), (f"0-{size * 2}", 0, size)):
        answer = ann.get(f"/pages/{page}", headers={"Range": f"bytes={wanted}"})
        assert (answer.status_code, answer.content) == (206, content[start:end])
        assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/{size}"
    outside = ann.get(f"/pages/{page}", headers={"Range": f"bytes={size}-"})
    refused(outside, 416)
    assert outside.headers["Content-Range"] == f"bytes */{size}"
    assert ann.get(f"/pages/{page}", headers={"Range": "lines=1-2"}).content == content


def test_large_page_is_streamed(press: Press, ann: httpx.Client, operator: httpx.Client) -> None:
    content = b"x" * (LARGEST_PAGE * 5)
    page = press.keep_page(content)
    held = operator.get("/stats").json()["pages"]["bytes"]
    answer = ann.get(f"/pages/{page}")
    assert answer.content == content
    assert answer.headers["X-Cache"] == "miss"
    head = ann.head(f"/pages/{page}", headers={"Range": "bytes=0-1"})
    assert (head.status_code, head.content, head.headers["Content-Length"]) == (200, b"", str(len(content)))
    assert ann.get(f"/pages/{page}", headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304
    assert operator.get("/stats").json()["pages"]["bytes"] == held


@pytest.mark.parametrize(
    "page", ["0" * 32, "x", "..", "%2e%2e%2fchannels", "a?b", "a%23b", "%252e%252e%252fchannels"]
)
def test_missing_page_is_404(ann: httpx.Client, page: str) -> None:
    refused(ann.get(f"/pages/{page}"), 404)


@pytest.mark.parametrize("push", ["needed", "always"])
def test_matched_page_is_pushed_before_it_is_read(
    press: Press, ann: httpx.Client, operator: httpx.Client, push: str
) -> None:
    operator.put("/policy", json={"pages": {"push": push}})
    before = operator.get("/stats").json()["pages"]["pushed"]
    subscription = subscribe(ann, kind=f"push-{push}")
    page = press.keep_page(f"pushed when {push}".encode())
    printed(press, f"push-{push}", 1, page=page)
    until_head(ann, subscription, 1)
    for _ in range(400):
        if operator.get("/stats").json()["pages"]["pushed"] > before:
            break
        time.sleep(0.02)
    assert ann.get(f"/pages/{page}").headers["X-Cache"] == "hit"
    assert read(ann, subscription)["results"][0]["page"]["id"] == page  # type: ignore[index]
    operator.put("/policy", json={"pages": {"push": "needed"}})


# Limits and garbage


def test_body_rejected_when_too_large_or_not_json(url: str, ann: httpx.Client) -> None:
    large = json.dumps({"name": "x" * 70_000, "password": PASSWORD})
    headers = {"Content-Type": "application/json"}
    refused(PLAIN.post(f"{url}/subscribers", content=large, headers=headers), 413)
    for body, status in ((b"", 400), (b"{", 400), (b"\xff", 400), (b"[" * 60_000, 422)):
        refused(ann.post("/subscriptions", content=body, headers=headers), status)
    refused(ann.post("/subscriptions", content=b"{}", headers={"Content-Type": "text/plain"}), 415)
    refused(ann.post("/subscriptions", json=NEW, headers={"Content-Encoding": "gzip"}), 415)
    assert ann.get("/nowhere").status_code == 404
    refused(ann.put("/subscriptions", json=NEW), 405)


def test_huge_body_rejected_before_it_is_sent(url: str) -> None:
    parts = urlsplit(url)
    for path, status in (("/login", b"413"), ("/notifications", b"401")):
        with socket.create_connection((parts.hostname, parts.port), timeout=10) as plug:
            head = (
                f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000000"
            )
            plug.sendall(f"{head}\r\n\r\n".encode())
            assert plug.makefile("rb").read().startswith(b"HTTP/1.1 " + status)


def test_malformed_token_is_401(url: str) -> None:
    for token in ("x" * 20_000, "é".encode(), b"\xff\xfe", "W1tb" * 6_000 + ".e30.e30", ""):
        presented = token if isinstance(token, bytes) else token.encode()
        refused(PLAIN.get(f"{url}/channels", headers={b"Authorization": (b"Bearer " + presented).strip()}), 401)


def test_labels_of_metrics_are_bounded(url: str, ann: httpx.Client, operator: httpx.Client) -> None:
    for number in range(20):
        ann.get(f"/nowhere/{number}")
        ann.get(f"/subscriptions/none-{number}")
        ann.request(f"METHOD{number}", "/channels")
        ann.get(f"/pages/{number:032x}")
    text = operator.get("/metrics").text
    labels = {
        name: set(re.findall(rf'newsstand_http_request_seconds_count{{.*?{name}="([^"]*)"', text))
        for name in ("method", "route", "status")
    }
    assert labels["method"] <= {"GET", "HEAD", "POST", "PUT", "DELETE", "other"}
    paths = set(PLAIN.get(f"{url}/openapi.json").json()["paths"]) | {"/openapi.json", "none"}
    assert {route.replace(":path", "") for route in labels["route"]} <= paths
    assert '"ann"' not in text


# Webhooks


@pytest.fixture(scope="module")
def webhook_secret(press: Press, url: str) -> str:
    return next(broker.secret for broker in press.stores.outbox.brokers() if broker.name == "edge")


def tell(url: str, secret: str, body: bytes, delivery: int, at: float | None = None) -> httpx.Response:
    header = sign(secret, NOTIFICATION_BODY, body, int(time.time() if at is None else at), delivery)
    return PLAIN.post(f"{url}/notifications", content=body, headers={HEADER: header})


NOTIFICATION_BODY = Recipient("edge", "/notifications")
FAR = 10**12
"""Numbers of deliveries that the cluster does not come to."""


def test_webhook_rejected_when_forged_stale_or_unsigned(url: str, webhook_secret: str) -> None:
    body = b'{"streams":[]}'
    refused(PLAIN.post(f"{url}/notifications", content=body), 401)
    refused(PLAIN.post(f"{url}/notifications", content=body, headers={HEADER: "garbage"}), 401)
    refused(tell(url, "another secret", body, FAR), 401)
    for off in (-301, 302):
        refused(tell(url, webhook_secret, body, FAR, time.time() + off), 401)
    good = sign(webhook_secret, NOTIFICATION_BODY, body, int(time.time()), FAR)
    refused(PLAIN.post(f"{url}/notifications", content=b'{"streams":[1]}', headers={HEADER: good}), 401)


def test_malformed_webhook_is_rejected_and_may_be_repeated(url: str, webhook_secret: str) -> None:
    refused(tell(url, webhook_secret, b"garbage", FAR + 100), 422)
    assert tell(url, webhook_secret, b'{"streams":[]}', 5).status_code == 204


def test_repeated_or_reordered_webhooks_are_idempotent(
    url: str, webhook_secret: str, press: Press, ann: httpx.Client
) -> None:
    """Last of all: the numbers of the press's own deliveries lie behind these."""
    subscription = subscribe(ann, kind="replayed")
    printed(press, "replayed", *"abc")
    until_head(ann, subscription, 3)
    assert ids(read(ann, subscription)) == ["a", "b", "c"]

    def moved(position: int) -> bytes:
        return json.dumps({"streams": [{"subscription": subscription["stream"], "position": position}]}).encode()

    for position, delivery in ((3, FAR), (3, FAR), (2, FAR - 1), (1, FAR + 1), (3, FAR + 2)):
        assert tell(url, webhook_secret, moved(position), delivery).status_code == 204
    assert tell(url, webhook_secret, moved(9).replace(b'"sub', b'"sub'), FAR).status_code == 204, "a replay"
    assert ann.get(f"/subscriptions/{subscription['id']}").json()["head"] == 3
    unknown = b'{"streams":[{"subscription":"nobody follows it","position":5}],"pages":[]}'
    assert tell(url, webhook_secret, unknown, FAR + 3).status_code == 204
    assert ids(read(ann, subscription)) == ["a", "b", "c"]
