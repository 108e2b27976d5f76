"""Verifying and repairing the log of a data folder, whether or not there is an app folder beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from newsstand.cluster.app_folder import FILE, read_app
from newsstand.cluster.catalog import recorded_channels
from newsstand.cluster.data_folder import recorded_results
from newsstand.cluster.log_check import Examination, examine, sizes
from newsstand.cluster.log_files import dataset_folders, locked
from newsstand.cluster.log_positions import seen_positions
from newsstand.cluster.log_repair import Journal, Plan, Seen, Step, copies_folder, plan_repair, repair, resume
from newsstand.cluster.log_segments import REPAIR
from newsstand.errors import BadInput
from newsstand.serving.process import wall_clock_ms

Advance = Callable[[int], object]


@dataclass(frozen=True)
class LogFolder:
    """The log of a data folder, and where the results are that belong to it."""

    data: Path
    results: str

    @property
    def log(self) -> Path:
        """The folder of the log."""
        return self.data / "log"


@dataclass(frozen=True)
class Verified:
    """What was found of one dataset, and who has seen records beyond the end of its log."""

    dataset: str
    found: Examination
    beyond: Sequence[Seen]

    @property
    def sound(self) -> bool:
        """Whether nothing is to be repaired."""
        return not self.found.faults and not self.beyond


def find_log(folder: Path, data: Path | None = None) -> LogFolder:
    """The log of an app folder, or of a data folder; raise BadInput if it is not in files."""
    if (folder / FILE).is_file():
        app = read_app(folder, os.environ)
        if app.cluster.log is not None:
            raise BadInput(
                f"{app.file}: the log is in Kafka ({app.cluster.log.servers}), which keeps and verifies it by "
                "itself; use Kafka's own tools"
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
        raise BadInput(f"data folder {found.data}: does not exist, no cluster ever ran there")
    return found


def verify_log(place: LogFolder, dataset: str | None, progress: Callable[[int], Advance]) -> list[Verified]:
    """Read all of the log, also while a cluster writes it; `progress` is told how many bytes, then those read."""
    seen = _seen(place)
    _require_finished(place)
    return _examined(place, _datasets(place, seen, dataset), seen, progress)


def repair_log(
    place: LogFolder,
    dataset: str | None,
    progress: Callable[[int], Advance],
    *,
    dry_run: bool = False,
    now_ms: Callable[[], int] = wall_clock_ms,
    step: Step = lambda name: None,
) -> list[Journal]:
    """Repair what is damaged, while no cluster runs; return what was done to each dataset, or would be."""
    with _kept_locked(place):
        if dry_run:
            _require_finished(place)
        done = [] if dry_run else resume(place.log, step)
        seen = _seen(place)
        at_ms = now_ms()
        moment = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        copies = copies_folder(place.data, place.log, moment)
        for one in _examined(place, _datasets(place, seen, dataset), seen, progress):
            plan = plan_repair(one.found, seen.get(one.dataset, ()), at_ms)
            if plan is not None:
                done.append(_planned(plan, copies) if dry_run else repair(place.log, plan, copies, step))
        return done


def _require_finished(place: LogFolder) -> None:
    """Refuse a log that a repair was changing when it was interrupted: its records may all be elsewhere."""
    unfinished = next(iter(place.log.glob(f"{REPAIR}*")), None)
    if unfinished is not None:
        raise BadInput(f"{unfinished}: a repair was interrupted; run: newsstand log repair {place.data}")


def _planned(plan: Plan, copies: Path) -> Journal:
    dataset = plan.found.folder.name
    copy = str(copies / dataset)
    return Journal(dataset, plan.at_ms, plan.lost, plan.reserved, plan.keys, plan.last + 1, copy)


def _examined(
    place: LogFolder,
    datasets: Sequence[str],
    seen: Mapping[str, Sequence[Seen]],
    progress: Callable[[int], Advance],
) -> list[Verified]:
    advance = progress(sum(sizes(place.log / name) for name in datasets))
    verified = []
    for name in datasets:
        found = examine(place.log / name, advance)
        beyond = [one for one in seen.get(name, ()) if one.seq > found.end]
        verified.append(Verified(name, found, beyond))
    return verified


def _seen(place: LogFolder) -> dict[str, list[Seen]]:
    """Asked for before the log is read, which may grow meanwhile."""
    channels = recorded_channels(place.data / "catalog.json")
    with recorded_results(place.results, place.data) as results:
        return seen_positions(place.data, results, channels)


def _datasets(place: LogFolder, seen: Mapping[str, object], dataset: str | None) -> list[str]:
    known = sorted({*(dataset_folders(place.log) if place.log.is_dir() else ()), *seen})
    if dataset is None:
        return known
    if dataset not in known:
        raise BadInput(f"{place.log}: has no dataset '{dataset}'; one of {', '.join(known) or 'none'}")
    return [dataset]


@contextmanager
def _kept_locked(place: LogFolder) -> Iterator[None]:
    place.log.mkdir(mode=0o700, exist_ok=True)
    try:
        lock = locked(place.log)
    except BadInput as error:
        raise BadInput(f"data folder {place.data}: a cluster runs there; stop it before a repair") from error
    try:
        yield
    finally:
        os.close(lock)
