"""The inverse question: how many slots make messages survive long enough (Sourlas et al. 2011, section 1)."""

from __future__ import annotations

import math
from dataclasses import replace

from newsstand.errors import BadOption
from newsstand.survival.lifetime import Lifetime
from newsstand.survival.lumped_chain import INSTEAD
from newsstand.survival.methods import solve
from newsstand.survival.setting import Setting

ROUNDING = 1e-9
"""A mean survival time that lacks no more than this part of the target reaches it."""


def smallest_slots(setting: Setting, target_mst: float, method: str) -> tuple[int, Lifetime]:
    """The smallest cache with at least the wished mean survival time; the setting's own slots do not matter.

    The mean grows with the slots, nearly in proportion, and the bounds of Eq. 1 say where to look. Where a model
    leaves them it is not to be believed, and there is no answer.
    """
    if not (math.isfinite(target_mst) and target_mst > 0):
        raise BadOption(f"--target-mst {target_mst:g}: must be a number above 0")
    wanted = target_mst * (1.0 - ROUNDING)
    messages = wanted * setting.publish_rate
    too_few = max(0, math.ceil(messages / setting.brokers) - 1)
    enough = max(too_few + 1, math.ceil(messages))
    known: dict[int, Lifetime] = {}

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
        # In proportion to the last answer, but every other time in the middle, should the proportion mislead.
        fair = math.ceil(guess * wanted / known[guess].mst) if len(known) % 2 else (too_few + enough) // 2
        guess = min(max(fair, too_few + 1), enough - 1)
    if enough not in known and not reached(enough):
        raise _unbelievable(setting, enough, method)
    return enough, known[enough]


def _unbelievable(setting: Setting, slots: int, method: str) -> BadOption:
    return BadOption(
        f"--method {method}: with {slots} slots its mean is outside of what {setting.brokers} brokers can have, "
        f"so it cannot say how many are needed; {INSTEAD}"
    )


def _solved(setting: Setting, target_mst: float, method: str) -> Lifetime:
    try:
        lifetime = solve(setting, method)
        _ = lifetime.mst
    except BadOption as error:
        raise BadOption(f"--target-mst {target_mst:g}: needs caches too large to be solved ({error})") from error
    return lifetime
