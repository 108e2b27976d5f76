"""The verdicts on what Sourlas et al. (2011, section 7.3) say of policies (Figs. 6 and 7)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from newsstand.lab.papers.survival2011.experiment import ALL, AXES, FLOODED, LEVELS, NOP, POLICIES, PRT
from newsstand.lab.papers.survival2011.measurements import POPULAR, UNPOPULAR, SurvivalMeasurements
from newsstand.lab.reporting.claims import (
    NEARLY_ALL,
    Finding,
    Judge,
    above_everywhere,
    all_known,
    all_of,
    below_everywhere,
    count_sides,
    ends,
    verdict,
    within,
)
from newsstand.lab.reporting.statistics import Interval, Sample
from newsstand.survival.setting import SurvivalSetting

SMALL_LOSS, ALIKE = 0.01, 0.01
EXPECTED_LOSSES = 10
"""With this many expected losses, at least one should be observed."""
LARGE, TIMES = 0.2, 4.0
UP_TO, AROUND = 0.4, 0.1


def _points(m: SurvivalMeasurements) -> dict[str, SurvivalSetting]:
    """Return all points of Fig. 6 with several brokers; with one, nothing is copied."""
    return {name: setting for name, setting in m.networks.items() if setting.brokers > 1}


def _loss(m: SurvivalMeasurements) -> Iterator[Finding]:
    points = {
        f"{AXES[axis]} {x:g}": setting
        for axis in ("intensity", "brokers")
        for x, setting in m.experiment.curve(axis).points.items()
    }
    none = all(m.loss(setting, ALL).mean == 0 for setting in points.values())
    seen = [setting for setting in points.values() if setting.loss * m.experiment.observations >= EXPECTED_LOSSES]
    some = all(m.loss(setting, policy).mean > 0 for setting in seen for policy in POLICIES[:-1])
    apart = {
        f"{policy} at {name}": Interval(loss.mean - setting.loss, loss.half)
        for name, setting in points.items()
        for policy in POLICIES[:-1]
        for loss in [m.loss(setting, policy)]
    }
    largest = max(apart, key=lambda name: abs(apart[name].mean))
    small = {
        name: m.loss(setting, PRT)
        for name, setting in points.items()
        if setting.intensity > 2 or setting.brokers > 3
    }
    yield Finding(
        "Fig6-loss",
        f"no loss with all-fld-nop: {'yes' if none else 'no'}; with all others some at the {len(seen)} points "
        f"where exp(-nρ_c) of the messages are {EXPECTED_LOSSES} or more: {'yes' if some else 'no'}",
        none and some,
    )
    yield Finding(
        "Fig6-loss-alike",
        f"largest distance {apart[largest].text(100, 2)} points ({largest})",
        within(apart.values(), -ALIKE, ALIKE),
    )
    yield Finding("Fig6-loss-small", ends(small, digits=2), within(small.values(), high=SMALL_LOSS))


def _worst(m: SurvivalMeasurements) -> Iterator[Finding]:
    points = _points(m)
    worst = [
        all(m.excess(setting, policy, ALL).interval.is_above for policy in POLICIES[:-1])
        for setting in points.values()
    ]
    excess = {name: m.excess(setting, PRT, ALL).interval for name, setting in points.items()}
    yield Finding(
        "Fig6-worst",
        f"at {sum(worst)} of {len(worst)} points; sel-sub-prt has more by {ends(excess)}",
        verdict(sum(worst) >= NEARLY_ALL * len(worst), excess.values()),
    )


def _priority(m: SurvivalMeasurements) -> Iterator[Finding]:
    gain = {name: m.excess(setting, PRT, NOP).interval for name, setting in _points(m).items()}
    holds = 2 * sum(one.is_above for one in gain.values()) > len(gain)
    text = f"{ends(gain)}; {count_sides(gain.values())}"
    yield Finding("Fig6-priority", text, verdict(holds, gain.values()))


def _priority_grows(axis: str, least: float, m: SurvivalMeasurements) -> Iterator[Finding]:
    points = m.experiment.curve(axis).points
    gain = {x: m.excess(setting, PRT, NOP) for x, setting in points.items() if setting.brokers > 1}
    more = (gain[max(gain)] - gain[min(gain)]).interval
    texts = ", ".join(f"{one.mean:+.1%} at {x:g}" for x, one in gain.items())
    holds = True if more.mean - more.half > least else False if more.mean + more.half <= least else None
    yield Finding(f"Fig6-priority-{axis}", f"{texts}; {more.text(100, 1)} points from end to end", holds)


def _by_intensity(m: SurvivalMeasurements) -> Iterator[Finding]:
    points = m.experiment.curve("intensity").points
    few, many = points[min(points)], points[max(points)]
    priority, selective = (
        {setting: m.excess(setting, *pair).interval for setting in (few, many)}
        for pair in ((PRT, NOP), (NOP, ALL))
    )
    every = [*priority.values(), *selective.values()]
    rare = selective[few].mean >= max(LARGE, TIMES * priority[few].mean)
    remains = all_of([above_everywhere([priority[many]]), selective[many].mean <= selective[few].mean / 2])
    yield Finding(
        "Fig6-few-clients",
        f"ρ_c {few.intensity:g}: priority {priority[few].text(100, 1)} %, selective caching (sel-sub-nop over "
        f"all-fld-nop) {selective[few].text(100, 1)} %",
        verdict(rare, every),
    )
    yield Finding(
        "Fig6-many-clients",
        f"ρ_c {many.intensity:g}: priority {priority[many].text(100, 1)} %, selective caching "
        f"{selective[many].text(100, 1)} %",
        remains if all_known(every) else None,
    )


def _flooding(m: SurvivalMeasurements) -> Iterator[Finding]:
    points = _points(m)
    copies = {
        name: (m.copies(setting, FLOODED) - m.copies(setting, PRT)).interval for name, setting in points.items()
    }
    excess = {name: m.excess(setting, FLOODED, PRT).interval for name, setting in points.items()}
    yield Finding(
        "3-flooding-copies",
        f"{ends(copies, 1, 3, ' a unit of time')}; {count_sides(copies.values())}",
        above_everywhere(copies.values()),
    )
    yield Finding(
        "3-flooding-survival", f"{ends(excess)}; {count_sides(excess.values())}", below_everywhere(excess.values())
    )


def _apart(m: SurvivalMeasurements) -> Iterator[Finding]:
    first, *ratios = sorted(m.experiment.ratios)
    wins, loses = (
        {f"{ratio} times": (m.of_class(place, ratio) / m.of_class(place, first) - 1).interval for ratio in ratios}
        for place in (POPULAR, UNPOPULAR)
    )
    selective = {
        f"{ratio} times": (m.of_class(POPULAR, ratio, NOP) / m.of_class(UNPOPULAR, ratio, NOP) - 1).interval
        for ratio in ratios
    }
    yield Finding(
        "Fig7-classes",
        f"unpopular {ends(loses)}; popular {ends(wins)}",
        all_of([below_everywhere(loses.values()), above_everywhere(wins.values())]),
    )
    yield Finding("Fig7-selective", ends(selective), above_everywhere(selective.values()))


def _effect(m: SurvivalMeasurements) -> Iterator[Finding]:
    if 2 not in m.experiment.ratios:
        return

    def gain(place: int, level: str) -> Sample:
        return m.of_class(place, 2, PRT, level) / m.of_class(place, 2, NOP, level)

    gains = {
        "Fig7-priority": {level: (gain(POPULAR, level) - 1).interval for level in LEVELS},
        "Fig7-priority-apart": {
            level: (gain(POPULAR, level) / gain(UNPOPULAR, level) - 1).interval for level in LEVELS
        },
    }
    for name, found in gains.items():
        texts = "; ".join(f"{level}: {one.text(100, 1)} %" for level, one in found.items())
        yield Finding(name, texts, within([found[next(iter(LEVELS))]], UP_TO - AROUND, UP_TO + AROUND))


JUDGES: tuple[Judge[SurvivalMeasurements], ...] = (
    _loss,
    _worst,
    _priority,
    partial(_priority_grows, "brokers", 0.05),
    partial(_priority_grows, "slots", 0.0),
    _by_intensity,
    _flooding,
    _apart,
    _effect,
)
