"""CSV files are read in memory as Spark reads them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from newsstand.workload.trace.csv_columns import read_csv
from newsstand.workload.trace.files import TABLES, header_of
from newsstand.workload.trace.tables import read_table_at

NUMBERS = ["1", "2", "1.5", "-3", "+4", "007", " 5", "6\t", "1e3", "0", '"7"', ' "8" ']
ODD_CELLS = [
    *(
        "",
        " ",
        "x",
        "1x",
        "1_0",
        "0x1F",
        "0x1p3",
        "1d",
        "1f",
        "1L",
        "1.",
        ".5",
        "5e",
        "null",
        "٣",
        "1\u00a0",
        "#1",
    ),
    *("NaN", "nan", "inf", "-Infinity", "1e400", "1e-400", "-0", "-0.0", "+", "-", "--1", "\\1", "'1'"),
    *("2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "0" * 30 + "5"),
    *('""', '"1"2', '"1" 2', '"a""b"', '"1,2"', '" 9 "', '"\t9"', '1"2'),
]
ODD_LINES = ["", "  ", "\t", "1", "1,2", "1,2,3,4", ",,", '1,2,"3', '"1,2,3', '1,2,"3\t', '1,2,"3\0', "\x001,2,3"]


def rows(file: Path, table: str) -> list[list[str]]:
    """The cells of a file, in a form in which NaN equals NaN."""
    columns = read_csv(file, header_of(file), TABLES[table].columns)
    return [list(map(repr, row)) for row in zip(*(column.to_pylist() for column in columns.values()), strict=True)]


def rows_on_spark(spark: SparkSession, file: Path, table: str) -> list[list[str]]:
    found = read_table_at(spark, file, TABLES[table]).orderBy("row").drop("row").collect()
    return [list(map(repr, row)) for row in found]


def lines_of(kind: str) -> list[str]:
    chance = random.Random(7)
    lines = [",".join(chance.choice(NUMBERS[:8]) for _ in range(3)) for _ in range(200)]
    if kind == "odd":
        lines += [
            ",".join(chance.choice([chance.choice(NUMBERS), cell]) for _ in range(3)) for cell in ODD_CELLS * 5
        ]
        lines += ODD_LINES
        chance.shuffle(lines)
    return lines


@pytest.mark.parametrize("table", ["requests", "subscriptions"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_odd_csv_is_read_as_on_spark(spark: SparkSession, tmp_path: Path, table: str, end: str) -> None:
    file = tmp_path / f"{table}.csv"
    lines = [",".join(TABLES[table].columns), *lines_of("odd")]
    file.write_bytes(b"\xef\xbb\xbf" + end.join(lines).replace("٣", "\udcff").encode("utf-8", "surrogateescape"))
    assert rows(file, table) == rows_on_spark(spark, file, table)


def test_plain_csv_is_read_as_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "publications.csv"
    lines = ["note,size,page,time", *(f"{place},{place % 7},{-place},{place}e-3" for place in range(500))]
    file.write_text("\n".join(lines) + "\n")
    expected = rows_on_spark(spark, file, "publications")
    assert expected[3] == ["-3", "0.003", "3"]
    assert rows(file, "publications") == expected
    # The quotes leave the numbers as they are, but the file needs the exact parser.
    file.write_text("\n".join([lines[0], *('"' + line.replace(",", '","') + '"' for line in lines[1:])]))
    assert rows(file, "publications") == expected


@pytest.mark.parametrize("content", ["time,proxy,page", "time,proxy,page\n", "time,proxy,page\n\n \n"])
def test_csv_without_rows_has_none(tmp_path: Path, content: str) -> None:
    file = tmp_path / "requests.csv"
    file.write_text(content)
    assert rows(file, "requests") == []


def test_other_columns_do_not_matter(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "requests.csv"
    file.write_text('row,note,time,note,proxy,Page,page\n"",a,1.5,"",2,",",3\n"","",4.5,"x",5,"",6\n')
    assert rows(file, "requests") == [["1.5", "2", "3"], ["4.5", "5", "6"]]
    assert rows_on_spark(spark, file, "requests") == rows(file, "requests")
