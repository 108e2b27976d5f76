"""The demand of every server of a push trace, in one report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import functions as F

from newsstand.lab.push1995_demand import (
    HALF_HOUR,
    POPULAR,
    by_half_hour,
    by_page,
    by_subnet,
    correlations,
    squares,
)
from newsstand.workload.push1995_trace import PushTrace


@dataclass(frozen=True)
class PopularPage:
    """One of the most popular pages of a server."""

    page: int
    requests: int
    correlation: float | None
    """Of where its requests come from with where all of the server's do."""


@dataclass(frozen=True)
class ServerDemand:
    """Who asks a server for what, and when."""

    server: int
    name: str
    requests: int
    pages: int
    subnets: int
    busiest_half_hour: float
    """When it begins, in the seconds of the trace."""
    busiest_requests: int
    popular: tuple[PopularPage, ...]

    @property
    def popular_share(self) -> float:
        """The share of requests to the most popular pages."""
        return sum(page.requests for page in self.popular) / self.requests

    @property
    def correlation(self) -> float | None:
        """The mean over the most popular pages."""
        return mean([page.correlation for page in self.popular])


def mean(values: Sequence[float | None]) -> float | None:
    """Of those there are."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def demand(trace: PushTrace, pages: int = POPULAR, square: float | None = None) -> list[ServerDemand]:
    """Every server with requests, in the order of their numbers."""
    places = None if square is None else squares(trace.subnets, square)
    popular: dict[int, list[PopularPage]] = {}
    for row in correlations(trace.requests, places, pages).orderBy("server", "rank").collect():
        found = PopularPage(row["page"], row["requests"], row["correlation"])
        popular.setdefault(row["server"], []).append(found)
    half_hours = by_half_hour(trace.requests).groupBy("server")
    busiest = half_hours.agg(F.max(F.struct("requests", -F.col("half_hour"))).alias("most"))
    per_page = by_page(trace.requests).groupBy("server")
    totals = per_page.agg(F.sum("requests").alias("requests"), F.count(F.lit(1)).alias("pages"))
    subnets = by_subnet(trace.requests).groupBy("server").agg(F.count(F.lit(1)).alias("subnets"))
    told = totals.join(subnets, "server").join(busiest, "server").join(trace.servers.drop("row"), "server")
    return [
        ServerDemand(
            row["server"],
            row["name"],
            row["requests"],
            row["pages"],
            row["subnets"],
            -row["most"][1] * HALF_HOUR,
            row["most"][0],
            tuple(popular[row["server"]]),
        )
        for row in told.orderBy("server").collect()
    ]
