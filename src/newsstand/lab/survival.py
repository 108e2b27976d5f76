"""How long messages survive, by simulation of all brokers, caches and clients (Sourlas et al. 2011, section 7).

Replications differ in their random numbers alone, each by its number, so they can be done anywhere.
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
from scipy.stats import poisson

from newsstand.caching.kernels.slots import NOT_HALTED, Rules, Watched, new_network, simulate
from newsstand.errors import BadOption
from newsstand.lab.intervals import Interval, interval
from newsstand.model import RequestPolicy
from newsstand.spark import stoppable
from newsstand.survival.setting import Setting

Halted = NDArray[np.bool_]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
WARM = 10
"""Before messages are watched, each broker caches as many as all caches hold, times this, on average."""
MOST_WARM = 50_000_000
"""So many are published before, at most."""
MOST_BYTES = 8_000_000_000
MOST_OBSERVATIONS = 1_000_000_000
MOST_REPLICATIONS = 100_000
BYTES = 25
"""Of memory for each message and broker."""


@dataclass(frozen=True)
class MessageClass:
    """Messages that are equally popular."""

    share: float
    """Of all that are published."""
    client_rate: float
    intensity: float


def require_sample(observations: int, replications: int, seed: int) -> None:
    """Refuse what no setting can be simulated with."""
    if replications < 1:
        raise BadOption(f"--replications {replications}: must be at least 1")
    for option, count, most in (
        ("--replications", replications, MOST_REPLICATIONS),
        ("--observations", observations, MOST_OBSERVATIONS),
    ):
        if count > most:
            raise BadOption(f"{option}: must be at most {most:,}")
    if observations < 2 * replications:
        raise BadOption(
            f"--observations {observations}: must be two a replication at least, of which there are {replications}"
        )
    if seed < 0:
        raise BadOption(f"--seed {seed}: must not be negative")


@dataclass(frozen=True)
class Simulation:
    """What is simulated, and for how many messages."""

    setting: Setting
    observations: int = 50_000
    """Messages that are watched, in all replications together."""
    replications: int = 10
    seed: int = 1
    classes: tuple[MessageClass, ...] = ()
    """If messages are not all alike; else they are as the setting says."""

    def __post_init__(self) -> None:
        require_sample(self.observations, self.replications, self.seed)
        if self.classes and not np.isclose(sum(one.share for one in self.classes), 1):
            raise BadOption("the shares of all classes together must be 1")
        room = self.setting.brokers**2 * self.setting.slots * BYTES * workers()
        if room > MOST_BYTES:
            raise BadOption(
                f"--slots {self.setting.slots}: with {self.setting.brokers} brokers the simulation would take "
                f"{room / 1e9:.0f} GB"
            )
        if self.warm > MOST_WARM:
            raise BadOption(
                f"--intensity: so few messages are wanted that {self.warm:,} would be published before caches are "
                f"full; at most {MOST_WARM:,} are"
            )

    @property
    def all_classes(self) -> tuple[MessageClass, ...]:
        """At least one."""
        return self.classes or (MessageClass(1.0, self.setting.client_rate, self.setting.intensity),)

    @property
    def rules(self) -> Rules:
        """As the kernel takes it."""
        setting, classes = self.setting, self.all_classes
        shares = np.cumsum([one.share for one in classes])
        shares[-1] = 1.0
        return Rules(
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
        setting = self.setting
        published = self.warm + self.observations / self.replications
        crowd = 1.0
        for one in self.all_classes:
            drawn = published * one.share * setting.brokers
            drawn *= 1 + setting.slots * one.client_rate / setting.publish_rate
            crowd = max(crowd, float(poisson.isf(min(0.5, 1 / drawn), one.intensity)))
        rate = max(one.client_rate for one in self.all_classes)
        rate += crowd * max(one.client_rate / one.intensity for one in self.all_classes)
        clients = setting.slots * setting.brokers * rate / setting.publish_rate
        return self.replications * published * (1 + clients)


@dataclass(frozen=True)
class Replication:
    """What one replication has measured."""

    mst: float
    """By Little's law: the mean number of cached messages over the rate of publications. It varies less than the
    mean of the times themselves, which it estimates."""
    mean_time: float
    """The mean of the times themselves, those of lost messages included."""
    sd: float
    """Of the times of messages that were cached at all."""
    p_loss: float
    quantiles: tuple[float, ...]
    """For QUANTILES, of messages that were cached at all."""
    class_mst: tuple[float, ...]
    copy_rate: float
    """Copies into one broker's cache from another's, per unit of time."""


@dataclass(frozen=True)
class Survival:
    """Means over replications."""

    mst: Interval
    sd: Interval
    p_loss: Interval
    quantiles: Mapping[float, Interval]
    class_mst: tuple[Interval, ...]
    copy_rate: Interval


def workers() -> int:
    """How many replications are done at once here."""
    return os.cpu_count() or 1


def watched(simulation: Simulation, replication: int, halted: Halted = NOT_HALTED) -> Watched:
    """One replication, message by message."""
    draws = np.random.SFC64(np.random.SeedSequence(simulation.seed, spawn_key=(replication,)))
    share, more = divmod(simulation.observations, simulation.replications)
    rules = simulation.rules
    return simulate(
        rules,
        new_network(rules),
        np.random.Generator(draws),
        simulation.warm,
        share + (replication < more),
        halted,
    )


def replicated(simulation: Simulation, replication: int, halted: Halted = NOT_HALTED) -> Replication:
    """One replication, summed up."""
    seen, setting = watched(simulation, replication, halted), simulation.setting
    if halted[0]:
        raise CancelledError  # what has been seen so far need not be anything
    cached = seen.survival[seen.survival > 0]
    rates = seen.span * setting.publish_rate
    by_class = [
        float(time / (rates * one.share))
        for time, one in zip(seen.messages_time, simulation.all_classes, strict=True)
    ]
    return Replication(
        mst=float(seen.messages_time.sum() / rates),
        mean_time=float(seen.survival.mean()),
        sd=float(cached.std(ddof=1)) if len(cached) > 1 else 0.0,
        p_loss=1 - len(cached) / len(seen.survival),
        quantiles=tuple(map(float, np.quantile(cached, QUANTILES))) if len(cached) else (0.0,) * len(QUANTILES),
        class_mst=tuple(by_class),
        copy_rate=seen.copied / (seen.span * setting.brokers),
    )


def simulated(
    simulation: Simulation, each: Callable[[Iterable[Replication]], Iterable[Replication]] = iter
) -> Survival:
    """All replications here, on all cores; `each` sees them come."""
    halted = np.zeros(1, np.bool_)
    with ThreadPoolExecutor(workers()) as threads:
        coming = threads.map(lambda number: replicated(simulation, number, halted), range(simulation.replications))
        try:
            return summed_up(list(each(coming)))
        except BaseException:
            halted[0] = True
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def simulated_on_spark(spark: SparkSession, simulations: Sequence[Simulation]) -> list[Survival]:
    """Every replication of every simulation, a Spark task for each."""
    todo = [(place, number) for place, one in enumerate(simulations) for number in range(one.replications)]
    if not todo:
        return []
    asked = tuple(simulations)
    listed = spark.sparkContext.parallelize(todo, len(todo))
    done = stoppable(
        spark, lambda: listed.map(lambda pair: (pair[0], replicated(asked[pair[0]], pair[1]))).collect()
    )
    by_place: dict[int, list[Replication]] = {}
    for place, replication in done:
        by_place.setdefault(place, []).append(replication)
    return [summed_up(by_place[place]) for place in range(len(simulations))]


def summed_up(replications: Sequence[Replication]) -> Survival:
    """The means, with 95 % intervals."""
    return Survival(
        mst=interval([one.mst for one in replications]),
        sd=interval([one.sd for one in replications]),
        p_loss=interval([one.p_loss for one in replications]),
        quantiles={
            level: interval([one.quantiles[place] for one in replications])
            for place, level in enumerate(QUANTILES)
        },
        class_mst=tuple(
            interval([one.class_mst[place] for one in replications])
            for place in range(len(replications[0].class_mst))
        ),
        copy_rate=interval([one.copy_rate for one in replications]),
    )
