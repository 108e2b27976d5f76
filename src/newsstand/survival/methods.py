"""Every model of survival by its name, and the inverse question: how many slots reach a mean survival time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from newsstand.errors import BadOption
from newsstand.survival.lumped_chain import HINT, lumped_chain, reject_too_many
from newsstand.survival.one_broker import full_chain, reduced_chain
from newsstand.survival.setting import SurvivalSetting
from newsstand.survival.several_brokers import balanced_network, broker_network
from newsstand.survival.survival_time import SurvivalTime

Method = Callable[[SurvivalSetting], SurvivalTime]

MOST_SLOTS_EXACT = 300
MOST_SLOTS_REDUCED = 2500
"""Within these, one broker's chain is solved in less than a minute and 1 GB."""
MOST_BROKERS_BALANCED = 20


def solve(setting: SurvivalSetting, method: str) -> SurvivalTime:
    """Return how long a message survives, by a method's name."""
    if method not in METHODS:
        raise BadOption(f"must be one of {', '.join(METHODS)}", method=method)
    return METHODS[method](setting)


def model_of(setting: SurvivalSetting, method: str) -> str:
    """Return the model of a method: that of `exact` depends on the number of brokers."""
    setting = _distinct_brokers(setting)
    if method == "reduced":
        return method
    return "balanced" if setting.brokers > 1 else "two-dimensional"


def _exact(setting: SurvivalSetting) -> SurvivalTime:
    """Solve the two-dimensional chain for one broker, and the balanced model for several."""
    setting = _distinct_brokers(setting)
    if setting.brokers == 1:
        _reject_beyond(MOST_SLOTS_EXACT, setting, "exact")
        return SurvivalTime(full_chain(setting), setting.loss)
    _reject_beyond(MOST_SLOTS_EXACT, setting, "balanced, which answers for several brokers,")
    if setting.brokers > MOST_BROKERS_BALANCED:
        raise BadOption(
            f"the balanced model takes at most {MOST_BROKERS_BALANCED}; {HINT}", brokers=setting.brokers
        )
    chain, _ = balanced_network(setting)
    return SurvivalTime(chain, setting.loss)


def _reduced(setting: SurvivalSetting) -> SurvivalTime:
    setting = _distinct_brokers(setting)
    if setting.brokers > 1:
        reject_too_many(setting.brokers, setting.slots, setting.slots + 1)
        return SurvivalTime(lumped_chain(broker_network(setting)), setting.loss)
    _reject_beyond(MOST_SLOTS_REDUCED, setting, "reduced")
    return SurvivalTime(reduced_chain(setting), setting.loss)


def _distinct_brokers(setting: SurvivalSetting) -> SurvivalSetting:
    """Reduce brokers that cache everything in one order to one: all their caches are the same."""
    if setting.selective or setting.prioritized:
        return setting
    return replace(setting, brokers=1)


def _reject_beyond(most: int, setting: SurvivalSetting, method: str) -> None:
    if setting.slots > most:
        raise BadOption(f"method {method} solves at most {most} slots; {HINT}", slots=setting.slots)


METHODS: dict[str, Method] = {"exact": _exact, "reduced": _reduced, "balanced": _exact}
"""Further methods may be added under their names."""


ROUNDING = 1e-9
"""The relative deviation from the target at which a mean survival time reaches it."""


def smallest_slots(setting: SurvivalSetting, target_mst: float, method: str) -> tuple[int, SurvivalTime]:
    """Return the smallest cache that reaches a mean survival time; the setting's own slots do not matter.

    The mean grows with the slots, nearly in proportion, and the bounds of Eq. 1 limit the search. If a model
    leaves these bounds, it is wrong there, and there is no answer.
    """
    if not (math.isfinite(target_mst) and target_mst > 0):
        raise BadOption("must be a number above 0", target_mst=target_mst)
    wanted = target_mst * (1.0 - ROUNDING)
    messages = wanted * setting.publish_rate
    too_few = max(0, math.ceil(messages / setting.brokers) - 1)
    enough = max(too_few + 1, math.ceil(messages))
    known: dict[int, SurvivalTime] = {}

    def reached(slots: int) -> bool:
        there = replace(setting, slots=slots)
        known[slots] = _solved(there, target_mst, method)
        least, greatest = there.bounds
        if not least * (1.0 - ROUNDING) <= known[slots].mst <= greatest * (1.0 + ROUNDING):
            raise _unbelievable(setting, slots, method)
        return known[slots].mst >= wanted

    guess = too_few + 1
    while enough - too_few > 1:
        if reached(guess):
            enough = guess
        else:
            too_few = guess
        # In proportion to the last answer, but every other time in the middle, in case the proportion misleads.
        fair = math.ceil(guess * wanted / known[guess].mst) if len(known) % 2 else (too_few + enough) // 2
        guess = min(max(fair, too_few + 1), enough - 1)
    if enough not in known and not reached(enough):
        raise _unbelievable(setting, enough, method)
    return enough, known[enough]


def _unbelievable(setting: SurvivalSetting, slots: int, method: str) -> BadOption:
    return BadOption(
        f"with {slots} slots its mean is outside the bounds for {setting.brokers} brokers, "
        f"so the number of slots cannot be found; {HINT}",
        method=method,
    )


def _solved(setting: SurvivalSetting, target_mst: float, method: str) -> SurvivalTime:
    try:
        lifetime = solve(setting, method)
        _ = lifetime.mst
    except BadOption as error:
        raise BadOption(f"needs caches too large to be solved ({error})", target_mst=target_mst) from error
    return lifetime
