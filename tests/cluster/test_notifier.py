from __future__ import annotations

import itertools
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster.results_suite import computed, over, row
from support.profiles import examples

from newsstand.auth.signing import HEADER, Recipient, verify_head
from newsstand.cluster.notifier import Notifier, NotifierLimits, notification_body
from newsstand.cluster.results.database_sqlite import SqliteResultDatabase
from newsstand.cluster.results.stores import ResultStores
from newsstand.model import BackendSubscription, Broker, DeliveryMode, Retention
from newsstand.wire.notifications import read_notification

NOW_MS = 1_700_000_000_000
SECRET = "a secret"


class Listener:
    """A broker's webhook on loopback. Each request takes one of the moods; the last one remains."""

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
                """Log nothing."""

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
        head = verify_head(SECRET, recipient, request.headers[HEADER], NOW_MS // 1000)
        head.check(body)
        return head.delivery_id

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
def store(tmp_path: Path) -> Iterator[ResultStores]:
    made = ResultStores(SqliteResultDatabase(tmp_path / "results.sqlite"))
    made.results.add_channel("alerts", 0)
    yield made
    made.close()


@contextmanager
def notifying(
    store: ResultStores,
    delivery: Callable[[str], DeliveryMode] = lambda channel: "auto",
    on_delivery: Callable[[str, bool], None] = lambda broker, answered: None,
    **limits: float,
) -> Iterator[Notifier]:
    brief = NotifierLimits(**{"first_pause_s": 0.01, "longest_pause_s": 0.05, "timeout_s": 5.0, **limits})  # type: ignore[arg-type]
    notifier = Notifier(
        store, lambda: NOW_MS, brief, jitter=lambda: 1.0, delivery=delivery, on_delivery=on_delivery
    )
    notifier.start()
    try:
        yield notifier
    finally:
        notifier.stop()


def subscribed(store: ResultStores, listener: Listener, broker: str = "north") -> BackendSubscription:
    store.outbox.put_broker(Broker(broker, listener.url, SECRET))
    (one,) = store.subscriptions.subscribe(broker, {"alerts": {("fire",): 2}})
    return one


def executed(store: ResultStores, stream: int, results: int = 1) -> None:
    position = store.results.position("alerts")
    assert position is not None
    rows = [row(stream, position + 1, f'{{"n":{number}}}', number) for number in range(results)]
    store.results.store(over(position, position + 1), computed(rows))


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.005)


def positions(said: list[dict[str, object]]) -> list[int]:
    return [stream["position"] for one in said for stream in one.get("streams", [])]  # type: ignore[attr-defined]


def test_notification_lists_advanced_streams(store: ResultStores, listener: Listener) -> None:
    one = subscribed(store, listener)
    store.results.store(over(0, 3, 42), computed([row(one.stream, 2, page="p1"), row(one.stream, 3)]))
    (delivery,) = store.outbox.due("north")
    with notifying(store, lambda channel: "pull"):
        until(lambda: store.outbox.due("north") == [])
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
    assert store.outbox.entries(delivery.execution)[0].answered_ms == NOW_MS


def test_executions_notified_once_and_in_order(store: ResultStores, listener: Listener) -> None:
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
def test_unanswered_notification_repeated_before_next(store: ResultStores, listener: Listener, mood: str) -> None:
    one = subscribed(store, listener)
    listener.moods = [mood, mood, mood, "answer", mood, "answer"]
    outcomes: list[tuple[str, bool]] = []
    executed(store, one.stream)
    executed(store, one.stream)
    with notifying(store, on_delivery=lambda broker, answered: outcomes.append((broker, answered))) as notifier:
        until(lambda: store.outbox.due("north") == [])
        assert notifier.status("north")["last_error"] is None
    assert positions(listener.requests) == [1, 1, 1, 1, 2, 2]
    assert positions(listener.answered) == [1, 2]
    assert outcomes == [("north", answered) for answered in (False, False, False, True, False, True)]
    attempts = [store.outbox.entries(record.number)[0].attempts for record in store.results.executions("alerts")]
    assert attempts == [3, 1]


def test_back_off_doubles_up_to_cap(store: ResultStores, listener: Listener) -> None:
    one = subscribed(store, listener)
    listener.moods = ["fail"] * 5 + ["answer"]
    asked: list[float] = []

    def jitter() -> float:
        asked.append(time.monotonic())
        return 1.0

    executed(store, one.stream)
    notifier = Notifier(
        store, lambda: NOW_MS, NotifierLimits(first_pause_s=0.05, longest_pause_s=0.2), jitter=jitter
    )
    notifier.start()
    until(lambda: store.outbox.due("north") == [])
    notifier.stop()
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert all(pause >= least for pause, least in zip(pauses, (0.05, 0.1, 0.2, 0.2), strict=True))


def test_hanging_broker_does_not_delay_others(store: ResultStores, listener: Listener) -> None:
    hangs = Listener(name="south")
    hangs.moods = ["hang"]
    one = subscribed(store, listener)
    subscribed(store, hangs, "south")
    with notifying(store, timeout_s=60.0) as notifier:
        for _ in range(10):
            executed(store, one.stream)
            notifier.wake()
        until(lambda: store.outbox.due("north") == [])
        assert notifier.status("south")["pending"] == 10
        assert notifier.status("north")["pending"] == 0
    hangs.close()
    assert positions(listener.answered) == list(range(1, 11))
    assert positions(hangs.requests) == [1]


def test_error_of_one_broker_does_not_stop_others(store: ResultStores, listener: Listener) -> None:
    gone = Listener(name="south")
    south = subscribed(store, gone, "south")
    gone.close()
    north = subscribed(store, listener)
    errors = [RuntimeError("no entropy")] * 2  # the second one while the first is handled

    def jitter() -> float:
        if errors:
            raise errors.pop()
        return 1.0

    executed(store, south.stream)
    notifier = Notifier(
        store, lambda: NOW_MS, NotifierLimits(first_pause_s=0.01, longest_pause_s=0.05), jitter=jitter
    )
    notifier.start()
    try:
        until(lambda: not errors)
        executed(store, north.stream)
        notifier.wake()
        until(lambda: store.outbox.due("north") == [])
        back = Listener(gone.port, "south")
        until(lambda: store.outbox.due("south") == [])
        back.close()
    finally:
        notifier.stop()


@pytest.mark.parametrize("mood", ["hang", "flood"])
def test_endless_response_is_abandoned(store: ResultStores, listener: Listener, mood: str) -> None:
    one = subscribed(store, listener)
    listener.moods = [mood, "answer"]
    executed(store, one.stream)
    with notifying(store, timeout_s=0.3):
        until(lambda: store.outbox.due("north") == [])
    # The head of a flood said 200: it counts as an answer, of which no more is read than needed.
    assert positions(listener.requests) == ([1, 1] if mood == "hang" else [1])


def test_restart_continues_outbox(store: ResultStores, listener: Listener, tmp_path: Path) -> None:
    one = subscribed(store, listener)
    for _ in range(3):
        executed(store, one.stream)
    listener.moods = ["answer", "hang"]
    with notifying(store):
        until(lambda: len(listener.requests) == 2)
    assert len(store.outbox.due("north", 9)) == 2
    store.close()
    listener.moods = ["answer"]
    again = ResultStores(SqliteResultDatabase(tmp_path / "results.sqlite"))
    with notifying(again):
        until(lambda: again.outbox.due("north") == [])
    again.close()
    assert positions(listener.answered) == [1, 2, 3]
    assert positions(listener.requests) == [1, 2, 2, 3]


def test_unreachable_broker_marked_away_gets_summary_on_return(store: ResultStores) -> None:
    gone = Listener()
    one = subscribed(store, gone)
    gone.close()
    executed(store, one.stream)
    with notifying(store, away_after_s=0.1) as notifier:
        until(lambda: store.outbox.is_away("north"))
        assert store.outbox.due("north") == []
        assert notifier.status("north")["away"] is True
        assert "cannot connect" in str(notifier.status("north")["last_error"])
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


def test_registration_ends_absence_at_once(store: ResultStores, listener: Listener) -> None:
    gone = Listener()
    one = subscribed(store, gone)
    gone.close()
    executed(store, one.stream)
    with notifying(store, first_pause_s=0.01, longest_pause_s=3600.0, away_after_s=0.05) as notifier:
        until(lambda: store.outbox.is_away("north"))
        store.outbox.put_broker(Broker("north", listener.url, SECRET))
        notifier.broker_registered("north")
        until(lambda: len(listener.answered) == 1)
    assert listener.answered[0]["summary"] is True
    assert positions(listener.answered) == [1]


def test_push_mode_includes_results(store: ResultStores, listener: Listener) -> None:
    one = subscribed(store, listener)
    with notifying(store, lambda channel: "push" if channel == "alerts" else "pull", push_results=3) as notifier:
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


def test_push_mode_leaves_out_results_beyond_limits(store: ResultStores, listener: Listener) -> None:
    one = subscribed(store, listener)
    executed(store, one.stream, 4)
    with notifying(store, lambda channel: "push", push_bytes=15):
        until(lambda: len(listener.answered) == 1)
    (stream,) = listener.answered[0]["streams"]  # type: ignore[misc]
    assert stream["position"] == 4
    assert [carried["payload"] for carried in stream["results"]] == [{"n": 0}, {"n": 1}]


@pytest.mark.parametrize(
    ("results", "limits", "carried"),
    [
        (4, {}, 4),
        (4, {"small_results": 4, "small_bytes": 28}, 4),
        (4, {"small_results": 3}, 0),
        (4, {"small_bytes": 27}, 0),
        (4, {"small_bytes": 6}, 0),
        (100, {}, 100),
        (101, {}, 0),
    ],
)
def test_notification_carries_all_results_if_few_and_small(
    store: ResultStores, listener: Listener, results: int, limits: dict[str, int], carried: int
) -> None:
    one = subscribed(store, listener)
    executed(store, one.stream, results)
    with notifying(store, **limits):
        until(lambda: len(listener.answered) == 1)
    (said,) = listener.answered
    (stream,) = said["streams"]  # type: ignore[misc]
    assert (said["mode"], stream["position"]) == ("push" if carried else "pull", results)
    assert [each["position"] for each in stream.get("results", [])] == list(range(1, carried + 1))


def test_notification_leaves_out_removed_results(store: ResultStores, listener: Listener) -> None:
    one = subscribed(store, listener)
    executed(store, one.stream, 5)
    store.cleaner.apply_retention("alerts", Retention(count=2), NOW_MS)
    (entry,) = store.outbox.due("north")
    (stream,) = read_notification(notification_body(store, entry, "auto")).streams
    assert (stream.position, [each.position for each in stream.results]) == (5, [4, 5])
    store.results.drop_channel("alerts")
    assert read_notification(notification_body(store, entry, "auto")).streams == []


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([None, "p1", "p2"]), st.integers(0, 30)), min_size=1, max_size=12
)


@settings(max_examples=examples(40), deadline=None)
@given(ROWS, st.integers(1, 14), st.integers(8, 200))
def test_delivery_changes_only_which_results_are_carried(
    rows: list[tuple[int, str | None, int]], most: int, most_bytes: int
) -> None:
    """Rule: positions and pages are the same in every mode, and what is carried are the first results or all."""
    with tempfile.TemporaryDirectory() as folder:
        store = ResultStores(SqliteResultDatabase(Path(folder) / "results.sqlite"))
        store.results.add_channel("alerts", 0)
        for broker in ("north", "south"):
            store.outbox.put_broker(Broker(broker, "http://127.0.0.1:9/", SECRET))
        made = store.subscriptions.subscribe("north", {"alerts": {(value,): value + 1 for value in range(3)}})
        (other,) = store.subscriptions.subscribe("south", {"alerts": {(3,): 1}})
        streams = [*(one.stream for one in made), other.stream]
        stored = [
            row(streams[value], 1, f'"{"x" * size}"', ordinal=number, page=page)
            for number, (value, page, size) in enumerate(rows)
        ]
        store.results.store(over(0, 1), computed(stored))
        limits = NotifierLimits(
            small_results=most, small_bytes=most_bytes, push_results=most, push_bytes=most_bytes
        )
        for entry in [*store.outbox.due("north"), *store.outbox.due("south")]:
            pull, auto, push = (
                read_notification(notification_body(store, entry, delivery, limits))
                for delivery in ("pull", "auto", "push")  # type: ignore[arg-type]
            )
            expected = [
                (one.subscription, result.position, len(result.payload))
                for one in store.outbox.advances(entry)
                for result in store.results.read(
                    {each.id: each.stream for each in (*made, other)}[one.subscription], one.first - 1
                )
            ]
            fitting = 0
            while fitting < min(most, len(expected)):
                if sum(size for *_, size in expected[: fitting + 1]) > most_bytes:
                    break
                fitting += 1
            for found, carried in (
                (pull, 0),
                (push, fitting),
                (auto, len(expected) if fitting == len(expected) else 0),
            ):
                assert [(one.subscription, one.position) for one in found.streams] == [
                    (one.subscription, one.position) for one in store.outbox.advances(entry)
                ]
                assert found.pages == store.outbox.matched_pages(entry)
                assert found.mode == ("push" if carried else "pull")
                assert [(one.subscription, each.position) for one in found.streams for each in one.results] == [
                    (name, position) for name, position, _ in expected[:carried]
                ]
        store.close()


def test_notification_costs_two_reads_and_one_write(store: ResultStores, listener: Listener) -> None:
    statements: list[str] = []
    one = subscribed(store, listener)
    with notifying(store) as notifier:
        executed(store, one.stream)
        notifier.wake()
        until(lambda: store.outbox.due("north") == [])
        query, mark = store.database.query, store.outbox.mark_answered
        store.database.query = (
            lambda statement, **given: (  # type: ignore[method-assign]
                statements.append(" ".join(statement.split())[:20]) or query(statement, **given)
            )
        )
        store.outbox.mark_answered = lambda *given: (  # type: ignore[method-assign]
            mark(*given),
            statements.append("answered"),
        )[0]
        executed(store, one.stream, 3)
        statements.clear()
        notifier.wake()
        until(lambda: "answered" in statements)
    assert statements == ["SELECT id, broker, e", "SELECT u.id, u.front", "answered"]


def test_answer_that_cannot_be_stored_is_stored_later(store: ResultStores, listener: Listener) -> None:
    one = subscribed(store, listener)
    executed(store, one.stream)
    mark = store.outbox.mark_answered
    faults = [OSError("the disk is full")] * 3

    def failing(entry: int, now_ms: int) -> None:
        if faults:
            raise faults.pop()
        mark(entry, now_ms)

    store.outbox.mark_answered = failing  # type: ignore[method-assign]
    with notifying(store) as notifier:
        until(lambda: store.outbox.due("north") == [])
        executed(store, one.stream)
        notifier.wake()
        until(lambda: store.outbox.due("north") == [])
    assert positions(listener.requests) == [1, 2]


def test_failed_reading_of_outbox_is_repeated(store: ResultStores, listener: Listener) -> None:
    one = subscribed(store, listener)
    executed(store, one.stream)
    read = store.outbox.results
    faults = [OSError("the disk is away")] * 2

    def failing(*given: object) -> object:
        if faults:
            raise faults.pop()
        return read(*given)  # type: ignore[arg-type]

    store.outbox.results = failing  # type: ignore[method-assign, assignment]
    with notifying(store):
        until(lambda: store.outbox.due("north") == [])
    assert positions(listener.answered) == [1]


def test_notifier_started_again_notifies(store: ResultStores, listener: Listener) -> None:
    one = subscribed(store, listener)
    with notifying(store) as notifier:
        executed(store, one.stream)
        notifier.wake()
        until(lambda: not store.outbox.due("north"))  # a notification whose answer is not stored is sent again
        notifier.stop()
        executed(store, one.stream)
        notifier.start()
        until(lambda: len(listener.answered) == 2)
    assert positions(listener.answered) == [1, 2]


def test_added_and_removed_brokers_are_noticed(store: ResultStores, listener: Listener) -> None:
    with notifying(store) as notifier:
        one = subscribed(store, listener)
        executed(store, one.stream)
        notifier.wake()
        until(lambda: len(listener.answered) == 1)
        store.outbox.remove_broker("north")
        notifier.wake()
        until(lambda: store.outbox.brokers() == [])
        again = subscribed(store, listener)
        executed(store, again.stream)
        notifier.wake()
        until(lambda: len(listener.answered) == 2)
    assert positions(listener.answered) == [1, 2]


def test_stopped_notifier_can_be_woken_and_stopped(store: ResultStores, listener: Listener) -> None:
    subscribed(store, listener)
    notifier = Notifier(store, lambda: NOW_MS)
    notifier.wake()
    notifier.broker_registered("north")
    notifier.stop()
    assert notifier.status("north")["pending"] == 0
