"""Tables that change on the driver and are cached on Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support.profiles import examples

from newsstand.cluster.matching.tables import CachedTable, Tables
from newsstand.model import ChannelDefinition

SCHEMA = pa.schema([("stream", pa.int64()), ("p_kind", pa.string())])


def build(items: Iterable[tuple[int, str]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, item, strict=True)) for item in items], SCHEMA)


def table_of(
    spark: SparkSession, truth: dict[int, str], min_changes: int = 20_000
) -> CachedTable[tuple[int, str]]:
    return CachedTable(
        spark, "stream", lambda: {key: (key, kind) for key, kind in truth.items()}, build, min_changes
    )


def rows(table: CachedTable[tuple[int, str]]) -> dict[int, str]:
    return {row.stream: row.p_kind for row in table.frame().collect()}


Change = tuple[str, int, str]
changes = st.lists(st.tuples(st.sampled_from(["set", "drop", "look"]), st.integers(0, 5), st.sampled_from("ab")))


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    first=st.dictionaries(st.integers(0, 5), st.sampled_from("ab")), after=changes, min_changes=st.integers(0, 3)
)
def test_frame_reflects_all_changes(
    spark: SparkSession, first: dict[int, str], after: list[Change], min_changes: int
) -> None:
    truth = dict(first)
    table = table_of(spark, truth, min_changes)
    for what, key, kind in after:
        if what == "set":
            truth[key] = kind
            table.change({key: (key, kind)})
        elif what == "drop":
            truth.pop(key, None)
            table.remove([key])
        else:
            assert rows(table) == truth
    assert rows(table) == truth
    table.close()


def test_new_base_built_after_many_changes(spark: SparkSession) -> None:
    truth = dict.fromkeys(range(10), "a")
    loads: list[int] = []
    table = CachedTable(
        spark, "stream", lambda: loads.append(1) or {key: (key, kind) for key, kind in truth.items()}, build, 3
    )
    assert rows(table) == truth
    for key in range(3):
        truth[key] = "b"
        table.change({key: (key, "b")})
    assert rows(table) == truth
    assert len(loads) == 1
    for key in range(3, 7):
        truth[key] = "b"
        table.change({key: (key, "b")})
    assert rows(table) == truth
    assert len(loads) == 2
    table.close()


def test_parts_are_same_until_something_changes(spark: SparkSession) -> None:
    truth = {1: "a", 2: "b"}
    table = table_of(spark, truth)
    parts = table.parts()
    assert table.parts() is parts
    assert table.frame() is parts.base
    assert (parts.base_rows, parts.stale_keys, parts.has_changed) == (2, frozenset(), False)
    table.remove([2])
    removed = table.parts()
    assert removed.base is parts.base
    assert (removed.stale_keys, removed.has_changed) == (frozenset([2]), False)
    table.change({3: (3, "c")})
    changed = table.parts()
    assert (changed.stale_keys, changed.has_changed) == (frozenset([2, 3]), True)
    assert [tuple(row) for row in changed.changed.collect()] == [(3, "c")]
    truth = {1: "a", 3: "c"}
    table.load = lambda: {key: (key, kind) for key, kind in truth.items()}
    table.reload()
    again = table.parts()
    assert (again.base_rows, again.stale_keys, again.has_changed) == (2, frozenset(), False)
    assert rows(table) == truth
    table.reload()
    assert table.parts().base.storageLevel.useMemory, "rows that have not changed are cached again"
    table.close()


def test_base_loaded_again_after_failure(spark: SparkSession) -> None:
    truth = {1: "a"}
    broken = [True]

    def load() -> dict[int, tuple[int, str]]:
        if broken.pop() if broken else False:
            raise OSError("no such luck")
        return {key: (key, kind) for key, kind in truth.items()}

    table = CachedTable(spark, "stream", load, build)
    with pytest.raises(OSError, match="luck"):
        table.frame()
    assert rows(table) == truth
    table.close()


class _Table:
    def __init__(self) -> None:
        self.keys: set[object] = set()

    def change(self, rows: Any) -> None:
        self.keys |= set(rows)

    def remove(self, keys: Any) -> None:
        self.keys -= set(keys)


class _Subscriptions:
    def active_streams(self, channel: str, among: Any = None) -> list[tuple[int, tuple[str]]]:
        return [(7, ("fire",))]


def test_stream_stays_when_subscribed_again_during_refresh() -> None:
    tables = Tables.__new__(Tables)
    table = _Table()
    table.keys = {7, 8}
    stores = SimpleNamespace(subscriptions=_Subscriptions())
    vars(tables).update(_updating=threading.Lock(), _stores=stores, values=lambda channel: table)
    channel = cast(ChannelDefinition, type("Named", (), {"name": "near"})())
    tables.refresh(channel, [7])  # the store has not suspended it: it had no subscription at that moment
    tables.refresh(channel, [8])
    assert table.keys == {7}
