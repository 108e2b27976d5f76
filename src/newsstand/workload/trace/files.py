"""The files of a trace folder: which tables and columns it has, and where they are."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from newsstand.errors import BadTrace

_SHOWN_COLUMNS = 12


@dataclass(frozen=True)
class TableLayout:
    """The columns of a table by their types in Spark SQL; optional ones are integers >= 0, null where missing."""

    name: str
    columns: Mapping[str, str]
    key: Sequence[str] = ()
    """The columns whose values may occur only once together."""
    optional: Mapping[str, str] = field(default_factory=dict)

    def columns_in(self, found: Sequence[str], path: Path) -> dict[str, str]:
        """Return the columns to read from a file with these; raise BadTrace if one is missing or occurs twice."""
        given = {column: kind for column, kind in self.optional.items() if column in found}
        require_columns(found, [*self.columns, *given], path)
        return {**self.columns, **given}


TABLES = {
    layout.name: layout
    for layout in (
        TableLayout("publications", {"page": "bigint", "time": "double", "size": "bigint"}, ("page",)),
        TableLayout("requests", {"time": "double", "proxy": "int", "page": "bigint"}),
        TableLayout("subscriptions", {"proxy": "int", "page": "bigint", "count": "int"}, ("proxy", "page")),
    )
}
"""The tables of a trace."""
PUBLICATIONS, REQUESTS, SUBSCRIPTIONS = TABLES.values()


def require_folder(folder: Path) -> None:
    """Raise BadTrace unless a trace folder exists."""
    if not folder.is_dir():
        raise BadTrace(
            f"{folder}: {'is a file, not a trace folder' if folder.exists() else 'no such trace folder'}"
        )


def holds_table(folder: Path, table: str) -> bool:
    """Return whether a trace folder has a table of that name."""
    return any((folder / (table + ending)).exists() for ending in ("", ".parquet", ".csv"))


def table_path(root: Path, name: str) -> Path:
    """Return the path of a table of a trace folder."""
    for candidate in (root / f"{name}.parquet", root / f"{name}.csv", root / name):
        if candidate.exists():
            return candidate
    raise BadTrace(f"{root}: table '{name}' is missing (looked for {name}.parquet, {name}.csv and {name}/)")


def data_files(path: Path) -> list[Path]:
    """Return the data files of a table, in the order of their names."""
    if not path.exists():
        raise BadTrace(f"{path}: no such file or folder")
    if path.is_file():
        return [path]
    files = [
        file
        for file in path.rglob("*")
        if file.is_file() and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    ]
    files.sort(key=Path.as_posix)  # as Spark orders the rows of several files
    if not files:
        raise BadTrace(f"{path}: the folder holds no data file")
    return files


def table_files(path: Path) -> tuple[list[Path], str]:
    """Return the data files of a table, and their ending: .parquet or .csv."""
    files = data_files(path)
    endings = {file.suffix for file in files}
    if endings not in ({".parquet"}, {".csv"}):
        raise BadTrace(f"{path}: expected .parquet or .csv files, found {', '.join(sorted(endings))}")
    return files, endings.pop()


def header_of(file: Path) -> list[str]:
    """Return the columns of a CSV file."""
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        try:
            return [column.strip() for column in next(csv.reader(lines), [])]
        except csv.Error as error:
            raise BadTrace(f"{file}: not readable as CSV ({error})") from error


def require_columns(found: Sequence[str], wanted: Iterable[str], path: Path) -> None:
    """Raise BadTrace unless a file has each wanted column once."""
    for column in wanted:
        if found.count(column) != 1:
            shown = ", ".join(map(_readable, found[:_SHOWN_COLUMNS])) or "none"
            fault = "occurs twice" if column in found else "is missing"
            raise BadTrace(f"{path}: column '{column}' {fault} (found: {shown})")


def _readable(name: str) -> str:
    """Return a printable column name, even if the file is not a table."""
    short = name if len(name) <= 40 else f"{name[:40]}…"
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in short)
