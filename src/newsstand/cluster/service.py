"""The data cluster: its services, what they share, and what runs periodically.

Publications are validated, made durable in the log, matched by the scheduler's executions and stored as results;
the notifier notifies the brokers. The HTTP API calls the services of this object.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from pyspark.sql import SparkSession

from newsstand.cluster.app_folder import App
from newsstand.cluster.catalog import Catalog
from newsstand.cluster.definitions import Definitions
from newsstand.cluster.ingest.latest_records import LatestRecords
from newsstand.cluster.ingest.publications import Publications
from newsstand.cluster.log.contract import Log
from newsstand.cluster.matching.executor import Executor, ExecutorLimits, Phase
from newsstand.cluster.matching.scheduler import Scheduler
from newsstand.cluster.matching.tables import Tables
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.notifier import Notifier, NotifierLimits
from newsstand.cluster.pages.origin import Origin
from newsstand.cluster.pages.store import PageStore
from newsstand.cluster.results.stores import ResultStores
from newsstand.cluster.stages import DeliveryReports
from newsstand.cluster.subscriptions import Subscriptions
from newsstand.errors import Unavailable
from newsstand.http.client import trust
from newsstand.spark.internals import first_line, is_stopped

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClusterLimits:
    """Limits of a cluster."""

    slow_s: float = 30.0
    """Seconds that an execution may take before readiness reports it."""
    count_valid_s: float = 30.0
    """Seconds for which a count of subscriptions is reused for metrics."""
    published_bytes: int = 64 * 2**20
    """Bytes of publications that are validated and written at any moment; further publishers have to retry."""


class RunningExecutionInfo(msgspec.Struct, frozen=True):
    """An execution that is running: its channel, dataset and publications, and how long it has taken so far."""

    channel: str
    dataset: str
    phase: Phase
    after: Annotated[int | None, msgspec.Meta(description="its first publication is the next one; null: samples")]
    through: Annotated[int | None, msgspec.Meta(description="its last publication; null: samples")]
    publications: Annotated[int | None, msgspec.Meta(description="their number; null: samples")]
    seconds: float
    slow: Annotated[bool, msgspec.Meta(description="whether `/readyz` reports it")]


class DataCluster:
    """One running data cluster. Methods block and may be called from several threads."""

    def __init__(
        self,
        app: App,
        spark: SparkSession,
        log: Log,
        stores: ResultStores,
        data: Path,
        now_ms: Callable[[], int],
        limits: ClusterLimits = ClusterLimits(),  # noqa: B008  it is frozen
    ) -> None:
        options = app.cluster
        self._options = options
        self._spark = spark
        self._log = log
        self._stores = stores
        self._now_ms = now_ms
        self._limits = limits
        self.metrics = Metrics(now_ms)
        self.catalog = Catalog(app, data / "catalog.json")
        for name in self.catalog.superseded:
            logger.warning(
                "%s: the definition in newsstand.toml is newer than the one set over HTTP; using it", name
            )
        self.pages = PageStore(data / "pages", options.max_page_bytes)
        self.origin = Origin(app, data, self.pages, stores.outbox.broker, self.metrics, now_ms)
        self.notifier = Notifier(
            stores,
            now_ms,
            NotifierLimits(away_after_s=options.away_after_s),
            delivery=self.catalog.delivery,
            on_delivery=self.metrics.delivered,
            authority=options.authority,
        )
        self._latest = LatestRecords(data / "keyed.sqlite", log)
        self._tables = Tables(spark, log, self._latest, stores)
        self._executor = Executor(
            spark,
            log,
            stores,
            self._tables,
            now_ms,
            self.metrics,
            options.max_batch,
            self.notifier.wake,
            ExecutorLimits(options.execution_timeout_s, options.execution_results),
        )
        self._scheduler = Scheduler(spark, log, stores, self._executor, options.max_batch)
        changes = threading.RLock()
        self.publications = Publications(
            self.catalog,
            log,
            stores,
            self._scheduler,
            self.pages,
            self.metrics,
            now_ms,
            options.max_lag,
            limits.published_bytes,
            DeliveryReports(trust(options.authority), now_ms),
        )
        self.definitions = Definitions(
            self.catalog,
            spark,
            log,
            stores,
            self._tables,
            self._latest,
            self._scheduler,
            self.notifier,
            self.metrics,
            now_ms,
            changes,
        )
        self.subscriptions = Subscriptions(
            self.catalog, stores, self._tables, self.notifier, self.origin, self.metrics, changes
        )
        self.spark_stopped = threading.Event()
        """Set when Spark has stopped: nothing is executed any more, and only a new process helps."""
        self._counts: dict[str, tuple[float, int]] = {}
        """When each channel's subscriptions were last counted for the metrics, and how many there were."""
        self.metrics.before_scrape(self._measure)
        self._stopping = threading.Event()
        self._warming_up: threading.Thread | None = None

    def start(self, warm_up_s: float = 0.0) -> None:
        """Start notifying brokers and pushing pages; start executing channels, after `warm_up_s` on samples."""
        channels = self.catalog.channels()
        for name in self._stores.results.channels():
            if name not in channels:
                logger.warning("channel %s is no longer declared; dropping its subscriptions and results", name)
                self._stores.results.drop_channel(name)
        for channel in channels.values():
            self.definitions.start_channel(channel)
        self._scheduler.every(1.0, self._update_latest_records)
        self._scheduler.every(2.0, self._check_spark)
        self._scheduler.every(2.0, self._executor.end_cancelled)
        self._scheduler.every(30.0, self.remove_expired)
        self.notifier.start()
        self.origin.start()
        if warm_up_s:
            self._executor.warms_up = True
            self._warming_up = threading.Thread(target=self._warm_up, args=(warm_up_s,), name="warm-up")
            self._warming_up.start()
        else:
            self._scheduler.start()

    def _warm_up(self, seconds: float) -> None:
        try:
            self._executor.warm_up(self._scheduler.channels(), seconds, self._stopping)
        finally:
            self._scheduler.start()

    def stop(self) -> None:
        """Stop everything and release all but Spark, the log and the results."""
        self._stopping.set()
        self._scheduler.stop()
        if self._warming_up is not None:
            self._warming_up.join()
        self.notifier.stop()
        self.origin.stop()
        if not self.spark_stopped.is_set():
            self._executor.close()
        self._latest.close()

    def ready(self) -> list[str]:
        """Return the components that are not ready; the reasons go to the log only."""
        lacking = []
        if self._warming_up is not None and self._warming_up.is_alive():
            lacking.append("warm-up")
        if self._scheduler.problems():  # logged by the scheduler
            lacking.append("micro-batches")
        if self.spark_stopped.is_set():
            lacking.append("Spark")
        try:
            self._stores.check()
        except Exception as error:
            lacking.append(f"results: {error.reason}" if isinstance(error, Unavailable) else "results")
            logger.warning("not ready: results: %s", first_line(error))
        return lacking

    def degraded(self) -> list[str]:
        """Return what is impaired although the cluster is ready: channels, streams, runaway tasks."""
        found = []
        slow = {one.channel for one in self.executions() if one.slow}
        for name, channel in sorted(self.catalog.channels().items()):
            running = self._scheduler.running(name)
            if running is None:
                continue
            if running.failure is not None:
                found.append(f"channel {name} fails")
            elif name in slow:
                found.append(f"channel {name} has been executed for more than {self._limits.slow_s:g} s")
            elif self._log.head(channel.new) - (self._stores.results.position(name) or 0) > self._options.max_lag:
                found.append(f"channel {name} is more than {self._options.max_lag} publications behind")
            suspended = self._stores.subscriptions.count_suspended(name)
            if suspended:
                found.append(f"channel {name} has suspended streams: {suspended}")
        if self._executor.runaway_tasks:
            found.append(f"tasks of cancelled executions that continue to run: {self._executor.runaway_tasks}")
        return found

    def executions(self) -> list[RunningExecutionInfo]:
        """Return the executions that are running, at most one for each channel."""
        found = []
        for running in self._scheduler.channels():
            if (one := running.execution) is None:
                continue
            seconds = time.monotonic() - one.began
            size = None if one.after is None or one.through is None else one.through - one.after
            found.append(
                RunningExecutionInfo(
                    running.channel.name,
                    running.channel.new,
                    one.phase,
                    one.after,
                    one.through,
                    size,
                    round(seconds, 3),
                    seconds > self._limits.slow_s,
                )
            )
        return found

    # Periodic tasks

    def _check_spark(self) -> None:
        if is_stopped(self._spark):
            self.spark_stopped.set()

    def _update_latest_records(self) -> None:
        for dataset in self.catalog.datasets().values():
            if dataset.keyed:
                self._tables.catch_up(dataset)

    def remove_expired(self) -> None:
        """Remove results, deliveries and pages that are past their retention."""
        self._stores.cleaner.purge_deliveries(self._now_ms())
        for channel in self.catalog.channels().values():
            self._stores.cleaner.apply_retention(channel.name, channel.retention, self._now_ms())
        if self._options.keep_pages_s is not None:
            self.pages.sweep(self._now_ms() / 1000 - self._options.keep_pages_s)

    def _measure(self) -> None:
        self.metrics.runaway_tasks.set(self._executor.runaway_tasks)
        seconds = {one.channel: one.seconds for one in self.executions()}
        for name in self.catalog.channels():
            self.metrics.executing.labels(name).set(seconds.get(name, 0))
        with suppress(Unavailable):  # the other metrics are reported all the same
            self._measure_results()

    def _measure_results(self) -> None:
        channels = self.catalog.channels()
        self._counts = {name: self._count_subscriptions(name) for name in channels}
        for name, channel in channels.items():
            lag = max(0, self._log.head(channel.new) - (self._stores.results.position(name) or 0))
            self.metrics.lag.labels(name).set(lag)
            self.metrics.subscriptions.labels(name).set(self._counts[name][1])
            self.metrics.suspended.labels(name).set(self._stores.subscriptions.count_suspended(name))
        for broker in self._stores.outbox.brokers():
            status = self.notifier.status(broker.name)
            self.metrics.pending.labels(broker.name).set(status["pending"])
            self.metrics.away.labels(broker.name).set(status["away"])

    def _count_subscriptions(self, channel: str) -> tuple[float, int]:
        """Return when a channel's subscriptions were counted, and how many; counting millions takes a second."""
        counted_at, count = self._counts.get(channel, (-math.inf, 0))
        if time.monotonic() > counted_at + self._limits.count_valid_s:
            count, _ = self._stores.subscriptions.count(channel)
            return time.monotonic(), count
        return counted_at, count
