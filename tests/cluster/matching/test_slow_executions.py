"""An execution past its time limit is cancelled, and the other channels continue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from support.cluster.in_process import ClusterUnderTest, opened
from support.waiting import eventually

from newsstand.cluster.matching import executor, matcher, prepared
from newsstand.cluster.query.parser import Body
from newsstand.cluster.service import ClusterLimits, RunningExecutionInfo
from newsstand.model import BackendSubscription, Scalar
from newsstand.spark.cancellation import end_runaway_tasks
from newsstand.spark.internals import jvm

# Ten billion pairs, in many small steps that Spark can cancel.
APP = """
[datasets.reports]
fields = { id = "string", kind = "string" }

[channels.slow]
parameters = { kind = "string" }
query = '''
SELECT r.id, count(*) AS pairs FROM reports r JOIN explode(sequence(1, 100000)) AS a(x)
JOIN explode(sequence(1, 100000)) AS b(y) WHERE r.kind = :kind AND pow(a.x, b.y) + length(r.id) <> 3 GROUP BY r.id
'''

[channels.of_kind]
parameters = { kind = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"

[cluster]
execution_timeout = "TIMEOUT"
"""


def assert_no_task_runs(spark: SparkSession) -> None:
    """Require that a closed cluster leaves no task behind; Java 20 and later cannot stop one."""
    if jvm(spark).java.lang.Runtime.version().feature() < 20:
        assert end_runaway_tasks(spark) == set()


def executing_seconds(here: ClusterUnderTest, channel: str = "slow") -> float:
    """Return the metric of the seconds of a channel's running execution."""
    lines = here.cluster.metrics.text().decode().splitlines()
    name = f'newsstand_channel_executing_seconds{{channel="{channel}"}} '
    (line,) = [line for line in lines if line.startswith(name)]
    return float(line.removeprefix(name))


@pytest.mark.timeout(120)
def test_execution_past_limit_cancelled_and_others_continue(spark: SparkSession, tmp_path: Path) -> None:
    with opened(tmp_path, APP.replace("TIMEOUT", "2s"), spark) as here:
        here.subscribe("slow", "flood")
        (other,) = here.subscribe("of_kind", "flood")
        here.publish({"id": "a", "kind": "flood"})
        eventually(lambda: here.cluster.definitions.channel_status("slow")["failing"] is not None)
        failing = here.cluster.definitions.channel_status("slow")["failing"]
        assert isinstance(failing, dict)
        assert failing["error"].startswith("TimeoutError: the execution was cancelled after 2 s")
        eventually(lambda: len(here.cluster.subscriptions.read(other.id, 0, None, 10)) == 1)
        here.cluster.definitions.drop_channel("slow")
    assert_no_task_runs(spark)


@pytest.mark.timeout(120)
def test_slow_execution_reported_and_drop_does_not_wait(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, APP.replace("TIMEOUT", "1h"), spark, ClusterLimits(slow_s=3.0)) as here:
        here.subscribe("slow", "flood")
        (other,) = here.subscribe("of_kind", "flood")
        assert here.cluster.executions() == []
        here.publish({"id": "a", "kind": "flood"})
        eventually(lambda: here.cluster.definitions.channel_status("slow")["executing_seconds"] is not None)
        assert not [one for one in here.cluster.degraded() if "slow" in one]
        eventually(lambda: "channel slow has been executed for more than 3 s" in here.cluster.degraded())
        seconds = here.cluster.definitions.channel_status("slow")["executing_seconds"]
        assert isinstance(seconds, float)
        assert seconds > 3
        (shown,) = [one for one in here.cluster.executions() if one.channel == "slow"]
        assert shown.seconds >= round(seconds, 3)
        expected = RunningExecutionInfo("slow", "reports", "execution", 0, 1, 1, shown.seconds, slow=True)
        assert shown == expected
        assert executing_seconds(here) > 3
        here.cluster.definitions.drop_channel("slow")
        assert not [one for one in here.cluster.degraded() if "slow" in one]
        assert "channel slow fails" not in caplog.text
        eventually(lambda: here.cluster.executions() == [])
        assert executing_seconds(here, "of_kind") == 0
        eventually(lambda: len(here.cluster.subscriptions.read(other.id, 0, None, 10)) == 1)
    assert_no_task_runs(spark)


AT_RISK = """
[datasets.reports]
fields = { id = "string", kind = "double" }
"""


def test_warm_up_and_search_shown_as_running(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: dict[tuple[object, ...], None] = {}

    def recording(name: str) -> None:
        """Record what is shown when the executor calls a function."""
        called = getattr(executor, name)

        def record(*given: object) -> object:
            (one,) = here.cluster.executions()
            shown[one.channel, one.phase, one.after, one.through, one.publications] = None
            return called(*given)

        monkeypatch.setattr(executor, name, record)

    with opened(tmp_path, AT_RISK, spark, warm_up_s=1.0) as here:
        recording("sample_batch")
        recording("failing_streams")
        here.define("above", query="SELECT r.id FROM reports r WHERE r.kind > cast(:kind AS double)")
        (fine, _) = here.subscribe("above", "1.5", "none")
        here.publish({"id": "a", "kind": 2.0}, {"id": "b", "kind": 1.0})
        assert here.payloads(fine) == [{"id": "a"}]
    assert list(shown) == [("above", "warm-up", None, None, None), ("above", "search", 0, 2, 2)]


NEAR = """
[datasets.reports]
fields = { id = "string", kind = "string", lat = "double", lon = "double" }

[channels.near]
parameters = { lat = "double", lon = "double", km = "double" }
query = "SELECT r.id FROM reports r WHERE distance_km(r.lat, r.lon, :lat, :lon) < :km"
"""


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The channels for which a plan was prepared; with "failing" as the only entry the next one fails."""
    made: list[str] = []

    def record(body: Body, *given: Any) -> DataFrame:
        fails = made == ["failing"]
        made.append(body.channel.name)
        if fails:
            raise RuntimeError("no plan this time")
        return matcher.match(body, *given)

    monkeypatch.setattr(prepared, "match", record)
    return made


def await_ready(here: ClusterUnderTest) -> None:
    eventually(lambda: here.cluster.ready() == [], seconds=120.0)


def subscribe(here: ClusterUnderTest, channel: str, *values: Scalar) -> BackendSubscription:
    here.cluster.subscriptions.register_broker("north", "http://127.0.0.1:9/")
    (one,) = here.cluster.subscriptions.subscribe("north", [(channel, list(values), 1)])
    return one


def test_first_execution_of_new_subscription_uses_plan_of_warm_up(
    spark: SparkSession, tmp_path: Path, plans: list[str]
) -> None:
    with opened(tmp_path, NEAR, spark, warm_up_s=60.0) as here:
        await_ready(here)
        assert plans
        before = len(plans)
        one = subscribe(here, "near", 1.0, 1.0, 5.0)
        here.publish({"id": "a", "kind": "flood", "lat": 1.01, "lon": 1.01})
        assert here.payloads(one) == [{"id": "a"}]
        assert len(plans) == before


def test_plan_prepared_again_after_failure_in_warm_up(
    spark: SparkSession, tmp_path: Path, plans: list[str]
) -> None:
    plans.append("failing")
    with opened(tmp_path, NEAR, spark, warm_up_s=60.0) as here:
        await_ready(here)
        assert plans == ["failing", "near"]
        one = subscribe(here, "near", 1.0, 1.0, 5.0)
        here.publish({"id": "a", "kind": "flood", "lat": 1.01, "lon": 1.01})
        assert here.payloads(one) == [{"id": "a"}]
        assert len(plans) > 2


UNCASTABLE_EXAMPLE = """
[datasets.reports]
fields = { id = "string", number = "integer" }

[channels.numbered]
parameters = { number = "string" }
query = "SELECT r.id FROM reports r WHERE r.number = cast(:number AS int)"
"""


def test_failing_example_leaves_plan_of_subscriptions(
    spark: SparkSession, tmp_path: Path, plans: list[str]
) -> None:
    with opened(tmp_path, UNCASTABLE_EXAMPLE, spark) as here:
        one = subscribe(here, "numbered", "5")
    plans.clear()
    with opened(tmp_path, UNCASTABLE_EXAMPLE, spark, warm_up_s=60.0) as here:
        await_ready(here)
        assert plans
        before = len(plans)
        here.publish({"id": "a", "number": 5})
        assert here.payloads(one) == [{"id": "a"}]
        assert len(plans) == before


PAIRS = """
[datasets.reports]
fields = { id = "string", kind = "string", number = "integer" }

[datasets.shelters]
key = "name"
fields = { name = "string" }

[channels.pairs]
parameters = { kind = "string" }
query = "SELECT r.id, s.name FROM reports r JOIN shelters s ON r.id <> concat(s.name, r.id) WHERE r.kind = :kind"

[channels.of_kind]
parameters = { kind = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind AND r.number < 900"

[cluster]
execution_results = 1000
results = "DATABASE"
"""
SELECTIVE = (
    "SELECT r.id, s.name FROM reports r JOIN shelters s ON r.id = s.name WHERE r.kind = :kind AND r.number < 500"
)


@pytest.fixture
def postgres(url: str) -> Iterator[str]:
    """A PostgreSQL database without results."""
    yield url
    with psycopg.connect(url) as connection:
        connection.execute("DROP SCHEMA IF EXISTS newsstand CASCADE")


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("database", "reports"), [("sqlite", 1), ("sqlite", 600), ("postgres", 600)])
def test_execution_with_too_many_results_stores_nothing_and_others_continue(
    spark: SparkSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    database: str,
    reports: int,
) -> None:
    """One publication has a prepared plan; 600 long ones do not."""
    place = request.getfixturevalue("postgres") if database == "postgres" else database
    kind = "flood" * 50
    with opened(tmp_path, PAIRS.replace("DATABASE", place), spark) as here:
        definitions = here.cluster.definitions
        (pairs,) = here.subscribe("pairs", kind)
        (other,) = here.subscribe("of_kind", kind)
        here.publish(*({"name": f"n{number}"} for number in range(1200)), dataset="shelters")
        last = here.publish(*({"id": f"n{n}", "kind": kind, "number": n} for n in range(reports)))

        def failing() -> dict[str, object]:
            found = definitions.channel_status("pairs")["failing"]
            assert found is None or isinstance(found, dict)
            return found or {"attempts": 0}

        eventually(lambda: failing()["attempts"] == 2)
        assert failing()["error"] == (
            "TooManyResults: the execution has more than 1,000 results; make the query more selective, or raise "
            "execution_results of [cluster]"
        )
        assert here.stores.results.extent(pairs.stream) == (1, 0)
        assert here.stores.results.position("pairs") == 0
        assert "channel pairs fails" in here.cluster.degraded()
        assert len(here.payloads(other)) == min(reports, 900)
        here.define("pairs", query=SELECTIVE)
        eventually(lambda: here.stores.results.position("pairs") == last)
        found = [one["id"] for one in here.payloads(pairs)]
        assert found == [f"n{number}" for number in range(min(reports, 500))]
