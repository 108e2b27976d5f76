"""What every store of results does: inherited by the tests of each sibling, which say how one is made."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from newsstand.cluster import results_retention
from newsstand.cluster.results import (
    MATCHED,
    Delivery,
    Execution,
    Gone,
    Moved,
    Results,
    Stored,
    Suspended,
    Suspension,
    WantedPage,
)
from newsstand.errors import NotFound
from newsstand.model import Broker, Page, Result, Retention, Subscription, Values, subscription_id

Row = tuple[int, int | None, str | None, int | None, int, str]
Open = Callable[..., Results]

_ARROW = pa.schema(
    [
        ("stream", pa.int64()),
        ("publication", pa.int64()),
        ("page_id", pa.string()),
        ("page_size", pa.int64()),
        ("ordinal", pa.int64()),
        ("payload", pa.string()),
    ]
)


class _Computed:
    """Rows as Spark would hand them over in one piece, for tests of many executions."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def toArrow(self) -> pa.Table:  # noqa: N802
        columns = zip(*self._rows, strict=True) if self._rows else ([] for _ in _ARROW)
        return pa.table(
            [pa.array(list(column), one.type) for column, one in zip(columns, _ARROW, strict=True)], _ARROW
        )


def computed(rows: Sequence[Row]) -> DataFrame:
    return cast(DataFrame, _Computed(rows))


def row(
    stream: int, publication: int | None, payload: str = "{}", ordinal: int = 0, page: str | None = None
) -> Row:
    return (stream, publication, page, None if page is None else 100, ordinal, payload)


def over(after: int, through: int, at_ms: int = 1000, channel: str = "alerts") -> Execution:
    return Execution(channel, "reports", after, through, at_ms)


def payloads(store: Results, stream: int) -> list[str]:
    found = store.read(stream, limit=100_000)
    assert [result.position for result in found] == list(range(1, len(found) + 1))
    return [result.payload for result in found]


class ResultsSuite:
    @pytest.fixture
    def store(self, open_store: Open) -> Iterator[Results]:
        """A store that knows a channel and two brokers."""
        store = open_store()
        prepare(store)
        yield store
        store.close()

    # Streams and subscriptions

    def test_subscribing_makes_stable_ids_and_streams(self, store: Results) -> None:
        made = store.subscribe("north", "alerts", {("fire", 3): 5, ("flood", 1): 1})
        assert [(one.values, one.frontends) for one in made] == [(("fire", 3), 5), (("flood", 1), 1)]
        assert [one.id for one in made] == [subscription_id("alerts", one.values, "north") for one in made]
        assert made[0].stream != made[1].stream
        again = store.subscribe("north", "alerts", {("fire", 3): 2})
        assert again == [Subscription(made[0].id, "alerts", ("fire", 3), "north", made[0].stream, 2)]
        assert store.subscription(made[0].id) == again[0]
        assert store.subscription("nobody") is None
        assert store.count_subscriptions("alerts") == (2, 2)

    def test_values_of_any_kind_and_length_come_back_as_they_were(self, store: Results) -> None:
        wanted: dict[Values, int] = {("é\u0000'\"%s:x",): 1, (1.5, True, -3): 2, ("long " * 5000,): 3, (): 4}
        made = store.subscribe("north", "alerts", wanted)
        assert {one.values: one.frontends for one in made} == wanted
        assert sorted(store.subscriptions(), key=lambda one: one.frontends) == made
        assert dict(store.active_streams("alerts")) == {one.stream: one.values for one in made}

    def test_equal_values_share_a_stream_whoever_asks(self, store: Results) -> None:
        (north,) = store.subscribe("north", "alerts", {("fire",): 1})
        (south,) = store.subscribe("south", "alerts", {("fire",): 1})
        assert north.stream == south.stream
        assert north.id != south.id
        assert store.count_subscriptions("alerts") == (2, 1)

    def test_a_stream_is_kept_when_its_last_subscription_goes(self, store: Results) -> None:
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        store.store(over(0, 1), computed([row(one.stream, 1)]))
        assert store.unsubscribe("south", [one.id]) == []
        assert store.unsubscribe("north", [one.id, "nobody", one.id]) == [one]
        assert list(store.active_streams("alerts")) == []
        (again,) = store.subscribe("north", "alerts", {("fire",): 1})
        assert again == one
        assert store.head(one.stream) == (1, 1)

    def test_subscriptions_are_listed_by_id_from_anywhere(self, store: Results) -> None:
        made = store.subscribe("north", "alerts", {(number,): 1 for number in range(7)})
        made += store.subscribe("south", "alerts", {(0,): 1})
        made += store.subscribe("south", "news", {(0,): 1})
        made.sort(key=lambda one: one.id)
        assert list(store.subscriptions()) == made
        assert list(store.subscriptions(after=made[2].id, limit=3)) == made[3:6]
        assert list(store.subscriptions(broker="south")) == [one for one in made if one.broker == "south"]
        assert list(store.subscriptions("south", "news")) == [one for one in made if one.channel == "news"]

    def test_standings_of_many_are_told_in_one_call(self, store: Results) -> None:
        made = store.subscribe("north", "alerts", {(number,): 1 for number in range(12)})
        (other,) = store.subscribe("south", "alerts", {(0,): 1})
        store.store(over(0, 2), computed([row(made[3].stream, 1), row(made[3].stream, 2)]))
        found = store.standings("north", [*(one.id for one in made), other.id, "nobody"])
        assert {name: (one.stream, one.earliest, one.head) for name, one in found.items()} == {
            one.id: (one.stream, 1, 2 if one is made[3] else 0) for one in made
        }
        assert store.standings("north", []) == {}

    def test_active_streams_are_those_with_subscriptions(self, store: Results) -> None:
        made = store.subscribe("north", "alerts", {(number,): 1 for number in range(5)})
        store.unsubscribe("north", [made[1].id])
        (other,) = store.subscribe("north", "news", {(9,): 1})
        left = sorted((one.stream, one.values) for one in made if one is not made[1])
        assert list(store.active_streams("alerts")) == left
        asked = [made[1].stream, made[3].stream, other.stream, 12345]
        assert list(store.active_streams("alerts", asked)) == [(made[3].stream, (3,))]
        assert list(store.active_streams("alerts", [])) == []

    def test_a_suspended_stream_is_left_out_and_its_brokers_are_told(
        self, store: Results, open_store: Open
    ) -> None:
        bad, good = store.subscribe("north", "alerts", {("abc",): 1, ("1.0",): 1})
        (same,) = store.subscribe("south", "alerts", {("abc",): 1})
        store.store(over(0, 5), computed([row(good.stream, 1)]))
        for delivery in store.due("north"):
            store.told(delivery.id, 1)
        store.suspend("alerts", bad.stream, "no number", "first", 70)
        store.suspend("alerts", bad.stream, "another", "first", 80)
        store.suspend("news", good.stream, "of another channel", "first", 80)
        assert store.suspensions("alerts") == [Suspension(bad.stream, ("abc",), "no number", 70, 5, 2)]
        assert store.suspensions("news") == []
        assert list(store.active_streams("alerts")) == [(good.stream, ("1.0",))]
        assert list(store.active_streams("alerts", [bad.stream])) == []
        assert store.suspended("north") == [Suspended(bad.id, "no number", 70)]
        assert store.suspended("north", "alerts", [good.id]) == store.suspended("north", "news") == []
        assert store.suspended("south", "alerts", [same.id]) == [Suspended(same.id, "no number", 70)]
        for broker in ("north", "south"):
            (due,) = store.due(broker, 10)
            assert (due.execution, due.channel, due.at_ms) == (None, "alerts", 70)
            assert list(store.moved(due)) == list(store.wanted_pages(due)) == []
            store.told(due.id, 90)
        store.subscribe("north", "alerts", {("abc",): 3})
        again = open_store()
        assert len(again.suspensions("alerts")) == 1, "neither another subscription nor a restart resumes it"
        again.close()
        assert store.resume("alerts", 100, besides="first") == []
        assert store.due("north") == []
        assert store.resume("alerts", 100, besides="second") == [bad.stream]
        assert store.suspensions("alerts") == store.suspended("north") == []
        assert [one.channel for one in store.due("south")] == ["alerts"]
        store.suspend("alerts", bad.stream, "no number", "first", 110)
        store.unsubscribe("north", [bad.id])
        assert len(store.suspensions("alerts")) == 1
        store.unsubscribe("south", [same.id])
        assert store.suspensions("alerts") == []
        store.subscribe("north", "alerts", {("abc",): 1})
        assert bad.stream in dict(store.active_streams("alerts"))
        store.suspend("alerts", bad.stream, "no number", "first", 120)
        store.mark_away("north")
        store.forget("alerts")
        assert store.suspended("north") == []

    def test_who_or_what_is_not_known_cannot_be_subscribed(self, store: Results) -> None:
        with pytest.raises(NotFound, match="no channel 'nothing'"):
            store.subscribe("north", "nothing", {(1,): 1})
        with pytest.raises(NotFound, match="no broker 'nobody'"):
            store.subscribe("nobody", "alerts", {(1,): 1})
        assert list(store.subscriptions()) == []

    def test_subscriptions_to_several_channels_are_taken_all_or_none(self, store: Results) -> None:
        with pytest.raises(NotFound, match="no channel 'nothing'"):
            store.subscribe_all("north", {"alerts": {(1,): 1}, "nothing": {(1,): 1}})
        assert list(store.subscriptions()) == list(store.active_streams("alerts")) == []
        made = store.subscribe_all("north", {"news": {("b",): 1, ("a",): 2}, "alerts": {("b",): 3}})
        assert [(one.channel, one.values, one.frontends) for one in made] == [
            ("news", ("b",), 1),
            ("news", ("a",), 2),
            ("alerts", ("b",), 3),
        ]
        assert len({one.stream for one in made}) == 3
        assert sorted(store.subscriptions(), key=lambda one: one.frontends) == made
        assert (store.count_subscriptions("news"), store.count_subscriptions("alerts")) == ((2, 2), (1, 1))
        assert store.subscribe_all("north", {}) == []

    def test_a_dismissed_broker_and_a_forgotten_channel_leave_no_subscription_behind(self, store: Results) -> None:
        """Whether they go before somebody subscribes, afterwards, or at the same time."""

        def subscribe(number: int) -> None:
            for value in range(20):
                with suppress(NotFound):
                    store.subscribe_all("south", {"alerts": {(number, value): 1}, "news": {(number, value): 1}})

        threads = [threading.Thread(target=subscribe, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        store.dismiss("south")
        store.forget("news")
        for thread in threads:
            thread.join()
        assert list(store.subscriptions("south")) == list(store.subscriptions(channel="news")) == []
        assert list(store.active_streams("news")) == []

    def test_thousands_of_subscriptions_come_in_one_call(self, store: Results) -> None:
        made = store.subscribe("north", "alerts", {(f"value {number}",): 1 for number in range(25_000)})
        assert sum(1 for _ in store.subscriptions()) == sum(1 for _ in store.active_streams("alerts")) == 25_000
        assert len(list(store.active_streams("alerts", [one.stream for one in made]))) == 25_000
        assert len(store.unsubscribe("north", [one.id for one in made])) == 25_000
        assert store.count_subscriptions("alerts") == (0, 0)

    # Executions

    def test_results_are_numbered_by_publication_ordinal_and_payload(
        self, store: Results, spark: SparkSession
    ) -> None:
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        stream = one.stream
        rows = [row(stream, None, "last"), row(stream, 2, "e", 1), row(stream, 2, "d", 0), row(stream, 1, "c", 9)]
        rows += [row(stream, 1, "é", 3), row(stream, 1, "a", 3), row(stream, 1, "Z", 3, "page 1")]
        stored = store.store(over(0, 2, 77), spark.createDataFrame(rows, MATCHED))
        assert stored == Stored(stored.execution, 7, 1)
        assert payloads(store, stream) == ["Z", "a", "é", "c", "d", "e", "last"]
        assert store.read(stream, limit=1) == [Result(1, 77, "Z", 1, Page("page 1", 100))]
        assert store.read(stream, after=6) == [Result(7, 77, "last", None, None)]

    def test_an_execution_is_stored_once(self, store: Results) -> None:
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        first = store.store(over(0, 5), computed([row(one.stream, 3)]))
        again = store.store(over(0, 5), computed([row(one.stream, 3), row(one.stream, 4)]))
        assert again == Stored(first.execution, 1, 1, repeated=True)
        assert store.store(over(0, 4), None) == again
        assert store.head(one.stream) == (1, 1)
        assert len(store.due("north", 9)) == 1
        assert len(store.executions("alerts")) == 1

    def test_an_execution_must_follow_the_last(self, store: Results) -> None:
        store.store(over(0, 5), None)
        for after in (4, 6):
            with pytest.raises(ValueError, match="at publication 5"):
                store.store(over(after, 9), None)
        with pytest.raises(ValueError, match="not known"):
            store.store(over(0, 5, channel="nothing"), None)
        assert store.position("alerts") == 5
        assert store.position("nothing") is None

    def test_results_of_a_stream_that_is_not_the_channels_are_refused_whole(self, store: Results) -> None:
        (mine,) = store.subscribe("north", "alerts", {("fire",): 1})
        (other,) = store.subscribe("north", "news", {("fire",): 1})
        with pytest.raises(ValueError, match="1 results are for streams that channel 'alerts' has not"):
            store.store(over(0, 1), computed([row(mine.stream, 1), row(other.stream, 1)]))
        assert store.head(mine.stream) == store.head(other.stream) == (1, 0)
        assert store.position("alerts") == 0
        assert store.due("north") == []

    @pytest.mark.parametrize("few", [0, 50_000])
    def test_a_task_that_fails_leaves_nothing(self, open_store: Open, spark: SparkSession, few: int) -> None:
        store = open_store(few=few)
        prepare(store)
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        fails = spark.range(0, 2000, 1, 2).selectExpr(
            f"cast({one.stream} AS bigint) AS stream",
            "id AS publication",
            "cast(NULL AS string) AS page_id",
            "cast(NULL AS bigint) AS page_size",
            "id AS ordinal",
            "if(id = 1999, cast(raise_error('no more') AS string), 'fine') AS payload",
        )
        with pytest.raises(Exception, match="no more"):
            store.store(over(0, 2000), fails)
        assert store.head(one.stream) == (1, 0)
        assert store.position("alerts") == 0
        fine = spark.createDataFrame([row(one.stream, 1, "fine")], MATCHED)
        assert store.store(over(0, 2000), fine).results == 1
        assert payloads(store, one.stream) == ["fine"]
        store.close()

    def test_many_rows_come_through_many_partitions(self, open_store: Open, spark: SparkSession) -> None:
        store = open_store(few=0)
        prepare(store)
        made = store.subscribe("north", "alerts", {(number,): 1 for number in range(1000)})
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
        stored = store.store(over(0, 100_000), many)
        assert (stored.results, stored.streams) == (100_000, 1000)
        for number in (0, 1, 999):
            assert payloads(store, first + number) == [str(number + 1000 * turn) for turn in range(100)]
        (delivery,) = store.due("north")
        assert list(store.moved(delivery)) == [Moved(one.id, 1, 100) for one in made]
        store.close()

    def test_times_never_go_back(self, store: Results) -> None:
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        for number, at_ms in enumerate((500, 300, 700)):
            store.store(over(number, number + 1, at_ms), computed([row(one.stream, number + 1)]))
        assert [result.at_ms for result in store.read(one.stream)] == [500, 500, 700]
        assert [record.at_ms for record in store.executions("alerts")] == [500, 500, 700]
        assert [delivery.at_ms for delivery in store.due("north", 9)] == [500, 500, 700]

    def test_an_execution_tells_what_it_evaluated_and_reached(self, store: Results) -> None:
        fire, flood = store.subscribe("north", "alerts", {("fire",): 1, ("flood",): 1})
        first = store.store(over(0, 4), computed([row(fire.stream, 2), row(flood.stream, 2), row(fire.stream, 4)]))
        second = store.store(over(4, 5), None)
        assert [record.number for record in store.executions("alerts")] == [first.execution, second.execution]
        assert [record.number for record in store.executions("alerts", first.execution)] == [second.execution]
        assert store.executions("alerts", limit=1)[0].number == first.execution
        for publication, number in ((1, first.execution), (4, first.execution), (5, second.execution)):
            (record,) = store.executions("alerts", publication=publication)
            assert record.number == number
        assert (record.dataset, record.after, record.through, record.results) == ("reports", 4, 5, 0)
        assert store.executions("alerts", publication=6) == []
        assert store.reached(first.execution, 2) == sorted([(fire.stream, 1), (flood.stream, 1)])
        assert store.reached(first.execution, 4) == [(fire.stream, 2)]
        assert store.reached(first.execution, 3) == store.reached(99, 1) == []

    def test_channels_do_not_mix_when_they_are_stored_at_once(self, store: Results) -> None:
        streams = {name: store.subscribe("north", name, {(1,): 1})[0].stream for name in ("alerts", "news")}
        failures: list[BaseException] = []

        def execute(channel: str) -> None:
            try:
                for number in range(20):
                    rows = computed([row(streams[channel], number + 1, f"{channel} {number}")])
                    store.store(over(number, number + 1, channel=channel), rows)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=execute, args=(name,)) for name in streams for _ in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Of two threads of a channel one comes late: what it repeats is told so or refused, never stored.
        assert all(isinstance(failure, ValueError) for failure in failures)
        for channel, stream in streams.items():
            assert payloads(store, stream) == [f"{channel} {number}" for number in range(20)]
        due = store.due("north", 99)
        assert len(due) == 40
        for delivery in due:
            (moved,) = store.moved(delivery)
            assert moved.first == moved.position
            assert delivery.channel is not None
            assert moved.subscription == subscription_id(delivery.channel, (1,), "north")

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def test_streams_are_what_a_plain_list_would_be(self, open_store: Open, data: st.DataObject) -> None:
        store = open_store()
        prepare(store)
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
                one.stream: one.values for one in store.subscribe(broker, "alerts", dict.fromkeys(values, 1))
            }
            if data.draw(st.booleans()):
                store.unsubscribe(broker, [one.id for one in list(store.subscriptions(broker))[:1]])
            streams = sorted(known)
            drawn = [
                (streams[which % len(streams)], None if seq is None else position + seq, ordinal, text)
                for which, seq, ordinal, text in data.draw(st.lists(results, max_size=8))
                if streams
            ]
            rows = computed([row(stream, seq, text, ordinal) for stream, seq, ordinal, text in drawn])
            for attempt in range(data.draw(st.integers(1, 2))):
                stored = store.store(over(position, position + 5), rows)
                assert (stored.results, stored.repeated) == (len(drawn), attempt > 0)
            position += 5
            for stream, seq, ordinal, text in sorted(
                drawn, key=lambda one: (one[1] is None, *(one[1:] if one[1] else one[2:]))
            ):
                lists[stream].append((seq, ordinal, text))
        for stream in known:
            assert payloads(store, stream) == [text for _, _, text in lists[stream]]
            assert [one.publication for one in store.read(stream)] == [seq for seq, _, _ in lists[stream]]
            assert store.head(stream) == (1, len(lists[stream]))
        store.close()

    # Reading and retention

    def test_reading_is_between_positions(self, store: Results) -> None:
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        assert store.read(one.stream) == []
        assert store.head(one.stream) == store.head(999) == (1, 0)
        store.store(over(0, 9), computed([row(one.stream, number) for number in range(1, 10)]))

        def positions(after: int, until: int | None = None, limit: int = 1000) -> list[int]:
            return [result.position for result in store.read(one.stream, after, until, limit)]

        assert positions(0) == list(range(1, 10))
        assert positions(3, 5) == [4, 5]
        assert positions(3, limit=2) == [4, 5]
        assert positions(9) == positions(50) == positions(3, 3) == positions(3, limit=0) == []

    def test_retention_by_count_keeps_the_newest_of_each_stream(self, store: Results) -> None:
        fire, flood = store.subscribe("north", "alerts", {("fire",): 1, ("flood",): 1})
        for number in range(5):
            store.store(over(number, number + 1), computed([row(fire.stream, number + 1)]))
        store.store(over(5, 6), computed([row(flood.stream, 6)]))
        assert store.retain("alerts", Retention(count=2), 2000) == 3
        assert store.retain("alerts", Retention(count=2), 2000) == 0
        assert store.head(fire.stream) == (4, 5)
        assert store.head(flood.stream) == (1, 1)
        assert [result.position for result in store.read(fire.stream, 3)] == [4, 5]
        with pytest.raises(Gone) as gone:
            store.read(fire.stream, 2)
        assert gone.value.earliest == 4
        store.store(over(6, 7), computed([row(fire.stream, 7)]))
        assert store.head(fire.stream) == (4, 6)

    def test_retention_by_age_removes_what_is_older(self, store: Results) -> None:
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        for number in range(4):
            store.store(over(number, number + 1, 1000 * number), computed([row(one.stream, number + 1)] * 2))
        assert store.retain("alerts", Retention(age_s=2), 4000) == 4
        assert store.retain("alerts", Retention(age_s=2), 4000) == 0
        assert store.retain("news", Retention(age_s=0), 9999) == 0
        assert store.head(one.stream) == (5, 8)
        with pytest.raises(Gone):
            store.read(one.stream)
        assert store.retain("alerts", Retention(age_s=0), 99_000) == 4
        assert store.head(one.stream) == (9, 8)
        with pytest.raises(Gone) as gone:
            store.read(one.stream, 7)
        assert gone.value.earliest == 9
        assert store.read(one.stream, 8) == []
        store.store(over(4, 5), computed([row(one.stream, 5)]))
        assert [result.position for result in store.read(one.stream, 8)] == [9]

    @pytest.mark.parametrize("retention", [Retention(count=3), Retention(age_s=1), Retention(age_s=1, count=1)])
    def test_retention_goes_through_more_than_a_slice(self, store: Results, retention: Retention) -> None:
        fire, flood = store.subscribe("north", "alerts", {("fire",): 1, ("flood",): 1})
        rows = [row(one.stream, number) for one in (fire, flood) for number in range(1, 13_001)]
        store.store(over(0, 13_000, 1), computed(rows))
        left = 0 if retention.age_s else 3
        assert store.retain("alerts", retention, 10_000) == 2 * (13_000 - left)
        assert store.head(fire.stream) == store.head(flood.stream) == (13_001 - left, 13_000)

    def test_records_are_kept_a_day_and_a_week(self, store: Results) -> None:
        day = 86_400_000
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        kept = store.store(over(0, 1, 0), computed([row(one.stream, 1)]))
        store.store(over(1, 2, 0), None)
        (delivery,) = store.due("north")
        store.told(delivery.id, 0)
        store.retain("alerts", Retention(), day)
        assert store.tidy(day) == 0
        assert len(store.deliveries(kept.execution)) == 1
        assert len(store.executions("alerts")) == 2
        store.retain("alerts", Retention(), 7 * day + 1)
        assert store.tidy(7 * day + 1) == 1
        assert store.deliveries(kept.execution) == []
        assert [record.number for record in store.executions("alerts")] == [kept.execution]

    def test_a_call_of_retention_comes_to_an_end_and_the_next_goes_on(
        self, store: Results, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(results_retention, "MOST_SLICES", 2)
        monkeypatch.setattr(results_retention, "CHUNK", 5)
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        for number in range(12):
            rows = [row(one.stream, number + 1)] * 3 if number % 2 else []
            store.store(over(number, number + 1, number), computed(rows))
        for delivery in store.due("north", 99):
            store.told(delivery.id, 0)
        assert [store.retain("alerts", Retention(count=2), 0) for _ in range(3)] == [10, 6, 0]
        assert store.head(one.stream) == (17, 18)
        assert sum(store.retain("alerts", Retention(age_s=0), 10**12) for _ in range(6)) == 2
        assert store.executions("alerts") == []
        assert [store.tidy(10**12) for _ in range(2)] == [6, 0]

    def test_a_channel_that_is_forgotten_leaves_nothing(self, store: Results) -> None:
        (old,) = store.subscribe("north", "alerts", {("fire",): 1})
        (other,) = store.subscribe("north", "news", {("fire",): 1})
        stored = store.store(over(0, 1), computed([row(old.stream, 1)]))
        store.store(over(0, 1, channel="news"), computed([row(other.stream, 1)]))
        store.forget("alerts")
        assert store.position("alerts") is None
        assert list(store.subscriptions()) == [other]
        assert store.read(old.stream) == []
        assert store.executions("alerts") == store.deliveries(stored.execution) == []
        assert [delivery.channel for delivery in store.due("north", 9)] == ["news"]
        assert payloads(store, other.stream) == ["{}"]
        store.begin("alerts", 7)
        (new,) = store.subscribe("north", "alerts", {("fire",): 1})
        assert new.id == old.id
        assert new.stream > old.stream
        store.begin("alerts", 99)
        assert store.position("alerts") == 7

    # Brokers

    def test_brokers_are_registered_changed_and_dismissed(self, store: Results) -> None:
        store.register(Broker("south", "http://elsewhere", "new"))
        assert store.brokers() == [
            Broker("north", "http://north", "n"),
            Broker("south", "http://elsewhere", "new"),
        ]
        assert store.broker("south") == Broker("south", "http://elsewhere", "new")
        assert store.broker("nobody") is None
        (gone,) = store.subscribe("south", "alerts", {("fire",): 1})
        (left,) = store.subscribe("north", "alerts", {("fire",): 1})
        store.store(over(0, 1), computed([row(gone.stream, 1)]))
        assert store.dismiss("south") == [gone]
        assert [broker.name for broker in store.brokers()] == ["north"]
        assert list(store.subscriptions()) == [left]
        assert store.due("south") == []
        assert store.dismiss("nobody") == []

    def test_two_brokers_are_told_of_the_stream_that_they_share(self, store: Results) -> None:
        (north,) = store.subscribe("north", "alerts", {("fire",): 3})
        south, quiet = store.subscribe("south", "alerts", {("fire",): 4, ("flood",): 9})
        rows = [row(north.stream, 1, page="p1"), row(north.stream, 1, ordinal=1, page="p1"), row(north.stream, 2)]
        stored = store.store(over(0, 2, 55), computed(rows))
        assert quiet.stream != south.stream
        for one in (north, south):
            (delivery,) = store.due(one.broker, 9)
            assert delivery == Delivery(delivery.id, one.broker, stored.execution, "alerts", 55, 0)
            assert list(store.moved(delivery)) == [Moved(one.id, 1, 3)]
            assert list(store.wanted_pages(delivery)) == [WantedPage("p1", 100, one.frontends)]
        assert [delivery.broker for delivery in store.deliveries(stored.execution)] == ["north", "south"]

    def test_a_page_counts_the_frontends_of_all_its_subscriptions(self, store: Results) -> None:
        fire, flood = store.subscribe("north", "alerts", {("fire",): 3, ("flood",): 4})
        rows = [row(fire.stream, 1, page="b"), row(flood.stream, 1, page="b"), row(flood.stream, 2, page="a")]
        store.store(over(0, 2), computed(rows))
        (delivery,) = store.due("north")
        assert list(store.wanted_pages(delivery)) == [WantedPage("a", 100, 4), WantedPage("b", 100, 7)]

    def test_an_outbox_is_emptied_in_order(self, store: Results) -> None:
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        for number in range(3):
            store.store(over(number, number + 1), computed([row(one.stream, number + 1)]))
        store.store(over(3, 4), None)
        due = store.due("north", 9)
        assert [delivery.id for delivery in due] == sorted(delivery.id for delivery in due)
        assert [[moved.position for moved in store.moved(delivery)] for delivery in due] == [[1], [2], [3]]
        assert store.due("north") == due[:1]
        store.attempted(due[0].id)
        assert store.due("north")[0].attempts == 1
        store.told(due[0].id, 123)
        store.told(due[0].id, 456)
        assert store.due("north", 9) == due[1:]
        assert due[0].execution is not None
        assert [delivery.told_ms for delivery in store.deliveries(due[0].execution)] == [123]

    def test_a_broker_that_was_away_gets_one_summary(self, store: Results) -> None:
        fire, _, quake = store.subscribe("north", "alerts", {("fire",): 1, ("flood",): 1, ("quake",): 1})
        store.store(over(0, 1), computed([row(fire.stream, 1)]))
        store.mark_back("north", 1)
        assert len(store.due("north", 9)) == 1
        store.mark_away("north")
        assert store.away("north")
        assert not store.away("south")
        assert store.due("north") == []
        store.store(over(1, 2), computed([row(fire.stream, 2), row(quake.stream, 2)]))
        assert store.due("north") == []
        store.mark_back("north", 5000)
        assert not store.away("north")
        (summary,) = store.due("north", 9)
        assert summary == Delivery(summary.id, "north", None, None, 5000, 0)
        wanted = sorted([Moved(fire.id, 1, 2), Moved(quake.id, 1, 1)], key=lambda moved: moved.subscription)
        assert list(store.moved(summary)) == wanted
        assert list(store.wanted_pages(summary)) == []
        store.store(over(2, 3), computed([row(fire.stream, 3)]))
        assert [delivery.execution is None for delivery in store.due("north", 9)] == [True, False]

    # Its life

    def test_all_is_there_after_a_restart(self, store: Results, open_store: Open) -> None:
        (one,) = store.subscribe("north", "alerts", {("fire",): 1})
        store.store(over(0, 1), computed([row(one.stream, 1, "kept")]))
        due = store.due("north")
        store.close()
        again = open_store()
        again.check()
        assert payloads(again, one.stream) == ["kept"]
        assert again.due("north") == due
        assert again.position("alerts") == 1
        assert again.brokers()[0] == Broker("north", "http://north", "n")
        again.close()

    def test_a_store_that_is_closed_says_so(self, store: Results) -> None:
        store.close()
        with pytest.raises(Exception, match="closed"):
            store.check()


def prepare(store: Results) -> None:
    """Forget what was there; make two brokers and two channels known."""
    for channel in ("alerts", "news"):
        store.forget(channel)
        store.begin(channel, 0)
    for broker in ("north", "south"):
        store.dismiss(broker)
        store.register(Broker(broker, f"http://{broker}", broker[0]))
