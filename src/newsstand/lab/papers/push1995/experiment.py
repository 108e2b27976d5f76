"""The experiments of push1995 (Gwertzman and Seltzer 1995), as data, and the runner that executes them.

The chapter names the parameters; what they were set to, and the traces, are ours: push-threshold 100, 10 pages to
push and hops are the thesis's, 20 push-caches and a generated network of 200 nodes are not from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from newsstand.geo.backbone_sources import cities
from newsstand.lab.push_caching.demand import HostLocations, PushDemand, Versions
from newsstand.lab.push_caching.internet import NODES, internet_of, made_backbone
from newsstand.lab.push_caching.runs import SIMULATING, uncached, without_pushing
from newsstand.lab.push_caching.simulator import PushCacheSetting, PushOutcome, simulate_pushing
from newsstand.lab.reporting.run_cache import RunCache, run_file, run_on_spark
from newsstand.lab.reporting.statistics import Sample
from newsstand.workload.push1995 import world as made
from newsstand.workload.push1995.columns import NO_NODE
from newsstand.workload.push1995.generator import audience, draw, units
from newsstand.workload.push1995.settings import PushSettings

CENTRE = PushCacheSetting()
STRATEGIES = ("hops", "miles", "random")
KINDS = ("global", "local", "flat")
PUSH_MODULES = (*SIMULATING, "newsstand.lab.papers.push1995.experiment")
"""Simulations of generated traces depend on the imports of these modules."""
BATCH = 20


@dataclass(frozen=True)
class PushTask:
    """One simulation: the kind of trace, and the setting, whose seed is the trace's, too."""

    kind: str
    setting: PushCacheSetting


@dataclass(frozen=True)
class PushExperiment:
    """The values of each parameter, the size of the traces, and the seeds."""

    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    requests: int = 500_000
    days: int = 5
    thresholds: tuple[float, ...] = (25, 50, 100, 200, 400, 800)
    pages: tuple[int, ...] = (1, 5, 10, 20, 50)
    servers: tuple[int, ...] = (5, 10, 20, 40, 80)
    thresholds_on_top: tuple[float, ...] = (25, 50, 200)
    """Thresholds with infinite client caches, beside the thesis's 100."""

    @property
    def settings(self) -> list[PushTask]:
        """All settings of a seed, with the first seed's number; each once."""
        return list(dict.fromkeys(self._settings()))

    def _settings(self) -> Iterator[PushTask]:
        for kind in KINDS:
            for cached in ("none", "infinite"):
                setting = replace(CENTRE, client_cache=cached)
                yield PushTask(kind, setting)
                yield PushTask(kind, without_pushing(setting))
        for threshold in self.thresholds:
            yield PushTask("global", replace(CENTRE, threshold=float(threshold)))
        for threshold in self.thresholds_on_top:
            yield PushTask("global", replace(CENTRE, threshold=float(threshold), client_cache="infinite"))
        for caching in STRATEGIES:
            yield from (
                PushTask("global", replace(CENTRE, caching=caching, lookup=lookup)) for lookup in STRATEGIES
            )
            both = replace(CENTRE, caching=caching, lookup=caching)
            yield from (PushTask("global", replace(both, pages=pages)) for pages in self.pages)
            yield from (PushTask("global", replace(both, servers=servers)) for servers in self.servers)

    def trace(self, task: PushTask) -> PushSettings:
        """Return the trace of a task."""
        return PushSettings(task.kind, requests=self.requests, days=self.days, seed=task.setting.seed)  # type: ignore[arg-type]

    @property
    def tasks(self) -> list[PushTask]:
        """All, seed by seed."""
        return [
            PushTask(one.kind, replace(one.setting, seed=seed)) for seed in self.seeds for one in self.settings
        ]


QUICK = PushExperiment((1, 2, 3), 100_000, 1, (25, 100, 400), (1, 10, 50), (5, 20, 80))


class PushMeasurements:
    """The outcomes of the simulations, by seed."""

    def __init__(self, outcomes: Mapping[PushTask, PushOutcome], experiment: PushExperiment) -> None:
        self.experiment = experiment
        self._outcomes = outcomes

    def outcomes(self, setting: PushCacheSetting, kind: str = "global") -> list[PushOutcome]:
        """Return the outcome of each seed."""
        return [self._outcomes[PushTask(kind, replace(setting, seed=seed))] for seed in self.experiment.seeds]

    def of(self, setting: PushCacheSetting, name: str, kind: str = "global") -> Sample:
        """Return a field of the outcomes."""
        return Sample.of(getattr(one, name) for one in self.outcomes(setting, kind))

    def saved(self, setting: PushCacheSetting, name: str, kind: str = "global") -> Sample:
        """Return what pushing saves, as a share of the value without pushing."""
        return 1 - self.of(setting, name, kind) / self.of(without_pushing(setting), name, kind)

    def saved_by_clients(self, name: str, kind: str = "global") -> Sample:
        """Return what infinite client caches save when nothing is pushed."""
        cached = without_pushing(replace(CENTRE, client_cache="infinite"))
        return 1 - self.of(cached, name, kind) / self.of(uncached(cached), name, kind)


@dataclass(frozen=True)
class PushRun:
    """A simulation and its outcome."""

    task: PushTask
    outcome: PushOutcome


def run_experiment(
    spark: SparkSession, experiment: PushExperiment, out: Path, tell: Callable[[str], None] = lambda _: None
) -> dict[PushTask, PushOutcome]:
    """Run the simulations that are not in the cache in `out`/runs; return the outcomes of all."""
    runs = RunCache(run_file(out, "simulations", PUSH_MODULES, experiment.requests, experiment.days), PushRun)

    def run(batch: list[PushTask]) -> Iterator[PushRun]:
        return map(PushRun, batch, run_on_spark(spark, batch, partial(run_task, experiment)))

    runs.complete(experiment.tasks, run, BATCH, tell)
    return {task: runs[task].outcome for task in experiment.tasks}


def run_task(experiment: PushExperiment, task: PushTask) -> PushOutcome:
    """Run one simulation."""
    demand, seed = demand_made(experiment.trace(task)), task.setting.seed
    internet = internet_of(demand, made_backbone(NODES, seed), task.setting.servers, seed)
    return simulate_pushing(demand, internet, task.setting)


def demand_made(settings: PushSettings) -> PushDemand:
    """Return the demand of the trace that these settings generate, near the same cities."""
    world = made.populated(settings, cities())
    blocks = units(settings)
    drawn = [
        draw(settings, audience(settings, world, int(server)), unit, int(count))
        for unit, (server, count) in enumerate(zip(blocks.server, blocks.requests, strict=True))
    ]
    time, subnet, page = (
        np.concatenate([getattr(one, name) for one in drawn]) for name in ("time", "subnet", "page")
    )
    server = np.repeat(blocks.server, blocks.requests)
    order = np.lexsort((page, subnet, server, time))
    pages = made.page_versions(settings)
    return PushDemand(
        time[order],
        server[order],
        subnet[order],
        page[order],
        Versions.of(pages.page, pages.size, pages.modified),
        _located(world.subnets),
        _located(world.servers),
    )


def _located(sites: made.NamedSites) -> HostLocations:
    return HostLocations(sites.places, np.full(len(sites.names), NO_NODE, np.int32))
