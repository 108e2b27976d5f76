"""The requests and subscriptions of the news workload, drawn unit by unit, and the whole trace in memory.

Chen, LaPaugh & Singh (2003, sections 4.2 and 4.3). A unit is a bin of five minutes (reading `dynamic`) or a block
of requests (reading `literal`). Every draw is keyed by the seed and the unit, so the trace does not depend on the
distribution of units over tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.workload.chen2003.publishing import DAY, REQUESTS, Floats, News, PublishingStream, publish
from newsstand.workload.randomness import generator, mix, shuffled, uniform
from newsstand.workload.trace.columns import PublicationColumns, RequestColumns, SubscriptionColumns, TraceColumns

Ints = npt.NDArray[np.int64]
BLOCK = 65_536
OVERLAP = 0.6
"""The share of a page's servers that stay from one day to the next."""


def units(news: News) -> int:
    """Return the number of units in which requests are drawn."""
    if news.popularity == "dynamic":
        return max(1, round(news.end / news.bin_seconds))
    return -(-news.requests // BLOCK)


def draw(news: News, stream: PublishingStream, unit: int) -> tuple[Floats, Ints, Floats]:
    """Return the requests of one unit: times, pages, and a number in [0, 1) for each that selects the server."""
    if news.popularity == "dynamic":
        time, page, randomness = _draw_bin(news, stream, unit)
    else:
        time, page, randomness = _draw_block(news, stream, unit)
    # Rounded up to milliseconds, so that no request precedes its publication, and limited to the week.
    return np.minimum(np.ceil(time * 1000) / 1000, news.end), page, randomness.random(len(time))


def _draw_bin(news: News, stream: PublishingStream, unit: int) -> tuple[Floats, Ints, np.random.Generator]:
    """Draw a bin of `dynamic`: a page's rate is rank^-alpha (1 + age/a0)^-gamma; the total rate is constant."""
    randomness = generator(news.seed, REQUESTS, unit)
    first = first_active_unit(news, stream)
    before = 0 if unit <= first else unit * news.requests // units(news)
    requests = (unit + 1) * news.requests // units(news) - before if unit >= first else 0
    start, end = unit * news.bin_seconds, (unit + 1) * news.bin_seconds
    published = int(np.searchsorted(stream.time, end, side="left"))
    opens = np.maximum(stream.time[:published], start)
    weight = bin_weights(
        stream.time[:published],
        stream.rank[:published],
        opens,
        end,
        news.rank_weight,
        np.array(news.gamma)[news.class_of_rank],
        news.a0,
        news.bin_seconds,
    )
    cumulative = np.cumsum(weight)
    drawn = randomness.random(requests) * (cumulative[-1] if requests else 1.0)
    page = np.minimum(np.searchsorted(cumulative, drawn, side="right"), max(0, published - 1))
    time = opens[page] + randomness.random(requests) * (end - opens[page])
    return time, page.astype(np.int64), randomness


def first_active_unit(news: News, stream: PublishingStream) -> int:
    """Return the first bin with a publication, which also gets the requests of earlier ones."""
    return min(int(stream.time[0] // news.bin_seconds), units(news) - 1)


@njit(cache=True)
def bin_weights(published, rank, opens, end, rank_weight, gamma_of_rank, a0, bin_seconds):  # type: ignore[no-untyped-def]
    """Return the expected share of each page in a bin: its rate in the middle of its time there."""
    weight = np.empty(len(published), np.float64)
    for page in range(len(published)):
        age = (opens[page] + end) / 2 - published[page]
        weight[page] = (
            rank_weight[rank[page]]
            * (1.0 + age / a0) ** -gamma_of_rank[rank[page]]
            * (end - opens[page])
            / bin_seconds
        )
    return weight


def _draw_block(news: News, stream: PublishingStream, unit: int) -> tuple[Floats, Ints, np.random.Generator]:
    """Draw a block of `literal`: a page's total is Zipf, each request's age is drawn from (1 + age/a0)^-gamma."""
    randomness = generator(news.seed, REQUESTS, unit)
    requests = min(BLOCK, news.requests - unit * BLOCK)
    cumulative = np.cumsum(news.rank_weight)
    rank = np.searchsorted(cumulative, randomness.random(requests) * cumulative[-1], side="right")
    rank = np.minimum(rank, news.pages - 1)
    page_of_rank = np.empty(news.pages, np.int64)
    page_of_rank[stream.rank] = np.arange(news.pages)
    page = page_of_rank[rank]
    gamma = np.array(news.gamma)[news.class_of_rank[rank]]
    longest = 1.0 + (news.end - stream.time[page]) / news.a0
    u = randomness.random(requests)
    power = 1.0 - gamma
    with np.errstate(divide="ignore", invalid="ignore"):
        grown = np.where(power == 0.0, longest**u, (1.0 + u * (longest**power - 1.0)) ** (1.0 / power))
    return stream.time[page] + news.a0 * (grown - 1.0), page, randomness


@dataclass(frozen=True)
class Pools:
    """The servers that may request each page on each day: a window of the page's own random order of servers.

    S = N (P / P_max)^0.5, rounded, at least 1, from the page's requests on that day (equation 6). From one day
    with requests to the next, the window moves so that 60 % of the servers stay and the others come from outside
    it, if there are enough.
    """

    size: Ints
    offset: Ints
    """Both by (day, page)."""


def pools(counts: Ints, proxies: int) -> Pools:
    """Return the pools for the requests by (day, page)."""
    size = np.zeros_like(counts)
    offset = np.zeros_like(counts)
    for day, requested in enumerate(counts):
        if requested.any():
            share = np.sqrt(requested / requested.max())
            size[day] = np.where(requested > 0, np.maximum(1, np.floor(proxies * share + 0.5)), 0)
    before = np.zeros(counts.shape[1], np.int64)
    start = np.zeros(counts.shape[1], np.int64)
    for day in range(len(counts)):
        now = size[day]
        stay = np.minimum(_staying(before), _staying(now))
        stay = np.maximum(stay, now - (proxies - before))
        moves = (before > 0) & (now > 0)
        start = np.where(moves, (start + before - stay) % proxies, start)
        offset[day] = start
        before = np.where(now > 0, now, before)
    return Pools(size, offset)


def _staying(size: Ints) -> Ints:
    staying: Ints = size - np.floor((1 - OVERLAP) * size + 0.5).astype(np.int64)
    return staying


def servers(news: News, pool: Pools, time: Floats, page: Ints, picks: Floats) -> npt.NDArray[np.int32]:
    """Return the server of each request, uniform over its page's pool of the day."""
    day = np.minimum((time // DAY).astype(np.int64), news.days - 1)
    return _servers(news.seed, news.proxies, pool.size, pool.offset, day, page, picks)  # type: ignore[no-any-return]


@njit(cache=True)
def _servers(seed, proxies, size, offset, day, page, picks):  # type: ignore[no-untyped-def]
    chosen = np.empty(len(page), np.int32)
    for i in range(len(page)):
        d, p = day[i], page[i]
        place = (offset[d, p] + np.int64(picks[i] * size[d, p])) % proxies
        chosen[i] = shuffled(place, proxies, mix(mix(np.uint64(seed)) ^ np.uint64(p)))
    return chosen


def day_counts(news: News, stream: PublishingStream, unit: int) -> Ints:
    """Return the requests of one unit by (day, page), flat."""
    time, page, _ = draw(news, stream, unit)
    return day_counts_of(news, time, page)


def day_counts_of(news: News, time: Floats, page: Ints) -> Ints:
    """Return the number of requests by (day, page), flat."""
    day = np.minimum((time // DAY).astype(np.int64), news.days - 1)
    return np.bincount(day * news.pages + page, minlength=news.days * news.pages)


LEAST_QUALITY = 0.01
"""The least SQ_ij where the paper draws from (0, 2 SQ]."""


def subscriptions(
    seed: int, sq: float, proxy: npt.NDArray[np.int32], page: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Return (proxy, page, count) for every requested pair, sorted; count = ceil(P_ij / SQ_ij).

    Pages are numbered from 0 and, like proxies, fit into 31 bits.
    """
    # One integer for each pair sorts many times faster than two columns.
    pairs, requests = np.unique((proxy.astype(np.int64) << 32) | page, return_counts=True)
    proxy, page = (pairs >> 32).astype(np.int32), pairs & 0xFFFFFFFF
    return proxy, page, _counts(seed, sq, proxy, page, requests)


@njit(cache=True)
def _counts(seed, sq, proxy, page, requests):  # type: ignore[no-untyped-def]
    low, high = (2.0 * sq - 1.0, 1.0) if sq > 0.5 else (0.0, 2.0 * sq)
    counts = np.empty(len(requests), np.int32)
    for i in range(len(requests)):
        quality = max(LEAST_QUALITY, low + (high - low) * uniform(seed, proxy[i], page[i]))
        counts[i] = min(np.ceil(requests[i] / quality), 2147483647.0)
    return counts


def generate_columns(news: News) -> TraceColumns:
    """Return one trace of the workload: the rows that the trace on Spark has, in the same order."""
    stream = publish(news)
    drawn = [draw(news, stream, unit) for unit in range(units(news))]
    time, page, picks = (np.concatenate(column) for column in zip(*drawn, strict=True))
    pool = pools(day_counts_of(news, time, page).reshape(news.days, news.pages), news.proxies)
    proxy = servers(news, pool, time, page, picks)
    order = np.lexsort((page, time, proxy))
    time, proxy, page = time[order], proxy[order], page[order]
    return TraceColumns(
        source="chen2003",
        requests=RequestColumns(time, proxy, page),
        publications=PublicationColumns(np.arange(news.pages), stream.time, stream.size),
        subscriptions=SubscriptionColumns(*subscriptions(news.seed, news.sq, proxy, page)),
    )
