"""The data cluster, all of it in one object: what comes in, what is matched, what comes out.

Publications are judged at the door, made durable in the log, matched by the engine, and stored as results; the
notifier tells the brokers. The HTTP API calls this object and nothing else of the cluster.
"""

from __future__ import annotations

import logging
import math
import time
from contextlib import suppress

from newsstand.cluster.definitions import Definitions
from newsstand.cluster.publications import Publications
from newsstand.cluster.spark_errors import first_line
from newsstand.cluster.subscribers import Subscribers
from newsstand.errors import Unavailable

logger = logging.getLogger(__name__)

SLOW_S = 30.0
"""How long an execution may take before readiness tells of it."""

COUNTED_FOR_S = 30.0
"""How long a count of subscriptions serves those who ask for metrics."""


class DataCluster(Publications, Definitions, Subscribers):
    """One running data cluster. Methods block and may be called from several threads."""

    def start(self) -> None:
        """Begin to execute all channels, to tell brokers, and to push pages."""
        self.metrics.before_telling(self._measure)
        channels = self.catalog.channels()
        for name in self._results.channels():
            if name not in channels:
                logger.warning("channel %s is declared no more; its subscriptions and results are dropped", name)
                self._results.forget(name)
        for channel in channels.values():
            self._run(channel)
        self._engine.every(1.0, self._catch_up)
        self._engine.every(2.0, self._look_at_spark)
        self._engine.every(2.0, self._executions.end_cancelled)
        self._engine.every(30.0, self._retain)
        self._engine.start()
        self.notifier.start()
        self.origin.start()

    def stop(self) -> None:
        """Stop executing and let go of everything but Spark, the log and the results."""
        self._engine.stop()
        self.notifier.stop()
        self.origin.stop()
        self._keyed.close()

    def ready(self) -> list[str]:
        """Which parts are not ready; empty if all are. Why they are not is for the log alone."""
        lacking = []
        if self._engine.problems():  # the engine has told the log
            lacking.append("a stream of Spark's")
        if self.spark_stopped.is_set():
            lacking.append("Spark")
        try:
            self._results.check()
        except Exception as error:
            lacking.append(f"results: {error.reason}" if isinstance(error, Unavailable) else "results")
            logger.warning("not ready: results: %s", first_line(error))
        return lacking

    def degraded(self) -> list[str]:
        """Which channels are not executed as they should be, though the cluster is ready."""
        found = []
        for name, channel in sorted(self.catalog.channels().items()):
            running = self._engine.running(name)
            if running is None:
                continue
            began = running.began
            if running.failure is not None:
                found.append(f"channel {name} fails")
            elif began is not None and time.monotonic() - began > SLOW_S:
                found.append(f"channel {name} has been executed for more than {SLOW_S:g} s")
            elif self._log.head(channel.new) - (self._results.position(name) or 0) > self._options.max_lag:
                found.append(f"channel {name} is more than {self._options.max_lag} publications behind")
        return found

    # Chores

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
        self._results.tidy(self._now_ms())
        for channel in self.catalog.channels().values():
            self._results.retain(channel.name, channel.retention, self._now_ms())
        if self._options.keep_pages_s is not None:
            self._pages.sweep(self._now_ms() / 1000 - self._options.keep_pages_s)

    def _measure(self) -> None:
        with suppress(Unavailable):  # what is measured elsewhere is told all the same
            self._measure_results()

    def _measure_results(self) -> None:
        for name, channel in self.catalog.channels().items():
            lag = max(0, self._log.head(channel.new) - (self._results.position(name) or 0))
            self.metrics.channel_stands(name, lag, self._counted(name), len(self._results.suspensions(name)))
        for name, stands in self.notifier.status().items():
            self.metrics.broker_stands(name, int(stands["pending"] or 0), bool(stands["away"]))

    def _counted(self, channel: str) -> int:
        """How many subscriptions a channel has, or had a while ago: to count millions takes a second."""
        at, count = self._counts.get(channel, (-math.inf, 0))
        if time.monotonic() > at + COUNTED_FOR_S:
            count, _ = self._results.count_subscriptions(channel)
            self._counts[channel] = time.monotonic(), count
        return count
