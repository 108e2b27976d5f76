"""Hit ratios from a sample of the pages, replayed in caches that are smaller by the same factor (SHARDS).

Waldspurger, Park, Garthwaite & Ahmad, *Efficient MRC Construction with SHARDS* (FAST 2015). A page is in the
sample if its hash is below a threshold, so the sample has a share R of the pages with all of their requests
(section 2). A cache of R times the size then has R times the misses, under any policy. The sample may have more
or less than R of the N requests, as the most requested pages are many or few in it. These are hits at nearly
every size, so the difference counts as hits (SHARDS-adj, section 4): the miss ratio is the misses divided by R
N.

The error comes from the sample itself. It consists of `GROUPS` groups by hash, each a sample of its own that is
replayed as well. Their deviations give the standard error. Their caches are `GROUPS` times smaller than that of
the sample, and small caches are biased: if the bias is inverse to the size, then their mean deviates from the
sample by `GROUPS` - 1 times the bias of the sample, which is added to the error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.errors import BadOption
from newsstand.lab.pages.timeline import Timeline
from newsstand.workload.randomness import mix

GROUPS = 8
STUDENT = 2.3646
"""The 97.5 % quantile of Student's distribution with GROUPS - 1 degrees of freedom."""

ENOUGH_PAGES = 100_000
"""Pages of a proxy in a sample; more add little."""
LARGEST_SHARE = 0.5
"""From this share on an exact replay takes hardly longer."""
LEAST_PAGES = 1_000
"""Pages in a sample."""
SALT = 2015


def share_for(pages: int, proxies: int) -> float:
    """Return the share of the pages that a sample needs; 1 if that is no saving."""
    share = ENOUGH_PAGES * max(1, proxies) / max(1, pages)
    return share if share < LARGEST_SHARE else 1.0


def checked_share(share: float | None, pages: int, proxies: int) -> float:
    """Return the share to replay; raise BadOption for a sample with too few pages for an error to be estimated."""
    if share is None:
        return share_for(pages, proxies)
    if not 0 < share <= 1:
        raise BadOption("is outside (0, 1]", sample=share)
    if share < 1 and share * pages < LEAST_PAGES:
        raise BadOption(
            f"gives {int(share * pages):,} of {pages:,} pages, fewer than {LEAST_PAGES:,}; choose a larger share",
            sample=share,
        )
    return share


@dataclass(frozen=True)
class HitRatioEstimate:
    """A hit ratio, and how far from it the exact one is in about 9 of 10 cases."""

    hit_ratio: float
    error: float


def estimate(share: float, requests: int, misses: int, group_misses: Sequence[int]) -> HitRatioEstimate:
    """Return the hit ratio of all requests from the misses of a sample and of each of its groups.

    >>> estimate(0.1, 10_000, 400, [50] * 8)
    HitRatioEstimate(hit_ratio=0.6, error=0.0)
    """
    expected = share * requests
    ratios = np.array(group_misses) * GROUPS / expected
    bias = abs(float(ratios.mean()) - misses / expected) / (GROUPS - 1)
    spread = STUDENT * float(ratios.std(ddof=1)) * math.sqrt((1 - share) / GROUPS)
    return HitRatioEstimate(min(1.0, max(0.0, 1 - misses / expected)), spread + bias)


def estimated_counts(
    share: float, empty: Mapping[str, object], parts: Sequence[Mapping[str, object]]
) -> dict[str, int | float]:
    """Return the counts of a replay of all pages, with the error of the hit ratio.

    `empty` has the counts without a cache, `parts` those of a sample and of each of its groups.
    """
    requests, requested_bytes = (int(str(empty[name])) for name in ("requests", "fetched_bytes"))
    always, always_bytes = (int(str(empty[f"pushed_{name}_always"])) for name in ("pages", "bytes"))
    misses, missed_bytes, needed, needed_bytes = (
        [int(str(part[name])) for part in parts]
        for name in ("fetched_pages", "fetched_bytes", "pushed_pages_needed", "pushed_bytes_needed")
    )
    found = estimate(share, requests, misses[0], misses[1:])
    hits = round(found.hit_ratio * requests)
    fetched_bytes = min(requested_bytes, round(missed_bytes[0] / share))
    return {
        "requests": requests,
        "hits": hits,
        "hit_ratio": found.hit_ratio,
        "hit_ratio_error": found.error,
        "sample": share,
        "hit_bytes": requested_bytes - fetched_bytes,
        "fetched_pages": requests - hits,
        "fetched_bytes": fetched_bytes,
        "pushed_pages_always": always,
        "pushed_bytes_always": always_bytes,
        "pushed_pages_needed": min(always, round(needed[0] / share)),
        "pushed_bytes_needed": min(always_bytes, round(needed_bytes[0] / share)),
    }


def sampled(timeline: Timeline, share: float) -> list[Timeline]:
    """Return the sample of a timeline, then each of its groups."""
    (sample,) = _divided(timeline, share, 1, SALT)
    groups = _divided(sample, 1 / GROUPS, GROUPS, SALT + 1)
    return [replace(one, part=part) for part, one in enumerate([sample, *groups])]


def _divided(timeline: Timeline, share: float, parts: int, salt: int) -> list[Timeline]:
    """Return timelines without common pages, each with that share of the pages of every proxy."""
    part, events, event_offset, page_offset = _divide(
        timeline.event_offset,
        timeline.events,
        timeline.page_offset,
        timeline.proxies.astype(np.int64),
        salt,
        share,
        parts,
    )
    ends = np.cumsum(event_offset[:, -1])
    return [
        Timeline(
            proxies=timeline.proxies,
            event_offset=event_offset[one],
            events=events[ends[one] - event_offset[one, -1] : ends[one]],
            page_offset=page_offset[one],
            sizes=timeline.sizes[part == one],
            subscriptions=timeline.subscriptions[part == one],
            requested_bytes=timeline.requested_bytes,
            hours=None,
            hour=None,
            share=timeline.share * share,
        )
        for one in range(parts)
    ]


Ints = npt.NDArray[np.int64]


@njit(cache=True, nogil=True)
def _divide(event_offset, events, page_offset, proxies, salt, share, parts):  # type: ignore[no-untyped-def]
    """Return the part of each page (-1: none), the events part by part, and their offsets and those of pages."""
    part = np.full(page_offset[-1], -1, np.int8)
    number = np.empty(page_offset[-1], np.int32)
    pages = np.zeros((parts, len(proxies) + 1), np.int64)
    for proxy in range(len(proxies)):
        key = mix(np.uint64(salt) ^ mix(np.uint64(proxies[proxy])))
        for page in range(page_offset[proxy], page_offset[proxy + 1]):
            hashed = mix(key ^ np.uint64(page - page_offset[proxy])) >> np.uint64(11)
            place = np.int64(np.float64(hashed) * (1.0 / 9007199254740992.0) / share)
            if place < parts:
                part[page] = place
                number[page] = pages[place, proxy + 1]
                pages[place, proxy + 1] += 1
    counts = np.zeros((parts, len(proxies) + 1), np.int64)
    for proxy in range(len(proxies)):
        base = page_offset[proxy]
        for i in range(event_offset[proxy], event_offset[proxy + 1]):
            event = events[i]
            place = part[base + (event if event >= 0 else ~event)]
            if place >= 0:
                counts[place, proxy + 1] += 1
    at = np.zeros(parts + 1, np.int64)
    for one in range(parts):
        for proxy in range(len(proxies)):
            counts[one, proxy + 1] += counts[one, proxy]
            pages[one, proxy + 1] += pages[one, proxy]
        at[one + 1] = at[one] + counts[one, len(proxies)]
    chosen = np.empty(at[parts], np.int32)
    for proxy in range(len(proxies)):
        base = page_offset[proxy]
        for i in range(event_offset[proxy], event_offset[proxy + 1]):
            event = events[i]
            page = base + (event if event >= 0 else ~event)
            place = part[page]
            if place >= 0:
                chosen[at[place]] = number[page] if event >= 0 else ~number[page]
                at[place] += 1
    return part, chosen, counts, pages
