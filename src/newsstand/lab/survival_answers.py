"""What a model or a simulation says of one setting: how long messages survive, or how many slots that takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from pyspark.sql import SparkSession

from newsstand.errors import BadOption
from newsstand.lab.intervals import Interval
from newsstand.lab.survival import (
    QUANTILES,
    MessageClass,
    Replication,
    Simulation,
    Survival,
    simulated,
    simulated_on_spark,
)
from newsstand.spark import stoppable
from newsstand.survival.dimension import smallest_slots
from newsstand.survival.lumped_chain import INSTEAD
from newsstand.survival.methods import METHODS, model_of, solve
from newsstand.survival.setting import RATES, Setting

SIMULATE = "simulate"
MOST_CACHED = 2_000_000
"""Messages in all caches together that are simulated: minutes before any is watched."""
MOST_EVENTS = 3e9
"""That are drawn for one answer: some two minutes on one core."""


@dataclass(frozen=True)
class Question:
    """A setting, and how it is to be answered."""

    setting: Setting
    method: str
    target_mst: float | None = None
    """If given, the smallest cache is looked for that reaches it, whatever the slots of the setting."""
    observations: int = 50_000
    replications: int = 10
    seed: int = 1
    classes: tuple[MessageClass, ...] = ()

    def simulation(self, slots: int | None = None) -> Simulation:
        """What is simulated for it."""
        setting = self.setting if slots is None else replace(self.setting, slots=slots)
        if setting.brokers * setting.slots > MOST_CACHED:
            raise BadOption(
                f"--slots {setting.slots}: with {setting.brokers} brokers more than the {MOST_CACHED:,} messages "
                "that are simulated"
            )
        asked = Simulation(setting, self.observations, self.replications, self.seed, self.classes)
        if asked.events > MOST_EVENTS:
            about = float(f"{asked.events:.1e}")
            raise BadOption(
                f"--method simulate: would draw about {about:,.0f} events at these rates with --slots "
                f"{setting.slots}, and at most {MOST_EVENTS:,.0f} are; fewer --observations or --replications "
                "take less"
            )
        return asked


@dataclass(frozen=True)
class Refusal:
    """Why a question has no answer by its method."""

    question: Question
    reason: str


@dataclass(frozen=True)
class Answer:
    """What came of a question; a model's numbers have no intervals."""

    question: Question
    setting: Setting
    """With the slots that were found, if these were asked for."""
    mst: Interval
    sd: Interval
    p_loss: Interval
    quantiles: Mapping[float, Interval]
    class_mst: tuple[Interval, ...] = ()

    @property
    def model(self) -> str:
        """What the numbers are from, whatever name it was asked for by."""
        if self.is_simulated:
            return "simulation"
        return model_of(self.setting, self.question.method)

    @property
    def is_rough(self) -> bool:
        """Whether the model is known to miss something: under `all` caches have what nobody wants at the top."""
        return not (self.is_simulated or self.setting.selective) and self.setting.prioritized

    @property
    def is_within_bounds(self) -> bool:
        """Whether the mean is possible at all (Eq. 1); a simulated one may be outside by chance."""
        least, greatest = self.setting.bounds
        slack = (self.mst.half if self.mst.is_known else 0.0) + 1e-9 * greatest
        return self.is_simulated or least - slack <= self.mst.mean <= greatest + slack

    @property
    def is_simulated(self) -> bool:
        return self.question.method == SIMULATE


def method_names() -> tuple[str, ...]:
    """Every method there is."""
    return *METHODS, SIMULATE


Follow = Callable[[Iterable[Replication]], Iterable[Replication]]
Outcome = Answer | Refusal


def tried(question: Question, follow: Follow = iter) -> Outcome:
    """Answer, or say why not: one method may have an answer where another has none."""
    return _told(question, lambda: answered(question, follow))


def _told(question: Question, answer: Callable[[], Answer]) -> Outcome:
    try:
        return answer()
    except BadOption as error:
        return Refusal(question, str(error))


def answered(question: Question, follow: Follow = iter) -> Answer:
    """Answer here, simulations on all cores; `follow` sees their replications come."""
    if question.method == SIMULATE:
        return _by_simulation(question, lambda simulation: simulated(simulation, follow))
    return by_model(question)


def tried_on_spark(spark: SparkSession, questions: Sequence[Question]) -> list[Outcome]:
    """Try all: a Spark task for each model that is solved and for each replication of a simulation."""
    found: dict[int, Outcome] = {}
    models = [(place, one) for place, one in enumerate(questions) if one.method != SIMULATE]
    if models:
        listed = spark.sparkContext.parallelize(models, len(models))
        found |= stoppable(spark, lambda: listed.mapValues(tried).collect())
    simulations: dict[int, Simulation] = {}
    for place, question in enumerate(questions):
        if place not in found and question.target_mst is None:
            try:
                simulations[place] = question.simulation()
            except BadOption as error:
                found[place] = Refusal(question, str(error))
    done = simulated_on_spark(spark, [*simulations.values()])
    found |= {place: _simulated(questions[place], one) for place, one in zip(simulations, done, strict=True)}

    def on_spark(one: Simulation) -> Survival:
        return simulated_on_spark(spark, [one])[0]

    for place, question in enumerate(questions):
        if place not in found:
            found[place] = _told(question, partial(_by_simulation, question, on_spark))
    return [found[place] for place in range(len(questions))]


def by_model(question: Question) -> Answer:
    """Solve a model, or refuse rates that are too different for what a computer's numbers can tell apart."""
    unsolved = BadOption(f"{RATES}: so different that --method {question.method} finds no solution; {INSTEAD}")
    try:
        with np.errstate(all="ignore"):  # a first guess at a distribution may well overflow
            answer = _solved(question)
    except (ArithmeticError, RuntimeError, ValueError) as error:
        raise unsolved from error
    numbers = (answer.mst, answer.sd, *answer.quantiles.values())
    if answer.mst.mean <= 0 or not all(math.isfinite(one.mean) for one in numbers):
        raise unsolved
    return answer


def _solved(question: Question) -> Answer:
    setting = question.setting
    if question.target_mst is None:
        lifetime = solve(setting, question.method)
    else:
        slots, lifetime = smallest_slots(setting, question.target_mst, question.method)
        setting = replace(setting, slots=slots)
    return Answer(
        question,
        setting,
        Interval(lifetime.mst),
        Interval(lifetime.sd),
        Interval(lifetime.p_loss),
        {level: Interval(lifetime.quantile(level)) for level in QUANTILES},
    )


def _by_simulation(question: Question, run: Callable[[Simulation], Survival]) -> Answer:
    if question.target_mst is None:
        return _simulated(question, run(question.simulation()))
    slots, survival = _fewest(question, question.target_mst, run)
    return _simulated(question, survival, slots)


def _fewest(question: Question, target: float, run: Callable[[Simulation], Survival]) -> tuple[int, Survival]:
    """By bisection between the bounds of Eq. 1, which every simulation keeps; all with the same random numbers."""
    needed = target * question.setting.publish_rate
    # A number that should be whole may come out a little above it.
    most = max(1, math.ceil(needed * (1 - 1e-12)))
    least = max(1, math.ceil(needed / question.setting.brokers * (1 - 1e-12)))
    if question.setting.brokers * most > MOST_CACHED:
        raise BadOption(
            f"--target-mst {target:g}: may take {most:,} slots, more than can be simulated "
            f"({MOST_CACHED:,} messages in all brokers)"
        )
    best = run(question.simulation(most)) if most == least else None
    while least < most:
        middle = (least + most) // 2
        found = run(question.simulation(middle))
        if found.mst.mean >= target * (1 - 1e-9):
            most, best = middle, found
        else:
            least = middle + 1
    return most, best or run(question.simulation(most))


def _simulated(question: Question, survival: Survival, slots: int | None = None) -> Answer:
    setting = question.setting if slots is None else replace(question.setting, slots=slots)
    return Answer(
        question,
        setting,
        survival.mst,
        survival.sd,
        survival.p_loss,
        survival.quantiles,
        survival.class_mst if question.classes else (),
    )
