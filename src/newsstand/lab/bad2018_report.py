"""One report of both parts of bad2018: section V, simulated, and section VI, on a live platform.

Either part leaves what it has to show in a file beside the report, and the report is made of all that are there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from newsstand.lab.claims import Claim
from newsstand.lab.report import Listed, Section, Shown, records, write_report

PARTS = ("simulation", "prototype")
Part = Literal["simulation", "prototype"]
TITLE = "Edge Caching for Enriched Notifications in Big Active Data, reproduced"
LEAD = "Uddin and Venkatasubramanian (2018): the caches of a broker, {}."
NAMES = {"simulation": "simulated (section V)", "prototype": "on a live platform (section VI)"}


@dataclass(frozen=True)
class Found:
    """What a part has to show."""

    command: str
    sections: Sequence[Section]
    tables: Mapping[str, pd.DataFrame]
    """For programs."""


def write_part(part: Part, found: Found, out: Path) -> dict[str, object]:
    """Keep a part and write the report; what it shows, of all parts, for programs."""
    kept = {
        "command": found.command,
        "sections": [_packed(section, out) for section in found.sections],
        "tables": {name: records(table) for name, table in found.tables.items()},
    }
    file = _file(part, out)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(kept, allow_nan=False))
    parts = {name: json.loads(_file(name, out).read_text()) for name in PARTS if _file(name, out).exists()}
    sections = [_unpacked(section, out) for one in parts.values() for section in one["sections"]]
    write_report(
        out / "report.html",
        title=TITLE,
        lead=LEAD.format(" and ".join(NAMES[name] for name in parts)),
        command=" && ".join(one["command"] for one in parts.values()),
        sections=sections,
    )
    return {
        "claims": [claim.as_dict() for section in sections for claim in section.claims],
        "tables": {name: table for one in parts.values() for name, table in one["tables"].items()},
        "figures": {figure.file.stem: str(figure.file) for section in sections for figure in section.figures},
        "report": str(out / "report.html"),
    }


def _file(part: str, out: Path) -> Path:
    return out / "parts" / f"{part}.json"


def _packed(section: Section, out: Path) -> dict[str, object]:
    return {
        "title": section.title,
        "lead": section.lead,
        "claims": [claim.as_dict() for claim in section.claims],
        "figures": [(one.title, one.caption, str(one.file.relative_to(out))) for one in section.figures],
        "tables": [(one.title, one.columns, [list(map(str, row)) for row in one.rows]) for one in section.tables],
    }


def _unpacked(kept: Mapping[str, list[dict[str, object]]], out: Path) -> Section:
    return Section(
        str(kept["title"]),
        str(kept["lead"]),
        [Claim(**claim) for claim in kept["claims"]],  # type: ignore[arg-type]
        [Shown(title, caption, out / file) for title, caption, file in kept["figures"]],
        [Listed(title, pd.DataFrame(rows, columns=columns)) for title, columns, rows in kept["tables"]],  # type: ignore[call-overload]
    )
