"""Measurements of the simulation of bad2018.

Schemes run over the same workloads, so they are compared seed by seed: a difference of two schemes is far more
certain than either of them.
"""

from __future__ import annotations

import math

import pandas as pd

from newsstand.lab.papers.bad2018.experiment import (
    AT_EQUAL_B,
    BOUND,
    CACHING,
    NC,
    ResultCacheExperiment,
    ResultCacheResults,
)
from newsstand.lab.reporting.statistics import Interval, Sample


class ResultCacheMeasurements:
    """Measurements by scheme and size."""

    def __init__(self, results: ResultCacheResults, experiment: ResultCacheExperiment) -> None:
        self.results = results
        self.experiment = experiment
        self.sizes = list(experiment.sizes)
        self.schemes = [scheme.label for scheme in experiment.schemes if scheme != NC]
        """The schemes of the figures; `of_paper` are those of the paper among them."""
        self.of_paper = [scheme.label for scheme in CACHING if scheme in experiment.schemes]
        self.evicting = [label for label in self.of_paper if label != "TTL"]
        self.is_single = len(experiment.seeds) == 1
        """Whether there was one run only, without intervals."""
        self._runs: dict[tuple[str, str, int], pd.DataFrame] = {}
        for rows in (results.runs, results.bounds):
            if len(rows):
                for (variant, scheme, size), part in rows.groupby(["variant", "scheme", "megabytes"]):
                    self._runs[str(variant), str(scheme), int(str(size))] = part.sort_values("seed").set_index(
                        "seed"
                    )

    def sizes_of(self, scheme: str, variant: str = AT_EQUAL_B) -> list[int]:
        """Return the sizes with which a scheme was run."""
        return [size for size in self.sizes if (variant, scheme, size) in self._runs]

    def of(self, what: str, scheme: str, size: int, variant: str = AT_EQUAL_B) -> Sample:
        """Return a measurement by seed; seeds without a value are left out."""
        found = self._runs[variant, scheme, size][what].dropna()
        return Sample({int(seed): float(value) for seed, value in zip(found.index, found, strict=True)})

    def mean(self, what: str, scheme: str, size: int, variant: str = AT_EQUAL_B) -> float:
        return self.of(what, scheme, size, variant).mean

    def less(self, what: str, one: str, other: str, size: int, other_variant: str = AT_EQUAL_B) -> Interval:
        """Return one scheme's measurement less another's, over the seeds that both were run with."""
        return (self.of(what, one, size) - self.of(what, other, size, other_variant)).interval

    def level(self, what: str, scheme: str, beside: str, size: int, variant: str = AT_EQUAL_B) -> Interval:
        """Return the mean over all seeds, also of a scheme with few: another's mean plus the difference from it.

        Seeds differ more than schemes do, so means over different seeds cannot be compared.
        """
        others = self.of(what, beside, size)
        away = (self.of(what, scheme, size, variant) - others).interval
        return Interval(others.mean + away.mean, away.half)

    def of_bound(self, scheme: str, size: int) -> float:
        """Return the late hits of a scheme as a share of the bound on all policies, over seeds that have both."""
        bound = self.of("hit_ratio_late", BOUND, size, BOUND)
        late = self.of("hit_ratio_late", scheme, size)
        both = [seed for seed in late if seed in bound]
        return sum(late[seed] for seed in both) / sum(bound[seed] for seed in both) if both else math.nan

    def share_of_budget(self, what: str, scheme: str, size: int) -> float:
        """Return bytes as a share of B."""
        return self.mean(what, scheme, size) / self.experiment.bytes_of(size)

    def hold_over_ttl(self, held: str, scheme: str, size: int) -> float:
        """Return holding times as a share of the times to live that caches had at insertions."""
        return self.mean(held, scheme, size) / self.mean("mean_ttl_insert_s", scheme, size)
