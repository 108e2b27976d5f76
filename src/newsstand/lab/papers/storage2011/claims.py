"""The verdicts on Sourlas et al. (2011, section 6, abstract, conclusion), and extensions of the paper.

A number that the paper gives for all points of some figures fails if at any of them the 95 % interval lies wholly
outside what it says; that something is larger fails unless all of the interval is above zero; a trend fails if any
step of the mean goes against it. One run has no intervals, so that nothing is judged by it. The extensions are
distances to the best plans, our plans, and the overlay.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from newsstand.lab.papers.storage2011.experiment import PlanningMeasurements
from newsstand.lab.papers.storage2011.plans import (
    EXACT,
    OPTIMUM,
    PAPER,
    RELAXED,
    SWAP,
    PlanningSetting,
    PlanningStage,
)
from newsstand.lab.reporting.claims import (
    Claim,
    Finding,
    Intervals,
    Judge,
    all_known,
    extremes,
    judge_all,
    verdict,
)
from newsstand.lab.reporting.report import Row
from newsstand.lab.reporting.statistics import Interval

PROPOSED = ("srl", "wrr")
Share = Callable[[PlanningMeasurements, PlanningSetting, str], Interval]
"""The judged share of a setting and a method."""


@dataclass(frozen=True)
class ShareWithin:
    """A claim: a share is between two bounds at every point of some figures, for each of some methods."""

    id: str
    figures: tuple[int, ...]
    share: Share
    low: float = -math.inf
    high: float = math.inf
    methods: tuple[str, ...] = PROPOSED
    where: Callable[[float], bool] = lambda _: True
    """The values on the axis that are judged."""
    strict: bool = False
    """All of the interval has to be within the bounds."""

    def __call__(self, m: PlanningMeasurements) -> Iterator[Finding]:
        """Yield the verdict if the figures were run."""
        found = {
            method: {
                f"Fig. {curve.name} at {x:g}": self.share(m, setting, method)
                for curve, x, setting in m.experiment.points(*self.figures)
                if self.where(x)
            }
            for method in self.methods
        }
        if every := [one for of in found.values() for one in of.values()]:
            texts = "; ".join(f"{method} {self._range(of)}" for method, of in found.items())
            yield Finding(self.id, texts, verdict(all(map(self._is_within, every)), every))

    def _is_within(self, one: Interval) -> bool:
        return (one.is_inside if self.strict else one.overlaps)(self.low, self.high)

    def _range(self, of: Intervals) -> str:
        ends = " to ".join(f"{_percent(of[name])} ({name})" for name in extremes(of))
        inside = sum(map(self._is_within, of.values()))
        return f"{ends}, as said at {inside} of {len(of)} points" if all_known(of.values()) else ends


@dataclass(frozen=True)
class CurveTrend:
    """A claim: along a figure a measurement goes one way, with every method named."""

    id: str
    figure: int
    what: str
    grows: bool
    methods: tuple[str, ...] = (*PAPER,)

    def __call__(self, m: PlanningMeasurements) -> Iterator[Finding]:
        """Yield the verdict if the figure was run with several points."""
        for curve in m.experiment.of_figures(self.figure):
            if len(curve.points) < 2:  # one point has no trend
                continue
            texts, wrong, every = [], [], []
            for method in self.methods:
                line = {x: m.of(self.what, setting, method) for x, setting in curve.points.items()}
                first, *_, last = (of.mean for of in line.values())
                texts.append(f"{method} {first:,.4g} to {last:,.4g}")
                for a, b in itertools.pairwise(line):
                    step = (line[b] - line[a]).interval
                    every.append(step)
                    if (step.mean <= 0) if self.grows else (step.mean >= 0):
                        wrong.append(f"{method} from {a:g} to {b:g} ({step.text()})")
            against = f"; against it: {', '.join(wrong)}" if wrong and all_known(every) else ""
            yield Finding(self.id, f"{', '.join(texts)}{against}", verdict(not wrong, every))


def over(other: str, stage: PlanningStage = PlanningStage.PLANNED) -> Share:
    """Return the share by which a method's hops exceed those of another method's plans."""
    return lambda m, setting, method: m.excess(setting, method, other, stage)


def over_replanned(m: PlanningMeasurements, setting: PlanningSetting, method: str) -> Interval:
    """Return the share by which a method's hops after reassigning exceed those after replanning."""
    return m.excess(setting, method, method, PlanningStage.REASSIGNED)


def _percent(one: Interval) -> str:
    return "without limit" if math.isinf(one.mean) else f"{one.text(100, 1)} %"


AROUND = 0.05
"""Tolerance of "up to 55 %"."""
EXACTLY, ROUNDED = 1e-9, 0.05
"""Relative deviations that are those of floating-point numbers, and of rounded numbers of brokers."""


def slower(m: PlanningMeasurements) -> Iterator[Finding]:
    """Judge Fig. 4: hops grow by less than the network does, traffic by more."""
    for curve in m.experiment.of_figures(4):
        if len(curve.points) < 2:
            continue
        small, *_, large = curve.points.values()
        larger = large.nodes / small.nodes
        hops, loads = (
            {method: (m.of(what, large, method) / m.of(what, small, method)).interval for method in PAPER}
            for what in ("mean_hops", "traffic")
        )
        texts = [f"{method} {hops[method].mean:.2f} and {loads[method].mean:.2f} times" for method in PAPER]
        below = all(one.mean + one.half < larger for one in hops.values())
        above = all(one.mean - one.half > larger for one in loads.values())
        yield Finding(
            "Fig4-slower",
            f"{larger:g} times as many brokers: hops and traffic of {', '.join(texts)}",
            verdict(below and above, [*hops.values(), *loads.values()]),
        )


def same_form(m: PlanningMeasurements) -> Iterator[Finding]:
    """Judge that traffic is hops times requests, of every single run, so that one is enough."""
    texts, apart = [], []
    for figure in (5, 6, 7, 8):
        requests = [
            row.traffic / row.mean_hops
            for _, _, setting in m.experiment.points(figure)
            for method in PROPOSED
            for row in m.rows(setting, method).values()
            if row.mean_hops
        ]
        if requests:
            apart.append(max(requests) / min(requests) - 1)
            texts.append(f"Fig. {figure}: {apart[-1]:.2%}" if apart[-1] > EXACTLY else f"Fig. {figure}: 0")
    if texts:
        yield Finding(
            "same-form",
            f"by how much traffic over hops varies, {', '.join(texts)} (in Fig. 8 numbers of brokers are rounded)",
            max(apart) < ROUNDED,
        )


def four_times(m: PlanningMeasurements) -> Iterator[Finding]:
    """Judge Fig. 8: hops of the proposed algorithm, in those of grd_opt."""
    texts, less = [], []
    for curve, method in itertools.product(m.experiment.of_figures(8), PROPOSED):
        pairs = [(m.hops(setting, method), m.hops(setting, "grd_opt")) for setting in curve.points.values()]
        less += [(far - near * 4).interval for far, near in pairs]
        times = [far.mean / near.mean if near.mean else math.inf for far, near in pairs]
        texts.append(f"{method} with {curve.series} {min(times):.1f} to {max(times):.1f} times")
    if texts:
        above = sum(one.is_above for one in less)
        yield Finding(
            "Fig8-four-times",
            f"{', '.join(texts)}; clearly more than four times at {above} of {len(less)} points",
            verdict(above == len(less), less),
        )


def storages(m: PlanningMeasurements) -> Iterator[Finding]:
    """Judge Fig. 8: storages of grd_opt, as multiples of M."""
    times = {
        f"{curve.series}, s_l {x:g}": (m.of("storages", setting, "grd_opt") / setting.storages).interval
        for curve, x, setting in m.experiment.points(8)
        if setting.storages
    }
    if times:
        texts = " to ".join(f"{times[name].text(sign='')} times M ({name})" for name in extremes(times))
        holds = all(one.overlaps(3, math.inf) for one in times.values())
        yield Finding("Fig8-storages", f"grd_opt installs {texts}", verdict(holds, times.values()))


def hops(m: PlanningMeasurements) -> Iterator[Finding]:
    """Judge averages over the values of the exponent."""
    found: dict[str, Interval] = {}
    for curve, method in itertools.product(m.experiment.of_figures(7, 8), PROPOSED):
        first, *others = (m.hops(setting, method) for setting in curve.points.values())
        average = sum(others, first) / (len(others) + 1)
        found[f"{method} in Fig. {curve.figure} with {curve.series}"] = average.interval
    if found:
        texts = ", ".join(f"{name} {one.text(sign='')}" for name, one in found.items())
        inside = all(one.overlaps(1.2, 2.3) for one in found.values())
        yield Finding("6.1.2-hops", texts, verdict(inside, found.values()))


def up_to_55(m: PlanningMeasurements) -> Iterator[Finding]:
    """Judge Figs. 9 and 10 at their last points."""
    gains = {
        f"{method} in Fig. {curve.figure}": m.gain([*curve.points.values()][-1], method)
        for curve, method in itertools.product(m.experiment.of_figures(9, 10), PROPOSED)
    }
    if gains:
        largest = max(gains.values(), key=lambda one: one.mean)
        texts = ", ".join(f"{name} {one.text(100, 1)} %" for name, one in gains.items())
        yield Finding(
            "6.2-gain",
            f"{texts} (up to: the largest is within {100 * AROUND:g} points)",
            verdict(largest.overlaps(0.55 - AROUND, 0.55 + AROUND), gains.values()),
        )


def claims(measured: PlanningMeasurements) -> list[Claim]:
    """Return every claim that the experiment allows to judge, in the paper's order."""
    return judge_all("storage2011", JUDGES, measured)


GAIN = PlanningMeasurements.gain
JUDGES: tuple[Judge[PlanningMeasurements], ...] = (
    ShareWithin("6.1.1-rnd", (4, 5, 6), over("rnd"), high=0, strict=True),
    ShareWithin("6.1.1-rnd-range", (4, 5, 6), over("rnd"), -0.25, -0.05),
    ShareWithin("6.1.1-grd", (4, 5, 6), over("grd_opt"), high=0.10),
    ShareWithin("6.1.1-wrr-srl-better", (4, 5, 6), over("srl"), high=0, methods=("wrr",), strict=True),
    ShareWithin("6.1.1-wrr-srl", (4, 5, 6), over("srl"), -0.17, -0.04, methods=("wrr",)),
    CurveTrend("Fig4-hops", 4, "mean_hops", grows=True),
    CurveTrend("Fig4-traffic", 4, "traffic", grows=True),
    slower,
    CurveTrend("Fig5-hops", 5, "mean_hops", grows=False, methods=("srl", "wrr", "rnd")),
    CurveTrend("Fig6-hops", 6, "mean_hops", grows=False),
    same_form,
    ShareWithin("Fig7-rnd", (7,), over("rnd"), high=0, strict=True),
    ShareWithin("Fig7-rnd-range", (7,), over("rnd"), -0.25, -0.10),
    ShareWithin("Fig7-grd", (7,), over("grd_opt"), high=0.09),
    four_times,
    storages,
    hops,
    ShareWithin("abstract", (4, 5, 6, 7), over("grd_opt"), high=0.15),
    up_to_55,
    ShareWithin("6.2-replanned", (9, 10), over_replanned, high=0.08),
    ShareWithin("6.2-replanned-conclusion", (9, 10), over_replanned, high=0.10),
    ShareWithin("6.2-popularity", (9,), GAIN, high=0.10, where=lambda s: -1 < s <= -0.5),
    ShareWithin("6.2-locality", (10,), GAIN, low=0.15, where=lambda s: s > -0.75),
)


ALMOST_ALL, MOST = 0.9, 0.5
"""Shares of the distance to the bound."""


def extension_claims(measured: PlanningMeasurements) -> list[Claim]:
    """Return everything that is claimed here and not in the paper."""
    return judge_all("storage2011", EXTENSION_JUDGES, measured)


def _carried_out(m: PlanningMeasurements) -> Iterator[Finding]:
    """Judge every single run, so that one is enough."""
    pairs = [
        (row.mean_hops, m.rows(setting, "wrr")[seed].mean_hops)
        for setting in m.experiment.overlays
        for seed, row in m.rows(setting, "wrr", PlanningStage.CARRIED_OUT).items()
    ]
    if pairs:
        largest = max(abs(carried - planned) for carried, planned in pairs)
        yield Finding(
            "overlay",
            f"{len(pairs)} networks of {m.experiment.overlays[0].nodes} brokers, {min(pairs)[0]:.3f} to "
            f"{max(pairs)[0]:.3f} hops; largest difference {largest:.1g}",
            largest == 0,
        )


def _gaps(m: PlanningMeasurements) -> Iterator[Finding]:
    """Judge what branch and bound proved in its time."""
    proven = m.experiment.proven
    gaps = [row.gap or 0.0 for setting in proven for row in m.rows(setting, EXACT).values()]
    if gaps:
        swap, wrr = (
            [one - 1 for setting in proven for one in (m.hops(setting, method) / m.hops(setting, EXACT)).values()]
            for method in (SWAP, "wrr")
        )
        yield Finding(
            "exact",
            f"{len(gaps)} networks, {sum(gap == 0 for gap in gaps)} proven to be best, the others within "
            f"{max(gaps):.2%}, in {m.experiment.exact_limit_s:g} s each; above them swap is {min(swap):.1%} to "
            f"{max(swap):.1%}, wrr {min(wrr):.1%} to {max(wrr):.1%}",
            max(gaps) < 0.01,
        )


DRAWN = (4, 5, 6, 7, 8)
CLOSED = PlanningMeasurements.closed
EXTENSION_JUDGES: tuple[Judge[PlanningMeasurements], ...] = (
    ShareWithin("swap-wrr", DRAWN, over("wrr"), high=0, methods=(SWAP,), strict=True),
    ShareWithin("swap-srl", DRAWN, over("srl"), high=0, methods=(SWAP,), strict=True),
    ShareWithin("swap-closed", DRAWN, CLOSED, low=MOST, methods=(SWAP,)),
    ShareWithin("relaxed-closed", DRAWN, CLOSED, low=ALMOST_ALL, methods=(RELAXED,)),
    _gaps,
    ShareWithin("grd_opt-optimum", (4, 5, 6, 7), over(OPTIMUM), high=0.10, methods=("grd_opt",)),
    ShareWithin(
        "swap-reassigned", (9, 10), over("wrr", PlanningStage.REASSIGNED), high=0, methods=(SWAP,), strict=True
    ),
    _carried_out,
)


def bound_table(measured: PlanningMeasurements) -> Iterator[Row]:
    """Yield how far methods are from what no plan can pass, at each point where that was computed."""
    for curve, x, setting in measured.experiment.points(*DRAWN):
        if bound := measured.bound(setting):
            row = {"figure": curve.name, "at": f"{x:g}", "runs": len(bound)}
            for method in ("srl", "wrr", "rnd", SWAP, RELAXED):
                row[f"{method} above the bound (%)"] = measured.above_bound(setting, method).text(100, 1)
            for method in (SWAP, RELAXED):
                row[f"closed by {method} (%)"] = f"{100 * measured.closed(setting, method).mean:.0f}"
            yield row
