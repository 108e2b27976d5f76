"""The HTTP API of a cluster on a socket: answers, errors and independence of requests."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cluster.standin import StandIn, serving
from support.waiting import eventually

from newsstand.auth.api_tokens import ApiToken, new_token
from newsstand.cluster.service import RunningExecutionInfo
from newsstand.errors import Busy, NoRoom
from newsstand.http.pages import byte_range
from newsstand.http.request_log import JsonLines
from newsstand.model import Broker, ChannelDefinition, Dataset
from newsstand.wire.notifications import DeliveryReport, StreamPosition

SCOPES = {
    "admin": ["admin"],
    "gate": ["publish:emergencies"],
    "north": ["broker:north"],
    "south": ["broker:south"],
    "reader": ["read"],
    "scraper": ["metrics"],
}
MADE = {name: new_token(name, scopes, bytes([n]) * 32) for n, (name, scopes) in enumerate(SCOPES.items(), 1)}
TOKENS: dict[str, ApiToken] = {name: token for name, (_, token) in MADE.items()}
GOOD = {"id": "e1", "kind": "flood"}


@pytest.fixture
def cluster(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path)


@pytest.fixture
def url(cluster: StandIn) -> Iterator[str]:
    with serving(cluster, TOKENS) as address:
        yield address


class Caller:
    """A client with one token."""

    def __init__(self, url: str, name: str | None) -> None:
        headers = {"Authorization": f"Bearer {MADE[name][0]}"} if name else {}
        transport = httpx.HTTPTransport(verify=False)  # no TLS here, and no time spent on certificates
        self.client = httpx.Client(base_url=url, headers=headers, transport=transport, timeout=10)

    def __call__(self, method: str, path: str, status: int = 200, **more: object) -> httpx.Response:
        response = self.client.request(method, path, **more)  # type: ignore[arg-type]
        assert response.status_code == status, (response.status_code, response.text)
        if status >= 400 and method != "HEAD":
            assert "\n" not in response.json()["error"]
        return response


@pytest.fixture
def call(url: str) -> Iterator[dict[str | None, Caller]]:
    callers = {name: Caller(url, name) for name in (*MADE, None)}
    yield callers
    for caller in callers.values():
        caller.client.close()


Callers = dict[str | None, Caller]
PUBLISH = "/datasets/emergencies/publications"


# Publications


def test_publish_accepts_one_record_an_array_and_lines(call: Callers) -> None:
    gate = call["gate"]
    assert gate("POST", PUBLISH, json=GOOD).json() == {
        "accepted": 1,
        "first": 1,
        "last": 1,
        "rejected": [],
        "repeated": False,
    }
    assert gate("POST", PUBLISH, json=[GOOD, GOOD]).json()["last"] == 3
    lines = b'{"id":"a","kind":"b"}\n\n{"id":1}\n{"id":"c","kind":"d"}\n'
    response = gate(
        "POST", PUBLISH, content=lines, headers={"Content-Type": "application/x-ndjson; charset=utf-8"}
    ).json()
    assert (response["accepted"], response["first"], response["last"]) == (2, 4, 5)
    assert [one["index"] for one in response["rejected"]] == [1]
    assert gate("POST", PUBLISH, json=[]).json()["accepted"] == 0


def test_publish_answers_422_when_every_record_is_rejected(call: Callers) -> None:
    response = call["gate"]("POST", PUBLISH, 422, json=[{"id": 1}, {"kind": "x"}]).json()
    assert [one["index"] for one in response["rejected"]] == [0, 1]
    assert response["error"].startswith("all 2 records were rejected; record 0: ")


def test_idempotency_key_repeated_adds_nothing(call: Callers, cluster: StandIn) -> None:
    first, again = (
        call["gate"]("POST", PUBLISH, json=GOOD, headers={"Idempotency-Key": "k1"}).json() for _ in range(2)
    )
    assert again == {**first, "repeated": True}
    assert len(cluster.published["emergencies"]) == 1
    call["gate"]("POST", PUBLISH, 400, json=GOOD, headers={"Idempotency-Key": "k" * 256})


def test_idempotency_keys_of_publishers_are_separate(call: Callers, cluster: StandIn) -> None:
    response = [
        call[name]("POST", PUBLISH, json={"id": name, "kind": "flood"}, headers={"Idempotency-Key": "k1"}).json()
        for name in ("gate", "admin")
    ]
    assert [one["repeated"] for one in response] == [False, False]
    assert len(cluster.published["emergencies"]) == 2


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/json", b"{", 400),
        ("application/json", b"", 400),
        ("application/json", b"\xff", 400),
        ("text/plain", b"{}", 415),
        ("application/x-www-form-urlencoded", b"a=b", 415),
    ],
)
def test_body_rejected_when_malformed(content_type: str, body: bytes, status: int, call: Callers) -> None:
    call["gate"]("POST", PUBLISH, status, content=body, headers={"Content-Type": content_type})


def test_body_rejected_when_compressed(call: Callers) -> None:
    call["gate"]("POST", PUBLISH, 415, json=GOOD, headers={"Content-Encoding": "gzip"})


def test_publish_answers_429_when_busy_and_507_when_disk_is_full(call: Callers, cluster: StandIn) -> None:
    cluster.failing = [Busy("too far behind", 2.3), NoRoom("the disk is full")]
    assert call["gate"]("POST", PUBLISH, 429, json=GOOD).headers["Retry-After"] == "3"
    call["gate"]("POST", PUBLISH, 507, json=GOOD)
    call["gate"]("POST", PUBLISH, 200, json=GOOD)


def test_dataset_unknown_answers_404(call: Callers) -> None:
    call["admin"]("POST", "/datasets/floods/publications", 404, json=GOOD)


# Limits, on bare sockets


def connection(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=10)


def head(length: str) -> bytes:
    token = MADE["gate"][0]
    return (
        f"POST {PUBLISH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\n{length}\r\n\r\n"
    ).encode()


def test_body_too_large_rejected_by_content_length(url: str) -> None:
    with connection(url) as plug:
        plug.sendall(head("Content-Length: 100001"))
        answer = plug.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"larger than 100000 bytes" in answer


def test_body_without_length_counted_while_received(url: str, cluster: StandIn) -> None:
    with connection(url) as plug:
        plug.sendall(head("Transfer-Encoding: chunked"))
        chunk = b"2710\r\n" + b" " * 10_000 + b"\r\n"
        for _ in range(11):  # and it never ends
            plug.sendall(chunk)
        answer = plug.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert cluster.published == {}


def test_body_that_stalls_times_out(url: str) -> None:
    begun = time.monotonic()
    with connection(url) as plug:
        plug.sendall(head("Content-Length: 100") + b"[")
        answer = plug.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - begun < 5


def test_client_disconnect_leaves_others_unaffected(url: str, call: Callers, cluster: StandIn) -> None:
    with connection(url) as plug:
        plug.sendall(head("Content-Length: 100") + b'{"id"')
    call["gate"]("POST", PUBLISH, json=GOOD)
    assert len(cluster.published["emergencies"]) == 1


# ApiTokens


def test_token_required_by_every_route(call: Callers, url: str) -> None:
    for path in ("/datasets", "/channels", "/brokers", "/metrics", "/pages/x", "/subscriptions/x/results"):
        assert call[None]("GET", path, 401).headers["WWW-Authenticate"] == "Bearer"
        call[None]("GET", path, 401, headers={"Authorization": "Bearer wrong"})
        call[None]("GET", path, 401, headers={"Authorization": f"Basic {MADE['admin'][0]}"})
    assert httpx.get(f"{url}/openapi.json", trust_env=False).status_code == 200


@pytest.mark.parametrize(
    ("name", "method", "path"),
    [
        ("gate", "POST", "/datasets/shelters/publications"),
        ("gate", "POST", "/datasets/any%20name/publications"),
        ("gate", "POST", "/datasets/NAME/publications"),
        ("gate", "GET", "/channels"),
        ("gate", "GET", "/metrics"),
        ("reader", "GET", "/metrics"),
        ("scraper", "GET", "/channels"),
        ("gate", "PUT", "/datasets/emergencies"),
        ("reader", "POST", PUBLISH),
        ("reader", "DELETE", "/channels/by_kind"),
        ("reader", "PUT", "/brokers/north"),
        ("reader", "POST", "/channels/by_kind/try"),
        ("north", "POST", PUBLISH),
        ("north", "PUT", "/brokers/south"),
        ("north", "GET", "/brokers/south"),
        ("north", "POST", "/brokers/south/subscriptions"),
        ("north", "DELETE", "/brokers/south/subscriptions"),
        ("north", "PUT", "/channels/by_kind"),
        ("north", "GET", "/channels/by_kind/explain"),
    ],
)
def test_token_limited_to_its_scopes(name: str, method: str, path: str, call: Callers) -> None:
    assert f"the token '{name}' lacks the scope" in call[name](method, path, 403).json()["error"]


# Datasets and channels


def test_dataset_created_changed_and_dropped(call: Callers) -> None:
    admin = call["admin"]
    table = {"fields": {"level": "double"}}
    assert admin("PUT", "/datasets/floods", 201, json=table).json() == {"name": "floods", **table}
    wider = {"fields": {"level": "double", "river": "string?"}}
    admin("PUT", "/datasets/floods", 200, json=wider)
    assert call["reader"]("GET", "/datasets/floods").json() == {"name": "floods", **wider}
    admin("PUT", "/datasets/floods", 200, json=call["reader"]("GET", "/datasets/floods").json())
    admin("PUT", "/datasets/floods", 409, json={"fields": {"level": "string"}})
    admin("PUT", "/datasets/floods", 422, json={"fields": {"level": "nonsense"}})
    admin("PUT", "/datasets/floods", 422, json=[])
    admin("PUT", "/datasets/floods", 400, content=b"{")
    admin("PUT", "/datasets/floods", 412, json=wider, headers={"If-None-Match": "*"})
    admin("PUT", "/datasets/floods", 422, json={"name": "other", **wider})
    admin("DELETE", "/datasets/floods")
    admin("DELETE", "/datasets/floods", 404)
    assert "reads it" in admin("DELETE", "/datasets/emergencies", 409).json()["error"]
    assert [one["name"] for one in call["gate"]("GET", "/datasets").json()["datasets"]] == [
        "emergencies",
        "shelters",
    ]


def test_channel_change_answered_when_warnings_fail(
    call: Callers, cluster: StandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(channel: ChannelDefinition) -> list[str]:
        raise RuntimeError("Spark has\nstopped")

    monkeypatch.setattr(cluster, "warnings", gone)
    table = {"query": "SELECT e.kind FROM emergencies e WHERE e.id = :id", "parameters": {"id": "string"}}
    response = call["admin"]("PUT", "/channels/by_id", 201, json=table | {"new": "emergencies"}).json()
    assert response["warnings"] == []
    assert "channel by_id: cannot evaluate its warnings: RuntimeError: Spark has stopped" in caplog.messages


def test_channel_created_changed_tried_and_dropped(call: Callers) -> None:
    admin = call["admin"]
    query = "SELECT e.kind FROM emergencies e WHERE e.id = :id"
    table = {"query": query, "new": "emergencies", "parameters": {"id": "string"}}
    assert admin("PUT", "/channels/by_id", 201, json=table).json()["query"] == query
    response = call["north"]("GET", "/channels/by_id").json()
    assert (response["parameters"], response["status"]["position"]) == ({"id": "string"}, 0)
    admin("PUT", "/channels/by_id", 200, json=response)
    admin("PUT", "/channels/by_id", 412, json=table, headers={"If-None-Match": "*"})
    admin("PUT", "/channels/by_id", 409, json={**table, "query": query.replace(":id", "'x'"), "parameters": {}})
    admin("PUT", "/channels/by_id", 422, json={**table, "query": "DROP TABLE emergencies"})
    assert len(call["reader"]("GET", "/channels").json()["channels"]) == 2
    suspensions = "/channels/by_id/suspensions"
    suspended = {
        "number": 7,
        "values": ["abc"],
        "error": "by_id",
        "since_ms": 70,
        "after": 5,
        "subscriptions": 2,
    }
    assert call["reader"]("GET", suspensions).json() == {"suspensions": [suspended], "next": None}
    assert call["reader"]("GET", f"{suspensions}?after=7").json() == {"suspensions": [], "next": None}
    call["reader"]("DELETE", suspensions, 403)
    assert call["admin"]("DELETE", suspensions).json() == {"resumed": 1}
    assert call["reader"]("GET", "/channels/by_id/explain").json() == {"channel": "by_id"}
    tried = admin("POST", "/channels/by_id/try", json={"values": [{"id": "e1"}, ["e2"]], "until": 9}).json()
    assert tried == {"channel": "by_id", "values": [["e1"], ["e2"]], "after": 0, "until": 9}
    admin("POST", "/channels/by_id/try", 422, json={"values": [["a", "b"]]})
    admin("POST", "/channels/by_id/try", 422, json={"vlaues": []})
    admin("DELETE", "/channels/by_id")
    admin("GET", "/channels/by_id", 404)


def test_running_executions_listed_by_channel(call: Callers, cluster: StandIn) -> None:
    assert call["reader"]("GET", "/executions").json() == {"executions": [], "next": None}
    cluster.running = [
        RunningExecutionInfo("slow", "reports", "execution", 5, 7, 2, 31.25, True),
        RunningExecutionInfo("new", "reports", "warm-up", None, None, None, 0.5, False),
    ]
    new = {
        **{"channel": "new", "dataset": "reports", "phase": "warm-up", "after": None, "through": None},
        **{"publications": None, "seconds": 0.5, "slow": False},
    }
    slow = {
        **{"channel": "slow", "dataset": "reports", "phase": "execution", "after": 5, "through": 7},
        **{"publications": 2, "seconds": 31.25, "slow": True},
    }
    assert call["reader"]("GET", "/executions").json() == {"executions": [new, slow], "next": None}
    assert call["reader"]("GET", "/executions?limit=1").json() == {"executions": [new], "next": "new"}
    assert call["reader"]("GET", "/executions?after=new").json() == {"executions": [slow], "next": None}
    call["reader"]("GET", "/executions?limit=0", 422)
    call["gate"]("GET", "/executions", 403)
    call["north"]("GET", "/executions", 403)


@pytest.mark.parametrize("kind", ["datasets", "channels", "brokers"])
def test_list_returned_page_by_page(call: Callers, kind: str) -> None:
    for name in ("b", "a", "c"):
        call["admin"]("PUT", f"/brokers/{name}", json={"callback": "http://127.0.0.1:1/notifications"})
    whole = call["reader"]("GET", f"/{kind}").json()
    names = [one["name"] for one in whole[kind]]
    assert (names, whole["next"]) == (sorted(names), None)
    listed: list[str] = []
    after: str | None = ""
    while after is not None:
        page = call["reader"]("GET", f"/{kind}?limit=1&after={after}").json()
        listed += [one["name"] for one in page[kind]]
        after = page["next"]
    assert listed == names
    for query in ("limit=0", "limit=10001", f"after={'x' * 257}"):
        call["reader"]("GET", f"/{kind}?{query}", 422)


def test_create_concurrently_succeeds_once(call: Callers, cluster: StandIn) -> None:
    """All requests pass the first checks before one of them creates it."""
    all_here = threading.Barrier(4)
    make = cluster.put_dataset

    def together(dataset: Dataset, *, only_new: bool = False) -> Dataset | None:
        all_here.wait(10)
        return make(dataset, only_new=only_new)

    cluster.put_dataset = together  # type: ignore[method-assign]

    def put(number: int) -> int:
        table = {"fields": {"level": "double", f"field_{number}": "string?"}}
        answer = call["admin"].client.put("/datasets/floods", json=table, headers={"If-None-Match": "*"})
        return answer.status_code

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(put, range(4))) == [201, 412, 412, 412]


# Brokers, subscriptions, results


def subscribe(call: Callers, name: str, kinds: list[str]) -> list[str]:
    call[name]("PUT", f"/brokers/{name}", json={"callback": "http://127.0.0.1:1/notify"})
    wanted = [{"channel": "by_kind", "values": {"kind": kind}, "frontends": 2} for kind in kinds]
    ids: list[str] = call[name]("POST", f"/brokers/{name}/subscriptions", json=wanted).json()["ids"]
    return ids


def test_broker_secret_returned_once(call: Callers) -> None:
    body = {"callback": "http://127.0.0.1:1/notify"}
    assert call["north"]("PUT", "/brokers/north", json=body).json() == {
        "name": "north",
        **body,
        "secret": "a secret",
    }
    assert "secret" not in call["north"]("PUT", "/brokers/north", json=body).json()
    for response in (call["reader"]("GET", "/brokers"), call["north"]("GET", "/brokers/north")):
        assert "secret" not in response.text
    call["north"]("DELETE", "/brokers/north")
    call["north"]("GET", "/brokers/north", 404)


@pytest.mark.parametrize(
    "callback", ["", "x", "ftp://a/b", "http://", "http://a:99999/", "http://u:p@a/", "http://a/#b", "http://a/\n"]
)
def test_callback_rejected_unless_plain_url(callback: str, call: Callers) -> None:
    call["north"]("PUT", "/brokers/north", 422, json={"callback": callback})


def test_broker_name_rejected_when_malformed(call: Callers) -> None:
    call["admin"]("PUT", "/brokers/North%20Pole", 422, json={"callback": "http://127.0.0.1:1/"})


def test_subscription_ids_follow_order_of_request(call: Callers, cluster: StandIn) -> None:
    kinds = [f"k{n}" for n in range(25_000)]
    ids = subscribe(call, "north", kinds)
    assert [cluster.subscribed[one].values for one in ids] == [(kind,) for kind in kinds]
    lines = "".join(json.dumps({"channel": "by_kind", "values": [kind]}) + "\n" for kind in kinds[:3])
    headers = {"Content-Type": "application/x-ndjson"}
    response = call["north"]("POST", "/brokers/north/subscriptions", content=lines, headers=headers).json()
    assert response["ids"] == ids[:3]
    assert subscribe(call, "north", []) == []


def test_subscriptions_listed_page_by_page_and_dropped(call: Callers) -> None:
    ids = subscribe(call, "north", ["a", "b", "c"])
    subscribe(call, "south", ["a"])
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        response = call["north"]("GET", f"/brokers/north/subscriptions?limit=2&after={after}").json()
        seen += [one["id"] for one in response["subscriptions"]]
        after = response["next"]
    assert seen == sorted(ids)
    assert response["subscriptions"][-1]["frontends"] == 2
    path = "/brokers/north/subscriptions"
    assert call["north"]("DELETE", path, json=[ids[0], "none"]).json() == {"dropped": 1}
    call["north"]("GET", f"{path}?limit=0", 422)


@pytest.mark.parametrize(
    "wanted",
    [
        [{"channel": "by_kind", "values": {"kind": 1}}],
        [{"channel": "by_kind", "values": []}],
        [{"values": []}],
        [{"channel": "by_kind", "values": ["a"], "frontends": 0}],
        [{"channel": "by_kind", "values": ["a"], "extra": 0}],
        {"channel": "by_kind"},
    ],
)
def test_subscription_rejected_when_values_do_not_fit(wanted: object, call: Callers, cluster: StandIn) -> None:
    subscribe(call, "north", [])
    call["north"]("POST", "/brokers/north/subscriptions", 422, json=wanted)
    assert cluster.subscribed == {}


def test_results_embed_payloads_as_json(call: Callers) -> None:
    (one,) = subscribe(call, "north", ["flood"])
    response = call["north"]("GET", f"/subscriptions/{one}/results?after=1&limit=1").json()
    assert response == {
        "results": [{"position": 2, "at_ms": 1002, "payload": {"id": "e2"}, "publication": 2, "page": None}],
        "head": 3,
        "earliest": 1,
    }
    assert call["north"]("GET", f"/subscriptions/{one}/results?after=9").json()["results"] == []
    for query in ("after=-1", "limit=0", "limit=10001", "after=x", f"after={2**63}"):
        call["north"]("GET", f"/subscriptions/{one}/results?{query}", 422)


def test_subscription_hidden_from_other_brokers(call: Callers) -> None:
    (one,) = subscribe(call, "north", ["flood"])
    hidden = call["south"]("GET", f"/subscriptions/{one}/results", 404).json()
    absent = call["south"]("GET", "/subscriptions/absent/results", 404).json()
    assert hidden["error"].replace(one, "absent") == absent["error"]
    call["admin"]("GET", f"/subscriptions/{one}/results")


def test_results_removed_by_retention_answer_410(call: Callers, cluster: StandIn) -> None:
    (one,) = subscribe(call, "north", ["flood"])
    cluster.earliest = 3
    assert call["north"]("GET", f"/subscriptions/{one}/results", 410).json()["earliest"] == 3
    assert len(call["north"]("GET", f"/subscriptions/{one}/results?after=2").json()["results"]) == 1


def test_trace_requires_read_scope(call: Callers) -> None:
    call["gate"]("POST", PUBLISH, json=GOOD)
    assert call["reader"]("GET", f"{PUBLISH}/1/trace").json() == {"seq": 1}
    call["reader"]("GET", f"{PUBLISH}/2/trace", 404)
    call["reader"]("GET", f"{PUBLISH}/0/trace", 422)
    call["gate"]("GET", f"{PUBLISH}/1/trace", 403)


class WaitingReports:
    """Reports of brokers that come when the test lets them."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.waiting = self.most = 0

    async def request(self, asked: Mapping[Broker, Sequence[StreamPosition]]) -> dict[str, DeliveryReport | str]:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        while not self.let.is_set():
            await asyncio.sleep(0.005)
        self.waiting -= 1
        return {}


def test_traces_that_wait_for_brokers_delay_no_other_request(
    call: Callers, cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = WaitingReports()
    monkeypatch.setattr(cluster, "reports", reports)
    call["gate"]("POST", PUBLISH, json=GOOD)
    with ThreadPoolExecutor(30) as pool:
        traces = [pool.submit(call["reader"], "GET", f"{PUBLISH}/1/trace") for _ in range(30)]
        try:
            eventually(lambda: reports.waiting == 4)
            assert call["reader"]("GET", "/brokers").json()["brokers"] == []
            assert not any(one.done() for one in traces)
        finally:
            reports.let.set()
        assert [one.result().json() for one in traces] == [{"seq": 1}] * 30
    assert reports.most == 4


# Pages


def test_page_served_complete_partial_or_not_modified(call: Callers, cluster: StandIn) -> None:
    content = bytes(range(256)) * 2000
    page = cluster.pages.put(content, "image/png")
    path, north = f"/pages/{page.id}", call["north"]
    whole = north("GET", path)
    assert (whole.content, whole.headers["Content-Type"]) == (content, "image/png")
    assert "immutable" in whole.headers["Cache-Control"]
    tag = whole.headers["ETag"]
    assert north("GET", path, 304, headers={"If-None-Match": f'"x", W/{tag}'}).content == b""
    part = north("GET", path, 206, headers={"Range": "bytes=1000-1003"})
    assert (part.content, part.headers["Content-Range"]) == (content[1000:1004], "bytes 1000-1003/512000")
    assert north("GET", path, 206, headers={"Range": "bytes=-3"}).content == content[-3:]
    assert north("GET", path, 206, headers={"Range": "bytes=0-", "If-Range": tag}).content == content
    assert north("GET", path, 200, headers={"Range": "bytes=5-", "If-Range": '"x"'}).content == content
    assert north("GET", path, 200, headers={"Range": "bytes=0-1,3-4"}).content == content
    beyond = north("GET", path, 416, headers={"Range": "bytes=512000-"})
    assert beyond.headers["Content-Range"] == "bytes */512000"
    asked = north("HEAD", path)
    assert (asked.headers["Content-Length"], asked.headers["ETag"], asked.content) == ("512000", tag, b"")
    call["gate"]("GET", path, 403)
    north("GET", "/pages/..%2f..%2fadmin.token", 404)
    north("GET", f"/pages/{'0' * 32}", 404)


def test_linked_page_redirects_to_its_url(call: Callers, cluster: StandIn) -> None:
    page = cluster.pages.link("http://127.0.0.1:9/page", 10)
    assert call["north"]("GET", f"/pages/{page.id}", 307).headers["Location"] == "http://127.0.0.1:9/page"


@given(st.integers(0, 40), st.integers(0, 50), st.integers(0, 50))
def test_byte_range_equals_slice(size: int, first: int, last: int) -> None:
    content = bytes(range(size))
    assert byte_range("", size) is None
    for header, piece in (
        (f"bytes={first}-{last}", content[first : last + 1]),
        (f"bytes={first}-", content[first:]),
        (f"bytes=-{last}", content[-last:] if last else b""),
    ):
        part = byte_range(header, size)
        if part is None:
            assert last < first
        else:
            assert content[part[0] : part[1]] == piece
            assert (part[0] < part[1]) is bool(piece)


# Health, logs, description


def test_health_needs_no_token_and_lists_missing_components(call: Callers, cluster: StandIn) -> None:
    call[None]("GET", "/healthz")
    call[None]("GET", "/readyz")
    cluster.lacking = ["results"]
    assert call[None]("GET", "/readyz", 503).json()["lacking"] == cluster.lacking
    call[None]("GET", "/healthz")


def test_readiness_lists_degraded_components(call: Callers, cluster: StandIn) -> None:
    assert call[None]("GET", "/readyz").json() == {"status": "ready"}
    cluster.troubles = ["channel near fails", "tasks of cancelled executions that continue to run: 2"]
    assert call[None]("GET", "/readyz").json() == {"status": "ready", "degraded": cluster.troubles}
    cluster.lacking = ["results"]
    response = call[None]("GET", "/readyz", 503).json()
    assert response == {"error": "not ready: results", "lacking": ["results"]}


def test_health_answers_while_metrics_are_slow(call: Callers, cluster: StandIn) -> None:
    release = threading.Event()
    cluster.metrics.before_scrape(lambda: release.wait(10))
    scrapes = [threading.Thread(target=call["scraper"], args=("GET", "/metrics")) for _ in range(4)]
    for scrape in scrapes:
        scrape.start()
    try:
        time.sleep(0.2)
        call[None]("GET", "/readyz", timeout=5)
        assert not release.is_set()
    finally:
        release.set()
        for scrape in scrapes:
            scrape.join()


def test_metrics_label_routes_not_paths(call: Callers) -> None:
    call["gate"]("POST", PUBLISH, json=[GOOD, {"id": 1}])
    call["admin"]("GET", "/datasets/invented", 404)
    call["admin"]("GET", "/invented", 404)
    call["admin"]("PROPFIND", "/datasets", 405)
    text = call["scraper"]("GET", "/metrics").text
    assert 'newsstand_publications_accepted_total{dataset="emergencies"} 1.0' in text
    assert 'newsstand_publications_rejected_total{dataset="emergencies"} 1.0' in text
    counted = 'newsstand_http_request_seconds_count{method="GET",route="/datasets/{dataset}",status="404"} 1.0'
    assert counted in text
    assert 'method="other"' in text
    assert "invented" not in text


def test_results_of_many_streams_read_in_one_request(call: Callers) -> None:
    north, path = call["north"], "/brokers/north/results"
    north("PUT", "/brokers/north", json={"callback": "http://127.0.0.1:1/notifications"})
    wanted = [{"channel": "by_kind", "values": ["fire"]}]
    name = north("POST", "/brokers/north/subscriptions", json=wanted).json()["ids"][0]
    asked = [{"subscription": name, "after": 1, "until": 2}, {"subscription": "nobody's"}]
    (found,) = north("POST", path, json=asked).json()["streams"]
    assert (found["subscription"], found["head"], found["earliest"]) == (name, 3, 1)
    assert [one["position"] for one in found["results"]] == [2]
    standing = {"subscription": name, "results": [], "head": 3, "earliest": 1}
    assert north("POST", path, json=[{"subscription": name, "limit": 0}]).json()["streams"] == [standing]
    north("POST", path, 422, json=[{"subscription": "x", "after": -1}])
    call["gate"]("POST", path, 403, json=[])


def test_request_log_is_one_json_line_without_token(call: Callers, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "newsstand.http.request_log"):
        given = call["gate"]("POST", PUBLISH, json=GOOD, headers={"X-Request-Id": "mine-1"})
        made = call["gate"]("POST", PUBLISH, json=GOOD, headers={"X-Request-Id": "not\tmine"})
    assert given.headers["X-Request-Id"] == "mine-1"
    assert re.fullmatch("[0-9a-f]{16}-[0-9a-f]+", made.headers["X-Request-Id"])
    lines = [JsonLines().format(record) for record in caplog.records if record.getMessage() == "request"]
    response = json.loads(lines[0])
    assert response["method"] == "POST"
    assert response["route"] == "/datasets/{dataset}/publications"
    assert (response["status"], response["token"], response["request"]) == (200, "gate", "mine-1")
    assert response["bytes"] == len(given.content)
    assert response["client"] == "127.0.0.1"
    assert "newsstand_" not in "".join(lines)


def test_unexpected_error_answers_500_and_is_logged(
    call: Callers, cluster: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.failing = [ZeroDivisionError("an internal detail")]
    answer = call["gate"]("POST", PUBLISH, 500, json=GOOD)
    assert answer.headers["X-Request-Id"] in answer.json()["error"]
    assert "an internal detail" not in answer.text
    assert "an internal detail" in caplog.text
    call["gate"]("POST", PUBLISH, json=GOOD)


def test_description_lists_every_path_without_external_pages(call: Callers) -> None:
    described = call[None]("GET", "/openapi.json").json()
    assert {"/datasets/{dataset}/publications", "/pages/{page}", "/readyz"} <= set(described["paths"])
    assert described["components"]["securitySchemes"]
    for path in ("/docs", "/redoc", "/"):
        call[None]("GET", path, 404)


def test_connection_serves_many_requests(url: str) -> None:
    parts = urlsplit(url)
    plug = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    for _ in range(3):
        plug.request("GET", "/healthz")
        assert plug.getresponse().read() == b'{"status":"alive"}'
        assert plug.sock is not None
    plug.close()
