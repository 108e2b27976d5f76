"""Claims of Sourlas et al. (2011) that are of no kind with others: each in a function of its own.

Where the paper says "up to", what is still that is written here.
"""

from __future__ import annotations

import math
from statistics import fmean

from newsstand.lab.claims import Claim
from newsstand.lab.intervals import Interval, interval
from newsstand.lab.storage2011_kinds import PROPOSED, verdict
from newsstand.lab.storage2011_measured import Measured
from newsstand.lab.storage2011_plans import PAPER

AROUND = 0.05
"""What is "up to 55 %" is at most so far from it."""
EXACTLY, ROUNDED = 1e-9, 0.05
"""Relative deviations that are those of floating-point numbers, and of rounded numbers of brokers."""


def slower(m: Measured) -> list[Claim]:
    """Fig. 4: hops grow by less than the network does, traffic by more."""
    curve = next(iter(m.experiment.of_figures(4)), None)
    if curve is None or len(curve.points) < 2:
        return []
    small, *_, large = curve.points.values()
    larger = large.nodes / small.nodes
    told: list[str] = []
    hops: list[Interval] = []
    loads: list[Interval] = []
    for method in PAPER:
        for what, times in (("mean_hops", hops), ("traffic", loads)):
            first, last = m.values(what, small, method), m.values(what, large, method)
            times.append(interval([last[seed] / first[seed] for seed in first]))
        told.append(f"{method} {hops[-1].mean:.2f} and {loads[-1].mean:.2f} times")
    holds = all(one.mean + one.half < larger for one in hops) and all(
        one.mean - one.half > larger for one in loads
    )
    return [
        Claim(
            "Fig4-slower",
            "Mean hops grow more slowly than the network; traffic does not, as there are more requests.",
            "slower",
            f"{larger:g} times as many brokers: hops and traffic of {', '.join(told)}",
            verdict(holds, hops + loads),
        )
    ]


def same_form(m: Measured) -> list[Claim]:
    """Traffic is hops times requests, of every single run, so that one is enough."""
    told, apart = [], []
    for figure in (5, 6, 7, 8):
        requests = [
            row.traffic / row.mean_hops
            for curve in m.experiment.of_figures(figure)
            for setting in curve.points.values()
            for method in PROPOSED
            for row in m.rows(setting, method).values()
            if row.mean_hops
        ]
        if requests:
            apart.append(max(requests) / min(requests) - 1)
            told.append(f"Fig. {figure}: {apart[-1]:.2%}" if apart[-1] > EXACTLY else f"Fig. {figure}: 0")
    if not told:
        return []
    return [
        Claim(
            "same-form",
            "In Figs. 5 to 8 traffic and mean hops have the same form: what is asked in all stays the same.",
            "the same form",
            f"by how much traffic over hops varies, {', '.join(told)} (in Fig. 8 numbers of brokers are rounded)",
            max(apart) < ROUNDED,
        )
    ]


def four_times(m: Measured) -> list[Claim]:
    """Fig. 8: hops of the proposed algorithm, in those of grd_opt."""
    curves = m.experiment.of_figures(8)
    if not curves:
        return []
    less = [
        m.less(setting, method, "grd_opt", 4)
        for curve in curves
        for setting in curve.points.values()
        for method in PROPOSED
    ]
    told = []
    for curve in curves:
        for method in PROPOSED:
            pairs = [(m.hops(s, method).mean, m.hops(s, "grd_opt").mean) for s in curve.points.values()]
            times = [far / near if near else math.inf for far, near in pairs]
            told.append(f"{method} with {curve.series} {min(times):.1f} to {max(times):.1f} times")
    above = sum(one.is_above for one in less)
    return [
        Claim(
            "Fig8-four-times",
            "When locality varies, the proposed algorithm is at least four times worse than grd_opt.",
            "at least four times",
            f"{', '.join(told)}; clearly more than four times at {above} of {len(less)} points",
            verdict(above == len(less), less),
        )
    ]


def storages(m: Measured) -> list[Claim]:
    """Fig. 8: storages of grd_opt, as multiples of M."""
    times = {
        f"{curve.series}, s_l {x:g}": Interval(of.mean / setting.storages, of.half / setting.storages)
        for curve in m.experiment.of_figures(8)
        for x, setting in curve.points.items()
        if setting.storages
        for of in [m.of("storages", setting, "grd_opt")]
    }
    if not times:
        return []
    least, most = (pick(times, key=lambda name: times[name].mean) for pick in (min, max))
    return [
        Claim(
            "Fig8-storages",
            "It takes three times fewer storages for it.",
            "three times fewer",
            f"grd_opt installs {times[least].told(sign='')} times M ({least}) to {times[most].told(sign='')} "
            f"times M ({most})",
            verdict(all(one.mean + one.half >= 3 for one in times.values()), list(times.values())),
        )
    ]


def hops(m: Measured) -> list[Claim]:
    """Averages over the values of the exponent."""
    found: dict[str, Interval] = {}
    for curve in m.experiment.of_figures(7, 8):
        for method in PROPOSED:
            by_seed = [m.values("mean_hops", setting, method) for setting in curve.points.values()]
            means = [fmean(values[seed] for values in by_seed) for seed in by_seed[0]]
            found[f"{method} in Fig. {curve.figure} with {curve.series}"] = interval(means)
    if not found:
        return []
    inside = [one.mean + one.half >= 1.2 and one.mean - one.half <= 2.3 for one in found.values()]
    return [
        Claim(
            "6.1.2-hops",
            "On average it takes 1.2 to 2.3 hops with storages at 20 % and 10 % of 100 brokers.",
            "1.2 to 2.3",
            ", ".join(f"{name} {one.told(sign='')}" for name, one in found.items()),
            verdict(all(inside), list(found.values())),
        )
    ]


def up_to_55(m: Measured) -> list[Claim]:
    """Figs. 9 and 10 at their last points."""
    gains = {
        f"{method} in Fig. {curve.figure}": m.gain(curve.points[x], method)
        for curve in m.experiment.of_figures(9, 10)
        for x in [list(curve.points)[-1]]
        for method in PROPOSED
    }
    if not gains:
        return []
    largest = max(gains.values(), key=lambda one: one.mean)
    near = largest.mean + largest.half >= 0.55 - AROUND and largest.mean - largest.half <= 0.55 + AROUND
    return [
        Claim(
            "6.2-gain",
            "When popularity or locality is inverted, assigning anew spares up to 55 % of the hops.",
            "up to 55 %",
            ", ".join(f"{name} {one.told(100, 1)} %" for name, one in gains.items())
            + f" (up to: the largest is within {100 * AROUND:g} points)",
            verdict(near, list(gains.values())),
        )
    ]
