"""The simulation of Uddin & Venkatasubramanian (2018, section V), as data, and the runner that executes it.

The paper leaves open when room is made, what an object's expiry is and how long a time to live may be. `PAPER` is
the reading under which most of what section V says comes out; `VARIANTS` are others, to see what depends on it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pandas as pd
from pyspark.sql import SparkSession

from newsstand.caching import RESULT_POLICIES
from newsstand.caching.kernels.results.offline import late_retrievals
from newsstand.caching.results.caches import ExpiryOf
from newsstand.caching.results.policies import BEYOND
from newsstand.lab.reporting.run_cache import RunCache, digest, run_file, write_json
from newsstand.lab.results.bound import bound_late
from newsstand.lab.results.compiled import OF_EACH_CACHE, arrange_events, replay_arranged
from newsstand.lab.results.events import read_events
from newsstand.lab.results.replay import Evict, Measure, ReplaySetting
from newsstand.lab.results.sweep import sweep
from newsstand.workload.bad2018.events import SimulationSettings
from newsstand.workload.bad2018.generator import generate

MEGABYTE = 1_000_000
SIZES = tuple(range(50, 501, 50))
"""Allowed cache sizes in MB (Table II)."""
FEW_SIZES = (50, 200, 500)
HOUR_MS, WINDOW_MS = 3_600_000, 300_000
LOOKED_INTO = ("TTL", "LSC")
"""The schemes whose caches are shown one by one (Fig. 5b)."""
AT_EQUAL_B, AT_EQUAL_MEMORY, BOUND = "paper", "equal memory", "bound"
"""The variants of runs: section V; LSC with a cache of TTL's average size; the bound on all policies."""

Popularity = Literal["uniform", "zipf"]


@dataclass(frozen=True)
class CachingScheme:
    """A policy with the choices that section V leaves open."""

    label: str
    policy: str
    evict: Evict = "after"
    expiry: ExpiryOf = "cache"
    cap_ms: int = HOUR_MS

    @property
    def is_compiled(self) -> bool:
        """Whether it has a compiled replay; without one a run of full size takes minutes."""
        return not RESULT_POLICIES[self.policy].follows

    def setting(self, cache_bytes: int, end_ms: int) -> ReplaySetting:
        """Return the replay with a cache; the one without a cache is the same for all sizes."""
        size = 0 if self.policy == "nc" else cache_bytes
        return ReplaySetting(self.policy, size, self.evict, self.expiry, end_ms, cap_ms=self.cap_ms)


NC, LRU, LSCZ, LSD = (CachingScheme(name, name.lower()) for name in ("NC", "LRU", "LSCz", "LSD"))
# LSC does not use times to live; with TTL's cap, its holding times are compared with the same ones (Fig. 5b).
LSC = CachingScheme("LSC", "lsc", cap_ms=WINDOW_MS)
EXP = CachingScheme("EXP", "exp", expiry="object")
TTL = CachingScheme("TTL", "ttl", cap_ms=WINDOW_MS)
PAPER = (NC, LRU, LSC, LSCZ, LSD, EXP, TTL)
CACHING = PAPER[1:]
BEYOND_PAPER = tuple(CachingScheme(name, name, cap_ms=WINDOW_MS) for name in BEYOND)
"""Policies that the paper does not have, with TTL's cap."""


def _on_put(schemes: Sequence[CachingScheme]) -> tuple[CachingScheme, ...]:
    return tuple(replace(scheme, evict="put") for scheme in schemes)


@dataclass(frozen=True)
class SettingVariant:
    """Another reading of section V, tried with one cache size over some of the seeds."""

    name: str
    text: str
    schemes: tuple[CachingScheme, ...]
    popularity: Popularity = "uniform"


VARIANTS = (
    SettingVariant("put", "room is made before those online have a result", _on_put(CACHING)),
    SettingVariant(
        "Algorithm 1",
        "to the letter: room is made at once, expiry by the cache's present time to live, up to an hour",
        _on_put([replace(scheme, expiry="cache", cap_ms=HOUR_MS) for scheme in CACHING]),
    ),
    SettingVariant("Zipf", "subscriptions are chosen by Zipf's law", CACHING, "zipf"),
    SettingVariant("Zipf, put", "both", _on_put(CACHING), "zipf"),
    SettingVariant(
        "EXP by the cache", "EXP with the cache's present time to live", (replace(EXP, expiry="cache"),)
    ),
    SettingVariant("cap 300 s", "EXP with times to live up to 300 s", (replace(EXP, cap_ms=WINDOW_MS),)),
    SettingVariant("cap 1 h", "TTL with times to live up to an hour", (replace(TTL, cap_ms=HOUR_MS),)),
)


@dataclass(frozen=True)
class ResultCacheExperiment:
    """The schemes, cache sizes and seeds of the simulation."""

    seeds: tuple[int, ...] = tuple(range(1, 11))
    sizes: tuple[int, ...] = SIZES
    scale: int = 1
    """Subscribers, subscriptions and cache sizes are divided by it."""
    schemes: tuple[CachingScheme, ...] = PAPER
    variants: tuple[SettingVariant, ...] = VARIANTS
    seeds_of_variants: int = 3
    hours: float = 6.0
    beyond: tuple[CachingScheme, ...] = BEYOND_PAPER
    """Schemes that are not in the paper, reported in a section of their own."""
    slow_sizes: tuple[int, ...] = FEW_SIZES
    """The sizes for schemes without a compiled replay, and for the bound on all policies."""
    seeds_by_core: int = 1
    seeds_of_bound: int = 3

    @property
    def middle(self) -> int:
        """The size at which variants run and single caches are shown."""
        return 200 if 200 in self.sizes else self.sizes[len(self.sizes) // 2]

    def workload(self, seed: int, popularity: Popularity = "uniform") -> SimulationSettings:
        """Return the workload of Table II."""
        table_2 = SimulationSettings(hours=self.hours, popularity=popularity, seed=seed)
        return replace(
            table_2,
            subscribers=table_2.subscribers // self.scale,
            subscriptions=table_2.subscriptions // self.scale,
        )

    def bytes_of(self, megabytes: int) -> int:
        """Return B in bytes for the size that the paper names."""
        return megabytes * MEGABYTE // self.scale

    @property
    def few_sizes(self) -> list[int]:
        """The sizes for schemes without a compiled replay, and for the bound."""
        return [size for size in self.sizes if size in self.slow_sizes]

    def cases(self, seed: int, popularity: Popularity) -> Iterator[tuple[str, CachingScheme, int]]:
        """Yield the variant, scheme and size of each run over a workload."""
        if popularity == "uniform":
            yield from ((AT_EQUAL_B, scheme, size) for scheme in self.schemes for size in self.sizes)
            for scheme in self.beyond:
                if scheme.is_compiled or seed in self.seeds[: self.seeds_by_core]:
                    sizes = self.sizes if scheme.is_compiled else self.few_sizes
                    yield from ((AT_EQUAL_B, scheme, size) for size in sizes)
        if seed in self.seeds[: self.seeds_of_variants]:
            for variant in self.variants:
                if variant.popularity == popularity:
                    yield from ((variant.name, scheme, self.middle) for scheme in variant.schemes)


@dataclass(frozen=True)
class ResultCacheResults:
    """All measurements: a row for each run, and one for each cache that is shown by itself."""

    runs: pd.DataFrame
    caches: pd.DataFrame
    bounds: pd.DataFrame = field(default_factory=pd.DataFrame)
    """The hit ratios that no policy can exceed in each run and size, in the columns of `runs`."""


def run_experiment(
    spark: SparkSession,
    experiment: ResultCacheExperiment,
    out: Path,
    tell: Callable[[str], None] = lambda _: None,
    *,
    keep: bool = False,
) -> ResultCacheResults:
    """Run what is not in the cache in `out`/runs; return the results of all."""
    rows: list[dict[str, object]] = []
    caches: list[dict[str, object]] = []
    bounds: list[dict[str, object]] = []
    for seed in experiment.seeds:
        tell(f"seed {seed}")
        for popularity in ("uniform", "zipf"):
            cases = list(experiment.cases(seed, popularity))
            if not cases:
                continue
            runs = ReplayRuns(spark, experiment.workload(seed, popularity), out)
            rows += _run(runs, experiment, seed, cases)
            if popularity == "uniform" and seed == experiment.seeds[0]:
                caches = _look_into(runs, experiment)
            if popularity == "uniform" and seed in experiment.seeds[: experiment.seeds_of_bound]:
                bounds += _bound(runs, experiment, seed)
            if not keep:
                runs.forget_events()
    return ResultCacheResults(pd.DataFrame(rows), pd.DataFrame(caches), pd.DataFrame(bounds))


def _run(
    runs: ReplayRuns, experiment: ResultCacheExperiment, seed: int, cases: Sequence[tuple[str, CachingScheme, int]]
) -> list[dict[str, object]]:
    end_ms = runs.workload.end_ms
    settings = [scheme.setting(experiment.bytes_of(size), end_ms) for _, scheme, size in cases]
    rows = [
        {"seed": seed, "variant": variant, "scheme": scheme.label, "megabytes": size} | _row(measured)
        for (variant, scheme, size), measured in zip(cases, runs.measured(settings), strict=True)
    ]
    with_ttl = [row for row in rows if row["variant"] == AT_EQUAL_B and row["scheme"] == TTL.label]
    as_much = [LSC.setting(round(float(str(row["avg_bytes"]))), end_ms) for row in with_ttl]
    return rows + [
        {"seed": seed, "variant": AT_EQUAL_MEMORY, "scheme": LSC.label, "megabytes": row["megabytes"]}
        | _row(measured)
        for row, measured in zip(with_ttl, runs.measured(as_much), strict=True)
    ]


def _row(measured: Mapping[str, Measure]) -> dict[str, object]:
    """Return the measures of a run, with the mean of the expected bytes, and the hits of late retrievals."""
    row: dict[str, object] = {name: value for name, value in measured.items() if name != "sum_rho_T"}
    expected = measured["sum_rho_T"]
    assert isinstance(expected, list)
    row["sum_rho_T"] = sum(expected) / len(expected) if expected else None
    hits, misses = (int(str(row[name])) - int(str(row[f"{name}_push"])) for name in ("hits", "misses"))
    row["hit_ratio_late"] = hits / (hits + misses) if hits + misses else None
    row["late"] = hits + misses
    return row


def _look_into(runs: ReplayRuns, experiment: ResultCacheExperiment) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for scheme in experiment.schemes:
        if scheme.label in LOOKED_INTO:
            setting = scheme.setting(experiment.bytes_of(experiment.middle), runs.workload.end_ms)
            sums = runs.of_each_cache(setting)
            of = {"scheme": scheme.label, "megabytes": experiment.middle}
            values = zip(*(sums[name] for name in OF_EACH_CACHE), strict=True)
            rows += [
                of | {"subscription": number} | dict(zip(OF_EACH_CACHE, one, strict=True))
                for number, one in enumerate(values)
            ]
    return rows


def _bound(runs: ReplayRuns, experiment: ResultCacheExperiment, seed: int) -> list[dict[str, object]]:
    sizes = experiment.few_sizes
    found = runs.bounds([experiment.bytes_of(size) for size in sizes])
    return [
        {"seed": seed, "variant": BOUND, "scheme": BOUND, "megabytes": size}
        | {"hit_ratio": one["hit_ratio"], "hit_ratio_late": one["late_ratio"]}
        for size, one in zip(sizes, found, strict=True)
    ]


MEASURING = ("newsstand.lab.results.sweep", "newsstand.lab.results.bound")
REPLAY_MODULES = (*MEASURING, "newsstand.workload.bad2018.generator")
"""The modules that generate and replay the events."""


@dataclass(frozen=True)
class ReplayRun:
    """A replay and what it measures."""

    task: ReplaySetting
    measured: dict[str, Measure]


class ReplayRuns:
    """Replays of one workload: measurements in `out`/runs, events in `out`/workloads while they are needed."""

    def __init__(self, spark: SparkSession, workload: SimulationSettings, out: Path) -> None:
        self.spark = spark
        self.workload = workload
        name = f"simulation-{workload.seed}"
        self._file = run_file(out, name, REPLAY_MODULES, json.dumps(workload.described()))
        self._events = out / "workloads" / self._file.stem
        self._runs = RunCache(self._file, ReplayRun)

    def measured(self, settings: Sequence[ReplaySetting]) -> list[dict[str, Measure]]:
        """Return the measurements under each setting."""
        if todo := self._runs.missing(settings):
            self._runs.add(map(ReplayRun, todo, sweep(self.spark, self._generated(), todo)))
        return [self._runs[setting].measured for setting in settings]

    def of_each_cache(self, setting: ReplaySetting) -> dict[str, list[float]]:
        """Return sums of each result cache, by their names."""
        file = self._file.with_name(f"{self._file.stem}-caches-{digest(str(setting))}.json")
        if not file.exists():
            events = read_events(self._generated())
            measured = replay_arranged(arrange_events(events), setting, setting.end_of(events), each_cache=True)
            write_json(file, {name: measured[f"each_{name}"] for name in OF_EACH_CACHE})
        sums: dict[str, list[float]] = json.loads(file.read_text())
        return sums

    def bounds(self, budgets: Sequence[int]) -> list[dict[str, float]]:
        """Return what no policy can exceed with each budget."""
        file = self._file.with_name(f"{self._file.stem}-bounds-{digest(str(budgets))}.json")
        if not file.exists():
            late = late_retrievals(arrange_events(read_events(self._generated())))
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                found = pool.map(lambda budget: bound_late(late, budget, self.workload.end_ms), budgets)
            write_json(file, list(found))
        bounds: list[dict[str, float]] = json.loads(file.read_text())
        return bounds

    def forget_events(self) -> None:
        """Remove the events, which can be generated again."""
        shutil.rmtree(self._events, ignore_errors=True)
        if self._events.parent.exists() and not any(self._events.parent.iterdir()):
            self._events.parent.rmdir()

    def _generated(self) -> Path:
        """Return the events; generate them if they are missing."""
        if not self._events.exists():
            generate(self.spark, self.workload, self._events)
        return self._events
