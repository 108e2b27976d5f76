"""Simulations of push-caching over one trace, a Spark task each; if a folder is given, kept there and done once.

Each is compared with the same clients and network without push-caches, and without any cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from newsstand.errors import BadInput, BadOption
from newsstand.lab.kept_runs import digest, sources_digest, write_whole
from newsstand.lab.push_cache import simulated
from newsstand.lab.push_cache_demand import PushDemand
from newsstand.lab.push_cache_internet import NODES, internet_of, made_backbone
from newsstand.lab.push_cache_outcome import PushOutcome
from newsstand.lab.push_cache_setting import PushCacheSetting
from newsstand.planning.backbone import Backbone
from newsstand.spark import stoppable

SIMULATING = (
    "lab/push_cache.py",
    "lab/push_cache_demand.py",
    "lab/push_cache_internet.py",
    "lab/push_cache_outcome.py",
    "lab/push_cache_runs.py",
    "lab/push_cache_setting.py",
    "model.py",
    "overlay/topology.py",
    "planning/backbone*.py",
    "planning/cities.csv",
    "planning/distances.py",
    "planning/geography.py",
    "planning/places.py",
    "planning/push_*.py",
)
"""The sources that simulations depend on, in the package's folder."""
Key = TypeVar("Key")


@dataclass(frozen=True, eq=False)
class Network:
    """A backbone that was read, or the number of nodes of one that is made by the seed of each setting."""

    backbone: Backbone | None = None
    nodes: int = NODES

    def of(self, seed: int) -> Backbone:
        """The backbone of simulations with a seed."""
        return made_backbone(self.nodes, seed) if self.backbone is None else self.backbone

    def described(self) -> str:
        """All of it in words, to be told apart from others."""
        if self.backbone is None:
            return f"{self.nodes} nodes"
        places = self.backbone.places
        told = (self.backbone.topology.edges, places.latitudes.tolist(), places.longitudes.tolist())
        return repr((*told, self.backbone.weights.tolist()))


@dataclass(frozen=True)
class Comparison:
    """One simulation, and the same without."""

    setting: PushCacheSetting
    outcome: PushOutcome
    without: PushOutcome
    """Without push-caches, client caches being what they are."""
    uncached: PushOutcome
    """Without any caches."""


class PushCacheRuns:
    """Simulations over one trace and network."""

    def __init__(
        self, spark: SparkSession, demand: PushDemand, network: Network, keep: Path | None = None
    ) -> None:
        self.spark = spark
        self._shared = spark.sparkContext.broadcast((demand, network))
        self._file = None if keep is None else keep / f"push-cache-{_name(demand, network)}.json"
        self._done: dict[PushCacheSetting, PushOutcome] = {}
        if self._file is not None:
            self._done = read_kept(self._file, lambda row: PushCacheSetting(**row["setting"]))

    def compared(
        self, settings: Sequence[PushCacheSetting], tell: Callable[[str], None] = lambda _: None
    ) -> list[Comparison]:
        """Simulate each setting, and what it is compared with."""
        wanted = [one for setting in settings for one in (setting, without_pushing(setting), uncached(setting))]
        self._do(dict.fromkeys(wanted), tell)
        return [
            Comparison(one, *(self._done[key] for key in (one, without_pushing(one), uncached(one))))
            for one in settings
        ]

    def _do(self, settings: Iterable[PushCacheSetting], tell: Callable[[str], None]) -> None:
        todo = [one for one in settings if one not in self._done]
        # What is done is kept now and then, so that an interruption costs little.
        batch = len(todo) if self._file is None else 2 * self.spark.sparkContext.defaultParallelism
        for start in range(0, len(todo), batch or 1):
            if self._file is not None:
                tell(f"{start} of {len(todo)} simulations done")
            some = todo[start : start + batch]
            self._done |= zip(some, self._simulated(some), strict=True)
            self._write()

    def _simulated(self, settings: Sequence[PushCacheSetting]) -> list[PushOutcome]:
        shared = self._shared

        def simulate(setting: PushCacheSetting) -> PushOutcome:
            demand, network = shared.value
            backbone = network.of(setting.seed)
            return simulated(demand, internet_of(demand, backbone, setting.servers, setting.seed), setting)

        listed = self.spark.sparkContext.parallelize(settings, len(settings))
        return stoppable(self.spark, lambda: listed.map(simulate).collect())

    def _write(self) -> None:
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            rows = [{"setting": asdict(one), "outcome": asdict(of)} for one, of in self._done.items()]
            write_whole(self._file, rows)


def read_kept(file: Path, key: Callable[[dict[str, Any]], Key]) -> dict[Key, PushOutcome]:
    """The outcomes in a file of simulations, each by what `key` makes of its row; none if there is no file."""
    if not file.exists():
        return {}
    try:
        return {key(row): _kept_outcome(row["outcome"]) for row in json.loads(file.read_text())}
    except (ValueError, LookupError, TypeError, RecursionError, BadOption) as error:
        raise BadInput(f"{file}: is damaged; remove it, and what it kept is simulated again") from error


def _kept_outcome(told: dict[str, int]) -> PushOutcome:
    outcome = PushOutcome(**told)
    for field in fields(outcome):
        if not isinstance(told[field.name], int):
            raise TypeError(f"{field.name} is not a whole number")
    return outcome


def without_pushing(setting: PushCacheSetting) -> PushCacheSetting:
    """What a setting is compared with: all that are alike but for pushing have the same."""
    return PushCacheSetting(servers=0, client_cache=setting.client_cache, seed=setting.seed)


def uncached(setting: PushCacheSetting) -> PushCacheSetting:
    """The same without client caches."""
    return PushCacheSetting(servers=0, seed=setting.seed)


def _name(demand: PushDemand, network: Network) -> str:
    by = f"{metadata.version('newsstand')} {sources_digest(SIMULATING)}"
    return digest(f"{by} {demand.digest()} {network.described()}")
