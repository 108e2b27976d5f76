"""The news workload of Chen, LaPaugh & Singh (2003, section 4): its parameters and its publishing stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from newsstand.errors import BadOption
from newsstand.workload.randomness import generator

HOUR = 3600.0
DAY = 24 * HOUR
PUBLISHING, SIZES, RANKS, REQUESTS = 1, 2, 3, 4
"""The streams of draws."""

ALPHA = {"news": 1.5, "alternative": 1.0}
"""The Zipf exponent of each trace (section 4.2)."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class News:
    """One trace of the workload. The constants without an option are the calibrated ones."""

    trace: Literal["news", "alternative"] = "news"
    seed: int = 1
    requests: int = 195_000
    proxies: int = 100
    pages: int = 30_147
    sq: float = 1.0
    popularity: Literal["dynamic", "literal"] = "dynamic"
    days: int = 7
    a0: float = 1.25 * HOUR
    gamma: tuple[float, ...] = (3.5, 1.5, 0.25, 0.25)
    bin_seconds: float = 300.0

    def __post_init__(self) -> None:
        if self.trace not in ALPHA:
            raise BadOption(f"trace '{self.trace}' is not one of {', '.join(ALPHA)}")
        if self.popularity not in ("dynamic", "literal"):
            raise BadOption(f"popularity '{self.popularity}' is neither dynamic nor literal")
        for name, least in (("requests", 1), ("proxies", 1), ("pages", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise BadOption(f"{name} {getattr(self, name)} is less than {least}")
        for name in ("proxies", "pages"):
            if getattr(self, name) >= 2**31:
                raise BadOption(f"{name} {getattr(self, name)} do not fit into 31 bits")
        if self.seed >= 2**63:
            raise BadOption(f"seed {self.seed} does not fit into 64 bits")
        if not 0 < self.sq <= 1:
            raise BadOption(f"sq {self.sq} is outside (0, 1]")

    @property
    def alpha(self) -> float:
        return ALPHA[self.trace]

    @property
    def end(self) -> float:
        return self.days * DAY

    @cached_property
    def rank_weight(self) -> Floats:
        """rank^-alpha, by rank from 0."""
        weight: Floats = np.arange(1, self.pages + 1, dtype=np.float64) ** -self.alpha
        return weight

    @cached_property
    def class_of_rank(self) -> npt.NDArray[np.int64]:
        """The popularity class of each rank: the classes' total rates are as 1000 : 100 : 10 : 1."""
        rates = 10.0 ** np.arange(len(self.gamma) - 1, -1, -1)
        edges = np.cumsum(rates)[:-1] / rates.sum()
        reached = np.cumsum(self.rank_weight) / self.rank_weight.sum()
        classes: npt.NDArray[np.int64] = np.searchsorted(edges, reached - 1e-12).astype(np.int64)
        return classes


@dataclass(frozen=True)
class Stream:
    """The publishing stream, in the order of time: page i is the i-th published."""

    time: Floats
    size: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int64]
    """The popularity rank of each page, from 0; independent of time and size."""


def publish(news: News) -> Stream:
    """The publishing stream (section 4.1): originals, their modified versions, log-normal sizes."""
    times = np.sort(_publication_times(news))
    sizes = generator(news.seed, SIZES).lognormal(9.357, 1.318, news.pages)
    ranks = generator(news.seed, RANKS).permutation(news.pages)
    return Stream(np.ceil(times * 1000) / 1000, np.maximum(1, np.rint(sizes)).astype(np.int64), ranks)


def _publication_times(news: News) -> Floats:
    originals = max(1, round(news.pages * 6000 / 30147))
    modified = max(1, round(originals * 0.4))
    versions = news.pages - originals
    draw = generator(news.seed, PUBLISHING)
    first = draw.uniform(0, news.end, originals)
    if not versions:
        return first
    interval = _intervals(news, draw, modified, versions)
    start = first[:modified]
    counts = _stretched(start, interval, news.end, versions)
    step = np.repeat(interval * counts.stretch, counts.versions)
    nth = np.arange(1, versions + 1) - np.repeat(np.cumsum(counts.versions) - counts.versions, counts.versions)
    later: Floats = np.repeat(start, counts.versions) + nth * step
    return np.concatenate([first, np.minimum(later, news.end)])


def _intervals(news: News, draw: np.random.Generator, modified: int, versions: int) -> Floats:
    """A fixed modification interval for each page, in three steps.

    Of the modification events, 5 % have an interval under an hour, 90 % one between an hour and a day, 5 % a
    longer one. A page with interval t is modified `expected(t)` times, so a step's share of pages is its share
    of events over that. The upper end of the longest step is chosen so that the total comes out.
    """

    def expected(low: float, high: float) -> float:
        intervals = np.linspace(low, high, 2001)
        whole = np.floor(news.end / intervals)
        return float(np.mean(whole - intervals / news.end * whole * (whole + 1) / 2))

    share = np.array([0.05, 0.90, 0.05])
    wanted = modified / versions
    short, middle = (HOUR / 2, HOUR), (HOUR, DAY)
    rates = [expected(*short), expected(*middle)]
    low, high = DAY, news.end
    for _ in range(60):
        end = (low + high) / 2
        total = float(np.sum(share / [*rates, max(expected(DAY, end), 1e-9)]))
        low, high = (end, high) if total < wanted else (low, end)
    steps = [short, middle, (DAY, high)]
    pages = share / [*rates, expected(*steps[2])]
    chosen = draw.choice(3, size=modified, p=pages / pages.sum())
    ends = np.array(steps)[chosen]
    return draw.uniform(ends[:, 0], ends[:, 1])


@dataclass(frozen=True)
class _Stretched:
    stretch: float
    versions: npt.NDArray[np.int64]


def _stretched(start: Floats, interval: Floats, end: float, wanted: int) -> _Stretched:
    """Stretch all intervals by one factor, near 1, so that exactly `wanted` versions fall before the end."""

    def versions(stretch: float) -> npt.NDArray[np.int64]:
        return np.floor((end - start) / (interval * stretch)).astype(np.int64)

    low, high = 1e-3, 1e3
    for _ in range(200):
        middle = (low * high) ** 0.5
        counted = versions(middle)
        total = int(counted.sum())
        if total == wanted:
            return _Stretched(middle, counted)
        low, high = (middle, high) if total > wanted else (low, middle)
    raise BadOption(f"pages: no publishing stream has exactly {wanted} modified versions; try another number")
