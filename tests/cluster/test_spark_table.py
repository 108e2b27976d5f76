"""A table that changes on the driver: every frame is what the driver knows when it asks."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from newsstand.cluster import spark_table
from newsstand.cluster.spark_table import SparkTable

SCHEMA = pa.schema([("stream", pa.int64()), ("p_kind", pa.string())])


def build(items: Iterable[tuple[int, str]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, item, strict=True)) for item in items], SCHEMA)


def table_of(spark: SparkSession, truth: dict[int, str]) -> SparkTable[tuple[int, str]]:
    return SparkTable(spark, "stream", lambda: {key: (key, kind) for key, kind in truth.items()}, build, 2)


def rows(table: SparkTable[tuple[int, str]]) -> dict[int, str]:
    return {row.stream: row.p_kind for row in table.frame().collect()}


Change = tuple[str, int, str]
changes = st.lists(st.tuples(st.sampled_from(["set", "drop", "look"]), st.integers(0, 5), st.sampled_from("ab")))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.dictionaries(st.integers(0, 5), st.sampled_from("ab")), after=changes, carried=st.integers(0, 3))
def test_a_frame_is_always_the_truth(
    spark: SparkSession, first: dict[int, str], after: list[Change], carried: int
) -> None:
    truth = dict(first)
    table = table_of(spark, truth)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_table, "FEWEST_CHANGES", carried)
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


def test_few_changes_are_carried_along_and_many_make_a_new_base(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_table, "FEWEST_CHANGES", 3)
    truth = dict.fromkeys(range(10), "a")
    loads: list[int] = []
    table = SparkTable(
        spark, "stream", lambda: loads.append(1) or {key: (key, kind) for key, kind in truth.items()}, build, 2
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


def test_a_table_is_known_to_be_empty_once_it_was_looked_at(spark: SparkSession) -> None:
    table = table_of(spark, {})
    assert not table.empty
    table.frame()
    assert table.empty
    table.change({1: (1, "a")})
    assert not table.empty
    table.close()


def test_a_base_that_cannot_be_loaded_is_loaded_again(spark: SparkSession) -> None:
    truth = {1: "a"}
    broken = [True]

    def load() -> dict[int, tuple[int, str]]:
        if broken.pop() if broken else False:
            raise OSError("no such luck")
        return {key: (key, kind) for key, kind in truth.items()}

    table = SparkTable(spark, "stream", load, build, 2)
    with pytest.raises(OSError, match="luck"):
        table.frame()
    assert rows(table) == truth
    table.close()
