"""Who has seen which records of the log: a log that ends before them has lost some."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from newsstand.cluster.log import Log
from newsstand.cluster.log_files import FileLog
from newsstand.cluster.log_repair import Seen
from newsstand.cluster.log_segments import repair_command
from newsstand.cluster.results import Results
from newsstand.errors import LogDamage


def seen_positions(data: Path, results: Results | None, channels: Mapping[str, str]) -> dict[str, list[Seen]]:
    """By dataset, how far channels (name → new dataset) were executed, and keyed records brought up to date."""
    found: dict[str, list[Seen]] = {}
    for name, dataset in channels.items():
        position = results.position(name) if results is not None else None
        if position is not None:
            found.setdefault(dataset, []).append(Seen(f"channel '{name}'", position))
    for dataset, seq in _applied(data / "keyed.sqlite"):
        found.setdefault(dataset, []).append(Seen("keyed.sqlite", seq))
    return found


def require_positions(log: Log, data: Path, results: Results, channels: Mapping[str, str]) -> None:
    """Refuse a log that ends before what was executed: channels would pass over new publications."""
    for dataset, seen in seen_positions(data, results, channels).items():
        head = log.head(dataset)
        for one in seen:
            if one.seq > head:
                mend = repair_command(data) if isinstance(log, FileLog) else "restore the topic from a copy"
                raise LogDamage(
                    f"dataset '{dataset}': the log ends with record {head}, and {one.by} has been executed "
                    f"up to {one.seq}; {mend}"
                )


def _applied(file: Path) -> list[tuple[str, int]]:
    if not file.is_file():
        return []
    base = sqlite3.connect(file)
    try:
        return base.execute("SELECT dataset, seq FROM applied").fetchall()
    except sqlite3.DatabaseError:  # it is made again from the log
        return []
    finally:
        base.close()
