"""A log of the events at a broker, in the lab's tables, so that the lab can replay it.

The folder `access/` of the data folder has these tables:

- `events.csv`: logins, logouts, subscriptions and results, as the lab reads broker events;
- `publications.csv`, `requests.csv`, `subscriptions.csv`: pages, as the lab reads a trace;
- `accesses.csv`: the kind, outcome, size and latency of each access;
- `topics.csv`: each history query of a topic, for planning storages;
- `names.csv`: the names behind the numbers of the other tables, and the start of `time` in Unix milliseconds.

When a table is too large or too old, all tables but the names move to a folder of their own. The oldest such
folders are removed when the log exceeds its limits of age and size; the open tables never are.
"""

from __future__ import annotations

import csv
import io
import logging
import math
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

logger = logging.getLogger(__name__)
EventKind = Literal["login", "logout", "subscribe", "unsubscribe"]
TABLES = {
    "events": ("time_ms", "kind", "subscriber", "subscription", "size"),
    "accesses": ("time_ms", "kind", "what", "hit", "bytes", "latency_ms"),
    "publications": ("page", "time", "size"),
    "requests": ("time", "proxy", "page"),
    "subscriptions": ("proxy", "page", "count"),
    "topics": ("time_ms", "topic", "hops"),
    "names": ("kind", "number", "name"),
}
ROTATED = re.compile(r"until-(\d+)")
"""The name of a folder of rotated tables, with the time of their last row in Unix milliseconds."""
LARGEST = 256 * 1024 * 1024
"""Bytes at which a table is rotated."""
CHECK_MS = 60_000
"""The interval between checks of age and size."""
PROXY = 0
"""A broker's log has one proxy: the broker."""


class EventLog:
    """A log whose rows wait in memory until `flush`; without a folder it is off."""

    def __init__(
        self,
        folder: Path | None,
        start_ms: int,
        *,
        largest: int = LARGEST,
        keep_bytes: int | None = None,
        keep_ms: int | None = None,
    ) -> None:
        """Limit all tables but the names to `keep_bytes`, and the age of rows to `keep_ms`; None is no limit."""
        self._folder = folder
        self._start_ms = start_ms
        # The open tables cannot be removed: they may use only a part of each limit.
        self._largest = largest if keep_bytes is None else min(largest, keep_bytes // (len(TABLES) + 1))
        self._oldest_ms = math.inf if keep_ms is None else keep_ms / 2
        self._keep_bytes = math.inf if keep_bytes is None else keep_bytes
        self._first_row_ms: int | None = None
        """When the first row of the open tables was written."""
        self._next_check_ms = 0
        self._rows: dict[str, list[Sequence[object]]] = {table: [] for table in TABLES}
        self._numbers: dict[tuple[str, str], int] = {}
        self._next: Counter[str] = Counter()
        self._published: set[int] = set()
        """Pages with a row in `publications.csv`."""
        self._counted: set[int] = set()
        """Pages with a row in `subscriptions.csv`."""
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._restore(folder)

    @property
    def unwritten(self) -> int:
        """The number of rows that wait for `flush`."""
        return sum(map(len, self._rows.values()))

    def event(self, now: int, kind: EventKind, subscriber: str, stream: str | None = None) -> None:
        """Log an event of a subscriber: its first or last connection, or a subscription to a stream."""
        if self._folder is not None:
            number = "" if stream is None else self._number("stream", stream)
            self._rows["events"].append((now, kind, self._number("subscriber", subscriber), number, ""))

    def results_pulled(self, now: int, stream: str, sizes: Sequence[int]) -> None:
        if self._folder is not None:
            number = self._number("stream", stream)
            for size in sizes:
                self._rows["events"].append((now, "result", "", number, size))
                self._rows["accesses"].append((now, "pull", number, "", size, ""))

    def results_read(
        self, now: int, stream: str, hits: int, hit_bytes: int, missed_bytes: int, latency_s: float
    ) -> None:
        """Log a read of results: how many came from the cache, and the bytes from cache and cluster."""
        if self._folder is not None:
            number = self._number("stream", stream)
            latency = round(latency_s * 1000, 2)
            if hits:
                self._rows["accesses"].append((now, "result", number, hits, hit_bytes, latency))
            if missed_bytes:
                self._rows["accesses"].append((now, "result", number, 0, missed_bytes, latency))

    def page_offered(self, now: int, page: str, size: int, count: int, taken: bool) -> None:
        """Log a matched page that `count` frontend subscriptions want, and whether it was cached."""
        if self._folder is not None:
            number = self._number("page", page)
            self._publish(now, number, size)
            if number not in self._counted:
                self._counted.add(number)
                self._rows["subscriptions"].append((PROXY, number, count))
            self._rows["accesses"].append((now, "push", number, int(taken), size, ""))

    def page_requested(self, now: int, page: str, size: int, hit: bool, latency_s: float) -> None:
        if self._folder is not None:
            number = self._number("page", page)
            if size:  # the lab has no pages without content
                self._publish(now, number, size)
                self._rows["requests"].append((self._seconds(now), PROXY, number))
            self._rows["accesses"].append((now, "page", number, int(hit), size, round(latency_s * 1000, 2)))

    def topic_read(self, now: int, topic: str, hops: int) -> None:
        """Log a history query of a topic, and the distance of its nearest storage."""
        if self._folder is not None:
            self._rows["topics"].append((now, topic, hops))

    def flush(self, now: int) -> None:
        """Write the rows; rotate and remove tables if it is time."""
        if self._folder is None:
            return
        self._rotate_if_due(self._folder, now)
        if self._first_row_ms is None and any(rows for table, rows in self._rows.items() if table != "names"):
            self._first_row_ms = now
        for table, rows in self._rows.items():
            if rows:
                self._rows[table] = []
                try:
                    self._append(self._folder / f"{table}.csv", TABLES[table], rows)
                except OSError as error:  # a full disk must not stop deliveries
                    logger.error("the access log loses %d rows of %s: %s", len(rows), table, error)
        if now >= self._next_check_ms:
            self._next_check_ms = now + CHECK_MS
            self._remove_expired(self._folder, now)

    def _publish(self, now: int, page: int, size: int) -> None:
        if page not in self._published:
            self._published.add(page)
            self._rows["publications"].append((page, self._seconds(now), size))

    def _seconds(self, now: int) -> float:
        return (now - self._start_ms) / 1000

    def _number(self, kind: str, name: str) -> int:
        number = self._numbers.get((kind, name))
        if number is None:
            number = self._numbers[(kind, name)] = self._next[kind]
            self._next[kind] += 1
            self._rows["names"].append((kind, number, name))
        return number

    def _append(self, file: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not file.exists() or file.stat().st_size == 0:
            writer.writerow(columns)
        writer.writerows(rows)
        with file.open("a", encoding="utf-8", newline="") as out:
            out.write(text.getvalue())

    def _rotate_if_due(self, folder: Path, now: int) -> None:
        """Move full or old tables to a folder of their own, which is a complete trace by itself."""
        tables = _tables(folder)
        old = self._first_row_ms is not None and now - self._first_row_ms >= self._oldest_ms
        try:
            if old or any(file.stat().st_size > self._largest for file in tables):
                rotated = folder / f"until-{now}"
                rotated.mkdir(exist_ok=True)
                for file in tables:
                    file.rename(rotated / file.name)
                self._published.clear()
                self._counted.clear()
                self._first_row_ms, self._next_check_ms = None, now
        except OSError as error:
            logger.error("the access log could not be rotated: %s", error)

    def _remove_expired(self, folder: Path, now: int) -> None:
        try:
            rotated = sorted(
                (int(found[1]), one) for one in folder.iterdir() if (found := ROTATED.fullmatch(one.name))
            )
            sizes = {one: sum(file.stat().st_size for file in _tables(one)) for _, one in rotated}
            total = sum(sizes.values()) + sum(file.stat().st_size for file in _tables(folder))
            for until, one in rotated:
                if total > self._keep_bytes or now - until >= self._oldest_ms:
                    shutil.rmtree(one)
                    total -= sizes[one]
        except OSError as error:
            logger.error("old parts of the access log could not be removed: %s", error)

    def _restore(self, folder: Path) -> None:
        """Continue the log of an earlier start."""
        for row in _rows(folder / "names.csv"):
            if row["kind"] == "start":
                self._start_ms = int(row["number"])
            self._numbers[(row["kind"], row["name"])] = int(row["number"])
            self._next[row["kind"]] = max(self._next[row["kind"]], int(row["number"]) + 1)
        if ("start", "") not in self._numbers:
            self._numbers[("start", "")] = self._start_ms
            self._rows["names"].append(("start", self._start_ms, ""))
        first = next(_rows(folder / "accesses.csv"), None) or next(_rows(folder / "events.csv"), None)
        self._first_row_ms = None if first is None else int(first["time_ms"])
        self._published = {int(row["page"]) for row in _rows(folder / "publications.csv")}
        self._counted = {int(row["page"]) for row in _rows(folder / "subscriptions.csv")}


def _tables(folder: Path) -> list[Path]:
    """Return the tables of a folder, without the names."""
    return [file for table in TABLES if table != "names" and (file := folder / f"{table}.csv").exists()]


def _rows(file: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a table, without one that was cut off by the end of a process."""
    if file.exists():
        with file.open(encoding="utf-8", newline="") as lines:
            yield from (row for row in csv.DictReader(lines) if None not in row.values())
