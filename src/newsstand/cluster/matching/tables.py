"""The tables that executions read besides new publications: subscribed values, and stored records.

They change on the driver and are read by every execution. Sending a million rows to Spark for each execution would
cost more than the execution. So a base is sent once and cached; later changes are sent with each execution, until
a new base is cheaper.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast
from pyspark.storagelevel import StorageLevel

from newsstand.cluster.ingest.latest_records import LatestRecords, StoredRecord
from newsstand.cluster.ingest.schema import arrow_table, arrow_type
from newsstand.cluster.log.contract import Log
from newsstand.cluster.results.stores import ResultStores
from newsstand.model import BackendSubscription, ChannelDefinition, Dataset, Values

Key = str | int
Item = TypeVar("Item")
StreamValues = tuple[int, Values]
"""A stream and its values."""


@dataclass(frozen=True)
class TableParts:
    """A table in parts: rows that are cached on Spark, and small relations that change between executions."""

    key: str
    base: DataFrame
    stale: DataFrame
    """The keys of rows of the base that have changed or were removed."""
    changed: DataFrame
    """Rows that have changed."""
    stale_keys: frozenset[Key]
    base_rows: int
    has_changed: bool

    def frame(self) -> DataFrame:
        """Return the table."""
        unchanged = self.base.join(broadcast(self.stale), self.key, "left_anti").select(self.base.columns)
        return unchanged.unionAll(self.changed)


@dataclass(eq=False)
class CachedTable(Generic[Item]):
    """A table on Spark: `load` returns all items by key, `build` makes a table whose column `key` is the key.

    A change is in every frame that is requested after `change` or `remove` has returned.
    """

    spark: SparkSession
    key: str
    load: Callable[[], Mapping[Key, Item]]
    build: Callable[[Iterable[Item]], pa.Table]
    min_changes: int = 4_000
    """Changes up to which no new base is built."""

    def __post_init__(self) -> None:
        self._base: DataFrame | None = None
        self._rows = 0
        self._changed: dict[Key, Item] = {}
        self._removed: set[Key] = set()
        self._parts: TableParts | None = None
        self._frame: DataFrame | None = None
        self._reload = False
        self._lock = threading.Lock()
        self._building = threading.Lock()

    def change(self, items: Mapping[Key, Item]) -> None:
        """Add items, or replace those of the same key."""
        with self._lock:
            self._changed.update(items)
            self._removed.difference_update(items)
            self._parts = self._frame = None

    def remove(self, keys: Iterable[Key]) -> None:
        """Remove items; unknown keys are ignored."""
        with self._lock:
            for key in keys:
                self._changed.pop(key, None)
                self._removed.add(key)
            self._parts = self._frame = None

    def frame(self) -> DataFrame:
        """Return the present items."""
        parts = self.parts()
        with self._lock:
            if self._parts is parts and self._frame is not None:
                return self._frame
        frame = parts.frame() if parts.stale_keys else parts.base
        with self._lock:
            if self._parts is parts:
                self._frame = frame
        return frame

    def parts(self) -> TableParts:
        """Return the present items in parts. The same object is returned until something changes."""
        with self._building:
            with self._lock:
                changes = len(self._changed) + len(self._removed)
                few = changes <= max(self.min_changes, self._rows // 20)
                if self._base is not None and few and not self._reload:
                    return self._parts_of(self._base)
                # Later changes are kept apart; earlier ones are in what is loaded now.
                self._changed, self._removed = {}, set()
                self._parts = self._frame = None
                self._reload = False
            old, self._base = self._base, None  # a failure below must not leave a base without its changes
            if old is not None:
                old.unpersist()  # first: equal rows would share its entry in Spark's cache
            self._base = self._new_base()
            with self._lock:
                return self._parts_of(self._base)

    def reload(self) -> None:
        """Build a new base at the next use."""
        with self._lock:
            self._reload = True

    def close(self) -> None:
        """Release the cached rows."""
        if self._base is not None:
            self._base.unpersist()

    def _new_base(self) -> DataFrame:
        table = self.build(self.load().values())
        base = self.spark.createDataFrame(table).repartition(self.spark.sparkContext.defaultParallelism)
        self._rows = base.persist(StorageLevel.MEMORY_AND_DISK_DESER).count()
        return base

    def _parts_of(self, base: DataFrame) -> TableParts:
        if self._parts is None:
            keys = [*self._changed, *self._removed]
            stale = pa.array(keys, self.build(()).schema.field(self.key).type)
            self._parts = TableParts(
                self.key,
                base,
                self.spark.createDataFrame(pa.table([stale], [self.key])),
                self.spark.createDataFrame(self.build(self._changed.values())),
                frozenset(keys),
                self._rows,
                bool(self._changed),
            )
        return self._parts


class Tables:
    """The tables that all executions share. Methods may be called from several threads."""

    def __init__(self, spark: SparkSession, log: Log, latest: LatestRecords, stores: ResultStores) -> None:
        self._spark = spark
        self._log = log
        self._latest = latest
        self._stores = stores
        self._values: dict[str, CachedTable[StreamValues]] = {}
        self._stored: dict[str, tuple[Dataset, CachedTable[StoredRecord]]] = {}
        self._appended: dict[str, tuple[Dataset, int, DataFrame]] = {}
        """The records of datasets without a key, up to a publication."""
        self._lock = threading.Lock()
        self._updating = threading.Lock()
        """Held from reading the store until a table of values reflects it."""

    def values(self, channel: ChannelDefinition) -> CachedTable[StreamValues]:
        """Return the subscribed streams of a channel: `stream`, and `p_<name>` for each parameter."""
        with self._lock:
            table = self._values.get(channel.name)
            if table is None:
                build = partial(values_table, channel)
                table = CachedTable(self._spark, "stream", lambda: self._active(channel), build)
                self._values[channel.name] = table
            return table

    def _active(self, channel: ChannelDefinition, among: Sequence[int] | None = None) -> dict[Key, StreamValues]:
        active = self._stores.subscriptions.active_streams(channel.name, among)
        return {stream: (stream, values) for stream, values in active}

    def add(self, channel: ChannelDefinition, subscriptions: Iterable[BackendSubscription]) -> None:
        """Add the streams of new subscriptions, but for those that are suspended."""
        table = self.values(channel)
        with self._updating:
            suspended = {one.stream for one in self._stores.subscriptions.suspensions(channel.name)}
            table.change(
                {one.stream: (one.stream, one.values) for one in subscriptions if one.stream not in suspended}
            )

    def refresh(self, channel: ChannelDefinition, streams: Iterable[int]) -> None:
        """Bring streams that may have been suspended, resumed or dropped up to date with the store."""
        streams = list(dict.fromkeys(streams))
        table = self.values(channel)
        with self._updating:
            active = self._active(channel, streams)
            table.change(active)
            table.remove(stream for stream in streams if stream not in active)

    def stored(self, dataset: Dataset) -> DataFrame:
        """Return the stored records of a dataset: the latest per key, or all that were ever published to it."""
        parts = self.stored_parts(dataset)
        return self._all_records(dataset) if parts is None else self._latest_of(dataset).frame()

    def stored_parts(self, dataset: Dataset) -> TableParts | None:
        """Return the latest record per key in parts; None for a dataset without a key."""
        if not dataset.keyed:
            return None
        self.catch_up(dataset)
        return self._latest_of(dataset).parts()

    def _all_records(self, dataset: Dataset) -> DataFrame:
        """Return all records of a dataset; the same frame while none is added."""
        head = self._log.head(dataset.name)
        with self._lock:
            known = self._appended.get(dataset.name)
            if known is not None and known[:2] == (dataset, head):
                return known[2]
        frame = self._log.frame(self._spark, dataset, 0, head)
        with self._lock:
            self._appended[dataset.name] = dataset, head, frame
        return frame

    def catch_up(self, dataset: Dataset) -> None:
        """Apply what was published to a keyed dataset since the last call."""
        # The table is looked up when there is a change: it may have been replaced by then.
        self._latest.catch_up(dataset, lambda changes: self._latest_of(dataset).change(changes))

    def forget_channel(self, name: str) -> None:
        """Drop the values of a channel that was changed or dropped."""
        with self._lock:
            table = self._values.pop(name, None)
        if table is not None:
            table.close()

    def forget_dataset(self, name: str) -> None:
        """Drop the stored records of a dataset that was changed or dropped."""
        with self._lock:
            known = self._stored.pop(name, None)
            self._appended.pop(name, None)
        if known is not None:
            known[1].close()

    def _latest_of(self, dataset: Dataset) -> CachedTable[StoredRecord]:
        """Return the table of a keyed dataset's records; a new one if the fields of the dataset have changed."""
        with self._lock:
            known = self._stored.get(dataset.name)
            if known is not None and known[0] == dataset:
                return known[1]
            load, build = partial(self._latest.all, dataset), partial(arrow_table, dataset)
            table: CachedTable[StoredRecord] = CachedTable(self._spark, str(dataset.key), load, build)
            self._stored[dataset.name] = (dataset, table)
        if known is not None:
            known[1].close()
        return table


def values_table(channel: ChannelDefinition, streams: Iterable[StreamValues]) -> pa.Table:
    """Return streams and their values as the table with which a channel's body is joined."""
    rows = list(streams)
    columns = {"stream": pa.array([stream for stream, _ in rows], pa.int64())}
    for index, parameter in enumerate(channel.parameters):
        values = [given[index] for _, given in rows]
        columns[f"p_{parameter.name}"] = pa.array(values, arrow_type(parameter.type))
    return pa.table(columns)
