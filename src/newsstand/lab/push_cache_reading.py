"""A push trace, brought from its tables to where it is simulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from newsstand.lab.push_cache_demand import NO_NODE, PushDemand, Sites, Versions
from newsstand.planning.geography import Places
from newsstand.workload.push1995_trace import PushTrace
from newsstand.workload.trace import ROW


def demand_of(trace: PushTrace) -> PushDemand:
    """A push trace that has been checked, brought here; requests of one time are in the order of servers."""
    requests = _collected(trace.requests.orderBy("time", "server", ROW), ("time", "server", "subnet", "page"))
    pages = _collected(trace.pages, ("page", "size", "modified"))
    names, numbers = np.unique(pages["page"], return_inverse=True)
    return PushDemand(
        requests["time"],
        requests["server"].astype(np.int32),
        requests["subnet"].astype(np.int32),
        np.searchsorted(names, requests["page"]),
        Versions.of(numbers.astype(np.int64), pages["size"], pages["modified"]),
        _sites(trace.subnets, "subnet"),
        _sites(trace.servers, "server"),
    )


def _sites(table: DataFrame, number: str) -> Sites:
    columns = _collected(table.orderBy(number).fillna(NO_NODE, ["node"]), ("latitude", "longitude", "node"))
    places = Places(columns["latitude"], columns["longitude"])
    return Sites(places, columns["node"].astype(np.int32))


def _collected(table: DataFrame, columns: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    found: pa.Table = table.select(*columns).toArrow()
    return {column: found.column(column).to_numpy() for column in columns}
