"""How well a push-cache stands rogue origins, by how far it believes what origins claim (push1995).

    .venv/bin/python benchmarks/push_rogue.py

Eight origins of 200 pages each; some of their pages change places in popularity (Zipf) every half hour. Every half
hour each pushes the ten pages that it was asked for most, and rogues each push 200 pages that nobody wants, with
enormous claims, from the third hour on. What counts is the share of requests, after six hours, that the cache of
100 slots can answer.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from newsstand.push_caching.cache import PushCache, TrackRecords, Verdict
from newsstand.push_caching.copies import Capacity, Offer

ORIGINS, PAGES, PUSHED, SLOTS, HALF_HOUR = 8, 200, 10, 100, 1800.0
WARM_UP, HALF_HOURS, REQUESTS = 12, 96, 1000
ROGUES = (0, 1, 4)


class AlwaysTrusting(TrackRecords):
    def trust(self, origin: int, unit: float) -> float:
        return 1.0


class Forgetful(PushCache[int]):
    """Believes up to the median, whatever came of claims before."""

    def __init__(self, room: Capacity, half_life_s: float, check_share: float) -> None:
        super().__init__(room, half_life_s=half_life_s, check_share=check_share)
        self._records = AlwaysTrusting()


class Credulous(Forgetful):
    """Believes every claim."""

    def _believable(self, ranked: Sequence[Any], room: Capacity) -> float:
        return math.inf


class Unbelieving(PushCache[int]):
    """A page begins with nothing."""

    def _believable(self, ranked: Sequence[Any], room: Capacity) -> float:
        return 0.0


RULES = {
    "every claim": Credulous,
    "up to the median": Forgetful,
    "median and trust": PushCache[int],
    "no claim": Unbelieving,
}


def demand(rng: np.random.Generator) -> Iterator[list[tuple[int, int]]]:
    """The requests of each half hour, as origin and page."""
    ranks = np.arange(ORIGINS * PAGES)
    rng.shuffle(ranks)
    weights = 1 / (1 + ranks)
    for _ in range(HALF_HOURS):
        one, other = rng.integers(len(weights), size=(2, 20))
        weights[one], weights[other] = weights[other], weights[one]
        drawn = rng.choice(len(weights), REQUESTS, p=weights / weights.sum())
        yield [divmod(int(page), PAGES) for page in drawn]


def hit_ratio(cache: PushCache[int], rogues: int, seed: int) -> float:
    hits = 0
    for number, requests in enumerate(demand(np.random.default_rng(seed))):
        now = number * HALF_HOUR
        missed: Counter[tuple[int, int]] = Counter()
        for origin, page in requests:
            found = cache.request(origin, page, now) is Verdict.HIT
            hits += found and number >= WARM_UP
            missed[origin, page] += not found
        for origin in range(ORIGINS):
            own = [(page, count) for (owner, page), count in missed.most_common() if owner == origin and count]
            cache.push(origin, [Offer(page, requests=count) for page, count in own[:PUSHED]], now)
        for rogue in range(ORIGINS, ORIGINS + rogues * (number >= 4)):
            cache.push(
                rogue, [Offer(page, requests=1e12) for page in range(number * 200, number * 200 + 200)], now
            )
    return hits / (REQUESTS * (HALF_HOURS - WARM_UP))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--half-life-days", type=float, default=1.0)
    asked = parser.parse_args()
    half_life_s = asked.half_life_days * 86_400
    print(f"{'believed':<18}" + "".join(f"{rogues:>8} rogues" for rogues in ROGUES))
    for rule, kind in RULES.items():
        ratios = [
            np.mean(
                [
                    hit_ratio(
                        kind(Capacity(slots=SLOTS), half_life_s=half_life_s, check_share=math.inf), rogues, seed
                    )
                    for seed in range(asked.seeds)
                ]
            )
            for rogues in ROGUES
        ]
        print(f"{rule:<18}" + "".join(f"{ratio:>15.3f}" for ratio in ratios), flush=True)


if __name__ == "__main__":
    main()
