"""Answers of models and simulations: how long messages survive in a setting, or how many slots that takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from pyspark.sql import SparkSession

from newsstand.errors import BadOption
from newsstand.lab.reporting.run_cache import run_on_spark
from newsstand.lab.reporting.statistics import Interval
from newsstand.lab.survival.simulator import (
    QUANTILES,
    MessageClass,
    Replication,
    Simulation,
    Survival,
    run_simulation,
    simulate_on_spark,
)
from newsstand.survival.lumped_chain import HINT
from newsstand.survival.methods import METHODS, model_of, smallest_slots, solve
from newsstand.survival.setting import RATES, SurvivalSetting

SIMULATE = "simulate"
METHOD_NAMES = (*METHODS, SIMULATE)
MOST_CACHED = 2_000_000
"""Messages in all caches together that are simulated: minutes before any is watched."""
MOST_EVENTS = 3e9
"""The most random events for one answer: some two minutes on one core."""


@dataclass(frozen=True)
class Question:
    """A setting, and the method of the answer."""

    setting: SurvivalSetting
    method: str
    target_mst: float | None = None
    """If given, the answer has the smallest number of slots that reaches it."""
    observations: int = 50_000
    replications: int = 10
    seed: int = 1
    classes: tuple[MessageClass, ...] = ()

    def simulation(self, slots: int | None = None) -> Simulation:
        """Return the simulation that answers it."""
        setting = self.setting if slots is None else replace(self.setting, slots=slots)
        if setting.brokers * setting.slots > MOST_CACHED:
            raise BadOption(
                f"with {setting.brokers} brokers more than the {MOST_CACHED:,} messages that are simulated",
                slots=setting.slots,
            )
        simulation = Simulation(setting, self.observations, self.replications, self.seed, self.classes)
        if simulation.events > MOST_EVENTS:
            about = float(f"{simulation.events:.1e}")
            raise BadOption(
                f"would draw about {about:,.0f} events at these rates with {setting.slots} slots, and at most "
                f"{MOST_EVENTS:,.0f} are; fewer observations or replications take less",
                method=SIMULATE,
            )
        return simulation


@dataclass(frozen=True)
class NoSurvivalAnswer:
    """Why a question has no answer by its method."""

    question: Question
    reason: BadOption


@dataclass(frozen=True, kw_only=True)
class SurvivalAnswer(Survival):
    """The answer to a question."""

    question: Question
    setting: SurvivalSetting
    """With the slots that were found, if the question has a target."""

    @property
    def model(self) -> str:
        """The model behind the numbers; a method may use different models."""
        if self.is_simulated:
            return "simulation"
        return model_of(self.setting, self.question.method)

    @property
    def is_rough(self) -> bool:
        """Whether the model is known to be rough: under `all`, messages without clients enter at the top."""
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


Follow = Callable[[Iterable[Replication]], Iterable[Replication]]
Outcome = SurvivalAnswer | NoSurvivalAnswer


def try_answer(question: Question, follow: Follow = iter) -> Outcome:
    """Answer in this process, or say why not: one method may have an answer where another has none.

    A simulation runs on all cores, and `follow` wraps the iterator of its replications.
    """
    if question.method != SIMULATE:
        return _answer_or_reason(question, lambda: by_model(question))
    run = partial(run_simulation, each=follow)
    return _answer_or_reason(question, lambda: _by_simulation(question, run))


def _answer_or_reason(question: Question, answer: Callable[[], SurvivalAnswer]) -> Outcome:
    try:
        return answer()
    except BadOption as error:
        return NoSurvivalAnswer(question, error)


def try_on_spark(spark: SparkSession, questions: Sequence[Question]) -> list[Outcome]:
    """Answer all questions with a Spark task for each model and for each replication of a simulation."""
    found: dict[int, Outcome] = {}
    models = [(place, one) for place, one in enumerate(questions) if one.method != SIMULATE]
    found |= run_on_spark(spark, models, lambda model: (model[0], try_answer(model[1])))
    simulations: dict[int, Simulation] = {}
    for place, question in enumerate(questions):
        if place not in found and question.target_mst is None:
            try:
                simulations[place] = question.simulation()
            except BadOption as error:
                found[place] = NoSurvivalAnswer(question, error)
    done = simulate_on_spark(spark, [*simulations.values()])
    found |= {place: _simulated(questions[place], one) for place, one in zip(simulations, done, strict=True)}

    def on_spark(one: Simulation) -> Survival:
        return simulate_on_spark(spark, [one])[0]

    for place, question in enumerate(questions):
        if place not in found:
            found[place] = _answer_or_reason(question, partial(_by_simulation, question, on_spark))
    return [found[place] for place in range(len(questions))]


def by_model(question: Question) -> SurvivalAnswer:
    """Solve a model; raise BadOption if the rates differ too much for floating-point numbers."""
    unsolved = BadOption(f"so different that method {question.method} finds no solution; {HINT}", **RATES)
    try:
        with np.errstate(all="ignore"):  # a first guess at a distribution may overflow
            answer = _solved(question)
    except (ArithmeticError, RuntimeError, ValueError) as error:
        raise unsolved from error
    numbers = (answer.mst, answer.sd, *answer.quantiles.values())
    if answer.mst.mean <= 0 or not all(math.isfinite(one.mean) for one in numbers):
        raise unsolved
    return answer


def _solved(question: Question) -> SurvivalAnswer:
    setting = question.setting
    if question.target_mst is None:
        lifetime = solve(setting, question.method)
    else:
        slots, lifetime = smallest_slots(setting, question.target_mst, question.method)
        setting = replace(setting, slots=slots)
    return SurvivalAnswer(
        question=question,
        setting=setting,
        mst=Interval(lifetime.mst),
        sd=Interval(lifetime.sd),
        p_loss=Interval(lifetime.p_loss),
        quantiles={level: Interval(lifetime.quantile(level)) for level in QUANTILES},
    )


def _by_simulation(question: Question, run: Callable[[Simulation], Survival]) -> SurvivalAnswer:
    if question.target_mst is None:
        return _simulated(question, run(question.simulation()))
    slots, survival = _fewest(question, question.target_mst, run)
    return _simulated(question, survival, slots)


def _fewest(question: Question, target: float, run: Callable[[Simulation], Survival]) -> tuple[int, Survival]:
    """Bisect between the bounds of Eq. 1, which every simulation keeps, with the same random numbers."""
    needed = target * question.setting.publish_rate
    # A number that should be whole may come out a little above it.
    most = max(1, math.ceil(needed * (1 - 1e-12)))
    least = max(1, math.ceil(needed / question.setting.brokers * (1 - 1e-12)))
    if question.setting.brokers * most > MOST_CACHED:
        raise BadOption(
            f"may take {most:,} slots, more than can be simulated ({MOST_CACHED:,} messages in all brokers)",
            target_mst=target,
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


def _simulated(question: Question, survival: Survival, slots: int | None = None) -> SurvivalAnswer:
    setting = question.setting if slots is None else replace(question.setting, slots=slots)
    classes = survival.class_mst if question.classes else ()
    return SurvivalAnswer(**vars(survival) | {"class_mst": classes}, question=question, setting=setting)
