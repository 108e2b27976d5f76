"""The shapes of a dataset's records: how they are declared, and how they look to Spark and Arrow.

What is let in, and how it is written, is the matter of `door`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import cast

import pyarrow as pa
import pyarrow.json
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from newsstand.cluster.door import Admitted, Door, Form, Refusal, item_type
from newsstand.errors import BadApp
from newsstand.model import SCALARS, Dataset, Field

__all__ = [
    "Admitted",
    "Door",
    "Form",
    "Refusal",
    "arrow_schema",
    "arrow_table",
    "dataset_table",
    "is_name",
    "line_frame",
    "line_table",
    "parse_dataset",
    "scalar_arrow_type",
    "spark_schema",
]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_FIELD_TYPE = re.compile(rf"(?P<type>(?P<array>array<)?(?P<item>{'|'.join(SCALARS)})(?(array)>))(?P<optional>\?)?")


def is_name(text: str) -> bool:
    """Whether a dataset or a field can have this name: a lower-case word of at most 63 letters, digits and `_`."""
    return _NAME.fullmatch(text) is not None


# Declaring


def parse_dataset(name: str, table: Mapping[str, object]) -> Dataset:
    """A dataset as an app declares it: `{fields = {id = "string", note = "string?"}, key = "id"}`.

    A type with `?` is that of an optional field. Raise `BadApp` with the place of a mistake.
    """
    place = f"datasets.{name}"
    if not is_name(name):
        raise BadApp(f"{place}: a name is a lower-case letter, then at most 62 of a-z, 0-9 and _")
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
    """What `parse_dataset` makes the dataset of."""
    fields = {field.name: field.type + "?" * field.optional for field in dataset.fields}
    return {"fields": fields, "key": dataset.key} if dataset.key else {"fields": fields}


def _parse_field(place: str, name: object, type: object) -> Field:
    if not isinstance(name, str) or not is_name(name):
        raise BadApp(f"{place}: a name is a lower-case letter, then at most 62 of a-z, 0-9 and _")
    parsed = _FIELD_TYPE.fullmatch(type) if isinstance(type, str) else None
    if parsed is None:
        known = f"{', '.join(SCALARS)} or array<…> of one, with ? if optional"
        raise BadApp(f"{place}: unknown type {type!r}; one of {known}")
    return Field(name, parsed["type"], optional=parsed["optional"] is not None)


# How Spark and Arrow see records

_SPARK: dict[str, T.DataType] = {
    "string": T.StringType(),
    "integer": T.LongType(),
    "double": T.DoubleType(),
    "boolean": T.BooleanType(),
    "timestamp": T.TimestampType(),
}
_ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_PAGE = (("id", "string"), ("size", "integer"), ("type", "string"), ("url", "string"))


def spark_schema(dataset: Dataset) -> T.StructType:
    """The fields, then `_seq`, `_at` and `_page`."""
    return _spark_schema(dataset, T.TimestampType())


def arrow_schema(dataset: Dataset) -> pa.Schema:
    """The same for Arrow."""
    return _arrow_schema(dataset, pa.timestamp("us", tz="UTC"))


def _spark_schema(dataset: Dataset, at: T.DataType) -> T.StructType:
    fields = [T.StructField(field.name, _spark_type(field.type)) for field in dataset.fields]
    page = T.StructType([T.StructField(name, _SPARK[type]) for name, type in _PAGE])
    given = [T.StructField("_seq", T.LongType()), T.StructField("_at", at), T.StructField("_page", page)]
    return T.StructType(fields + given)


def _arrow_schema(dataset: Dataset, at: pa.DataType) -> pa.Schema:
    fields = [(field.name, _arrow_type(field.type)) for field in dataset.fields]
    page = pa.struct([(name, _ARROW[type]) for name, type in _PAGE])
    return pa.schema([*fields, ("_seq", pa.int64()), ("_at", at), ("_page", page)])


def _spark_type(type: str) -> T.DataType:
    item = item_type(type)
    return T.ArrayType(_SPARK[item]) if item else _SPARK[type]


def _arrow_type(type: str) -> pa.DataType:
    item = item_type(type)
    return pa.list_(_ARROW[item]) if item else _ARROW[type]


def scalar_arrow_type(type: str) -> pa.DataType:
    """The Arrow type of one of `SCALARS`."""
    return _ARROW[type]


def line_frame(lines: DataFrame, dataset: Dataset) -> DataFrame:
    """Lines of a log as rows of `spark_schema`, batch or stream.

    `lines` has a column `line`, and `_seq` unless the lines have it. What is not JSON becomes a row of nulls.
    """
    numbered = "_seq" in lines.columns
    parsed = lines.withColumn("record", F.from_json("line", _spark_schema(dataset, T.LongType())))
    return parsed.select(
        *(F.col("record")[field.name].alias(field.name) for field in dataset.fields),
        (F.col("_seq") if numbered else F.col("record._seq")).alias("_seq"),
        F.timestamp_millis(F.col("record._at")).alias("_at"),
        F.col("record._page").alias("_page"),
    )


def line_table(lines: bytes, dataset: Dataset) -> pa.Table:
    """Lines of a log that have `_seq` and `_at`, each with its end of line, as a table of `arrow_schema`."""
    if not lines:
        return arrow_schema(dataset).empty_table()
    # One block: Arrow refuses a record that is longer than a block.
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    written = _arrow_schema(dataset, pa.int64())
    parse = pyarrow.json.ParseOptions(explicit_schema=written, unexpected_field_behavior="ignore")
    table = pyarrow.json.read_json(pa.BufferReader(lines), read, parse)
    return _timed(table, table.column("_at"), dataset)


def arrow_table(dataset: Dataset, entries: Iterable[tuple[int, int, bytes]]) -> pa.Table:
    """Records that were read one by one (number, time, line) as a table of `arrow_schema`."""
    known = list(entries)
    table = line_table(b"".join(line + b"\n" for _, _, line in known), dataset)
    place = table.schema.get_field_index("_seq")
    numbered = table.set_column(place, "_seq", pa.array((seq for seq, _, _ in known), pa.int64()))
    return _timed(numbered, pa.array((at for _, at, _ in known), pa.int64()), dataset)


def _timed(table: pa.Table, at_ms: pa.Array, dataset: Dataset) -> pa.Table:
    schema = arrow_schema(dataset)
    place = table.schema.get_field_index("_at")
    at = at_ms.cast(pa.timestamp("ms", tz="UTC")).cast(schema.field("_at").type)
    return table.set_column(place, "_at", at).select(schema.names).cast(schema)
