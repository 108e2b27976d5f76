"""Room in a push-cache: slots and bytes, either of which may be without limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from newsstand.errors import BadOption


@dataclass(frozen=True, slots=True)
class Used:
    """So many slots and bytes."""

    slots: int = 0
    size: int = 0

    def __add__(self, other: Used) -> Used:
        return Used(self.slots + other.slots, self.size + other.size)

    def __sub__(self, other: Used) -> Used:
        return Used(self.slots - other.slots, self.size - other.size)


@dataclass(frozen=True, slots=True)
class Room:
    """How much there may be; None is any amount."""

    slots: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("slots", self.slots), ("size", self.size)):
            if value is not None and value < 0:
                raise BadOption(f"{name} is {value}: it cannot be negative")

    def holds(self, used: Used) -> bool:
        """Whether so much fits."""
        return (self.slots is None or used.slots <= self.slots) and (self.size is None or used.size <= self.size)

    def part(self, share: float) -> Room:
        """A share of the room, rounded down, but at least one slot."""
        # By its decimal digits: 0.29 of 100 slots are 29, and as a product of floats they would be 28.
        exact = Fraction(str(share))
        return Room(
            None if self.slots is None else max(1, math.floor(self.slots * exact)),
            None if self.size is None else math.floor(self.size * exact),
        )
