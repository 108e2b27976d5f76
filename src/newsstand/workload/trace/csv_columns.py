"""CSV tables, read as Spark reads them: its parser, univocity, divides lines in ways of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

_ARROW = {"bigint": pa.int64(), "int": pa.int32(), "double": pa.float64(), "string": pa.string()}
_BITS = {"bigint": 63, "int": 31}
_LONGEST_INTEGER = 19

Cells: TypeAlias = pa.Array | pa.ChunkedArray

_BLANK = "".join(map(chr, range(33)))
"""What is trimmed at both ends of a cell."""
_BYTES_BLANK = _BLANK.encode()
_FIELD = re.compile(
    r"[\x00-\x20]*+(?:"
    r'"(?P<quoted>(?:[^"]|"")*+)"[\x00-\x20]*+(?=,|\Z)'
    r'|"(?P<unclosed>(?:[^"]|"")*+)\Z'
    r'|"(?:[^"]|"")*+"[^,]*+'  # after a quote within it, a cell ends at the next comma
    r'|(?P<plain>[^",][^,]*+)?'
    r")(?:,|\Z)",
    re.DOTALL,
)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(
    r"([+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
    r"|0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+))[fFdD]?"
)
"""A number as Java writes one."""
_NOT_FINITE = re.compile(r"[+-]?(?:inf(?:inity)?|nan)", re.IGNORECASE)


def read_csv(file: Path, header: Sequence[str], columns: Mapping[str, str]) -> Mapping[str, Cells]:
    """Return columns of a file by their types in Spark SQL; a cell that is missing or malformed is null."""
    content = file.read_bytes()
    found = None if "string" in columns.values() else _read_plain(content, header, columns)
    return _read_exactly(content, header, columns) if found is None else found


def _read_plain(content: bytes, header: Sequence[str], columns: Mapping[str, str]) -> Mapping[str, Cells] | None:
    """Return the columns of a file in which every cell is plainly a number, None for any other."""
    end_of_header = re.search(rb"\r\n|\r|\n", content)
    start = end_of_header.end() if end_of_header else len(content)
    # Arrow divides lines with quotes in another way, and takes 0x10 for a number.
    if any(content.find(letter, start) >= 0 for letter in (b'"', b"x", b"X")):
        return None
    places = {column: str(header.index(column)) for column in columns}
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(pa.py_buffer(content).slice(start)),
            pyarrow.csv.ReadOptions(column_names=[str(place) for place in range(len(header))]),
            pyarrow.csv.ParseOptions(quote_char=False),
            pyarrow.csv.ConvertOptions(
                column_types={places[column]: _ARROW[kind] for column, kind in columns.items()},
                include_columns=list(places.values()),
                null_values=[""],
            ),
        )
    except pa.ArrowInvalid:
        return None
    found = {column: table.column(place) for column, place in places.items()}
    doubles = [found[column] for column, kind in columns.items() if kind == "double"]
    return found if all(pc.all(pc.is_finite(column)).as_py() is not False for column in doubles) else None


def _read_exactly(content: bytes, header: Sequence[str], columns: Mapping[str, str]) -> Mapping[str, Cells]:
    places = [header.index(column) for column in columns]
    rows = [[cells[place] if place < len(cells) else "" for place in places] for cells in _rows(content)]
    by_column = zip(*rows, strict=True) if rows else iter([()] * len(places))
    return {
        column: pa.array([_value(cell, kind) for cell in cells], _ARROW[kind])
        for (column, kind), cells in zip(columns.items(), by_column, strict=True)
    }


def _rows(content: bytes) -> Iterator[list[str]]:
    """Yield the cells of each line after the header."""
    lines = iter(content.removeprefix(b"\xef\xbb\xbf").splitlines())
    next(lines, None)
    for line in lines:
        if not line.strip(_BYTES_BLANK):
            continue
        text = line.decode("utf-8", "replace")
        if '"' in text:
            yield list(_cells(text))
        else:
            yield [cell.strip(_BLANK) for cell in text.split(",")]


def _cells(line: str) -> Iterator[str]:
    """Yield the cells of a line with quotes; one that is malformed still has a quote."""
    at = 0
    while at <= len(line):
        field = _FIELD.match(line, at)
        assert field is not None
        if field["quoted"] is not None:
            yield field["quoted"].replace('""', '"')
        elif field["unclosed"] is not None:
            yield field["unclosed"].rstrip("\x00").replace('""', '"')
        elif field["plain"] is not None:
            yield field["plain"].strip(_BLANK)
        else:
            yield field[0].removesuffix(",").strip(_BLANK)
        if field.end() == len(line):
            break
        at = field.end()


def _value(cell: str, kind: str) -> str | int | float | None:
    if kind == "string":
        return cell or None
    return _double(cell) if kind == "double" else _integer(cell, _BITS[kind])


def optional_integers(cells: Cells) -> Cells:
    """Return the integers in a column of texts: null where there is no text, -1 where it is not one."""
    return pa.array(
        [None if cell is None else _or_negative(_integer(cell, _BITS["int"])) for cell in cells.to_pylist()],
        _ARROW["int"],
    )


def _or_negative(number: int | None) -> int:
    return -1 if number is None else number


def _integer(cell: str, bits: int) -> int | None:
    cell = cell.strip(" ")
    if not _INTEGER.fullmatch(cell):
        return None
    digits = cell.lstrip("+-").lstrip("0") or "0"
    if len(digits) > _LONGEST_INTEGER:
        return None
    number = -int(digits) if cell[0] == "-" else int(digits)
    return number if -(2**bits) <= number < 2**bits else None


def _double(cell: str) -> float | None:
    cell = cell.strip(_BLANK)
    if _NOT_FINITE.fullmatch(cell):
        return float(cell)
    found = _DOUBLE.fullmatch(cell)
    if found is None:
        return None
    if "x" not in found[1].lower():
        return float(found[1])
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return float("inf")
