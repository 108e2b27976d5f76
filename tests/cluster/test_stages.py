"""Stages of publications at the cluster, and the reports of brokers, honest or not."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from newsstand.auth.signing import HEADER, Recipient, verify_head
from newsstand.cluster.stages import DeliveryReports, StageTimes
from newsstand.http.app import StageHistogram
from newsstand.model import Broker
from newsstand.wire.notifications import DeliveryReport, DeliveryRequest, StreamDelivery, StreamPosition

SECRET = "a secret of a broker"
ASKED = StreamPosition("stream", 7)
NOW_MS = 1_700_000_000_000


class Clocks:
    """Both clocks of a process, at the same second."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def times(self, registry: CollectorRegistry | None = None, **limits: int) -> StageTimes:
        histogram = StageHistogram("stages", "Stages.", registry or CollectorRegistry())
        return StageTimes(histogram, lambda: int(self.seconds * 1000), lambda: self.seconds, **limits)


def append(times: StageTimes, clocks: Clocks, first: int, last: int, seconds: float = 1.0) -> None:
    received = times.now()
    clocks.seconds += seconds
    times.appended("reports", first, last, received)


def observed(registry: CollectorRegistry) -> dict[str, tuple[float, float]]:
    samples = [one for family in registry.collect() for one in family.samples]
    value = {(one.labels["stage"], one.name): one.value for one in samples if "le" not in one.labels}
    return {stage: (value[stage, "stages_count"], value[stage, "stages_sum"]) for stage, _ in value}


# The cluster


def test_publications_of_an_execution_count_once_in_each_stage() -> None:
    clocks, registry = Clocks(), CollectorRegistry()
    times = clocks.times(registry)
    append(times, clocks, 1, 4)
    append(times, clocks, 5, 10)
    stages = times.begin("of_kind", "reports", 2, 8)
    clocks.seconds += 3
    stages.end("planned")
    clocks.seconds += 5
    stages.end("executed")
    clocks.seconds += 7
    stages.stored(1)
    assert observed(registry) == {
        "durable": (6, 6.0),
        "queued": (6, 2 * 1.0 + 4 * 0.0),
        "planned": (6, 18.0),
        "executed": (6, 30.0),
        "stored": (6, 42.0),
    }
    assert times.of_execution(1) == {"queued": 2000, "planned": 5000, "executed": 10000}


def test_repeated_attempt_counts_its_own_stages() -> None:
    clocks, registry = Clocks(), CollectorRegistry()
    times = clocks.times(registry)
    times.begin("of_kind", "reports", 0, 1).end("planned")
    clocks.seconds += 10
    stages = times.begin("of_kind", "reports", 0, 1)
    stages.end("planned")
    clocks.seconds += 1
    stages.stored(1)
    assert observed(registry) == {"planned": (1, 0.0), "stored": (1, 1.0)}


def test_appends_of_concurrent_publishers_are_found_in_any_order() -> None:
    clocks = Clocks()
    times = clocks.times()
    for first, last in ((4, 6), (1, 3), (10, 10), (7, 9)):
        append(times, clocks, first, last)
    found = [times.of_publication("reports", seq) for seq in range(12)]
    assert [one and (one.first, one.last) for one in found] == [
        None, *[(1, 3)] * 3, *[(4, 6)] * 3, *[(7, 9)] * 3, (10, 10), None,
    ]  # fmt: skip
    assert times.of_publication("other", 1) is None
    assert found[1] is not None
    assert (found[1].received_ms, found[1].durable_ms) == (1000, 2000)


def test_times_are_bounded_and_forgotten() -> None:
    clocks = Clocks()
    times = clocks.times(appends=10, executions=3)
    for number in range(1, 101):
        append(times, clocks, number, number)
        times.begin("of_kind", "reports", number - 1, number).stored(number)
    known = [number for number in range(1, 101) if times.of_publication("reports", number)]
    assert known == list(range(known[0], 101))
    assert 10 <= len(known) <= 20
    assert [number for number in range(1, 101) if times.of_execution(number)] == [98, 99, 100]
    times.forget_dataset("reports")
    assert times.of_publication("reports", 100) is None


def test_histogram_has_cumulative_buckets_and_forgets_channels() -> None:
    registry = CollectorRegistry()
    histogram = StageHistogram("stages", "Stages.", registry)
    for seconds, weight in ((-5.0, 1), (0.001, 2), (0.0011, 4), (60.0, 8), (61.0, 16)):
        histogram.observe("queued", "of_kind", seconds, weight)
    buckets = {
        one.labels["le"]: one.value
        for family in registry.collect()
        for one in family.samples
        if one.name == "stages_bucket"
    }
    assert (buckets["0.001"], buckets["0.002"], buckets["20.0"]) == (3, 7, 7)
    assert (buckets["60.0"], buckets["+Inf"]) == (15, 31)
    histogram.forget("of_kind")
    assert [one.samples for one in registry.collect()] == [[]]


# Reports of brokers


@contextmanager
def answering(answer: Callable[[str, bytes], tuple[int, bytes]], name: str = "edge") -> Iterator[Broker]:
    """A broker that gives this answer to requests for deliveries."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            head = verify_head(SECRET, Recipient(name, "/deliveries"), self.headers[HEADER], NOW_MS / 1000)
            head.check(body)
            status, content = answer(self.path, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield Broker(name, f"http://127.0.0.1:{server.server_port}/notifications", SECRET)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(broker: Broker, timeout_s: float = 10.0) -> DeliveryReport | str:
    reports = DeliveryReports(None, lambda: NOW_MS, timeout_s)
    return asyncio.run(reports.request({broker: [ASKED]}))["edge"]


def test_report_of_broker_is_read_from_signed_request() -> None:
    report = DeliveryReport([StreamDelivery("stream", 7, 1, 2, 3, 4, 5, 6, 7, 8)])
    asked = []

    def answer(path: str, body: bytes) -> tuple[int, bytes]:
        asked.append((path, msgspec.json.decode(body, type=DeliveryRequest)))
        return 200, msgspec.json.encode(report)

    with answering(answer) as broker:
        assert ask(broker) == report
    assert asked == [("/deliveries", DeliveryRequest([ASKED]))]


def test_nobody_is_asked_for_nothing() -> None:
    assert asyncio.run(DeliveryReports(None, lambda: NOW_MS).request({})) == {}


@pytest.mark.parametrize(
    "lie",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"null",
        b"{}",
        b'{"streams": [null]}',
        b'{"streams": [{"subscription": "stream", "position": 7}]}',
        b'{"streams": [{"subscription": "stream", "position": 7, "notified_ms": -1}]}',
        b'{"streams": [{"subscription": "stream", "position": 7, "notified_ms": 1e300}]}',
        b'{"streams": [{"subscription": "stream", "position": 7, "notified_ms": 1, "connections": "all"}]}',
        b'{"streams": [{"subscription": "other", "position": 7, "notified_ms": 1}]}',
    ],
)
def test_malformed_report_is_called_so(lie: bytes) -> None:
    with answering(lambda *_: (200, lie)) as broker:
        found = ask(broker)
    assert isinstance(found, str)
    assert found.startswith("gives a malformed answer: ")


def test_reports_are_not_read_beyond_their_limit() -> None:
    with answering(lambda *_: (200, b" " * (2 << 20))) as broker:
        assert ask(broker) == "does not answer: more than 1048576 bytes in the response"


@pytest.mark.parametrize(("status", "body"), [(404, b""), (401, b'{"error": "a secret"}'), (307, b"")])
def test_broker_without_report_is_named_and_not_quoted(status: int, body: bytes) -> None:
    with answering(lambda *_: (status, body)) as broker:
        assert ask(broker) == f"does not report deliveries: status {status}"


def test_server_of_another_protocol_is_not_quoted() -> None:
    def greet(bound: socket.socket) -> None:
        client, _ = bound.accept()
        with client:
            client.recv(65536)
            client.sendall(b"220 a secret\r\n")

    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=greet, args=(bound,))
        thread.start()
        try:
            found = ask(Broker("edge", f"http://127.0.0.1:{bound.getsockname()[1]}/notifications", SECRET))
        finally:
            thread.join()
    assert found == "does not answer: no response"


def test_brokers_that_do_not_answer_are_named_and_delay_no_other() -> None:
    hanging = threading.Event()

    def hang(*_: object) -> tuple[int, bytes]:
        hanging.wait(30)
        return 200, b"{}"

    report = DeliveryReport([])
    down = Broker("down", "http://127.0.0.1:9/notifications", SECRET)
    other = Broker("other", "http://127.0.0.1:9/hook?of=mine", SECRET)
    with answering(hang, "slow") as slow, answering(lambda *_: (200, msgspec.json.encode(report))) as good:
        reports = DeliveryReports(None, lambda: NOW_MS, 1.0)
        found = asyncio.run(reports.request({one: [ASKED] for one in (slow, good, down, other)}))
        hanging.set()
    assert found["edge"] == report
    assert found["other"] == "has a callback without a route for deliveries"
    assert str(found["down"]).startswith("does not answer: cannot connect")
    assert str(found["slow"]).startswith("does not answer: no response")


def test_broker_whose_name_does_not_resolve_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = threading.Event()

    def hang(*_: object, **__: object) -> object:
        resolved.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    async def found() -> dict[str, DeliveryReport | str]:
        try:
            return await DeliveryReports(None, lambda: NOW_MS, 0.2).request(
                {Broker("edge", "http://edge.test/notifications", SECRET): [ASKED]}
            )
        finally:
            ended_first.append(not resolved.is_set())
            resolved.set()

    ended_first: list[bool] = []
    monkeypatch.setattr(socket, "getaddrinfo", hang)
    assert asyncio.run(found()) == {"edge": "does not answer: no response within 0.2 s"}
    assert ended_first == [True]


def test_many_brokers_that_hang_take_no_connection_from_another() -> None:
    report = DeliveryReport([])
    with (
        socket.create_server(("127.0.0.1", 0), backlog=128) as silent,
        answering(lambda *_: (200, msgspec.json.encode(report))) as good,
    ):
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/notifications"
        brokers = [*(Broker(f"silent-{number}", url, SECRET) for number in range(100)), good]
        found = asyncio.run(DeliveryReports(None, lambda: NOW_MS, 2.0).request({one: [ASKED] for one in brokers}))
    assert found.pop("edge") == report
    assert set(found.values()) == {"does not answer: no response within 2 s"}
