"""Rows that break a rule: counted in one pass, then looked for, and told by their file and their place in it."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from newsstand.errors import BadTrace
from newsstand.workload.trace import ROW


def counted(summary: DataFrame) -> Row:
    """The row of an aggregate; a file that Spark cannot read on the way is the user's to mend."""
    try:
        row = summary.first()
    except Exception as error:
        unreadable = re.search(r"\[FAILED_READ_FILE.*? reading file (\S+)\.\s+(.*)", str(error))
        if unreadable is None:
            raise
        reason = unreadable[2].partition("SQLSTATE")[0].strip() or "the file is corrupt"
        raise BadTrace(f"{_path(unreadable[1])}: not readable ({reason})") from error
    assert row is not None
    return row


@dataclass(frozen=True)
class Naming:
    """How rows are named."""

    folders: Container[str]
    """A file in a folder of such a name is a part of a table, and named with it."""
    nowhere: str
    """What stands for the file of a row that comes from none."""

    def place(self, row: Row) -> str:
        """The file, and the row in it where that can be told: data rows count from 1."""
        file, block, place = row[ROW]
        if not file:
            return self.nowhere
        path = _path(file)
        alone = path.parent.name not in self.folders
        name = path.name if alone else f"{path.parent.name}/{path.name}"
        if name.endswith(".parquet"):
            return f"{name}: row {place + 1}"
        # Spark numbers the rows of a CSV file from 0 on only where it reads the file alone and from its start.
        return f"{name}: row {(place & (2**33 - 1)) + 1}" if alone and block == 0 else name

    def refuse(self, offenders: DataFrame, columns: Iterable[str], text: str, count: int) -> None:
        """Raise BadTrace for the first of so many rows."""
        first = offenders.orderBy(ROW).first()
        assert first is not None
        values = ", ".join(f"{column} {first[column]}" for column in columns if first[column] is not None)
        more = f" ({count} such rows)" if count > 1 else ""
        raise BadTrace(f"{self.place(first)}: {text} ({values}){more}")

    def refuse_repeated(self, table: DataFrame, key: Sequence[str]) -> None:
        """Raise BadTrace for the second row of the lowest key that occurs twice."""
        repeated = table.groupBy(*key).agg(F.count(F.lit(1)).alias("times")).where("times > 1")
        first = repeated.orderBy(*key).first()
        assert first is not None
        again = table
        for column in key:
            again = again.where(F.col(column) == F.lit(first[column]))
        places = [self.place(row) for row in again.orderBy(ROW).limit(2).collect()]
        what = ", ".join(f"{column} {first[column]}" for column in key)
        raise BadTrace(f"{places[1]}: {what} occurs twice (first at {places[0]})")


def _path(address: str) -> Path:
    return Path(unquote(urlparse(address).path))
