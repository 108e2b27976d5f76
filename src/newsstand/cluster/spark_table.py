"""A table that changes on the driver and is read by every execution: a cached base, and the few changes since.

Shipping a million rows to Spark for each execution would cost more than the execution. The base is shipped once
and cached; what changed since travels with each execution, until there is so much of it that a new base pays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast
from pyspark.storagelevel import StorageLevel

Key = str | int
Item = TypeVar("Item")

FEWEST_CHANGES = 20_000
"""So many changes are carried along before a new base is considered."""


class SparkTable(Generic[Item]):
    """Items by their keys: `load` tells all that there are, `build` makes a table whose column `key` is the key.

    A change is in every frame that is asked for after `change` or `remove` has returned.
    """

    def __init__(
        self,
        spark: SparkSession,
        key: str,
        load: Callable[[], Mapping[Key, Item]],
        build: Callable[[Iterable[Item]], pa.Table],
        partitions: int,
    ) -> None:
        self._spark = spark
        self._key = key
        self._load = load
        self._build = build
        self._partitions = partitions
        self._base: DataFrame | None = None
        self._rows = 0
        self._changed: dict[Key, Item] = {}
        self._removed: set[Key] = set()
        self._frame: DataFrame | None = None
        self._lock = threading.Lock()
        self._basing = threading.Lock()

    def change(self, items: Mapping[Key, Item]) -> None:
        """Add items, or replace those of the same key."""
        with self._lock:
            self._changed.update(items)
            self._removed.difference_update(items)
            self._frame = None

    def remove(self, keys: Iterable[Key]) -> None:
        """Take items out; keys that are not there do not matter."""
        with self._lock:
            for key in keys:
                self._changed.pop(key, None)
                self._removed.add(key)
            self._frame = None

    @property
    def empty(self) -> bool:
        """Whether there is certainly nothing in it; known once a frame was asked for."""
        return self._base is not None and self._rows == 0 and not self._changed

    def frame(self) -> DataFrame:
        """The items as they are now."""
        with self._basing:
            with self._lock:
                changes = len(self._changed) + len(self._removed)
                if self._base is not None and changes <= max(FEWEST_CHANGES, self._rows // 5):
                    if self._frame is None:
                        self._frame = self._with_changes(self._base)
                    return self._frame
                # What changes from here on is carried along; what changed before is in what is loaded now.
                self._changed, self._removed, self._frame = {}, set(), None
            old, self._base = self._base, None  # a failure below must not leave a base without its changes
            try:
                self._base = self._shipped()
            finally:
                if old is not None:
                    old.unpersist()
            with self._lock:
                self._frame = frame = self._with_changes(self._base)
            return frame

    def close(self) -> None:
        """Let go of the cached rows."""
        if self._base is not None:
            self._base.unpersist()

    def _shipped(self) -> DataFrame:
        table = self._build(self._load().values())
        base = self._spark.createDataFrame(table).repartition(self._partitions)
        self._rows = base.persist(StorageLevel.MEMORY_AND_DISK_DESER).count()
        return base

    def _with_changes(self, base: DataFrame) -> DataFrame:
        if not self._changed and not self._removed:
            return base
        stale = pa.array([*self._changed, *self._removed], self._build(()).schema.field(self._key).type)
        keys = self._spark.createDataFrame(pa.table([stale], [self._key]))
        kept = base.join(broadcast(keys), self._key, "left_anti").select(base.columns)
        if not self._changed:
            return kept
        return kept.unionAll(self._spark.createDataFrame(self._build(self._changed.values())))
