"""What `newsstand reproduce bad2018 --part simulation` leaves in its folder."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from newsstand.lab import bad2018_simulation_beyond
from newsstand.lab.bad2018_report import Found, write_part
from newsstand.lab.bad2018_simulation import AT_EQUAL_B, AT_EQUAL_MEMORY, Experiment, Results
from newsstand.lab.bad2018_simulation_claims import claims
from newsstand.lab.bad2018_simulation_figures import MEASURES, draw, tables, variants_table
from newsstand.lab.bad2018_simulation_measured import Measured
from newsstand.lab.intervals import Interval
from newsstand.lab.report import Listed, Section, Shown

MOST = "Means over the runs; bars: 95 % intervals, for ratios and seconds."
CAPTIONS = {
    "fig3": ("Figure 3: hit ratio, hit bytes, miss bytes", MOST),
    "fig3_late": (
        "What caches differ in",
        "Most hits are results that reach subscribers who are online, whatever the policy. Left: hit ratio of "
        "what was retrieved late, at a login. Right: differences of all hit ratios within runs, 95 % intervals.",
    ),
    "fig4": ("Figure 4: fetch, latency, holding time", f"{MOST} Vol: what is pulled to fill the caches."),
    "fig5a": (
        "Figure 5a: cache sizes against the allowed size",
        "Time-averaged and largest size, mean over the runs; Σ ρᵢTᵢ: mean over all windows. Other eviction-based "
        "schemes are where LSC is.",
    ),
    "fig5b": (
        "Figure 5b: holding time against time to live",
        "One point for each result cache in one run: mean holding time of the objects that were dropped, mean "
        "time to live at insertions. On the line both are equal.",
    ),
}
LISTED = ("hit_ratio", "hit_ratio_late", "mean_latency_s", "fetch_bytes", "mean_hold_s", "avg_bytes", "max_bytes")


def write(results: Results, experiment: Experiment, command: str, out: Path) -> dict[str, object]:
    """Write tables, figures and the report, with section VI if that was played; the result for programs."""
    measured = Measured(results, experiment)
    drawn = draw(measured, out / "figures")
    written = tables(measured)
    (out / "tables").mkdir(parents=True, exist_ok=True)
    for name, table in written.items():
        table.to_csv(out / "tables" / f"{name}.csv", index=False)
    listed = [
        Listed("Hit ratios", hit_ratios(measured)),
        Listed("Measured", shown(measured, written["simulation"])),
    ]
    if any(len(results.runs[results.runs["variant"] == variant.name]) for variant in experiment.variants):
        title = f"Other readings of section V: hit ratios at {experiment.middle} MB"
        listed.append(Listed(title, variants_table(measured)))
    of_paper = Section(
        "Section V, simulated",
        lead(experiment),
        claims(measured),
        [Shown(*CAPTIONS[name], file) for name, file in drawn.items()],
        listed,
    )
    beyond = bad2018_simulation_beyond.section(measured, out / "figures")
    sections = [of_paper] if beyond is None else [of_paper, beyond]
    return write_part("simulation", Found(command, sections, {"simulation": written["simulation"]}), out)


def lead(experiment: Experiment) -> str:
    """What was run, and how section V was read."""
    table_2 = experiment.workload(experiment.seeds[0])
    runs = len(experiment.seeds)
    scaled = (
        f" Subscribers, subscriptions and cache sizes are Table II's divided by {experiment.scale}: sizes keep "
        "the paper's names, bytes are as measured."
        if experiment.scale > 1
        else ""
    )
    alone = (
        " One run has no intervals, so of most claims it cannot be told whether they hold." if runs == 1 else ""
    )
    return (
        f"{table_2.subscribers:,} subscribers with "
        f"{table_2.per_subscriber} live subscriptions each to {table_2.subscriptions:,}, {table_2.hours:g} hours, "
        f"{runs} {'run' if runs == 1 else 'runs'}.{scaled} Where the paper is silent: subscriptions are chosen "
        "uniformly, everybody joins at time 0, room is made after those online have a result, one window of 5 "
        "minutes; EXP stamps expiries and caps times to live at an hour, TTL takes the cache's present time to "
        f"live and caps it at 300 s. Claims are judged by differences within runs, with 95 % intervals.{alone}"
    )


def hit_ratios(measured: Measured) -> pd.DataFrame:
    """Hit ratios, total and of late retrievals, by size; and LSC's with TTL's average size."""
    rows = []
    for size in measured.sizes:
        row: dict[str, object] = {"cache MB": size}
        for label in measured.schemes:
            total, late = (measured.of(what, label, size) for what in ("hit_ratio", "hit_ratio_late"))
            row[label] = f"{total.mean:.4f} ({late.mean:.4f})"
        if {"LSC", "TTL"} <= set(measured.schemes):
            as_much = (
                measured.mean(what, "LSC", size, AT_EQUAL_MEMORY) for what in ("hit_ratio", "hit_ratio_late")
            )
            row["LSC, equal memory"] = "{:.4f} ({:.4f})".format(*as_much)
        rows.append(row)
    return pd.DataFrame(rows)


def shown(measured: Measured, table: pd.DataFrame) -> pd.DataFrame:
    """The paper's schemes, for people."""
    found = table[
        table["variant"].isin([AT_EQUAL_B, AT_EQUAL_MEMORY]) & table["scheme"].isin(["NC", *measured.schemes])
    ]
    told: dict[str, list[object]] = {
        "scheme": [
            f"{scheme}, equal memory" if variant == AT_EQUAL_MEMORY else scheme
            for scheme, variant in zip(found["scheme"], found["variant"], strict=True)
        ],
        "cache MB": list(found["megabytes"]),
    }
    for what in LISTED:
        name, factor = MEASURES[what]
        digits = 1 if factor < 1 or what == "mean_hold_s" else 4
        told[name] = [
            "" if pd.isna(mean) else Interval(mean, half).told(digits=digits, sign="")
            for mean, half in zip(found[name], found[f"{name} ±"], strict=True)
        ]
    return pd.DataFrame(told)
