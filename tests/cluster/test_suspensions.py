"""A value that a query fails on is left out alone: the channel goes on for all others, and its owner is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from test_data_cluster import Opened, eventually, opened
from webhooks import receiving

from newsstand.cluster.app_folder import read_app
from newsstand.cluster.body import parse_body, parse_channel
from newsstand.cluster.offenders import MOST_TRIALS, Search
from newsstand.cluster.value_risks import warnings_of
from newsstand.model import Subscription, Values

APP = """
[datasets.reports]
fields = { id = "string", kind = "string", lat = "double?", size = "integer?" }

[channels.at]
parameters = { lat = "string" }
query = "SELECT r.id FROM reports r WHERE r.lat = :lat"

[channels.alike]
period = "200ms"
parameters = { pattern = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind RLIKE :pattern"

[channels.shares]
parameters = { kind = "string" }
query = "SELECT r.id, 1 / r.size AS share FROM reports r WHERE r.kind = :kind"
"""


def subscribe(here: Opened, channel: str, *values: str, broker: str = "north") -> list[Subscription]:
    if broker not in {one.name for one in here.cluster.brokers()}:
        here.cluster.register_broker(broker, "http://127.0.0.1:9/")
    return here.cluster.subscribe(broker, [(channel, [value], 1) for value in values])


def ids(here: Opened, subscription: Subscription) -> list[object]:
    found = here.cluster.results(subscription.id, 0, None, 1000)
    assert [one.position for one in found] == list(range(1, len(found) + 1))
    return [json.loads(one.payload)["id"] for one in found]


def suspended(here: Opened, channel: str) -> list[object]:
    return [one["values"] for one in here.cluster.suspensions(channel)]


def test_values_that_cannot_be_cast_are_suspended_and_nobody_else_loses_a_result(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, APP, spark) as here:
        good = subscribe(here, "at", *(f"{number}.0" for number in range(20)))
        bad = subscribe(here, "at", "abc", "zwölf")
        more = subscribe(here, "at", *(f"{number}.0" for number in range(20, 40)))
        here.publish(*({"id": str(number), "kind": "x", "lat": number} for number in range(40)))
        here.settle()
        assert here.cluster.channel_status("at")["failing"] is None
        assert [ids(here, one) for one in [*good, *more]] == [[str(number)] for number in range(40)]
        assert suspended(here, "at") == [["abc"], ["zwölf"]]
        assert here.cluster.channel_status("at")["suspended"] == 2
        assert "stream 21 (['abc']) is suspended: SparkNumberFormatException: [CAST_INVALID_INPUT]" in caplog.text
        assert b'newsstand_channel_suspended_streams{channel="at"} 2.0' in here.cluster.metrics.text()
    with opened(tmp_path, APP, spark) as here:
        here.publish({"id": "again", "kind": "x", "lat": 7})
        here.settle()
        assert ids(here, good[7]) == ["7", "again"]
        assert suspended(here, "at") == [["abc"], ["zwölf"]], "it is still known after a restart"
        assert here.cluster.channel_status("at")["failing"] is None
        assert here.cluster.unsubscribe("north", [bad[0].id]) == 1
        assert suspended(here, "at") == [["zwölf"]]
        subscribe(here, "at", "abc")
        here.publish({"id": "third", "kind": "x", "lat": 7})
        here.settle()
        assert suspended(here, "at") == [["abc"], ["zwölf"]], "values that were given up are tried again"
        query = "SELECT r.id FROM reports r WHERE r.lat = try_cast(:lat AS double)"
        here.define("at", query=query, parameters={"lat": "string"})
        assert suspended(here, "at") == []
        here.publish({"id": "fourth", "kind": "x", "lat": 7})
        here.settle()
        assert here.cluster.channel_status("at")["failing"] is None
        assert ids(here, good[7]) == ["7", "again", "third", "fourth"]
    mended = APP.replace("RLIKE :pattern", "= :pattern")
    with opened(tmp_path, APP, spark) as here:
        subscribe(here, "alike", "(", "f.*")
        here.publish({"id": "fifth", "kind": "flood"})
        here.settle()
        eventually(lambda: suspended(here, "alike") == [["("]])
    with opened(tmp_path, mended, spark) as here:
        assert suspended(here, "alike") == [], "a definition that was edited is tried with all values"


def test_a_malformed_pattern_is_suspended_and_its_broker_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with opened(tmp_path, APP, spark) as here, receiving(broker="north") as receiver:
        receiver.secret = here.cluster.register_broker("north", receiver.url).secret
        bad, good = subscribe(here, "alike", "(", "f.*d")
        here.publish({"id": "a", "kind": "flood"})
        here.settle()
        assert ids(here, good) == ["a"]
        eventually(lambda: any("suspended" in one for one in receiver.told))
        (told,) = [one for one in receiver.told if "suspended" in one]
        assert told["summary"] is False
        (one,) = told["suspended"]  # type: ignore[misc]
        assert one["subscription"] == bad.id  # type: ignore[index]
        assert one["error"].startswith("PatternSyntaxException: Unclosed group near index 1")  # type: ignore[index]
        assert here.cluster.resume("alike") == 1
        eventually(lambda: receiver.told[-1].get("suspended") == [])
        here.publish({"id": "b", "kind": "flood"})
        here.settle()
        assert ids(here, good) == ["a", "b"]
        assert suspended(here, "alike") == [["("]]
        with receiving(broker="north") as other:
            # A broker that was away is told in its summary.
            here.results.mark_away("north")
            other.secret = receiver.secret
            here.cluster.register_broker("north", other.url)
            eventually(lambda: any(one.get("summary") for one in other.told))
            (summary,) = [one for one in other.told if one.get("summary")]
            assert [one["subscription"] for one in summary["suspended"]] == [bad.id]  # type: ignore[attr-defined]


def test_the_only_value_of_a_channel_is_suspended_if_the_error_names_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    with opened(tmp_path, APP, spark) as here:
        subscribe(here, "at", "abc")
        here.publish({"id": "a", "kind": "x", "lat": 1.0})
        here.settle()
        assert suspended(here, "at") == [["abc"]]
        (good,) = subscribe(here, "at", "1.0")
        here.publish({"id": "b", "kind": "x", "lat": 1.0})
        here.settle()
        assert ids(here, good) == ["b"]


def test_a_record_that_a_query_fails_on_is_not_blamed_on_subscribers(spark: SparkSession, tmp_path: Path) -> None:
    with opened(tmp_path, APP, spark) as here:
        subscribe(here, "shares", "odd", "even")
        here.publish({"id": "a", "kind": "odd", "size": 0})
        eventually(lambda: here.cluster.channel_status("shares")["failing"] is not None)
        failing = here.cluster.channel_status("shares")["failing"]
        assert isinstance(failing, dict)
        assert failing["error"].startswith("SparkArithmeticException: [DIVIDE_BY_ZERO]")
        assert suspended(here, "shares") == []


def test_parameters_with_values_that_fail_are_warned_of(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "newsstand.toml").write_text(APP)
    app = read_app(tmp_path)
    made: dict[str, list[str]] = {
        name: warnings_of(spark, parse_body(one, app.datasets), app.datasets) for name, one in app.channels.items()
    }
    assert made == {
        "at": [
            "channels.at.parameters.lat: is cast from string to double, which fails for some values; "
            "write try_cast(:lat AS double), or declare the parameter as double"
        ],
        "alike": [
            "channels.alike.parameters.pattern: is used as a regular expression, and one that is malformed fails; "
            "write contains(…, :pattern) or startswith(…, :pattern), or put the expression into the query"
        ],
        "shares": [],
    }


@pytest.mark.parametrize(
    ("parameter", "condition", "warned"),
    [
        ("string", "r.lat = try_cast(:k AS double)", 0),
        ("integer", "r.lat = :k", 0),
        ("double", "r.size > :k", 0),
        ("string", "r.lat = (SELECT max(s.lat) FROM stored.reports s WHERE s.lat < :k AND s.kind = r.kind)", 1),
        ("string", "regexp_replace(r.kind, :k, 'a') = 'a'", 1),
        ("string", "regexp_replace(:k, 'a', r.kind) = 'a'", 0),
        ("string", "r.kind LIKE concat(:k, '%')", 1),
        ("string", "split(r.kind, :k)[0] = 'a'", 1),
        ("string", "contains(r.kind, :k)", 0),
    ],
)
def test_what_can_fail_is_told_from_what_cannot(
    spark: SparkSession, tmp_path: Path, parameter: str, condition: str, warned: int
) -> None:
    (tmp_path / "newsstand.toml").write_text(APP)
    datasets = read_app(tmp_path).datasets
    table = {"parameters": {"k": parameter}, "query": f"SELECT r.id FROM reports r WHERE {condition}"}
    body = parse_body(parse_channel("any", table, datasets, {}), datasets)
    assert len(warnings_of(spark, body, datasets)) == warned


def searched(count: int, bad: set[int], error: str = "bad") -> tuple[list[int], int]:
    streams: Sequence[tuple[int, Values]] = [(number, (str(number),)) for number in range(count)]
    search = Search(streams, lambda first, last: error if any(first <= one <= last for one in bad) else None)
    return [stream for stream, _ in search.run()], MOST_TRIALS - search.trials


def test_a_search_finds_all_that_fail_in_few_trials() -> None:
    for count, bad in ((2, {1}), (8, {0, 7}), (1000, {0}), (1000, {1, 2, 998}), (100_000, {77_777, 5})):
        found, trials = searched(count, bad)
        assert sorted(found) == sorted(bad)
        assert trials <= 8 + 2 * 18 * len(bad)
    assert searched(1000, set(range(1000))) == ([], 8), "records are to blame if every value fails"
    found, trials = searched(1000, set(range(300)))
    assert 0 < len(found) < 300
    assert trials <= MOST_TRIALS + 2, "the rest is found by the next search"
    assert searched(3, {0, 1, 2}, "bad: '1'") == ([1], 3)
