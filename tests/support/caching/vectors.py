"""The test vectors of the thirteen page policies: traces as three tables, and every count they must come to."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import NamedTuple

from support.caching.traces import Publication, Request, Subscription, Trace

FOLDER = Path(__file__).parents[2] / "vectors" / "chen2003"
NAMES = sorted(folder.name for folder in FOLDER.iterdir())


class ExpectedCounts(NamedTuple):
    """The counts of one policy at one capacity: totals by their names, requests and hits by proxy."""

    capacity: Fraction
    beta: float
    totals: dict[str, int]
    proxies: dict[int, tuple[int, int]]


@cache
def trace(vector: str) -> Trace:
    return Trace(
        [Publication(int(page), float(time), int(size)) for page, time, size in _rows(vector, "publications")],
        [Request(float(time), int(proxy), int(page)) for time, proxy, page in _rows(vector, "requests")],
        [Subscription(int(proxy), int(page), int(n)) for proxy, page, n in _rows(vector, "subscriptions")],
    )


def _rows(vector: str, table: str) -> Iterator[list[str]]:
    with (FOLDER / vector / f"{table}.csv").open(newline="") as lines:
        rows = csv.reader(lines)
        next(rows)
        yield from rows


@cache
def expected(vector: str, policy: str) -> list[ExpectedCounts]:
    """One for each capacity."""
    return [
        ExpectedCounts(
            Fraction(str(run.pop("capacity"))),
            float(run.pop("beta")),
            proxies={row["proxy"]: (row["requests"], row["hits"]) for row in run.pop("proxies")},
            totals={name: count for name, count in run.items() if name != "policy"},
        )
        for run in json.loads((FOLDER / vector / "expected.json").read_text())
        if run["policy"] == policy
    ]
