"""The verdicts on Chen, LaPaugh & Singh (2003, sections 5.1–5.6); hit ratios are means over the seeds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pandas as pd

from newsstand.lab.papers.chen2003.experiment import (
    CACHE_SIZES,
    COMPARED,
    DUAL,
    LABELS,
    TRACES,
    NewsMeasurements,
    NewsResults,
    beta_of,
)
from newsstand.lab.reporting.claims import Claim, Finding, judge_all

POINT = 0.01
"""One point of hit ratio."""


LOW_QUALITIES = (0.75, 0.5, 0.25)


def claims(results: NewsResults) -> list[Claim]:
    """Return every claim, in the paper's order."""
    judges = (_on_beta, _on_dual, _on_hit_ratios, _on_quality, _on_time, _on_traffic)
    return judge_all("chen2003", judges, NewsMeasurements(results))


def _on_beta(m: NewsMeasurements) -> Iterator[Finding]:
    cases = [(t, p, c) for t in TRACES for p in ("gdstar", "sg1", "sg2") for c in CACHE_SIZES]
    best = {case: m.best_beta(*case) for case in cases}
    same = [case for case in cases if best[case] == beta_of(*case)]
    worst = max(cases, key=lambda case: m.loss_at_paper_beta(*case))
    yield Finding(
        "5.1-beta",
        f"the paper's beta is the best in {len(same)} of {len(cases)} cases and costs at most "
        f"{100 * m.loss_at_paper_beta(*worst):.1f} points ({LABELS[worst[1]]}, {worst[0]}, {worst[2]:.0%}, "
        f"best {best[worst]:g})",
        len(same) == len(cases),
    )


def _on_dual(m: NewsMeasurements) -> Iterator[Finding]:
    cases = [(t, c) for t in TRACES for c in CACHE_SIZES]
    news = [case for case in cases if case[0] == "news"]
    over = {(t, c): min(m.hit(t, p, c) - m.hit(t, "gdstar", c) for p in DUAL) for t, c in cases}
    lead = {(t, c): m.hit(t, "dc-lap", c) - max(m.hit(t, p, c) for p in DUAL[:-1]) for t, c in cases}
    quality = {
        (t, q): m.hit(t, "dc-lap", 0.05, q) - max(m.hit(t, p, 0.05, q) for p in DUAL[:-1])
        for t in TRACES
        for q in LOW_QUALITIES
    }
    adaptive = max(abs(m.hit("news", p, c) - m.hit("news", "dc-fp", c)) for p in DUAL[2:] for c in CACHE_SIZES)
    won = sum(lead[case] > 0 for case in news)
    yield Finding(
        "5.2-dual-beat-gdstar",
        f"smallest lead {100 * min(over[c] for c in news):.1f} points",
        all(over[case] > 0 for case in news),
    )
    yield Finding(
        "5.2-dc-lap-best",
        f"best at {won} of 3 capacities; lead over the best other from "
        f"{100 * min(lead[c] for c in news):+.1f} to {100 * max(lead[c] for c in news):+.1f} points",
        won == len(news),
    )
    yield Finding(
        "5.2-dc-lap-elsewhere",
        f"best in {sum(v > 0 for k, v in lead.items() if k[0] == 'alternative')} of 3 capacities on "
        f"ALTERNATIVE and in {sum(v > 0 for v in quality.values())} of {len(quality)} cases with SQ < 1",
        all(v > 0 for k, v in lead.items() if k[0] == "alternative") and all(v > 0 for v in quality.values()),
    )
    yield Finding(
        "5.2-adaptive-marginal", f"at most {100 * adaptive:.1f} points (marginal: under 3)", adaptive < 3 * POINT
    )


def _on_hit_ratios(m: NewsMeasurements) -> Iterator[Finding]:
    new = [p for p in COMPARED if p != "gdstar"]
    cases = [(t, c) for t in TRACES for c in CACHE_SIZES]
    losing = [(t, c, p) for t, c in cases for p in new if m.hit(t, p, c) < m.hit(t, "gdstar", c)]
    sizes = [*itertools.pairwise(CACHE_SIZES)]
    growing = all(m.hit(t, p, a) < m.hit(t, p, b) for t in TRACES for p in COMPARED for a, b in sizes)
    ranks = {(t, c): pd.Series({p: m.hit(t, p, c) for p in COMPARED}).rank() for t, c in cases}
    stable = min(
        float(ranks[t, a].corr(ranks[t, b])) for t in TRACES for a, b in itertools.combinations(CACHE_SIZES, 2)
    )
    under_sub = [(t, c, p) for t, c in cases for p in new if p != "sub" and m.hit(t, p, c) <= m.hit(t, "sub", c)]
    leaders = [
        (t, c) for t, c in cases if set(sorted(COMPARED, key=lambda p: m.hit(t, p, c))[-2:]) == {"sg2", "sr"}
    ]
    ahead = {(t, c): m.hit(t, "sg2", c) - m.hit(t, "sr", c) for t, c in cases}
    sg1 = all(m.hit(t, "sg1", c) < min(m.hit(t, "sg2", c), m.hit(t, "sr", c)) for t, c in cases)
    lap = {(t, c): m.hit(t, "dc-lap", c) - m.hit(t, "sg1", c) for t, c in cases}
    larger = [lap[t, c] for t, c in cases if c > 0.01]
    deviation = m.table_2_deviation()
    gains = m.table_2()
    yield Finding(
        "5.3-gdstar-beats-sub",
        f"GD* {m.hit('news', 'gdstar', 0.01):.3f}, SUB {m.hit('news', 'sub', 0.01):.3f}",
        ("news", 0.01, "sub") in losing,
    )
    yield Finding("5.3-only-loss", f"worse than GD*: {_cases(losing)}", losing == [("news", 0.01, "sub")])
    yield Finding("5.3-grows-with-capacity", "yes" if growing else "not for every method", growing)
    yield Finding(
        "5.3-stable-ranks",
        f"smallest rank correlation between two capacities {stable:.2f} (stable: at least 0.8)",
        stable >= 0.8,
    )
    yield Finding("5.3-others-beat-sub", f"not better than SUB: {_cases(under_sub)}", not under_sub)
    yield Finding(
        "5.3-sg2-sr-lead", f"the two best in {len(leaders)} of {len(cases)} settings", len(leaders) == len(cases)
    )
    yield Finding(
        "5.3-recency-does-not-help",
        f"SG2 less SR: {100 * min(ahead.values()):+.1f} to {100 * max(ahead.values()):+.1f} points "
        "(nothing: at most 1 point)",
        max(ahead.values()) <= POINT,
    )
    yield Finding("5.3-sg1-below", "in every setting" if sg1 else "not in every setting", sg1)
    yield Finding(
        "5.3-dc-lap-like-sg1",
        "DC-LAP less SG1 in points: "
        + ", ".join(f"{t} {c:.0%} {100 * v:+.1f}" for (t, c), v in lap.items())
        + " (holds: better, by at most 8, at 5 and 10 %; within 4 at 1 %)",
        all(0 < v <= 8 * POINT for v in larger) and all(abs(lap[t, 0.01]) <= 4 * POINT for t in TRACES),
    )
    yield Finding(
        "5.3-alpha-hurts-gdstar",
        f"NEWS {m.hit('news', 'gdstar'):.3f}, ALTERNATIVE {m.hit('alternative', 'gdstar'):.3f}",
        m.hit("alternative", "gdstar") < m.hit("news", "gdstar") - 5 * POINT,
    )
    yield Finding(
        "5.3-gains-grow",
        ", ".join(
            f"{LABELS[p]} {gains['news'][p]:+.0f} / {gains['alternative'][p]:+.0f} %" for p in gains["news"]
        ),
        all(gains["alternative"][p] > gains["news"][p] for p in gains["news"]),
    )
    yield Finding(
        "5.3-table-2", f"mean absolute deviation {deviation:.1f} points (holds: at most 8)", deviation <= 8
    )


def _on_quality(m: NewsMeasurements) -> Iterator[Finding]:
    def drop(trace: str, policy: str) -> float:
        return m.hit(trace, policy) - m.hit(trace, policy, sq=0.25)

    new = [p for p in COMPARED if p != "gdstar"]
    most = {t: max(new, key=lambda p: drop(t, p)) for t in TRACES}
    robust = {(t, p): drop(t, p) for t in TRACES for p in ("sg1", "dc-lap")}
    lap = {t: m.hit(t, "dc-lap", sq=0.25) - m.hit(t, "sg1", sq=0.25) for t in TRACES}
    over_sr = {(t, q): m.hit(t, "sg2", sq=q) - m.hit(t, "sr", sq=q) for t in TRACES for q in LOW_QUALITIES}
    near = {q: m.hit("news", "sg2", sq=q) - m.hit("news", "sg1", sq=q) for q in (0.5, 0.25)}
    below = {q: m.hit("alternative", "sg2", sq=q) - m.hit("alternative", "sg1", sq=q) for q in (0.5, 0.25)}
    yield Finding(
        "5.4-sr-most-affected",
        "largest drop from SQ 1 to 0.25: "
        + ", ".join(f"{t} {LABELS[p]} ({100 * drop(t, p):.0f} points)" for t, p in most.items()),
        all(p == "sr" for p in most.values()),
    )
    yield Finding(
        "5.4-sg1-dc-lap-robust",
        "drop from SQ 1 to 0.25 in points: "
        + ", ".join(f"{t} {LABELS[p]} {100 * v:.1f}" for (t, p), v in robust.items())
        + " (not sensitive: under 10)",
        all(v < 10 * POINT for v in robust.values()),
    )
    yield Finding(
        "5.4-dc-lap-at-low-sq",
        ", ".join(f"{t} {100 * v:+.1f} points" for t, v in lap.items()) + " (holds: +0.5 to +6)",
        all(0.5 * POINT <= v <= 6 * POINT for v in lap.values()),
    )
    yield Finding(
        "5.4-sg2-over-sr",
        f"in {sum(v > 0 for v in over_sr.values())} of {len(over_sr)} settings",
        all(v > 0 for v in over_sr.values()),
    )
    yield Finding(
        "5.4-news-sum-or-difference",
        "SG2 less SG1: "
        + ", ".join(f"{100 * v:+.1f} points at {q:g}" for q, v in near.items())
        + " (little: within 5)",
        all(abs(v) <= 5 * POINT for v in near.values()),
    )
    yield Finding(
        "5.4-alternative-sg2-below-sg1",
        "SG2 less SG1: " + ", ".join(f"{100 * v:+.1f} points at {q:g}" for q, v in below.items()),
        all(v < 0 for v in below.values()),
    )


def _on_time(m: NewsMeasurements) -> Iterator[Finding]:
    days = [m.hourly_hit("news", "gdstar", 24 * d, 24 * d + 24) for d in range(1, 7)]
    sub, sg2 = (
        {t: (m.hourly_hit(t, policy, 0, 6), m.hourly_hit(t, policy, 144, 168)) for t in TRACES}
        for policy in ("sub", "sg2")
    )
    texts = {
        policy: ", ".join(f"{t} {a:.2f} in the first 6 hours, {b:.2f} on the last day" for t, (a, b) in of.items())
        for policy, of in (("sub", sub), ("sg2", sg2))
    }
    yield Finding(
        "5.5-gdstar-stable",
        f"daily hit ratios from day 2 on: {min(days):.3f} to {max(days):.3f} (stable: within 0.1)",
        max(days) - min(days) <= 0.1,
    )
    yield Finding("5.5-sub-drops", texts["sub"], all(a > b for a, b in sub.values()))
    yield Finding(
        "5.5-sg2-stays-high",
        texts["sg2"] + " (holds: loses less than SUB and stays over both others)",
        all(
            sg2[t][0] - sg2[t][1] < sub[t][0] - sub[t][1]
            and sg2[t][1] > max(sub[t][1], m.hourly_hit(t, "gdstar", 144, 168))
            for t in TRACES
        ),
    )


def _on_traffic(m: NewsMeasurements) -> Iterator[Finding]:
    cases = [(t, u) for t in TRACES for u in ("pages", "bytes")]

    def over_gdstar(policy: str, scheme: str) -> dict[tuple[str, str], float]:
        return {(t, u): m.traffic(t, policy, scheme, u) / m.traffic(t, "gdstar", scheme, u) for t, u in cases}

    sg2, sub = ({s: over_gdstar(policy, s) for s in ("always", "needed")} for policy in ("sg2", "sub"))
    change = {case: sg2["always"][case] / sg2["needed"][case] - 1 for case in cases}
    yield Finding(
        "5.6-sg2-insensitive",
        ", ".join(f"{t} {u} {100 * v:+.1f} %" for (t, u), v in change.items()) + " (hardly: under 10 %)",
        all(v < 0.10 for v in change.values()),
    )
    yield Finding(
        "5.6-sg2-comparable",
        "SG2 / GD*, always pushing: "
        + ", ".join(f"{t} {u} {v:.2f}" for (t, u), v in sg2["always"].items())
        + " (comparable: at most 1.25)",
        all(v <= 1.25 for scheme in sg2.values() for v in scheme.values()),
    )
    yield Finding(
        "5.6-sub-highest",
        "SUB / GD*, pushing when necessary: "
        + ", ".join(f"{t} {u} {v:.2f}" for (t, u), v in sub["needed"].items()),
        all(sub[s][c] > max(1.0, sg2[s][c]) for s in sub for c in cases),
    )
    yield Finding(
        "5.6-necessity-helps-sub",
        "SUB / GD* always and when necessary: "
        + ", ".join(f"{t} {u} {sub['always'][t, u]:.2f} / {sub['needed'][t, u]:.2f}" for t, u in cases),
        all(sub["needed"][c] - 1 < 0.9 * (sub["always"][c] - 1) for c in cases),
    )


def _cases(cases: Sequence[tuple[str, float, str]]) -> str:
    return ", ".join(f"{LABELS[p]} on {t} at {c:.0%}" for t, c, p in cases) or "none"
