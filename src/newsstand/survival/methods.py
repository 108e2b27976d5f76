"""Every model of survival, by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from newsstand.errors import BadOption
from newsstand.survival.balanced_network import balanced_network
from newsstand.survival.broker_network import broker_network
from newsstand.survival.full_chain import full_chain
from newsstand.survival.lifetime import Lifetime
from newsstand.survival.lumped_chain import INSTEAD, lumped, refuse_too_many
from newsstand.survival.reduced_chain import reduced_chain
from newsstand.survival.setting import Setting

Method = Callable[[Setting], Lifetime]

MOST_SLOTS_EXACT = 300
MOST_SLOTS_REDUCED = 2500
"""Within these, one broker's chain is solved in less than a minute and 1 GB."""
MOST_BROKERS_BALANCED = 20


def solve(setting: Setting, method: str) -> Lifetime:
    """How long a message survives, by a method's name."""
    if method not in METHODS:
        raise BadOption(f"--method {method}: there is no such method; there are {', '.join(METHODS)}")
    return METHODS[method](setting)


def model_of(setting: Setting, method: str) -> str:
    """Which model answers for a method: `exact` means another one for several brokers than for one."""
    setting = _told_apart(setting)
    if method == "reduced":
        return method
    return "balanced" if setting.brokers > 1 else "two-dimensional"


def _exact(setting: Setting) -> Lifetime:
    """One broker: the two-dimensional chain. Several: no model is exact, and this is the nearest."""
    setting = _told_apart(setting)
    if setting.brokers > 1:
        return _balanced(setting)
    _refuse_beyond(MOST_SLOTS_EXACT, setting, "exact")
    return Lifetime(full_chain(setting), setting.loss)


def _balanced(setting: Setting) -> Lifetime:
    setting = _told_apart(setting)
    if setting.brokers == 1:
        return _exact(setting)
    _refuse_beyond(MOST_SLOTS_EXACT, setting, "balanced, which answers for several brokers,")
    if setting.brokers > MOST_BROKERS_BALANCED:
        raise BadOption(
            f"--brokers {setting.brokers}: the balanced model takes at most {MOST_BROKERS_BALANCED}; {INSTEAD}"
        )
    chain, _ = balanced_network(setting)
    return Lifetime(chain, setting.loss)


def _reduced(setting: Setting) -> Lifetime:
    setting = _told_apart(setting)
    if setting.brokers > 1:
        refuse_too_many(setting.brokers, setting.slots, setting.slots + 1)
        return Lifetime(lumped(broker_network(setting)), setting.loss)
    _refuse_beyond(MOST_SLOTS_REDUCED, setting, "reduced")
    return Lifetime(reduced_chain(setting), setting.loss)


def _told_apart(setting: Setting) -> Setting:
    """Where all brokers cache everything and clients move nothing, all caches are the same: one is enough."""
    if setting.selective or setting.prioritized:
        return setting
    return replace(setting, brokers=1)


def _refuse_beyond(most: int, setting: Setting, method: str) -> None:
    if setting.slots > most:
        raise BadOption(f"--slots {setting.slots}: --method {method} solves at most {most} slots; {INSTEAD}")


METHODS: dict[str, Method] = {"exact": _exact, "reduced": _reduced, "balanced": _balanced}
"""Further methods may be added under their names."""
