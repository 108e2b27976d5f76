"""The kinds of claims that the experiments of survival2011 can judge.

That something is above zero at every point holds if all of the 95 % interval is, at nine tenths of them; it fails
if all of it is below at more than a tenth, as chance alone would be at one in forty, and is undecided otherwise. A
number that is said of all points fails if at any of them the interval lies wholly outside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from newsstand.lab.intervals import Interval

NEARLY_ALL, FEW = 0.9, 0.1
ROUNDING = 1e-9
"""Intervals of what is the same in every replication are wider by this."""

Found = Mapping[str, Interval]
"""By the name of a point."""


def above_everywhere(found: Sequence[Interval]) -> bool | None:
    """Whether something is above zero at every point, as far as that can be told."""
    if not all(one.is_known for one in found):
        return None
    if sum(one.mean + one.half < -ROUNDING for one in found) > FEW * len(found):
        return False
    return True if sum(one.is_above for one in found) >= NEARLY_ALL * len(found) else None


def below_everywhere(found: Sequence[Interval]) -> bool | None:
    """The same of what is to be below."""
    return above_everywhere([Interval(-one.mean, one.half) for one in found])


def within(found: Sequence[Interval], low: float = -math.inf, high: float = math.inf) -> bool | None:
    """Whether everything is between two bounds, as far as that can be told: not if an interval crosses one."""
    if not all(one.is_known for one in found):
        return None
    if any(one.mean + one.half + ROUNDING < low or one.mean - one.half - ROUNDING > high for one in found):
        return False
    inside = all(one.mean - one.half + ROUNDING >= low and one.mean + one.half - ROUNDING <= high for one in found)
    return inside or None


def all_of(verdicts: Sequence[bool | None]) -> bool | None:
    """Of several, all must hold."""
    if any(one is False for one in verdicts):
        return False
    return None if any(one is None for one in verdicts) else True


def ends(found: Found, factor: float = 100, digits: int = 1, unit: str = " %") -> str:
    """The least and the greatest, with where they are."""
    least, most = (pick(found, key=lambda name: found[name].mean) for pick in (min, max))
    if least == most or len(found) == 1:
        return f"{found[least].told(factor, digits)}{unit} ({least})"
    return (
        f"{found[least].told(factor, digits)}{unit} ({least}) to {found[most].told(factor, digits)}{unit} ({most})"
    )


def counted(found: Sequence[Interval]) -> str:
    """At how many points it is above zero, below, and neither."""
    above, below = sum(one.is_above for one in found), sum(one.is_below for one in found)
    return f"above at {above} of {len(found)} points, below at {below}"
