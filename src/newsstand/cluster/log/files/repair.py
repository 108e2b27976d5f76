"""Repair of a log in files: valid records keep their numbers, lost ones become gaps, no number is assigned twice.

The new folder of a dataset is completed beside the old one, and a journal is written before the two are swapped.
So a crash leaves the old log, or a journal from which the next repair continues; a cluster does not start over a
journal. The old folder is kept as a copy. Files that do not change any more are shared by both (hard links).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from newsstand.cluster.log.files import segments
from newsstand.cluster.log.files.segments import REPAIR, Gap, Head, KeyedAppend, LogPart, segment_path
from newsstand.cluster.log.files.verification import Examination, ValidRun, unfinished
from newsstand.config.files import sync_folder, write_atomically
from newsstand.errors import BadInput

RESERVE = 100_000
"""Numbers that are skipped where the last assigned number is unknown: publishers may have got them."""

Step = Callable[[str], object]


class LostKey(msgspec.Struct, frozen=True):
    """An append that lost records, and its idempotency key; None if it has none or the key is unknown."""

    key: str | None
    publisher: str | None
    first: int
    last: int
    remembered: bool
    """Whether some of its records are left, so that repeating it still adds nothing."""
    certain: bool = True
    """Whether the key was read from a valid line; another one may be wrong."""


class LostRecords(msgspec.Struct, frozen=True):
    """Lost records, and the reason."""

    first: int
    last: int
    why: str


class RepairJournal(msgspec.Struct, frozen=True):
    """The changes that a repair makes to a dataset; it becomes the report."""

    dataset: str
    at_ms: int
    lost: Sequence[LostRecords]
    reserved: LostRecords | None
    keys: Sequence[LostKey]
    next: int
    """The number of the next publication."""
    copy: str
    """The folder with the copy of the old log."""


@dataclass(frozen=True)
class RepairPlan:
    """A planned repair: what was found, all gaps by number, also those of earlier repairs, and the journal."""

    found: Examination
    gaps: Sequence[Gap]
    journal: RepairJournal


def plan_repair(found: Examination, at_ms: int, copies: Path) -> RepairPlan | None:
    """Plan the repair of a log; return None if it is valid and has all records of the known positions."""
    if found.valid:
        return None
    end = max([found.end, *(one.seq for one in found.beyond)])
    lost = [LostRecords(first, last, "damaged or missing") for first, last in found.lost]
    if found.beyond:
        who = ", ".join(one.by for one in found.beyond)
        lost.append(LostRecords(found.end + 1, end, f"missing; known to {who}"))
    reserved = None
    if found.beyond or (found.head is None and any(one.last == end for one in lost)):
        why = "may have been assigned: the last assigned number is unknown"
        reserved = LostRecords(end + 1, end + RESERVE, why)
    keys: list[LostKey] = []
    gaps = [_gap(found, one, at_ms, keys) for one in [*lost, *([reserved] if reserved else [])]]
    for run in found.runs:
        first = unfinished(run)
        if first is not None and not any(one.first <= run.last < one.last for one in found.keys):
            keys.append(LostKey(None, None, first, run.last, False))
    gaps = sorted([*found.gaps, *gaps], key=lambda gap: gap.first)
    last = max([run.last for run in found.runs] + [gap.last for gap in gaps], default=0)
    copy = str(copies / found.dataset)
    return RepairPlan(found, gaps, RepairJournal(found.dataset, at_ms, lost, reserved, keys, last + 1, copy))


def _gap(found: Examination, lost: LostRecords, at_ms: int, keys: list[LostKey]) -> Gap:
    """Return the gap of lost records with the keys to remember; add their appends to `keys`."""
    remembered: list[KeyedAppend] = []
    for keyed in found.keys:
        if keyed.first > lost.last or keyed.last < lost.first:
            continue
        remains = any(run.first <= keyed.last and run.last >= keyed.first for run in found.runs)
        certain = keyed not in found.guessed
        key = LostKey(keyed.key, keyed.publisher, keyed.first, keyed.last, remains, certain)
        if key not in keys:
            keys.append(key)
        if remains:
            remembered.append(keyed)
    return Gap(lost.first, lost.last, at_ms, lost.why, remembered)


def repair(log: Path, plan: RepairPlan, step: Step = lambda name: None) -> RepairJournal:
    """Repair the log of a dataset, which the caller has locked; `step` is called before each step."""
    journal = plan.journal
    repaired = log / f".repaired-{journal.dataset}"
    step("make")
    shutil.rmtree(repaired, ignore_errors=True)
    repaired.mkdir(mode=0o700)
    _write_log(plan, repaired, step)
    step("journal")
    write_atomically(_journal_path(log, journal.dataset), msgspec.json.format(msgspec.json.encode(journal)))
    _swap(log, journal, step)
    return journal


def resume(log: Path, step: Step = lambda name: None) -> list[RepairJournal]:
    """Complete repairs that were interrupted after they had written their journal."""
    done = []
    for path in sorted(log.glob(f"{REPAIR}*")):
        try:
            journal = msgspec.json.decode(path.read_bytes(), type=RepairJournal)
        except msgspec.DecodeError as error:
            raise BadInput(f"{path}: malformed ({error}); restore the log from a copy") from error
        _swap(log, journal, step)
        done.append(journal)
    return done


def copies_folder(data: Path, log: Path, time: str) -> Path:
    """Return the folder for copies: beside the log, or within it if the log has its own file system."""
    beside = os.stat(data).st_dev == os.stat(log).st_dev
    name = f"log-before-repair-{time}"
    return data / name if beside else log / f".{name}"


def report_path(journal: RepairJournal) -> Path:
    """Return the path of the report of a repair."""
    return Path(f"{journal.copy}.report.json")


def _journal_path(log: Path, dataset: str) -> Path:
    return log / f"{REPAIR}{dataset}"


def _swap(log: Path, journal: RepairJournal, step: Step) -> None:
    """Replace the old folder by the new one; after a crash, continue where it was interrupted."""
    old, repaired, copy = log / journal.dataset, log / f".repaired-{journal.dataset}", Path(journal.copy)
    step("copies")
    copy.parent.mkdir(mode=0o700, exist_ok=True)
    sync_folder(copy.parent.parent)
    if repaired.is_dir():
        if old.is_dir():
            step("keep the old folder")
            old.rename(copy)
            sync_folder(copy.parent)
            sync_folder(log)
        step("take the new folder")
        repaired.rename(old)
        sync_folder(log)
    step("report")
    _journal_path(log, journal.dataset).rename(report_path(journal))
    sync_folder(copy.parent)
    sync_folder(log)


def _write_log(plan: RepairPlan, folder: Path, step: Step) -> None:
    """Write the new folder durably."""
    for gap in plan.gaps:
        step(f"gap {gap.first}")
        segments.write_checked(LogPart(folder, gap.first, gap.last).path, gap)
    end = plan.journal.next - 1
    head = Head(plan.journal.next, 0, end)
    for run in plan.found.runs:
        step(f"segment {run.first}")
        size = _write_segment(plan.found, run, folder, run.last == end)
        if run.last == end:
            head = Head(run.first, size, end)
    if head.byte == 0:
        write_atomically(segment_path(folder, head.segment), b"")
    step("head")
    write_atomically(folder / "head", segments.encode_head(head))


def _write_segment(found: Examination, run: ValidRun, folder: Path, is_last: bool) -> int:
    """Link a run's file if it has nothing else and will not grow, else copy its lines; return their size."""
    size = run.path.stat().st_size
    path = segment_path(folder, run.first)
    if not is_last and (run.begin, run.end, int(run.path.stem)) == (0, size, run.first):
        try:
            os.link(run.path, path)
        except OSError:
            _copy(run, path)
        seal = segments.read_seal(found.folder, run.first)
        if seal is not None:
            segments.write_checked(segments.seal_path(folder, run.first), seal)
    else:
        _copy(run, path)
    return run.end - run.begin


def _copy(run: ValidRun, path: Path) -> None:
    with (
        run.path.open("rb") as source,
        open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
    ):
        source.seek(run.begin)
        rest = run.end - run.begin
        while rest and (piece := source.read(min(rest, 2**20))):
            file.write(piece)
            rest -= len(piece)
        file.flush()
        os.fsync(file.fileno())
