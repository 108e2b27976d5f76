"""The emergencies example: its app is right, and its seven channels find what a plain recomputation finds."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from pyspark.sql import DataFrame, SparkSession
from test_city import EXAMPLE, city, kilometres

from newsstand.cluster.app_folder import App, read_app
from newsstand.cluster.body import parse_body, parse_values
from newsstand.cluster.matching import check_body, match
from newsstand.cluster.records import Door, arrow_table
from newsstand.cluster.tables import values_table
from newsstand.model import Values

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


class Played:
    """One batch of the city's: 300 reports in an hour, where everybody is at its end, the shelters."""

    def __init__(self) -> None:
        self.city = city.City(11)
        self.reports = [self.city.report(12.0 * number) for number in range(300)]
        self.locations = self.city.locations(3600.0)
        self.shelters = self.city.shelters()


@pytest.fixture(scope="module")
def played() -> Played:
    return Played()


def test_the_channels_and_periods_are_those_of_table_iii(app: App) -> None:
    assert {name: app.channels[name].period_s for name in TABLE_III} == TABLE_III
    assert {mix.channel for mix in city.TABLE_III} == set(TABLE_III)
    assert set(app.channels) - set(TABLE_III) == {"alerts"}


def test_spark_can_analyse_every_channel(app: App, spark: SparkSession) -> None:
    for channel in app.channels.values():
        columns = check_body(spark, parse_body(channel, app.datasets), app.datasets).names
        assert columns[:6] == ["id", "kind", "lat", "lon", "severity", "text"]


def test_everything_that_the_city_publishes_is_let_in(app: App, played: Played) -> None:
    for dataset in app.datasets:
        records = getattr(played, dataset)
        admitted = Door(app.datasets[dataset], 0).admit(json.dumps(records).encode(), "json")
        assert admitted.refused == []
        assert [json.loads(line) for line in admitted.lines] == records


def frame(spark: SparkSession, app: App, dataset: str, records: list[Record]) -> DataFrame:
    lines = [(number, 0, json.dumps(record).encode()) for number, record in enumerate(records, start=1)]
    return spark.createDataFrame(arrow_table(app.datasets[dataset], lines))


def near(report: Record, other: Record, limit: float) -> bool:
    return kilometres(report, other) < limit  # type: ignore[arg-type]


def expected(played: Played, channel: str, wanted: Record) -> list[Record]:
    """What a channel should give for some values, by looking at every report."""
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
            told = [{key: one[key] for key in ("name", "lat", "lon", "places")} for one in shelters]
            found.append(report | {"shelters": sorted(told, key=lambda one: one["name"])})
        elif channel == "reports_near_user_with_shelters":
            named = [report | {"shelter": one["name"], "shelter_places": one["places"]} for one in shelters]
            found.extend(named or [report | {"shelter": None, "shelter_places": None}])
        else:
            found.append(report)
    return found


def in_order(records: list[Record]) -> list[str]:
    return sorted(json.dumps(record, sort_keys=True) for record in records)


@pytest.mark.parametrize("name", TABLE_III)
def test_a_channel_finds_what_a_plain_recomputation_finds(
    name: str, app: App, played: Played, spark: SparkSession
) -> None:
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
    assert sum(map(len, right.values())) > 20, "the batch shows something"
    for stream, results in right.items():
        assert in_order(found[stream]) == in_order(results), wanted[stream]
