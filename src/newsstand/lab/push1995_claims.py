"""What Gwertzman and Seltzer say of push-caching, in the chapter of 1995, the thesis and the paper of 1997."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from newsstand.lab.claims import Claim, judged
from newsstand.lab.intervals import Interval, interval
from newsstand.lab.push1995 import CENTRE, STRATEGIES, Measured
from newsstand.lab.push_cache_setting import PushCacheSetting
from newsstand.lab.survival2011_kinds import all_of

FLAT = 0.02
"""Shares of traffic that differ by less are the same."""
INFINITE = replace(CENTRE, client_cache="infinite")
Verdict = bool | None


def claims(measured: Measured) -> list[Claim]:
    """Every claim, with its verdict."""
    return judged(CLAIMS, measured, {})


def by(strategy: str, **values: int) -> PushCacheSetting:
    """The usual setting with one strategy for caching and lookup."""
    return replace(CENTRE, caching=strategy, lookup=strategy, **values)  # type: ignore[arg-type]


def above(found: Interval, least: float) -> Verdict:
    """Whether all of an interval is above a number; not if all of it is below; else undecided."""
    moved = Interval(found.mean - least, found.half)
    return True if moved.is_above else False if moved.is_below else None


def _percent(found: Interval) -> str:
    return f"{found.told(100, 1, '')} %"


def _less(many: Sequence[float], few: Sequence[float]) -> Interval:
    """By how much the second is less than the first, seed by seed."""
    return interval([a - b for a, b in zip(many, few, strict=True)])


def _clients(m: Measured) -> list[Claim]:
    found = {name: interval(m.saved_by_clients(name)) for name in ("traffic", "primary_requests")}
    within = [above(Interval(-one.mean, one.half), -0.35) for one in found.values()]
    some = [above(one, 0.0) for one in found.values()]
    return [
        Claim(
            "client-caches",
            "Infinite client caches save up to 30 % of traffic and load (above 0 and below 35 %).",
            "up to 30 %",
            f"traffic {_percent(found['traffic'])}, load {_percent(found['primary_requests'])}",
            all_of([*within, *some]),
        )
    ]


def _best_on_top(m: Measured, name: str) -> str:
    saved = {
        threshold: interval(m.saved(replace(INFINITE, threshold=float(threshold)), name))
        for threshold in m.experiment.thresholds_on_top
    }
    best = max(saved, key=lambda threshold: saved[threshold].mean)
    return (
        f"with the thesis's push-threshold {INFINITE.threshold:g}, which alone is judged; "
        f"of {', '.join(f'{one:g}' for one in saved)} the best is {best:g} with {_percent(saved[best])}"
    )


def _on_top(m: Measured) -> list[Claim]:
    load, traffic = (interval(m.saved(INFINITE, name)) for name in ("primary_requests", "traffic"))
    space = interval(
        [
            one.client_bytes / one.most_stored_bytes if one.most_stored_bytes else 0.0
            for one in m.outcomes(INFINITE)
        ]
    )
    return [
        Claim(
            "push-on-top-load",
            "Pushing on top of client caches saves a further 20 % of load (at least).",
            "20 %",
            f"{_percent(load)} of the requests that servers answer {_best_on_top(m, 'primary_requests')}",
            above(load, 0.2),
        ),
        Claim(
            "push-on-top-traffic",
            "Pushing on top of client caches saves a further 10 % of traffic (at least).",
            "10 %",
            f"{_percent(traffic)} of bytes times hops {_best_on_top(m, 'traffic')}",
            above(traffic, 0.1),
        ),
        Claim(
            "space",
            "Push-caches take an order of magnitude less space than client caches.",
            "an order of magnitude",
            f"{space.told(1, 0, '')} times less",
            above(space, 10.0),
        ),
    ]


def _hops(m: Measured) -> list[Claim]:
    saved = {name: m.saved(by(name), "traffic") for name in STRATEGIES}
    # A quarter more than less than nothing may be less: hops must also save anything, and more than miles.
    beaten = [
        _less(saved["hops"], [1.25 * miles for miles in saved["miles"]]),
        _less(saved["hops"], saved["miles"]),
        interval(saved["hops"]),
    ]
    last = [_less(saved[name], saved["random"]) for name in ("hops", "miles")]
    told = ", ".join(f"{name} {_percent(interval(values))}" for name, values in saved.items())
    traffic = [[one.traffic for one in m.outcomes(by(name))] for name in ("hops", "miles")]
    less = interval([1 - hops / miles for hops, miles in zip(*traffic, strict=True)])
    return [
        Claim(
            "hops-beat-miles",
            "Hops beat miles by at least 25 %, read as of the traffic that pushing saves: hops save some, more "
            "than miles, and at least 1.25 times as much.",
            "at least 25 %, not said of what",
            f"saved: {told}",
            all_of([above(one, 0.0) for one in beaten]),
        ),
        Claim(
            "hops-beat-miles-of-all",
            "Hops beat miles by at least 25 %, read as of all traffic: with hops it is at least 25 % less than "
            "with miles.",
            "at least 25 %, not said of what",
            f"all traffic with hops is {_percent(less)} less than with miles",
            above(less, 0.25),
        ),
        Claim(
            "random-is-worst",
            "Random choice saves least traffic, less than hops and less than miles.",
            "worst",
            f"saved: {told}",
            all_of([above(one, 0.0) for one in last]),
        ),
    ]


def _servers(m: Measured) -> list[Claim]:
    numbers = m.experiment.servers
    few, many = by("hops", servers=numbers[0]), by("hops", servers=numbers[-1])
    gain = _less(m.saved(many, "traffic"), m.saved(few, "traffic"))
    shares = {
        number: [one.active / one.available for one in m.outcomes(by("hops", servers=number))]
        for number in numbers
    }
    falls = [_less(shares[one], shares[other]) for one, other in itertools.pairwise(numbers)]
    told = ", ".join(f"{number}: {_percent(interval(of))}" for number, of in shares.items())
    fallen = _less(shares[numbers[0]], shares[numbers[-1]])
    falling = False if any(one.is_below for one in falls) else True if fallen.is_above else None
    return [
        Claim(
            "more-servers-less-traffic",
            "More push-caches mean less traffic.",
            "less",
            f"{numbers[-1]} save {gain.told(100, 1)} percent points more than {numbers[0]}",
            above(gain, 0.0),
        ),
        Claim(
            "smaller-share-active",
            "More push-caches mean that a smaller share of them is active (it falls from the fewest to the most, "
            "and certainly rises at no step).",
            "smaller",
            f"active: {told}; less at {sum(one.mean > 0 for one in falls)} of {len(falls)} steps",
            falling,
        ),
    ]


def _pages(m: Measured) -> list[Claim]:
    first, last = m.experiment.pages[0], m.experiment.pages[-1]
    costs = {
        name: _less(m.saved(by(name, pages=first), "traffic"), m.saved(by(name, pages=last), "traffic"))
        for name in STRATEGIES
    }
    told = {name: f"{name} {cost.told(100, 1)} percent points" for name, cost in costs.items()}
    near = [
        all_of([above(Interval(FLAT + way * costs[name].mean, costs[name].half), 0.0) for way in (1, -1)])
        for name in ("hops", "miles")
    ]
    return [
        Claim(
            "pages-flat",
            f"Traffic does not depend on pages-to-push with hops and miles (by less than {FLAT:.0%}).",
            "flat",
            f"traffic with {last} pages against {first}: {told['hops']}, {told['miles']}",
            all_of(near),
        ),
        Claim(
            "pages-random",
            "Traffic rises with pages-to-push if the choice is random.",
            "rising",
            f"traffic with {last} pages against {first}: {told['random']}",
            above(costs["random"], 0.0),
        ),
    ]


def _core(m: Measured) -> list[Claim]:
    flat, core = (interval(m.saved(CENTRE, "traffic", kind)) for kind in ("flat", "global"))
    return [
        Claim(
            "no-core-no-gain",
            f"Servers without a core of popular pages gain nothing (less than {FLAT:.0%} of traffic).",
            "nothing",
            f"saved: {_percent(flat)} without a core, {_percent(core)} with one",
            above(Interval(FLAT - flat.mean, flat.half), 0.0),
        )
    ]


CLAIMS: Sequence[Callable[[Measured], list[Claim]]] = (_clients, _on_top, _hops, _servers, _pages, _core)
