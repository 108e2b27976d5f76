"""What a data cluster is put together from, for those who work with it: publications, definitions, subscribers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from newsstand.cluster.app_folder import App
from newsstand.cluster.body import parse_body
from newsstand.cluster.catalog import Catalog
from newsstand.cluster.door import Door
from newsstand.cluster.engine import Engine
from newsstand.cluster.executions import Executions, Running
from newsstand.cluster.keyed import KeyedRecords
from newsstand.cluster.log import Log
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.notify import Notifier
from newsstand.cluster.origin import Origin
from newsstand.cluster.pages import PageStore
from newsstand.cluster.results import Execution, Results, Stored
from newsstand.cluster.tables import Tables
from newsstand.model import Channel

logger = logging.getLogger(__name__)


class ClusterParts:
    """The parts, made and tied together. Who changes definitions or subscriptions holds `_changing`."""

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
        self.origin = Origin(app, data, self._pages, results.broker, self.metrics, now_ms)
        self._keyed = KeyedRecords(data / "keyed.sqlite", log)
        self._tables = Tables(spark, log, self._keyed, results)
        limit = app.cluster.max_batch
        self._executions = executions = Executions(
            spark,
            log,
            results,
            self._tables,
            now_ms,
            self._executed,
            limit,
            self._failed,
            app.cluster.execution_timeout_s,
            lambda running: self.notifier.wake(),
        )
        self._engine = Engine(spark, log, results, executions, data / "scratch", limit)
        self.notifier = Notifier(
            results,
            now_ms,
            is_push=self._is_push,
            away_after_s=app.cluster.away_after_s,
            told=self.metrics.delivered,
            authority=None if app.cluster.authority is None else app.folder / app.cluster.authority,
        )
        self.spark_stopped = threading.Event()
        """Set when Spark is gone: nothing is executed any more, and only a new process can help."""
        self._doors: dict[str, Door] = {}
        self._counts: dict[str, tuple[float, int]] = {}
        """When each channel's subscriptions were last counted for the metrics, and how many there were."""
        self._in_flight = 0
        self._weighing = threading.Lock()
        self._changing = threading.RLock()

    def _run(self, channel: Channel) -> None:
        datasets = self.catalog.datasets()
        body = parse_body(channel, datasets)
        self._engine.leave(channel.name)
        self._tables.forget_channel(channel.name)
        self._results.begin(channel.name, self._log.head(channel.new))
        read = {name: datasets[name] for name in {channel.new, *body.stored}}
        running = Running(channel, body, read)
        # What failed in an earlier definition is tried again.
        if self._results.resume(channel.name, self._now_ms(), besides=running.definition):
            self.notifier.wake()
        self._engine.run(running)

    def _executed(self, running: Running, execution: Execution, stored: Stored) -> None:
        self.metrics.executed(execution.channel, running.seconds, stored.results)
        if stored.streams:
            self.notifier.wake()

    def _failed(self, running: Running) -> None:
        self.metrics.failed(running.channel.name)

    def _is_push(self, channel: str) -> bool:
        known = self.catalog.channels().get(channel)
        return known is not None and known.push
