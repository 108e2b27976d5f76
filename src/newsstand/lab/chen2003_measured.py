"""What the experiments of Chen, LaPaugh & Singh (2003) measured, as means over the seeds."""

from __future__ import annotations

import pandas as pd

from newsstand.lab.chen2003 import BETAS, TABLE_2, TRACES, Results, beta_of

CAPACITIES = (0.01, 0.05, 0.10)
HOURS = 7 * 24


class Measured:
    """Means over seeds, by name."""

    def __init__(self, results: Results) -> None:
        self.results = results
        runs = results.at_paper_betas()
        self._hit = runs.groupby(["trace", "sq", "capacity", "policy"])["hit_ratio"].mean()
        beta = results.runs[results.runs["sweep"] == "beta"]
        self._beta = beta.groupby(["trace", "capacity", "policy", "beta"])["hit_ratio"].mean()

    def hit(self, trace: str, policy: str, capacity: float = 0.05, sq: float = 1.0) -> float:
        return float(self._hit.loc[(trace, sq, capacity, policy)])

    def gain(self, trace: str, policy: str, capacity: float = 0.05) -> float:
        """Relative improvement over GD* in per cent."""
        return 100 * (self.hit(trace, policy, capacity) / max(self.hit(trace, "gdstar", capacity), 1e-9) - 1)

    def best_beta(self, trace: str, policy: str, capacity: float) -> float:
        return max(BETAS, key=lambda beta: float(self._beta.loc[(trace, capacity, policy, beta)]))

    def loss_at_paper_beta(self, trace: str, policy: str, capacity: float) -> float:
        """Hit ratio lost by the paper's beta against the best one here."""
        of = self._beta.loc[(trace, capacity, policy)]
        return float(of.max() - of.loc[beta_of(trace, policy, capacity)])

    def hourly(self, trace: str, policy: str) -> pd.DataFrame:
        """Counts of each hour of the week, summed over the seeds."""
        hours = self.results.hours
        mine = hours[
            (hours["trace"] == trace)
            & (hours["policy"] == policy)
            & (hours["beta"] == beta_of(trace, policy, 0.05))
        ]
        summed = mine.groupby("hour").sum(numeric_only=True)
        return summed.reindex(range(HOURS), fill_value=0)

    def hourly_hit(self, trace: str, policy: str, first: int, last: int) -> float:
        """The hit ratio from hour `first` up to but without `last`."""
        part = self.hourly(trace, policy).loc[first : last - 1]
        return float(part["hits"].sum() / max(1, part["requests"].sum()))

    def traffic(self, trace: str, policy: str, scheme: str, unit: str = "pages") -> float:
        part = self.hourly(trace, policy)
        return float(part[f"fetched_{unit}"].sum() + part[f"pushed_{unit}_{scheme}"].sum())

    def table_2(self) -> dict[str, dict[str, float]]:
        return {trace: {policy: self.gain(trace, policy) for policy in TABLE_2[trace]} for trace in TRACES}

    def table_2_deviation(self) -> float:
        """Mean absolute deviation from the fourteen numbers of Table 2, in points, averaged over the seeds."""
        runs = self.results.at_paper_betas()
        runs = runs[(runs["sq"] == 1.0) & (runs["capacity"] == 0.05)]
        deviations = []
        for (trace, _), part in runs.groupby(["trace", "seed"]):
            hit = part.set_index("policy")["hit_ratio"]
            deviations += [
                abs(100 * (hit[policy] / hit["gdstar"] - 1) - paper)
                for policy, paper in TABLE_2[str(trace)].items()
            ]
        return float(sum(deviations) / len(deviations))
