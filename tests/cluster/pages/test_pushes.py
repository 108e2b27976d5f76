"""Pushes to a push-cache on a socket: their contents, and the effect of answers and failures."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster.webhooks import Receiver, receiving

from newsstand.cluster.app_folder import read_app
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.pages.origin import Demand, Origin, OriginLimits
from newsstand.cluster.pages.redirector import KnownCache, PageRedirector
from newsstand.cluster.pages.store import PageStore
from newsstand.geo.location import Location
from newsstand.model import Broker

BERLIN, PARIS = Location(52.5, 13.4), Location(48.9, 2.4)
NOW_MS = time.time_ns() // 1_000_000
APP = """
[push]
enabled = true
threshold = 2
period = "300ms"
decay = 0
lat = 40.7
lon = -74.0
"""
SIZES = {"named/a": (10, 1000), "named/b": (20, 2000), "named/c": (30, 3000)}


def keeping(*paths: str, left: tuple[str, ...] = ()) -> Callable[[dict[str, Any]], bytes]:
    return lambda _: json.dumps({"stored": paths, "evicted": left}).encode()


class PushScenario:
    """An origin that decides every 100 seconds, and its clock."""

    def __init__(self, receiver: Receiver, folder: Path, timeout_s: float = 60.0) -> None:
        receiver.secret = "a secret"
        receiver.reply = keeping(*SIZES)
        self.receiver = receiver
        self.now = 0.0
        self.now_ms = NOW_MS
        self.brokers = {"berlin": Broker("berlin", "http://127.0.0.1:9/", "a secret")}
        self.held: list[str] = []
        """The pages in announcements of the push-cache."""
        (folder / "newsstand.toml").write_text(APP.replace("300ms", "100s"))
        self.whole = Origin(
            read_app(folder),
            folder,
            PageStore(folder / "pages"),
            self.brokers.get,
            Metrics(),
            lambda: self.now_ms,
            lambda: self.now,
            OriginLimits(push_timeout_s=timeout_s),
        )
        for path, (size, modified_ms) in SIZES.items():
            self.whole.named.put(path.removeprefix("named/"), bytes(size), "text/plain", modified_ms)
        self.origin = self.whole.redirector

    @property
    def pushes(self) -> tuple[float, float]:
        """The numbers of answered pushes and of stored pages."""
        lines = self.whole.metrics.text().decode().splitlines()
        found = dict(line.split() for line in lines if line.startswith("newsstand_origin_push"))
        names = ("newsstand_origin_pushes_total", "newsstand_origin_pushed_pages_total")
        return float(found[names[0]]), float(found[names[1]])

    def announce(self) -> None:
        self.origin.announce(KnownCache("berlin", "http://b", self.receiver.url, BERLIN), self.held, self.now)

    def push(self, *paths: str) -> bool:
        """Request each page at least three times, the first one most; send the push at the end of the period."""
        self.now = self.origin.decides_at - 10
        self.announce()
        for extra, path in enumerate(reversed(paths)):
            for _ in range(3 + extra):
                assert self.origin.request(path, PARIS, self.now, invalid_at="nobody") is None
        self.now += 10
        return asyncio.run(self.whole.push_if_due())

    def redirects(self, path: str) -> bool:
        """Return whether a request is redirected."""
        return self.origin.request(path, PARIS, self.now) is not None


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving(broker="berlin") as one:
        yield one


@pytest.fixture
def one(receiver: Receiver, tmp_path: Path) -> PushScenario:
    return PushScenario(receiver, tmp_path, timeout_s=0.5)


def test_push_lists_most_popular_pages_first(one: PushScenario, receiver: Receiver) -> None:
    assert one.push("named/b", "named/a")
    assert receiver.received == [
        {
            "pages": [
                {"path": "named/b", "size": 20, "modified_ms": 2000, "requests": 4.0},
                {"path": "named/a", "size": 10, "modified_ms": 1000, "requests": 3.0},
            ]
        }
    ]
    assert one.pushes == (1, 2)
    assert one.redirects("named/a")
    assert one.redirects("named/b")


def test_push_not_sent_without_load(one: PushScenario, receiver: Receiver) -> None:
    one.now = 100.0
    one.announce()
    assert not asyncio.run(one.whole.push_if_due())
    assert receiver.received == []


def test_redirects_limited_to_stored_pages(one: PushScenario, receiver: Receiver) -> None:
    receiver.reply = keeping("named/a", "named/c")
    one.push("named/a", "named/b")
    assert [one.redirects(path) for path in SIZES] == [True, False, False]
    assert one.pushes == (1, 1)


def test_redirects_end_for_evicted_pages(one: PushScenario, receiver: Receiver) -> None:
    one.held = ["named/a", "named/c"]
    receiver.reply = keeping("named/b", left=("named/a",))
    one.push("named/b")
    assert [one.redirects(path) for path in SIZES] == [False, True, True]


def test_push_leaves_out_dropped_pages(one: PushScenario, receiver: Receiver) -> None:
    one.whole.named.drop("a")
    one.push("named/a", "named/b")
    assert [page["path"] for page in receiver.received[0]["pages"]] == ["named/b"]  # type: ignore[attr-defined]
    one.whole.named.drop("b")
    assert one.push("named/a", "named/b")
    assert len(receiver.received) == 1, "an empty push is not sent"
    assert one.origin.status(one.now)[1] == 1


def test_delivery_numbers_rise_when_clock_goes_back(one: PushScenario, receiver: Receiver) -> None:
    for now_ms in (NOW_MS, NOW_MS, NOW_MS - 5000, NOW_MS + 5000):
        one.now_ms = now_ms
        assert one.push("named/a")
    assert receiver.deliveries == [NOW_MS, NOW_MS + 1, NOW_MS + 2, NOW_MS + 5000]


@pytest.mark.parametrize("mood", ["fail", "close", "hang"])
def test_failed_push_removes_cache_until_announced(
    one: PushScenario, receiver: Receiver, mood: str, caplog: pytest.LogCaptureFixture
) -> None:
    one.held = ["named/a"]
    one.announce()
    assert one.redirects("named/a")
    receiver.mood = mood
    with caplog.at_level(logging.WARNING):
        assert one.push("named/b")
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("push-cache 'berlin' removed: ")
    assert "\n" not in line
    assert [one.redirects(path) for path in SIZES] == [False, False, False]
    assert one.origin.status(one.now)[1] == 0
    receiver.mood = "answer"
    assert one.push("named/c"), "the cache is announced again"
    assert one.redirects("named/c")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"stored": []}',
        b'{"stored": [1], "evicted": []}',
        b'{"stored": "a", "evicted": []}',
        b"\xff",
    ],
)
def test_malformed_response_removes_cache(one: PushScenario, receiver: Receiver, body: bytes) -> None:
    receiver.reply = lambda _: body
    assert one.push("named/a")
    assert one.origin.status(one.now)[1] == 0
    assert one.pushes == (0, 0)


def test_status_other_than_200_removes_cache(one: PushScenario, receiver: Receiver) -> None:
    receiver.reply = None  # 204
    assert one.push("named/a")
    assert one.origin.status(one.now)[1] == 0


def test_removed_broker_gets_no_push(one: PushScenario, receiver: Receiver) -> None:
    one.brokers.clear()
    assert one.push("named/a")
    assert one.origin.status(one.now)[1] == 0
    assert receiver.received == []


def test_unreachable_cache_is_removed(one: PushScenario) -> None:
    one.receiver.url = "http://127.0.0.1:9/pushes"
    assert one.push("named/a")
    assert one.origin.status(one.now)[1] == 0


def test_requests_do_not_wait_for_push(receiver: Receiver, tmp_path: Path) -> None:
    one = PushScenario(receiver, tmp_path)
    arrived, release = threading.Event(), threading.Event()

    def slowly(_: dict[str, Any]) -> bytes:
        arrived.set()
        release.wait(20)
        return keeping("named/a")({})

    receiver.reply = slowly
    thread = threading.Thread(target=one.push, args=("named/a",))
    thread.start()
    assert arrived.wait(20)
    for _ in range(10):
        assert not one.redirects("named/a")
    one.announce()
    release.set()
    thread.join(20)
    assert one.redirects("named/a")


# All of it, with its thread


@pytest.fixture
def whole(tmp_path: Path, receiver: Receiver) -> Iterator[Origin]:
    (tmp_path / "newsstand.toml").write_text(APP)
    receiver.secret = "a secret"
    brokers = {"berlin": Broker("berlin", receiver.url, "a secret")}
    pages = PageStore(tmp_path / "pages")
    origin = Origin(
        read_app(tmp_path), tmp_path, pages, brokers.get, Metrics(), lambda: time.time_ns() // 1_000_000
    )
    origin.start()
    yield origin
    origin.stop()


def wanted(origin: Origin, *paths: str) -> int:
    """Request pages until they are redirected; return the number of answers before."""
    deadline = time.monotonic() + 20
    asked = 0
    while time.monotonic() < deadline:
        found = [origin.redirect(path, Demand(PARIS)) for path in paths]
        if all(found):
            return asked
        asked += 1
        time.sleep(0.02)
    raise AssertionError("nothing was pushed")


def test_demand_leads_to_push_and_redirects(whole: Origin, receiver: Receiver) -> None:
    named = whole.named.put("a", b"0123456789", "text/plain", 1234).page
    carried = whole.pages.put(b"Hello", "text/plain")
    before = time.time() * 1000
    whole.announce(KnownCache("berlin", "http://b", receiver.url, BERLIN), [])
    receiver.reply = lambda message: json.dumps(
        {"stored": [page["path"] for page in message["pages"]], "evicted": []}
    ).encode()
    paths = (f"pages/{carried.id}", "named/a")
    wanted(whole, *paths)
    offered = {page["path"]: page for message in receiver.received for page in message["pages"]}  # type: ignore[attr-defined]
    assert set(offered) == set(paths)
    assert (offered["named/a"]["size"], offered["named/a"]["modified_ms"]) == (10, named.modified_ms)
    assert offered[paths[0]]["size"] == 5
    assert abs(offered[paths[0]]["modified_ms"] - before) < 5000, "the time of storing"
    text = whole.metrics.text().decode()
    assert f"newsstand_origin_pushes_total {len(receiver.received):.1f}" in text
    assert "newsstand_push_caches 1.0" in text


def test_stop_cancels_hanging_push(whole: Origin, receiver: Receiver) -> None:
    whole.named.put("a", b"x", "text/plain", 1)
    arrived, release = threading.Event(), threading.Event()

    def never(_: dict[str, Any]) -> bytes:
        arrived.set()
        release.wait(20)
        return b""

    receiver.reply = never
    whole.announce(KnownCache("berlin", "http://b", receiver.url, BERLIN), [])
    while not arrived.wait(0.02):
        whole.redirect("named/a", Demand(PARIS))
    stopping = threading.Thread(target=whole.stop)
    stopping.start()
    stopping.join(10)
    assert not stopping.is_alive()
    release.set()


def test_pusher_continues_after_error(
    whole: Origin, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole.named.put("a", b"x", "text/plain", 1)
    receiver.reply = keeping("named/a")
    decide = PageRedirector.decide
    failed = threading.Event()

    def fail_once(self: PageRedirector, now: float) -> object:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("out of luck")
        return decide(self, now)

    monkeypatch.setattr(PageRedirector, "decide", fail_once)
    assert failed.wait(20)
    whole.announce(KnownCache("berlin", "http://b", receiver.url, BERLIN), [])
    wanted(whole, "named/a")
    assert "cannot decide what to push: RuntimeError: out of luck" in caplog.text
