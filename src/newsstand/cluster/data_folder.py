"""A data folder, looked at from outside: what is recorded there, whether or not a cluster runs over it.

Nothing in the folder is changed. Keyed datasets are made from the log, since what a cluster keeps of them is its
own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from newsstand.cluster.app_folder import App
from newsstand.cluster.catalog import Catalog
from newsstand.cluster.dry_run import Recorded, dry_run, explanation
from newsstand.cluster.facade import Facts
from newsstand.cluster.log import Log
from newsstand.cluster.log_files import FileLog
from newsstand.cluster.results import Results
from newsstand.cluster.spark_table import Key, SparkTable
from newsstand.cluster.tables import Wanted, values_table
from newsstand.errors import BadInput
from newsstand.model import Channel, Dataset, Values


@dataclass(frozen=True)
class DataFolder:
    """The catalog and the log of a data folder."""

    app: App
    folder: Path
    catalog: Catalog
    log: Log

    def require_publications(self, dataset: str) -> None:
        """Refuse to go on if nothing was ever published to a dataset."""
        if isinstance(self.log, FileLog) and not self.log.folder.is_dir():
            raise BadInput(
                f"data folder {self.folder}: has no log, no cluster ever ran there; "
                "name a file of records with --file"
            )
        if not self.log.head(dataset):
            raise BadInput(
                f"data folder {self.folder}: nothing was published to '{dataset}' yet; "
                "publish something, or name a file of records with --file"
            )

    def try_channel(
        self,
        spark: SparkSession,
        channel: Channel,
        values: Sequence[Values],
        after: int = 0,
        until: int | None = None,
        new: Log | None = None,
    ) -> Facts:
        """What a channel would have made of the publications after < seq <= until, or of those of another log."""
        return dry_run(self._recorded(spark, new or self.log), channel, values, after, until)

    def explain(self, spark: SparkSession, name: str) -> Facts:
        """What a channel would cost, what it would run with, and what it would make of recent publications."""
        channels = self.catalog.channels()
        channel = self.catalog.channel(name)
        with recorded_results(self.app.cluster.results, self.folder) as results:
            subscriptions, streams = results.count_subscriptions(name) if results else (0, 0)
            active: dict[Key, Wanted] = (
                {stream: (stream, values) for stream, values in results.active_streams(name)} if results else {}
            )
        facts: Facts = {
            "channel": name,
            "subscriptions": subscriptions,
            "streams": streams,
            "runs_with": sorted(
                other
                for other, one in channels.items()
                if other != name and (one.new, one.period_s) == (channel.new, channel.period_s)
            ),
            "last_seconds": None,
        }
        # The same table as a cluster has, so that Spark makes the same plan of it.
        wanted = SparkTable(
            spark,
            "stream",
            lambda: active,
            lambda rows: values_table(channel, rows),
            spark.sparkContext.defaultParallelism,
        )
        return facts | explanation(self._recorded(spark, self.log), channel, wanted.frame())

    def _recorded(self, spark: SparkSession, new: Log) -> Recorded:
        return Recorded(spark, new, lambda dataset: _stored(spark, self.log, dataset), self.catalog.datasets())


@contextmanager
def open_folder(app: App, folder: Path) -> Iterator[DataFolder]:
    """A data folder for the length of a `with` block; it need not be there."""
    catalog = Catalog(app, folder / "catalog.json", read_only=True)
    log = _log(app, folder)
    try:
        yield DataFolder(app, folder, catalog, log)
    finally:
        log.close()


@contextmanager
def passing_log(dataset: str, batches: Iterable[Sequence[bytes]], at_ms: int) -> Iterator[Log]:
    """A log of some records of one dataset, gone after the `with` block."""
    with tempfile.TemporaryDirectory(prefix="newsstand-") as folder:
        log = FileLog(Path(folder))
        try:
            for lines in batches:
                if lines:
                    log.append(dataset, lines, at_ms)
            yield log
        finally:
            log.close()


def _log(app: App, folder: Path) -> Log:
    if app.cluster.log is None:
        return FileLog(folder / "log", read_only=True)
    from newsstand.cluster.log_kafka import KafkaLog

    return KafkaLog(app.cluster.log.servers, app.cluster.log.prefix)


@contextmanager
def recorded_results(place: str, folder: Path) -> Iterator[Results | None]:
    """The store of results, `sqlite` or a URL, if there is one: looking must not make it."""
    from newsstand.cluster.results_sqlite import SqliteResults

    results: Results
    if place == "sqlite":
        if not (folder / "results.sqlite").is_file():
            yield None
            return
        results = SqliteResults(folder / "results.sqlite")
    else:
        from newsstand.cluster.results_postgres import PostgresResults

        results = PostgresResults(place)
    try:
        yield results
    finally:
        results.close()


def _stored(spark: SparkSession, log: Log, dataset: Dataset) -> DataFrame:
    """What is stored of a dataset: its latest record per key, or all that was ever published to it."""
    every = log.frame(spark, dataset, 0, log.head(dataset.name))
    if dataset.key is None:
        return every
    latest = F.max_by(F.struct(*(F.col(name) for name in every.columns)), F.col("_seq")).alias("latest")
    return every.groupBy(dataset.key).agg(latest).select("latest.*")
