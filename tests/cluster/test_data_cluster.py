"""The data cluster in this process: what is published, subscribed to, matched, kept, told and traced."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from webhooks import receiving

from newsstand.cluster import definitions, publications, subscribers
from newsstand.cluster.app_folder import App, read_app
from newsstand.cluster.body import Body, parse_channel
from newsstand.cluster.catalog import Conflict, Exists
from newsstand.cluster.data_cluster import DataCluster
from newsstand.cluster.facade import Given
from newsstand.cluster.log import Appended
from newsstand.cluster.log_files import FileLog
from newsstand.cluster.matching import check_body
from newsstand.cluster.results import Gone
from newsstand.cluster.results_sqlite import SqliteResults
from newsstand.errors import BadInput, BadQuery, BadValues, Busy, NotFound
from newsstand.model import Channel, Dataset, Field, Subscription, Values
from newsstand.values import parse_values

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

NOWHERE = "http://127.0.0.1:9/"
Record = dict[str, object]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def eventually(true: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


class HeldLog(FileLog):
    """A log whose appends wait while `held` is set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.free = threading.Event()
        self.free.set()
        self.entered = threading.Event()

    def append(
        self,
        dataset: str,
        lines: Sequence[bytes],
        at_ms: int,
        key: str | None = None,
        publisher: str | None = None,
    ) -> Appended:
        self.entered.set()
        assert self.free.wait(30)
        return super().append(dataset, lines, at_ms, key, publisher)


class Opened:
    """A cluster that runs, and short words for what tests ask of it."""

    def __init__(self, app: App, spark: SparkSession) -> None:
        app.data.mkdir(exist_ok=True)
        self.log = HeldLog(app.data / "log")
        self.results = SqliteResults(app.data / "results.sqlite")
        self.cluster = DataCluster(app, spark, self.log, self.results, app.data, now_ms)

    def publish(self, *records: Record, dataset: str = "reports") -> int:
        """Publish records; the number of the last."""
        receipt = self.cluster.publish(dataset, json.dumps(records).encode(), "json", None)
        assert receipt.refused == []
        assert receipt.last is not None
        return receipt.last

    def settle(self) -> None:
        """Wait until every channel has seen all that was published, but for those that fail."""

        def settled() -> bool:
            states = [self.cluster.channel_status(one.name) for one in self.cluster.channels()]
            return all(state["lag"] == 0 or state["failing"] for state in states)

        eventually(settled)

    def subscribe(
        self, channel: str, *kinds: str, broker: str = "north", frontends: int = 1
    ) -> list[Subscription]:
        if broker not in {one.name for one in self.cluster.brokers()}:
            self.cluster.register_broker(broker, NOWHERE)
        return self.cluster.subscribe(broker, [(channel, {"kind": kind}, frontends) for kind in kinds])

    def payloads(self, subscription: Subscription) -> list[Record]:
        self.settle()
        found = self.cluster.results(subscription.id, 0, None, 1000)
        assert [one.position for one in found] == list(range(1, len(found) + 1))
        return [json.loads(one.payload) for one in found]

    def define(self, name: str, **table: object) -> None:
        datasets = self.cluster.catalog.datasets()
        self.cluster.put_channel(parse_channel(name, {"parameters": {"kind": "string"}, **table}, datasets, {}))

    def state(self, seq: int, channel: str) -> Record:
        listed = self.cluster.trace("reports", seq)["channels"]
        assert isinstance(listed, list)
        (state,) = [one for one in listed if one["channel"] == channel]
        return dict(state)


@contextmanager
def opened(folder: Path, text: str, spark: SparkSession) -> Iterator[Opened]:
    (folder / "newsstand.toml").write_text(text)
    one = Opened(read_app(folder), spark)
    one.cluster.start()
    try:
        yield one
    finally:
        one.cluster.stop()
        one.results.close()
        one.log.close()


@pytest.fixture(scope="module")
def here(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with opened(tmp_path_factory.mktemp("cluster"), APP, spark) as one:
        yield one


@pytest.fixture(scope="module")
def seldom(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """A cluster whose one channel is executed so seldom that it never is."""
    with opened(tmp_path_factory.mktemp("seldom"), SELDOM, spark) as one:
        yield one


# Matching


@pytest.mark.parametrize("channel", ["of_kind", "often"])
def test_what_is_published_reaches_who_subscribed_to_it(here: Opened, channel: str) -> None:
    flood, snow = here.subscribe(channel, f"{channel} flood", f"{channel} snow")
    here.publish({"id": "a", "kind": f"{channel} flood"}, {"id": "b", "kind": "fire"})
    here.settle()
    here.publish({"id": "c", "kind": f"{channel} flood"})
    assert here.payloads(flood) == [{"id": "a"}, {"id": "c"}]
    assert here.payloads(snow) == []
    assert here.cluster.extent(snow.id) == (1, 0)
    assert here.cluster.ready() == []


def test_subscriptions_count_from_the_next_execution_on(here: Opened) -> None:
    here.publish({"id": "early", "kind": "hail"})
    here.settle()
    (hail,) = here.subscribe("of_kind", "hail")
    here.publish({"id": "first", "kind": "hail"})
    assert here.payloads(hail) == [{"id": "first"}]
    assert here.cluster.unsubscribe("north", [hail.id, "unknown"]) == 1
    here.publish({"id": "unheard", "kind": "hail"})
    here.settle()
    with pytest.raises(NotFound, match="no subscription"):
        here.cluster.results(hail.id, 0, None, 10)
    (again,) = here.subscribe("of_kind", "hail")
    here.publish({"id": "second", "kind": "hail"})
    assert again == hail
    assert here.payloads(again) == [{"id": "first"}, {"id": "second"}], "its numbers go on"


def test_equal_values_of_two_brokers_share_one_stream(here: Opened) -> None:
    (north,) = here.subscribe("of_kind", "shared", broker="north")
    (south,) = here.subscribe("of_kind", "shared", broker="south", frontends=7)
    assert north.stream == south.stream
    assert north.id != south.id
    here.publish({"id": "x", "kind": "shared"})
    assert here.payloads(north) == here.payloads(south) == [{"id": "x"}]
    here.cluster.dismiss_broker("south")
    here.publish({"id": "y", "kind": "shared"})
    assert here.payloads(north) == [{"id": "x"}, {"id": "y"}]
    with pytest.raises(NotFound, match="no broker 'south'"):
        here.cluster.broker_status("south")


def test_hundreds_of_subscriptions_in_one_call_each_get_their_own(here: Opened) -> None:
    kinds = [f"kind {number}" for number in range(300)]
    made = here.subscribe("of_kind", *kinds)
    assert [one.values for one in made] == [(kind,) for kind in kinds]
    here.publish(*({"id": kind.upper(), "kind": kind} for kind in reversed(kinds)))
    here.settle()
    found = [here.cluster.results(one.id, 0, None, 10) for one in made]
    assert [[json.loads(result.payload)["id"] for result in results] for results in found] == [
        [kind.upper()] for kind in kinds
    ]
    listed = here.cluster.subscriptions("north", "", 10_000)
    assert {one.id for one in made} <= {one.id for one in listed}
    assert [one.id for one in listed] == sorted(one.id for one in listed)


def test_subscriptions_are_taken_all_or_none(here: Opened) -> None:
    before = here.cluster.channel_status("of_kind")["subscriptions"]
    with pytest.raises(BadValues, match="7 is not a string"):
        here.cluster.subscribe("north", [("of_kind", {"kind": "good"}, 1), ("of_kind", {"kind": 7}, 1)])
    with pytest.raises(NotFound, match="no channel 'nowhere'"):
        here.cluster.subscribe("north", [("of_kind", {"kind": "good"}, 1), ("nowhere", {}, 1)])
    assert here.cluster.channel_status("of_kind")["subscriptions"] == before


def test_values_are_judged_by_the_channel_that_there_is_when_they_are_taken(
    here: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is dropped and made anew with another parameter, just after a subscription to it was judged."""
    query = "SELECT r.id FROM reports r WHERE r.{0} = :{0}"
    here.define("shifting", query=query.format("kind"))
    here.subscribe("of_kind", "unshifted")

    def judge_and_shift(channel: Channel, given: Given) -> Values:
        monkeypatch.undo()
        values = parse_values(channel, given)
        here.cluster.drop_channel("shifting")
        here.define("shifting", query=query.format("size"), parameters={"size": "integer"})
        return values

    monkeypatch.setattr(subscribers, "parse_values", judge_and_shift)
    with pytest.raises(BadValues, match="'text' is not an integer"):
        here.cluster.subscribe("north", [("shifting", ["text"], 1), ("of_kind", ["unheard"], 1)])
    assert here.cluster.channel_status("shifting")["subscriptions"] == 0
    here.cluster.drop_channel("shifting")


# Stored data


def test_a_keyed_dataset_is_joined_as_it_is_at_the_time(here: Opened) -> None:
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


def test_everything_goes_on_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
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
        assert after.payloads(made) == [{"id": "b"}], "also a channel that was made while it ran"


def test_a_channel_that_is_declared_no_more_is_dropped_and_its_name_begins_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    notes = '[channels.notes]\nperiod = "300ms"\nparameters = {kind = "string"}\n'
    notes += 'query = "SELECT r.id FROM reports r WHERE r.kind = :kind"\n'
    with opened(tmp_path, APP + notes, spark) as before:
        (rain,) = before.subscribe("notes", "rain")
        before.publish({"id": "a", "kind": "rain"})
        assert before.payloads(rain) == [{"id": "a"}]
    with opened(tmp_path, APP, spark) as without, pytest.raises(NotFound):
        without.cluster.subscription(rain.id)
    with opened(tmp_path, APP + notes, spark) as again:
        (rain,) = again.subscribe("notes", "rain")
        again.publish({"id": "b", "kind": "rain"})
        assert again.payloads(rain) == [{"id": "b"}]


# Channels and datasets that change while it runs


@pytest.mark.parametrize("when", [{}, {"period": "300ms"}], ids=["continuous", "repetitive"])
def test_a_channel_begins_with_what_is_published_after_it_changes_and_is_dropped(
    here: Opened, when: Record
) -> None:
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
    here.cluster.drop_channel("later")
    with pytest.raises(NotFound, match="no channel 'later'"):
        here.cluster.channel_status("later")
    with pytest.raises(NotFound, match="no subscription"):
        here.cluster.subscription(new.id)


def test_a_query_that_spark_refuses_changes_nothing(here: Opened) -> None:
    before = here.cluster.channel("of_kind")
    with pytest.raises(BadQuery, match=r"channels.of_kind.query: .*"):
        here.define("of_kind", query="SELECT abs(array(r.id)) AS x FROM reports r WHERE r.kind = :kind")
    assert here.cluster.channel("of_kind") == before
    (still,) = here.subscribe("of_kind", "still")
    here.publish({"id": "x", "kind": "still"})
    assert here.payloads(still) == [{"id": "x"}]


def test_nobody_waits_while_spark_analyses_a_query(here: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """And if a dataset changes meanwhile, the query is analysed again, against what there is now."""
    seen = []

    def slowly(spark: SparkSession, body: Body, datasets: Mapping[str, Dataset]) -> object:
        seen.append(datasets["reports"])
        with ThreadPoolExecutor(1) as other:
            other.submit(here.subscribe, "of_kind", "meanwhile").result(20)
            if len(seen) == 1:
                reports = here.cluster.dataset("reports")
                wider = replace(reports, fields=(*reports.fields, Field("seen", "boolean", optional=True)))
                other.submit(here.cluster.put_dataset, wider).result(60)
        return check_body(spark, body, datasets)

    monkeypatch.setattr(definitions, "check_body", slowly)
    here.define("slow", query="SELECT r.id FROM reports r WHERE r.kind = :kind")
    assert [one == here.cluster.dataset("reports") for one in seen] == [False, True]
    with pytest.raises(Exists, match="'slow' exists already"):
        here.cluster.put_channel(here.cluster.channel("slow"), only_new=True)
    here.cluster.drop_channel("slow")


def test_a_dataset_is_made_used_and_dropped(here: Opened) -> None:
    reports = here.cluster.dataset("reports")
    notes = replace(reports, name="notes", fields=(Field("id", "string"), Field("kind", "string")))
    here.cluster.put_dataset(notes)
    here.define("noted", query="SELECT n.id FROM notes n WHERE n.kind = :kind", new="notes")
    (one,) = here.subscribe("noted", "memo")
    here.publish({"id": "n1", "kind": "memo"}, dataset="notes")
    assert here.payloads(one) == [{"id": "n1"}]
    wider = replace(notes, fields=(*notes.fields, Field("author", "string", optional=True)))
    here.cluster.put_dataset(wider)
    here.define("noted", query="SELECT n.id, n.author FROM notes n WHERE n.kind = :kind", new="notes")
    here.publish({"id": "n2", "kind": "memo", "author": "me"}, dataset="notes")
    assert here.payloads(one) == [{"id": "n1"}, {"id": "n2", "author": "me"}]
    with pytest.raises(Conflict, match="channel 'noted' reads it"):
        here.cluster.drop_dataset("notes")
    here.cluster.drop_channel("noted")
    here.cluster.drop_dataset("notes")
    with pytest.raises(NotFound, match="no dataset 'notes'"):
        here.publish({"id": "n3", "kind": "memo"}, dataset="notes")


# Pages, notification, retention


def test_a_page_is_kept_and_whoever_matches_it_is_told(here: Opened) -> None:
    with receiving(broker="paged") as receiver:
        receiver.secret = here.cluster.register_broker("paged", receiver.url).secret
        assert here.cluster.register_broker("paged", receiver.url).secret == "", "it is told once"
        (art,) = here.subscribe("of_kind", "art", broker="paged", frontends=5)
        (same,) = here.subscribe("pushed", "art", broker="paged", frontends=3)
        here.publish({"id": "p", "kind": "art", "_page": {"text": "<p>Hé</p>", "type": "text/html"}})
        here.settle()
        (result,) = here.cluster.results(art.id, 0, None, 10)
        assert result.page is not None
        eventually(lambda: len(receiver.told) == 2)
        told = {str(one["channel"]): one for one in receiver.told}
        page = {"page": result.page.id, "size": 10}
        assert told["of_kind"]["pages"] == [page | {"subscriptions": 5}]
        assert told["pushed"]["pages"] == [page | {"subscriptions": 3}]
        assert told["of_kind"]["streams"] == [{"subscription": art.id, "position": 1}]
        (stream,) = told["pushed"]["streams"]  # type: ignore[misc]
        assert stream["subscription"] == same.id  # type: ignore[index]
        assert [one["payload"] for one in stream["results"]] == [{"id": "p"}]  # type: ignore[index]
        eventually(lambda: here.cluster.broker_status("paged")["pending"] == 0)
        here.cluster.dismiss_broker("paged")
    found = here.cluster.page(result.page.id)
    assert found.path is not None
    assert (found.type, found.path.read_text()) == ("text/html", "<p>Hé</p>")
    with pytest.raises(NotFound, match="no page"):
        here.cluster.page("0" * 32)


def test_what_retention_removed_is_gone_and_said_to_be(here: Opened) -> None:
    (rain,) = here.subscribe("often", "rain")
    here.publish(*({"id": str(number), "kind": "rain"} for number in range(5)))
    here.settle()
    here.cluster._retain()  # the chore of every half minute, done now
    assert here.cluster.extent(rain.id) == (4, 5)
    with pytest.raises(Gone) as gone:
        here.cluster.results(rain.id, 0, None, 10)
    assert gone.value.earliest == 4
    assert [one.position for one in here.cluster.results(rain.id, 3, None, 10)] == [4, 5]


# Faults


def test_a_channel_that_fails_stops_no_other_and_catches_up_when_mended(
    here: Opened, capfd: pytest.CaptureFixture[str]
) -> None:
    query = "SELECT r.id, 1 / r.size AS share FROM reports r WHERE r.kind = :kind"
    here.define("broken", query=query, period="300ms")
    (good,) = here.subscribe("of_kind", "odd")
    (broken,) = here.subscribe("broken", "odd")
    seq = here.publish({"id": "zero", "kind": "odd", "size": 0})
    assert here.payloads(good) == [{"id": "zero"}]
    eventually(lambda: here.cluster.channel_status("broken")["failing"] is not None)
    state = here.state(seq, "broken")
    assert state["state"] == "failing"
    assert "DIVIDE_BY_ZERO" in str(state["error"])
    assert "DIVIDE_BY_ZERO" in str(here.cluster.explain("broken")["recent"])
    here.define("broken", query=query.replace("1 / r.size", "try_divide(1, r.size)"), period="300ms")
    eventually(lambda: here.cluster.channel_status("broken")["lag"] == 0)
    assert here.payloads(broken) == [{"id": "zero", "share": None}]
    assert here.state(seq, "broken")["state"] == "evaluated"
    here.cluster.drop_channel("broken")
    assert capfd.readouterr().err == "", "what it fails for is told when asked, not in many lines at each attempt"


def test_a_malformed_record_does_not_stop_its_neighbours(here: Opened) -> None:
    (mud,) = here.subscribe("of_kind", "mud")
    body = b'{"id":"a","kind":"mud"}\n{"id":1,"kind":"mud"}\nnonsense\n{"id":"b","kind":"mud"}\n'
    receipt = here.cluster.publish("reports", body, "ndjson", "mud-1")
    assert receipt.accepted == 2
    assert [one.index for one in receipt.refused] == [1, 2]
    again = here.cluster.publish("reports", body, "ndjson", "mud-1")
    assert (again.repeated, again.first, again.last) == (True, receipt.first, receipt.last)
    assert here.payloads(mud) == [{"id": "a"}, {"id": "b"}]
    nothing = here.cluster.publish("reports", b"[{}]", "json", None)
    assert (nothing.accepted, nothing.first, len(nothing.refused)) == (0, None, 1)
    with pytest.raises(BadInput, match="body: "):
        here.cluster.publish("reports", b"{", "json", None)
    with pytest.raises(NotFound, match="no dataset 'nowhere'"):
        here.cluster.publish("nowhere", b"{}", "json", None)


def test_publishers_wait_when_a_channel_is_too_far_behind(seldom: Opened) -> None:
    one = {"id": "a", "kind": "x"}
    last = seldom.publish(one, one, one)
    assert seldom.state(last, "seldom") == {"channel": "seldom", "state": "waiting", "behind": 3}
    with pytest.raises(Busy, match="channel 'seldom' is more than 2 publications behind") as busy:
        seldom.publish(one)
    assert busy.value.after_s > 0
    assert seldom.log.head("reports") == last
    with pytest.raises(NotFound, match=f"no publication {last + 1}; the newest is {last}"):
        seldom.cluster.trace("reports", last + 1)


def test_publishers_wait_when_too_much_is_in_flight(here: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publications, "MOST_IN_FLIGHT", 50)
    here.log.free.clear()
    here.log.entered.clear()
    first = threading.Thread(target=here.publish, args=({"id": "held", "kind": "x" * 100},))
    first.start()
    try:
        assert here.log.entered.wait(30), "one that is larger than all there is room for still comes in, alone"
        with pytest.raises(Busy, match="too much is being published at once"):
            here.publish({"id": "refused", "kind": "x"})
    finally:
        here.log.free.set()
        first.join()
    here.publish({"id": "then", "kind": "x"})


def test_what_is_not_ready_is_told_to_anybody_and_why_to_the_log_alone(
    seldom: Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise OSError("no route to db.example.org as user newsstand")

    monkeypatch.setattr(seldom.results, "check", broken)
    monkeypatch.setattr(seldom.cluster._engine, "problems", lambda: ["stream of reports: a secret path"])
    assert seldom.cluster.ready() == ["a stream of Spark's", "results"]
    assert "no route to db.example.org" in caplog.text


# Asking


def test_subscriptions_are_not_counted_at_every_scrape(seldom: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    seldom.subscribe("seldom", "a", "b")
    counted: list[str] = []
    count = seldom.results.count_subscriptions

    def counting(channel: str) -> tuple[int, int]:
        counted.append(channel)
        return count(channel)

    monkeypatch.setattr(seldom.results, "count_subscriptions", counting)
    for _ in range(3):
        assert 'newsstand_channel_subscriptions{channel="seldom"} 2.0' in seldom.cluster.metrics.text().decode()
    assert counted == ["seldom"]


def test_a_publication_is_traced_to_the_streams_and_brokers_that_it_reached(here: Opened) -> None:
    with receiving(broker="tracer") as receiver:
        receiver.secret = here.cluster.register_broker("tracer", receiver.url).secret
        (one,) = here.subscribe("of_kind", "traced", broker="tracer")
        seq = here.publish({"id": "t", "kind": "traced"})
        here.settle()
        eventually(lambda: here.cluster.broker_status("tracer")["pending"] == 0)
        state = here.state(seq, "of_kind")
        here.cluster.dismiss_broker("tracer")
    assert state["state"] == "evaluated"
    assert state["streams"] == [{"stream": one.stream, "position": 1}]
    (told,) = state["brokers"]  # type: ignore[misc]
    assert told["broker"] == "tracer"  # type: ignore[index]
    assert told["told_at_ms"] is not None  # type: ignore[index]
    assert here.state(seq, "often")["reached"] == 0


def test_a_channel_is_explained(here: Opened) -> None:
    (one,) = here.subscribe("of_kind", "explained")
    here.publish({"id": "e", "kind": "explained"})
    assert len(here.payloads(one)) == 1
    facts = here.cluster.explain("of_kind")
    status = here.cluster.channel_status("of_kind")
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


def test_a_channel_is_tried_without_a_trace(here: Opened) -> None:
    (one,) = here.subscribe("of_kind", "tried")
    last = here.publish({"id": "1", "kind": "tried"}, {"id": "2", "kind": "tried"}, {"id": "3", "kind": "other"})
    assert len(here.payloads(one)) == 2
    other = replace(
        here.cluster.channel("of_kind"), query="SELECT r.id, r.kind FROM reports r WHERE r.kind = :kind"
    )
    facts = here.cluster.try_channel(other, [("tried",), ("none",)], last - 2, last)
    assert facts["by_values"] == [{"values": ["tried"], "results": 1}, {"values": ["none"], "results": 0}]
    assert facts["sample"] == [
        {"values": ["tried"], "publication": last - 1, "payload": {"id": "2", "kind": "tried"}}
    ]
    assert len(here.payloads(one)) == 2
