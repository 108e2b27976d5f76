"""A trace folder, read into memory without Spark, by the rules of `workload/trace/tables.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from newsstand.errors import BadTrace, first_line_of
from newsstand.workload.trace.columns import PublicationColumns, RequestColumns, SubscriptionColumns, TraceColumns
from newsstand.workload.trace.csv_columns import Cells, optional_integers, read_csv
from newsstand.workload.trace.files import TABLES, TableLayout, header_of, require_folder, table_files, table_path

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

ARROW_TYPES = {"bigint": pa.int64(), "int": pa.int32(), "double": pa.float64(), "string": pa.string()}
_NUMPY = {"bigint": "int64", "int": "int32", "double": "float64"}
_SPARK_NAMES = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_WIDER = {
    "smallint": ("tinyint",),
    "int": ("tinyint", "smallint"),
    "bigint": ("tinyint", "smallint", "int"),
    "double": ("tinyint", "smallint", "int", "float"),
}
"""The types that Spark reads as a type, beside itself."""


def read_folder_columns(folder: Path) -> TraceColumns:
    """Return a trace folder: each table a Parquet or CSV file, or a folder of them."""
    require_folder(folder)
    # As on Spark, columns are checked before the rows of any table.
    files = {name: checked_files(folder, layout) for name, layout in TABLES.items()}
    published = read_table_columns(files["publications"], TABLES["publications"])
    size = published.columns["size"]
    published.check({"size is not positive": size < 1, "size is over 2^53 bytes": size > 2**53})
    published.require_rows(folder)
    pages = PageIndex.of(published.columns["page"])

    requests = read_table_columns(files["requests"], TABLES["requests"])
    requested = pages.find(requests.columns["page"])
    requests.check({"the page has no publication": requested < 0})
    requests.require_rows(folder)

    subscriptions = read_table_columns(files["subscriptions"], TABLES["subscriptions"])
    count = subscriptions.columns["count"]
    about = pages.find(subscriptions.columns["page"])
    subscriptions.check({"count is negative": count < 0, "the page has no publication": about < 0})
    return TraceColumns(
        str(folder),
        RequestColumns(requests.columns["time"], requests.columns["proxy"], requested),
        PublicationColumns(published.columns["page"], published.columns["time"], size),
        SubscriptionColumns(subscriptions.columns["proxy"], about, count),
    )


@dataclass(frozen=True)
class TableColumns:
    """The rows of a table; where a cell is missing or malformed its value is 0 and `missing` says so."""

    layout: TableLayout
    files: Sequence[Path]
    rows: Sequence[int]
    """The number of rows of each file."""
    columns: Mapping[str, np.ndarray]
    texts: Mapping[str, pa.ChunkedArray]
    optional: Mapping[str, pa.ChunkedArray]
    """Integers, null where a cell is missing and below 0 where it is malformed."""
    missing: Mapping[str, Bools]

    def __len__(self) -> int:
        return sum(self.rows)

    def check(self, rules: Mapping[str, Bools]) -> None:
        """Raise BadTrace for the first row that breaks a general rule, one of `rules`, or repeats a key."""
        for column, kind in self.layout.columns.items():
            if column in self.missing:
                self._reject(self.missing[column], f"{column} is missing or not a {kind}")
        for column, kind in self.layout.columns.items():
            if kind == "double" and not (finite := np.isfinite(self.columns[column])).all():
                self._reject(~finite, f"{column} is not a finite number")
        for column, cells in self.optional.items():
            if (negative := _bools(pc.less(cells, 0).fill_null(False))).any():
                self._reject(negative, f"{column} is not a whole number from 0 on")
        for text, broken in rules.items():
            if broken.any():
                self._reject(broken, text)
        if self.layout.key:
            self._require_distinct(self.layout.key)

    def optional_numbers(self, column: str, missing: int) -> np.ndarray:
        """Return an optional column with a value for missing cells."""
        return _array(self.optional[column].fill_null(missing), _NUMPY[self.layout.optional[column]])

    def require_rows(self, folder: Path) -> None:
        if not len(self):
            raise BadTrace(f"{folder}: table '{self.layout.name}' is empty")

    def _require_distinct(self, key: Sequence[str]) -> None:
        columns = [self.columns[column] for column in key]
        if len(columns) == 1 and (columns[0][1:] > columns[0][:-1]).all():
            return
        order = np.lexsort(columns[::-1])
        repeated = np.ones(max(0, len(order) - 1), np.bool_)
        for column in columns:
            repeated &= column[order[1:]] == column[order[:-1]]
        if repeated.any():
            first = int(np.argmax(repeated))
            # Adding 0 turns -0.0 into the 0.0 that it equals, as Spark does.
            what = ", ".join(f"{column} {(self.columns[column][order[first]] + 0).item()}" for column in key)
            before, again = (self._place(int(row)) for row in order[first : first + 2])
            raise BadTrace(f"{again}: {what} occurs twice (first at {before})")

    def _reject(self, broken: Bools, text: str) -> None:
        row, count = int(np.argmax(broken)), int(np.count_nonzero(broken))
        values = ", ".join(
            f"{column} {self._value(column, row)}"
            for column in self.layout.columns
            if column not in self.missing or not self.missing[column][row]
        )
        more = f" ({count} such rows)" if count > 1 else ""
        raise BadTrace(f"{self._place(row)}: {text} ({values}){more}")

    def _value(self, column: str, row: int) -> object:
        return self.texts[column][row].as_py() if column in self.texts else self.columns[column][row].item()

    def _place(self, row: int) -> str:
        for file, end, rows in zip(self.files, accumulate(self.rows), self.rows, strict=True):
            if row < end:
                is_part = file.parent.name == self.layout.name
                name = f"{file.parent.name}/{file.name}" if is_part else file.name
                return f"{name}: row {row - end + rows + 1}"
        raise IndexError(row)


@dataclass(frozen=True)
class PageIndex:
    """The rows of publications, findable by page."""

    low: int
    rows: Int64s | None
    """The row of each page from `low` on, -1 for none; None if the pages lie too far apart for that."""
    pages: Int64s
    order: Int64s
    """The pages in order, and their rows."""

    @classmethod
    def of(cls, pages: Int64s) -> PageIndex:
        low, high = int(pages.min(initial=0)), int(pages.max(initial=0))
        if high - low <= 8 * len(pages) + 1024:
            rows = np.full(high - low + 1, -1, np.int64)
            rows[pages - low] = np.arange(len(pages))
            return cls(low, rows, pages, pages)
        order = np.argsort(pages, kind="stable")
        return cls(low, None, pages[order], order)

    def find(self, pages: Int64s) -> Int64s:
        """Return the row of each page, -1 for none."""
        if self.rows is None:
            at = np.minimum(np.searchsorted(self.pages, pages), len(self.pages) - 1)
            return np.where(self.pages[at] == pages, self.order[at], -1)
        if len(pages) and (pages.min() < self.low or pages.max() >= self.low + len(self.rows)):
            inside = (pages >= self.low) & (pages < self.low + len(self.rows))
            return np.where(inside, self.rows[np.where(inside, pages - self.low, 0)], -1)
        return self.rows[pages - self.low] if self.low else self.rows[pages]


Reader = Callable[[Path], Mapping[str, Cells]]


def checked_files(folder: Path, layout: TableLayout) -> dict[Path, Reader]:
    """Return the files of a table with the reader of each, once the columns of all of them are checked."""
    path = table_path(folder, layout.name)
    files, ending = table_files(path)
    return dict.fromkeys(files, (_checked_parquet if ending == ".parquet" else _checked_csv)(files, layout, path))


def _checked_csv(files: Sequence[Path], layout: TableLayout, path: Path) -> Reader:
    header = header_of(files[0])
    columns = layout.columns_in(header, path)
    for file in files[1:]:
        if header_of(file) != header:
            raise BadTrace(f"{file}: its header differs from that of {files[0].name}")
    kinds = {column: "string" if column in layout.optional else kind for column, kind in columns.items()}

    def read(file: Path) -> dict[str, Cells]:
        return {
            column: optional_integers(cells) if column in layout.optional else cells
            for column, cells in read_csv(file, header, kinds).items()
        }

    return read


def _checked_parquet(files: Sequence[Path], layout: TableLayout, path: Path) -> Reader:
    schemas = {}
    for file in files:
        try:
            schemas[file] = pq.read_schema(file)
        except (OSError, pa.ArrowException) as error:
            raise BadTrace(f"{file}: not readable as Parquet ({first_line_of(error)})") from error
        layout.columns_in(schemas[file].names, file)
    columns = layout.columns_in(schemas[files[0]].names, path)
    first = {column: _spark_name(schemas[files[0]].field(column).type) for column in columns}
    for column, wanted in columns.items():
        if not _fits(first[column], wanted):
            raise BadTrace(f"{path}: column '{column}' is {first[column]}, not {wanted}")

    def read(file: Path) -> dict[str, Cells]:
        given = {column: kind for column, kind in columns.items() if column in schemas[file].names}
        for column in given:
            kind, wanted = _spark_name(schemas[file].field(column).type), first[column]
            if kind != wanted and kind not in _WIDER.get(wanted, ()):
                raise BadTrace(f"{file}: not readable (column '{column}' is {kind}, in {files[0].name} {wanted})")
        try:
            table = pq.read_table(file, columns=list(given), partitioning=None)
        except (OSError, pa.ArrowException) as error:
            raise BadTrace(f"{file}: not readable ({first_line_of(error)})") from error
        cells = {column: _typed(table.column(column), kind) for column, kind in given.items()}
        for column in layout.optional.keys() & given:
            # An unreadable value must not count as a missing one.
            unreadable = pc.and_(cells[column].is_null(), table.column(column).is_valid())
            cells[column] = pc.if_else(unreadable, pa.scalar(-1, pa.int32()), cells[column])
        return cells

    return read


def _fits(kind: str, wanted: str) -> bool:
    """Return whether a Parquet column of a type is read as the wanted one."""
    if wanted == "string":
        return kind == "string"
    return kind in _INTEGERS or (wanted == "double" and kind.startswith(("float", "double", "decimal")))


def _spark_name(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _SPARK_NAMES.get(kind, str(kind))


def _typed(column: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
    """Return a column in its type, null where a number does not fit."""
    if pa.types.is_decimal(column.type):
        return pa.chunked_array([pa.array(map(_float, column.to_pylist()), pa.float64())])
    if kind == "int" and column.type in (pa.int64(), pa.uint32()):
        column = column.cast(pa.int64())
        fits = pc.and_(pc.greater_equal(column, -(2**31)), pc.less(column, 2**31))
        column = pc.if_else(fits, column, pa.scalar(None, pa.int64()))
    return column.cast(ARROW_TYPES[kind])


def _float(value: object) -> float | None:
    return None if value is None else float(str(value))


def read_table_columns(files: Mapping[Path, Reader], layout: TableLayout) -> TableColumns:
    """Return the rows of a table from its files, which are not checked yet."""
    parts = [read(file) for file, read in files.items()]
    rows = [len(part[next(iter(layout.columns))]) for part in parts]
    columns, texts, missing = {}, {}, {}
    for column, kind in layout.columns.items():
        whole = pa.chunked_array(_chunks(part[column] for part in parts), ARROW_TYPES[kind])
        if whole.null_count:
            missing[column] = _bools(whole.is_null())
        if kind == "string":
            texts[column] = whole
        else:
            columns[column] = _array(whole.fill_null(0) if whole.null_count else whole, _NUMPY[kind])
    optional = {
        column: pa.chunked_array(
            _chunks(
                part[column] if column in part else pa.nulls(count, ARROW_TYPES[kind])
                for part, count in zip(parts, rows, strict=True)
            ),
            ARROW_TYPES[kind],
        )
        for column, kind in layout.optional.items()
    }
    return TableColumns(layout, list(files), rows, columns, texts, optional, missing)


def _chunks(columns: Iterable[Cells]) -> list[pa.Array]:
    return [chunk for one in columns for chunk in (one.chunks if isinstance(one, pa.ChunkedArray) else [one])]


def _bools(column: pa.ChunkedArray) -> Bools:
    return _array(column.cast(pa.int8()), "int8").astype(np.bool_)


def _array(column: pa.ChunkedArray, kind: str) -> np.ndarray:
    """Return numbers as an array: Arrow's own `to_numpy` would load pandas."""
    # A copy can be written to: compiled functions have another version for arrays that cannot.
    return np.concatenate([np.empty(0, kind), *map(np.from_dlpack, column.chunks)])
