"""The data cluster, all of it in one object: what comes in, what is matched, what comes out.

Publications are judged at the door, made durable in the log, matched by the engine, and stored as results; the
notifier tells the brokers. The HTTP API calls this object and nothing else of the cluster.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from newsstand.cluster.app_folder import App
from newsstand.cluster.body import parse_body
from newsstand.cluster.catalog import Catalog
from newsstand.cluster.channels import parse_values
from newsstand.cluster.door import Door
from newsstand.cluster.dry_run import Recorded, dry_run, explanation
from newsstand.cluster.engine import Engine
from newsstand.cluster.executions import Executions, Running
from newsstand.cluster.facade import Facts, Form, Receipt, Wanted
from newsstand.cluster.keyed import KeyedRecords
from newsstand.cluster.log import Log
from newsstand.cluster.matching import check_body
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.notify import Notifier
from newsstand.cluster.pages import PageStore, StoredPage
from newsstand.cluster.results import Execution, Results, Stored
from newsstand.cluster.tables import Tables
from newsstand.cluster.trace import trace
from newsstand.errors import Busy, NotFound
from newsstand.model import Broker, Channel, Dataset, Result, Subscription, Values

logger = logging.getLogger(__name__)

MOST_IN_FLIGHT = 64 * 2**20
"""Bytes of bodies that are being judged and written at any moment; more than that has to wait outside."""


class DataCluster:
    """One running data cluster. Methods block and may be called from several threads."""

    def __init__(
        self, app: App, spark: SparkSession, log: Log, results: Results, data: Path, now_ms: Callable[[], int]
    ) -> None:
        self._options = app.cluster
        self._spark = spark
        self._log = log
        self._results = results
        self._now_ms = now_ms
        self.metrics = Metrics()
        self.catalog = Catalog(app, data / "catalog.json")
        for name in self.catalog.superseded:
            logger.warning("%s: newsstand.toml was edited after it was changed over HTTP; the file holds", name)
        self._pages = PageStore(data / "pages", app.cluster.max_page_bytes)
        self._doors: dict[str, Door] = {}
        self._keyed = KeyedRecords(data / "keyed.sqlite", log)
        self._tables = Tables(spark, log, self._keyed, results)
        limit = app.cluster.max_batch
        executions = Executions(spark, log, results, self._tables, now_ms, self._executed, limit, self._failed)
        self._engine = Engine(spark, log, results, executions, data / "scratch", limit)
        self.notifier = Notifier(
            results,
            now_ms,
            is_push=self._is_push,
            away_after_s=app.cluster.away_after_s,
            told=self.metrics.delivered,
        )
        self.spark_stopped = threading.Event()
        """Set when Spark is gone: nothing is executed any more, and only a new process can help."""
        self._in_flight = 0
        self._changing = threading.RLock()
        self._weighing = threading.Lock()
        self.metrics.before_telling(self._measure)

    def start(self) -> None:
        """Begin to execute all channels, and to tell brokers."""
        channels = self.catalog.channels()
        for name in self._results.channels():
            if name not in channels:
                logger.warning("channel %s is declared no more; its subscriptions and results are dropped", name)
                self._results.forget(name)
        for channel in channels.values():
            self._run(channel)
        self._engine.every(1.0, self._catch_up)
        self._engine.every(2.0, self._look_at_spark)
        self._engine.every(30.0, self._retain)
        self._engine.start()
        self.notifier.start()

    def stop(self) -> None:
        """Stop executing and let go of everything but Spark, the log and the results."""
        self._engine.stop()
        self.notifier.stop()
        self._keyed.close()

    # Publications

    def publish(self, dataset: str, body: bytes, form: Form, key: str | None) -> Receipt:
        """Judge the records of a body and add the good ones to the log; they are durable when this returns."""
        door = self._door(self.catalog.dataset(dataset))
        self._refuse_if_behind(dataset)
        with self._weighed(len(body)):
            admitted = door.admit(body, form)
            for page in admitted.pages:
                self._pages.store(page)
            if not admitted.lines:
                self.metrics.published(dataset, 0, len(admitted.refused))
                return Receipt(0, None, None, admitted.refused)
            added = self._log.append(dataset, admitted.lines, self._now_ms(), key)
        if not added.repeated:
            self.metrics.published(dataset, len(admitted.lines), len(admitted.refused))
        accepted = added.last - added.first + 1
        return Receipt(accepted, added.first, added.last, admitted.refused, added.repeated)

    def trace(self, dataset: str, seq: int) -> Facts:
        """What became of one publication."""
        found = next(self._log.read(self.catalog.dataset(dataset).name, seq - 1, seq), None)
        if found is None:
            raise NotFound(f"dataset '{dataset}': no publication {seq}; the newest is {self._log.head(dataset)}")
        channels = [one for one in self.catalog.channels().values() if one.new == dataset]
        return trace(found, channels, self._results, self._engine.running)

    def page(self, page: str) -> StoredPage:
        """A page that some publication carried or points to."""
        found = self._pages.find(page)
        if found is None:
            raise NotFound(f"no page '{page}'")
        return found

    # Datasets and channels

    def datasets(self) -> list[Dataset]:
        """All datasets by name."""
        return [one for _, one in sorted(self.catalog.datasets().items())]

    def dataset(self, name: str) -> Dataset:
        """One dataset; raise NotFound."""
        return self.catalog.dataset(name)

    def put_dataset(self, dataset: Dataset) -> None:
        """Add a dataset, or change one; channels that read it see its new fields at their next execution."""
        with self._changing:
            self.catalog.put_dataset(dataset)
            self._tables.forget_dataset(dataset.name)
            for channel in self.catalog.channels().values():
                running = self._engine.running(channel.name)
                if running is not None and dataset.name in running.datasets:
                    self._run(channel)

    def drop_dataset(self, name: str) -> None:
        """Drop a dataset that no channel reads. What was published to it stays in the log."""
        with self._changing:
            self.catalog.drop_dataset(name)
            self._doors.pop(name, None)
            self._tables.forget_dataset(name)
            self._keyed.forget(name)
            self.metrics.forget_dataset(name)

    def channels(self) -> list[Channel]:
        """All channels by name."""
        return [one for _, one in sorted(self.catalog.channels().items())]

    def channel(self, name: str) -> Channel:
        """One channel; raise NotFound."""
        return self.catalog.channel(name)

    def put_channel(self, channel: Channel) -> None:
        """Add a channel, or change one, if Spark can analyse its query. It begins with what is published next."""
        with self._changing:
            datasets = self.catalog.datasets()
            check_body(self._spark, parse_body(channel, datasets), datasets)
            self.catalog.put_channel(channel)
            self._run(channel)

    def drop_channel(self, name: str) -> None:
        """Drop a channel with its subscriptions and results."""
        with self._changing:
            channel = self.catalog.channel(name)
            self._engine.leave(name)
            self._tables.forget_channel(name)
            try:
                # The catalog last: a channel that is half dropped is still there, and can be dropped again.
                self._results.forget(name)
                self.catalog.drop_channel(name)
            except Exception:
                self._run(channel)
                raise
            self.metrics.forget_channel(name)

    def channel_status(self, name: str) -> Facts:
        """Where a channel stands."""
        channel = self.catalog.channel(name)
        running = self._engine.running(name)
        position = self._results.position(name) or 0
        subscriptions, streams = self._results.count_subscriptions(name)
        failure = running.failure if running else None
        return {
            "position": position,
            "lag": max(0, self._log.head(channel.new) - position),
            "subscriptions": subscriptions,
            "streams": streams,
            "last_seconds": round(running.seconds, 4) if running else None,
            "failing": failure
            and {"error": failure.error, "since_ms": failure.since_ms, "attempts": failure.attempts},
        }

    def explain(self, name: str) -> Facts:
        """What a channel costs, what it shares with others, and what it would make of recent publications."""
        channel = self.catalog.channel(name)
        datasets = self.catalog.datasets()
        subscriptions, streams = self._results.count_subscriptions(name)
        facts: Facts = {
            "channel": name,
            "subscriptions": subscriptions,
            "streams": streams,
            "runs_with": self._engine.companions(name),
            "last_seconds": self.channel_status(name)["last_seconds"],
        }
        recorded = Recorded(self._spark, self._log, self._tables.stored, datasets)
        return facts | explanation(recorded, channel, self._tables.values(channel).frame())

    def try_channel(self, channel: Channel, values: Sequence[Values], after: int, until: int | None) -> Facts:
        """What a channel would have produced for these values over recorded publications; nothing is stored."""
        recorded = Recorded(self._spark, self._log, self._tables.stored, self.catalog.datasets())
        return dry_run(recorded, channel, values, after, until)

    # Brokers and subscriptions

    def register_broker(self, name: str, callback: str) -> Broker:
        """Add a broker or change its callback. The secret is told when it is made, and never again."""
        with self._changing:
            known = {one.name: one for one in self._results.brokers()}.get(name)
            broker = Broker(name, callback, known.secret if known else secrets.token_urlsafe(32))
            self._results.register(broker)
        self.notifier.returned(name)
        return Broker(name, callback, "") if known else broker

    def dismiss_broker(self, name: str) -> None:
        """Drop a broker with its subscriptions."""
        with self._changing:
            self._require_broker(name)
            self._dropped(self._results.dismiss(name))
            self.metrics.forget_broker(name)
        self.notifier.wake()

    def brokers(self) -> list[Broker]:
        """All brokers by name."""
        return self._results.brokers()

    def broker_status(self, name: str) -> Facts:
        """What a broker is still to be told."""
        self._require_broker(name)
        return dict(self.notifier.status().get(name, {}))

    def subscribe(self, broker: str, wanted: Sequence[Wanted]) -> list[Subscription]:
        """Add or update subscriptions, all or none; they take effect at the next executions of their channels."""
        self._require_broker(broker)
        channels, asked = self._asked(wanted)
        with self._changing:
            now = self.catalog.channels()
            if any(name not in now or now[name].parameters != one.parameters for name, one in channels.items()):
                channels, asked = self._asked(wanted)
            counts: dict[str, dict[Values, int]] = {name: {} for name in channels}
            for (name, values), (_, _, frontends) in zip(asked, wanted, strict=True):
                counts[name][values] = frontends
            made: dict[str, dict[Values, Subscription]] = {name: {} for name in channels}
            for one in self._results.subscribe_all(broker, counts):
                made[one.channel][one.values] = one
            for name, subscribed in made.items():
                self._tables.subscribed(channels[name], subscribed.values())
        return [made[name][values] for name, values in asked]

    def _asked(self, wanted: Sequence[Wanted]) -> tuple[dict[str, Channel], list[tuple[str, Values]]]:
        """The channels that are wanted, as they are now, and the values that their parameters are given."""
        known = self.catalog.channels()
        channels = {name: known.get(name) or self.catalog.channel(name) for name, _, _ in wanted}
        return channels, [(name, parse_values(channels[name], given)) for name, given, _ in wanted]

    def unsubscribe(self, broker: str, ids: Sequence[str]) -> int:
        """Drop a broker's subscriptions; return how many there were."""
        self._require_broker(broker)
        with self._changing:
            dropped = self._results.unsubscribe(broker, ids)
            self._dropped(dropped)
        return len(dropped)

    def subscription(self, subscription: str) -> Subscription:
        """One subscription; raise NotFound."""
        found = self._results.subscription(subscription)
        if found is None:
            raise NotFound(f"no subscription '{subscription}'")
        return found

    def subscriptions(self, broker: str, after: str, limit: int) -> list[Subscription]:
        """A broker's subscriptions in the order of their ids."""
        self._require_broker(broker)
        return list(self._results.subscriptions(broker, after=after, limit=limit))

    def results(self, subscription: str, after: int, until: int | None, limit: int) -> list[Result]:
        """Results with after < position <= until, oldest first, at most `limit`; raise Gone."""
        return self._results.read(self.subscription(subscription).stream, after, until, limit)

    def extent(self, subscription: str) -> tuple[int, int]:
        """The positions of the earliest result that is left and of the newest; (1, 0) if there is none yet."""
        return self._results.head(self.subscription(subscription).stream)

    def ready(self) -> list[str]:
        """What is not ready; empty if all is."""
        problems = self._engine.problems()
        if self.spark_stopped.is_set():
            problems.append("Spark has stopped")
        try:
            self._results.check()
        except Exception as error:
            problems.append(f"results: {error}")
        return problems

    # Inside

    def _run(self, channel: Channel) -> None:
        datasets = self.catalog.datasets()
        body = parse_body(channel, datasets)
        self._engine.leave(channel.name)
        self._tables.forget_channel(channel.name)
        self._results.begin(channel.name, self._log.head(channel.new))
        read = {name: datasets[name] for name in {channel.new, *body.stored}}
        self._engine.run(Running(channel, body, read))

    def _executed(self, running: Running, execution: Execution, stored: Stored) -> None:
        self.metrics.executed(execution.channel, running.seconds, stored.results)
        if stored.streams:
            self.notifier.wake()

    def _failed(self, running: Running) -> None:
        self.metrics.failed(running.channel.name)

    def _dropped(self, subscriptions: Sequence[Subscription]) -> None:
        channels = self.catalog.channels()
        streams: dict[str, list[int]] = {}
        for one in subscriptions:
            streams.setdefault(one.channel, []).append(one.stream)
        for name, touched in streams.items():
            if name in channels:
                self._tables.unsubscribed(channels[name], touched)

    def _door(self, dataset: Dataset) -> Door:
        door = self._doors.get(dataset.name)
        if door is None or door.dataset != dataset:
            door = self._doors[dataset.name] = Door(dataset, self._options.max_page_bytes)
        return door

    def _refuse_if_behind(self, dataset: str) -> None:
        head = self._log.head(dataset)
        for name, channel in self.catalog.channels().items():
            if channel.new == dataset and head - (self._results.position(name) or 0) > self._options.max_lag:
                running = self._engine.running(name)
                if running is not None and running.failure is None:
                    raise Busy(f"channel '{name}' is more than {self._options.max_lag} publications behind", 2.0)

    @contextmanager
    def _weighed(self, size: int) -> Iterator[None]:
        with self._weighing:
            if self._in_flight and self._in_flight + size > MOST_IN_FLIGHT:
                raise Busy("too much is being published at once", 1.0)
            self._in_flight += size
        try:
            yield
        finally:
            with self._weighing:
                self._in_flight -= size

    def _is_push(self, channel: str) -> bool:
        known = self.catalog.channels().get(channel)
        return known is not None and known.push

    def _require_broker(self, name: str) -> None:
        if name not in {one.name for one in self._results.brokers()}:
            raise NotFound(f"no broker '{name}'")

    def _look_at_spark(self) -> None:
        try:
            stopped = bool(self._spark.sparkContext._jsc.sc().isStopped())
        except Exception:  # of a JVM that is gone nothing can be asked
            stopped = True
        if stopped:
            self.spark_stopped.set()

    def _catch_up(self) -> None:
        for dataset in self.catalog.datasets().values():
            if dataset.keyed:
                self._tables.catch_up(dataset)

    def _retain(self) -> None:
        for channel in self.catalog.channels().values():
            self._results.retain(channel.name, channel.retention, self._now_ms())

    def _measure(self) -> None:
        for name in self.catalog.channels():
            status = self.channel_status(name)
            self.metrics.channel_stands(name, int(str(status["lag"])), int(str(status["subscriptions"])))
        for name, stands in self.notifier.status().items():
            self.metrics.broker_stands(name, int(stands["pending"] or 0), bool(stands["away"]))
