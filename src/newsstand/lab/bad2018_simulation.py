"""The simulation of Uddin & Venkatasubramanian (2018, section V), as data, and the runner that executes it.

The paper leaves open when room is made, what an object's expiry is and how long a time to live may be. `PAPER` is
the reading under which most of what section V says comes out; `VARIANTS` are others, to see what depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pandas as pd
from pyspark.sql import SparkSession

from newsstand.caching import RESULT_POLICIES
from newsstand.caching.bad2018_beyond import BEYOND
from newsstand.caching.results import ExpiryOf
from newsstand.lab.bad2018_simulation_runs import Runs
from newsstand.lab.result_counts import Measured
from newsstand.lab.result_kernel import OF_EACH_CACHE
from newsstand.lab.result_replay import Evict, ReplaySetting
from newsstand.workload.bad2018 import SimulationSettings

MEGABYTE = 1_000_000
SIZES = tuple(range(50, 501, 50))
"""Allowed cache sizes in MB (Table II)."""
FEW_SIZES = (50, 200, 500)
HOUR_MS, WINDOW_MS = 3_600_000, 300_000
LOOKED_INTO = ("TTL", "LSC")
"""The schemes whose caches are looked at one by one (Fig. 5b)."""
AT_EQUAL_B, AT_EQUAL_MEMORY, BOUND = "paper", "equal memory", "bound"
"""What section V compares; LSC with a cache of TTL's average size; and what no policy can exceed."""

Popularity = Literal["uniform", "zipf"]


@dataclass(frozen=True)
class Scheme:
    """A policy with what section V leaves open."""

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
        """The replay with a cache; the one without a cache is the same for all sizes."""
        size = 0 if self.policy == "nc" else cache_bytes
        return ReplaySetting(self.policy, size, self.evict, self.expiry, end_ms, cap_ms=self.cap_ms)


NC, LRU, LSCZ, LSD = (Scheme(name, name.lower()) for name in ("NC", "LRU", "LSCz", "LSD"))
# LSC does not look at times to live; with TTL's cap, its holding times are compared with the same ones (Fig. 5b).
LSC = Scheme("LSC", "lsc", cap_ms=WINDOW_MS)
EXP = Scheme("EXP", "exp", expiry="object")
TTL = Scheme("TTL", "ttl", cap_ms=WINDOW_MS)
PAPER = (NC, LRU, LSC, LSCZ, LSD, EXP, TTL)
CACHING = PAPER[1:]
BEYOND_PAPER = tuple(Scheme(name, name, cap_ms=WINDOW_MS) for name in BEYOND)
"""Policies that the paper does not have, with TTL's cap."""


def _on_put(schemes: Sequence[Scheme]) -> tuple[Scheme, ...]:
    return tuple(replace(scheme, evict="put") for scheme in schemes)


@dataclass(frozen=True)
class Variant:
    """Another reading of section V, tried with one cache size over some of the seeds."""

    name: str
    text: str
    schemes: tuple[Scheme, ...]
    popularity: Popularity = "uniform"


VARIANTS = (
    Variant("put", "room is made before those online have a result", _on_put(CACHING)),
    Variant(
        "Algorithm 1",
        "to the letter: room is made at once, expiry by the cache's present time to live, up to an hour",
        _on_put([replace(scheme, expiry="cache", cap_ms=HOUR_MS) for scheme in CACHING]),
    ),
    Variant("Zipf", "subscriptions are chosen by Zipf's law", CACHING, "zipf"),
    Variant("Zipf, put", "both", _on_put(CACHING), "zipf"),
    Variant("EXP by the cache", "EXP with the cache's present time to live", (replace(EXP, expiry="cache"),)),
    Variant("cap 300 s", "EXP with times to live up to 300 s", (replace(EXP, cap_ms=WINDOW_MS),)),
    Variant("cap 1 h", "TTL with times to live up to an hour", (replace(TTL, cap_ms=HOUR_MS),)),
)


@dataclass(frozen=True)
class Experiment:
    """Which schemes run with which cache sizes over which seeds."""

    seeds: tuple[int, ...] = tuple(range(1, 11))
    sizes: tuple[int, ...] = SIZES
    scale: int = 1
    """Subscribers, subscriptions and cache sizes are divided by it."""
    schemes: tuple[Scheme, ...] = PAPER
    variants: tuple[Variant, ...] = VARIANTS
    seeds_of_variants: int = 3
    hours: float = 6.0
    beyond: tuple[Scheme, ...] = BEYOND_PAPER
    """Schemes that are measured beside the paper's, in a section of their own."""
    slow_sizes: tuple[int, ...] = FEW_SIZES
    """The sizes of what is slow: schemes without a compiled replay, and the bound on all policies."""
    seeds_by_core: int = 1
    seeds_of_bound: int = 3

    @property
    def middle(self) -> int:
        """The size at which variants are tried and caches are looked into."""
        return 200 if 200 in self.sizes else self.sizes[len(self.sizes) // 2]

    def workload(self, seed: int, popularity: Popularity = "uniform") -> SimulationSettings:
        """Table II."""
        table_2 = SimulationSettings(hours=self.hours, popularity=popularity, seed=seed)
        return replace(
            table_2,
            subscribers=table_2.subscribers // self.scale,
            subscriptions=table_2.subscriptions // self.scale,
        )

    def bytes_of(self, megabytes: int) -> int:
        """B, by the name that the size has in the paper."""
        return megabytes * MEGABYTE // self.scale

    def cases(self, seed: int, popularity: Popularity) -> Iterator[tuple[str, Scheme, int]]:
        """What is to be run over a workload: variant, scheme and size."""
        if popularity == "uniform":
            yield from ((AT_EQUAL_B, scheme, size) for scheme in self.schemes for size in self.sizes)
            yield from self._cases_beyond(seed)
        if seed in self.seeds[: self.seeds_of_variants]:
            for variant in self.variants:
                if variant.popularity == popularity:
                    yield from ((variant.name, scheme, self.middle) for scheme in variant.schemes)

    def _cases_beyond(self, seed: int) -> Iterator[tuple[str, Scheme, int]]:
        for scheme in self.beyond:
            if scheme.is_compiled:
                yield from ((AT_EQUAL_B, scheme, size) for size in self.sizes)
            elif seed in self.seeds[: self.seeds_by_core]:
                yield from ((AT_EQUAL_B, scheme, size) for size in self.few_sizes)

    @property
    def few_sizes(self) -> list[int]:
        """The sizes at which what is slow is run."""
        return [size for size in self.sizes if size in self.slow_sizes]


@dataclass(frozen=True)
class Results:
    """Everything measured: a row for each run, and one for each cache that was looked into."""

    runs: pd.DataFrame
    caches: pd.DataFrame
    bounds: pd.DataFrame = field(default_factory=pd.DataFrame)
    """Of each run and size the hit ratios that no policy can exceed, in the columns of `runs`."""


def run_experiment(
    spark: SparkSession,
    experiment: Experiment,
    out: Path,
    tell: Callable[[str], None] = lambda _: None,
    *,
    keep: bool = False,
) -> Results:
    """Run what is not done yet; what is done is kept in `out`/runs, so that a stopped run goes on."""
    rows: list[dict[str, object]] = []
    caches: list[dict[str, object]] = []
    bounds: list[dict[str, object]] = []
    for seed in experiment.seeds:
        tell(f"seed {seed}")
        for popularity in ("uniform", "zipf"):
            cases = list(experiment.cases(seed, popularity))
            if not cases:
                continue
            runs = Runs(spark, experiment.workload(seed, popularity), out)
            rows += _run(runs, experiment, seed, cases)
            if popularity == "uniform" and seed == experiment.seeds[0]:
                caches = _look_into(runs, experiment)
            if popularity == "uniform" and seed in experiment.seeds[: experiment.seeds_of_bound]:
                bounds += _bound(runs, experiment, seed)
            if not keep:
                runs.forget_events()
    return Results(pd.DataFrame(rows), pd.DataFrame(caches), pd.DataFrame(bounds))


def _run(
    runs: Runs, experiment: Experiment, seed: int, cases: Sequence[tuple[str, Scheme, int]]
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


def _row(measured: Mapping[str, Measured]) -> dict[str, object]:
    """The measures of a run, the expected bytes over all windows as their mean, and hits of late retrievals."""
    row: dict[str, object] = {name: value for name, value in measured.items() if name != "sum_rho_T"}
    expected = measured["sum_rho_T"]
    assert isinstance(expected, list)
    row["sum_rho_T"] = sum(expected) / len(expected) if expected else None
    hits, misses = (int(str(row[name])) - int(str(row[f"{name}_push"])) for name in ("hits", "misses"))
    row["hit_ratio_late"] = hits / (hits + misses) if hits + misses else None
    row["late"] = hits + misses
    return row


def _look_into(runs: Runs, experiment: Experiment) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for scheme in experiment.schemes:
        if scheme.label in LOOKED_INTO:
            setting = scheme.setting(experiment.bytes_of(experiment.middle), runs.workload.end_ms)
            sums = runs.of_each_cache(setting)
            rows += [
                {"scheme": scheme.label, "megabytes": experiment.middle, "subscription": number}
                | dict(zip(OF_EACH_CACHE, values, strict=True))
                for number, values in enumerate(zip(*(sums[name] for name in OF_EACH_CACHE), strict=True))
            ]
    return rows


def _bound(runs: Runs, experiment: Experiment, seed: int) -> list[dict[str, object]]:
    sizes = experiment.few_sizes
    found = runs.bounds([experiment.bytes_of(size) for size in sizes])
    return [
        {"seed": seed, "variant": BOUND, "scheme": BOUND, "megabytes": size}
        | {"hit_ratio": one["hit_ratio"], "hit_ratio_late": one["late_ratio"]}
        for size, one in zip(sizes, found, strict=True)
    ]
