"""What happened at a broker, in the lab's own tables, so that it can be replayed there.

Folder `access/` of the data folder: `events.csv` (logins, logouts, subscriptions, results: the broker events of
the lab), `publications.csv`, `requests.csv` and `subscriptions.csv` (pages: a trace), and `accesses.csv`, which
says of each access what it was, whether it was a hit, how many bytes, how long it took, and `topics.csv`, which
has each request for the past of a topic, for planning storages. Tables of the lab have numbers in place of names;
`names.csv` tells which is which, and the Unix milliseconds from which `time` counts. When a table has grown large,
or old, all but the names are set aside together, in a folder of their own. Such folders are removed, the oldest
first, when the log is over its limits of age and size; what is being written never is.
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

logger = logging.getLogger(__name__)

TABLES = {
    "events": ("time_ms", "kind", "subscriber", "subscription", "size"),
    "accesses": ("time_ms", "kind", "what", "hit", "bytes", "latency_ms"),
    "publications": ("page", "time", "size"),
    "requests": ("time", "proxy", "page"),
    "subscriptions": ("proxy", "page", "count"),
    "topics": ("time_ms", "topic", "hops"),
    "names": ("kind", "number", "name"),
}
ASIDE = re.compile(r"until-(\d+)")
"""The name of a folder that was set aside, with the time of its last row in Unix milliseconds."""
LARGEST = 256 * 1024 * 1024
"""Bytes of a table that is set aside."""
LOOK_MS = 60_000
"""How often the limits of age and size are looked at."""
PROXY = 0
"""A broker's log has one proxy: the broker."""


class AccessLog:
    """Rows wait in memory until `flush`, about once a second; a log without a folder keeps nothing."""

    def __init__(
        self,
        folder: Path | None,
        start_ms: int,
        *,
        largest: int = LARGEST,
        keep_bytes: int | None = None,
        keep_ms: int | None = None,
    ) -> None:
        """`keep_bytes`: of all tables but the names; no row grows older than `keep_ms`. None is no limit."""
        self._folder = folder
        self._start_ms = start_ms
        # A part of each limit at most is in what is being written and cannot be removed.
        self._largest = largest if keep_bytes is None else min(largest, keep_bytes // (len(TABLES) + 1))
        self._oldest_ms = math.inf if keep_ms is None else keep_ms / 2
        self._keep_bytes = math.inf if keep_bytes is None else keep_bytes
        self._since: int | None = None
        """When the first row of the tables was written that are not set aside."""
        self._look_at = 0
        self._rows: dict[str, list[Sequence[object]]] = {table: [] for table in TABLES}
        self._numbers: dict[tuple[str, str], int] = {}
        self._next: Counter[str] = Counter()
        self._published: set[int] = set()
        """Pages of which there is a publication already, by number; and a subscription:"""
        self._counted: set[int] = set()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._take_up(folder)

    def online(self, now: int, subscriber: str) -> None:
        """A subscriber has connected."""
        self._event(now, "login", subscriber)

    def offline(self, now: int, subscriber: str) -> None:
        """A subscriber's last connection is gone."""
        self._event(now, "logout", subscriber)

    def subscribed(self, now: int, subscriber: str, stream: str) -> None:
        """A subscriber follows a stream."""
        self._event(now, "subscribe", subscriber, stream)

    def unsubscribed(self, now: int, subscriber: str, stream: str) -> None:
        """A subscriber does not follow a stream any more."""
        self._event(now, "unsubscribe", subscriber, stream)

    def arrived(self, now: int, stream: str, sizes: Sequence[int]) -> None:
        """Results of a stream have come."""
        if self._folder is not None:
            number = self._number("stream", stream)
            for size in sizes:
                self._rows["events"].append((now, "result", "", number, size))
                self._rows["accesses"].append((now, "pull", number, "", size, ""))

    def read(self, now: int, stream: str, hits: int, hit_bytes: int, missed_bytes: int, latency_s: float) -> None:
        """A subscriber has read results, so many of them and so many bytes from the cache."""
        if self._folder is not None:
            number = self._number("stream", stream)
            latency = round(latency_s * 1000, 2)
            if hits:
                self._rows["accesses"].append((now, "result", number, hits, hit_bytes, latency))
            if missed_bytes:
                self._rows["accesses"].append((now, "result", number, 0, missed_bytes, latency))

    def offered(self, now: int, page: str, size: int, count: int, taken: bool) -> None:
        """A page was published that `count` frontends want; it was taken or not."""
        if self._folder is not None:
            number = self._number("page", page)
            self._publish(now, number, size)
            if number not in self._counted:
                self._counted.add(number)
                self._rows["subscriptions"].append((PROXY, number, count))
            self._rows["accesses"].append((now, "push", number, int(taken), size, ""))

    def requested(self, now: int, page: str, size: int, hit: bool, latency_s: float) -> None:
        """A page was asked for."""
        if self._folder is not None:
            number = self._number("page", page)
            if size:  # the lab has no pages without content
                self._publish(now, number, size)
                self._rows["requests"].append((self._seconds(now), PROXY, number))
            self._rows["accesses"].append((now, "page", number, int(hit), size, round(latency_s * 1000, 2)))

    def past(self, now: int, topic: str, hops: int) -> None:
        """The past of a topic was asked for; its nearest storage is so far away."""
        if self._folder is not None:
            self._rows["topics"].append((now, topic, hops))

    def flush(self, now: int) -> None:
        """Write what has happened."""
        if self._folder is None:
            return
        self._set_aside_if_due(self._folder, now)
        if self._since is None and any(rows for table, rows in self._rows.items() if table != "names"):
            self._since = now
        for table, rows in self._rows.items():
            if rows:
                self._rows[table] = []
                try:
                    self._append(self._folder / f"{table}.csv", TABLES[table], rows)
                except OSError as error:  # a full disk must not stop deliveries
                    logger.error("the access log loses %d rows of %s: %s", len(rows), table, error)
        if now >= self._look_at:
            self._look_at = now + LOOK_MS
            self._remove_what_is_over(self._folder, now)

    def _event(self, now: int, kind: str, subscriber: str, stream: str | None = None) -> None:
        if self._folder is not None:
            number = "" if stream is None else self._number("stream", stream)
            self._rows["events"].append((now, kind, self._number("subscriber", subscriber), number, ""))

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

    def _set_aside_if_due(self, folder: Path, now: int) -> None:
        """Each folder is a trace by itself: a page that is asked for later is published there anew."""
        tables = _tables(folder)
        old = self._since is not None and now - self._since >= self._oldest_ms
        try:
            if old or any(file.stat().st_size > self._largest for file in tables):
                aside = folder / f"until-{now}"
                aside.mkdir(exist_ok=True)
                for file in tables:
                    file.rename(aside / file.name)
                self._published.clear()
                self._counted.clear()
                self._since, self._look_at = None, now
        except OSError as error:
            logger.error("the access log could not be set aside: %s", error)

    def _remove_what_is_over(self, folder: Path, now: int) -> None:
        try:
            aside = sorted(
                (int(found[1]), one) for one in folder.iterdir() if (found := ASIDE.fullmatch(one.name))
            )
            sizes = {one: sum(file.stat().st_size for file in _tables(one)) for _, one in aside}
            held = sum(sizes.values()) + sum(file.stat().st_size for file in _tables(folder))
            for until, one in aside:
                if held > self._keep_bytes or now - until >= self._oldest_ms:
                    shutil.rmtree(one)
                    held -= sizes[one]
        except OSError as error:
            logger.error("old parts of the access log could not be removed: %s", error)

    def _take_up(self, folder: Path) -> None:
        """Go on where the log of an earlier start ended."""
        for row in _rows(folder / "names.csv"):
            if row["kind"] == "start":
                self._start_ms = int(row["number"])
            self._numbers[(row["kind"], row["name"])] = int(row["number"])
            self._next[row["kind"]] = max(self._next[row["kind"]], int(row["number"]) + 1)
        if ("start", "") not in self._numbers:
            self._numbers[("start", "")] = self._start_ms
            self._rows["names"].append(("start", self._start_ms, ""))
        first = next(_rows(folder / "accesses.csv"), None) or next(_rows(folder / "events.csv"), None)
        self._since = None if first is None else int(first["time_ms"])
        self._published = {int(row["page"]) for row in _rows(folder / "publications.csv")}
        self._counted = {int(row["page"]) for row in _rows(folder / "subscriptions.csv")}


def _tables(folder: Path) -> list[Path]:
    """The tables of a folder, but for the names."""
    return [file for table in TABLES if table != "names" and (file := folder / f"{table}.csv").exists()]


def _rows(file: Path) -> Iterator[dict[str, str]]:
    """The rows of a table; one that was cut off by the end of a process is passed over."""
    if file.exists():
        with file.open(encoding="utf-8", newline="") as lines:
            yield from (row for row in csv.DictReader(lines) if None not in row.values())
