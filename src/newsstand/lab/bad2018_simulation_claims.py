"""The claims of Uddin & Venkatasubramanian (2018, section V), each with its measurement and its verdict.

Where the paper says "slightly", "similar" or "almost", the tolerance is written here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from newsstand.lab.bad2018_simulation import AT_EQUAL_MEMORY, NC
from newsstand.lab.bad2018_simulation_kinds import LOW, NAMES, Lead, Share, Trend, at_sizes, verdict
from newsstand.lab.bad2018_simulation_measured import Measured
from newsstand.lab.claims import Claim, judged

SIMILAR = 0.001
"""Hit ratios that differ by a tenth of a point at most are very similar."""
SLIGHTLY = 0.35
"""A cache that is larger than allowed by at most this share of B is slightly larger."""
EXACT, CLOSE = 0.02, 0.1
"""Relative deviations that are still almost exact, and close."""
GENERALLY = 0.9
"""The share of cases in which what is generally so is so."""

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
    return judged(CLAIMS, measured, WHY)


def _caching(m: Measured) -> list[Claim]:
    if NC not in m.experiment.schemes:
        return []
    less = {(s, b): m.less("mean_latency_s", s, "NC", b) for s in m.of_paper for b in m.sizes}
    none = m.mean("mean_latency_s", "NC", m.sizes[0])
    kept = [1 + one.mean / none for one in less.values()]
    return [
        Claim(
            "V-cache-latency",
            "Caching improves the latency of subscribers.",
            "expected",
            f"NC {none:.3f} s; with a cache {min(kept):.0%} to {max(kept):.0%} of it",
            verdict(all(one.is_below for one in less.values()), list(less.values())),
        )
    ]


def _similar(m: Measured) -> list[Claim]:
    if not {"LSCz", "LSD"} <= set(m.of_paper):
        return []
    apart = {b: m.less("hit_ratio", "LSCz", "LSD", b) for b in m.sizes}
    most = max(abs(one.mean) + one.half for one in apart.values())
    return [
        Claim(
            "V-lscz-lsd",
            "LSCz and LSD have very similar hit ratios.",
            "very similar",
            f"LSCz less LSD, in points: {at_sizes(apart, 100, digits=3)} (very similar: within {100 * SIMILAR:g})",
            verdict(most <= SIMILAR, list(apart.values())),
        )
    ]


def _agreement(m: Measured) -> list[Claim]:
    """Pairs of schemes whose hit ratios differ clearly: are they in the same order by the other measurements?"""
    pairs = [(one, other, b) for one, other in itertools.permutations(m.of_paper, 2) for b in m.sizes]
    clear = [(one, other, b) for one, other, b in pairs if m.less("hit_ratio", one, other, b).is_above]
    agreed = {
        what: sum((m.less(what, *pair).mean > 0) != (what in LOW) for pair in clear) / max(1, len(clear))
        for what in ("hit_bytes", "miss_bytes", "mean_latency_s", "fetch_bytes")
    }
    told = ", ".join(f"{NAMES[what]} {share:.0%}" for what, share in agreed.items())
    return [
        Claim(
            "V-agreement",
            "Who has the higher hit ratio has higher hit byte, and lower miss byte, latency and fetch.",
            "generally",
            f"of {len(clear)} pairs of schemes with clearly different hit ratios: {told} "
            f"(generally: {GENERALLY:.0%})"
            if clear
            else "no two schemes have clearly different hit ratios",
            min(agreed.values()) >= GENERALLY if clear else None,
        )
    ]


def _volume(m: Measured) -> list[Claim]:
    """Of every single run, so that one is enough."""
    volumes = [[m.values("vol_bytes", s, b) for b in m.sizes] for s in m.of_paper]
    over = [m.mean("miss_bytes", s, b) / m.mean("vol_bytes", s, b) for s in m.of_paper for b in m.sizes]
    return [
        Claim(
            "V-vol",
            "Vol, what the broker pulls to fill its caches, does not depend on the policy; misses come on top.",
            "irrespective of the policy",
            f"Vol {m.mean('vol_bytes', m.of_paper[0], m.sizes[0]) / 1e9:.1f} GB under every policy and size; "
            f"misses {min(over):.1f} to {max(over):.1f} times that",
            all(volume == volumes[0] for volume in volumes),
        )
    ]


def _limit(m: Measured) -> list[Claim]:
    """Of every single run, so that one is enough."""
    if not m.evicting:
        return []
    budgets = {b: m.experiment.bytes_of(b) for b in m.sizes}
    most = max(max(m.values("max_bytes", s, b).values()) / budgets[b] for s in m.evicting for b in m.sizes)
    return [
        Claim(
            "V-limit",
            "Eviction-based schemes stay within the allowed size.",
            "limit themselves",
            f"largest size of any run: {most:.4f} B",
            most <= 1,
        )
    ]


CLAIMS: Sequence[Callable[[Measured], list[Claim]]] = (
    _caching,
    *(Trend(what).judged for what in ("hit_ratio", "hit_bytes", "mean_latency_s", "fetch_bytes")),
    Lead("V-ttl-highest", "TTL has the highest hit ratio.", "highest", "hit_ratio", "TTL").judged,
    Lead(
        "V-ttl-lsc",
        "TTL is superior to the eviction-based techniques: against LSC with the same B.",
        "superior",
        "hit_ratio",
        "TTL",
        ("LSC",),
    ).judged,
    Lead(
        "V-ttl-lsc-equal-memory",
        "The same, against LSC with a cache of TTL's average size.",
        "superior, at the cost of a slightly larger cache",
        "hit_ratio",
        "TTL",
        ("LSC",),
        variant=AT_EQUAL_MEMORY,
    ).judged,
    Lead("V-lsc-lru", "LSC has a higher hit ratio than LRU.", "higher", "hit_ratio", "LSC", ("LRU",)).judged,
    Lead("V-exp-lowest", "EXP has the lowest hit ratio.", "lowest", "hit_ratio", "EXP", less=True).judged,
    _similar,
    _agreement,
    _volume,
    Lead("V-latency-ttl", "TTL offers the lowest latency.", "lowest", "mean_latency_s", "TTL", less=True).judged,
    Lead(
        "V-latency-lsc-lru",
        "LSC follows, and then LRU.",
        "followed by LSC and then LRU",
        "mean_latency_s",
        "LSC",
        ("LRU",),
        less=True,
    ).judged,
    Lead(
        "V-hold-ttl", "TTL holds objects for longer than the other schemes.", "longest", "mean_hold_s", "TTL"
    ).judged,
    Lead(
        "V-hold-exp", "EXP holds objects for the shortest time.", "shortest", "mean_hold_s", "EXP", less=True
    ).judged,
    Share(
        "V-ttl-size",
        "TTL's total cache size is slightly higher.",
        "slightly higher",
        f"average over B: {{}} (slightly: above 1, by at most {SLIGHTLY:.0%})",
        ("TTL",),
        lambda m, scheme, b: m.share_of_budget("avg_bytes", scheme, b),
        lambda share: 1 < share <= 1 + SLIGHTLY,
    ).judged,
    _limit,
    Share(
        "V-ttl-exceeds",
        "TTL exceeds the limit on some occasions.",
        "exceeds",
        "largest size over B, mean over runs: {}",
        ("TTL",),
        lambda m, scheme, b: m.share_of_budget("max_bytes", scheme, b),
        lambda share: share > 1,
    ).judged,
    Share(
        "V-sum-rho-T",
        "The sum of rho_i T_i fits the allowed size almost exactly.",
        "almost exactly",
        f"over B, mean over windows: {{}} (almost exactly: within {EXACT:.0%})",
        ("TTL",),
        lambda m, scheme, b: m.share_of_budget("sum_rho_T", scheme, b),
        lambda share: abs(share - 1) <= EXACT,
        digits=3,
    ).judged,
    Share(
        "V-hold-matches-ttl",
        "Holding times match times to live closely under TTL, compared to LSC.",
        "match closely",
        f"held over time to live, dropped objects: TTL {{}}; LSC {{}} (closely: within {CLOSE:.0%}, and closer "
        "than LSC)",
        ("TTL", "LSC"),
        lambda m, scheme, b: m.hold_over_ttl("mean_hold_dropped_s", scheme, b),
        lambda ttl, lsc: abs(ttl - 1) <= CLOSE and abs(ttl - 1) < abs(lsc - 1),
    ).judged,
    Share(
        "V-hold-below-ttl",
        "Holding times can be less than times to live: objects leave when all have them.",
        "can be less",
        "held over time to live, all objects under TTL: {}",
        ("TTL",),
        lambda m, scheme, b: m.hold_over_ttl("mean_hold_s", scheme, b),
        lambda share: share < 1,
    ).judged,
)
"""In the paper's order."""
