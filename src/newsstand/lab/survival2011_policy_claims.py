"""What Sourlas et al. (2011, section 7.3) say of policies (Figs. 6 and 7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from newsstand.lab.claims import Claim
from newsstand.lab.intervals import Interval, interval
from newsstand.lab.survival2011 import ALL, AXES, FLOODED, LEVELS, NOP, POLICIES, PRT
from newsstand.lab.survival2011_kinds import (
    NEARLY_ALL,
    above_everywhere,
    all_of,
    below_everywhere,
    counted,
    ends,
    within,
)
from newsstand.lab.survival2011_measured import POPULAR, UNPOPULAR, Measured
from newsstand.model import OpportunisticPolicy
from newsstand.survival.setting import Setting

SMALL_LOSS, ALIKE = 0.01, 0.01
EXPECTED_LOSSES = 10
"""A loss that so many messages of all are expected to suffer should be seen."""
LARGE, TIMES = 0.2, 4.0
UP_TO, AROUND = 0.4, 0.1


def _points(m: Measured) -> dict[str, Setting]:
    """All points of Fig. 6 with several brokers; with one, nothing is copied."""
    return {name: setting for name, setting in m.networks.items() if setting.brokers > 1}


def _loss_points(m: Measured) -> dict[str, Setting]:
    return {
        f"{AXES[axis]} {x:g}": setting
        for axis in ("intensity", "brokers")
        for x, setting in m.experiment.curve(axis).points.items()
    }


def _loss(m: Measured) -> list[Claim]:
    points = _loss_points(m)
    none = all(m.loss(setting, ALL).mean == 0 for setting in points.values())
    seen = [setting for setting in points.values() if setting.loss * m.experiment.observations >= EXPECTED_LOSSES]
    some = all(m.loss(setting, policy).mean > 0 for setting in seen for policy in POLICIES[:-1])
    apart = {
        f"{policy} at {name}": Interval(m.loss(setting, policy).mean - setting.loss, m.loss(setting, policy).half)
        for name, setting in points.items()
        for policy in POLICIES[:-1]
    }
    largest = max(apart, key=lambda name: abs(apart[name].mean))
    small = {
        name: m.loss(setting, PRT)
        for name, setting in points.items()
        if setting.intensity > 2 or setting.brokers > 3
    }
    return [
        Claim(
            "Fig6-loss",
            "With all-fld-nop alone no message is lost.",
            "P_loss = 0",
            f"no loss with all-fld-nop: {'yes' if none else 'no'}; with all others some at the {len(seen)} points "
            f"where exp(-nρ_c) of the messages are {EXPECTED_LOSSES} or more: {'yes' if some else 'no'}",
            none and some,
        ),
        Claim(
            "Fig6-loss-alike",
            f"The others lose alike, exp(-nρ_c) (within {100 * ALIKE:g} point of percent).",
            "similarly",
            f"largest distance {apart[largest].told(100, 2)} points ({largest})",
            within(list(apart.values()), -ALIKE, ALIKE),
        ),
        Claim(
            "Fig6-loss-small",
            f"Little is lost with ρ_c > 2 or n > 3 (below {SMALL_LOSS:.0%}).",
            "quite small",
            ends(small, digits=2),
            within(list(small.values()), high=SMALL_LOSS),
        ),
    ]


def _worst(m: Measured) -> list[Claim]:
    points = _points(m)
    worst = [all(m.over(setting, policy, ALL).is_above for policy in POLICIES[:-1]) for setting in points.values()]
    known = all(m.over(setting, PRT, ALL).is_known for setting in points.values())
    over = {name: m.over(setting, PRT, ALL) for name, setting in points.items()}
    return [
        Claim(
            "Fig6-worst",
            f"all-fld-nop is worse than all others in almost all settings (at {NEARLY_ALL:.0%} of the points).",
            "almost all",
            f"at {sum(worst)} of {len(worst)} points; sel-sub-prt has more by {ends(over)}",
            sum(worst) >= NEARLY_ALL * len(worst) if known else None,
        )
    ]


def _priority(m: Measured) -> list[Claim]:
    gain = {name: m.over(setting, PRT, NOP) for name, setting in _points(m).items()}
    seen = sum(one.is_above for one in gain.values())
    return [
        Claim(
            "Fig6-priority",
            "Priority prolongs survival in most cases (sel-sub-prt over sel-sub-nop, at over half of the points).",
            "evident in most cases",
            f"{ends(gain)}; {counted(list(gain.values()))}",
            2 * seen > len(gain) if all(one.is_known for one in gain.values()) else None,
        )
    ]


def _priority_grows(axis: str, paper: str, least: float, text: str) -> Callable[[Measured], list[Claim]]:
    def judge(m: Measured) -> list[Claim]:
        points = {x: setting for x, setting in m.experiment.curve(axis).points.items() if setting.brokers > 1}
        gain = {x: m.over(setting, PRT, NOP) for x, setting in points.items()}
        more = m.grows(m.gains(PRT, NOP), points[min(points)], points[max(points)])
        told = ", ".join(f"{one.mean:+.1%} at {x:g}" for x, one in gain.items())
        holds: bool | None = None
        if more.is_known:
            holds = True if more.mean - more.half > least else False if more.mean + more.half <= least else None
        return [
            Claim(
                f"Fig6-priority-{axis}", text, paper, f"{told}; {more.told(100, 1)} points from end to end", holds
            )
        ]

    return judge


def _by_intensity(m: Measured) -> list[Claim]:
    points = m.experiment.curve("intensity").points
    few, many = points[min(points)], points[max(points)]
    priority, selective = (
        {setting: m.over(setting, *pair) for setting in (few, many)} for pair in ((PRT, NOP), (NOP, ALL))
    )
    known = all(one.is_known for of in (priority, selective) for one in of.values())
    rare = selective[few].mean >= max(LARGE, TIMES * priority[few].mean)
    kept = all_of([above_everywhere([priority[many]]), selective[many].mean <= selective[few].mean / 2])
    return [
        Claim(
            "Fig6-few-clients",
            f"With few clients priority gains little and selective caching much (at least {LARGE:.0%}, and "
            f"{TIMES:g} times as much).",
            "very small, very large",
            f"ρ_c {few.intensity:g}: priority {priority[few].told(100, 1)} %, selective caching (sel-sub-nop over "
            f"all-fld-nop) {selective[few].told(100, 1)} %",
            rare if known else None,
        ),
        Claim(
            "Fig6-many-clients",
            "With many clients priority still gains something, selective caching not that much (at most half of "
            "what it does with few).",
            "retained; not that much",
            f"ρ_c {many.intensity:g}: priority {priority[many].told(100, 1)} %, selective caching "
            f"{selective[many].told(100, 1)} %",
            kept if known else None,
        ),
    ]


def _flooding(m: Measured) -> list[Claim]:
    points = _points(m)
    copies = {name: m.copies_over(setting, FLOODED, PRT) for name, setting in points.items()}
    over = {name: m.over(setting, FLOODED, PRT) for name, setting in points.items()}
    return [
        Claim(
            "3-flooding-copies",
            "Flooded requests bring more copies than those along subscriptions (sel-fld-prt over sel-sub-prt).",
            "copying rate is higher",
            f"{ends(copies, 1, 3, ' a unit of time')}; {counted(list(copies.values()))}",
            above_everywhere(list(copies.values())),
        ),
        Claim(
            "3-flooding-survival",
            "And so messages survive less long.",
            "smaller MST",
            f"{ends(over)}; {counted(list(over.values()))}",
            below_everywhere(list(over.values())),
        ),
    ]


def _apart(m: Measured) -> list[Claim]:
    first, *ratios = sorted(m.experiment.ratios)
    wins, loses = (
        {f"{ratio} times": _change(m, ratio, first, place) for ratio in ratios} for place in (POPULAR, UNPOPULAR)
    )
    selective = {f"{ratio} times": interval(_ratio(m, ratio, policy=NOP)) for ratio in ratios}
    return [
        Claim(
            "Fig7-classes",
            "Unpopular messages survive less long, popular ones longer, than if all were alike (sel-sub-prt).",
            "reduced significantly; popular ones use the space",
            f"unpopular {ends(loses)}; popular {ends(wins)}",
            all_of([below_everywhere(list(loses.values())), above_everywhere(list(wins.values()))]),
        ),
        Claim(
            "Fig7-selective",
            "Selective caching alone tells the classes apart (sel-sub-nop: popular over unpopular).",
            "an important tool",
            ends(selective),
            above_everywhere(list(selective.values())),
        ),
    ]


def _effect(m: Measured) -> list[Claim]:
    if 2 not in m.experiment.ratios:
        return []
    popular = {level: interval(_gain(m, 2, POPULAR, level)) for level in LEVELS}
    apart = {
        level: interval(
            [(1 + a) / (1 + b) - 1 for a, b in zip(_ratio(m, 2, level), _ratio(m, 2, level, NOP), strict=True)]
        )
        for level in LEVELS
    }
    taken = next(iter(LEVELS))
    bounds = (UP_TO - AROUND, UP_TO + AROUND)
    return [
        Claim(
            "Fig7-priority",
            f"With twice as many clients, priority prolongs the survival of popular messages by 40 % "
            f"(± {100 * AROUND:g} points).",
            "up to 40 %",
            "; ".join(f"{level}: {one.told(100, 1)} %" for level, one in popular.items()),
            within([popular[taken]], *bounds),
        ),
        Claim(
            "Fig7-priority-apart",
            "Or, if that is meant, it raises the ratio of popular to unpopular survival times by that much.",
            "up to 40 %",
            "; ".join(f"{level}: {one.told(100, 1)} %" for level, one in apart.items()),
            within([apart[taken]], *bounds),
        ),
    ]


def _change(m: Measured, ratio: float, first: float, place: int) -> Interval:
    pair = (m.classes(one).class_mst[place] for one in (ratio, first))
    return interval([a / b - 1 for a, b in zip(*pair, strict=True)])


def _gain(m: Measured, ratio: float, place: int, level: str) -> list[float]:
    """Of priority, for one class."""
    pair = (m.classes(ratio, policy, level).class_mst[place] for policy in (PRT, NOP))
    return [a / b - 1 for a, b in zip(*pair, strict=True)]


def _ratio(
    m: Measured, ratio: float, level: str = next(iter(LEVELS)), policy: OpportunisticPolicy = PRT
) -> list[float]:
    """By which share popular messages survive longer than unpopular ones."""
    unpopular, popular = m.classes(ratio, policy, level).class_mst
    return [a / b - 1 for a, b in zip(popular, unpopular, strict=True)]


CLAIMS: Sequence[Callable[[Measured], list[Claim]]] = (
    _loss,
    _worst,
    _priority,
    _priority_grows(
        "brokers",
        "increases importantly",
        0.05,
        "Its gain grows clearly with n (by more than 5 points of percent).",
    ),
    _priority_grows("slots", "increases slowly", 0.0, "Its gain grows with k, if slowly."),
    _by_intensity,
    _flooding,
    _apart,
    _effect,
)
