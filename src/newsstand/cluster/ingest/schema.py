"""Schemas of datasets: their declaration, and the corresponding types of Spark and Arrow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import cast

import pyarrow as pa
import pyarrow.json
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from newsstand.cluster.ingest.validator import item_type
from newsstand.errors import BadApp, NewsstandError
from newsstand.model import SCALARS, Dataset, Field
from newsstand.spark.internals import spark_type

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_FIELD_TYPE = re.compile(rf"(?P<type>(?P<array>array<)?(?P<item>{'|'.join(SCALARS)})(?(array)>))(?P<optional>\?)?")


def is_name(text: str) -> bool:
    """Return whether a dataset or a field can have this name: a letter a-z, then at most 62 of a-z, 0-9, _."""
    return _NAME.fullmatch(text) is not None


def require_name(place: str, name: object, error: type[NewsstandError] = BadApp) -> None:
    """Raise an error that names the place unless a dataset, channel, field or parameter can have this name."""
    if not isinstance(name, str) or not is_name(name):
        raise error(f"{place}: a name is a lower-case letter, then at most 62 of a-z, 0-9 and _")


# Declarations


def parse_dataset(name: str, table: Mapping[str, object]) -> Dataset:
    """Return the dataset that a table declares: `{fields = {id = "string", note = "string?"}, key = "id"}`.

    A type with `?` is that of an optional field. Raise `BadApp` with the place of a mistake.
    """
    place = f"datasets.{name}"
    require_name(place, name)
    for option in table:
        if option not in ("fields", "key"):
            raise BadApp(f"{place}.{option}: unknown option; one of fields, key")
    declared = table.get("fields")
    if not isinstance(declared, Mapping) or not declared:
        raise BadApp(f'{place}.fields: give at least one field, as in {{id = "string", lat = "double"}}')
    fields = tuple(_parse_field(f"{place}.fields.{field}", field, type) for field, type in declared.items())
    key = table.get("key")
    if key is not None and not any(key == field.name for field in fields):
        raise BadApp(f"{place}.key: no field {key!r}; one of {', '.join(field.name for field in fields)}")
    for field in fields:
        if field.name == key and (field.optional or field.type not in ("string", "integer")):
            raise BadApp(f"{place}.key: field '{key}' must be a string or an integer, and not optional")
    return Dataset(name, fields, cast("str | None", key))


def dataset_table(dataset: Dataset) -> dict[str, object]:
    """Return the table of which `parse_dataset` makes the dataset."""
    fields = {field.name: field.type + "?" * field.optional for field in dataset.fields}
    return {"fields": fields, "key": dataset.key} if dataset.key else {"fields": fields}


def _parse_field(place: str, name: object, type: object) -> Field:
    require_name(place, name)
    parsed = _FIELD_TYPE.fullmatch(type) if isinstance(type, str) else None
    if parsed is None:
        known = f"{', '.join(SCALARS)} or array<…> of one, with ? if optional"
        raise BadApp(f"{place}: unknown type {type!r}; one of {known}")
    return Field(cast("str", name), parsed["type"], optional=parsed["optional"] is not None)


# Spark and Arrow

_AT = pa.timestamp("us", tz="UTC")
_ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": _AT,
}
_PAGE = pa.struct([("id", pa.string()), ("size", pa.int64()), ("type", pa.string()), ("url", pa.string())])


def arrow_type(type: str) -> pa.DataType:
    """Return the Arrow type of a field or a parameter."""
    item = item_type(type)
    return pa.list_(_ARROW[item]) if item else _ARROW[type]


def arrow_schema(dataset: Dataset, at: pa.DataType = _AT) -> pa.Schema:
    """Return the schema of rows in Arrow: the fields, then `_seq`, `_at` and `_page`."""
    fields = [(field.name, arrow_type(field.type)) for field in dataset.fields]
    return pa.schema([*fields, ("_seq", pa.int64()), ("_at", at), ("_page", _PAGE)])


def spark_schema(dataset: Dataset, at: pa.DataType = _AT) -> T.StructType:
    """Return the type of the same rows in Spark."""
    return spark_type(arrow_schema(dataset, at))


def line_frame(lines: DataFrame, dataset: Dataset) -> DataFrame:
    """Return lines of a log as rows of `spark_schema`, batch or stream.

    `lines` has a column `line`, and `_seq` unless the lines have it. Malformed lines become rows of nulls.
    """
    numbered = "_seq" in lines.columns
    parsed = lines.withColumn("record", F.from_json("line", spark_schema(dataset, pa.int64())))
    return parsed.select(
        *(F.col("record")[field.name].alias(field.name) for field in dataset.fields),
        (F.col("_seq") if numbered else F.col("record._seq")).alias("_seq"),
        F.timestamp_millis(F.col("record._at")).alias("_at"),
        F.col("record._page").alias("_page"),
    )


def line_table(lines: bytes, dataset: Dataset) -> pa.Table:
    """Return lines of a log that have `_seq` and `_at`, each with its line feed, as a table of `arrow_schema`."""
    if not lines:
        return arrow_schema(dataset).empty_table()
    # One block: Arrow refuses a record that is longer than a block.
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    written = arrow_schema(dataset, pa.int64())
    parse = pyarrow.json.ParseOptions(explicit_schema=written, unexpected_field_behavior="ignore")
    table = pyarrow.json.read_json(pa.BufferReader(lines), read, parse)
    return _timed(table, table.column("_at"), dataset)


def arrow_table(dataset: Dataset, entries: Iterable[tuple[int, int, bytes]]) -> pa.Table:
    """Return records (number, time, line) as a table of `arrow_schema`."""
    records = list(entries)
    table = line_table(b"".join(line + b"\n" for _, _, line in records), dataset)
    place = table.schema.get_field_index("_seq")
    numbered = table.set_column(place, "_seq", pa.array((seq for seq, _, _ in records), pa.int64()))
    return _timed(numbered, pa.array((at for _, at, _ in records), pa.int64()), dataset)


def _timed(table: pa.Table, at_ms: pa.Array, dataset: Dataset) -> pa.Table:
    schema = arrow_schema(dataset)
    place = table.schema.get_field_index("_at")
    at = at_ms.cast(pa.timestamp("ms", tz="UTC")).cast(schema.field("_at").type)
    return table.set_column(place, "_at", at).select(schema.names).cast(schema)
