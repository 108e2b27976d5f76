"""What Sourlas et al. (2011, section 7) say of their models (Figs. 4 and 5), and the list of all claims.

What the paper says without a number gets one here, which the text of the claim tells.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from newsstand.lab import survival2011_policy_claims as of_policies
from newsstand.lab.claims import Claim, judged
from newsstand.lab.intervals import Interval
from newsstand.lab.survival2011 import AXES
from newsstand.lab.survival2011_kinds import all_of, below_everywhere, counted, ends, within
from newsstand.lab.survival2011_measured import MODELS, Measured, straightness
from newsstand.lab.survival2011_tasks import EXACT, REDUCED

ACCURATE, STRAIGHT, INVARIANT = 0.01, 0.99, 0.05
GUESSED = "How often copies of other messages come is guessed from how many copies a message has itself"
WHY = {
    "Fig5-error": GUESSED,
    "Fig6-priority-brokers": "The more brokers, the more copies there are in any case, and these keep messages "
    "alive without priority, too",
    "Fig7-priority": "What reaches 40 % is by how much priority moves the two classes apart",
}
"""Why a claim does not hold, where it does not, as far as we can tell."""


def claims(measured: Measured) -> list[Claim]:
    """Every claim, in the paper's order."""
    return judged(CLAIMS, measured, WHY)


def _predicted(m: Measured) -> list[Claim]:
    found = {
        method: {name: m.single_error(setting, "mst", method) for name, setting in m.singles.items()}
        for method in (EXACT, REDUCED)
    }
    every = [one for of in found.values() for one in of.values()]
    largest = max(every, key=lambda one: abs(one.mean))
    return [
        Claim(
            "Fig4-mst",
            f"Both models of one broker predict the mean survival time (within {ACCURATE:.0%} of the simulation).",
            "very accurately",
            f"{largest.told(100)} % off at most, at {len(every) // 2} points. One cache is always full, so by "
            "Little's law the mean is k/λ_b in any model that is right",
            within(every, -ACCURATE, ACCURATE),
        )
    ]


def _difference(m: Measured) -> list[Claim]:
    found = [m.single_difference(setting, "mst") for setting in m.singles.values()]
    tiny = sum(one < 1e-4 for one in found)
    return [
        Claim(
            "Fig4-difference",
            "The reduced chain differs from the two-dimensional one by less than 1 % in the mean survival time.",
            "always below 1 %",
            f"at most {max(found):.1g}, at {len(found)} points",
            max(found) < 0.01,
        ),
        Claim(
            "Fig4-difference-many",
            "In many cases by less than 0.0001 (at half of the points or more).",
            "below 0.0001 in many cases",
            f"at {tiny} of {len(found)} points",
            2 * tiny >= len(found),
        ),
    ]


def _falls(axis: str, paper: str) -> Callable[[Measured], list[Claim]]:
    def judge(m: Measured) -> list[Claim]:
        points = m.experiment.curve(axis).points
        steps = [
            m.grows(lambda one: m.simulated(one).mst, points[a], points[b]) for a, b in itertools.pairwise(points)
        ]
        first, last = (m.mst(points[x]) for x in (min(points), max(points)))
        return [
            Claim(
                f"Fig5-{axis.replace('_', '-')}",
                f"The mean survival time falls with {AXES[axis]}, at every step.",
                paper,
                f"{first.told(sign='')} at {min(points):g} to {last.told(sign='')} at {max(points):g}; "
                f"steps {counted(steps)}",
                below_everywhere(steps),
            )
        ]

    return judge


def _linear(axis: str) -> Callable[[Measured], list[Claim]]:
    def judge(m: Measured) -> list[Claim]:
        points = m.experiment.curve(axis).points
        of = {x: m.mst(setting).mean for x, setting in points.items()}
        straight = straightness(of)
        grows = all(a < b for a, b in itertools.pairwise(of.values()))
        return [
            Claim(
                f"Fig5-{axis}",
                f"It grows linearly with {AXES[axis]} (R² of a line at least {STRAIGHT}).",
                "linearly",
                f"R² {straight:.4f}; {', '.join(f'{value:.4g}' for value in of.values())} at "
                f"{', '.join(f'{x:g}' for x in of)}",
                grows and straight >= STRAIGHT,
            )
        ]

    return judge


def _error(m: Measured) -> list[Claim]:
    found = {name: m.error(setting, REDUCED) for name, setting in m.networks.items() if setting.brokers > 1}
    inside = sum(within([one], -0.1, 0.1) is True for one in found.values())
    return [
        Claim(
            "Fig5-error",
            "The paper's model of several brokers is at most 10 % off.",
            "at most 10 %",
            f"{ends(found)}; within 10 % at {inside} of {len(found)} points",
            within(list(found.values()), -0.1, 0.1),
        )
    ]


def _error_grows(axis: str) -> Callable[[Measured], list[Claim]]:
    def judge(m: Measured) -> list[Claim]:
        points = {x: setting for x, setting in m.experiment.curve(axis).points.items() if setting.brokers > 1}
        more = m.grows(m.errors(REDUCED), points[min(points)], points[max(points)])
        told = ", ".join(f"{m.error(setting, REDUCED).mean:+.1%} at {x:g}" for x, setting in points.items())
        return [
            Claim(
                f"Fig5-error-{axis}",
                f"Its error grows with {AXES[axis]} (from the first point to the last).",
                "seems to increase",
                f"{told}; {more.told(100, 1)} points more",
                None if not more.is_known else True if more.is_above else False if more.is_below else None,
            )
        ]

    return judge


def _invariant(m: Measured) -> list[Claim]:
    told, verdicts = [], []
    for axis in ("publish_rate", "intensity"):
        found = [m.error(setting, REDUCED) for setting in m.experiment.curve(axis).points.values()]
        least, most = (pick(found, key=lambda one: one.mean) for pick in (min, max))
        # The two ends were simulated apart, so their half widths add up at most.
        spread = Interval(most.mean - least.mean, most.half + least.half)
        told.append(f"{AXES[axis]}: {least.mean:+.1%} to {most.mean:+.1%}")
        verdicts.append(within([spread], high=INVARIANT))
    return [
        Claim(
            "Fig5-error-invariant",
            f"Its error is rather invariant to λ_b and ρ_c (varies by at most {100 * INVARIANT:g} points).",
            "rather invariant",
            "; ".join(told),
            all_of(verdicts),
        )
    ]


def _bounds(m: Measured) -> list[Claim]:
    outside = []
    for point, setting in m.networks.items():
        low, high = setting.bounds
        said = {"simulation": m.mst(setting).mean}
        said |= {name: m.model(setting, model) for model, name in MODELS.items()}
        outside += [
            f"{name} at {point}"
            for name, value in said.items()
            if not low * (1 - 1e-9) <= value <= high * (1 + 1e-9)
        ]
    return [
        Claim(
            "Eq1",
            "Simulation and models are within the bounds k/λ_b and nk/λ_b.",
            "Eq. 1",
            f"at {len(m.networks)} points{': outside are ' + ', '.join(outside) if outside else ''}",
            not outside,
        )
    ]


CLAIMS: Sequence[Callable[[Measured], list[Claim]]] = (
    _predicted,
    _difference,
    _falls("publish_rate", "decreases fast"),
    _falls("intensity", "decreases fast"),
    _linear("brokers"),
    _linear("slots"),
    _error,
    _error_grows("brokers"),
    _error_grows("slots"),
    _invariant,
    _bounds,
    *of_policies.CLAIMS,
)
"""In the paper's order."""
