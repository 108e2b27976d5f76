"""What Sourlas et al. (2011) do not have: distances to the best plans, plans of ours, and the overlay itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from newsstand.lab.claims import Claim
from newsstand.lab.storage2011_kinds import Within, over
from newsstand.lab.storage2011_measured import Measured
from newsstand.lab.storage2011_plans import EXACT, OPTIMUM, RELAXED, SWAP, Stage
from newsstand.lab.storage2011_workload import Setting

OURS = "not in the paper"
ALMOST_ALL, MOST = 0.9, 0.5
"""Of the distance to the bound."""


def claims(measured: Measured) -> list[Claim]:
    """Everything that is claimed here and not in the paper."""
    return [claim for judged in CLAIMS for claim in judged(measured)]


def _carried_out(m: Measured) -> list[Claim]:
    """Of every single run, so that one is enough."""
    pairs = [
        (row.mean_hops, m.rows(setting, "wrr")[seed].mean_hops)
        for setting in m.experiment.overlays
        for seed, row in m.rows(setting, "wrr", Stage.CARRIED_OUT).items()
    ]
    if not pairs:
        return []
    largest = max(abs(found - told) for found, told in pairs)
    return [
        Claim(
            "overlay",
            "Requests in the overlay, with storages where a plan has them, cross as many links as the plan says.",
            OURS,
            f"{len(pairs)} networks of {m.experiment.overlays[0].nodes} brokers, {min(pairs)[0]:.3f} to "
            f"{max(pairs)[0]:.3f} hops; largest difference {largest:.1g}",
            largest == 0,
        )
    ]


def _gaps(m: Measured) -> list[Claim]:
    """What branch and bound proved in its time."""
    found = [
        (setting, seed, row) for setting in m.experiment.proven for seed, row in m.rows(setting, EXACT).items()
    ]
    if not found:
        return []
    gaps = [row.gap or 0.0 for _, _, row in found]
    swap = [m.rows(setting, SWAP)[seed].mean_hops / row.mean_hops - 1 for setting, seed, row in found]
    wrr = [m.rows(setting, "wrr")[seed].mean_hops / row.mean_hops - 1 for setting, seed, row in found]
    return [
        Claim(
            "exact",
            "Branch and bound proves a plan within 1 % of the best for each network that it is given.",
            OURS,
            f"{len(found)} networks, {sum(gap == 0 for gap in gaps)} proven to be best, the others within "
            f"{max(gaps):.2%}, in {m.experiment.exact_limit_s:g} s each; above them swap is {min(swap):.1%} to "
            f"{max(swap):.1%}, wrr {min(wrr):.1%} to {max(wrr):.1%}",
            max(gaps) < 0.01,
        )
    ]


CLAIMS: Sequence[Callable[[Measured], list[Claim]]] = (
    Within(
        "swap-wrr",
        "swap has fewer hops than wrr at every point of Figs. 4 to 8.",
        OURS,
        (4, 5, 6, 7, 8),
        over("wrr"),
        high=0,
        methods=(SWAP,),
        strict=True,
    ).judged,
    Within(
        "swap-srl",
        "And fewer than srl.",
        OURS,
        (4, 5, 6, 7, 8),
        over("srl"),
        high=0,
        methods=(SWAP,),
        strict=True,
    ).judged,
    Within(
        "swap-closed",
        f"swap closes at least {MOST:.0%} of the distance from wrr to what no plan can pass.",
        OURS,
        (4, 5, 6, 7, 8),
        Measured.closed,
        low=MOST,
        methods=(SWAP,),
    ).judged,
    Within(
        "relaxed-closed",
        f"relaxed closes at least {ALMOST_ALL:.0%} of it.",
        OURS,
        (4, 5, 6, 7, 8),
        Measured.closed,
        low=ALMOST_ALL,
        methods=(RELAXED,),
    ).judged,
    _gaps,
    Within(
        "grd_opt-optimum",
        "grd_opt is within 10 % of the best that it could do, except where that is no hops at all.",
        OURS,
        (4, 5, 6, 7),
        over(OPTIMUM),
        high=0.10,
        methods=("grd_opt",),
    ).judged,
    Within(
        "swap-reassigned",
        "Assigning anew by swap leaves fewer hops than planning anew by wrr.",
        OURS,
        (9, 10),
        over("wrr", Stage.REASSIGNED),
        high=0,
        methods=(SWAP,),
        strict=True,
    ).judged,
    _carried_out,
)


def table(measured: Measured) -> pd.DataFrame:
    """How far methods are from what no plan can pass, at each point where that was computed."""
    rows = []
    for curve in measured.experiment.of_figures(4, 5, 6, 7, 8):
        for x, setting in curve.points.items():
            if not measured.bound(setting):
                continue
            above = {
                f"{method} above the bound (%)": measured.above_bound(setting, method).told(100, 1)
                for method in ("srl", "wrr", "rnd", SWAP, RELAXED)
            }
            rows.append(
                {"figure": curve.name, "at": f"{x:g}", "runs": len(measured.bound(setting))}
                | above
                | {f"closed by {method} (%)": _share(measured, setting, method) for method in (SWAP, RELAXED)}
            )
    return pd.DataFrame(rows)


def _share(measured: Measured, setting: Setting, method: str) -> str:
    return f"{100 * measured.closed(setting, method).mean:.0f}"
