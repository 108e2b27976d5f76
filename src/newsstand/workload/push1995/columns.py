"""A push trace in memory, read without Spark, by the rules of `workload/push1995/trace.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from newsstand.errors import BadTrace
from newsstand.workload.trace.files import TableLayout, require_folder
from newsstand.workload.trace.folder_columns import PageIndex, TableColumns, checked_files, read_table_columns

Bools = npt.NDArray[np.bool_]
Float64s = npt.NDArray[np.float64]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

NO_NODE = -1
_PLACE = {"latitude": "double", "longitude": "double"}
_NODE = {"node": "int"}
LAYOUTS = {
    layout.name: layout
    for layout in (
        TableLayout("servers", {"server": "int", "name": "string", **_PLACE}, ("server",), _NODE),
        TableLayout(
            "subnets", {"subnet": "int", "name": "string", **_PLACE, "weight": "double"}, ("subnet",), _NODE
        ),
        TableLayout(
            "pages",
            {"page": "bigint", "server": "int", "size": "bigint", "modified": "double"},
            ("page", "modified"),
        ),
        TableLayout("requests", {"time": "double", "server": "int", "subnet": "int", "page": "bigint"}),
    )
}
"""The tables of a push trace."""


@dataclass(frozen=True)
class SiteColumns:
    """Servers or subnets, in the order of their numbers."""

    latitude: Float64s
    longitude: Float64s
    node: Int32s
    """The node of each in the network, `NO_NODE` where none is known."""

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True)
class VersionColumns:
    """The versions of pages, in the order of the source's rows; pages are numbered from 0 without holes."""

    page: Int64s
    size: Int64s
    modified: Float64s


@dataclass(frozen=True)
class PushRequestColumns:
    """Requests, in the order of the source's rows."""

    time: Float64s
    server: Int32s
    subnet: Int32s
    page: Int64s
    """The number of each page among the versions."""


@dataclass(frozen=True)
class PushColumns:
    """A push trace in memory, which keeps every rule of its format."""

    servers: SiteColumns
    subnets: SiteColumns
    versions: VersionColumns
    requests: PushRequestColumns


def read_push_columns(folder: Path) -> PushColumns:
    """Return a folder with the four tables, each a Parquet or CSV file, or a folder of them."""
    require_folder(folder)
    # As on Spark, columns are checked before the rows of any table.
    files = {name: checked_files(folder, layout) for name, layout in LAYOUTS.items()}

    def read(name: str) -> TableColumns:
        return read_table_columns(files[name], LAYOUTS[name])

    try:
        servers, subnets = read("servers"), read("subnets")
        _check(servers, _site_rules(servers, "server"))
        _check(subnets, {**_site_rules(subnets, "subnet"), "weight is negative": subnets.columns["weight"] < 0})

        pages = read("pages")
        names, numbers = np.unique(pages.columns["page"], return_inverse=True)
        owners = np.full(len(names), np.iinfo(np.int32).max, np.int32)
        server, size = pages.columns["server"], pages.columns["size"]
        np.minimum.at(owners, numbers, server)
        _check(
            pages,
            {
                "size is not positive": size < 1,
                "size is over 2^53 bytes": size > 2**53,
                "server is not in 'servers'": _is_outside(server, len(servers)),
                "the page is another server's, too": server != owners[numbers],
            },
        )

        requests = read("requests")
        page, server = PageIndex.of(names).find(requests.columns["page"]), requests.columns["server"]
        _check(
            requests,
            {
                "server is not in 'servers'": _is_outside(server, len(servers)),
                "subnet is not in 'subnets'": _is_outside(requests.columns["subnet"], len(subnets)),
                "page is not in 'pages'": page < 0,
                "the page is not this server's": server != owners[page],
            },
        )
    except BadTrace as error:
        raise BadTrace(f"{folder}: {error}") from error
    return PushColumns(
        _sites(servers, "server"),
        _sites(subnets, "subnet"),
        VersionColumns(numbers.astype(np.int64), size, pages.columns["modified"]),
        PushRequestColumns(requests.columns["time"], server, requests.columns["subnet"], page),
    )


def _check(table: TableColumns, rules: Mapping[str, Bools]) -> None:
    if not len(table):
        raise BadTrace(f"table '{table.layout.name}' is empty")
    table.check(rules)


def _site_rules(table: TableColumns, number: str) -> dict[str, Bools]:
    return {
        f"{number} is not in 0 … {len(table) - 1}, as numbers without holes are": _is_outside(
            table.columns[number], len(table)
        ),
        **{
            f"{column} is not between -{most} and {most} degrees": np.abs(table.columns[column]) > most
            for column, most in (("latitude", 90), ("longitude", 180))
        },
    }


def _is_outside(numbers: Int32s, rows: int) -> Bools:
    return (numbers < 0) | (numbers >= rows)


def _sites(table: TableColumns, number: str) -> SiteColumns:
    order = np.argsort(table.columns[number])
    latitude, longitude = (table.columns[column][order] for column in ("latitude", "longitude"))
    return SiteColumns(latitude, longitude, table.optional_numbers("node", NO_NODE)[order])
