"""Verification and repair of the log of a data folder, with or without an app folder."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from newsstand.cluster.app_folder import FILE, read_app
from newsstand.cluster.catalog import recorded_channels
from newsstand.cluster.log.contract import Log
from newsstand.cluster.log.files.log import FileLog, dataset_folders, lock_folder
from newsstand.cluster.log.files.repair import (
    RepairJournal,
    Step,
    copies_folder,
    plan_repair,
    repair,
    resume,
)
from newsstand.cluster.log.files.segments import REPAIR, repair_command
from newsstand.cluster.log.files.verification import Examination, KnownPosition, examine, sizes
from newsstand.cluster.offline import recorded_results
from newsstand.cluster.results.stores import ResultStores
from newsstand.errors import BadInput, LogDamage
from newsstand.http.server import wall_clock_ms


def known_positions(
    data: Path, stores: ResultStores | None, channels: Mapping[str, str]
) -> dict[str, list[KnownPosition]]:
    """Return, by dataset, the positions of channels (name → new dataset) and of the latest records of keys."""
    found: dict[str, list[KnownPosition]] = {}
    for name, dataset in channels.items():
        position = stores.results.position(name) if stores is not None else None
        if position is not None:
            found.setdefault(dataset, []).append(KnownPosition(f"channel '{name}'", position))
    for dataset, seq in _applied_positions(data / "keyed.sqlite"):
        found.setdefault(dataset, []).append(KnownPosition("keyed.sqlite", seq))
    return found


def require_positions(log: Log, data: Path, stores: ResultStores, channels: Mapping[str, str]) -> None:
    """Raise LogDamage for a log that ends before a known position: channels would skip new publications."""
    for dataset, seen in known_positions(data, stores, channels).items():
        head = log.head(dataset)
        for one in seen:
            if one.seq > head:
                advice = repair_command(data) if isinstance(log, FileLog) else "restore the topic from a copy"
                raise LogDamage(
                    f"dataset '{dataset}': the log ends with record {head}, and {one.by} has been executed "
                    f"up to {one.seq}; {advice}"
                )


def _applied_positions(file: Path) -> list[tuple[str, int]]:
    if not file.is_file():
        return []
    with closing(sqlite3.connect(file)) as base:
        try:
            return base.execute("SELECT dataset, seq FROM applied").fetchall()
        except sqlite3.DatabaseError:  # it will be rebuilt from the log
            return []


Advance = Callable[[int], object]


@dataclass(frozen=True)
class LogFolder:
    """The log of a data folder, and the place of its results."""

    data: Path
    results: str

    @property
    def log(self) -> Path:
        """The folder of the log."""
        return self.data / "log"


def find_log(folder: Path, data: Path | None = None) -> LogFolder:
    """Find the log of an app folder or a data folder; raise BadInput if it is not in files."""
    if (folder / FILE).is_file():
        app = read_app(folder, os.environ)
        if app.cluster.log is not None:
            raise BadInput(
                f"{app.file}: the log is in Kafka ({app.cluster.log.servers}), which verifies it itself; "
                "use the tools of Kafka"
            )
        found = LogFolder((data or app.data).absolute(), app.cluster.results)
    else:
        found = LogFolder((data or folder).absolute(), "sqlite")
        if not (found.data / "results.sqlite").is_file():
            raise BadInput(
                f"{folder}: neither an app folder, with {FILE}, nor a data folder, with results.sqlite; name the "
                "app folder if its results are in PostgreSQL"
            )
    if not found.data.is_dir():
        raise BadInput(f"data folder {found.data}: does not exist; start a cluster first")
    return found


def verify_log(place: LogFolder, dataset: str | None, progress: Callable[[int], Advance]) -> list[Examination]:
    """Read all of the log, also while a cluster writes it.

    `progress` is called with the total size; the function that it returns, with the bytes of each step.
    """
    _require_no_journal(place)
    return _examine(place, dataset, progress)


def repair_log(
    place: LogFolder,
    dataset: str | None,
    progress: Callable[[int], Advance],
    *,
    dry_run: bool = False,
    step: Step = lambda name: None,
) -> list[RepairJournal]:
    """Repair damaged datasets while no cluster runs; return the changes, which `dry_run` only plans."""
    with _locked(place):
        if dry_run:
            _require_no_journal(place)
        done = [] if dry_run else resume(place.log, step)
        at_ms = wall_clock_ms()
        moment = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        copies = copies_folder(place.data, place.log, moment)
        for found in _examine(place, dataset, progress):
            plan = plan_repair(found, at_ms, copies)
            if plan is not None:
                done.append(plan.journal if dry_run else repair(place.log, plan, step))
        return done


def _require_no_journal(place: LogFolder) -> None:
    """Raise BadInput if a repair was interrupted: the records may be in another folder."""
    unfinished = next(iter(place.log.glob(f"{REPAIR}*")), None)
    if unfinished is not None:
        raise BadInput(f"{unfinished}: a repair was interrupted; run: newsstand log repair {place.data}")


def _examine(place: LogFolder, dataset: str | None, progress: Callable[[int], Advance]) -> list[Examination]:
    channels = recorded_channels(place.data / "catalog.json")
    with recorded_results(place.results, place.data) as results:
        known = known_positions(place.data, results, channels)  # before reading the log, which may grow
    datasets = sorted({*(dataset_folders(place.log) if place.log.is_dir() else ()), *known})
    if dataset is not None and dataset not in datasets:
        raise BadInput(f"{place.log}: has no dataset '{dataset}'; one of {', '.join(datasets) or 'none'}")
    if dataset is not None:
        datasets = [dataset]
    advance = progress(sum(sizes(place.log / name) for name in datasets))
    return [examine(place.log / name, known.get(name, ()), advance) for name in datasets]


@contextmanager
def _locked(place: LogFolder) -> Iterator[None]:
    place.log.mkdir(mode=0o700, exist_ok=True)
    try:
        lock = lock_folder(place.log)
    except BadInput as error:
        raise BadInput(f"data folder {place.data}: a cluster runs there; stop it before a repair") from error
    try:
        yield
    finally:
        os.close(lock)
