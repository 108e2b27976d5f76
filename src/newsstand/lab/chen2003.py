"""The experiments of Chen, LaPaugh & Singh (2003, section 5), as data, and the runner that executes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pandas as pd
from pyspark.sql import SparkSession

from newsstand.lab.simulate import plan, simulate
from newsstand.workload.chen2003 import News
from newsstand.workload.generate import generate, subscribe
from newsstand.workload.trace import read_trace

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
    """The beta that section 5.1 sets; GD* inside the dual strategies uses GD*'s."""
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
class Experiment:
    """Which sweeps run over which traces and seeds."""

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

    @property
    def digest(self) -> str:
        """What results of other sweeps, or of another version, do not share."""
        text = f"{metadata.version('newsstand')} {self.sweeps}"
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def parts(self) -> Iterable[tuple[TraceName, int]]:
        return ((trace, seed) for seed in self.seeds for trace in TRACES)


@dataclass(frozen=True)
class Results:
    """Everything measured: one row per run, and one per run and hour."""

    runs: pd.DataFrame
    hours: pd.DataFrame

    @classmethod
    def load(cls, files: Iterable[Path]) -> Results:
        runs, hours = [], []
        for file in sorted(files):
            for run in json.loads(file.read_text()):
                of_hours = run.pop("hours", [])
                runs.append(run)
                hours += [
                    {key: run[key] for key in ("trace", "seed", "policy", "capacity", "beta")} | hour
                    for hour in of_hours
                ]
        return cls(pd.DataFrame(runs), pd.DataFrame(hours))

    def at_paper_betas(self) -> pd.DataFrame:
        """The runs with the betas of section 5.1, the hourly sweep left out."""
        runs = self.runs[self.runs["sweep"] != "hourly"]
        wanted = [
            beta == beta_of(trace, policy, capacity)
            for trace, policy, capacity, beta in zip(
                runs["trace"], runs["policy"], runs["capacity"], runs["beta"], strict=True
            )
        ]
        return runs[wanted]


def run_experiment(
    spark: SparkSession,
    experiment: Experiment,
    folder: Path,
    tell: Callable[[str], None] = lambda _: None,
) -> Results:
    """Run what is not done yet: each part's results are kept in `folder`, so that a stopped run goes on."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for trace, seed in experiment.parts():
        file = folder / f"{trace}-{seed}-{experiment.requests}-{experiment.proxies}-{experiment.digest}.json"
        files.append(file)
        if file.exists():
            tell(f"{trace}, seed {seed}: done before")
            continue
        tell(f"{trace}, seed {seed}")
        news = News(trace, seed, experiment.requests, experiment.proxies)
        rows = _run_part(spark, news, experiment.sweeps, folder)
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(rows))
        partial.replace(file)
    return Results.load(files)


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
