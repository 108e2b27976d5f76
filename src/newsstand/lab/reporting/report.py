"""The report of an experiment: one self-contained page, tables as CSV, and the result as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined

from newsstand.lab.reporting.claims import Claim, report_text
from newsstand.lab.reporting.statistics import Interval

REPORT = "report.html"

Row = dict[str, Any]
"""A row of a table, by column."""


@dataclass(frozen=True)
class ReportFigure:
    """A figure of the report: its title, what to see in it, and its SVG file."""

    title: str
    caption: str
    file: Path

    @property
    def svg(self) -> str:
        text = self.file.read_text(encoding="utf-8")
        return text[text.index("<svg") :]


def captioned(paper: str, drawn: Mapping[str, Path]) -> list[ReportFigure]:
    """Return the drawn figures of a paper with their titles and captions."""
    texts = report_text(paper).figures
    return [ReportFigure(texts[name].title, texts[name].caption, file) for name, file in drawn.items()]


@dataclass(frozen=True)
class ReportTable:
    """A table of the report."""

    title: str
    columns: list[str]
    rows: list[list[str]]

    @classmethod
    def of(cls, title: str, rows: pd.DataFrame | Iterable[Row]) -> ReportTable:
        table = pd.DataFrame(rows)
        return cls(title, list(table.columns), [list(map(str, row)) for row in table.itertuples(index=False)])


@dataclass(frozen=True)
class ReportSection:
    """A part of a report: claims, figures and tables; without a title, the whole report."""

    title: str
    lead: str
    claims: list[Claim]
    figures: list[ReportFigure]
    tables: list[ReportTable]


def write_page(out: Path, paper: str, sections: Sequence[ReportSection], *, lead: str, command: str) -> None:
    """Write the page; everything it shows is inside it."""
    template = (files("newsstand.lab.reporting") / "report.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    page = environment.from_string(template).render(
        title=report_text(paper).title, lead=lead, command=command, sections=sections
    )
    (out / REPORT).write_text(page + "\n", encoding="utf-8")


def write_report(
    out: Path,
    paper: str,
    sections: Sequence[ReportSection],
    *,
    command: str,
    tables: Mapping[str, pd.DataFrame],
    figures: Mapping[str, Path],
    lead: str = "",
) -> dict[str, object]:
    """Write the tables and the page of an experiment whose figures are drawn; return the result for programs."""
    write_tables(tables, out)
    write_page(out, paper, sections, lead=lead or report_text(paper).lead, command=command)
    return {
        "claims": [claim.as_dict() for section in sections for claim in section.claims],
        "tables": {name: records(table) for name, table in tables.items()},
        "figures": {name: str(file) for name, file in figures.items()},
        "report": str(out / REPORT),
    }


def write_tables(tables: Mapping[str, pd.DataFrame], out: Path) -> None:
    """Write each table as CSV into the folder `tables`."""
    folder = out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)


def records(table: pd.DataFrame) -> list[dict[str, object]]:
    """Return the rows of a table for JSON, which has no NaN: a missing number is None."""
    return table.astype(object).where(table.notna(), None).to_dict("records")  # type: ignore[return-value]


def cells(name: str, found: Interval, factor: float = 1) -> dict[str, float]:
    """Return the two cells of an interval in a row: the mean and, as `name ±`, the half width."""
    return {name: factor * found.mean, f"{name} ±": factor * found.half}
