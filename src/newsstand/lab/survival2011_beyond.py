"""What Sourlas et al. (2011) do not have: whole distributions, and how far models are off all over a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from newsstand.lab.claims import Claim, judged
from newsstand.lab.intervals import Interval
from newsstand.lab.survival2011_kinds import ends, within
from newsstand.lab.survival2011_measured import MODELS, SPREAD, Measured
from newsstand.lab.survival2011_tasks import EXACT, REDUCED
from newsstand.survival.setting import Setting

OURS = "not in the paper"
CLOSE = 0.05
WHY: dict[str, str] = {}
"""Why a claim does not hold, where it does not, as far as we can tell."""


def claims(measured: Measured) -> list[Claim]:
    """Everything that is claimed here and not in the paper."""
    return judged(CLAIMS, measured, WHY)


def _little(m: Measured) -> list[Claim]:
    off = [
        abs(m.single(setting, method).mst[0] * setting.publish_rate / setting.slots - 1)
        for setting in m.singles.values()
        for method in (EXACT, REDUCED)
    ]
    return [
        Claim(
            "little",
            "Both models of one broker give k/λ_b exactly (to 1e-9), as Little's law demands.",
            OURS,
            f"at most {max(off):.1g} off",
            max(off) < 1e-9,
        )
    ]


def _spread(m: Measured) -> list[Claim]:
    """How models of one broker differ: not in the mean, but in everything else."""
    reduced = {
        f"{what} at {name}": m.single_difference(setting, what)
        for name, setting in m.singles.items()
        for what in SPREAD
    }
    worst = max(reduced, key=lambda name: reduced[name])
    exact = {
        f"{what} at {name}": m.single_error(setting, what, EXACT)
        for name, setting in m.singles.items()
        for what in SPREAD
    }
    return [
        Claim(
            "spread-reduced",
            "The reduced chain differs by less than 1 % in deviation and quartiles, too.",
            OURS,
            f"{reduced[worst]:.1%} at most ({worst}); below 1 % in {sum(one < 0.01 for one in reduced.values())} "
            f"of {len(reduced)} cases",
            reduced[worst] < 0.01,
        ),
        Claim(
            "spread-exact",
            f"Deviation and quartiles by the two-dimensional chain are within {CLOSE:.0%} of the simulation.",
            OURS,
            ends(exact),
            within(list(exact.values()), -CLOSE, CLOSE),
        ),
    ]


def named(setting: Setting) -> str:
    """A point of the grid."""
    return (
        f"{setting.policy}, n {setting.brokers}, k {setting.slots}, ρ_c {setting.intensity:g}, "
        f"λ_b {setting.publish_rate:g}"
    )


def errors(m: Measured, model: str) -> dict[str, Interval]:
    """At every point of the grid."""
    return {named(setting): m.error(setting, model) for setting in m.experiment.grid.settings}


def _map(m: Measured) -> list[Claim]:
    ours, paper = (errors(m, model) for model in ("ours", REDUCED))
    closer = sum(abs(ours[name].mean) < abs(paper[name].mean) for name in ours)
    inside = {
        model: sum(within([one], -CLOSE, CLOSE) is True for one in of.values())
        for model, of in (("ours", ours), ("paper", paper))
    }
    return [
        Claim(
            "map-ours",
            f"Our model of several brokers is within {CLOSE:.0%} of the simulation everywhere.",
            OURS,
            f"{ends(ours)}; within {CLOSE:.0%} at {inside['ours']} of {len(ours)} points, the paper's model at "
            f"{inside['paper']} ({ends(paper)})",
            within(list(ours.values()), -CLOSE, CLOSE),
        ),
        Claim(
            "map-closer",
            "It is closer to the simulation than the paper's model, at every point.",
            OURS,
            f"at {closer} of {len(ours)} points",
            closer == len(ours),
        ),
    ]


CLAIMS: Sequence[Callable[[Measured], list[Claim]]] = (_little, _spread, _map)


def worst_table(measured: Measured, count: int = 12) -> pd.DataFrame:
    """Where each model is farthest off, for people."""
    rows = []
    for model, name in MODELS.items():
        of = errors(measured, model)
        farthest = sorted(of, key=lambda point: -abs(of[point].mean))[:count]
        rows += [{"model": name, "at": point, "error (%)": of[point].told(100, 1)} for point in farthest]
    return pd.DataFrame(rows)
