"""Every model of survival, by its name."""

from __future__ import annotations

from collections.abc import Callable

from newsstand.errors import BadOption
from newsstand.survival.broker_network import broker_network
from newsstand.survival.full_chain import full_chain
from newsstand.survival.lifetime import Lifetime
from newsstand.survival.lumped_chain import lumped, refuse_too_many
from newsstand.survival.reduced_chain import reduced_chain
from newsstand.survival.setting import Setting

Method = Callable[[Setting], Lifetime]

MOST_SLOTS_EXACT = 300
MOST_SLOTS_REDUCED = 2500
"""Within these, one broker's chain is solved in less than a minute and 1 GB."""


def solve(setting: Setting, method: str) -> Lifetime:
    """How long a message survives, by a method's name."""
    if method not in METHODS:
        raise BadOption(f"--method {method}: there is no such method; there are {', '.join(METHODS)}")
    return METHODS[method](setting)


def _exact(setting: Setting) -> Lifetime:
    if setting.brokers > 1:
        raise BadOption(f"--method exact: is for one broker, not for {setting.brokers}; use reduced")
    _refuse_beyond(MOST_SLOTS_EXACT, setting, "exact")
    return Lifetime(full_chain(setting), setting.loss)


def _reduced(setting: Setting) -> Lifetime:
    if setting.brokers > 1:
        refuse_too_many(setting.brokers, setting.slots, setting.slots + 1)
        return Lifetime(lumped(broker_network(setting)), setting.loss)
    _refuse_beyond(MOST_SLOTS_REDUCED, setting, "reduced")
    return Lifetime(reduced_chain(setting), setting.loss)


def _refuse_beyond(most: int, setting: Setting, method: str) -> None:
    if setting.slots > most:
        raise BadOption(f"--slots {setting.slots}: --method {method} solves at most {most} slots of one broker")


METHODS: dict[str, Method] = {"exact": _exact, "reduced": _reduced}
"""Further methods may be added under their names."""
