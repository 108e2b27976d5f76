"""The verdicts on Gwertzman and Seltzer's push-caching: the chapter of 1995, the thesis, the paper of 1997."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from newsstand.lab.papers.push1995.experiment import CENTRE, STRATEGIES, PushMeasurements
from newsstand.lab.push_caching.simulator import PushCacheSetting
from newsstand.lab.reporting.claims import Claim, Finding, above, all_of, judge_all
from newsstand.lab.reporting.statistics import Interval, Sample

FLAT = 0.02
"""Shares of traffic that differ by less are the same."""
INFINITE = replace(CENTRE, client_cache="infinite")


def claims(measured: PushMeasurements) -> list[Claim]:
    """Return every claim, with its verdict."""
    return judge_all("push1995", (_clients, _on_top, _hops, _servers, _pages, _core), measured)


def by(strategy: str, **values: int) -> PushCacheSetting:
    """Return the usual setting with one strategy for caching and lookup."""
    return replace(CENTRE, caching=strategy, lookup=strategy, **values)  # type: ignore[arg-type]


def _percent(found: Interval) -> str:
    return f"{found.text(100, 1, '')} %"


def _clients(m: PushMeasurements) -> Iterator[Finding]:
    found = {name: m.saved_by_clients(name).interval for name in ("traffic", "primary_requests")}
    sides = [(above(one), above(Interval(-one.mean, one.half), -0.35)) for one in found.values()]
    yield Finding(
        "client-caches",
        f"traffic {_percent(found['traffic'])}, load {_percent(found['primary_requests'])}",
        all_of([*itertools.chain(*sides)]),
    )


def _best_on_top(m: PushMeasurements, name: str) -> str:
    saved = {
        threshold: m.saved(replace(INFINITE, threshold=float(threshold)), name).interval
        for threshold in m.experiment.thresholds_on_top
    }
    best = max(saved, key=lambda threshold: saved[threshold].mean)
    return (
        f"with the thesis's push-threshold {INFINITE.threshold:g}, which alone is judged; "
        f"of {', '.join(f'{one:g}' for one in saved)} the best is {best:g} with {_percent(saved[best])}"
    )


def _on_top(m: PushMeasurements) -> Iterator[Finding]:
    load, traffic = (m.saved(INFINITE, name).interval for name in ("primary_requests", "traffic"))
    outcomes = m.outcomes(INFINITE)
    space = Sample.of(one.client_bytes / (one.most_stored_bytes or math.inf) for one in outcomes).interval
    yield Finding(
        "push-on-top-load",
        f"{_percent(load)} of the requests that servers answer {_best_on_top(m, 'primary_requests')}",
        above(load, 0.2),
    )
    yield Finding(
        "push-on-top-traffic",
        f"{_percent(traffic)} of bytes times hops {_best_on_top(m, 'traffic')}",
        above(traffic, 0.1),
    )
    yield Finding("space", f"{space.text(1, 0, '')} times less", above(space, 10.0))


def _hops(m: PushMeasurements) -> Iterator[Finding]:
    saved = {name: m.saved(by(name), "traffic") for name in STRATEGIES}
    hops, miles, random = (saved[name] for name in STRATEGIES)
    # A quarter more than less than nothing may be less: hops must also save anything, and more than miles.
    beaten = [above(one.interval) for one in (hops - miles * 1.25, hops - miles, hops)]
    last = [above((one - random).interval) for one in (hops, miles)]
    texts = ", ".join(f"{name} {_percent(of.interval)}" for name, of in saved.items())
    less = (1 - m.of(by("hops"), "traffic") / m.of(by("miles"), "traffic")).interval
    yield Finding("hops-beat-miles", f"saved: {texts}", all_of(beaten))
    yield Finding(
        "hops-beat-miles-of-all",
        f"all traffic with hops is {_percent(less)} less than with miles",
        above(less, 0.25),
    )
    yield Finding("random-is-worst", f"saved: {texts}", all_of(last))


def _servers(m: PushMeasurements) -> Iterator[Finding]:
    numbers = m.experiment.servers
    few, many = by("hops", servers=numbers[0]), by("hops", servers=numbers[-1])
    gain = (m.saved(many, "traffic") - m.saved(few, "traffic")).interval
    settings = {number: by("hops", servers=number) for number in numbers}
    shares = {number: m.of(one, "active") / m.of(one, "available") for number, one in settings.items()}
    falls = [(shares[one] - shares[other]).interval for one, other in itertools.pairwise(numbers)]
    texts = ", ".join(f"{number}: {_percent(of.interval)}" for number, of in shares.items())
    fallen = (shares[numbers[0]] - shares[numbers[-1]]).interval
    falling = False if any(one.is_below for one in falls) else True if fallen.is_above else None
    yield Finding(
        "more-servers-less-traffic",
        f"{numbers[-1]} save {gain.text(100, 1)} percent points more than {numbers[0]}",
        above(gain),
    )
    yield Finding(
        "smaller-share-active",
        f"active: {texts}; less at {sum(one.mean > 0 for one in falls)} of {len(falls)} steps",
        falling,
    )


def _pages(m: PushMeasurements) -> Iterator[Finding]:
    first, last = m.experiment.pages[0], m.experiment.pages[-1]
    costs = {
        name: (m.saved(by(name, pages=first), "traffic") - m.saved(by(name, pages=last), "traffic")).interval
        for name in STRATEGIES
    }
    texts = {name: f"{name} {cost.text(100, 1)} percent points" for name, cost in costs.items()}
    near = [
        above(Interval(FLAT + way * costs[name].mean, costs[name].half))
        for name in ("hops", "miles")
        for way in (1, -1)
    ]
    yield Finding(
        "pages-flat", f"traffic with {last} pages against {first}: {texts['hops']}, {texts['miles']}", all_of(near)
    )
    yield Finding(
        "pages-random", f"traffic with {last} pages against {first}: {texts['random']}", above(costs["random"])
    )


def _core(m: PushMeasurements) -> Iterator[Finding]:
    flat, core = (m.saved(CENTRE, "traffic", kind).interval for kind in ("flat", "global"))
    yield Finding(
        "no-core-no-gain",
        f"saved: {_percent(flat)} without a core, {_percent(core)} with one",
        above(Interval(FLAT - flat.mean, flat.half)),
    )
