"""Pushes: what is posted to a push-cache that really listens, what its answer does, and what no answer does."""

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
from webhooks import Receiver, receiving

from newsstand.cluster.app_folder import read_app
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.origin import Demand, Origin
from newsstand.cluster.page_origin import PageOrigin
from newsstand.cluster.page_pushing import PagePushing
from newsstand.cluster.pages import PageStore
from newsstand.cluster.push_caches import KnownCache
from newsstand.cluster.push_settings import PushOptions
from newsstand.model import Broker
from newsstand.planning.places import Place

BERLIN, PARIS = Place(52.5, 13.4), Place(48.9, 2.4)
NOW_MS = time.time_ns() // 1_000_000
SIZES = {"named/a": (10, 1000), "named/b": (20, 2000), "named/c": (30, 3000)}


def keeping(*paths: str, left: tuple[str, ...] = ()) -> Callable[[dict[str, Any]], bytes]:
    return lambda _: json.dumps({"kept": paths, "left": left}).encode()


class Pushing:
    """An origin that decides every 100 seconds, and the clock by which it does."""

    def __init__(self, receiver: Receiver, **more: object) -> None:
        receiver.secret = "a secret"
        receiver.reply = keeping(*SIZES)
        self.receiver = receiver
        self.now = 0.0
        self.now_ms = NOW_MS
        self.brokers = {"berlin": Broker("berlin", "http://127.0.0.1:9/", "a secret")}
        self.dated = dict(SIZES)
        self.told: list[int] = []
        self.held: list[str] = []
        """What the push-cache says that it has."""
        options = PushOptions(enabled=True, threshold=2.0, period_s=100.0, decay=0.0, lat=40.7, lon=-74.0)
        self.origin = PageOrigin(options, started=0.0)
        self.pushing = PagePushing(
            self.origin,
            self.brokers.get,
            self.dated.get,
            lambda: self.now,
            lambda: self.now_ms,
            told=self.told.append,
            **more,  # type: ignore[arg-type]
        )

    def announce(self) -> None:
        self.origin.announce(KnownCache("berlin", "http://b", self.receiver.url, BERLIN), self.held, self.now)

    def push(self, *paths: str) -> bool:
        """Three requests for each page, most for the first; then what is pushed when the period ends."""
        self.now = self.origin.decides_at - 10
        self.announce()
        for extra, path in enumerate(reversed(paths)):
            for _ in range(3 + extra):
                assert self.origin.request(path, PARIS, self.now, invalid_at="nobody") is None
        self.now += 10
        return asyncio.run(self.pushing.push_if_due())

    def sends(self, path: str) -> bool:
        """Whether a request is redirected."""
        return self.origin.request(path, PARIS, self.now) is not None


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving(broker="berlin") as one:
        yield one


@pytest.fixture
def one(receiver: Receiver) -> Pushing:
    return Pushing(receiver, timeout_s=0.5)


def test_a_push_tells_of_pages_with_the_most_popular_first(one: Pushing, receiver: Receiver) -> None:
    assert one.push("named/b", "named/a")
    assert receiver.told == [
        {
            "pages": [
                {"path": "named/b", "size": 20, "modified_ms": 2000, "requests": 4.0},
                {"path": "named/a", "size": 10, "modified_ms": 1000, "requests": 3.0},
            ]
        }
    ]
    assert one.told == [2]
    assert one.sends("named/a")
    assert one.sends("named/b")


def test_without_load_nothing_is_pushed(one: Pushing, receiver: Receiver) -> None:
    one.now = 100.0
    one.announce()
    assert not asyncio.run(one.pushing.push_if_due())
    assert receiver.told == []


def test_only_what_is_kept_of_the_push_is_redirected_to(one: Pushing, receiver: Receiver) -> None:
    receiver.reply = keeping("named/a", "named/c")
    one.push("named/a", "named/b")
    assert [one.sends(path) for path in SIZES] == [True, False, False]
    assert one.told == [1]


def test_what_left_is_not_redirected_to_any_more(one: Pushing, receiver: Receiver) -> None:
    one.held = ["named/a", "named/c"]
    receiver.reply = keeping("named/b", left=("named/a",))
    one.push("named/b")
    assert [one.sends(path) for path in SIZES] == [False, True, True]


def test_pages_that_are_no_more_are_left_out(one: Pushing, receiver: Receiver) -> None:
    del one.dated["named/a"]
    one.push("named/a", "named/b")
    assert [page["path"] for page in receiver.told[0]["pages"]] == ["named/b"]  # type: ignore[attr-defined]
    del one.dated["named/b"]
    assert one.push("named/a", "named/b")
    assert len(receiver.told) == 1, "a push of nothing is not sent"
    assert one.origin.stands(one.now)[1] == 1


def test_numbers_of_pushes_only_rise_whatever_the_clock_says(one: Pushing, receiver: Receiver) -> None:
    for now_ms in (NOW_MS, NOW_MS, NOW_MS - 5000, NOW_MS + 5000):
        one.now_ms = now_ms
        assert one.push("named/a")
    assert receiver.deliveries == [NOW_MS, NOW_MS + 1, NOW_MS + 2, NOW_MS + 5000]


@pytest.mark.parametrize("mood", ["fail", "close", "hang"])
def test_a_push_that_fails_makes_the_broker_gone_until_it_is_back(
    one: Pushing, receiver: Receiver, mood: str, caplog: pytest.LogCaptureFixture
) -> None:
    one.held = ["named/a"]
    one.announce()
    assert one.sends("named/a")
    receiver.mood = mood
    with caplog.at_level(logging.WARNING):
        assert one.push("named/b")
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("push-cache 'berlin' counts as gone: ")
    assert "\n" not in line
    assert [one.sends(path) for path in SIZES] == [False, False, False]
    assert one.origin.stands(one.now)[1] == 0
    receiver.mood = "answer"
    assert one.push("named/c"), "it has announced itself again"
    assert one.sends("named/c")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"kept": []}',
        b'{"kept": [1], "left": []}',
        b'{"kept": "a", "left": []}',
        b"\xff",
    ],
)
def test_an_answer_that_is_none_makes_the_broker_gone(one: Pushing, receiver: Receiver, body: bytes) -> None:
    receiver.reply = lambda _: body
    assert one.push("named/a")
    assert one.origin.stands(one.now)[1] == 0
    assert one.told == []


def test_only_200_is_an_answer(one: Pushing, receiver: Receiver) -> None:
    receiver.reply = None  # 204
    assert one.push("named/a")
    assert one.origin.stands(one.now)[1] == 0


def test_a_broker_that_was_dismissed_meanwhile_is_gone(one: Pushing, receiver: Receiver) -> None:
    one.brokers.clear()
    assert one.push("named/a")
    assert one.origin.stands(one.now)[1] == 0
    assert receiver.told == []


def test_nobody_listens(one: Pushing) -> None:
    one.receiver.url = "http://127.0.0.1:9/pushed"
    assert one.push("named/a")
    assert one.origin.stands(one.now)[1] == 0


def test_requests_do_not_wait_for_a_push(receiver: Receiver) -> None:
    one = Pushing(receiver)
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
        assert not one.sends("named/a")
    one.announce()
    release.set()
    thread.join(20)
    assert one.sends("named/a")


# All of it, with its thread

APP = """
[push]
enabled = true
threshold = 2
period = "300ms"
decay = 0
lat = 40.7
lon = -74.0
"""


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
    """Ask until a page is redirected; how often it was answered before."""
    deadline = time.monotonic() + 20
    asked = 0
    while time.monotonic() < deadline:
        found = [origin.asked(path, Demand(PARIS)) for path in paths]
        if all(found):
            return asked
        asked += 1
        time.sleep(0.02)
    raise AssertionError("nothing was pushed")


def test_demand_leads_to_a_push_and_a_push_to_redirects(whole: Origin, receiver: Receiver) -> None:
    named = whole.named.put("a", b"0123456789", "text/plain", 1234).page
    carried = whole._pages.keep(b"Hello", "text/plain")
    before = time.time() * 1000
    whole.announce(KnownCache("berlin", "http://b", receiver.url, BERLIN), [])
    receiver.reply = lambda told: json.dumps(
        {"kept": [page["path"] for page in told["pages"]], "left": []}
    ).encode()
    paths = (f"pages/{carried.id}", "named/a")
    wanted(whole, *paths)
    told = {page["path"]: page for message in receiver.told for page in message["pages"]}  # type: ignore[attr-defined]
    assert set(told) == set(paths)
    assert (told["named/a"]["size"], told["named/a"]["modified_ms"]) == (10, named.modified_ms)
    assert told[paths[0]]["size"] == 5
    assert abs(told[paths[0]]["modified_ms"] - before) < 5000, "the time when it was stored"
    text = whole._metrics.text().decode()
    assert f"newsstand_origin_pushes_total {len(receiver.told):.1f}" in text
    assert "newsstand_push_caches 1.0" in text


def test_it_stops_while_a_push_hangs(whole: Origin, receiver: Receiver) -> None:
    whole.named.put("a", b"x", "text/plain", 1)
    arrived, release = threading.Event(), threading.Event()

    def never(_: dict[str, Any]) -> bytes:
        arrived.set()
        release.wait(20)
        return b""

    receiver.reply = never
    whole.announce(KnownCache("berlin", "http://b", receiver.url, BERLIN), [])
    while not arrived.wait(0.02):
        whole.asked("named/a", Demand(PARIS))
    stopping = threading.Thread(target=whole.stop)
    stopping.start()
    stopping.join(10)
    assert not stopping.is_alive()
    release.set()


def test_after_an_error_it_goes_on(
    whole: Origin, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole.named.put("a", b"x", "text/plain", 1)
    receiver.reply = keeping("named/a")
    decide = PageOrigin.decide
    failed = threading.Event()

    def fail_once(self: PageOrigin, now: float) -> object:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("out of luck")
        return decide(self, now)

    monkeypatch.setattr(PageOrigin, "decide", fail_once)
    assert failed.wait(20)
    whole.announce(KnownCache("berlin", "http://b", receiver.url, BERLIN), [])
    wanted(whole, "named/a")
    assert "cannot decide what to push: RuntimeError: out of luck" in caplog.text
