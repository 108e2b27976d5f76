"""The contract of result stores; the tests of each database inherit it and define `open_store`."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from pyspark.sql import SparkSession

from newsstand.cluster.matching.matcher import SparkMatches
from newsstand.cluster.results.model import (
    MATCH_SCHEMA,
    Execution,
    ExecutionOutcome,
    OutboxEntry,
    StreamAdvance,
    SuspendedStreamInfo,
    TooManyResults,
)
from newsstand.cluster.results.retention import CleanupLimits
from newsstand.cluster.results.stores import ResultStores
from newsstand.errors import NotFound, ResultsExpired
from newsstand.model import (
    BackendSubscription,
    Broker,
    Retention,
    Values,
    subscription_id,
)
from newsstand.wire.cluster import AttachedPage, StreamResult, StreamSuspension
from newsstand.wire.notifications import PageOffer, SuspendedStream
from support.profiles import examples

Row = tuple[int, int | None, str | None, int | None, int, str]
Open = Callable[..., ResultStores]

MATCHED = "stream bigint, publication bigint, page_id string, page_size bigint, ordinal bigint, payload string"
"""MATCH_SCHEMA as a schema of Spark."""


def computed(rows: Sequence[Row]) -> list[pa.RecordBatch]:
    """Return the matches of an execution in batches of some rows."""
    batches = []
    for start in range(0, len(rows), 3000):
        columns = zip(*rows[start : start + 3000], strict=True)
        arrays = [pa.array(list(column), one.type) for column, one in zip(columns, MATCH_SCHEMA, strict=True)]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=MATCH_SCHEMA))
    return batches


def row(
    stream: int, publication: int | None, payload: str = "{}", ordinal: int = 0, page: str | None = None
) -> Row:
    return (stream, publication, page, None if page is None else 100, ordinal, payload)


def over(after: int, through: int, at_ms: int = 1000, channel: str = "alerts") -> Execution:
    return Execution(channel, "reports", after, through, at_ms)


def payloads(db: ResultStores, stream: int) -> list[str]:
    found = db.results.read(stream, limit=100_000)
    assert [result.position for result in found] == list(range(1, len(found) + 1))
    return [bytes(result.payload).decode() for result in found]


class ResultsSuite:
    @pytest.fixture
    def db(self, open_store: Open) -> Iterator[ResultStores]:
        """Result stores with two brokers and two channels."""
        db = open_store()
        prepare(db)
        yield db
        db.close()

    # Streams and subscriptions

    def test_subscribe_creates_stable_ids_and_streams(self, db: ResultStores) -> None:
        made = db.subscriptions.subscribe("north", {"alerts": {("fire", 3): 5, ("flood", 1): 1}})
        assert [(one.values, one.frontends) for one in made] == [(("fire", 3), 5), (("flood", 1), 1)]
        assert [one.id for one in made] == [subscription_id("alerts", one.values, "north") for one in made]
        assert made[0].stream != made[1].stream
        again = db.subscriptions.subscribe("north", {"alerts": {("fire", 3): 2}})
        assert again == [BackendSubscription(made[0].id, "alerts", ("fire", 3), "north", made[0].stream, 2)]
        assert db.subscriptions.find(made[0].id) == again[0]
        assert db.subscriptions.find("nobody") is None
        assert db.subscriptions.count("alerts") == (2, 2)

    def test_values_of_any_kind_and_length_round_trip(self, db: ResultStores) -> None:
        wanted: dict[Values, int] = {("é\u0000'\"%s:x",): 1, (1.5, True, -3): 2, ("long " * 5000,): 3, (): 4}
        made = db.subscriptions.subscribe("north", {"alerts": wanted})
        assert {one.values: one.frontends for one in made} == wanted
        assert sorted(db.subscriptions.scan(), key=lambda one: one.frontends) == made
        assert dict(db.subscriptions.active_streams("alerts")) == {one.stream: one.values for one in made}

    def test_equal_values_of_brokers_share_stream(self, db: ResultStores) -> None:
        (north,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        (south,) = db.subscriptions.subscribe("south", {"alerts": {("fire",): 1}})
        assert north.stream == south.stream
        assert north.id != south.id
        assert db.subscriptions.count("alerts") == (2, 1)

    def test_stream_remains_after_last_subscription(self, db: ResultStores) -> None:
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        db.results.store(over(0, 1), computed([row(one.stream, 1)]))
        assert db.subscriptions.unsubscribe("south", [one.id]) == []
        assert db.subscriptions.unsubscribe("north", [one.id, "nobody", one.id]) == [one]
        assert list(db.subscriptions.active_streams("alerts")) == []
        (again,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        assert again == one
        assert db.results.extent(one.stream) == (1, 1)

    def test_subscriptions_listed_by_id_after_any_id(self, db: ResultStores) -> None:
        made = db.subscriptions.subscribe("north", {"alerts": {(number,): 1 for number in range(7)}})
        made += db.subscriptions.subscribe("south", {"alerts": {(0,): 1}})
        made += db.subscriptions.subscribe("south", {"news": {(0,): 1}})
        made.sort(key=lambda one: one.id)
        assert list(db.subscriptions.scan()) == made
        assert list(db.subscriptions.scan(after=made[2].id, limit=3)) == made[3:6]
        assert list(db.subscriptions.scan(broker="south")) == [one for one in made if one.broker == "south"]
        assert list(db.subscriptions.scan("south", "news")) == [one for one in made if one.channel == "news"]

    def test_extents_of_many_streams_read_in_one_call(self, db: ResultStores) -> None:
        made = db.subscriptions.subscribe("north", {"alerts": {(number,): 1 for number in range(12)}})
        (other,) = db.subscriptions.subscribe("south", {"alerts": {(0,): 1}})
        db.results.store(over(0, 2), computed([row(made[3].stream, 1), row(made[3].stream, 2)]))
        found = db.subscriptions.extents("north", [*(one.id for one in made), other.id, "nobody"])
        assert {name: (one.stream, one.earliest, one.head) for name, one in found.items()} == {
            one.id: (one.stream, 1, 2 if one is made[3] else 0) for one in made
        }
        assert db.subscriptions.extents("north", []) == {}

    def test_active_streams_have_subscriptions(self, db: ResultStores) -> None:
        made = db.subscriptions.subscribe("north", {"alerts": {(number,): 1 for number in range(5)}})
        db.subscriptions.unsubscribe("north", [made[1].id])
        (other,) = db.subscriptions.subscribe("north", {"news": {(9,): 1}})
        left = sorted((one.stream, one.values) for one in made if one is not made[1])
        assert list(db.subscriptions.active_streams("alerts")) == left
        asked = [made[1].stream, made[3].stream, other.stream, 12345]
        assert list(db.subscriptions.active_streams("alerts", asked)) == [(made[3].stream, (3,))]
        assert list(db.subscriptions.active_streams("alerts", [])) == []

    def test_suspended_stream_left_out_and_brokers_notified(self, db: ResultStores, open_store: Open) -> None:
        bad, good = db.subscriptions.subscribe("north", {"alerts": {("abc",): 1, ("1.0",): 1}})
        (same,) = db.subscriptions.subscribe("south", {"alerts": {("abc",): 1}})
        db.results.store(over(0, 5), computed([row(good.stream, 1)]))
        for delivery in db.outbox.due("north"):
            db.outbox.mark_answered(delivery.id, 1)
        db.subscriptions.suspend("alerts", bad.stream, "no number", "first", 70)
        db.subscriptions.suspend("alerts", bad.stream, "another", "first", 80)
        db.subscriptions.suspend("news", good.stream, "of another channel", "first", 80)
        assert db.subscriptions.suspensions("alerts") == [
            SuspendedStreamInfo(bad.stream, ("abc",), "no number", 70, 5, 2)
        ]
        assert db.subscriptions.suspensions("news") == []
        assert [db.subscriptions.count_suspended(name) for name in ("alerts", "news", "none")] == [1, 0, 0]
        assert list(db.subscriptions.active_streams("alerts")) == [(good.stream, ("1.0",))]
        assert list(db.subscriptions.active_streams("alerts", [bad.stream])) == []
        assert db.subscriptions.suspended("north") == [SuspendedStream(bad.id, "no number", 70)]
        assert db.subscriptions.suspended("north", "news") == []
        extents = db.subscriptions.extents("north", [good.id, bad.id])
        assert [extents[one.id].suspended for one in (good, bad)] == [None, StreamSuspension("no number", 70)]
        assert db.subscriptions.suspended("south", "alerts") == [SuspendedStream(same.id, "no number", 70)]
        for broker in ("north", "south"):
            (due,) = db.outbox.due(broker, 10)
            assert (due.execution, due.channel, due.at_ms) == (None, "alerts", 70)
            assert list(db.outbox.advances(due)) == list(db.outbox.matched_pages(due)) == []
            db.outbox.mark_answered(due.id, 90)
        db.subscriptions.subscribe("north", {"alerts": {("abc",): 3}})
        again = open_store()
        assert len(again.subscriptions.suspensions("alerts")) == 1, (
            "neither another subscription nor a restart resumes it"
        )
        again.close()
        assert db.subscriptions.resume("alerts", 100, except_definition="first") == []
        assert db.outbox.due("north") == []
        assert db.subscriptions.resume("alerts", 100, except_definition="second") == [bad.stream]
        assert db.subscriptions.suspensions("alerts") == db.subscriptions.suspended("north") == []
        assert [one.channel for one in db.outbox.due("south")] == ["alerts"]
        db.subscriptions.suspend("alerts", bad.stream, "no number", "first", 110)
        db.subscriptions.unsubscribe("north", [bad.id])
        assert len(db.subscriptions.suspensions("alerts")) == 1
        db.subscriptions.unsubscribe("south", [same.id])
        assert db.subscriptions.suspensions("alerts") == []
        db.subscriptions.subscribe("north", {"alerts": {("abc",): 1}})
        assert bad.stream in dict(db.subscriptions.active_streams("alerts"))
        db.subscriptions.suspend("alerts", bad.stream, "no number", "first", 120)
        db.outbox.mark_away("north")
        db.results.drop_channel("alerts")
        assert db.subscriptions.suspended("north") == []

    def test_subscribe_rejects_unknown_broker_and_channel(self, db: ResultStores) -> None:
        with pytest.raises(NotFound, match="no channel 'nothing'"):
            db.subscriptions.subscribe("north", {"nothing": {(1,): 1}})
        with pytest.raises(NotFound, match="no broker 'nobody'"):
            db.subscriptions.subscribe("nobody", {"alerts": {(1,): 1}})
        assert list(db.subscriptions.scan()) == []

    def test_subscribe_is_atomic_over_channels(self, db: ResultStores) -> None:
        with pytest.raises(NotFound, match="no channel 'nothing'"):
            db.subscriptions.subscribe("north", {"alerts": {(1,): 1}, "nothing": {(1,): 1}})
        assert list(db.subscriptions.scan()) == list(db.subscriptions.active_streams("alerts")) == []
        made = db.subscriptions.subscribe("north", {"news": {("b",): 1, ("a",): 2}, "alerts": {("b",): 3}})
        assert [(one.channel, one.values, one.frontends) for one in made] == [
            ("news", ("b",), 1),
            ("news", ("a",), 2),
            ("alerts", ("b",), 3),
        ]
        assert len({one.stream for one in made}) == 3
        assert sorted(db.subscriptions.scan(), key=lambda one: one.frontends) == made
        assert (db.subscriptions.count("news"), db.subscriptions.count("alerts")) == ((2, 2), (1, 1))
        assert db.subscriptions.subscribe("north", {}) == []

    def test_removed_broker_and_channel_leave_no_subscription(self, db: ResultStores) -> None:
        """The removal comes before the subscription, after it, or at the same time."""

        def subscribe(number: int) -> None:
            for value in range(20):
                with suppress(NotFound):
                    db.subscriptions.subscribe(
                        "south", {"alerts": {(number, value): 1}, "news": {(number, value): 1}}
                    )

        threads = [threading.Thread(target=subscribe, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        db.outbox.remove_broker("south")
        db.results.drop_channel("news")
        for thread in threads:
            thread.join()
        assert list(db.subscriptions.scan("south")) == list(db.subscriptions.scan(channel="news")) == []
        assert list(db.subscriptions.active_streams("news")) == []

    def test_subscribe_accepts_thousands_in_one_call(self, db: ResultStores) -> None:
        made = db.subscriptions.subscribe(
            "north", {"alerts": {(f"value {number}",): 1 for number in range(25_000)}}
        )
        assert (
            sum(1 for _ in db.subscriptions.scan())
            == sum(1 for _ in db.subscriptions.active_streams("alerts"))
            == 25_000
        )
        assert len(list(db.subscriptions.active_streams("alerts", [one.stream for one in made]))) == 25_000
        assert len(db.subscriptions.unsubscribe("north", [one.id for one in made])) == 25_000
        assert db.subscriptions.count("alerts") == (0, 0)

    # Executions

    def test_results_numbered_by_publication_ordinal_and_payload(
        self, db: ResultStores, spark: SparkSession
    ) -> None:
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        stream = one.stream
        rows = [row(stream, None, "last"), row(stream, 2, "e", 1), row(stream, 2, "d", 0), row(stream, 1, "c", 9)]
        rows += [row(stream, 1, "é", 3), row(stream, 1, "a", 3), row(stream, 1, "Z", 3, "page 1")]
        stored = db.results.store(over(0, 2, 77), SparkMatches(spark.createDataFrame(rows, MATCHED)))
        assert stored == ExecutionOutcome(stored.execution, 7, 1)
        assert payloads(db, stream) == ["Z", "a", "é", "c", "d", "e", "last"]
        assert db.results.read(stream, limit=1) == [StreamResult(1, 77, Raw(b"Z"), 1, AttachedPage("page 1", 100))]
        assert db.results.read(stream, after=6) == [StreamResult(7, 77, Raw(b"last"), None, None)]

    def test_execution_stored_once(self, db: ResultStores) -> None:
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        first = db.results.store(over(0, 5), computed([row(one.stream, 3)]))
        again = db.results.store(over(0, 5), computed([row(one.stream, 3), row(one.stream, 4)]))
        assert again == ExecutionOutcome(first.execution, 1, 1, repeated=True)
        assert db.results.store(over(0, 4)) == again
        assert db.results.extent(one.stream) == (1, 1)
        assert len(db.outbox.due("north", 9)) == 1
        assert len(db.results.executions("alerts")) == 1

    def test_execution_must_follow_last_one(self, db: ResultStores) -> None:
        db.results.store(over(0, 5))
        for after in (4, 6):
            with pytest.raises(ValueError, match="at publication 5"):
                db.results.store(over(after, 9))
        with pytest.raises(ValueError, match="not known"):
            db.results.store(over(0, 5, channel="nothing"))
        assert db.results.position("alerts") == 5
        assert db.results.position("nothing") is None

    def test_execution_with_foreign_stream_rejected_completely(self, db: ResultStores) -> None:
        (mine,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        (other,) = db.subscriptions.subscribe("north", {"news": {("fire",): 1}})
        with pytest.raises(ValueError, match="1 results belong to streams that channel 'alerts' does not have"):
            db.results.store(over(0, 1), computed([row(mine.stream, 1), row(other.stream, 1)]))
        assert db.results.extent(mine.stream) == db.results.extent(other.stream) == (1, 0)
        assert db.results.position("alerts") == 0
        assert db.outbox.due("north") == []

    @pytest.mark.parametrize("few", [0, 50_000])
    def test_failed_task_leaves_nothing(self, open_store: Open, spark: SparkSession, few: int) -> None:
        db = open_store(few=few)
        prepare(db)
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        fails = spark.range(0, 2000, 1, 2).selectExpr(
            f"cast({one.stream} AS bigint) AS stream",
            "id AS publication",
            "cast(NULL AS string) AS page_id",
            "cast(NULL AS bigint) AS page_size",
            "id AS ordinal",
            "if(id = 1999, cast(raise_error('no more') AS string), 'fine') AS payload",
        )
        with pytest.raises(Exception, match="no more"):
            db.results.store(over(0, 2000), SparkMatches(fails))
        assert db.results.extent(one.stream) == (1, 0)
        assert db.results.position("alerts") == 0
        fine = spark.createDataFrame([row(one.stream, 1, "fine")], MATCHED)
        assert db.results.store(over(0, 2000), SparkMatches(fine)).results == 1
        assert payloads(db, one.stream) == ["fine"]
        db.close()

    def test_many_rows_loaded_from_many_partitions(self, open_store: Open, spark: SparkSession) -> None:
        db = open_store(few=0)
        prepare(db)
        made = db.subscriptions.subscribe("north", {"alerts": {(number,): 1 for number in range(1000)}})
        made.sort(key=lambda one: one.stream)
        first = made[0].stream
        many = spark.range(0, 100_000, 1, 8).selectExpr(
            f"{first} + id % 1000 AS stream",
            "id + 1 AS publication",
            "cast(NULL AS string) AS page_id",
            "cast(NULL AS bigint) AS page_size",
            "cast(0 AS bigint) AS ordinal",
            "cast(id AS string) AS payload",
        )
        executed: list[None] = []
        stored = db.results.store(over(0, 100_000), SparkMatches(many, lambda: executed.append(None)))
        assert len(executed) == 1
        assert (stored.results, stored.streams) == (100_000, 1000)
        for number in (0, 1, 999):
            assert payloads(db, first + number) == [str(number + 1000 * turn) for turn in range(100)]
        (delivery,) = db.outbox.due("north")
        assert list(db.outbox.advances(delivery)) == [StreamAdvance(one.id, 1, 100) for one in made]
        db.close()

    @pytest.mark.parametrize("few", [0, 50_000])
    @pytest.mark.parametrize("most", [500, 7_999])
    def test_more_matches_than_allowed_leave_nothing(
        self, open_store: Open, spark: SparkSession, few: int, most: int
    ) -> None:
        """One partition has more than 500 rows; only all eight have more than 7,999."""
        db = open_store(few=few)
        prepare(db)
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        many = spark.range(0, 8_000, 1, 8).selectExpr(
            f"cast({one.stream} AS bigint) AS stream",
            "id + 1 AS publication",
            "cast(NULL AS string) AS page_id",
            "cast(NULL AS bigint) AS page_size",
            "cast(0 AS bigint) AS ordinal",
            "'{}' AS payload",
        )
        executed: list[None] = []
        message = f"^the execution has more than {most:,} results; make the query more selective, or raise exe"
        with pytest.raises(TooManyResults, match=message):
            db.results.store(over(0, 2000), SparkMatches(many, lambda: executed.append(None), most), most=most)
        assert db.results.extent(one.stream) == (1, 0)
        assert db.results.position("alerts") == 0
        assert db.outbox.due("north") == db.results.executions("alerts") == []
        assert db.results.store(over(0, 2000), SparkMatches(many, most=8_000), most=8_000).results == 8_000
        db.close()

    def test_matches_in_memory_are_limited(self, db: ResultStores) -> None:
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        found = computed([row(one.stream, number) for number in range(1, 4)])
        with pytest.raises(TooManyResults, match="more than 2 results"):
            db.results.store(over(0, 3), found, most=2)
        assert db.results.position("alerts") == 0
        assert db.results.store(over(0, 3), found, most=3).results == 3

    def test_times_of_results_never_go_back(self, db: ResultStores) -> None:
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        for number, at_ms in enumerate((500, 300, 700)):
            db.results.store(over(number, number + 1, at_ms), computed([row(one.stream, number + 1)]))
        assert [result.at_ms for result in db.results.read(one.stream)] == [500, 500, 700]
        assert [record.at_ms for record in db.results.executions("alerts")] == [500, 500, 700]
        assert [delivery.at_ms for delivery in db.outbox.due("north", 9)] == [500, 500, 700]

    def test_time_of_execution_is_that_at_which_matches_are_loaded(self, db: ResultStores) -> None:
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        clock = [2000]

        def loading() -> Iterator[pa.RecordBatch]:
            yield from computed([row(one.stream, 1)])
            clock[0] = 5000

        db.results.store(over(0, 1, 1000), loading(), lambda: clock[0])
        assert [result.at_ms for result in db.results.read(one.stream)] == [5000]
        assert [delivery.at_ms for delivery in db.outbox.due("north", 9)] == [5000]

    def test_deliveries_are_those_to_subscriptions_of_all_brokers(self, db: ResultStores) -> None:
        db.outbox.put_broker(Broker("south", "http://south/", "secret"))
        fire, flood = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1, ("flood",): 1}})
        (also,) = db.subscriptions.subscribe("south", {"alerts": {("fire",): 1}})
        rows = [row(fire.stream, 1), row(fire.stream, 2), row(flood.stream, 1)]
        number = db.results.store(over(0, 2), computed(rows)).execution
        north = [(fire.stream, 1, fire.id, "north"), (flood.stream, 1, flood.id, "north")]
        south = (fire.stream, 1, also.id, "south")
        assert db.results.deliveries(number, 1, 10) == [north[0], south, north[1]]
        assert db.results.deliveries(number, 1, 2) == [north[0], south]
        assert db.results.deliveries(number, 3, 10) == []

    def test_execution_record_has_range_and_reached_streams(self, db: ResultStores) -> None:
        fire, flood = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1, ("flood",): 1}})
        first = db.results.store(
            over(0, 4), computed([row(fire.stream, 2), row(flood.stream, 2), row(fire.stream, 4)])
        )
        second = db.results.store(over(4, 5))
        assert [record.number for record in db.results.executions("alerts")] == [
            first.execution,
            second.execution,
        ]
        assert [record.number for record in db.results.executions("alerts", first.execution)] == [second.execution]
        assert db.results.executions("alerts", limit=1)[0].number == first.execution
        for publication, number in ((1, first.execution), (4, first.execution), (5, second.execution)):
            (record,) = db.results.executions("alerts", publication=publication)
            assert record.number == number
        assert (record.dataset, record.after, record.through, record.results) == ("reports", 4, 5, 0)
        assert db.results.executions("alerts", publication=6) == []
        assert db.results.reached(first.execution, 2) == sorted([(fire.stream, 1), (flood.stream, 1)])
        assert db.results.reached(first.execution, 4) == [(fire.stream, 2)]
        assert db.results.reached(first.execution, 3) == db.results.reached(99, 1) == []

    def test_concurrent_channels_stay_separate(self, db: ResultStores) -> None:
        streams = {
            name: db.subscriptions.subscribe("north", {name: {(1,): 1}})[0].stream for name in ("alerts", "news")
        }
        failures: list[BaseException] = []

        def execute(channel: str) -> None:
            try:
                for number in range(20):
                    rows = computed([row(streams[channel], number + 1, f"{channel} {number}")])
                    db.results.store(over(number, number + 1, channel=channel), rows)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=execute, args=(name,)) for name in streams for _ in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Of two threads of a channel one is late: what it repeats is recognized or rejected, never stored.
        assert all(isinstance(failure, ValueError) for failure in failures)
        for channel, stream in streams.items():
            assert payloads(db, stream) == [f"{channel} {number}" for number in range(20)]
        due = db.outbox.due("north", 99)
        assert len(due) == 40
        for delivery in due:
            (moved,) = db.outbox.advances(delivery)
            assert moved.first == moved.position
            assert delivery.channel is not None
            assert moved.subscription == subscription_id(delivery.channel, (1,), "north")

    @settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def test_streams_agree_with_reference_list(self, open_store: Open, data: st.DataObject) -> None:
        db = open_store()
        prepare(db)
        lists: dict[int, list[tuple[int | None, int, str]]] = defaultdict(list)
        known: dict[int, Values] = {}
        position = 0
        results = st.tuples(
            st.integers(0, 20),
            st.none() | st.integers(1, 5),
            st.integers(0, 2),
            st.text("aZé\U0001f600{", max_size=2),
        )
        for _ in range(data.draw(st.integers(1, 6))):
            values = [(number,) for number in data.draw(st.lists(st.integers(0, 3), max_size=3))]
            broker = data.draw(st.sampled_from(["north", "south"]))
            known |= {
                one.stream: one.values
                for one in db.subscriptions.subscribe(broker, {"alerts": dict.fromkeys(values, 1)})
            }
            if data.draw(st.booleans()):
                db.subscriptions.unsubscribe(broker, [one.id for one in list(db.subscriptions.scan(broker))[:1]])
            streams = sorted(known)
            drawn = [
                (streams[which % len(streams)], None if seq is None else position + seq, ordinal, text)
                for which, seq, ordinal, text in data.draw(st.lists(results, max_size=8))
                if streams
            ]
            rows = computed([row(stream, seq, text, ordinal) for stream, seq, ordinal, text in drawn])
            for attempt in range(data.draw(st.integers(1, 2))):
                stored = db.results.store(over(position, position + 5), rows)
                assert (stored.results, stored.repeated) == (len(drawn), attempt > 0)
            position += 5
            for stream, seq, ordinal, text in sorted(
                drawn, key=lambda one: (one[1] is None, *(one[1:] if one[1] else one[2:]))
            ):
                lists[stream].append((seq, ordinal, text))
        for stream in known:
            assert payloads(db, stream) == [text for _, _, text in lists[stream]]
            assert [one.publication for one in db.results.read(stream)] == [seq for seq, _, _ in lists[stream]]
            assert db.results.extent(stream) == (1, len(lists[stream]))
        db.close()

    # Reading and retention

    def test_read_returns_results_between_positions(self, db: ResultStores) -> None:
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        assert db.results.read(one.stream) == []
        assert db.results.extent(one.stream) == db.results.extent(999) == (1, 0)
        db.results.store(over(0, 9), computed([row(one.stream, number) for number in range(1, 10)]))

        def positions(after: int, until: int | None = None, limit: int = 1000) -> list[int]:
            return [result.position for result in db.results.read(one.stream, after, until, limit)]

        assert positions(0) == list(range(1, 10))
        assert positions(3, 5) == [4, 5]
        assert positions(3, limit=2) == [4, 5]
        assert positions(9) == positions(50) == positions(3, 3) == positions(3, limit=0) == []

    def test_retention_by_count_keeps_newest_of_each_stream(self, db: ResultStores) -> None:
        fire, flood = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1, ("flood",): 1}})
        for number in range(5):
            db.results.store(over(number, number + 1), computed([row(fire.stream, number + 1)]))
        db.results.store(over(5, 6), computed([row(flood.stream, 6)]))
        assert db.cleaner.apply_retention("alerts", Retention(count=2), 2000) == 3
        assert db.cleaner.apply_retention("alerts", Retention(count=2), 2000) == 0
        assert db.results.extent(fire.stream) == (4, 5)
        assert db.results.extent(flood.stream) == (1, 1)
        assert [result.position for result in db.results.read(fire.stream, 3)] == [4, 5]
        with pytest.raises(ResultsExpired) as gone:
            db.results.read(fire.stream, 2)
        assert gone.value.earliest == 4
        db.results.store(over(6, 7), computed([row(fire.stream, 7)]))
        assert db.results.extent(fire.stream) == (4, 6)

    def test_retention_by_age_removes_older_results(self, db: ResultStores) -> None:
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        for number in range(4):
            db.results.store(over(number, number + 1, 1000 * number), computed([row(one.stream, number + 1)] * 2))
        assert db.cleaner.apply_retention("alerts", Retention(age_s=2), 4000) == 4
        assert db.cleaner.apply_retention("alerts", Retention(age_s=2), 4000) == 0
        assert db.cleaner.apply_retention("news", Retention(age_s=0), 9999) == 0
        assert db.results.extent(one.stream) == (5, 8)
        with pytest.raises(ResultsExpired):
            db.results.read(one.stream)
        assert db.cleaner.apply_retention("alerts", Retention(age_s=0), 99_000) == 4
        assert db.results.extent(one.stream) == (9, 8)
        with pytest.raises(ResultsExpired) as gone:
            db.results.read(one.stream, 7)
        assert gone.value.earliest == 9
        assert db.results.read(one.stream, 8) == []
        db.results.store(over(4, 5), computed([row(one.stream, 5)]))
        assert [result.position for result in db.results.read(one.stream, 8)] == [9]

    @pytest.mark.parametrize("retention", [Retention(count=3), Retention(age_s=1), Retention(age_s=1, count=1)])
    def test_retention_removes_several_slices(self, db: ResultStores, retention: Retention) -> None:
        fire, flood = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1, ("flood",): 1}})
        rows = [row(one.stream, number) for one in (fire, flood) for number in range(1, 13_001)]
        db.results.store(over(0, 13_000, 1), computed(rows))
        left = 0 if retention.age_s else 3
        assert db.cleaner.apply_retention("alerts", retention, 10_000) == 2 * (13_000 - left)
        assert db.results.extent(fire.stream) == db.results.extent(flood.stream) == (13_001 - left, 13_000)

    def test_deliveries_and_executions_removed_after_day_and_week(self, db: ResultStores) -> None:
        day = 86_400_000
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        kept = db.results.store(over(0, 1, 0), computed([row(one.stream, 1)]))
        db.results.store(over(1, 2, 0))
        (delivery,) = db.outbox.due("north")
        db.outbox.mark_answered(delivery.id, 0)
        db.cleaner.apply_retention("alerts", Retention(), day)
        assert db.cleaner.purge_deliveries(day) == 0
        assert len(db.outbox.entries(kept.execution)) == 1
        assert len(db.results.executions("alerts")) == 2
        db.cleaner.apply_retention("alerts", Retention(), 7 * day + 1)
        assert db.cleaner.purge_deliveries(7 * day + 1) == 1
        assert db.outbox.entries(kept.execution) == []
        assert [record.number for record in db.results.executions("alerts")] == [kept.execution]

    def test_retention_call_is_bounded_and_next_continues(self, open_store: Open) -> None:
        db = open_store(cleanup=CleanupLimits(slice_rows=5, max_slices=2))
        prepare(db)
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        for number in range(12):
            rows = [row(one.stream, number + 1)] * 3 if number % 2 else []
            db.results.store(over(number, number + 1, number), computed(rows))
        for delivery in db.outbox.due("north", 99):
            db.outbox.mark_answered(delivery.id, 0)
        assert [db.cleaner.apply_retention("alerts", Retention(count=2), 0) for _ in range(3)] == [10, 6, 0]
        assert db.results.extent(one.stream) == (17, 18)
        assert sum(db.cleaner.apply_retention("alerts", Retention(age_s=0), 10**12) for _ in range(6)) == 2
        assert db.results.executions("alerts") == []
        assert [db.cleaner.purge_deliveries(10**12) for _ in range(2)] == [6, 0]
        db.close()

    def test_dropped_channel_leaves_nothing(self, db: ResultStores) -> None:
        (old,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        (other,) = db.subscriptions.subscribe("north", {"news": {("fire",): 1}})
        stored = db.results.store(over(0, 1), computed([row(old.stream, 1)]))
        db.results.store(over(0, 1, channel="news"), computed([row(other.stream, 1)]))
        db.results.drop_channel("alerts")
        assert db.results.position("alerts") is None
        assert list(db.subscriptions.scan()) == [other]
        assert db.results.read(old.stream) == []
        assert db.results.executions("alerts") == db.outbox.entries(stored.execution) == []
        assert [delivery.channel for delivery in db.outbox.due("north", 9)] == ["news"]
        assert payloads(db, other.stream) == ["{}"]
        db.results.add_channel("alerts", 7)
        (new,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        assert new.id == old.id
        assert new.stream > old.stream
        db.results.add_channel("alerts", 99)
        assert db.results.position("alerts") == 7

    # Brokers

    def test_brokers_registered_changed_and_removed(self, db: ResultStores) -> None:
        db.outbox.put_broker(Broker("south", "http://elsewhere", "new"))
        assert db.outbox.brokers() == [
            Broker("north", "http://north", "n"),
            Broker("south", "http://elsewhere", "new"),
        ]
        assert db.outbox.broker("south") == Broker("south", "http://elsewhere", "new")
        assert db.outbox.broker("nobody") is None
        (gone,) = db.subscriptions.subscribe("south", {"alerts": {("fire",): 1}})
        (left,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        db.results.store(over(0, 1), computed([row(gone.stream, 1)]))
        assert db.outbox.remove_broker("south") == [gone]
        assert [broker.name for broker in db.outbox.brokers()] == ["north"]
        assert list(db.subscriptions.scan()) == [left]
        assert db.outbox.due("south") == []
        assert db.outbox.remove_broker("nobody") == []

    def test_shared_stream_notified_to_both_brokers(self, db: ResultStores) -> None:
        (north,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 3}})
        south, quiet = db.subscriptions.subscribe("south", {"alerts": {("fire",): 4, ("flood",): 9}})
        rows = [row(north.stream, 1, page="p1"), row(north.stream, 1, ordinal=1, page="p1"), row(north.stream, 2)]
        stored = db.results.store(over(0, 2, 55), computed(rows))
        assert quiet.stream != south.stream
        for one in (north, south):
            (delivery,) = db.outbox.due(one.broker, 9)
            assert delivery == OutboxEntry(delivery.id, one.broker, stored.execution, "alerts", 55, 0)
            assert list(db.outbox.advances(delivery)) == [StreamAdvance(one.id, 1, 3)]
            assert db.outbox.matched_pages(delivery) == [PageOffer("p1", 100, one.frontends)]
            announced = db.outbox.results(delivery, 9, 100)
            assert [(each.subscription, each.frontends, each.position) for each in announced] == [
                (one.id, one.frontends, position) for position in (1, 2, 3)
            ]
            assert [each.result for each in announced] == db.results.read(one.stream)
            assert [each.page and each.page.id for each in announced] == ["p1", "p1", None]
            (first,) = db.outbox.results(delivery, 1, 1)
            assert (first.position, first.result) == (1, None)
        assert [delivery.broker for delivery in db.outbox.entries(stored.execution)] == ["north", "south"]

    def test_matched_page_counts_frontends_of_subscriptions(self, db: ResultStores) -> None:
        fire, flood = db.subscriptions.subscribe("north", {"alerts": {("fire",): 3, ("flood",): 4}})
        rows = [row(fire.stream, 1, page="b"), row(flood.stream, 1, page="b"), row(flood.stream, 2, page="a")]
        db.results.store(over(0, 2), computed(rows))
        (delivery,) = db.outbox.due("north")
        assert db.outbox.matched_pages(delivery) == [PageOffer("a", 100, 4), PageOffer("b", 100, 7)]

    def test_outbox_emptied_in_order(self, db: ResultStores) -> None:
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        for number in range(3):
            db.results.store(over(number, number + 1), computed([row(one.stream, number + 1)]))
        db.results.store(over(3, 4))
        due = db.outbox.due("north", 9)
        assert [delivery.id for delivery in due] == sorted(delivery.id for delivery in due)
        assert [[moved.position for moved in db.outbox.advances(delivery)] for delivery in due] == [
            [1],
            [2],
            [3],
        ]
        assert db.outbox.due("north") == due[:1]
        db.outbox.count_attempt(due[0].id)
        assert db.outbox.due("north")[0].attempts == 1
        db.outbox.mark_answered(due[0].id, 123)
        db.outbox.mark_answered(due[0].id, 456)
        assert db.outbox.due("north", 9) == due[1:]
        assert due[0].execution is not None
        assert [delivery.answered_ms for delivery in db.outbox.entries(due[0].execution)] == [123]

    def test_returning_broker_gets_one_summary(self, db: ResultStores) -> None:
        fire, _, quake = db.subscriptions.subscribe(
            "north", {"alerts": {("fire",): 1, ("flood",): 1, ("quake",): 1}}
        )
        db.results.store(over(0, 1), computed([row(fire.stream, 1)]))
        db.outbox.mark_back("north", 1)
        assert len(db.outbox.due("north", 9)) == 1
        db.outbox.mark_away("north")
        assert db.outbox.is_away("north")
        assert not db.outbox.is_away("south")
        assert db.outbox.due("north") == []
        db.results.store(over(1, 2), computed([row(fire.stream, 2), row(quake.stream, 2)]))
        assert db.outbox.due("north") == []
        db.outbox.mark_back("north", 5000)
        assert not db.outbox.is_away("north")
        (summary,) = db.outbox.due("north", 9)
        assert summary == OutboxEntry(summary.id, "north", None, None, 5000, 0)
        wanted = sorted(
            [StreamAdvance(fire.id, 1, 2), StreamAdvance(quake.id, 1, 1)], key=lambda moved: moved.subscription
        )
        assert list(db.outbox.advances(summary)) == wanted
        assert list(db.outbox.matched_pages(summary)) == db.outbox.results(summary, 9, 100) == []
        db.results.store(over(2, 3), computed([row(fire.stream, 3)]))
        assert [delivery.execution is None for delivery in db.outbox.due("north", 9)] == [True, False]

    # Its life

    def test_stores_complete_after_restart(self, db: ResultStores, open_store: Open) -> None:
        (one,) = db.subscriptions.subscribe("north", {"alerts": {("fire",): 1}})
        db.results.store(over(0, 1), computed([row(one.stream, 1, "kept")]))
        due = db.outbox.due("north")
        db.close()
        again = open_store()
        again.check()
        assert payloads(again, one.stream) == ["kept"]
        assert again.outbox.due("north") == due
        assert again.results.position("alerts") == 1
        assert again.outbox.brokers()[0] == Broker("north", "http://north", "n")
        again.close()

    def test_closed_store_raises(self, db: ResultStores) -> None:
        db.close()
        with pytest.raises(Exception, match="closed"):
            db.check()


def prepare(db: ResultStores) -> None:
    """Create two brokers and two channels."""
    for channel in ("alerts", "news"):
        db.results.drop_channel(channel)
        db.results.add_channel(channel, 0)
    for broker in ("north", "south"):
        db.outbox.remove_broker(broker)
        db.outbox.put_broker(Broker(broker, f"http://{broker}", broker[0]))
