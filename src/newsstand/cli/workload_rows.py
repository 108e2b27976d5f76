"""How many rows a written trace has, told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path


def counted_rows(out: Path, tables: Iterable[str]) -> dict[str, int]:
    """The rows of each table of a folder, by the footers of its Parquet files."""
    import pyarrow.parquet as pq

    from newsstand.workload.trace import data_files, table_path

    return {
        name: sum(pq.read_metadata(file).num_rows for file in data_files(table_path(out, name))) for name in tables
    }


def print_rows(out: Path, rows: Mapping[str, int]) -> None:
    """For people, in one line."""
    print(f"{out}: " + ", ".join(f"{count:,} {name}" for name, count in rows.items()))
