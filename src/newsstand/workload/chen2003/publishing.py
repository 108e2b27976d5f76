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
    """One trace of the workload. Constants without an option are calibrated."""

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
            raise BadOption(f"must be one of {', '.join(ALPHA)}", trace=self.trace)
        if self.popularity not in ("dynamic", "literal"):
            raise BadOption("must be dynamic or literal", popularity=self.popularity)
        for name, least in (("requests", 1), ("proxies", 1), ("pages", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise BadOption(f"must be at least {least}", **{name: getattr(self, name)})
        for name in ("proxies", "pages"):
            if getattr(self, name) >= 2**31:
                raise BadOption("must be less than 2^31", **{name: getattr(self, name)})
        if self.seed >= 2**63:
            raise BadOption("must be less than 2^63", seed=self.seed)
        if not 0 < self.sq <= 1:
            raise BadOption("must be within (0, 1]", sq=self.sq)

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
        """The popularity class of each rank; the total rates of classes are in the ratio 1000 : 100 : 10 : 1."""
        rates = 10.0 ** np.arange(len(self.gamma) - 1, -1, -1)
        edges = np.cumsum(rates)[:-1] / rates.sum()
        reached = np.cumsum(self.rank_weight) / self.rank_weight.sum()
        classes: npt.NDArray[np.int64] = np.searchsorted(edges, reached - 1e-12).astype(np.int64)
        return classes


@dataclass(frozen=True)
class PublishingStream:
    """The publishing stream, in the order of time: page i is the i-th published."""

    time: Floats
    size: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int64]
    """The popularity rank of each page, from 0; independent of time and size."""


def publish(news: News) -> PublishingStream:
    """Return the publishing stream (section 4.1): originals, their modified versions, log-normal sizes."""
    times = np.sort(_publication_times(news))
    sizes = generator(news.seed, SIZES).lognormal(9.357, 1.318, news.pages)
    ranks = generator(news.seed, RANKS).permutation(news.pages)
    return PublishingStream(np.ceil(times * 1000) / 1000, np.maximum(1, np.rint(sizes)).astype(np.int64), ranks)


def _publication_times(news: News) -> Floats:
    originals = max(1, round(news.pages * 6000 / 30147))
    modified = max(1, round(originals * 0.4))
    versions = news.pages - originals
    draw = generator(news.seed, PUBLISHING)
    first = draw.uniform(0, news.end, originals)
    if not versions:
        return first
    interval = draw_intervals(news, draw, modified, versions)
    start = first[:modified]
    counts = stretch_intervals(start, interval, news.end, versions)
    step = np.repeat(interval * counts.stretch, counts.versions)
    nth = np.arange(1, versions + 1) - np.repeat(np.cumsum(counts.versions) - counts.versions, counts.versions)
    later: Floats = np.repeat(start, counts.versions) + nth * step
    return np.concatenate([first, np.minimum(later, news.end)])


def draw_intervals(news: News, draw: np.random.Generator, modified: int, versions: int) -> Floats:
    """Return a fixed modification interval for each page, in three steps.

    Of the modification events, 5 % have an interval under an hour, 90 % one between an hour and a day, 5 % a
    longer one. A page with interval t is modified `expected(t)` times, so the share of pages of a step is its
    share of events over that number. The upper end of the longest step follows from the total.
    """

    def expected(low: float, high: float) -> float:
        intervals = np.linspace(low, high, 2001)
        times = np.floor(news.end / intervals)
        return float(np.mean(times - intervals / news.end * times * (times + 1) / 2))

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
class IntervalStretch:
    """The factor of all intervals, and the number of versions of each page that it leads to."""

    stretch: float
    versions: npt.NDArray[np.int64]


def stretch_intervals(start: Floats, interval: Floats, end: float, wanted: int) -> IntervalStretch:
    """Stretch all intervals by one factor, near 1, so that exactly `wanted` versions fall before the end."""

    def versions(stretch: float) -> npt.NDArray[np.int64]:
        return np.floor((end - start) / (interval * stretch)).astype(np.int64)

    low, high = 1e-3, 1e3
    for _ in range(200):
        middle = (low * high) ** 0.5
        counted = versions(middle)
        total = int(counted.sum())
        if total == wanted:
            return IntervalStretch(middle, counted)
        low, high = (middle, high) if total > wanted else (low, middle)
    raise BadOption(f"no publishing stream has exactly {wanted} modified versions; try another number", pages=None)
