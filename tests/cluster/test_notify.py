from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from results_suite import computed, over, row

from newsstand.cluster.notify import Notifier
from newsstand.cluster.results_sqlite import SqliteResults
from newsstand.model import Broker, Subscription
from newsstand.signing import HEADER, Recipient, verify

NOW_MS = 1_700_000_000_000
SECRET = "a secret"


class Listener:
    """A broker's door on loopback. Moods are used up one for each request, the last one stays."""

    def __init__(self, port: int = 0, name: str = "north") -> None:
        self.name = name
        self.moods = ["answer"]
        self.requests: list[dict[str, object]] = []
        self.answered: list[dict[str, object]] = []
        self.released = threading.Event()
        self.at_once = 0
        self.most_at_once = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer.at_once += 1
                outer.most_at_once = max(outer.most_at_once, outer.at_once)
                try:
                    outer._hear(self)
                finally:
                    outer.at_once -= 1

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/notify"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def _hear(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        said = json.loads(body)
        assert self._verified(request, body) == said.get("delivery", 0)
        mood = self.moods.pop(0) if len(self.moods) > 1 else self.moods[0]
        self.requests.append(said)
        if mood == "hang":
            self.released.wait(30)
        if mood in ("hang", "close"):
            request.close_connection = True
            return
        if mood == "answer":
            self.answered.append(said)
        request.send_response({"answer": 204, "fail": 500, "redirect": 307, "flood": 200}[mood])
        if mood == "redirect":
            request.send_header("Location", self.url)
        request.send_header("Content-Length", str(1 << 40) if mood == "flood" else "0")
        request.end_headers()
        if mood == "flood":
            request.wfile.write(b"x" * 8192)
            self.released.wait(30)

    def _verified(self, request: BaseHTTPRequestHandler, body: bytes) -> int:
        recipient = Recipient(self.name, request.path)
        return verify(SECRET, recipient, request.headers[HEADER], body, NOW_MS // 1000)

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteResults]:
    made = SqliteResults(tmp_path / "results.sqlite")
    made.begin("alerts", 0)
    yield made
    made.close()


@contextmanager
def notifying(store: SqliteResults, **options: object) -> Iterator[Notifier]:
    brief: dict[str, object] = {"base_s": 0.01, "cap_s": 0.05, "timeout_s": 5.0, **options}
    notifier = Notifier(store, lambda: NOW_MS, lambda: 1.0, **brief)  # type: ignore[arg-type]
    notifier.start()
    try:
        yield notifier
    finally:
        notifier.stop()


def subscribed(store: SqliteResults, listener: Listener, broker: str = "north") -> Subscription:
    store.register(Broker(broker, listener.url, SECRET))
    (one,) = store.subscribe(broker, "alerts", {("fire",): 2})
    return one


def executed(store: SqliteResults, stream: int, results: int = 1) -> None:
    position = store.position("alerts")
    assert position is not None
    rows = [row(stream, position + 1, f'{{"n":{number}}}', number) for number in range(results)]
    store.store(over(position, position + 1), computed(rows))


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.005)


def positions(said: list[dict[str, object]]) -> list[int]:
    return [stream["position"] for one in said for stream in one.get("streams", [])]  # type: ignore[attr-defined]


def test_a_notification_says_what_moved(store: SqliteResults, listener: Listener) -> None:
    one = subscribed(store, listener)
    store.store(over(0, 3, 42), computed([row(one.stream, 2, page="p1"), row(one.stream, 3)]))
    (delivery,) = store.due("north")
    with notifying(store):
        until(lambda: store.due("north") == [])
    assert listener.answered == [
        {
            "delivery": delivery.id,
            "execution": delivery.execution,
            "channel": "alerts",
            "at_ms": 42,
            "mode": "pull",
            "streams": [{"subscription": one.id, "position": 2}],
            "pages": [{"page": "p1", "size": 100, "subscriptions": 2}],
            "summary": False,
        }
    ]
    assert delivery.execution is not None
    assert store.deliveries(delivery.execution)[0].told_ms == NOW_MS


def test_each_execution_is_told_once_and_in_order(store: SqliteResults, listener: Listener) -> None:
    one = subscribed(store, listener)
    with notifying(store) as notifier:
        for _ in range(20):
            executed(store, one.stream)
            notifier.wake()
        until(lambda: len(listener.answered) == 20)
        notifier.wake()
        time.sleep(0.1)
    assert positions(listener.requests) == list(range(1, 21))
    assert listener.most_at_once == 1


@pytest.mark.parametrize("mood", ["fail", "close", "redirect"])
def test_what_was_not_answered_is_repeated_before_what_follows(
    store: SqliteResults, listener: Listener, mood: str
) -> None:
    one = subscribed(store, listener)
    listener.moods = [mood, mood, mood, "answer", mood, "answer"]
    told: list[tuple[str, bool]] = []
    executed(store, one.stream)
    executed(store, one.stream)
    with notifying(store, told=lambda broker, answered: told.append((broker, answered))) as notifier:
        until(lambda: store.due("north") == [])
        assert notifier.status()["north"]["last_error"] is None
    assert positions(listener.requests) == [1, 1, 1, 1, 2, 2]
    assert positions(listener.answered) == [1, 2]
    assert told == [("north", answered) for answered in (False, False, False, True, False, True)]
    attempts = [store.deliveries(record.number)[0].attempts for record in store.executions("alerts")]
    assert attempts == [3, 1]


def test_pauses_double_up_to_a_cap(store: SqliteResults, listener: Listener) -> None:
    one = subscribed(store, listener)
    listener.moods = ["fail"] * 5 + ["answer"]
    asked: list[float] = []

    def jitter() -> float:
        asked.append(time.monotonic())
        return 1.0

    executed(store, one.stream)
    notifier = Notifier(store, lambda: NOW_MS, jitter, base_s=0.05, cap_s=0.2)
    notifier.start()
    until(lambda: store.due("north") == [])
    notifier.stop()
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert all(pause >= least for pause, least in zip(pauses, (0.05, 0.1, 0.2, 0.2), strict=True))


def test_a_broker_that_hangs_does_not_hold_up_another(store: SqliteResults, listener: Listener) -> None:
    hangs = Listener(name="south")
    hangs.moods = ["hang"]
    one = subscribed(store, listener)
    subscribed(store, hangs, "south")
    with notifying(store, timeout_s=60.0) as notifier:
        for _ in range(10):
            executed(store, one.stream)
            notifier.wake()
        until(lambda: store.due("north") == [])
        assert notifier.status()["south"]["pending"] == 10
        assert notifier.status()["north"]["pending"] == 0
    hangs.close()
    assert positions(listener.answered) == list(range(1, 11))
    assert positions(hangs.requests) == [1]


@pytest.mark.parametrize("mood", ["hang", "flood"])
def test_an_answer_that_does_not_end_is_given_up(store: SqliteResults, listener: Listener, mood: str) -> None:
    one = subscribed(store, listener)
    listener.moods = [mood, "answer"]
    executed(store, one.stream)
    with notifying(store, timeout_s=0.3):
        until(lambda: store.due("north") == [])
    # The head of a flood said 200: it counts as an answer, of which no more is read than needed.
    assert positions(listener.requests) == ([1, 1] if mood == "hang" else [1])


def test_a_restart_goes_on_where_it_was(store: SqliteResults, listener: Listener, tmp_path: Path) -> None:
    one = subscribed(store, listener)
    for _ in range(3):
        executed(store, one.stream)
    listener.moods = ["answer", "hang"]
    with notifying(store):
        until(lambda: len(listener.requests) == 2)
    assert len(store.due("north", 9)) == 2
    store.close()
    listener.moods = ["answer"]
    again = SqliteResults(tmp_path / "results.sqlite")
    with notifying(again):
        until(lambda: again.due("north") == [])
    again.close()
    assert positions(listener.answered) == [1, 2, 3]
    assert positions(listener.requests) == [1, 2, 2, 3]


def test_a_broker_that_is_gone_is_marked_away_and_gets_a_summary_when_it_answers(store: SqliteResults) -> None:
    gone = Listener()
    one = subscribed(store, gone)
    gone.close()
    executed(store, one.stream)
    with notifying(store, away_after_s=0.1) as notifier:
        until(lambda: store.away("north"))
        assert store.due("north") == []
        assert notifier.status()["north"]["away"] is True
        assert "ConnectError" in str(notifier.status()["north"]["last_error"])
        executed(store, one.stream)
        executed(store, one.stream)
        notifier.wake()
        back = Listener(gone.port)
        until(lambda: len(back.answered) >= 2)
        executed(store, one.stream)
        notifier.wake()
        until(lambda: len(back.answered) == 3)
        back.close()
    ping, summary, following = back.answered
    assert ping == {"ping": True}
    assert summary["summary"] is True
    assert summary["execution"] is summary["channel"] is None
    assert summary["streams"] == [{"subscription": one.id, "position": 3}]
    assert positions([following]) == [4]


def test_a_broker_that_registers_again_is_back_at_once(store: SqliteResults, listener: Listener) -> None:
    gone = Listener()
    one = subscribed(store, gone)
    gone.close()
    executed(store, one.stream)
    with notifying(store, base_s=0.01, cap_s=3600.0, away_after_s=0.05) as notifier:
        until(lambda: store.away("north"))
        store.register(Broker("north", listener.url, SECRET))
        notifier.returned("north")
        until(lambda: len(listener.answered) == 1)
    assert listener.answered[0]["summary"] is True
    assert positions(listener.answered) == [1]


def test_push_carries_the_results(store: SqliteResults, listener: Listener) -> None:
    one = subscribed(store, listener)
    with notifying(store, is_push=lambda channel: channel == "alerts", push_results=3) as notifier:
        executed(store, one.stream, 2)
        notifier.wake()
        until(lambda: len(listener.answered) == 1)
        executed(store, one.stream, 5)
        notifier.wake()
        until(lambda: len(listener.answered) == 2)
    first, second = listener.answered
    assert first["mode"] == "push"
    result = {"position": 1, "at_ms": 1000, "payload": {"n": 0}, "publication": 1, "page": None}
    carried = [result, {**result, "position": 2, "payload": {"n": 1}}]
    assert first["streams"] == [{"subscription": one.id, "position": 2, "results": carried}]
    (stream,) = second["streams"]  # type: ignore[misc]
    assert stream["position"] == 7
    assert [carried["position"] for carried in stream["results"]] == [3, 4, 5]


def test_push_leaves_out_what_is_too_large(store: SqliteResults, listener: Listener) -> None:
    one = subscribed(store, listener)
    executed(store, one.stream, 4)
    with notifying(store, is_push=lambda channel: True, push_bytes=15):
        until(lambda: len(listener.answered) == 1)
    (stream,) = listener.answered[0]["streams"]  # type: ignore[misc]
    assert stream["position"] == 4
    assert [carried["payload"] for carried in stream["results"]] == [{"n": 0}, {"n": 1}]


def test_brokers_that_come_and_go_are_served_and_left(store: SqliteResults, listener: Listener) -> None:
    with notifying(store) as notifier:
        one = subscribed(store, listener)
        executed(store, one.stream)
        notifier.wake()
        until(lambda: len(listener.answered) == 1)
        store.dismiss("north")
        notifier.wake()
        until(lambda: notifier.status() == {})
        again = subscribed(store, listener)
        executed(store, again.stream)
        notifier.wake()
        until(lambda: len(listener.answered) == 2)
    assert positions(listener.answered) == [1, 2]


def test_a_notifier_that_does_not_run_may_be_woken_and_stopped(store: SqliteResults, listener: Listener) -> None:
    subscribed(store, listener)
    notifier = Notifier(store, lambda: NOW_MS)
    notifier.wake()
    notifier.returned("north")
    notifier.stop()
    assert notifier.status()["north"]["pending"] == 0
