"""The report of bad2018: section V, simulated, and section VI, on a live platform.

Each part is stored in a file beside the report, and the report shows all parts that are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import pandas as pd

from newsstand.errors import BadInput
from newsstand.lab.papers.bad2018 import extensions
from newsstand.lab.papers.bad2018.claims import claims
from newsstand.lab.papers.bad2018.experiment import (
    AT_EQUAL_B,
    AT_EQUAL_MEMORY,
    ResultCacheExperiment,
    ResultCacheResults,
)
from newsstand.lab.papers.bad2018.figures import MEASURES, draw, tables, variants_table
from newsstand.lab.papers.bad2018.measurements import ResultCacheMeasurements
from newsstand.lab.reporting.claims import report_text
from newsstand.lab.reporting.report import (
    REPORT,
    ReportSection,
    ReportTable,
    captioned,
    records,
    write_page,
    write_tables,
)
from newsstand.lab.reporting.statistics import Interval

PARTS = ("simulation", "prototype")
PaperPart = Literal["simulation", "prototype"]
PART_NAMES = {"simulation": "simulated (section V)", "prototype": "on a live platform (section VI)"}


@dataclass(frozen=True)
class ReportPart:
    """The contribution of a part to the report."""

    command: str
    sections: list[ReportSection]
    tables: dict[str, list[dict[str, Any]]]
    """The rows of its tables, for programs."""


def write_part(part: PaperPart, found: ReportPart, out: Path) -> dict[str, object]:
    """Store a part, write the report of all parts, and return the result for programs."""
    file = _part_file(part, out)
    file.parent.mkdir(parents=True, exist_ok=True)
    # Figures are stored relative to the folder, which may be moved.
    file.write_bytes(msgspec.json.encode(found, enc_hook=lambda figure: str(figure.relative_to(out))))
    parts = {name: _read_part(name, out) for name in PARTS if _part_file(name, out).exists()}
    sections = [section for one in parts.values() for section in one.sections]
    write_page(
        out,
        "bad2018",
        sections,
        lead=report_text("bad2018").describe(parts=" and ".join(PART_NAMES[name] for name in parts)),
        command=" && ".join(dict.fromkeys(one.command for one in parts.values())),  # once with `--part all`
    )
    return {
        "claims": [claim.as_dict() for section in sections for claim in section.claims],
        "tables": {name: table for one in parts.values() for name, table in one.tables.items()},
        "figures": {figure.file.stem: str(figure.file) for section in sections for figure in section.figures},
        "report": str(out / REPORT),
    }


def _read_part(part: str, out: Path) -> ReportPart:
    file = _part_file(part, out)
    try:
        return msgspec.json.decode(file.read_bytes(), type=ReportPart, dec_hook=lambda _, figure: out / figure)
    except msgspec.DecodeError as error:
        raise BadInput(f"{file}: is damaged; remove it, and reproduce this part again") from error


def _part_file(part: str, out: Path) -> Path:
    return out / "parts" / f"{part}.json"


SHOWN_MEASURES = (
    "hit_ratio",
    "hit_ratio_late",
    "mean_latency_s",
    "fetch_bytes",
    "mean_hold_s",
    "avg_bytes",
    "max_bytes",
)


def write_simulation(
    results: ResultCacheResults, experiment: ResultCacheExperiment, command: str, out: Path
) -> dict[str, object]:
    """Write tables, figures and the report, with section VI if that was played; the result for programs."""
    measured = ResultCacheMeasurements(results, experiment)
    drawn = draw(measured, out / "figures")
    written = tables(measured)
    write_tables(written, out)
    listed = [
        ReportTable.of("Hit ratios", hit_ratios(measured)),
        ReportTable.of("Measured", scheme_table(measured, written["simulation"])),
    ]
    if any(len(results.runs[results.runs["variant"] == variant.name]) for variant in experiment.variants):
        title = f"Other readings of section V: hit ratios at {experiment.middle} MB"
        listed.append(ReportTable.of(title, variants_table(measured)))
    of_paper = ReportSection(
        report_text("bad2018").sections["simulation"].title,
        lead(experiment),
        claims(measured),
        captioned("bad2018", drawn),
        listed,
    )
    beyond = extensions.section(measured, out / "figures")
    sections = [of_paper] if beyond is None else [of_paper, beyond]
    return write_part(
        "simulation", ReportPart(command, sections, {"simulation": records(written["simulation"])}), out
    )


def lead(experiment: ResultCacheExperiment) -> str:
    """Return what was run, and how section V was read."""
    runs = len(experiment.seeds)
    scaled = (
        f" Subscribers, subscriptions and cache sizes are Table II's divided by {experiment.scale}: sizes keep "
        "the paper's names, bytes are as measured."
        if experiment.scale > 1
        else ""
    )
    return (
        report_text("bad2018")
        .sections["simulation"]
        .describe(
            is_single=runs == 1,
            workload=experiment.workload(experiment.seeds[0]),
            runs=f"{runs} {'run' if runs == 1 else 'runs'}",
            scaled=scaled,
        )
    )


def hit_ratios(measured: ResultCacheMeasurements) -> pd.DataFrame:
    """Return hit ratios, total and of late retrievals, by size; and LSC's with TTL's average size."""
    rows = []
    for size in measured.sizes:
        row: dict[str, object] = {"cache MB": size}
        for label in measured.schemes:
            total, late = (measured.mean(what, label, size) for what in ("hit_ratio", "hit_ratio_late"))
            row[label] = f"{total:.4f} ({late:.4f})"
        if {"LSC", "TTL"} <= set(measured.schemes):
            as_much = (
                measured.mean(what, "LSC", size, AT_EQUAL_MEMORY) for what in ("hit_ratio", "hit_ratio_late")
            )
            row["LSC, equal memory"] = "{:.4f} ({:.4f})".format(*as_much)
        rows.append(row)
    return pd.DataFrame(rows)


def scheme_table(measured: ResultCacheMeasurements, table: pd.DataFrame) -> pd.DataFrame:
    """Return the paper's schemes, for people."""
    found = table[
        table["variant"].isin([AT_EQUAL_B, AT_EQUAL_MEMORY]) & table["scheme"].isin(["NC", *measured.schemes])
    ]
    columns: dict[str, list[object]] = {
        "scheme": [
            f"{scheme}, equal memory" if variant == AT_EQUAL_MEMORY else scheme
            for scheme, variant in zip(found["scheme"], found["variant"], strict=True)
        ],
        "cache MB": list(found["megabytes"]),
    }
    for what in SHOWN_MEASURES:
        name, factor = MEASURES[what]
        digits = 1 if factor < 1 or what == "mean_hold_s" else 4
        columns[name] = [
            "" if pd.isna(mean) else Interval(mean, half).text(digits=digits, sign="")
            for mean, half in zip(found[name], found[f"{name} ±"], strict=True)
        ]
    return pd.DataFrame(columns)
