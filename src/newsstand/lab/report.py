"""One self-contained page that shows what an experiment found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import pandas as pd
from jinja2 import Environment, StrictUndefined

from newsstand.lab.claims import Claim

REPORT = "report.html"


@dataclass(frozen=True)
class Shown:
    """A figure of the report: its title, what to see in it, and its SVG file."""

    title: str
    caption: str
    file: Path

    @property
    def svg(self) -> str:
        text = self.file.read_text(encoding="utf-8")
        return text[text.index("<svg") :]


@dataclass(frozen=True)
class Listed:
    """A table of the report."""

    title: str
    table: pd.DataFrame

    @property
    def columns(self) -> list[str]:
        return list(self.table.columns)

    @property
    def rows(self) -> list[list[object]]:
        return [list(row) for row in self.table.itertuples(index=False)]


@dataclass(frozen=True)
class Section:
    """A part of a report that has claims, figures and tables of its own."""

    title: str
    lead: str
    claims: Sequence[Claim]
    figures: Sequence[Shown]
    tables: Sequence[Listed]


def write_report(
    path: Path,
    *,
    title: str,
    lead: str,
    command: str,
    claims: Sequence[Claim] = (),
    figures: Sequence[Shown] = (),
    tables: Sequence[Listed] = (),
    sections: Sequence[Section] = (),
) -> None:
    """Write the page; everything it shows is inside it."""
    template = (files("newsstand.lab") / "report.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    page = environment.from_string(template).render(
        title=title,
        lead=lead,
        command=command,
        claims=claims,
        figures=figures,
        tables=tables,
        sections=sections,
    )
    path.write_text(page + "\n", encoding="utf-8")


def write_sections(
    out: Path,
    sections: Sequence[Section],
    *,
    title: str,
    lead: str,
    command: str,
    tables: Mapping[str, pd.DataFrame],
    figures: Mapping[str, Path],
) -> dict[str, object]:
    """Write the tables and the page of an experiment whose figures are drawn; the result for programs."""
    write_tables(tables, out)
    write_report(out / REPORT, title=title, lead=lead, command=command, sections=sections)
    return result([claim for section in sections for claim in section.claims], tables, figures, out)


def write_tables(tables: Mapping[str, pd.DataFrame], out: Path) -> None:
    """Write each table as CSV into the folder `tables`."""
    folder = out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)


def result(
    claims: Sequence[Claim], tables: Mapping[str, pd.DataFrame], figures: Mapping[str, Path], out: Path
) -> dict[str, object]:
    """What an experiment found and where it was written, as JSON has it."""
    return {
        "claims": [claim.as_dict() for claim in claims],
        "tables": {name: records(table) for name, table in tables.items()},
        "figures": {name: str(file) for name, file in figures.items()},
        "report": str(out / REPORT),
    }


def records(table: pd.DataFrame) -> list[dict[object, object]]:
    """The rows of a table; what is not a number, as a deviation of one seed, is None: JSON has no NaN."""
    return table.astype(object).where(table.notna(), None).to_dict("records")
