"""What the simulation of bad2018 measured: means over the seeds, and intervals by Student's t distribution.

Schemes run over the same workloads, so they are compared seed by seed: a difference of two schemes is far more
certain than either of them.
"""

from __future__ import annotations

import math

import pandas as pd

from newsstand.lab.bad2018_simulation import AT_EQUAL_B, BOUND, CACHING, NC, Experiment, Results
from newsstand.lab.intervals import Interval, apart, interval


class Measured:
    """Looks measurements up, by scheme and size."""

    def __init__(self, results: Results, experiment: Experiment) -> None:
        self.results = results
        self.experiment = experiment
        self.sizes = list(experiment.sizes)
        self.schemes = [scheme.label for scheme in experiment.schemes if scheme != NC]
        """All of the paper's figures; those of the paper among them are in `of_paper`."""
        self.of_paper = [scheme.label for scheme in CACHING if scheme in experiment.schemes]
        self.evicting = [label for label in self.of_paper if label != "TTL"]
        self.is_single = len(experiment.seeds) == 1
        """Whether there was one run only, so that there are no intervals."""
        self._runs: dict[tuple[str, str, int], pd.DataFrame] = {}
        for rows in (results.runs, results.bounds):
            if len(rows):
                for (variant, scheme, size), part in rows.groupby(["variant", "scheme", "megabytes"]):
                    self._runs[str(variant), str(scheme), int(str(size))] = part.sort_values("seed").set_index(
                        "seed"
                    )

    def sizes_of(self, scheme: str, variant: str = AT_EQUAL_B) -> list[int]:
        """The sizes with which a scheme was run."""
        return [size for size in self.sizes if (variant, scheme, size) in self._runs]

    def values(self, what: str, scheme: str, size: int, variant: str = AT_EQUAL_B) -> dict[int, float]:
        """A measurement by seed; what could not be measured is left out."""
        found = self._runs[variant, scheme, size][what].dropna()
        return {int(seed): float(value) for seed, value in zip(found.index, found, strict=True)}

    def of(self, what: str, scheme: str, size: int, variant: str = AT_EQUAL_B) -> Interval:
        """The mean of a measurement; not a number if no seed has one."""
        values = self.values(what, scheme, size, variant)
        return interval(list(values.values())) if values else Interval(math.nan)

    def mean(self, what: str, scheme: str, size: int, variant: str = AT_EQUAL_B) -> float:
        return self.of(what, scheme, size, variant).mean

    def less(self, what: str, one: str, other: str, size: int, other_variant: str = AT_EQUAL_B) -> Interval:
        """One scheme's less another's, seed by seed, over the seeds that both were run with."""
        return apart(self.values(what, one, size), self.values(what, other, size, other_variant))

    def level(self, what: str, scheme: str, beside: str, size: int, variant: str = AT_EQUAL_B) -> Interval:
        """The mean over all seeds, also of what was run with some: another's mean and how far this is from it.

        Seeds differ more than schemes do, so means over different seeds cannot be compared.
        """
        away = apart(self.values(what, scheme, size, variant), self.values(what, beside, size))
        return Interval(self.mean(what, beside, size) + away.mean, away.half)

    def of_bound(self, scheme: str, size: int) -> float:
        """The late hits of a scheme as a share of those that no policy can exceed, over seeds that have both."""
        bound = self.values("hit_ratio_late", BOUND, size, BOUND)
        late = self.values("hit_ratio_late", scheme, size)
        both = [seed for seed in late if seed in bound]
        return sum(late[seed] for seed in both) / sum(bound[seed] for seed in both) if both else math.nan

    def grows(self, what: str, scheme: str, smaller: int, larger: int) -> Interval:
        """What a larger cache adds, seed by seed."""
        return apart(self.values(what, scheme, larger), self.values(what, scheme, smaller))

    def share_of_budget(self, what: str, scheme: str, size: int) -> float:
        """Bytes as a share of B."""
        return self.mean(what, scheme, size) / self.experiment.bytes_of(size)

    def hold_over_ttl(self, held: str, scheme: str, size: int) -> float:
        """How long objects were held, of the times to live that caches had at insertions."""
        return self.mean(held, scheme, size) / self.mean("mean_ttl_insert_s", scheme, size)
