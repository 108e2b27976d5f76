"""The settings of a workload for push-caching (Gwertzman and Seltzer 1995).

The paper replays logs of servers; this workload generates traces of the kinds that it distinguishes:

- `global`: requests come from the whole world, half of them for ten pages of each server;
- `local`: the same, but most requests come from near the server;
- `flat`: requests come from the whole world, equally for all pages of a server.

The distributions:

- Subnets and servers are near cities, drawn by population. Demand of a subnet is log-normal.
- Servers differ in popularity by Zipf's law; so do the pages of each, with the exponent at which the ten most
  popular ones get the configured share.
- A visit comes from one subnet and requests several pages of one server, some seconds apart (4 to 20 documents on
  average in the paper). More visits begin in the afternoon of the subnet than in its night.
- Sizes are log-normal with the paper's mean of 2000 bytes. Each page has a log-normal mean lifetime and is
  modified at random times; at time 0 its age has the stationary distribution.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from newsstand.errors import BadOption

HOUR = 3600.0
DAY = 24 * HOUR
SUBNETS, SERVERS, RANKS, DRIFT, SIZES, LIFETIMES, VISITS = 21, 22, 23, 24, 25, 26, 27
"""The streams of draws."""

CORE_PAGES = 10

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TraceKind:
    """A kind of trace: shares of requests for the core of pages (None: no core) and from nearby."""

    core: float | None
    regional: float


KINDS = {"global": TraceKind(0.5, 0.1), "local": TraceKind(0.5, 0.8), "flat": TraceKind(None, 0.1)}


@dataclass(frozen=True)
class PushSettings:
    """One trace of the workload."""

    kind: Literal["global", "local", "flat"] = "global"
    servers: int = 20
    subnets: int = 1_000
    requests: int = 200_000
    days: int = 7
    pages: int = 500
    """Of each server."""
    core: float | None = None
    """The share of requests to the ten most popular pages of a server; None: that of the kind."""
    regional: float | None = None
    """The share of visits from near the server; None: that of the kind."""
    visit: float = 8.0
    """The mean number of requests of a visit; with 1 there is no locality in time."""
    drift: float = 0.0
    """The share of popularity ranks that move to other pages every day."""
    server_skew: float = 0.8
    """The exponent of Zipf's law over servers; with 0, all get as many requests."""
    rhythm: float = 0.6
    """The amplitude of the rate of visits over the day."""
    size: tuple[float, float] = (6.908, 1.177)
    """The log-normal distribution of sizes: mu and sigma."""
    lifetime: float = 50.0
    """Days between modifications of a page: the median over pages of their means."""
    seed: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadOption(f"must be one of {', '.join(KINDS)}", kind=self.kind)
        for name in ("servers", "subnets", "requests", "days"):
            if not 1 <= getattr(self, name) < 2**31:
                raise BadOption("must be within 1 … 2^31 - 1", **{name: getattr(self, name)})
        if self.pages <= CORE_PAGES or self.pages * self.servers >= 2**31:
            most = (2**31 - 1) // self.servers
            raise BadOption(
                f"must be within {CORE_PAGES + 1} … {most}: all servers together have less than 2^31",
                pages=self.pages,
            )
        if not 0 <= self.seed < 2**63:
            raise BadOption("must be within 0 … 2^63 - 1", seed=self.seed)
        if self.core is not None and not CORE_PAGES / self.pages <= self.core <= 0.999:
            raise BadOption(f"must be within {CORE_PAGES / self.pages:g} … 0.999", core=self.core)
        for name, value, low, high in (
            ("regional", self.regional or 0.0, 0.0, 1.0),
            ("drift", self.drift, 0.0, 1.0),
            ("rhythm", self.rhythm, 0.0, 1.0),
            ("visit", self.visit, 1.0, 10_000.0),
            ("server_skew", self.server_skew, 0.0, 10.0),
            ("lifetime", self.lifetime, 0.01, 1e6),
            ("size: mu", self.size[0], 0.0, 30.0),
            ("size: sigma", self.size[1], 0.0, 5.0),
        ):
            if not low <= value <= high:
                raise BadOption(f"must be within {low:g} … {high:g}", **{name: value})

    @property
    def end(self) -> float:
        """The end of the trace."""
        return self.days * DAY

    @property
    def regional_share(self) -> float:
        return KINDS[self.kind].regional if self.regional is None else self.regional

    @property
    def core_share(self) -> float:
        """The share of the core, at least that of ten equal pages: a small server cannot have less."""
        all_alike = CORE_PAGES / self.pages
        share = KINDS[self.kind].core if self.core is None else self.core
        return all_alike if share is None else max(all_alike, share)

    @cached_property
    def exponent(self) -> float:
        """The exponent of Zipf's law at which the ten most popular pages of a server get their share."""
        low, high = 0.0, 64.0
        for _ in range(100):
            middle = (low + high) / 2
            weight = _zipf(self.pages, middle)
            below = float(weight[:CORE_PAGES].sum() / weight.sum()) < self.core_share
            low, high = (middle, high) if below else (low, middle)
        return low

    @cached_property
    def rank_reached(self) -> Floats:
        """The cumulative shares of a server's requests by rank."""
        return cumulative_shares(_zipf(self.pages, self.exponent))

    @cached_property
    def requests_of_servers(self) -> Ints:
        """The number of requests of each server; server 0 gets most."""
        edges = np.floor(cumulative_shares(_zipf(self.servers, self.server_skew)) * self.requests + 1e-6)
        counts: Ints = np.diff(edges, prepend=0.0).astype(np.int64)
        return counts

    def described(self) -> dict[str, object]:
        """Return the settings and values derived from them, as JSON."""
        derived = {"core": self.core_share, "regional": self.regional_share, "exponent": round(self.exponent, 6)}
        return {"workload": "push1995", **asdict(self), **derived, "end": self.end}


def _zipf(ranks: int, exponent: float) -> Floats:
    weight: Floats = np.arange(1, ranks + 1, dtype=np.float64) ** -exponent
    return weight


def cumulative_shares(weights: Floats) -> Floats:
    """Return cumulative shares, of which the last is 1, to look up uniform numbers."""
    total = np.cumsum(weights)
    shares: Floats = total / total[-1]
    return shares
