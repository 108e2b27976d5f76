"""Datasets and channels: created, changed and dropped while the cluster runs; their status and cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from newsstand.cluster.catalog import Catalog
from newsstand.cluster.ingest.latest_records import LatestRecords
from newsstand.cluster.log.contract import Log
from newsstand.cluster.matching.executor import RunningChannel
from newsstand.cluster.matching.failing_values import warnings_of
from newsstand.cluster.matching.matcher import RecordedData, check_body, dry_run, explanation
from newsstand.cluster.matching.scheduler import Scheduler
from newsstand.cluster.matching.tables import Tables
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.notifier import Notifier
from newsstand.cluster.query.parser import parse_body
from newsstand.cluster.results.model import SuspendedStreamInfo
from newsstand.cluster.results.stores import ResultStores
from newsstand.model import ChannelDefinition, Dataset, JsonObject, Values


@dataclass(frozen=True)
class Definitions:
    """The service for datasets and channels. Methods block and may be called from several threads."""

    catalog: Catalog
    spark: SparkSession
    log: Log
    stores: ResultStores
    tables: Tables
    latest: LatestRecords
    scheduler: Scheduler
    notifier: Notifier
    metrics: Metrics
    now_ms: Callable[[], int]
    changes: threading.RLock
    """A lock that is held while definitions or subscriptions change."""

    def put_dataset(self, dataset: Dataset, *, only_new: bool = False) -> Dataset | None:
        """Add a dataset, or change one; channels that read it see its new fields at their next execution.

        Return the dataset of that name before; raise Exists if there is one and `only_new` is set.
        """
        with self.changes:
            before = self.catalog.put_dataset(dataset, only_new=only_new)
            self.tables.forget_dataset(dataset.name)
            for channel in self.catalog.channels().values():
                running = self.scheduler.running(channel.name)
                if running is not None and dataset.name in running.datasets:
                    self.start_channel(channel)
            return before

    def drop_dataset(self, name: str) -> None:
        """Drop a dataset that no channel reads. Its publications stay in the log."""
        with self.changes:
            self.catalog.drop_dataset(name)
            self.tables.forget_dataset(name)
            self.latest.drop(name)
            self.metrics.forget_dataset(name)

    def put_channel(self, channel: ChannelDefinition, *, only_new: bool = False) -> ChannelDefinition | None:
        """Add a channel, or change one, if Spark can analyse its query; it starts at the next publication.

        Return the channel of that name before; raise Exists if there is one and `only_new` is set.
        """
        while True:
            # Spark takes seconds, during which the lock is free; the datasets are compared afterwards.
            datasets = self.catalog.datasets()
            body = parse_body(channel, datasets)
            read = {name: datasets[name] for name in {channel.new, *body.stored}}
            check_body(self.spark, body, datasets)
            with self.changes:
                now = self.catalog.datasets()
                if {name: now.get(name) for name in read} == read:
                    before = self.catalog.put_channel(channel, only_new=only_new)
                    self.start_channel(channel, warm=False)
                    return before

    def start_channel(self, channel: ChannelDefinition, *, warm: bool = True) -> None:
        """Execute a channel from now on, in place of an earlier definition."""
        datasets = self.catalog.datasets()
        body = parse_body(channel, datasets)
        self.scheduler.remove(channel.name)
        self.tables.forget_channel(channel.name)
        self.stores.results.add_channel(channel.name, self.log.head(channel.new))
        read = {name: datasets[name] for name in {channel.new, *body.stored}}
        running = RunningChannel(channel, body, read, warm=warm)
        # Streams that failed under an earlier definition are tried again.
        if self.stores.subscriptions.resume(channel.name, self.now_ms(), except_definition=running.definition):
            self.notifier.wake()
        self.scheduler.add(running)

    def drop_channel(self, name: str) -> None:
        """Drop a channel with its subscriptions and results."""
        with self.changes:
            channel = self.catalog.channel(name)
            self.scheduler.remove(name)
            self.tables.forget_channel(name)
            try:
                # The catalog last: a channel that was dropped halfway still exists, and can be dropped again.
                self.stores.results.drop_channel(name)
                self.catalog.drop_channel(name)
            except Exception:
                self.start_channel(channel)
                raise
            self.metrics.forget_channel(name)

    def warnings(self, channel: ChannelDefinition) -> list[str]:
        """Return a warning for each parameter that has values on which the query fails."""
        datasets = self.catalog.datasets()
        return warnings_of(self.spark, parse_body(channel, datasets), datasets)

    def channel_status(self, name: str) -> JsonObject:
        """Return a channel's position, lag, subscriptions, last execution and failure."""
        channel = self.catalog.channel(name)
        running = self.scheduler.running(name)
        position = self.stores.results.position(name) or 0
        subscriptions, streams = self.stores.subscriptions.count(name)
        failure = running.failure if running else None
        execution = running.execution if running else None
        return {
            "position": position,
            "lag": max(0, self.log.head(channel.new) - position),
            "subscriptions": subscriptions,
            "streams": streams,
            "suspended": self.stores.subscriptions.count_suspended(name),
            "last_seconds": round(running.seconds, 4) if running else None,
            "executing_seconds": execution and round(time.monotonic() - execution.began, 4),
            "failing": failure
            and {"error": failure.error, "since_ms": failure.since_ms, "attempts": failure.attempts},
        }

    def suspensions(self, name: str) -> list[SuspendedStreamInfo]:
        """Return the streams that executions of a channel leave out, and why."""
        self.catalog.channel(name)
        return self.stores.subscriptions.suspensions(name)

    def resume(self, name: str) -> int:
        """Execute the suspended streams of a channel again, from the next publications on; return their number."""
        with self.changes:
            channel = self.catalog.channel(name)
            resumed = self.stores.subscriptions.resume(name, self.now_ms())
            if resumed:
                self.tables.refresh(channel, resumed)
                self.notifier.wake()
        return len(resumed)

    def explain(self, name: str) -> JsonObject:
        """Return what a channel costs, what it shares with others, and its results on recent publications."""
        channel = self.catalog.channel(name)
        subscriptions, streams = self.stores.subscriptions.count(name)
        facts: JsonObject = {
            "channel": name,
            "subscriptions": subscriptions,
            "streams": streams,
            "runs_with": self.scheduler.cohort(name),
            "last_seconds": self.channel_status(name)["last_seconds"],
        }
        return facts | explanation(self._recorded(), channel, self.tables.values(channel).frame())

    def try_channel(
        self, channel: ChannelDefinition, values: Sequence[Values], after: int, until: int | None
    ) -> JsonObject:
        """Return what a channel would produce for these values over recorded publications; store nothing."""
        return dry_run(self._recorded(), channel, values, after, until)

    def _recorded(self) -> RecordedData:
        return RecordedData(self.spark, self.log, self.tables.stored, self.catalog.datasets())
