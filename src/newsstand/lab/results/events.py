"""Broker events: logins and logouts, subscriptions, and results, as one table.

`events(time_ms, kind, subscriber, subscription, size)`: a CSV or Parquet file, a folder of parts in the order of
their names, or the folder `access/` that a live broker writes, where times count from the broker's first start.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from newsstand.errors import BadTrace, first_line_of
from newsstand.workload.trace.files import data_files

KINDS = ("login", "logout", "subscribe", "unsubscribe", "result")
LOGIN, LOGOUT, SUBSCRIBE, UNSUBSCRIBE, RESULT = range(len(KINDS))
COLUMNS = ("time_ms", "kind", "subscriber", "subscription", "size")

USED_BY = {
    "subscriber": (LOGIN, LOGOUT, SUBSCRIBE, UNSUBSCRIBE),
    "subscription": (SUBSCRIBE, UNSUBSCRIBE, RESULT),
    "size": (RESULT,),
}
"""The kinds that use a field; in the rows of other kinds it is ignored."""

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_LARGEST = 2**53


@dataclass(frozen=True)
class BrokerEvents:
    """The columns of a table of events, in the order of its rows; fields that a kind does not use are 0."""

    time_ms: Numbers
    kind: npt.NDArray[np.uint8]
    """Indices into KINDS."""
    subscriber: Numbers
    subscription: Numbers
    size: Numbers

    def __len__(self) -> int:
        return len(self.time_ms)

    @property
    def end_ms(self) -> int:
        """The time of the last event; 0 if there is none."""
        return int(self.time_ms[-1]) if len(self) else 0


def events_of(rows: Iterable[tuple[int, str, int, int, int]]) -> BrokerEvents:
    """Return a table from its rows: time_ms, kind, subscriber, subscription, size."""
    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    time_ms, subscriber, subscription, size = (np.array(columns[i], dtype=np.int64) for i in (0, 2, 3, 4))
    kind = np.array([KINDS.index(name) for name in columns[1]], dtype=np.uint8)
    return BrokerEvents(time_ms, kind, subscriber, subscription, size)


def read_events(path: Path) -> BrokerEvents:
    """Read and check a table of events; BadTrace names the file and the row of a mistake."""
    if not path.exists():
        raise BadTrace(f"{path}: no such file or folder")
    log = _log_at(path)
    files = _parts_of_log(path) if log is not None else _files(path)
    parts = [_read_part(file, is_log=log is not None) for file in files]
    last_ms = 0
    for file, part in zip(files, parts, strict=True):
        if len(part) and part.time_ms[0] < last_ms and log is None:
            raise BadTrace(
                f"{file}: row 1: time_ms {part.time_ms[0]} is before {last_ms}, where the last part ends"
            )
        last_ms = max(last_ms, part.end_ms)
    time_ms, kind, subscriber, subscription, size = (
        np.concatenate([getattr(part, column) for part in parts]) for column in COLUMNS
    )
    if log is not None:
        # The clock of a machine can be set back; the order of the events stays.
        time_ms = np.maximum.accumulate(np.maximum(time_ms - log.start_ms, 0))
        subscription = np.where(np.isin(kind, USED_BY["subscription"]), log.ranked(subscription), 0)
    return BrokerEvents(time_ms, kind, subscriber, subscription, size)


def _files(path: Path) -> list[Path]:
    """Return the data files of a table, in the order of their names."""
    tables = (path / "events.parquet", path / "events.csv", path / "events")
    table = next((table for table in tables if table.exists()), path)
    files = [file for file in data_files(table) if table.is_file() or file.suffix in (".parquet", ".csv")]
    if not files:
        raise BadTrace(f"{table}: the folder holds no .parquet or .csv file")
    return files


@dataclass(frozen=True)
class _Log:
    """The content of `names.csv` in the log of a live broker."""

    start_ms: int
    """The Unix milliseconds from which it counts."""
    streams: dict[int, str]
    """The names of streams by their numbers."""

    def ranked(self, numbers: Numbers) -> Numbers:
        """Return the streams numbered in the order of their names, which is the tie-break of a live broker."""
        known = np.unique(numbers)
        names = [(self.streams.get(int(number), ""), int(number)) for number in known]
        ranks = np.empty(len(known), dtype=np.int64)
        ranks[sorted(range(len(known)), key=names.__getitem__)] = np.arange(len(known))
        return ranks[np.searchsorted(known, numbers)]


def _log_at(path: Path) -> _Log | None:
    """Return the log of a live broker that a path leads to; None for any other table."""
    folder = path if path.is_dir() else path.parent
    for names in (folder / "names.csv", folder.parent / "names.csv"):
        if names.is_file() and (names.parent == folder or folder.name.startswith("until-")):
            with names.open(encoding="utf-8", newline="") as lines:
                rows = [row for row in csv.DictReader(lines) if str(row.get("number")).isdecimal()]
            starts = [int(row["number"]) for row in rows if row.get("kind") == "start"]
            if starts:
                streams = {int(row["number"]): row["name"] or "" for row in rows if row.get("kind") == "stream"}
                return _Log(starts[0], streams)
    return None


def _parts_of_log(path: Path) -> list[Path]:
    """Return the rotated files of a log, then the open one."""
    if path.is_file():
        return [path]
    aside = sorted(path.glob("until-*/events.csv"), key=lambda file: (len(file.parent.name), file.parent.name))
    files = [file for file in (*aside, path / "events.csv") if file.is_file()]
    if not files:
        raise BadTrace(f"{path}: an access log without events.csv")
    return files


def _read_part(file: Path, *, is_log: bool) -> BrokerEvents:
    table = _parquet(file) if file.suffix == ".parquet" else _csv(file, is_log=is_log)
    kinds = table["kind"]
    if not (pa.types.is_string(kinds.type) or pa.types.is_large_string(kinds.type)):
        try:
            kinds = kinds.cast(pa.string())
        except pa.ArrowException:
            raise BadTrace(f"{file}: column 'kind' is {kinds.type}, not a string") from None
    codes = pc.fill_null(pc.index_in(kinds, value_set=pa.array(KINDS)), len(KINDS))
    kind: npt.NDArray[np.uint8] = codes.to_numpy().astype(np.uint8)
    numbers = {column: _numbers(table[column], column, file) for column in COLUMNS if column != "kind"}
    wrong: list[tuple[int, str]] = []
    for text, rows in _faults(kind, *numbers["time_ms"], numbers, is_log=is_log):
        if rows.any():
            wrong.append((int(rows.argmax()), text))
    if wrong:
        row, text = min(wrong, key=lambda found: found[0])
        raise BadTrace(f"{file}: row {row + 1}: {text} ({_shown(table, row)})")
    for column, used_by in USED_BY.items():
        values, _ = numbers[column]
        values[~np.isin(kind, used_by)] = 0
    time_ms, subscriber, subscription, size = (values for values, _ in numbers.values())
    return BrokerEvents(time_ms, kind, subscriber, subscription, size)


def _faults(
    kind: npt.NDArray[np.uint8],
    time_ms: Numbers,
    no_time: Flags,
    numbers: dict[str, tuple[Numbers, Flags]],
    *,
    is_log: bool,
) -> Iterator[tuple[str, Flags]]:
    """Yield each kind of mistake with the rows that have it."""
    yield f"kind is not one of {', '.join(KINDS)}", kind == len(KINDS)
    yield "time_ms is missing", no_time
    yield "time_ms is negative", time_ms < 0
    yield "time_ms is over 2^53", time_ms > _LARGEST
    if not is_log:
        back = np.zeros(len(time_ms), dtype=np.bool_)
        back[1:] = time_ms[1:] < time_ms[:-1]
        yield "time_ms is before that of the row above", back
    for column, used_by in USED_BY.items():
        values, missing = numbers[column]
        used = np.isin(kind, used_by)
        least, fault = (1, "is not positive") if column == "size" else (0, "is negative")
        yield f"{column} is missing", used & missing
        yield f"{column} {fault}", used & ~missing & (values < least)
        yield f"{column} is over 2^53", used & (values > _LARGEST)


def _numbers(column: pa.ChunkedArray, name: str, file: Path) -> tuple[Numbers, Flags]:
    """Return a column as integers, 0 where it is empty, and where that is."""
    if pa.types.is_floating(column.type):  # integers with gaps, as pandas keeps them
        column = pc.if_else(pc.is_nan(column), None, column)
    try:
        integers = column.cast(pa.int64())
    except pa.ArrowException:
        raise BadTrace(_not_a_number(column, name, file)) from None
    return pc.fill_null(integers, 0).to_numpy().copy(), integers.is_null().to_numpy()


def _not_a_number(column: pa.ChunkedArray, name: str, file: Path) -> str:
    for row, value in enumerate(column):
        try:
            value.cast(pa.int64())
        except pa.ArrowException:
            return f"{file}: row {row + 1}: {name} is '{value}', not a whole number of 64 bits"
    return f"{file}: column '{name}' is {column.type}, not int64"


def _shown(table: pa.Table, row: int) -> str:
    cells = ((column, table[column][row].as_py()) for column in COLUMNS)
    return ", ".join(f"{column} {value}" for column, value in cells if value is not None) or "an empty row"


def _parquet(file: Path) -> pa.Table:
    try:
        names = pq.read_schema(file).names
        _require_columns(names, file)
        return pq.ParquetFile(file).read(columns=list(COLUMNS))
    except (OSError, pa.ArrowException) as error:
        raise BadTrace(f"{file}: not readable as Parquet ({first_line_of(error)})") from error


def _csv(file: Path, *, is_log: bool) -> pa.Table:
    """Read a CSV file as text; in a log, skip rows that the end of a process cut off."""
    torn: list[pa_csv.InvalidRow] = []

    def pass_over(row: pa_csv.InvalidRow) -> str:
        torn.append(row)
        return "skip"

    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            header = next(csv.reader(lines), [])
        _require_columns(header, file)
        text = pa_csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.string()),
            include_columns=list(COLUMNS),
            null_values=[""],
            strings_can_be_null=True,
        )
        table = pa_csv.read_csv(
            file,
            read_options=pa_csv.ReadOptions(use_threads=False),  # rejected rows are numbered only without threads
            parse_options=pa_csv.ParseOptions(invalid_row_handler=pass_over),
            convert_options=text,
        )
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowException) as error:
        raise BadTrace(f"{file}: not readable as CSV ({first_line_of(error)})") from error
    if torn and not is_log:
        row = torn[0]
        fields = f"{row.actual_columns} fields, not {row.expected_columns}"
        raise BadTrace(f"{file}: row {row.number - 1}: {fields} ({row.text})")
    return table


def _require_columns(names: Sequence[str], file: Path) -> None:
    for column in COLUMNS:
        if column not in names:
            raise BadTrace(f"{file}: column '{column}' is missing; a table of events has {', '.join(COLUMNS)}")
