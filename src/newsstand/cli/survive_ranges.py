"""What `newsstand survive` is asked for: every option with all its values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from newsstand.cli.number_ranges import is_list, numbers, option_of, require_few, whole_numbers
from newsstand.errors import BadOption
from newsstand.model import OpportunisticPolicy

if TYPE_CHECKING:
    from newsstand.lab.survival import MessageClass

USUAL = {"brokers": "1", "slots": "1", "publish_rate": "1", "client_rate": "0.1", "intensity": "2"}
"""One slot is where the search for more begins."""

Combination = tuple[int, int, float, float, float, OpportunisticPolicy, str]


@dataclass(frozen=True)
class Ranges:
    """What was asked for, each option with all its values."""

    brokers: tuple[int, ...]
    slots: tuple[int, ...]
    publish_rate: tuple[float, ...]
    client_rate: tuple[float, ...]
    intensity: tuple[float, ...]
    policies: tuple[OpportunisticPolicy, ...]
    methods: tuple[str, ...]
    target_mst: float | None
    classes: tuple[MessageClass, ...]
    ranged: tuple[str, ...]
    """The options that were given several numbers, in the order given, named as the fields of a setting."""

    @classmethod
    def of(
        cls,
        texts: Mapping[str, str | None],
        policies: list[str] | None,
        methods: list[str] | None,
        target_mst: float | None,
        classes: list[str] | None,
    ) -> Ranges:
        """Read all options."""
        _require_one_question(texts["slots"], target_mst)
        for name in ("client_rate", "intensity"):
            if classes and texts[name] is not None:
                raise BadOption(f"{option_of(name)}: every --class has its own")
        given = {name: USUAL[name] if text is None else text for name, text in texts.items()}
        found = cls(
            whole_numbers("--brokers", given["brokers"]),
            whole_numbers("--slots", given["slots"]),
            numbers("--publish-rate", given["publish_rate"]),
            numbers("--client-rate", given["client_rate"]),
            numbers("--intensity", given["intensity"]),
            _policies(policies),
            _methods(methods),
            target_mst,
            _classes(classes),
            tuple(name for name, text in given.items() if is_list(text)),
        )
        if found.classes and found.methods != ("simulate",):
            raise BadOption("--class: messages of several classes are for --method simulate alone")
        require_few(found._all, found.ranged, "combinations")
        return found

    @property
    def is_list(self) -> bool:
        """Whether more than one answer was asked for."""
        return bool(self.ranged) or len(self.policies) > 1 or len(self.methods) > 1

    @property
    def lines(self) -> int:
        """How many a figure over the first range would have, for each class of messages one."""
        second = len(getattr(self, self.ranged[1])) if len(self.ranged) > 1 else 1
        return len(self.policies) * len(self.methods) * second * max(1, len(self.classes))

    @property
    def combinations(self) -> list[Combination]:
        """Of all values of all options."""
        return list(itertools.product(*self._all))  # type: ignore[arg-type]

    @property
    def _all(self) -> tuple[tuple[object, ...], ...]:
        rates = (self.publish_rate, self.client_rate, self.intensity)
        return (self.brokers, self.slots, *rates, self.policies, self.methods)


def _require_one_question(slots: str | None, target_mst: float | None) -> None:
    if slots is None and target_mst is None:
        raise BadOption("--slots: how many messages does a cache hold? Or give --target-mst")
    if target_mst is None:
        return
    if slots is not None:
        raise BadOption("--target-mst: finds the slots, so do not give --slots")
    if not (math.isfinite(target_mst) and target_mst > 0):
        raise BadOption(f"--target-mst {target_mst:g}: must be a number above 0")


def _policies(names: list[str] | None) -> tuple[OpportunisticPolicy, ...]:
    try:
        return tuple(dict.fromkeys(OpportunisticPolicy.parse(name) for name in names or ("sel-sub-prt",)))
    except ValueError as error:
        raise BadOption(f"--policy {error}") from None


def _methods(names: list[str] | None) -> tuple[str, ...]:
    from newsstand.lab.survival_answers import method_names

    asked = tuple(dict.fromkeys(part for name in names or ("exact",) for part in name.split(",")))
    for name in asked:
        if name not in method_names():
            raise BadOption(f"--method {name}: there is no such method; there are {', '.join(method_names())}")
    return asked


def _classes(texts: list[str] | None) -> tuple[MessageClass, ...]:
    from newsstand.lab.survival import MessageClass
    from newsstand.survival.setting import LEAST_RATE, MOST_INTENSITY, MOST_RATE

    found = []
    for text in texts or ():
        parts = text.split(",")
        try:
            share, rate, intensity = (float(part) for part in parts)
        except ValueError:
            raise BadOption(f"--class {text}: three numbers are wanted: SHARE,RATE,RHO") from None
        if not all(0 < one < math.inf for one in (share, rate, intensity)):
            raise BadOption(f"--class {text}: all three must be above 0")
        if intensity > MOST_INTENSITY:
            raise BadOption(f"--class {text}: the intensity must be at most {MOST_INTENSITY:g}")
        if not all(LEAST_RATE <= one <= MOST_RATE for one in (share, rate, intensity)):
            raise BadOption(f"--class {text}: all three must be from {LEAST_RATE:g} to {MOST_RATE:g}")
        found.append(MessageClass(share, rate, intensity))
    shares = sum(one.share for one in found)
    if found and not math.isclose(shares, 1, rel_tol=1e-6):
        raise BadOption(f"--class: the shares of all classes must add up to 1, not to {shares:g}")
    return tuple(found)
