"""What `newsstand reproduce bad2018 --part simulation` leaves in its folder."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from newsstand.lab import bad2018_prototype, bad2018_prototype_report
from newsstand.lab.bad2018_simulation import AT_EQUAL_B, AT_EQUAL_MEMORY, Experiment, Results
from newsstand.lab.bad2018_simulation_claims import claims
from newsstand.lab.bad2018_simulation_figures import MEASURES, draw, tables, variants_table
from newsstand.lab.bad2018_simulation_measured import Measured
from newsstand.lab.claims import Claim
from newsstand.lab.report import Listed, Shown, write_report

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
    """Write tables, figures and the report, with Fig. 7 if a prototype was measured; the result for programs."""
    measured = Measured(results, experiment)
    verdicts = claims(measured)
    drawn = draw(measured, out / "figures")
    written = tables(measured)
    (out / "tables").mkdir(parents=True, exist_ok=True)
    for name, table in written.items():
        table.to_csv(out / "tables" / f"{name}.csv", index=False)
    listed = [Listed("Hit ratios", hit_ratios(measured)), Listed("Measured", shown(written["simulation"]))]
    if any(len(results.runs[results.runs["variant"] == variant.name]) for variant in experiment.variants):
        title = f"Other readings of section V: hit ratios at {experiment.middle} MB"
        listed.append(Listed(title, variants_table(measured)))
    pages = [Shown(*CAPTIONS[name], file) for name, file in drawn.items()]
    of_prototype = prototype(out)
    write_report(
        out / "report.html",
        title="Edge Caching for Enriched Notifications in Big Active Data, reproduced",
        lead=lead(experiment),
        claims=[*verdicts, *of_prototype[0]],
        figures=[*pages, *of_prototype[1]],
        tables=[*listed, *of_prototype[2]],
        command=command,
    )
    return {
        "claims": [claim.as_dict() for claim in (*verdicts, *of_prototype[0])],
        "tables": {name: _records(table) for name, table in written.items() if name == "simulation"},
        "figures": {figure.file.stem: str(figure.file) for figure in (*pages, *of_prototype[1])},
        "report": str(out / "report.html"),
    }


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
    alone = " One run has no intervals: verdicts rest on it alone." if runs == 1 else ""
    return (
        f"Uddin and Venkatasubramanian (2018), section V, simulated: {table_2.subscribers:,} subscribers with "
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


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """A table for people."""
    found = table[table["variant"].isin([AT_EQUAL_B, AT_EQUAL_MEMORY])]
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
            "" if pd.isna(mean) else f"{mean:.{digits}f} ± {half:.{digits}f}"
            for mean, half in zip(found[name], found[f"{name} ±"], strict=True)
        ]
    return pd.DataFrame(told)


def prototype(out: Path) -> tuple[list[Claim], list[Shown], list[Listed]]:
    """What `--part prototype` left in the same folder: claims of section VI, Fig. 7 and its table."""
    measurements, drawn = out / "tables" / "prototype.csv", out / "figures" / "fig7.svg"
    if not (measurements.exists() and drawn.exists()):
        return [], [], []
    table = pd.read_csv(measurements)
    rows = [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
    verdicts = bad2018_prototype.claims(bad2018_prototype.Measured(rows))
    usual = table[(table["delay_ms"] == 0) & (table["cap_s"] == bad2018_prototype.CAP_S)]
    return (
        verdicts,
        [Shown(*bad2018_prototype_report.CAPTIONS["fig7"], drawn)],
        [Listed("The prototype", bad2018_prototype_report.shown(usual))],
    )


def _records(table: pd.DataFrame) -> list[dict[object, object]]:
    """The rows of a table; JSON has no NaN."""
    return table.astype(object).where(table.notna(), None).to_dict("records")
