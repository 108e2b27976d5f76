"""Small traces written down row by row, as CSV (which is shuffled) or as Parquet (which is clustered)."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

VECTORS = Path(__file__).parents[2] / "vectors" / "chen2003"
NAMES = sorted(folder.name for folder in VECTORS.iterdir())

Rows = Sequence[Sequence[object]]
Tables = Mapping[str, Rows]
"""The rows of each table, in the order of its columns."""

HEADERS = {
    "publications": ("page", "time", "size"),
    "requests": ("time", "proxy", "page"),
    "subscriptions": ("proxy", "page", "count"),
}
TYPES = {
    "page": pa.int64(),
    "time": pa.float64(),
    "size": pa.int64(),
    "proxy": pa.int32(),
    "count": pa.int32(),
}
FORMATS = ("csv", "parquet")


def write(folder: Path, tables: Tables, format: str) -> Path:
    """Write a trace; a table that is not given is not written."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        write_table(folder, name, rows, format)
    return folder


def write_table(
    folder: Path, name: str, rows: Rows, format: str, types: Mapping[str, pa.DataType] | None = None
) -> Path:
    path = folder / f"{name}.{format}"
    if format == "csv":
        with path.open("w", newline="") as out:
            csv.writer(out).writerows([HEADERS[name], *rows])
    else:
        kinds = TYPES | dict(types or {})
        columns = {
            column: pa.array([row[i] for row in rows], kinds[column]) for i, column in enumerate(HEADERS[name])
        }
        pq.write_table(pa.table(columns), path)
    return path


def read(folder: Path) -> dict[str, list[list[str]]]:
    """The rows of a CSV trace, as text."""
    tables = {}
    for name in HEADERS:
        with (folder / f"{name}.csv").open(newline="") as lines:
            tables[name] = list(csv.reader(lines))[1:]
    return tables


def numbers(tables: Mapping[str, list[list[str]]]) -> Tables:
    """The rows of a CSV trace, as numbers."""
    return {
        name: [[float(cell) if "." in cell else int(cell) for cell in row] for row in rows]
        for name, rows in tables.items()
    }


def expected(vector: str) -> list[dict[str, object]]:
    """What a vector must come to: one object a run, named as in the lab's contract."""
    runs: list[dict[str, object]] = json.loads((VECTORS / vector / "expected.json").read_text())
    return runs
