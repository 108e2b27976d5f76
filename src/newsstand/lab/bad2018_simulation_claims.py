"""The claims of Uddin & Venkatasubramanian (2018, section V), each with its measurement and its verdict.

"Above" means: the 95 % interval of the difference, taken seed by seed, lies above zero at every cache size. Where
the paper says "slightly", "similar" or "almost", the tolerance is written here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from newsstand.lab.bad2018_simulation import AT_EQUAL_MEMORY
from newsstand.lab.bad2018_simulation_measured import Interval, Measured
from newsstand.lab.claims import Claim

SIMILAR = 0.001
"""Hit ratios that differ by a tenth of a point at most are very similar."""
SLIGHTLY = 0.35
"""A cache that is larger than allowed by at most this share of B is slightly larger."""
EXACT, CLOSE = 0.02, 0.1
"""Relative deviations that are still almost exact, and close."""
GENERALLY = 0.9
"""The share of cases in which what is generally so is so."""

GOOD = {"hit_bytes": 1, "miss_bytes": -1, "mean_latency_s": -1, "fetch_bytes": -1}
"""Which way a measurement goes as a scheme gets better."""
NAMES = {
    "hit_ratio": "hit ratio",
    "hit_bytes": "hit byte",
    "miss_bytes": "miss byte",
    "mean_latency_s": "latency",
    "fetch_bytes": "fetch",
}
WHY = {
    "V-ttl-highest": "LSC with the same B is about as good.",
    "V-ttl-lsc": "Both are about equal, and TTL takes more memory for it.",
    "V-ttl-lsc-equal-memory": "What TTL gains with the same B, it gains by memory.",
    "V-latency-ttl": "Latency follows hits and their bytes, in which TTL and LSC are about equal.",
    "V-hold-ttl": "Full caches hold a byte equally long under every policy; those that drop large objects first "
    "hold more objects, and each for longer.",
    "V-hold-exp": "Full caches hold a byte equally long under every policy, so LRU, LSC and EXP hardly differ.",
}
"""Why a claim does not hold, where it does not, as far as we can tell."""


def claims(measured: Measured) -> list[Claim]:
    """Every claim of section V that the schemes of the experiment allow to judge, in the paper's order."""
    wanted: list[tuple[set[str], Callable[[Measured], list[Claim]]]] = [
        (set(), _on_caching),
        (set(), _on_size),
        ({"TTL", "LSC"}, _on_ttl),
        ({"LSC", "LRU"}, _on_lsc),
        ({"EXP"}, _on_exp),
        ({"LSCz", "LSD"}, _on_lscz_and_lsd),
        (set(), _on_agreement),
        (set(), _on_volume),
        ({"TTL", "LSC", "LRU"}, _on_latency),
        ({"TTL", "EXP"}, _on_holding),
        ({"TTL"}, _on_cache_sizes),
        ({"TTL", "LSC"}, _on_times_to_live),
    ]
    has = set(measured.of_paper)
    told = [claim for needed, judged in wanted if needed <= has for claim in judged(measured)]
    return [claim if claim.holds else _explained(claim) for claim in told]


def _explained(claim: Claim) -> Claim:
    why = WHY.get(claim.id)
    return replace(claim, measured=f"{claim.measured}. {why}") if why else claim


def _on_caching(m: Measured) -> list[Claim]:
    if not any(scheme.label == "NC" for scheme in m.experiment.schemes):
        return []
    less = {(s, b): m.less("mean_latency_s", s, "NC", b) for s in m.of_paper for b in m.sizes}
    none = m.mean("mean_latency_s", "NC", m.sizes[0])
    kept = {case: 1 + one.mean / none for case, one in less.items()}
    return [
        Claim(
            "V-cache-latency",
            "Caching improves the latency of subscribers.",
            "expected",
            f"NC {none:.3f} s; with a cache {min(kept.values()):.0%} to {max(kept.values()):.0%} of it",
            all(one.is_below for one in less.values()),
        )
    ]


def _on_size(m: Measured) -> list[Claim]:
    if len(m.sizes) < 2:
        return []
    told = []
    for what, sign in (("hit_ratio", 1), ("hit_bytes", 1), ("mean_latency_s", -1), ("fetch_bytes", -1)):
        steps = [(s, a, b) for s in m.of_paper for a, b in itertools.pairwise(m.sizes)]
        wrong = [(s, a, b) for s, a, b in steps if sign * m.grows(what, s, a, b).mean <= 0]
        change = {s: m.grows(what, s, m.sizes[0], m.sizes[-1]).mean for s in m.of_paper}
        base = {s: m.mean(what, s, m.sizes[0]) for s in m.of_paper}
        ends = (
            ", ".join(f"{s} {base[s]:.4f} to {base[s] + change[s]:.4f}" for s in m.of_paper)
            if what == "hit_ratio"
            else ", ".join(f"{s} {change[s] / base[s]:+.2%}" for s in m.of_paper)
        )
        against = ", ".join(f"{s} from {a} to {b} MB" for s, a, b in wrong)
        goes = "increases" if sign > 0 else "decreases"
        told.append(
            Claim(
                f"V-size-{NAMES[what].replace(' ', '-')}",
                f"As the cache grows, {NAMES[what]} {goes} in all schemes.",
                goes,
                f"{m.sizes[0]} to {m.sizes[-1]} MB: {ends}" + (f"; against it {against}" if wrong else ""),
                not wrong,
            )
        )
    return told


def _on_ttl(m: Measured) -> list[Claim]:
    others = [s for s in m.of_paper if s != "TTL"]
    lead = {b: min((m.less("hit_ratio", "TTL", s, b) for s in others), key=lambda one: one.mean) for b in m.sizes}
    nearest = {b: min(others, key=lambda s: m.less("hit_ratio", "TTL", s, b).mean) for b in m.sizes}
    over_lsc = {b: m.less("hit_ratio", "TTL", "LSC", b) for b in m.sizes}
    as_much = {b: m.less("hit_ratio", "TTL", "LSC", b, AT_EQUAL_MEMORY) for b in m.sizes}
    late = {b: m.less("hit_ratio_late", "TTL", "LSC", b, AT_EQUAL_MEMORY) for b in m.sizes}
    memory = [m.share_of_budget("avg_bytes", "TTL", b) for b in m.sizes]
    return [
        Claim(
            "V-ttl-highest",
            "TTL has the highest hit ratio.",
            "highest",
            "TTL less the best other, in points: "
            + ", ".join(f"{_points(lead[b])} ({nearest[b]}) at {b} MB" for b in _few(m.sizes)),
            _beats(m, "hit_ratio", "TTL", others),
        ),
        Claim(
            "V-ttl-lsc",
            "TTL is superior to the eviction-based techniques: against LSC with the same B.",
            "superior",
            f"TTL less LSC, in points: {_at(over_lsc)}; TTL holds {min(memory):.2f} to {max(memory):.2f} B on "
            f"average; {_sides(over_lsc)}",
            all(one.is_above for one in over_lsc.values()),
        ),
        Claim(
            "V-ttl-lsc-equal-memory",
            "The same, against LSC with a cache of TTL's average size.",
            "superior, at the cost of a slightly larger cache",
            f"TTL less LSC, in points: {_at(as_much)}; late retrievals alone: {_at(late)}; {_sides(as_much)}",
            all(one.is_above for one in as_much.values()),
        ),
    ]


def _on_lsc(m: Measured) -> list[Claim]:
    lead = {b: m.less("hit_ratio", "LSC", "LRU", b) for b in m.sizes}
    late = {b: m.less("hit_ratio_late", "LSC", "LRU", b) for b in m.sizes}
    return [
        Claim(
            "V-lsc-lru",
            "LSC has a higher hit ratio than LRU.",
            "higher",
            f"LSC less LRU, in points: {_at(lead)}; late retrievals alone: {_at(late)}",
            all(one.is_above for one in lead.values()),
        )
    ]


def _on_exp(m: Measured) -> list[Claim]:
    others = [s for s in m.of_paper if s != "EXP"]
    lag = {b: max((m.less("hit_ratio", "EXP", s, b) for s in others), key=lambda one: one.mean) for b in m.sizes}
    return [
        Claim(
            "V-exp-lowest",
            "EXP has the lowest hit ratio.",
            "lowest",
            f"EXP less the lowest other, in points: {_at(lag)}",
            all(_beats(m, "hit_ratio", other, ["EXP"]) for other in others),
        )
    ]


def _on_lscz_and_lsd(m: Measured) -> list[Claim]:
    apart = {b: m.less("hit_ratio", "LSCz", "LSD", b) for b in m.sizes}
    most = max(abs(one.mean) + one.half for one in apart.values())
    return [
        Claim(
            "V-lscz-lsd",
            "LSCz and LSD have very similar hit ratios.",
            "very similar",
            f"LSCz less LSD, in points: {_at(apart, digits=3)} (very similar: within {100 * SIMILAR:g})",
            most <= SIMILAR,
        )
    ]


def _on_agreement(m: Measured) -> list[Claim]:
    """Pairs of schemes whose hit ratios differ clearly: are they in the same order by the other measurements?"""
    pairs = [(one, other, b) for one, other in itertools.permutations(m.of_paper, 2) for b in m.sizes]
    clear = [(one, other, b) for one, other, b in pairs if m.less("hit_ratio", one, other, b).is_above]
    if not clear:
        return []
    told, agreed = [], []
    for what, sign in GOOD.items():
        so = [sign * m.less(what, one, other, b).mean > 0 for one, other, b in clear]
        agreed.append(sum(so) / len(so))
        told.append(f"{NAMES[what]} {agreed[-1]:.0%}")
    return [
        Claim(
            "V-agreement",
            "Who has the higher hit ratio has higher hit byte, and lower miss byte, latency and fetch.",
            "generally",
            f"of {len(clear)} pairs of schemes with clearly different hit ratios: {', '.join(told)} "
            f"(generally: {GENERALLY:.0%})",
            min(agreed) >= GENERALLY,
        )
    ]


def _on_volume(m: Measured) -> list[Claim]:
    vol = {s: [m.values("vol_bytes", s, b) for b in m.sizes] for s in m.of_paper}
    one = next(iter(vol.values()))
    over = [m.mean("miss_bytes", s, b) / m.mean("vol_bytes", s, b) for s in m.of_paper for b in m.sizes]
    return [
        Claim(
            "V-vol",
            "Vol, what the broker pulls to fill its caches, does not depend on the policy; misses come on top.",
            "irrespective of the policy",
            f"Vol {m.mean('vol_bytes', m.of_paper[0], m.sizes[0]) / 1e9:.1f} GB under every policy and size; "
            f"misses {min(over):.1f} to {max(over):.1f} times that",
            all(other == one for other in vol.values()),
        )
    ]


def _on_latency(m: Measured) -> list[Claim]:
    first = {b: m.less("mean_latency_s", "TTL", "LSC", b) for b in m.sizes}
    second = {b: m.less("mean_latency_s", "LSC", "LRU", b) for b in m.sizes}
    return [
        Claim(
            "V-latency-ttl",
            "TTL offers the lowest latency.",
            "lowest",
            f"TTL less LSC, in ms: {_at(first, 1000)}; {_sides(first, low=True)}",
            all(_beats(m, "mean_latency_s", other, ["TTL"]) for other in m.evicting),
        ),
        Claim(
            "V-latency-lsc-lru",
            "LSC follows, and then LRU.",
            "followed by LSC and then LRU",
            f"LSC less LRU, in ms: {_at(second, 1000)}",
            all(one.is_below for one in second.values()),
        ),
    ]


def _on_holding(m: Measured) -> list[Claim]:
    what = "mean_hold_s"
    longest = {b: min((m.less(what, "TTL", s, b) for s in m.evicting), key=_mean) for b in m.sizes}
    shortest = {b: max((m.less(what, "EXP", s, b) for s in m.of_paper if s != "EXP"), key=_mean) for b in m.sizes}
    ends = (m.sizes[0], m.sizes[-1])
    seconds = ", ".join(
        f"{s} {m.mean(what, s, ends[0]):.1f} to {m.mean(what, s, ends[1]):.1f}" for s in m.of_paper
    )
    return [
        Claim(
            "V-hold-ttl",
            "TTL holds objects for longer than the other schemes.",
            "longest",
            f"seconds at {ends[0]} to {ends[1]} MB: {seconds}; TTL less the longest other: {_at(longest, 1)}",
            _beats(m, "mean_hold_s", "TTL", m.evicting),
        ),
        Claim(
            "V-hold-exp",
            "EXP holds objects for the shortest time.",
            "shortest",
            f"EXP less the shortest other, in seconds: {_at(shortest, 1)}",
            all(_beats(m, "mean_hold_s", other, ["EXP"]) for other in m.of_paper if other != "EXP"),
        ),
    ]


def _on_cache_sizes(m: Measured) -> list[Claim]:
    average = {b: m.share_of_budget("avg_bytes", "TTL", b) for b in m.sizes}
    largest = {b: m.share_of_budget("max_bytes", "TTL", b) for b in m.sizes}
    expected = {b: m.share_of_budget("sum_rho_T", "TTL", b) for b in m.sizes}
    evicting = max(
        max(m.values("max_bytes", s, b).values()) / m.experiment.bytes_of(b) for s in m.evicting for b in m.sizes
    )
    return [
        Claim(
            "V-ttl-size",
            "TTL's total cache size is slightly higher.",
            "slightly higher",
            f"average over B: {_shares(average)} (slightly: above 1, by at most {SLIGHTLY:.0%})",
            all(1 < share <= 1 + SLIGHTLY for share in average.values()),
        ),
        Claim(
            "V-limit",
            "Eviction-based schemes stay within the allowed size.",
            "limit themselves",
            f"largest size of any run: {evicting:.4f} B",
            evicting <= 1,
        ),
        Claim(
            "V-ttl-exceeds",
            "TTL exceeds the limit on some occasions.",
            "exceeds",
            f"largest size over B, mean over runs: {_shares(largest)}",
            all(share > 1 for share in largest.values()),
        ),
        Claim(
            "V-sum-rho-T",
            "The sum of rho_i T_i fits the allowed size almost exactly.",
            "almost exactly",
            f"over B, mean over windows: {_shares(expected, 3)} (almost exactly: within {EXACT:.0%})",
            all(abs(share - 1) <= EXACT for share in expected.values()),
        ),
    ]


def _on_times_to_live(m: Measured) -> list[Claim]:
    ttl, lsc = ({b: m.hold_over_ttl(s, b) for b in m.sizes} for s in ("TTL", "LSC"))
    return [
        Claim(
            "V-hold-matches-ttl",
            "Holding times match times to live closely under TTL, compared to LSC.",
            "match closely",
            f"held over time to live, dropped objects: TTL {_shares(ttl)}; LSC {_shares(lsc)} "
            f"(closely: within {CLOSE:.0%}, and closer than LSC)",
            all(abs(ttl[b] - 1) <= CLOSE and abs(ttl[b] - 1) < abs(lsc[b] - 1) for b in m.sizes),
        ),
        Claim(
            "V-hold-below-ttl",
            "Holding times can be less than times to live: objects leave when all have them.",
            "can be less",
            "held over time to live, all objects under TTL: "
            + _shares(
                {b: m.mean("mean_hold_s", "TTL", b) / m.mean("mean_ttl_insert_s", "TTL", b) for b in m.sizes}
            ),
            all(m.mean("mean_hold_s", "TTL", b) < m.mean("mean_ttl_insert_s", "TTL", b) for b in m.sizes),
        ),
    ]


def _beats(m: Measured, what: str, one: str, others: Sequence[str]) -> bool:
    """Whether one scheme is clearly above each of others at every size."""
    return all(m.less(what, one, other, b).is_above for other in others for b in m.sizes)


def _mean(one: Interval) -> float:
    return one.mean


def _few(sizes: Sequence[int]) -> list[int]:
    """Smallest, middle and largest."""
    return sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]})


def _points(one: Interval, factor: float = 100, digits: int = 2) -> str:
    return f"{factor * one.mean:+.{digits}f} ± {factor * one.half:.{digits}f}"


def _at(of: Mapping[int, Interval], factor: float = 100, digits: int = 2) -> str:
    return ", ".join(f"{_points(of[b], factor, digits)} at {b} MB" for b in _few(list(of)))


def _sides(of: Mapping[int, Interval], *, low: bool = False) -> str:
    """At how many sizes TTL is ahead, and behind."""
    above, below = (sum(one.is_above for one in of.values()), sum(one.is_below for one in of.values()))
    ahead, behind = (below, above) if low else (above, below)
    return f"TTL is clearly ahead at {ahead} and clearly behind at {behind} of {len(of)} sizes"


def _shares(of: Mapping[int, float], digits: int = 2) -> str:
    return ", ".join(f"{of[b]:.{digits}f} at {b} MB" for b in _few(list(of)))
