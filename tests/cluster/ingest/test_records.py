from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from newsstand.cluster.ingest.schema import (
    arrow_schema,
    arrow_table,
    dataset_table,
    line_frame,
    line_table,
    parse_dataset,
    spark_schema,
)
from newsstand.cluster.ingest.validator import RecordValidator
from newsstand.cluster.log.files.segments import encode_append
from newsstand.cluster.pages.store import content_page, linked_page
from newsstand.errors import BadApp, BadInput
from newsstand.model import SCALARS, Dataset, Field
from newsstand.wire.cluster import Rejection

TABLE = {
    "fields": {"id": "string", "lat": "double", "n": "integer?", "at": "timestamp?", "tags": "array<string>?"}
}
REPORTS = parse_dataset("reports", TABLE)
VALIDATOR = RecordValidator(REPORTS, max_page_bytes=10)


def reason(record: object) -> str:
    """Why a record is rejected, its neighbours being let in."""
    good = {"id": "a", "lat": 1}
    text = record if isinstance(record, str) else json.dumps(record)
    records = VALIDATOR.validate(f"[{json.dumps(good)},{text},{json.dumps(good)}]".encode())
    assert records.lines == [b'{"id":"a","lat":1.0}'] * 2
    (rejection,) = records.rejected
    assert rejection.index == 1
    return rejection.reason


# Declarations


def test_dataset_parsed_from_table() -> None:
    table = {"fields": {"id": "string", "tags": "array<double>?"}, "key": "id"}
    shelters = parse_dataset("shelters", table)
    assert shelters == Dataset(
        "shelters", (Field("id", "string"), Field("tags", "array<double>", optional=True)), "id"
    )
    assert dataset_table(shelters) == table


names = st.from_regex(r"[a-z][a-z0-9_]{0,62}", fullmatch=True)
types = st.sampled_from([*SCALARS, *(f"array<{scalar}>" for scalar in SCALARS)])
datasets = st.builds(
    Dataset,
    names,
    st.lists(st.builds(Field, names, types, st.booleans()), min_size=1, unique_by=lambda field: field.name).map(
        tuple
    ),
)


@given(datasets)
def test_dataset_round_trips_and_has_schemas(dataset: Dataset) -> None:
    assert parse_dataset(dataset.name, dataset_table(dataset)) == dataset
    columns = [*(field.name for field in dataset.fields), "_seq", "_at", "_page"]
    assert spark_schema(dataset).fieldNames() == arrow_schema(dataset).names == columns
    RecordValidator(dataset)


@pytest.mark.parametrize(
    ("name", "table", "message"),
    [
        ("Shelters", {"fields": {"a": "string"}}, "datasets.Shelters: a name is"),
        ("a" * 64, {"fields": {"a": "string"}}, ": a name is"),
        ("s", {}, "datasets.s.fields: give at least one field"),
        ("s", {"fields": {}}, "datasets.s.fields: give at least one field"),
        ("s", {"fields": {"a": "string"}, "keys": "a"}, "datasets.s.keys: unknown option; one of fields, key"),
        ("s", {"fields": {"_a": "string"}}, "datasets.s.fields._a: a name is"),
        (
            "s",
            {"fields": {"lat": "float64"}},
            "datasets.s.fields.lat: unknown type 'float64'; one of string, integer",
        ),
        ("s", {"fields": {"lat": "array<string"}}, "datasets.s.fields.lat: unknown type 'array<string'"),
        ("s", {"fields": {"lat": 3}}, "datasets.s.fields.lat: unknown type 3"),
        ("s", {"fields": {"a": "string"}, "key": "b"}, "datasets.s.key: no field 'b'; one of a"),
        (
            "s",
            {"fields": {"a": "string?"}, "key": "a"},
            "datasets.s.key: field 'a' must be a string or an integer",
        ),
        ("s", {"fields": {"a": "double"}, "key": "a"}, "datasets.s.key: field 'a' must be a string or an integer"),
    ],
)
def test_declaration_rejected_with_place(name: str, table: dict[str, object], message: str) -> None:
    with pytest.raises(BadApp) as error:
        parse_dataset(name, table)
    assert message in str(error.value)


# Validation


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"lat": 1}, "field 'id': is missing"),
        ({"id": None, "lat": 1}, "field 'id': Expected `str`, got `null`"),
        ({"id": "a", "lat": "x"}, "field 'lat': Expected `float`, got `str`"),
        ({"id": "a", "lat": 1, "tags": ["x", 2]}, "field 'tags[1]': Expected `str`, got `int`"),
        ({"id": "a", "lat": 1, "extra": 2}, "field 'extra': not in dataset 'reports'"),
        ({"id": "a", "lat": 1, "_seq": 2}, "field '_seq': not in dataset 'reports'"),
        ({"id": "a", "lat": 1, "n": 2**63}, "field 'n': Expected `int` <= 9223372036854775807"),
        ({"id": "a", "lat": 1, "n": 1.5}, "field 'n': Expected `int | null`, got `float`"),
        ({"id": "a", "lat": 1, "at": "2024-01-01T00:00:00"}, "field 'at': Expected `datetime` with a timezone"),
        ({"id": "a", "lat": 1, "at": "yesterday"}, "field 'at': Invalid RFC3339"),
        ({"id": "a", "lat": 1, "at": "0001-01-01T00:00:00+05:00"}, "field 'at': not within the years 1 to 9999"),
        ({"id": "a\0", "lat": 1}, "field 'id': a string cannot have the character NUL"),
        ({"id": "a", "lat": 1, "tags": ["\0"]}, "field 'tags': a string cannot have the character NUL"),
        ('{"id":"a","lat":1e999}', "field 'lat': Number out of range"),
        ('{"id":"a","lat":NaN}', "malformed"),
        ('{"id":"\\ud800","lat":1}', "surrogate"),
        (7, "Expected `object`, got `int`"),
        ({"id": "a", "lat": 1, "_page": {}}, "field '_page': give one of text, base64 and url"),
        ({"id": "a", "lat": 1, "_page": {"text": "a", "url": "http://a"}}, "give one of text, base64 and url"),
        ({"id": "a", "lat": 1, "_page": {"text": "x" * 11}}, "field '_page': 11 bytes; at most 10 are allowed"),
        ({"id": "a", "lat": 1, "_page": {"base64": "?"}}, "field '_page.base64': "),
        ({"id": "a", "lat": 1, "_page": {"url": "http://a"}}, "field '_page': size goes with url"),
        ({"id": "a", "lat": 1, "_page": {"text": "a", "size": 1}}, "field '_page': size goes with url"),
        ({"id": "a", "lat": 1, "_page": {"url": "ftp://a", "size": 1}}, "field '_page': url: not an http"),
        ({"id": "a", "lat": 1, "_page": {"text": "a", "type": "x\ny"}}, "field '_page': type: "),
        ({"id": "a", "lat": 1, "_page": {"id": "x"}}, "id"),
    ],
)
def test_invalid_record_rejected_individually_with_reason(record: object, message: str) -> None:
    assert message in reason(record)


def test_invalid_utf8_rejects_only_its_record() -> None:
    records = VALIDATOR.validate(b'[{"id":"\xff","lat":1},{"id":"a","lat":1}]')
    assert records.lines == [b'{"id":"a","lat":1.0}']
    assert records.rejected == [Rejection(0, "a string is not valid UTF-8: invalid start byte, byte 0xff")]


def test_formats_of_body_are_equivalent() -> None:
    record = b'{"id": "a", "lat": 1, "n": null}'
    lines = [b'{"id":"a","lat":1.0}']
    assert VALIDATOR.validate(record).lines == lines
    assert VALIDATOR.validate(b" [%b, %b]\n" % (record, record)).lines == lines * 2
    assert VALIDATOR.validate(b"%b\r\n\n  \n%b" % (record, record), "ndjson").lines == lines * 2
    assert VALIDATOR.validate(b"[]").lines == []


def test_malformed_line_rejected_individually() -> None:
    records = VALIDATOR.validate(b'{"id":"a","lat":1}\n{"id":\n\n{"id":"b","lat":2}\n', "ndjson")
    assert records.lines == [b'{"id":"a","lat":1.0}', b'{"id":"b","lat":2.0}']
    assert records.rejected == [Rejection(1, "Input data was truncated")]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "body: empty"),
        (b'[{"id":"a","lat":1},', "(byte 20)"),
        (b'[{"id":"a"} {"id":"b"}]', "expected ',' or ']' (byte 12)"),
        (b'{"id":"a"} x', "trailing characters (byte "),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_body_rejected_with_byte_when_not_json(body: bytes, message: str) -> None:
    with pytest.raises(BadInput) as error:
        VALIDATOR.validate(body)
    assert message in str(error.value)


def test_pages_returned_once_and_referenced_in_lines() -> None:
    forms = [
        {"text": "é"},
        {"base64": base64.b64encode("é".encode()).decode(), "type": "text/plain; charset=utf-8"},
        {"url": "http://a/", "size": 9},
        None,
    ]
    body = json.dumps([{"id": "a", "lat": 1, "_page": form} for form in forms]).encode()
    records = VALIDATOR.validate(body)
    text, there = content_page("é".encode(), "text/plain; charset=utf-8"), linked_page("http://a/", 9)
    assert [(given.page, given.content) for given in records.pages] == [(text, "é".encode()), (there, None)]
    written = [json.loads(line).get("_page") for line in records.lines]
    named = {"id": text.id, "size": 2, "type": text.type}
    assert written == [named, named, {"id": there.id, "size": 9, "type": there.type, "url": "http://a/"}, None]


# Lines as rows

zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
ALL = Dataset("everything", tuple(Field(f"f{index}", type, optional=True) for index, type in enumerate(SCALARS)))
ARRAYS = Dataset("arrays", tuple(Field(f"f{index}", f"array<{type}>") for index, type in enumerate(SCALARS)))
values = (
    words,
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=zones),
)


def as_json(record: dict[str, object]) -> str:
    return json.dumps(record, default=lambda value: value.isoformat())


def as_lines(lines: list[bytes]) -> bytes:
    return b"".join(encode_append([line], number, number * 1000, None) for number, line in enumerate(lines, 1))


@given(st.lists(st.tuples(*(st.none() | value for value in values)), min_size=1, max_size=5))
def test_arrow_reads_accepted_records(given_rows: list[tuple[object, ...]]) -> None:
    records = [{f"f{index}": value for index, value in enumerate(row)} for row in given_rows]
    validated = RecordValidator(ALL).validate("\n".join(map(as_json, records)).encode(), "ndjson")
    assert not validated.rejected
    table = line_table(as_lines(validated.lines), ALL)
    assert table.schema == arrow_schema(ALL)
    seen = [tuple(row[f"f{index}"] for index in range(5)) for row in table.to_pylist()]
    assert seen == given_rows
    entries = [(number, number * 1000, line) for number, line in enumerate(validated.lines, 1)]
    assert arrow_table(ALL, entries).equals(table)


def test_empty_table_has_schema() -> None:
    assert arrow_table(ALL, []).schema == line_table(b"", ALL).schema == arrow_schema(ALL)


def test_spark_and_arrow_read_equal_rows(spark: SparkSession) -> None:
    rows = [
        {
            "f0": 'é\n"\\\u2028',
            "f1": 2**63 - 1,
            "f2": 1e300,
            "f3": False,
            "f4": "2024-02-29T23:59:59.999999+14:00",
        },
        {"f0": "", "f1": -(2**63), "f2": -0.1, "f3": True, "f4": "1969-12-31T23:59:59.5Z"},
        {"f0": "x", "f1": 0, "f2": 5e-324, "f3": True, "f4": "1600-01-01T00:00:00Z"},
    ]
    arrays = [{name: [value] * count for name, value in row.items()} for count, row in enumerate(rows)]
    for dataset, items in ((ALL, rows), (ARRAYS, arrays)):
        records = RecordValidator(dataset).validate(json.dumps(items).encode())
        assert not records.rejected
        lines = as_lines(records.lines)
        texts = [(line,) for line in lines.decode().split("\n")[:-1]]
        frame = line_frame(spark.createDataFrame(texts, "line string"), dataset)
        assert frame.schema == spark_schema(dataset)
        assert frame.toArrow().to_pylist() == line_table(lines, dataset).to_pylist()
    numbered = spark.createDataFrame([(9, '{"_at":1500,"f1":3}'), (10, "no JSON")], "_seq bigint, line string")
    seen = [(row["_seq"], row["f1"]) for row in line_frame(numbered, ALL).orderBy("_seq").collect()]
    assert seen == [(9, 3), (10, None)]
    assert line_frame(numbered, ALL).toArrow().to_pylist()[0]["_at"] == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
