"""The experiments of Chen, LaPaugh & Singh (2003, section 5), as data, and the runner that executes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pandas as pd
from pyspark.sql import SparkSession

from newsstand.lab.pages.spark import simulate
from newsstand.lab.pages.sweep import plan
from newsstand.lab.reporting.run_cache import run_file, write_json
from newsstand.workload.chen2003.generator import generate, subscribe
from newsstand.workload.chen2003.publishing import News
from newsstand.workload.trace.folder import read_trace

TraceName = Literal["news", "alternative"]
TRACES: tuple[TraceName, ...] = ("news", "alternative")
STRATEGIES = ("gdstar", "sub", "sg1", "sg2", "sr", "dm", "dc-fp", "dc-ap", "dc-lap")
DUAL = ("dm", "dc-fp", "dc-ap", "dc-lap")
COMPARED = ("gdstar", "sub", "sg1", "sg2", "sr", "dc-lap")
"""The methods that the paper carries through its comparison after section 5.2."""
LABELS = {name: name.upper() for name in STRATEGIES} | {"gdstar": "GD*"}
CAPACITIES = ("0.01", "0.05", "0.10")
BETAS = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
QUALITIES = (1.0, 0.75, 0.5, 0.25)

TABLE_2 = {
    "news": {"sub": 6, "sg1": 34, "sg2": 50, "sr": 54, "dm": 17, "dc-fp": 37, "dc-lap": 40},
    "alternative": {"sub": 47, "sg1": 84, "sg2": 133, "sr": 133, "dm": 34, "dc-fp": 93, "dc-lap": 96},
}
"""The paper's relative improvement over GD* in per cent (capacity 5 %)."""


def beta_of(trace: str, policy: str, capacity: float) -> float:
    """Return the beta that section 5.1 sets; GD* inside the dual strategies uses GD*'s."""
    if trace == "news":
        return 2.0
    if policy == "sg2":
        return 0.5
    return 1.0 if capacity == 0.01 else 2.0


@dataclass(frozen=True)
class Sweep:
    """Policies × capacities × betas over one trace with one subscription quality."""

    name: str
    policies: tuple[str, ...]
    capacities: tuple[str, ...]
    betas: tuple[float, ...]
    quality: float = 1.0
    hourly: bool = False


@dataclass(frozen=True)
class NewsExperiment:
    """The sweeps, and the seeds and size of the traces."""

    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    requests: int = 195_000
    proxies: int = 100
    sweeps: tuple[Sweep, ...] = field(
        default=(
            Sweep("beta", STRATEGIES, CAPACITIES, BETAS),
            Sweep("hourly", ("gdstar", "sub", "sg2"), ("0.05",), (0.5, 2.0), hourly=True),
            *(Sweep("quality", STRATEGIES, ("0.05",), (0.5, 2.0), quality) for quality in QUALITIES[1:]),
        )
    )

    def parts(self) -> Iterable[tuple[TraceName, int]]:
        return ((trace, seed) for seed in self.seeds for trace in TRACES)


@dataclass(frozen=True)
class NewsResults:
    """Everything measured: one row per run, and one per run and hour."""

    runs: pd.DataFrame
    hours: pd.DataFrame

    @classmethod
    def load(cls, files: Iterable[Path]) -> NewsResults:
        runs = [run for file in sorted(files) for run in json.loads(file.read_text())]
        keys = ("trace", "seed", "policy", "capacity", "beta")
        hours = [{key: run[key] for key in keys} | hour for run in runs for hour in run.pop("hours", [])]
        return cls(pd.DataFrame(runs), pd.DataFrame(hours))

    def at_paper_betas(self) -> pd.DataFrame:
        """Return the runs with the betas of section 5.1, the hourly sweep left out."""
        runs = self.runs[self.runs["sweep"] != "hourly"]
        keys = runs[["trace", "policy", "capacity", "beta"]].itertuples(index=False)
        wanted = [beta == beta_of(trace, policy, capacity) for trace, policy, capacity, beta in keys]
        return runs[wanted]


NEWS_MODULES = ("newsstand.lab.pages.spark", "newsstand.workload.chen2003.generator")
"""The modules that generate and replay the traces."""


def run_experiment(
    spark: SparkSession, experiment: NewsExperiment, out: Path, tell: Callable[[str], None] = lambda _: None
) -> NewsResults:
    """Run the traces that are not in the cache in `out`/runs; return the results of all."""
    files = []
    for trace, seed in experiment.parts():
        name = f"{trace}-{seed}-{experiment.requests}-{experiment.proxies}"
        file = run_file(out, name, NEWS_MODULES, experiment.sweeps)
        files.append(file)
        if file.exists():
            tell(f"{trace}, seed {seed}: done before")
            continue
        tell(f"{trace}, seed {seed}")
        news = News(trace, seed, experiment.requests, experiment.proxies)
        write_json(file, _run_part(spark, news, experiment.sweeps, file.parent))
    return NewsResults.load(files)


def _run_part(spark: SparkSession, news: News, sweeps: tuple[Sweep, ...], folder: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    with TemporaryDirectory(prefix=f".{news.trace}-{news.seed}-", dir=folder) as work:
        written = Path(work) / "trace"
        generate(spark, news, written)
        quality = news.sq
        for sweep in sweeps:
            if sweep.quality != quality:
                quality = sweep.quality
                subscribe(spark, replace(news, sq=quality), written)
            wanted, job = plan(sweep.policies, sweep.capacities, sweep.betas, hourly=sweep.hourly)
            answers = simulate(spark, read_trace(spark, written), wanted, job)
            rows += [
                {"sweep": sweep.name, "trace": news.trace, "seed": news.seed, "sq": quality} | answer
                for answer in answers
            ]
    return rows


CACHE_SIZES = (0.01, 0.05, 0.10)
HOURS = 7 * 24


class NewsMeasurements:
    """Means over seeds, by name."""

    def __init__(self, results: NewsResults) -> None:
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
        """Return counts of each hour of the week, summed over the seeds."""
        hours, beta = self.results.hours, beta_of(trace, policy, 0.05)
        mine = hours[(hours["trace"] == trace) & (hours["policy"] == policy) & (hours["beta"] == beta)]
        summed = mine.groupby("hour").sum(numeric_only=True)
        return summed.reindex(range(HOURS), fill_value=0)

    def hourly_hit(self, trace: str, policy: str, first: int, last: int) -> float:
        """Return the hit ratio from hour `first` up to but without `last`."""
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
