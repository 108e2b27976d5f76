"""A workload for push-caching (Gwertzman and Seltzer 1995): its settings.

The paper replays logs of servers; this makes traces of the kinds that it tells apart:

- `global`: the whole world asks, and half of all requests are for ten pages of each server;
- `local`: the same, but most requests come from near the server;
- `flat`: the whole world asks, and all pages of a server are asked for alike.

What is drawn, and how:

- Subnets and servers are near towns, drawn by population. Demand of a subnet is log-normal.
- Servers differ in popularity by Zipf's law; so do the pages of each, with the exponent at which the ten most
  popular ones get the share asked for.
- A visit comes from one subnet and asks for several pages of one server, some seconds apart (4 to 20 documents on
  average, says the paper). More visits begin in the afternoon of the subnet than at its night.
- Sizes are log-normal with a mean of 2000 bytes, the paper's. Each page has a mean lifetime, log-normal, and is
  modified at random times; at time 0 it is as old as if it had always been so.
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
class Kind:
    """What makes a kind of trace: shares of requests, for the core of pages (None: no core) and from nearby."""

    core: float | None
    regional: float


KINDS = {"global": Kind(0.5, 0.1), "local": Kind(0.5, 0.8), "flat": Kind(None, 0.1)}


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
    """Requests of a visit, on average; with 1, nothing is near in time to anything."""
    drift: float = 0.0
    """The share of popularity ranks that go to other pages every day."""
    server_skew: float = 0.8
    """The exponent of Zipf's law over servers; with 0, all get as many requests."""
    rhythm: float = 0.6
    """How far the rate of visits goes up and down with the time of day."""
    size: tuple[float, float] = (6.908, 1.177)
    """The log-normal law of sizes: mu and sigma."""
    lifetime: float = 50.0
    """Days between modifications of a page: the median over pages of their means."""
    seed: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadOption(f"kind '{self.kind}' is none of {', '.join(KINDS)}")
        for name, least in (("servers", 1), ("subnets", 1), ("requests", 1), ("days", 1)):
            if not least <= getattr(self, name) < 2**31:
                raise BadOption(f"{name} {getattr(self, name)} is outside {least} … 2^31 - 1")
        if self.pages <= CORE_PAGES or self.pages * self.servers >= 2**31:
            raise BadOption(
                f"pages {self.pages} is outside {CORE_PAGES + 1} … {(2**31 - 1) // self.servers}, "
                f"all servers together having less than 2^31"
            )
        if not 0 <= self.seed < 2**63:
            raise BadOption(f"seed {self.seed} is outside 0 … 2^63 - 1")
        if self.core is not None and not CORE_PAGES / self.pages <= self.core <= 0.999:
            raise BadOption(f"core {self.core:g} is outside {CORE_PAGES / self.pages:g} … 0.999")
        for name, value in (("regional", self.regional or 0.0), ("drift", self.drift), ("rhythm", self.rhythm)):
            if not 0 <= value <= 1:
                raise BadOption(f"{name} {value:g} is outside 0 … 1")
        for name, value, low, high in (
            ("visit", self.visit, 1.0, 10_000.0),
            ("server-skew", self.server_skew, 0.0, 10.0),
            ("lifetime", self.lifetime, 0.01, 1e6),
            ("size: mu", self.size[0], 0.0, 30.0),
            ("size: sigma", self.size[1], 0.0, 5.0),
        ):
            if not low <= value <= high:
                raise BadOption(f"{name} {value:g} is outside {low:g} … {high:g}")

    @property
    def end(self) -> float:
        """Every request comes before."""
        return self.days * DAY

    @property
    def regional_share(self) -> float:
        return KINDS[self.kind].regional if self.regional is None else self.regional

    @property
    def core_share(self) -> float:
        """That of the kind, or of ten pages like all others: a small server may have no smaller one."""
        all_alike = CORE_PAGES / self.pages
        share = KINDS[self.kind].core if self.core is None else self.core
        return all_alike if share is None else max(all_alike, share)

    @cached_property
    def exponent(self) -> float:
        """Of Zipf's law over the pages of a server, so that its ten most popular get their share."""
        low, high = 0.0, 64.0
        for _ in range(100):
            middle = (low + high) / 2
            weight = _zipf(self.pages, middle)
            below = float(weight[:CORE_PAGES].sum() / weight.sum()) < self.core_share
            low, high = (middle, high) if below else (low, middle)
        return low

    @cached_property
    def rank_reached(self) -> Floats:
        """The share of a server's requests to pages of each rank or a higher one."""
        return reached(_zipf(self.pages, self.exponent))

    @cached_property
    def requests_of_servers(self) -> Ints:
        """How many requests each server gets, in all as many as were asked for; server 0 gets most."""
        edges = np.floor(reached(_zipf(self.servers, self.server_skew)) * self.requests + 1e-6)
        counts: Ints = np.diff(edges, prepend=0.0).astype(np.int64)
        return counts

    def described(self) -> dict[str, object]:
        """What was asked for and what follows from it, as JSON has it."""
        told = {"core": self.core_share, "regional": self.regional_share, "exponent": round(self.exponent, 6)}
        return {"workload": "push1995", **asdict(self), **told, "end": self.end}


def _zipf(ranks: int, exponent: float) -> Floats:
    weight: Floats = np.arange(1, ranks + 1, dtype=np.float64) ** -exponent
    return weight


def reached(weights: Floats) -> Floats:
    """Cumulative shares, of which the last is 1: what a uniform number is looked up in."""
    total = np.cumsum(weights)
    shares: Floats = total / total[-1]
    return shares
