"""Suspension of values on which a query fails: the channel continues for all others, and brokers are notified."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import msgspec
import pytest
from pyspark.sql import SparkSession
from support.cluster.in_process import ClusterUnderTest, opened
from support.cluster.standin import listening
from support.cluster.webhooks import receiving
from support.waiting import eventually

from newsstand.auth.api_tokens import ApiTokens, admin_token
from newsstand.cli.main import run
from newsstand.cluster.app_folder import read_app
from newsstand.cluster.matching.failing_values import SearchLimits, failing_streams, warnings_of
from newsstand.cluster.query.parser import parse_body, parse_channel
from newsstand.cluster.server import create_api
from newsstand.model import BackendSubscription, Values

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


def subscribe(
    here: ClusterUnderTest, channel: str, *values: str, broker: str = "north"
) -> list[BackendSubscription]:
    if broker not in {one.name for one in here.cluster.subscriptions.brokers()}:
        here.cluster.subscriptions.register_broker(broker, "http://127.0.0.1:9/")
    return here.cluster.subscriptions.subscribe(broker, [(channel, [value], 1) for value in values])


def ids(here: ClusterUnderTest, subscription: BackendSubscription) -> list[object]:
    found = here.cluster.subscriptions.read(subscription.id, 0, None, 1000)
    assert [one.position for one in found] == list(range(1, len(found) + 1))
    return [json.loads(bytes(one.payload))["id"] for one in found]


def suspended(here: ClusterUnderTest, channel: str) -> list[object]:
    return [list(one.values) for one in here.cluster.definitions.suspensions(channel)]


def test_uncastable_values_suspended_without_loss_for_others(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, APP, spark) as here:
        good = subscribe(here, "at", *(f"{number}.0" for number in range(5)))
        bad = subscribe(here, "at", "abc", "zwölf")
        more = subscribe(here, "at", *(f"{number}.0" for number in range(5, 9)))
        here.publish(*({"id": str(number), "kind": "x", "lat": number} for number in range(9)))
        here.settle()
        assert here.cluster.definitions.channel_status("at")["failing"] is None
        assert [ids(here, one) for one in [*good, *more]] == [[str(number)] for number in range(9)]
        assert suspended(here, "at") == [["abc"], ["zwölf"]]
        assert here.cluster.definitions.channel_status("at")["suspended"] == 2
        assert "stream 6 (['abc']) is suspended: SparkNumberFormatException: [CAST_INVALID_INPUT]" in caplog.text
        assert b'newsstand_channel_suspended_streams{channel="at"} 2.0' in here.cluster.metrics.text()
    with opened(tmp_path, APP, spark) as here:
        here.publish({"id": "again", "kind": "x", "lat": 4})
        here.settle()
        assert ids(here, good[4]) == ["4", "again"]
        assert suspended(here, "at") == [["abc"], ["zwölf"]], "it is still known after a restart"
        assert here.cluster.definitions.channel_status("at")["failing"] is None
        assert here.cluster.subscriptions.unsubscribe("north", [bad[0].id]) == 1
        assert suspended(here, "at") == [["zwölf"]]
        subscribe(here, "at", "abc")
        here.publish({"id": "third", "kind": "x", "lat": 4})
        here.settle()
        assert suspended(here, "at") == [["abc"], ["zwölf"]], "values that were given up are tried again"
        query = "SELECT r.id FROM reports r WHERE r.lat = try_cast(:lat AS double)"
        here.define("at", query=query, parameters={"lat": "string"})
        assert suspended(here, "at") == []
        here.publish({"id": "fourth", "kind": "x", "lat": 4})
        here.settle()
        assert here.cluster.definitions.channel_status("at")["failing"] is None
        assert ids(here, good[4]) == ["4", "again", "third", "fourth"]
    repaired = APP.replace("RLIKE :pattern", "= :pattern")
    with opened(tmp_path, APP, spark) as here:
        subscribe(here, "alike", "(", "f.*")
        here.publish({"id": "fifth", "kind": "flood"})
        here.settle()
        eventually(lambda: suspended(here, "alike") == [["("]])
    with opened(tmp_path, repaired, spark) as here:
        assert suspended(here, "alike") == [], "a definition that was edited is tried with all values"


def test_malformed_pattern_suspended_and_broker_notified(spark: SparkSession, tmp_path: Path) -> None:
    with opened(tmp_path, APP, spark) as here, receiving(broker="north") as receiver:
        receiver.secret = here.cluster.subscriptions.register_broker("north", receiver.url).secret
        bad, good = subscribe(here, "alike", "(", "f.*d")
        here.publish({"id": "a", "kind": "flood"})
        here.settle()
        assert ids(here, good) == ["a"]
        eventually(lambda: any("suspended" in one for one in receiver.received))
        (notification,) = [one for one in receiver.received if "suspended" in one]
        assert notification["summary"] is False
        (one,) = notification["suspended"]  # type: ignore[misc]
        assert one["subscription"] == bad.id  # type: ignore[index]
        assert one["error"].startswith("PatternSyntaxException: Unclosed group near index 1")  # type: ignore[index]
        assert here.cluster.definitions.resume("alike") == 1
        eventually(lambda: receiver.received[-1].get("suspended") == [])
        here.publish({"id": "b", "kind": "flood"})
        here.settle()
        assert ids(here, good) == ["a", "b"]
        assert suspended(here, "alike") == [["("]]
        with receiving(broker="north") as other:
            # The summary of a broker that was away contains suspensions.
            here.stores.outbox.mark_away("north")
            other.secret = receiver.secret
            here.cluster.subscriptions.register_broker("north", other.url)
            # The notifier may find the broker at its first address before it registers the second.
            eventually(lambda: any(one.get("summary") for one in receiver.received + other.received))
            summary = [one for one in receiver.received + other.received if one.get("summary")][-1]
            assert [one["subscription"] for one in summary["suspended"]] == [bad.id]  # type: ignore[attr-defined]


def test_single_value_of_channel_suspended_when_error_names_it(spark: SparkSession, tmp_path: Path) -> None:
    with opened(tmp_path, APP, spark) as here:
        subscribe(here, "at", "abc")
        here.publish({"id": "a", "kind": "x", "lat": 1.0})
        here.settle()
        assert suspended(here, "at") == [["abc"]]
        (good,) = subscribe(here, "at", "1.0")
        here.publish({"id": "b", "kind": "x", "lat": 1.0})
        here.settle()
        assert ids(here, good) == ["b"]


def test_operator_lists_and_resumes_suspended_values(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NEWSSTAND_TOKEN", raising=False)
    with opened(tmp_path, APP, spark) as here:
        app = read_app(tmp_path)
        token, _ = admin_token(app.data, bytes(32))
        with listening(create_api(here.cluster, ApiTokens([token]), app.cluster)) as url:
            (app.data / "address").write_text(url + "\n")

            def printed(*words: str) -> list[str]:
                assert run(["channel", "suspended", str(tmp_path), "at", *words]) == 0
                printed_text = capsys.readouterr()
                assert printed_text.err == ""
                return printed_text.out.splitlines()

            def is_reported(**more: object) -> bool:
                return bool(httpx.get(f"{url}/readyz", trust_env=False).json() == {"status": "ready", **more})

            assert printed() == ["at: 0 suspended"]
            assert json.loads(*printed("--json")) == {"suspensions": []}
            assert printed("--resume") == ["at: 0 resumed"]
            eventually(is_reported)

            subscribe(here, "at", "abc", "zwölf", "7.0")
            subscribe(here, "at", "abc", broker="south")
            here.publish({"id": "a", "kind": "x", "lat": 7})
            here.settle()
            first, second, total = printed()
            assert first.startswith('["abc"], 2 subscriptions: SparkNumberFormatException: [CAST_INVALID_INPUT]')
            assert second.startswith('["zw\\u00f6lf"], 1 subscriptions: SparkNumberFormatException: ')
            assert total == "at: 2 suspended"
            assert json.loads(*printed("--json")) == {
                "suspensions": json.loads(msgspec.json.encode(here.cluster.definitions.suspensions("at")))
            }
            assert here.cluster.definitions.channel_status("at")["suspended"] == 2
            eventually(lambda: is_reported(degraded=["channel at has suspended streams: 2"]))

            assert json.loads(*printed("--resume", "--json")) == {"resumed": 2}
            assert printed() == ["at: 0 suspended"]
            assert here.cluster.definitions.channel_status("at")["suspended"] == 0
            eventually(is_reported)
            here.publish({"id": "b", "kind": "x", "lat": 7})
            here.settle()
            assert printed()[-1] == "at: 2 suspended", "a value that still fails is suspended again"
            assert printed("--resume") == ["at: 2 resumed"]


def test_failing_record_suspends_no_values(spark: SparkSession, tmp_path: Path) -> None:
    with opened(tmp_path, APP, spark) as here:
        subscribe(here, "shares", "odd", "even")
        here.publish({"id": "a", "kind": "odd", "size": 0})
        eventually(lambda: here.cluster.definitions.channel_status("shares")["failing"] is not None)
        failing = here.cluster.definitions.channel_status("shares")["failing"]
        assert isinstance(failing, dict)
        assert failing["error"].startswith("SparkArithmeticException: [DIVIDE_BY_ZERO]")
        assert suspended(here, "shares") == []
        assert here.cluster.degraded() == ["channel shares fails"]


def test_warnings_name_parameters_with_failing_values(spark: SparkSession, tmp_path: Path) -> None:
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


def test_check_prints_warnings_without_mistakes(
    tmp_path: Path, lent: Callable[[], AbstractContextManager[None]], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "newsstand.toml").write_text(APP)
    with lent():
        assert run(["check", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    at, alike = printed.err.splitlines()
    assert at.startswith("note: channels.at.parameters.lat: is cast from string to double, which fails for some")
    assert alike.startswith("note: channels.alike.parameters.pattern: is used as a regular expression, and one")
    assert printed.out.splitlines()[-1] == f"{tmp_path}: 1 dataset, 3 channels, no mistakes"
    with lent():
        assert run(["check", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert [f"note: {note}" for note in report["notes"]] == [at, alike]
    assert (list(report["channels"]), report["mistakes"]) == (["at", "alike", "shares"], [])
    assert printed.err == ""


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
def test_warnings_distinguish_failing_expressions(
    spark: SparkSession, tmp_path: Path, parameter: str, condition: str, warned: int
) -> None:
    (tmp_path / "newsstand.toml").write_text(APP)
    datasets = read_app(tmp_path).datasets
    table = {"parameters": {"k": parameter}, "query": f"SELECT r.id FROM reports r WHERE {condition}"}
    body = parse_body(parse_channel("any", table, datasets, {}), datasets)
    assert len(warnings_of(spark, body, datasets)) == warned


def searched(count: int, bad: set[int], error: str = "bad") -> tuple[list[int], int]:
    streams: Sequence[tuple[int, Values]] = [(number, (str(number),)) for number in range(count)]
    trials: list[tuple[int, int]] = []

    def error_of(first: int, last: int) -> str | None:
        trials.append((first, last))
        return error if any(first <= one <= last for one in bad) else None

    return [stream for stream, _ in failing_streams(streams, error_of)], len(trials)


def test_bisection_finds_failing_values_in_few_trials() -> None:
    for count, bad in ((2, {1}), (8, {0, 7}), (1000, {0}), (1000, {1, 2, 998}), (100_000, {77_777, 5})):
        found, trials = searched(count, bad)
        assert sorted(found) == sorted(bad)
        assert trials <= 8 + 2 * 18 * len(bad)
    assert searched(1000, set(range(1000))) == ([], 64), "records are to blame if every value fails"
    found, _ = searched(47, set(range(46)))
    assert found == list(range(46)), "many bad values hide no good one"
    found, trials = searched(1000, set(range(300)))
    assert 0 < len(found) < 300
    assert trials <= SearchLimits().trials + 2, "the rest is found by the next search"
    assert searched(3, {0, 1, 2}, "bad: '1'") == ([1], 3)
