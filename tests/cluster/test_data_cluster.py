"""The data cluster in this process: publications, subscriptions, matching, notifications and audits."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.cluster.in_process import ClusterUnderTest, Record, opened
from support.cluster.webhooks import receiving
from support.waiting import eventually

from newsstand.cluster import definitions
from newsstand.cluster import subscriptions as subscribers
from newsstand.cluster.catalog import Conflict, Exists
from newsstand.cluster.matching import executor as executions
from newsstand.cluster.matching.matcher import check_body
from newsstand.cluster.query.parser import Body
from newsstand.cluster.service import ClusterLimits
from newsstand.errors import BadInput, BadQuery, BadValues, Busy, NotFound, ResultsExpired
from newsstand.model import ChannelDefinition, Dataset, Field, GivenValues, Values, parse_values

APP = """
[datasets.reports]
fields = { id = "string", kind = "string", lat = "double?", lon = "double?", size = "integer?" }

[datasets.shelters]
key = "name"
fields = { name = "string", lat = "double", lon = "double" }

[channels.of_kind]
parameters = { kind = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"

[channels.often]
period = "300ms"
parameters = { kind = "string" }
retention = { count = 2 }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"

[channels.sheltered]
period = "300ms"
parameters = { kind = "string" }
query = '''
SELECT r.id, s.name AS shelter FROM reports r JOIN shelters s ON distance_km(r.lat, r.lon, s.lat, s.lon) < 3
WHERE r.kind = :kind
'''

[channels.pushed]
parameters = { kind = "string" }
delivery = "push"
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"
"""

SELDOM = """
[datasets.reports]
fields = { id = "string", kind = "string" }

[channels.seldom]
period = "1h"
parameters = { kind = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"

[cluster]
max_lag = 2
"""


@pytest.fixture(scope="module")
def here(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    with opened(tmp_path_factory.mktemp("cluster"), APP, spark) as one:
        yield one


@pytest.fixture(scope="module")
def seldom(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """A cluster whose only channel is not executed during the test."""
    with opened(tmp_path_factory.mktemp("seldom"), SELDOM, spark) as one:
        yield one


# Matching


@pytest.mark.parametrize("channel", ["of_kind", "often"])
def test_publication_reaches_its_subscriptions(here: ClusterUnderTest, channel: str) -> None:
    flood, snow = here.subscribe(channel, f"{channel} flood", f"{channel} snow")
    here.publish({"id": "a", "kind": f"{channel} flood"}, {"id": "b", "kind": "fire"})
    here.settle()
    here.publish({"id": "c", "kind": f"{channel} flood"})
    assert here.payloads(flood) == [{"id": "a"}, {"id": "c"}]
    assert here.payloads(snow) == []
    assert here.cluster.subscriptions.extent(snow.id) == (1, 0)
    assert here.cluster.ready() == []


def test_subscription_takes_effect_at_next_execution(here: ClusterUnderTest) -> None:
    here.publish({"id": "early", "kind": "hail"})
    here.settle()
    (hail,) = here.subscribe("of_kind", "hail")
    here.publish({"id": "first", "kind": "hail"})
    assert here.payloads(hail) == [{"id": "first"}]
    assert here.cluster.subscriptions.unsubscribe("north", [hail.id, "unknown"]) == 1
    here.publish({"id": "unheard", "kind": "hail"})
    here.settle()
    with pytest.raises(NotFound, match="no subscription"):
        here.cluster.subscriptions.read(hail.id, 0, None, 10)
    (again,) = here.subscribe("of_kind", "hail")
    here.publish({"id": "second", "kind": "hail"})
    assert again == hail
    assert here.payloads(again) == [{"id": "first"}, {"id": "second"}], "its numbers continue"


def test_equal_values_of_two_brokers_share_stream(here: ClusterUnderTest) -> None:
    (north,) = here.subscribe("of_kind", "shared", broker="north")
    (south,) = here.subscribe("of_kind", "shared", broker="south", frontends=7)
    assert north.stream == south.stream
    assert north.id != south.id
    here.publish({"id": "x", "kind": "shared"})
    assert here.payloads(north) == here.payloads(south) == [{"id": "x"}]
    here.cluster.subscriptions.remove_broker("south")
    here.publish({"id": "y", "kind": "shared"})
    assert here.payloads(north) == [{"id": "x"}, {"id": "y"}]
    with pytest.raises(NotFound, match="no broker 'south'"):
        here.cluster.subscriptions.broker_status("south")


def test_hundreds_of_subscriptions_each_get_own_results(here: ClusterUnderTest) -> None:
    kinds = [f"kind {number}" for number in range(300)]
    made = here.subscribe("of_kind", *kinds)
    assert [one.values for one in made] == [(kind,) for kind in kinds]
    here.publish(*({"id": kind.upper(), "kind": kind} for kind in reversed(kinds)))
    here.settle()
    found = [here.cluster.subscriptions.read(one.id, 0, None, 10) for one in made]
    assert [[json.loads(bytes(result.payload))["id"] for result in results] for results in found] == [
        [kind.upper()] for kind in kinds
    ]
    listed = here.cluster.subscriptions.of_broker("north", "", 10_000)
    assert {one.id for one in made} <= {one.id for one in listed}
    assert [one.id for one in listed] == sorted(one.id for one in listed)


def test_subscribe_is_atomic(here: ClusterUnderTest) -> None:
    before = here.cluster.definitions.channel_status("of_kind")["subscriptions"]
    with pytest.raises(BadValues, match="7 is not a string"):
        here.cluster.subscriptions.subscribe(
            "north", [("of_kind", {"kind": "good"}, 1), ("of_kind", {"kind": 7}, 1)]
        )
    with pytest.raises(NotFound, match="no channel 'nowhere'"):
        here.cluster.subscriptions.subscribe("north", [("of_kind", {"kind": "good"}, 1), ("nowhere", {}, 1)])
    assert here.cluster.definitions.channel_status("of_kind")["subscriptions"] == before


def test_values_checked_against_current_channel(here: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop the channel and create it with another parameter, just after values were parsed."""
    query = "SELECT r.id FROM reports r WHERE r.{0} = :{0}"
    here.define("shifting", query=query.format("kind"))
    here.subscribe("of_kind", "unshifted")

    def judge_and_shift(channel: ChannelDefinition, given: GivenValues) -> Values:
        monkeypatch.undo()
        values = parse_values(channel, given)
        here.cluster.definitions.drop_channel("shifting")
        here.define("shifting", query=query.format("size"), parameters={"size": "integer"})
        return values

    monkeypatch.setattr(subscribers, "parse_values", judge_and_shift)
    with pytest.raises(BadValues, match="'text' is not an integer"):
        here.cluster.subscriptions.subscribe("north", [("shifting", ["text"], 1), ("of_kind", ["unheard"], 1)])
    assert here.cluster.definitions.channel_status("shifting")["subscriptions"] == 0
    here.cluster.definitions.drop_channel("shifting")


# Stored data


def test_keyed_dataset_joined_at_time_of_execution(here: ClusterUnderTest) -> None:
    (wind,) = here.subscribe("sheltered", "wind")
    here.publish(
        {"name": "gym", "lat": 1.0, "lon": 1.0}, {"name": "far", "lat": 5.0, "lon": 5.0}, dataset="shelters"
    )
    here.publish({"id": "a", "kind": "wind", "lat": 1.0, "lon": 1.01})
    assert here.payloads(wind) == [{"id": "a", "shelter": "gym"}]
    here.publish(
        {"name": "gym", "lat": 9.0, "lon": 9.0}, {"name": "hall", "lat": 1.0, "lon": 1.0}, dataset="shelters"
    )
    here.publish({"id": "b", "kind": "wind", "lat": 1.0, "lon": 1.01})
    assert here.payloads(wind) == [{"id": "a", "shelter": "gym"}, {"id": "b", "shelter": "hall"}]


def test_cluster_continues_after_restart(spark: SparkSession, tmp_path: Path) -> None:
    with opened(tmp_path, APP, spark) as before:
        (wind,) = before.subscribe("sheltered", "wind")
        before.publish({"name": "gym", "lat": 1.0, "lon": 1.0}, dataset="shelters")
        before.publish({"id": "a", "kind": "wind", "lat": 1.0, "lon": 1.0})
        assert before.payloads(wind) == [{"id": "a", "shelter": "gym"}]
        before.define("made", query="SELECT r.id FROM reports r WHERE r.kind = :kind", period="300ms")
        (made,) = before.subscribe("made", "wind")
    with opened(tmp_path, APP, spark) as after:
        after.publish({"id": "b", "kind": "wind", "lat": 1.0, "lon": 1.0})
        assert after.payloads(wind) == [{"id": "a", "shelter": "gym"}, {"id": "b", "shelter": "gym"}]
        assert after.payloads(made) == [{"id": "b"}], "also a channel that was created while it ran"


def test_undeclared_channel_dropped_and_name_starts_again(spark: SparkSession, tmp_path: Path) -> None:
    notes = '[channels.notes]\nperiod = "300ms"\nparameters = {kind = "string"}\n'
    notes += 'query = "SELECT r.id FROM reports r WHERE r.kind = :kind"\n'
    with opened(tmp_path, APP + notes, spark) as before:
        (rain,) = before.subscribe("notes", "rain")
        before.publish({"id": "a", "kind": "rain"})
        assert before.payloads(rain) == [{"id": "a"}]
    with opened(tmp_path, APP, spark) as without, pytest.raises(NotFound):
        without.cluster.subscriptions.get(rain.id)
    with opened(tmp_path, APP + notes, spark) as again:
        (rain,) = again.subscribe("notes", "rain")
        again.publish({"id": "b", "kind": "rain"})
        assert again.payloads(rain) == [{"id": "b"}]


# Channels and datasets that change while it runs


@pytest.mark.parametrize("when", [{}, {"period": "300ms"}], ids=["continuous", "repetitive"])
def test_channel_starts_with_next_publication_changes_and_is_dropped(here: ClusterUnderTest, when: Record) -> None:
    early = here.publish({"id": "early", "kind": "new"})
    here.define("later", query="SELECT r.id FROM reports r WHERE r.kind = :kind", **when)
    (new,) = here.subscribe("later", "new")
    here.publish({"id": "late", "kind": "new"})
    assert here.payloads(new) == [{"id": "late"}]
    assert here.state(early, "later") == {"channel": "later", "state": "published before the channel began"}
    here.define("later", query="SELECT upper(r.id) AS id FROM reports r WHERE r.kind = :kind", **when)
    here.publish({"id": "changed", "kind": "new"})
    assert here.payloads(new) == [{"id": "late"}, {"id": "CHANGED"}]
    with pytest.raises(Conflict, match=r"channels.later.parameters: were \(kind string\) and cannot become"):
        here.define(
            "later", query="SELECT r.id FROM reports r WHERE r.kind = :sort", parameters={"sort": "string"}
        )
    here.cluster.definitions.drop_channel("later")
    with pytest.raises(NotFound, match="no channel 'later'"):
        here.cluster.definitions.channel_status("later")
    with pytest.raises(NotFound, match="no subscription"):
        here.cluster.subscriptions.get(new.id)


def test_query_rejected_by_spark_changes_nothing(here: ClusterUnderTest) -> None:
    before = here.cluster.catalog.channel("of_kind")
    with pytest.raises(BadQuery, match=r"channels.of_kind.query: .*"):
        here.define("of_kind", query="SELECT abs(array(r.id)) AS x FROM reports r WHERE r.kind = :kind")
    assert here.cluster.catalog.channel("of_kind") == before
    (still,) = here.subscribe("of_kind", "still")
    here.publish({"id": "x", "kind": "still"})
    assert here.payloads(still) == [{"id": "x"}]


def test_analysis_of_query_blocks_no_other_call(here: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a dataset changes meanwhile, the query is analysed again."""
    seen = []

    def slowly(spark: SparkSession, body: Body, datasets: Mapping[str, Dataset]) -> object:
        seen.append(datasets["reports"])
        with ThreadPoolExecutor(1) as other:
            other.submit(here.subscribe, "of_kind", "meanwhile").result(20)
            if len(seen) == 1:
                reports = here.cluster.catalog.dataset("reports")
                wider = replace(reports, fields=(*reports.fields, Field("seen", "boolean", optional=True)))
                other.submit(here.cluster.definitions.put_dataset, wider).result(60)
        return check_body(spark, body, datasets)

    monkeypatch.setattr(definitions, "check_body", slowly)
    here.define("slow", query="SELECT r.id FROM reports r WHERE r.kind = :kind")
    assert [one == here.cluster.catalog.dataset("reports") for one in seen] == [False, True]
    with pytest.raises(Exists, match="'slow' exists already"):
        here.cluster.definitions.put_channel(here.cluster.catalog.channel("slow"), only_new=True)
    here.cluster.definitions.drop_channel("slow")


def test_dataset_created_used_and_dropped(here: ClusterUnderTest) -> None:
    reports = here.cluster.catalog.dataset("reports")
    notes = replace(reports, name="notes", fields=(Field("id", "string"), Field("kind", "string")))
    here.cluster.definitions.put_dataset(notes)
    here.define("noted", query="SELECT n.id FROM notes n WHERE n.kind = :kind", new="notes")
    (one,) = here.subscribe("noted", "memo")
    here.publish({"id": "n1", "kind": "memo"}, dataset="notes")
    assert here.payloads(one) == [{"id": "n1"}]
    wider = replace(notes, fields=(*notes.fields, Field("author", "string", optional=True)))
    here.cluster.definitions.put_dataset(wider)
    here.define("noted", query="SELECT n.id, n.author FROM notes n WHERE n.kind = :kind", new="notes")
    here.publish({"id": "n2", "kind": "memo", "author": "me"}, dataset="notes")
    assert here.payloads(one) == [{"id": "n1"}, {"id": "n2", "author": "me"}]
    with pytest.raises(Conflict, match="channel 'noted' reads it"):
        here.cluster.definitions.drop_dataset("notes")
    here.cluster.definitions.drop_channel("noted")
    here.cluster.definitions.drop_dataset("notes")
    with pytest.raises(NotFound, match="no dataset 'notes'"):
        here.publish({"id": "n3", "kind": "memo"}, dataset="notes")


# Pages, notification, retention


def test_page_stored_and_offered_to_matching_brokers(here: ClusterUnderTest) -> None:
    with receiving(broker="paged") as receiver:
        receiver.secret = here.cluster.subscriptions.register_broker("paged", receiver.url).secret
        assert here.cluster.subscriptions.register_broker("paged", receiver.url).secret == "", "returned once"
        (art,) = here.subscribe("of_kind", "art", broker="paged", frontends=5)
        (same,) = here.subscribe("pushed", "art", broker="paged", frontends=3)
        here.publish({"id": "p", "kind": "art", "_page": {"text": "<p>Hé</p>", "type": "text/html"}})
        here.settle()
        (result,) = here.cluster.subscriptions.read(art.id, 0, None, 10)
        assert result.page is not None
        eventually(lambda: len(receiver.received) == 2)
        notified = {str(one["channel"]): one for one in receiver.received}
        page = {"page": result.page.id, "size": 10}
        assert notified["of_kind"]["pages"] == [page | {"subscriptions": 5}]
        assert notified["pushed"]["pages"] == [page | {"subscriptions": 3}]
        for channel, subscription in (("of_kind", art), ("pushed", same)):
            (stream,) = notified[channel]["streams"]  # type: ignore[misc]
            assert (stream["subscription"], stream["position"]) == (subscription.id, 1)  # type: ignore[index]
            assert [one["payload"] for one in stream["results"]] == [{"id": "p"}]  # type: ignore[index]
        eventually(lambda: here.cluster.subscriptions.broker_status("paged")["pending"] == 0)
        here.cluster.subscriptions.remove_broker("paged")
    found = here.cluster.pages.get(result.page.id)
    assert (found.type, here.cluster.pages.file(found.id).read_text()) == ("text/html", "<p>Hé</p>")
    with pytest.raises(NotFound, match="no page"):
        here.cluster.pages.get("0" * 32)


def test_results_removed_by_retention_raise_expired(here: ClusterUnderTest) -> None:
    (rain,) = here.subscribe("often", "rain")
    here.publish(*({"id": str(number), "kind": "rain"} for number in range(5)))
    here.settle()
    here.cluster.remove_expired()  # the chore of every half minute, done now
    assert here.cluster.subscriptions.extent(rain.id) == (4, 5)
    with pytest.raises(ResultsExpired) as gone:
        here.cluster.subscriptions.read(rain.id, 0, None, 10)
    assert gone.value.earliest == 4
    assert [one.position for one in here.cluster.subscriptions.read(rain.id, 3, None, 10)] == [4, 5]


# Faults


def test_failing_channel_stops_no_other_and_catches_up(
    here: ClusterUnderTest, capfd: pytest.CaptureFixture[str]
) -> None:
    query = "SELECT r.id, 1 / r.size AS share FROM reports r WHERE r.kind = :kind"
    here.define("broken", query=query, period="300ms")
    (good,) = here.subscribe("of_kind", "odd")
    (broken,) = here.subscribe("broken", "odd")
    seq = here.publish({"id": "zero", "kind": "odd", "size": 0})
    assert here.payloads(good) == [{"id": "zero"}]
    eventually(lambda: here.cluster.definitions.channel_status("broken")["failing"] is not None)
    state = here.state(seq, "broken")
    assert state["state"] == "failing"
    assert "DIVIDE_BY_ZERO" in str(state["error"])
    assert "DIVIDE_BY_ZERO" in str(here.cluster.definitions.explain("broken")["recent"])
    here.define("broken", query=query.replace("1 / r.size", "try_divide(1, r.size)"), period="300ms")
    eventually(lambda: here.cluster.definitions.channel_status("broken")["lag"] == 0)
    assert here.payloads(broken) == [{"id": "zero", "share": None}]
    assert here.state(seq, "broken")["state"] == "evaluated"
    here.cluster.definitions.drop_channel("broken")
    assert capfd.readouterr().err == "", "the reason is in the status and not repeated in the log"


def test_malformed_record_does_not_stop_others(here: ClusterUnderTest) -> None:
    (mud,) = here.subscribe("of_kind", "mud")
    body = b'{"id":"a","kind":"mud"}\n{"id":1,"kind":"mud"}\nnonsense\n{"id":"b","kind":"mud"}\n'
    receipt = here.cluster.publications.publish("reports", body, "ndjson", "mud-1")
    assert receipt.accepted == 2
    assert [one.index for one in receipt.rejected] == [1, 2]
    again = here.cluster.publications.publish("reports", body, "ndjson", "mud-1")
    assert (again.repeated, again.first, again.last) == (True, receipt.first, receipt.last)
    assert here.payloads(mud) == [{"id": "a"}, {"id": "b"}]
    nothing = here.cluster.publications.publish("reports", b"[{}]", "json", None)
    assert (nothing.accepted, nothing.first, len(nothing.rejected)) == (0, None, 1)
    with pytest.raises(BadInput, match="body: "):
        here.cluster.publications.publish("reports", b"{", "json", None)
    with pytest.raises(NotFound, match="no dataset 'nowhere'"):
        here.cluster.publications.publish("nowhere", b"{}", "json", None)


def test_idempotency_key_is_separate_for_publishers(here: ClusterUnderTest) -> None:
    body = b'{"id":"a","kind":"ice"}'
    gate = here.cluster.publications.publish("reports", body, "json", "ice-1", "gate")
    port = here.cluster.publications.publish("reports", body, "json", "ice-1", "port")
    assert (gate.repeated, port.repeated) == (False, False)
    assert gate.last != port.last
    again = here.cluster.publications.publish("reports", body, "json", "ice-1", "gate")
    assert (again.repeated, again.last) == (True, gate.last)


def test_publish_rejected_while_channel_is_far_behind(seldom: ClusterUnderTest) -> None:
    one = {"id": "a", "kind": "x"}
    assert seldom.cluster.degraded() == []
    last = seldom.publish(one, one, one)
    assert seldom.cluster.definitions.channel_status("seldom")["lag"] == 3
    assert seldom.cluster.degraded() == ["channel seldom is more than 2 publications behind"]
    assert seldom.state(last, "seldom") == {"channel": "seldom", "state": "waiting", "behind": 3}
    with pytest.raises(Busy, match="channel 'seldom' is more than 2 publications behind") as busy:
        seldom.publish(one)
    assert busy.value.after_s > 0
    assert seldom.log.head("reports") == last
    with pytest.raises(NotFound, match=f"no publication {last + 1}; the newest is {last}"):
        seldom.cluster.publications.audit("reports", last + 1)


def test_publish_rejected_while_too_many_bytes_in_flight(spark: SparkSession, tmp_path: Path) -> None:
    with opened(tmp_path, SELDOM, spark, ClusterLimits(published_bytes=50)) as one:
        one.log.free.clear()
        one.log.entered.clear()
        first = threading.Thread(target=one.publish, args=({"id": "held", "kind": "x" * 100},))
        first.start()
        try:
            assert one.log.entered.wait(30), "one body above the limit is accepted alone"
            with pytest.raises(Busy, match="too many bytes are being published at once"):
                one.publish({"id": "rejected", "kind": "x"})
        finally:
            one.log.free.set()
            first.join()
        one.publish({"id": "then", "kind": "x"})


def test_readiness_names_component_and_log_the_reason(
    seldom: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise OSError("no route to db.example.org as user newsstand")

    monkeypatch.setattr(seldom.stores, "check", broken)
    monkeypatch.setattr(
        seldom.cluster.definitions.scheduler, "problems", lambda: ["stream of reports: a secret path"]
    )
    assert seldom.cluster.ready() == ["micro-batches", "results"]
    assert "no route to db.example.org" in caplog.text


def test_health_counts_suspended_streams_without_reading_them(
    seldom: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = seldom.subscribe("seldom", "suspended")
    seldom.stores.subscriptions.suspend("seldom", one.stream, "no number", "first", 1)

    def read(channel: str) -> None:
        raise AssertionError("there may be very many, and anybody may ask for readiness")

    with monkeypatch.context() as patched:
        patched.setattr(seldom.stores.subscriptions, "suspensions", read)
        assert "channel seldom has suspended streams: 1" in seldom.cluster.degraded()
        assert seldom.cluster.definitions.channel_status("seldom")["suspended"] == 1
        assert b'newsstand_channel_suspended_streams{channel="seldom"} 1.0' in seldom.cluster.metrics.text()
    assert seldom.cluster.definitions.resume("seldom") == 1


def test_runaway_tasks_reported_until_ended(seldom: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    going_on = {"task 1", "task 2"}
    monkeypatch.setattr(executions, "end_runaway_tasks", lambda spark, before: set(going_on))

    def status() -> tuple[list[str], bool]:
        degraded = [one for one in seldom.cluster.degraded() if "tasks" in one]
        return degraded, b"newsstand_runaway_tasks 2.0" in seldom.cluster.metrics.text()

    assert status() == ([], False)
    seldom.define("endless", query="SELECT r.id FROM reports r WHERE r.kind = :kind", period="1h")
    running = seldom.cluster.definitions.scheduler.running("endless")
    assert running is not None
    with running.lock:  # as an execution that does not end
        dropping = threading.Thread(target=seldom.cluster.definitions.drop_channel, args=("endless",))
        dropping.start()
        eventually(lambda: status() == (["tasks of cancelled executions that continue to run: 2"], True))
    dropping.join()
    assert seldom.cluster.ready() == []
    going_on = set()
    eventually(lambda: status() == ([], False))


# Audits, explanations and trials


def test_scrape_reuses_count_of_subscriptions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, SELDOM, spark) as one:
        one.subscribe("seldom", "a", "b")
        counted: list[str] = []
        count = one.stores.subscriptions.count

        def counting(channel: str) -> tuple[int, int]:
            counted.append(channel)
            return count(channel)

        monkeypatch.setattr(one.stores.subscriptions, "count", counting)
        for _ in range(3):
            assert 'newsstand_channel_subscriptions{channel="seldom"} 2.0' in one.cluster.metrics.text().decode()
        assert counted == ["seldom"]


def test_audit_lists_reached_streams_and_brokers(here: ClusterUnderTest) -> None:
    with receiving(broker="tracer") as receiver:
        receiver.secret = here.cluster.subscriptions.register_broker("tracer", receiver.url).secret
        (one,) = here.subscribe("of_kind", "traced", broker="tracer")
        seq = here.publish({"id": "t", "kind": "traced"})
        here.settle()
        eventually(lambda: here.cluster.subscriptions.broker_status("tracer")["pending"] == 0)
        state = here.state(seq, "of_kind")
        here.cluster.subscriptions.remove_broker("tracer")
    assert state["state"] == "evaluated"
    assert state["streams"] == [{"stream": one.stream, "position": 1}]
    (entry,) = state["brokers"]  # type: ignore[misc]
    assert entry["broker"] == "tracer"  # type: ignore[index]
    assert entry["answered_at_ms"] is not None  # type: ignore[index]
    assert here.state(seq, "often")["reached"] == 0


def test_explain_describes_channel(here: ClusterUnderTest) -> None:
    (one,) = here.subscribe("of_kind", "explained")
    here.publish({"id": "e", "kind": "explained"})
    assert len(here.payloads(one)) == 1
    facts = here.cluster.definitions.explain("of_kind")
    status = here.cluster.definitions.channel_status("of_kind")
    assert (facts["subscriptions"], facts["streams"]) == (status["subscriptions"], status["streams"])
    assert facts["runs_with"] == ["pushed"]
    plan, recent = facts["plan"], facts["recent"]
    assert isinstance(plan, dict)
    assert isinstance(recent, dict)
    assert ("kind",) in [join["keys"] for join in plan["joins"] if join["values"]]
    assert plan["warnings"] == ()
    assert recent["publications"] == here.log.head("reports")
    assert recent["results"] >= recent["streams"] > 0
    assert recent["bytes"] >= recent["results"] * len('{"id":"e"}')
    json.dumps(facts)


def test_try_channel_stores_nothing(here: ClusterUnderTest) -> None:
    (one,) = here.subscribe("of_kind", "tried")
    last = here.publish({"id": "1", "kind": "tried"}, {"id": "2", "kind": "tried"}, {"id": "3", "kind": "other"})
    assert len(here.payloads(one)) == 2
    other = replace(
        here.cluster.catalog.channel("of_kind"), query="SELECT r.id, r.kind FROM reports r WHERE r.kind = :kind"
    )
    facts = here.cluster.definitions.try_channel(other, [("tried",), ("none",)], last - 2, last)
    assert facts["by_values"] == [{"values": ["tried"], "results": 1}, {"values": ["none"], "results": 0}]
    assert facts["sample"] == [
        {"values": ["tried"], "publication": last - 1, "payload": {"id": "2", "kind": "tried"}}
    ]
    assert len(here.payloads(one)) == 2
