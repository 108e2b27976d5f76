"""The demand for the pages of servers, on which push-caching (Gwertzman and Seltzer 1995) decides, on Spark.

The paper records the number of requests from each place, and not which place wanted which page. It may do so
because the pattern of the whole server is that of its popular files: over states, the correlations of the ten most
popular files at a server of NCSA are 0.98 on average. `correlations` is that table for any server.

Where requests come from is a subnet or, as states are coarser than that, a square of some degrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from newsstand.errors import BadOption
from newsstand.workload.push1995.trace import PushTrace

HALF_HOUR = 1800.0
"""After each, a server computes its load."""
POPULAR = 10


def _count() -> Column:
    return F.count(F.lit(1)).alias("requests")


def by_subnet(requests: DataFrame) -> DataFrame:
    """(server, subnet, requests)."""
    return requests.groupBy("server", "subnet").agg(_count())


def by_page(requests: DataFrame) -> DataFrame:
    """(server, page, requests)."""
    return requests.groupBy("server", "page").agg(_count())


def by_half_hour(requests: DataFrame) -> DataFrame:
    """(server, half_hour, requests): the half hours count from time 0, and those without requests are left out."""
    half_hour = F.floor(F.col("time") / HALF_HOUR).cast("long").alias("half_hour")
    return requests.groupBy("server", half_hour).agg(_count())


def most_popular(requests: DataFrame, pages: int = POPULAR) -> DataFrame:
    """(server, page, requests, rank): of each server the most requested pages, of equals the lowest one."""
    if pages < 1:
        raise BadOption("must be at least 1", pages=pages)
    order = Window.partitionBy("server").orderBy(F.desc("requests"), "page")
    ranked = by_page(requests).withColumn("rank", F.row_number().over(order))
    return ranked.where(F.col("rank") <= pages)


def squares(subnets: DataFrame, degrees: float) -> DataFrame:
    """(subnet, place): the square of latitude and longitude in which a subnet is."""
    if not 0 < degrees <= 180:
        raise BadOption("must be above 0 and at most 180 degrees", square=degrees)
    sides = [F.floor(F.col(side) / degrees).cast("long") for side in ("latitude", "longitude")]
    return subnets.select("subnet", F.struct(*sides).alias("place"))


def correlations(requests: DataFrame, places: DataFrame | None = None, pages: int = POPULAR) -> DataFrame:
    """(server, page, requests, rank, correlation) of the most popular pages of each server.

    The correlation is Pearson's, over all places with requests to the server, between the numbers of requests from
    there for the page and for all pages. It is null if either is the same everywhere. `places` has the place of
    each subnet; without it, each subnet is a place.
    """
    from_places = (
        requests.withColumn("place", F.col("subnet")) if places is None else requests.join(places, "subnet")
    )
    popular = most_popular(requests, pages)
    cells = from_places.join(F.broadcast(popular.select("server", "page", "rank")), ["server", "page"], "left")
    # One row a place, with the counts of all popular pages in it: one pass over the requests.
    counts = cells.groupBy("server", "place", "rank").agg(_count())
    totals = counts.groupBy("server", "place").agg(
        F.sum("requests").alias("all"),
        F.map_from_entries(F.collect_list(F.when(F.col("rank").isNotNull(), F.struct("rank", "requests")))).alias(
            "of_rank"
        ),
    )
    pairs = popular.select("server", "rank").join(totals, "server")
    page = F.coalesce(F.try_element_at("of_rank", F.col("rank")), F.lit(0))
    sums = pairs.groupBy("server", "rank").agg(*_sums(page, F.col("all")))
    return popular.join(sums.select("server", "rank", _pearson().alias("correlation")), ["server", "rank"]).select(
        "server", "page", "requests", "rank", "correlation"
    )


def _sums(x: Column, y: Column) -> list[Column]:
    """Return the sums of Pearson's correlation, exact so that the order of tasks does not matter."""
    x, y = x.cast("decimal(19,0)"), y.cast("decimal(19,0)")
    of = {"x": x, "y": y, "xx": x * x, "yy": y * y, "xy": x * y}
    sums = [F.sum(value).cast("decimal(38,0)").alias(name) for name, value in of.items()]
    return [F.count(F.lit(1)).cast("decimal(19,0)").alias("n"), *sums]


def _pearson() -> Column:
    n, x, y, xx, yy, xy = (F.col(name) for name in ("n", "x", "y", "xx", "yy", "xy"))
    spread_x, spread_y = n * xx - x * x, n * yy - y * y
    product = spread_x.cast("double") * spread_y.cast("double")
    return F.when(product > 0, (n * xy - x * y).cast("double") / F.sqrt(product))


@dataclass(frozen=True)
class PopularPage:
    """One of the most popular pages of a server."""

    page: int
    requests: int
    correlation: float | None
    """The correlation of the places of its requests with those of all requests to the server."""


@dataclass(frozen=True)
class ServerDemand:
    """The demand for the pages of a server."""

    server: int
    name: str
    requests: int
    pages: int
    subnets: int
    busiest_half_hour: float
    """Its beginning, in the seconds of the trace."""
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
    """Return the mean of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def server_demand(trace: PushTrace, pages: int = POPULAR, square: float | None = None) -> list[ServerDemand]:
    """Return every server with requests, in the order of their numbers."""
    places = None if square is None else squares(trace.subnets, square)
    popular: dict[int, list[PopularPage]] = {}
    for row in correlations(trace.requests, places, pages).orderBy("server", "rank").collect():
        found = PopularPage(row["page"], row["requests"], row["correlation"])
        popular.setdefault(row["server"], []).append(found)
    half_hours = by_half_hour(trace.requests).groupBy("server")
    busiest = half_hours.agg(F.max(F.struct("requests", (-F.col("half_hour")).alias("start"))).alias("most"))
    per_page = by_page(trace.requests).groupBy("server")
    totals = per_page.agg(F.sum("requests").alias("requests"), F.count(F.lit(1)).alias("pages"))
    subnets = by_subnet(trace.requests).groupBy("server").agg(F.count(F.lit(1)).alias("subnets"))
    servers = totals.join(subnets, "server").join(busiest, "server").join(trace.servers.drop("row"), "server")
    return [
        ServerDemand(
            **{name: row[name] for name in ("server", "name", "requests", "pages", "subnets")},
            busiest_half_hour=-row["most"]["start"] * HALF_HOUR,
            busiest_requests=row["most"]["requests"],
            popular=tuple(popular[row["server"]]),
        )
        for row in servers.orderBy("server").collect()
    ]
