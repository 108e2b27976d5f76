"""The verdicts on what Sourlas et al. (2011, section 7) say of their models (Figs. 4 and 5), and all claims.

Extensions of the paper are complete distributions, and the errors of models over a grid.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from newsstand.lab.papers.survival2011 import policy_claims
from newsstand.lab.papers.survival2011.experiment import AXES, EXACT, REDUCED
from newsstand.lab.papers.survival2011.measurements import MODELS, SPREAD, SurvivalMeasurements, straightness
from newsstand.lab.reporting.claims import (
    Claim,
    Finding,
    Intervals,
    Judge,
    above,
    all_of,
    below_everywhere,
    count_sides,
    ends,
    judge_all,
    within,
)
from newsstand.lab.reporting.report import Row
from newsstand.lab.reporting.statistics import Interval
from newsstand.survival.setting import SurvivalSetting

ACCURATE, STRAIGHT, INVARIANT = 0.01, 0.99, 0.05


def claims(measured: SurvivalMeasurements) -> list[Claim]:
    """Return every claim, in the paper's order."""
    return judge_all("survival2011", (*JUDGES, *policy_claims.JUDGES), measured)


def _predicted(m: SurvivalMeasurements) -> Iterator[Finding]:
    every = [
        m.single_error(setting, "mst", method) for setting in m.singles.values() for method in (EXACT, REDUCED)
    ]
    largest = max(every, key=lambda one: abs(one.mean))
    yield Finding(
        "Fig4-mst",
        f"{largest.text(100)} % off at most, at {len(m.singles)} points. One cache is always full, so by "
        "Little's law the mean is k/λ_b in any model that is right",
        within(every, -ACCURATE, ACCURATE),
    )


def _difference(m: SurvivalMeasurements) -> Iterator[Finding]:
    found = [m.single_difference(setting, "mst") for setting in m.singles.values()]
    tiny = sum(one < 1e-4 for one in found)
    yield Finding("Fig4-difference", f"at most {max(found):.1g}, at {len(found)} points", max(found) < 0.01)
    yield Finding("Fig4-difference-many", f"at {tiny} of {len(found)} points", 2 * tiny >= len(found))


def _falls(axis: str, m: SurvivalMeasurements) -> Iterator[Finding]:
    line = {x: m.mst(setting) for x, setting in m.experiment.curve(axis).points.items()}
    steps = [(line[b] - line[a]).interval for a, b in itertools.pairwise(line)]
    texts = " to ".join(f"{line[x].interval.text(sign='')} at {x:g}" for x in (min(line), max(line)))
    name = f"Fig5-{axis.replace('_', '-')}"
    yield Finding(name, f"{texts}; steps {count_sides(steps)}", below_everywhere(steps))


def _linear(axis: str, m: SurvivalMeasurements) -> Iterator[Finding]:
    line = {x: m.mst(setting).mean for x, setting in m.experiment.curve(axis).points.items()}
    straight = straightness(line)
    grows = all(a < b for a, b in itertools.pairwise(line.values()))
    yield Finding(
        f"Fig5-{axis}",
        f"R² {straight:.4f}; {', '.join(f'{value:.4g}' for value in line.values())} at "
        f"{', '.join(f'{x:g}' for x in line)}",
        grows and straight >= STRAIGHT,
    )


def _error(m: SurvivalMeasurements) -> Iterator[Finding]:
    found = {
        name: m.error(setting, REDUCED).interval for name, setting in m.networks.items() if setting.brokers > 1
    }
    inside = sum(within([one], -0.1, 0.1) is True for one in found.values())
    yield Finding(
        "Fig5-error",
        f"{ends(found)}; within 10 % at {inside} of {len(found)} points",
        within(found.values(), -0.1, 0.1),
    )


def _error_grows(axis: str, m: SurvivalMeasurements) -> Iterator[Finding]:
    points = m.experiment.curve(axis).points
    errors = {x: m.error(setting, REDUCED) for x, setting in points.items() if setting.brokers > 1}
    more = (abs(errors[max(errors)]) - abs(errors[min(errors)])).interval
    texts = ", ".join(f"{error.mean:+.1%} at {x:g}" for x, error in errors.items())
    yield Finding(f"Fig5-error-{axis}", f"{texts}; {more.text(100, 1)} points more", above(more))


def _invariant(m: SurvivalMeasurements) -> Iterator[Finding]:
    texts, verdicts = [], []
    for axis in ("publish_rate", "intensity"):
        found = [m.error(setting, REDUCED).interval for setting in m.experiment.curve(axis).points.values()]
        least, most = (pick(found, key=lambda one: one.mean) for pick in (min, max))
        # The two ends were simulated apart, so their half widths add up at most.
        spread = Interval(most.mean - least.mean, most.half + least.half)
        texts.append(f"{AXES[axis]}: {least.mean:+.1%} to {most.mean:+.1%}")
        verdicts.append(within([spread], high=INVARIANT))
    yield Finding("Fig5-error-invariant", "; ".join(texts), all_of(verdicts))


def _bounds(m: SurvivalMeasurements) -> Iterator[Finding]:
    outside = []
    for point, setting in m.networks.items():
        low, high = setting.bounds
        times = {"simulation": m.mst(setting).mean}
        times |= {name: m.model(setting, model) for model, name in MODELS.items()}
        outside += [
            f"{name} at {point}"
            for name, value in times.items()
            if not low * (1 - 1e-9) <= value <= high * (1 + 1e-9)
        ]
    yield Finding(
        "Eq1",
        f"at {len(m.networks)} points{': outside are ' + ', '.join(outside) if outside else ''}",
        not outside,
    )


JUDGES: tuple[Judge[SurvivalMeasurements], ...] = (
    _predicted,
    _difference,
    *(partial(_falls, axis) for axis in ("publish_rate", "intensity")),
    *(partial(_linear, axis) for axis in ("brokers", "slots")),
    _error,
    *(partial(_error_grows, axis) for axis in ("brokers", "slots")),
    _invariant,
    _bounds,
)


CLOSE = 0.05


def extension_claims(measured: SurvivalMeasurements) -> list[Claim]:
    """Return everything that is claimed here and not in the paper."""
    return judge_all("survival2011", (_little, _spread, _map), measured)


def _little(m: SurvivalMeasurements) -> Iterator[Finding]:
    off = [
        abs(m.single(setting, method).mst[0] * setting.publish_rate / setting.slots - 1)
        for setting in m.singles.values()
        for method in (EXACT, REDUCED)
    ]
    yield Finding("little", f"at most {max(off):.1g} off", max(off) < 1e-9)


def _spread(m: SurvivalMeasurements) -> Iterator[Finding]:
    """Judge how models of one broker differ: not in the mean, but in everything else."""
    cases = {f"{what} at {name}": (setting, what) for name, setting in m.singles.items() for what in SPREAD}
    reduced = {name: m.single_difference(*case) for name, case in cases.items()}
    exact = {name: m.single_error(*case, EXACT) for name, case in cases.items()}
    worst = max(reduced, key=lambda name: reduced[name])
    yield Finding(
        "spread-reduced",
        f"{reduced[worst]:.1%} at most ({worst}); below 1 % in {sum(one < 0.01 for one in reduced.values())} "
        f"of {len(reduced)} cases",
        reduced[worst] < 0.01,
    )
    yield Finding("spread-exact", ends(exact), within(exact.values(), -CLOSE, CLOSE))


def named(setting: SurvivalSetting) -> str:
    """Return a point of the grid."""
    return (
        f"{setting.policy}, n {setting.brokers}, k {setting.slots}, ρ_c {setting.intensity:g}, "
        f"λ_b {setting.publish_rate:g}"
    )


def errors(m: SurvivalMeasurements, model: str) -> Intervals:
    """Return the error of a model at every point of the grid."""
    return {named(setting): m.error(setting, model).interval for setting in m.experiment.grid.settings}


def _map(m: SurvivalMeasurements) -> Iterator[Finding]:
    ours, paper = (errors(m, model) for model in ("ours", REDUCED))
    closer = sum(abs(ours[name].mean) < abs(paper[name].mean) for name in ours)
    inside = {
        model: sum(within([one], -CLOSE, CLOSE) is True for one in of.values())
        for model, of in (("ours", ours), ("paper", paper))
    }
    yield Finding(
        "map-ours",
        f"{ends(ours)}; within {CLOSE:.0%} at {inside['ours']} of {len(ours)} points, the paper's model at "
        f"{inside['paper']} ({ends(paper)})",
        within(ours.values(), -CLOSE, CLOSE),
    )
    yield Finding("map-closer", f"at {closer} of {len(ours)} points", closer == len(ours))


def worst_table(measured: SurvivalMeasurements, count: int = 12) -> Iterator[Row]:
    """Yield the points where each model is farthest off."""
    for model, name in MODELS.items():
        of = errors(measured, model)
        for point in sorted(of, key=lambda point: -abs(of[point].mean))[:count]:
            yield {"model": name, "at": point, "error (%)": of[point].text(100, 1)}
