"""Simulation of survival times with all brokers, caches and clients (Sourlas et al. 2011, section 7).

Replications differ only in their random numbers, which follow from their numbers, so they can run anywhere.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from newsstand.caching.kernels.slots import (
    NOT_HALTED,
    SlotCacheRules,
    SurvivalObservations,
    new_network_state,
    simulate,
)
from newsstand.errors import BadOption
from newsstand.lab.reporting.run_cache import run_on_spark
from newsstand.lab.reporting.statistics import Interval, interval
from newsstand.model import RequestPolicy
from newsstand.survival.setting import SurvivalSetting

Halted = NDArray[np.bool_]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
WARM = 10
"""Before messages are watched, each broker caches this many times what all caches hold, on average."""
MOST_WARM = 50_000_000
"""The most messages that are published before any is watched."""
MOST_BYTES = 8_000_000_000
MOST_OBSERVATIONS = 1_000_000_000
MOST_REPLICATIONS = 100_000
BYTES = 25
"""Memory for each message and broker."""


@dataclass(frozen=True)
class MessageClass:
    """Messages that are equally popular."""

    share: float
    """The share of all published messages."""
    client_rate: float
    intensity: float


def require_sample(observations: int, replications: int, seed: int) -> None:
    """Raise BadOption for a sample that no setting can be simulated with."""
    if replications < 1:
        raise BadOption("must be at least 1", replications=replications)
    for field, count, most in (
        ("replications", replications, MOST_REPLICATIONS),
        ("observations", observations, MOST_OBSERVATIONS),
    ):
        if count > most:
            raise BadOption(f"must be at most {most:,}", **{field: None})
    if observations < 2 * replications:
        raise BadOption(f"must be at least two for each of {replications} replications", observations=observations)
    if seed < 0:
        raise BadOption("must not be negative", seed=seed)


@dataclass(frozen=True)
class Simulation:
    """A setting to simulate, and the number of messages to watch."""

    setting: SurvivalSetting
    observations: int = 50_000
    """The number of watched messages in all replications together."""
    replications: int = 10
    seed: int = 1
    classes: tuple[MessageClass, ...] = ()
    """Empty if all messages are as the setting says."""

    def __post_init__(self) -> None:
        require_sample(self.observations, self.replications, self.seed)
        if self.classes and not np.isclose(sum(one.share for one in self.classes), 1):
            raise BadOption("the shares of all classes together must be 1")
        room = self.setting.brokers**2 * self.setting.slots * BYTES * workers()
        if room > MOST_BYTES:
            raise BadOption(
                f"with {self.setting.brokers} brokers the simulation would take {room / 1e9:.0f} GB",
                slots=self.setting.slots,
            )
        if self.warm > MOST_WARM:
            raise BadOption(
                f"so few messages are wanted that {self.warm:,} would be published before caches are full; "
                f"at most {MOST_WARM:,} are",
                intensity=None,
            )

    @property
    def all_classes(self) -> tuple[MessageClass, ...]:
        """The classes; one if all messages are alike."""
        return self.classes or (MessageClass(1.0, self.setting.client_rate, self.setting.intensity),)

    @property
    def rules(self) -> SlotCacheRules:
        """The input of the kernel."""
        setting, classes = self.setting, self.all_classes
        shares = np.cumsum([one.share for one in classes])
        shares[-1] = 1.0
        return SlotCacheRules(
            setting.brokers,
            setting.slots,
            setting.publish_rate,
            np.array([one.client_rate for one in classes]),
            np.array([one.client_rate / one.intensity for one in classes]),
            shares,
            setting.selective,
            setting.policy.request is RequestPolicy.FLOODED,
            setting.prioritized,
        )

    @property
    def warm(self) -> int:
        """Messages that are published before any is watched; of some only a part is cached."""
        cached = sum(-one.share * math.expm1(-one.intensity) for one in self.all_classes)
        share = cached if self.setting.selective else 1.0
        return math.ceil(WARM * self.setting.brokers * self.setting.slots / share)

    @property
    def events(self) -> float:
        """About how many are drawn, those that come to nothing included: what the time it takes is from.

        Caches hold at least as many different messages as one of them has slots. Of each a client comes or goes at
        most as often as if it had as many clients as any message ever has at once.
        """
        from scipy.stats import poisson  # it takes most of a second to load

        setting = self.setting
        published = self.warm + self.observations / self.replications
        most_clients = 1.0
        for one in self.all_classes:
            drawn = published * one.share * setting.brokers
            drawn *= 1 + setting.slots * one.client_rate / setting.publish_rate
            most_clients = max(most_clients, float(poisson.isf(min(0.5, 1 / drawn), one.intensity)))
        rate = max(one.client_rate for one in self.all_classes)
        rate += most_clients * max(one.client_rate / one.intensity for one in self.all_classes)
        clients = setting.slots * setting.brokers * rate / setting.publish_rate
        return self.replications * published * (1 + clients)


@dataclass(frozen=True)
class Replication:
    """The measurements of one replication."""

    mst: float
    """By Little's law: the mean number of cached messages over the rate of publications. It varies less than the
    mean of the times themselves, which it estimates."""
    mean_time: float
    """The mean of the times themselves, those of lost messages included."""
    sd: float
    """The deviation of the times of messages that were cached at all."""
    p_loss: float
    quantiles: tuple[float, ...]
    """At QUANTILES, for messages that were cached at all."""
    class_mst: tuple[float, ...]
    copy_rate: float
    """Copies into one broker's cache from another's, per unit of time."""


@dataclass(frozen=True)
class Survival:
    """Survival times: means over replications, or the numbers of a model, without intervals."""

    mst: Interval
    sd: Interval
    p_loss: Interval
    quantiles: Mapping[float, Interval]
    class_mst: tuple[Interval, ...] = ()


def workers() -> int:
    """Return the number of replications that this machine runs at once."""
    return os.cpu_count() or 1


def observe(simulation: Simulation, replication: int, halted: Halted = NOT_HALTED) -> SurvivalObservations:
    """Run one replication and return its observations."""
    draws = np.random.SFC64(np.random.SeedSequence(simulation.seed, spawn_key=(replication,)))
    share, more = divmod(simulation.observations, simulation.replications)
    watched = share + (replication < more)
    rules, random = simulation.rules, np.random.Generator(draws)
    return simulate(rules, new_network_state(rules), random, simulation.warm, watched, halted)


def run_replication(simulation: Simulation, replication: int, halted: Halted = NOT_HALTED) -> Replication:
    """Run one replication and summarize it."""
    seen, setting = observe(simulation, replication, halted), simulation.setting
    if halted[0]:
        raise CancelledError  # the observations are incomplete
    cached = seen.survival[seen.survival > 0]
    rates = seen.span * setting.publish_rate
    shares = [one.share for one in simulation.all_classes]
    return Replication(
        mst=float(seen.messages_time.sum() / rates),
        mean_time=float(seen.survival.mean()),
        sd=float(cached.std(ddof=1)) if len(cached) > 1 else 0.0,
        p_loss=1 - len(cached) / len(seen.survival),
        quantiles=tuple(map(float, np.quantile(cached, QUANTILES))) if len(cached) else (0.0,) * len(QUANTILES),
        class_mst=tuple(map(float, seen.messages_time / (rates * np.array(shares)))),
        copy_rate=seen.copied / (seen.span * setting.brokers),
    )


def run_simulation(
    simulation: Simulation, each: Callable[[Iterable[Replication]], Iterable[Replication]] = iter
) -> Survival:
    """Run all replications in this process, on all cores; `each` wraps the iterator of their results."""
    halted = np.zeros(1, np.bool_)
    with ThreadPoolExecutor(workers()) as threads:
        results = threads.map(
            lambda number: run_replication(simulation, number, halted), range(simulation.replications)
        )
        try:
            return summarize(list(each(results)))
        except BaseException:
            halted[0] = True
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def simulate_on_spark(spark: SparkSession, simulations: Sequence[Simulation]) -> list[Survival]:
    """Run every replication of every simulation as a Spark task."""
    todo = [(one, number) for one in simulations for number in range(one.replications)]
    done = iter(run_on_spark(spark, todo, lambda task: run_replication(*task)))
    return [summarize([next(done) for _ in range(one.replications)]) for one in simulations]


def summarize(replications: Sequence[Replication]) -> Survival:
    """Return the means, with 95 % intervals."""
    quantiles = zip(*(one.quantiles for one in replications), strict=True)
    return Survival(
        mst=interval([one.mst for one in replications]),
        sd=interval([one.sd for one in replications]),
        p_loss=interval([one.p_loss for one in replications]),
        quantiles=dict(zip(QUANTILES, map(interval, quantiles), strict=True)),
        class_mst=tuple(map(interval, zip(*(one.class_mst for one in replications), strict=True))),
    )
