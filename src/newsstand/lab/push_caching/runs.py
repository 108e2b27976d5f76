"""Simulations of push-caching over one trace, on all cores or on Spark; with a folder, outcomes are cached there.

Each is compared with the same clients and network without push-caches, and without any cache.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from newsstand.geo.backbone import Backbone
from newsstand.lab.cores import in_processes
from newsstand.lab.push_caching.demand import PushDemand
from newsstand.lab.push_caching.internet import NODES, internet_of, made_backbone, require_nodes
from newsstand.lab.push_caching.simulator import PushCacheSetting, PushOutcome, simulate_pushing
from newsstand.lab.reporting.run_cache import RunCache, digest, run_on_spark, sources_digest
from newsstand.workload.trace.memory import SHARE, available_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIMULATING = ("newsstand.lab.push_caching.runs",)
"""Simulations depend on the imports of this module."""
WORTH_PROCESSES = 500_000
"""Requests that all simulations answer together, from which on processes save more time than their start takes."""
_BYTES_OF_PROCESS = 2**28
_BYTES_A_REQUEST = 100


@dataclass(frozen=True, eq=False)
class BackboneSource:
    """A backbone that was read, or the number of nodes of one that is made by the seed of each setting."""

    backbone: Backbone | None = None
    nodes: int = NODES

    def of(self, seed: int) -> Backbone:
        """Return the backbone of simulations with a seed."""
        return made_backbone(self.nodes, seed) if self.backbone is None else self.backbone

    def __len__(self) -> int:
        return self.nodes if self.backbone is None else len(self.backbone)

    def described(self) -> str:
        """Return a text that differs between different networks."""
        if self.backbone is None:
            return f"{self.nodes} nodes"
        places = self.backbone.places
        fields_of = (self.backbone.topology.edges, places.latitudes.tolist(), places.longitudes.tolist())
        return repr((*fields_of, self.backbone.weights.tolist()))


@dataclass(frozen=True)
class Comparison:
    """One simulation, and the same requests without push-caches and without any caches."""

    setting: PushCacheSetting
    outcome: PushOutcome
    without: PushOutcome
    """Without push-caches, client caches being what they are."""
    uncached: PushOutcome
    """Without any caches."""


@dataclass(frozen=True)
class PushCacheRun:
    """A setting and the outcome of its simulation."""

    task: PushCacheSetting
    outcome: PushOutcome


Progress: TypeAlias = Callable[[int], Callable[[int], object]]
"""Takes the number of simulations, and returns what takes those that are done."""
Simulate: TypeAlias = Callable[[Sequence[PushCacheSetting]], Iterable[PushCacheRun]]


class PushCacheRuns:
    """Simulations over one trace and network: in this process and others, or each as a Spark task."""

    def __init__(
        self,
        demand: PushDemand,
        network: BackboneSource,
        keep: Path | None = None,
        *,
        spark: SparkSession | None = None,
    ) -> None:
        require_nodes(demand, len(network))
        self._inputs = demand, network
        self._spark = spark
        file = None if keep is None else keep / f"push-cache-{_name(demand, network)}.json"
        self._runs = RunCache(file, PushCacheRun)

    def compared(
        self,
        settings: Sequence[PushCacheSetting],
        tell: Callable[[str], None] = lambda _: None,
        progress: Progress = lambda _: lambda _: None,
    ) -> list[Comparison]:
        """Simulate each setting, and what it is compared with."""
        compared = [(setting, without_pushing(setting), uncached(setting)) for setting in settings]
        missing = self._runs.missing(chain(*compared))
        if missing and self._spark is not None:
            batch = 2 * self._spark.sparkContext.defaultParallelism
            self._runs.complete(missing, self._on_spark(self._spark), batch, tell)
        elif missing:
            advance = progress(len(missing))

            def followed(runs: Iterable[PushCacheRun]) -> Iterator[PushCacheRun]:
                for run in runs:
                    yield run
                    advance(1)

            with self._here(len(missing)) as simulate:
                batch = 2 * (os.cpu_count() or 1)
                self._runs.complete(missing, lambda wanted: followed(simulate(wanted)), batch, tell)
        return [Comparison(of[0], *(self._runs[setting].outcome for setting in of)) for of in compared]

    @contextmanager
    def _here(self, simulations: int) -> Iterator[Simulate]:
        requests = len(self._inputs[0])
        processes = 1
        if simulations * requests >= WORTH_PROCESSES:
            room = SHARE * available_bytes() / (_BYTES_OF_PROCESS + requests * _BYTES_A_REQUEST)
            processes = max(1, min(os.cpu_count() or 1, simulations, int(room)))
        with in_processes(simulated, self._inputs, processes) as simulate:
            yield simulate

    def _on_spark(self, spark: SparkSession) -> Simulate:
        shared = spark.sparkContext.broadcast(self._inputs)
        return lambda settings: run_on_spark(spark, settings, lambda setting: simulated(shared.value, setting))


def simulated(inputs: tuple[PushDemand, BackboneSource], setting: PushCacheSetting) -> PushCacheRun:
    """Simulate one setting."""
    demand, network = inputs
    internet = internet_of(demand, network.of(setting.seed), setting.servers, setting.seed)
    return PushCacheRun(setting, simulate_pushing(demand, internet, setting))


def without_pushing(setting: PushCacheSetting) -> PushCacheSetting:
    """Return what a setting is compared with: all that are alike but for pushing have the same."""
    return PushCacheSetting(servers=0, client_cache=setting.client_cache, seed=setting.seed)


def uncached(setting: PushCacheSetting) -> PushCacheSetting:
    """Return the same setting without client caches."""
    return PushCacheSetting(servers=0, seed=setting.seed)


def _name(demand: PushDemand, network: BackboneSource) -> str:
    by = f"{metadata.version('newsstand')} {sources_digest(*SIMULATING)}"
    return digest(f"{by} {demand.digest()} {network.described()}")
