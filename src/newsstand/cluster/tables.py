"""What executions read besides new publications: the values that are subscribed to, and stored records."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from newsstand.cluster.keyed import KeyedRecords, Latest
from newsstand.cluster.log import Log
from newsstand.cluster.records import arrow_table, scalar_arrow_type
from newsstand.cluster.results import Results
from newsstand.cluster.spark_table import Key, SparkTable
from newsstand.model import Channel, Dataset, Subscription, Values

Wanted = tuple[int, Values]
"""A stream and the values that it stands for."""


class Tables:
    """The tables that all executions share. Methods may be called from several threads."""

    def __init__(self, spark: SparkSession, log: Log, keyed: KeyedRecords, results: Results) -> None:
        self._spark = spark
        self._log = log
        self._keyed = keyed
        self._results = results
        self._partitions = spark.sparkContext.defaultParallelism
        self._values: dict[str, SparkTable[Wanted]] = {}
        self._latest: dict[str, tuple[Dataset, SparkTable[Latest]]] = {}
        self._lock = threading.Lock()
        self._updating = threading.Lock()
        """Held while the store is read and a table of values is brought up to what it says."""

    def values(self, channel: Channel) -> SparkTable[Wanted]:
        """The streams of a channel that somebody subscribes to: `stream`, and `p_<name>` for each parameter."""
        with self._lock:
            table = self._values.get(channel.name)
            if table is None:
                table = SparkTable(
                    self._spark,
                    "stream",
                    lambda: {
                        stream: (stream, values) for stream, values in self._results.active_streams(channel.name)
                    },
                    lambda wanted: values_table(channel, wanted),
                    self._partitions,
                )
                self._values[channel.name] = table
            return table

    def subscribed(self, channel: Channel, subscriptions: Iterable[Subscription]) -> None:
        """These subscriptions of a channel were made."""
        table = self.values(channel)
        with self._updating:
            suspended = {one.stream for one in self._results.suspensions(channel.name)}
            table.change(
                {one.stream: (one.stream, one.values) for one in subscriptions if one.stream not in suspended}
            )

    def suspended(self, channel: Channel, stream: int) -> None:
        """A stream of a channel was suspended, unless it lost its subscription before; it may have one again."""
        self._update(channel, [stream])

    def unsubscribed(self, channel: Channel, streams: Iterable[int]) -> None:
        """Some of these streams may have lost their last subscription."""
        self._update(channel, list(dict.fromkeys(streams)))

    def _update(self, channel: Channel, streams: Sequence[int]) -> None:
        """Bring streams of a channel's table up to what the store says now."""
        table = self.values(channel)
        with self._updating:
            active: dict[Key, Wanted] = {
                stream: (stream, values) for stream, values in self._results.active_streams(channel.name, streams)
            }
            table.change(active)
            table.remove(stream for stream in streams if stream not in active)

    def stored(self, dataset: Dataset) -> DataFrame:
        """What is stored of a dataset now: its latest record per key, or all that was ever published to it."""
        if not dataset.keyed:
            return self._log.frame(self._spark, dataset, 0, self._log.head(dataset.name))
        self.catch_up(dataset)
        return self._latest_of(dataset).frame()

    def catch_up(self, dataset: Dataset) -> None:
        """Apply what was published to a keyed dataset since the last time."""
        # Asked for when there is something to tell: the table of before may have been replaced by then.
        self._keyed.catch_up(dataset, lambda newest: self._latest_of(dataset).change(newest))

    def forget_channel(self, name: str) -> None:
        """A channel was changed or dropped, or streams of it were resumed."""
        with self._lock:
            table = self._values.pop(name, None)
        if table is not None:
            table.close()

    def forget_dataset(self, name: str) -> None:
        """A dataset was changed or dropped."""
        with self._lock:
            known = self._latest.pop(name, None)
        if known is not None:
            known[1].close()

    def _latest_of(self, dataset: Dataset) -> SparkTable[Latest]:
        """The table of a keyed dataset's records; a new one if the dataset has other fields than it had."""
        with self._lock:
            known = self._latest.get(dataset.name)
            if known is not None and known[0] == dataset:
                return known[1]
            table: SparkTable[Latest] = SparkTable(
                self._spark,
                str(dataset.key),
                lambda: self._keyed.all(dataset),
                lambda latest: arrow_table(dataset, latest),
                self._partitions,
            )
            self._latest[dataset.name] = (dataset, table)
        if known is not None:
            known[1].close()
        return table


def values_table(channel: Channel, wanted: Iterable[Wanted]) -> pa.Table:
    """Streams and their values, as a channel's body is joined with them."""
    rows = list(wanted)
    columns = {"stream": pa.array([stream for stream, _ in rows], pa.int64())}
    for index, parameter in enumerate(channel.parameters):
        kind = scalar_arrow_type(parameter.type)
        columns[f"p_{parameter.name}"] = pa.array([values[index] for _, values in rows], kind)
    return pa.table(columns)
