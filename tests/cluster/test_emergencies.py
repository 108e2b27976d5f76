"""The emergencies example: its app is valid, and its seven channels agree with a plain recomputation."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession
from support.cluster.emergencies import EXAMPLE, kilometres, load

from newsstand.auth.signing import Recipient, sign
from newsstand.cluster.app_folder import App, read_app
from newsstand.cluster.ingest.schema import arrow_table
from newsstand.cluster.ingest.validator import RecordValidator
from newsstand.cluster.matching.matcher import check_body, match
from newsstand.cluster.matching.tables import values_table
from newsstand.cluster.query.parser import parse_body
from newsstand.model import Values, parse_values
from newsstand.scenarios.emergencies import city

Record = dict[str, object]

TABLE_III = {
    "reports_of_kind": 10,
    "reports_near": 20,
    "reports_of_kind_near": 30,
    "reports_with_shelters": 60,
    "reports_near_user": 10,
    "reports_of_kind_near_user": 10,
    "reports_near_user_with_shelters": 10,
}


@pytest.fixture(scope="module")
def app() -> App:
    return read_app(EXAMPLE)


class CityBatch:
    """One batch of the city: 300 reports in an hour, the final locations of people, and the shelters."""

    def __init__(self) -> None:
        self.city = city.City(11)
        self.reports = [self.city.report(12.0 * number) for number in range(300)]
        self.locations = self.city.locations(3600.0)
        self.shelters = self.city.shelters()


@pytest.fixture(scope="module")
def played() -> CityBatch:
    return CityBatch()


def test_channels_and_periods_equal_table_iii(app: App) -> None:
    assert {name: app.channels[name].period_s for name in TABLE_III} == TABLE_III
    assert {mix.channel for mix in city.TABLE_III} == set(TABLE_III)
    assert set(app.channels) - set(TABLE_III) == {"alerts"}


def test_spark_can_analyse_every_channel(app: App, spark: SparkSession) -> None:
    for channel in app.channels.values():
        columns = check_body(spark, parse_body(channel, app.datasets), app.datasets).names
        assert columns[:6] == ["id", "kind", "lat", "lon", "severity", "text"]


def test_publications_of_city_are_accepted(app: App, played: CityBatch) -> None:
    for dataset in app.datasets:
        records = getattr(played, dataset)
        validated = RecordValidator(app.datasets[dataset], 0).validate(json.dumps(records).encode(), "json")
        assert validated.rejected == []
        assert [json.loads(line) for line in validated.lines] == records


def frame(spark: SparkSession, app: App, dataset: str, records: list[Record]) -> DataFrame:
    lines = [(number, 0, json.dumps(record).encode()) for number, record in enumerate(records, start=1)]
    return spark.createDataFrame(arrow_table(app.datasets[dataset], lines))


def near(report: Record, other: Record, limit: float) -> bool:
    return kilometres(report, other) < limit  # type: ignore[arg-type]


def expected(played: CityBatch, channel: str, wanted: Record) -> list[Record]:
    """Return the results of a channel for some values, computed from every report."""
    where = {record["user"]: record for record in played.locations}
    found: list[Record] = []
    for report in played.reports:
        spot = where[wanted["user"]] if "user" in wanted else wanted
        if ("kind" in wanted and report["kind"] != wanted["kind"]) or (
            "lat" in spot and not near(report, spot, 2)
        ):
            continue
        shelters = [shelter for shelter in played.shelters if near(report, shelter, 3)]
        if channel == "reports_with_shelters":
            known = [{key: one[key] for key in ("name", "lat", "lon", "places")} for one in shelters]
            found.append(report | {"shelters": sorted(known, key=lambda one: one["name"])})
        elif channel == "reports_near_user_with_shelters":
            named = [report | {"shelter": one["name"], "shelter_places": one["places"]} for one in shelters]
            found.extend(named or [report | {"shelter": None, "shelter_places": None}])
        else:
            found.append(report)
    return found


def in_order(records: list[Record]) -> list[str]:
    return sorted(json.dumps(record, sort_keys=True) for record in records)


@pytest.mark.parametrize("name", TABLE_III)
def test_channel_results_equal_recomputation(name: str, app: App, played: CityBatch, spark: SparkSession) -> None:
    channel = app.channels[name]
    body = parse_body(channel, app.datasets)
    wanted = [dict(values) for one, values in played.city.merged() if one == name]
    streams: list[tuple[int, Values]] = [(n, parse_values(channel, values)) for n, values in enumerate(wanted)]
    values = spark.createDataFrame(values_table(channel, streams))
    stored = {one: frame(spark, app, one, getattr(played, one)) for one in body.stored}
    rows = match(body, frame(spark, app, "reports", played.reports), stored, values).collect()

    found: defaultdict[int, list[Record]] = defaultdict(list)
    for row in rows:
        payload = json.loads(row.payload)
        found[row.stream].append(payload)
        if row.publication is not None:
            assert played.reports[row.publication - 1]["id"] == payload["id"]
    right = {stream: expected(played, name, values) for stream, values in enumerate(wanted)}
    assert sum(map(len, right.values())) > 20, "the batch has results"
    for stream, results in right.items():
        assert in_order(found[stream]) == in_order(results), wanted[stream]


class StandIn(ThreadingHTTPServer):
    """A data cluster that notifies of one stream after each report."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), StandInAnswers)
        self.asked: list[tuple[str, str, bytes]] = []
        self.callback = self.broker = ""
        self.position = 2
        self.answers: list[int] = []
        self.busy_once = True


class StandInAnswers(BaseHTTPRequestHandler):
    server: StandIn

    def answer(self) -> None:
        cluster = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        cluster.asked.append((self.command, urlsplit(self.path).path, body))
        status, response = 200, dict[str, object]()
        if self.headers["Authorization"] != "Bearer secret-of-the-test":
            status, response = 401, {"error": "no such token"}
        elif self.path == "/datasets/reports/publications" and cluster.busy_once:
            cluster.busy_once = False
            status, response = 429, {"error": "busy"}
        elif self.path.endswith("/publications"):
            response = {"accepted": len(body.splitlines()), "rejected": []}
            if "reports" in self.path:
                self.notify()
        elif self.command == "PUT":
            cluster.callback = json.loads(body)["callback"]
            cluster.broker = self.path.rpartition("/")[2]
            response = {"secret": "s3cret"}
        elif self.command == "DELETE":
            status, response = 404, {"error": "no such broker"}
        elif self.path.startswith("/subscriptions/abc/results"):
            question = parse_qs(urlsplit(self.path).query)
            after, until = int(question["after"][0]), int(question["until"][0])
            rows = [{"position": n, "payload": {"text": f"Flood {n}"}} for n in range(after + 1, until + 1)]
            status, response = (200, {"results": rows}) if after >= 2 else (410, {"error": "gone", "earliest": 3})
        content = json.dumps(response).encode()
        self.send_response(status)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

    def notify(self) -> None:
        cluster = self.server
        cluster.position += 1
        streams = [{"subscription": "abc", "position": cluster.position}]
        body = json.dumps({"channel": "reports_near", "streams": streams}).encode()
        now, delivery = int(time.time()), cluster.position
        for secret in ("s3cret", "a guess"):
            headers = {
                "Newsstand-Signature": sign(
                    secret, Recipient(cluster.broker, "/notifications"), body, now, delivery
                )
            }
            cluster.answers.append(httpx.post(cluster.callback, content=body, headers=headers).status_code)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def no_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEWSSTAND_TOKEN", raising=False)


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_playback_broker_reads_notified_results(
    stand_in: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "address").write_text(f"http://127.0.0.1:{stand_in.server_port}\n")
    (tmp_path / "admin.token").write_text("secret-of-the-test\n")
    arguments = ["--data", str(tmp_path), "--seconds", "2", "--rate", "60", "--broker", "--seed", "11"]
    assert load("play").main(arguments) == 0

    played = [path.split("/")[2] for method, path, _ in stand_in.asked if path.endswith("/publications")]
    assert played[:5] == ["shelters", "locations", "shelters", "reports", "reports"], "repeated after a 429"
    (wanted,) = [json.loads(body) for _, path, body in stand_in.asked if path == "/brokers/city-11/subscriptions"]
    assert sum(one["frontends"] for one in wanted) == sum(city.City(11).merged().values())
    assert set(stand_in.answers[0::2]) == {200}
    assert set(stand_in.answers[1::2]) == {401}, "signed with another secret"
    assert stand_in.asked[-1][:2] == ("DELETE", "/brokers/city-11")
    printed = capsys.readouterr().out
    assert "reports_near: 1 new results in 1 streams, such as “Flood 3 …”" in printed
    assert "a notification with a bad signature" in printed


def test_playback_errors_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play = load("play")
    assert play.main(["--data", str(tmp_path)]) == 2
    (tmp_path / "address").write_text("http://127.0.0.1:9\n")
    (tmp_path / "admin.token").write_text("secret-of-the-test\n")
    assert play.main(["--data", str(tmp_path), "--seconds", "1"]) == 2
    no_address, no_answer = capsys.readouterr().err.splitlines()
    assert no_address == f"play: {tmp_path}/address: is not there; start `newsstand cluster`, or pass --url"
    assert no_answer.startswith("play: http://127.0.0.1:9: does not answer")
