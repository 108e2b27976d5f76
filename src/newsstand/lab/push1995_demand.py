"""Who asks a server for what, and when: what push-caching (Gwertzman and Seltzer 1995) decides by, on Spark.

The paper records how many requests came from each place, and not which place wanted which page. It may do so
because the pattern of the whole server is that of its popular files: over states, the correlations of the ten most
popular files at a server of NCSA are 0.98 on average. `correlations` is that table for any server.

Where requests come from is a subnet or, as states are coarser than that, a square of so many degrees.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from newsstand.errors import BadOption

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
    """(server, page, requests, rank): of each server the pages asked for most, of equals the lowest one."""
    if pages < 1:
        raise BadOption(f"pages {pages} is less than 1")
    order = Window.partitionBy("server").orderBy(F.desc("requests"), "page")
    ranked = by_page(requests).withColumn("rank", F.row_number().over(order))
    return ranked.where(F.col("rank") <= pages)


def squares(subnets: DataFrame, degrees: float) -> DataFrame:
    """(subnet, place): the square of latitude and longitude in which a subnet is."""
    if not 0 < degrees <= 180:
        raise BadOption(f"square {degrees:g} is outside (0, 180] degrees")
    sides = [F.floor(F.col(side) / degrees).cast("long") for side in ("latitude", "longitude")]
    return subnets.select("subnet", F.struct(*sides).alias("place"))


def correlations(requests: DataFrame, places: DataFrame | None = None, pages: int = POPULAR) -> DataFrame:
    """(server, page, requests, rank, correlation) of the most popular pages of each server.

    The correlation is Pearson's, over all places from which anybody asked the server, between how many requests
    came from there for the page and for all pages. It is null if either is the same everywhere. `places` tells the
    place of each subnet; without it, each is a place of its own.
    """
    from_places = (
        requests.withColumn("place", F.col("subnet")) if places is None else requests.join(places, "subnet")
    )
    popular = most_popular(requests, pages)
    cells = from_places.join(F.broadcast(popular.select("server", "page", "rank")), ["server", "page"], "left")
    # One row a place, with the counts of all popular pages in it: the requests are gone through once.
    counts = cells.groupBy("server", "place", "rank").agg(_count())
    whole = counts.groupBy("server", "place").agg(
        F.sum("requests").alias("all"),
        F.map_from_entries(F.collect_list(F.when(F.col("rank").isNotNull(), F.struct("rank", "requests")))).alias(
            "of_rank"
        ),
    )
    pairs = popular.select("server", "rank").join(whole, "server")
    page = F.coalesce(F.try_element_at("of_rank", F.col("rank")), F.lit(0))
    sums = pairs.groupBy("server", "rank").agg(*_sums(page, F.col("all")))
    return popular.join(sums.select("server", "rank", _pearson().alias("correlation")), ["server", "rank"]).select(
        "server", "page", "requests", "rank", "correlation"
    )


def _sums(x: Column, y: Column) -> list[Column]:
    """What Pearson's correlation is made of, exactly: the order in which tasks add up must not matter."""
    x, y = x.cast("decimal(19,0)"), y.cast("decimal(19,0)")
    of = {"x": x, "y": y, "xx": x * x, "yy": y * y, "xy": x * y}
    sums = [F.sum(value).cast("decimal(38,0)").alias(name) for name, value in of.items()]
    return [F.count(F.lit(1)).cast("decimal(19,0)").alias("n"), *sums]


def _pearson() -> Column:
    n, x, y, xx, yy, xy = (F.col(name) for name in ("n", "x", "y", "xx", "yy", "xy"))
    spread_x, spread_y = n * xx - x * x, n * yy - y * y
    product = spread_x.cast("double") * spread_y.cast("double")
    return F.when(product > 0, (n * xy - x * y).cast("double") / F.sqrt(product))
