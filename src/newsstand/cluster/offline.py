"""Access to a data folder without its cluster, which may be running.

Nothing in the folder is changed. Keyed datasets are derived from the log, since the running cluster's own records
of them may be in use.
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
from newsstand.cluster.log.contract import Log
from newsstand.cluster.log.files.log import FileLog
from newsstand.cluster.matching.matcher import RecordedData, dry_run, explanation
from newsstand.cluster.matching.tables import CachedTable, Key, StreamValues, values_table
from newsstand.cluster.results.stores import ResultStores, open_results
from newsstand.errors import BadInput
from newsstand.model import ChannelDefinition, Dataset, JsonObject, Values


@dataclass(frozen=True)
class DataFolder:
    """The catalog and the log of a data folder."""

    app: App
    folder: Path
    catalog: Catalog
    log: Log

    def require_publications(self, dataset: str) -> None:
        """Raise BadInput if nothing was ever published to a dataset."""
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
        channel: ChannelDefinition,
        values: Sequence[Values],
        after: int = 0,
        until: int | None = None,
        new: Log | None = None,
    ) -> JsonObject:
        """Return what a channel would produce from the publications after < seq <= until of a log."""
        return dry_run(self._recorded(spark, new or self.log), channel, values, after, until)

    def explain(self, spark: SparkSession, name: str) -> JsonObject:
        """Return what a channel costs, what it shares with others, and its results on recent publications."""
        channels = self.catalog.channels().values()
        channel = self.catalog.channel(name)
        with recorded_results(self.app.cluster.results, self.folder) as stores:
            subscriptions, streams = stores.subscriptions.count(name) if stores else (0, 0)
            listed = stores.subscriptions.active_streams(name) if stores else ()
            active: dict[Key, StreamValues] = {stream: (stream, values) for stream, values in listed}
        cohort = [one.name for one in channels if (one.new, one.period_s) == (channel.new, channel.period_s)]
        facts: JsonObject = {
            "channel": name,
            "subscriptions": subscriptions,
            "streams": streams,
            "runs_with": sorted(set(cohort) - {name}),
            "last_seconds": None,
        }
        # The same kind of table as in a cluster, so that Spark makes the same plan.
        values = CachedTable(spark, "stream", lambda: active, lambda streams: values_table(channel, streams))
        return facts | explanation(self._recorded(spark, self.log), channel, values.frame())

    def _recorded(self, spark: SparkSession, new: Log) -> RecordedData:
        return RecordedData(spark, new, lambda dataset: _stored(spark, self.log, dataset), self.catalog.datasets())


@contextmanager
def open_folder(app: App, folder: Path) -> Iterator[DataFolder]:
    """Open a data folder, which need not exist, for the length of a `with` block."""
    catalog = Catalog(app, folder / "catalog.json", read_only=True)
    log = open_log(app, folder, read_only=True)
    try:
        yield DataFolder(app, folder, catalog, log)
    finally:
        log.close()


@contextmanager
def temporary_log(dataset: str, batches: Iterable[Sequence[bytes]], at_ms: int) -> Iterator[Log]:
    """Make a log of some records of one dataset, which is removed after the `with` block."""
    with tempfile.TemporaryDirectory(prefix="newsstand-") as folder:
        log = FileLog(Path(folder))
        try:
            for lines in batches:
                if lines:
                    log.append(dataset, lines, at_ms)
            yield log
        finally:
            log.close()


def open_log(app: App, folder: Path, *, read_only: bool = False) -> Log:
    """Return the ingest log of an app: files in its data folder, or Kafka."""
    if app.cluster.log is None:
        return FileLog(folder / "log", read_only=read_only)
    from newsstand.cluster.log.kafka import KafkaLog

    return KafkaLog(app.cluster.log.servers, app.cluster.log.prefix)


@contextmanager
def recorded_results(place: str, folder: Path) -> Iterator[ResultStores | None]:
    """Open the result stores, `sqlite` or a URL, if they exist; reading must not create them."""
    if place == "sqlite" and not (folder / "results.sqlite").is_file():
        yield None
        return
    stores = open_results(place, folder)
    try:
        yield stores
    finally:
        stores.close()


def _stored(spark: SparkSession, log: Log, dataset: Dataset) -> DataFrame:
    """Return the stored records of a dataset: the latest per key, or all that were ever published to it."""
    every = log.frame(spark, dataset, 0, log.head(dataset.name))
    if dataset.key is None:
        return every
    latest = F.max_by(F.struct(*(F.col(name) for name in every.columns)), F.col("_seq")).alias("latest")
    return every.groupBy(dataset.key).agg(latest).select("latest.*")
