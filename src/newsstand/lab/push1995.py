"""The experiments of push1995 (Gwertzman and Seltzer 1995), as data, and the runner that executes them.

The chapter names the parameters; what they were set to, and the traces, are ours: push-threshold 100, 10 pages to
push and hops are the thesis's, 20 push-caches and a generated network of 200 nodes are not from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path

from pyspark.sql import SparkSession

from newsstand.lab.kept_runs import digest, sources_digest, write_whole
from newsstand.lab.push1995_workload import demand_made
from newsstand.lab.push_cache import simulated
from newsstand.lab.push_cache_internet import NODES, internet_of, made_backbone
from newsstand.lab.push_cache_outcome import PushOutcome
from newsstand.lab.push_cache_runs import SIMULATING, read_kept, uncached, without_pushing
from newsstand.lab.push_cache_setting import PushCacheSetting
from newsstand.spark import stoppable
from newsstand.workload.push1995 import PushSettings

CENTRE = PushCacheSetting()
STRATEGIES = ("hops", "miles", "random")
KINDS = ("global", "local", "flat")
SOURCES = (
    *SIMULATING,
    "lab/push1995.py",
    "lab/push1995_workload.py",
    "workload/push1995.py",
    "workload/push1995_visits.py",
    "workload/push1995_world.py",
    "workload/randomness.py",
)
"""The sources that simulations of generated traces depend on."""
BATCH = 20


@dataclass(frozen=True)
class Task:
    """One simulation: the kind of trace, and the setting, whose seed is the trace's, too."""

    kind: str
    setting: PushCacheSetting


@dataclass(frozen=True)
class Experiment:
    """Which values each parameter takes, on how large traces, over which seeds."""

    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    requests: int = 500_000
    days: int = 5
    thresholds: tuple[float, ...] = (25, 50, 100, 200, 400, 800)
    pages: tuple[int, ...] = (1, 5, 10, 20, 50)
    servers: tuple[int, ...] = (5, 10, 20, 40, 80)
    thresholds_on_top: tuple[float, ...] = (25, 50, 200)
    """With infinite client caches, beside the thesis's 100."""

    @property
    def settings(self) -> list[Task]:
        """All that is simulated with each seed, told with the first seed's; each once."""
        return list(dict.fromkeys(self._settings()))

    def _settings(self) -> Iterator[Task]:
        for kind in KINDS:
            for cached in ("none", "infinite"):
                setting = replace(CENTRE, client_cache=cached)
                yield Task(kind, setting)
                yield Task(kind, without_pushing(setting))
        for threshold in self.thresholds:
            yield Task("global", replace(CENTRE, threshold=float(threshold)))
        for threshold in self.thresholds_on_top:
            yield Task("global", replace(CENTRE, threshold=float(threshold), client_cache="infinite"))
        for caching in STRATEGIES:
            yield from (Task("global", replace(CENTRE, caching=caching, lookup=lookup)) for lookup in STRATEGIES)
            both = replace(CENTRE, caching=caching, lookup=caching)
            yield from (Task("global", replace(both, pages=pages)) for pages in self.pages)
            yield from (Task("global", replace(both, servers=servers)) for servers in self.servers)

    def trace(self, task: Task) -> PushSettings:
        """The trace of a task."""
        return PushSettings(task.kind, requests=self.requests, days=self.days, seed=task.setting.seed)  # type: ignore[arg-type]

    @property
    def tasks(self) -> list[Task]:
        """All, seed by seed."""
        return [Task(one.kind, replace(one.setting, seed=seed)) for seed in self.seeds for one in self.settings]


QUICK = Experiment((1, 2, 3), 100_000, 1, (25, 100, 400), (1, 10, 50), (5, 20, 80))


class Measured:
    """Looks up what was simulated, seed by seed."""

    def __init__(self, experiment: Experiment, outcomes: dict[Task, PushOutcome]) -> None:
        self.experiment = experiment
        self._outcomes = outcomes

    def outcomes(self, setting: PushCacheSetting, kind: str = "global") -> list[PushOutcome]:
        """Of each seed."""
        return [self._outcomes[Task(kind, replace(setting, seed=seed))] for seed in self.experiment.seeds]

    def saved(self, setting: PushCacheSetting, name: str, kind: str = "global") -> list[float]:
        """By pushing, as a share of what it is without."""
        return _saved(name, self.outcomes(setting, kind), self.outcomes(without_pushing(setting), kind))

    def saved_by_clients(self, name: str, kind: str = "global") -> list[float]:
        """By infinite client caches, nothing being pushed."""
        cached = without_pushing(replace(CENTRE, client_cache="infinite"))
        return _saved(name, self.outcomes(cached, kind), self.outcomes(uncached(cached), kind))


def _saved(name: str, outcomes: Sequence[PushOutcome], without: Sequence[PushOutcome]) -> list[float]:
    return [1 - getattr(one, name) / getattr(other, name) for one, other in zip(outcomes, without, strict=True)]


def run_experiment(
    spark: SparkSession, experiment: Experiment, out: Path, tell: Callable[[str], None] = lambda _: None
) -> Measured:
    """Simulate what is not done yet, a Spark task each; what is done is kept in `out`/runs."""
    name = digest(
        f"{metadata.version('newsstand')} {sources_digest(SOURCES)} {experiment.requests} {experiment.days}"
    )
    file = out / "runs" / f"simulations-{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    done = read_kept(file, lambda row: Task(row["kind"], PushCacheSetting(**row["setting"])))
    todo = [task for task in experiment.tasks if task not in done]
    for start in range(0, len(todo), BATCH):
        tell(f"{start} of {len(todo)} simulations done")
        batch = todo[start : start + BATCH]
        done |= zip(batch, _simulated(spark, experiment, batch), strict=True)
        rows = [{**asdict(task), "outcome": asdict(outcome)} for task, outcome in done.items()]
        write_whole(file, rows)
    return Measured(experiment, done)


def _simulated(spark: SparkSession, experiment: Experiment, tasks: Sequence[Task]) -> list[PushOutcome]:
    listed = spark.sparkContext.parallelize([(experiment, task) for task in tasks], len(tasks))
    return stoppable(spark, lambda: listed.map(lambda pair: done_task(*pair)).collect())


def done_task(experiment: Experiment, task: Task) -> PushOutcome:
    """Do one simulation."""
    demand, seed = demand_made(experiment.trace(task)), task.setting.seed
    internet = internet_of(demand, made_backbone(NODES, seed), task.setting.servers, seed)
    return simulated(demand, internet, task.setting)
