"""Repair of a log in files: sound records keep their numbers, lost ones become gaps, and no number is given twice.

The new folder of a dataset is made whole beside the old one, and a journal is written before the two change
places. So a crash leaves the old log, or a journal, with which a next repair goes on; a cluster does not start
over one. The old folder is kept. Files that nobody changes any more are the same in both (hard links).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from newsstand.cluster.log_check import Examination, Run, unfinished
from newsstand.cluster.log_seals import Gap, read_seal, seal_path, write_sealed
from newsstand.cluster.log_segments import (
    REPAIR,
    Head,
    Keyed,
    encode_head,
    gap_path,
    segment_path,
)
from newsstand.cluster.pages import sync_folder, write_whole
from newsstand.errors import BadInput

RESERVE = 100_000
"""So many numbers are passed over where nobody knows how far they were given: receipts may have seen them."""

Step = Callable[[str], object]


@dataclass(frozen=True)
class Seen:
    """Somebody knows the records of a dataset up to a number."""

    by: str
    seq: int


class LostKey(msgspec.Struct, frozen=True):
    """An append that lost records, and its idempotency key; None if its key is not known, if it had one."""

    key: str | None
    publisher: str | None
    first: int
    last: int
    remembered: bool
    """Whether some of its records are left, so that a repetition still adds nothing."""
    certain: bool = True
    """Whether the key is sure; one that was read from a damaged line may have a wrong letter."""


class LostRecords(msgspec.Struct, frozen=True):
    """Records that are lost, and why."""

    first: int
    last: int
    why: str


class Journal(msgspec.Struct, frozen=True):
    """What a repair does to a dataset; after it, the report."""

    dataset: str
    at_ms: int
    lost: Sequence[LostRecords]
    reserved: LostRecords | None
    keys: Sequence[LostKey]
    next: int
    """The number of the next publication."""
    copy: str
    """The folder where the log lies as it was."""


@dataclass
class Plan:
    """How the log of a dataset will be."""

    found: Examination
    at_ms: int
    lost: list[LostRecords] = field(default_factory=list)
    reserved: LostRecords | None = None
    gaps: list[Gap] = field(default_factory=list)
    """All gaps, also those of earlier repairs, by number."""
    keys: list[LostKey] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The number after which numbering goes on."""
        return max([run.last for run in self.found.runs] + [gap.last for gap in self.gaps], default=0)


def plan_repair(found: Examination, seen: Sequence[Seen], at_ms: int) -> Plan | None:
    """What to do about a log; None if it is sound and has all records that anybody has seen."""
    highest = max((one.seq for one in seen), default=0)
    beyond = highest > found.end
    if not found.faults and not beyond:
        return None
    plan = Plan(found, at_ms)
    plan.lost = [LostRecords(first, last, "damaged or missing") for first, last in found.lost]
    end = found.end
    if beyond:
        who = ", ".join(one.by for one in seen if one.seq > found.end)
        plan.lost.append(LostRecords(end + 1, highest, f"missing; known to {who}"))
        end = highest
    at_the_end = any(one.last == end for one in plan.lost)
    if beyond or (found.head is None and at_the_end):
        why = "numbers that may have been given to publishers, as far as anybody knows"
        plan.reserved = LostRecords(end + 1, end + RESERVE, why)
    _plan_gaps(plan)
    return plan


def _plan_gaps(plan: Plan) -> None:
    """Decide what is remembered of what is lost."""
    for one in [*plan.lost, *([plan.reserved] if plan.reserved else [])]:
        remembered: list[Keyed] = []
        for keyed in plan.found.keys:
            if keyed.first > one.last or keyed.last < one.first:
                continue
            kept = any(run.first <= keyed.last and run.last >= keyed.first for run in plan.found.runs)
            certain = keyed not in plan.found.guessed
            lost = LostKey(keyed.key, keyed.publisher, keyed.first, keyed.last, kept, certain)
            if lost not in plan.keys:
                plan.keys.append(lost)
            if kept:
                remembered.append(keyed)
        plan.gaps.append(Gap(one.first, one.last, plan.at_ms, one.why, remembered))
    for run in plan.found.runs:
        first = unfinished(run)
        if first is not None and not any(one.first <= run.last < one.last for one in plan.found.keys):
            plan.keys.append(LostKey(None, None, first, run.last, False))
    plan.gaps = sorted([*plan.found.gaps, *plan.gaps], key=lambda gap: gap.first)


# Doing it


def repair(log: Path, plan: Plan, copies: Path, step: Step = lambda name: None) -> Journal:
    """Put the log of a dataset right; whoever calls keeps the log locked. `step` is called before each step."""
    dataset = plan.found.folder.name
    made = log / f".repaired-{dataset}"
    step("make")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(mode=0o700)
    head = _make(plan, made, step)
    journal = Journal(
        dataset,
        plan.at_ms,
        plan.lost,
        plan.reserved,
        plan.keys,
        head.seq + 1,
        str(copies / dataset),
    )
    step("journal")
    write_whole(_journal_path(log, dataset), msgspec.json.format(msgspec.json.encode(journal)))
    _change_places(log, journal, step)
    return journal


def resume(log: Path, step: Step = lambda name: None) -> list[Journal]:
    """End repairs that were interrupted after they had written their journal."""
    done = []
    for path in sorted(log.glob(f"{REPAIR}*")):
        try:
            journal = msgspec.json.decode(path.read_bytes(), type=Journal)
        except msgspec.DecodeError as error:
            raise BadInput(f"{path}: cannot be understood ({error}); restore the log from a copy") from error
        _change_places(log, journal, step)
        done.append(journal)
    return done


def copies_folder(data: Path, log: Path, time: str) -> Path:
    """Where old folders are kept: beside the log, or within it if it is a disk of its own."""
    beside = os.stat(data).st_dev == os.stat(log).st_dev
    name = f"log-before-repair-{time}"
    return data / name if beside else log / f".{name}"


def report_path(journal: Journal) -> Path:
    """The file that tells what a repair did."""
    return Path(f"{journal.copy}.report.json")


def _journal_path(log: Path, dataset: str) -> Path:
    return log / f"{REPAIR}{dataset}"


def _change_places(log: Path, journal: Journal, step: Step) -> None:
    """Put the new folder in the place of the old one; begun again after a crash, go on where it was left."""
    old, made, copy = log / journal.dataset, log / f".repaired-{journal.dataset}", Path(journal.copy)
    step("copies")
    copy.parent.mkdir(mode=0o700, exist_ok=True)
    sync_folder(copy.parent.parent)
    if made.is_dir():
        if old.is_dir():
            step("keep the old folder")
            old.rename(copy)
            sync_folder(copy.parent)
            sync_folder(log)
        step("take the new folder")
        made.rename(old)
        sync_folder(log)
    step("report")
    _journal_path(log, journal.dataset).rename(report_path(journal))
    sync_folder(copy.parent)
    sync_folder(log)


def _make(plan: Plan, made: Path, step: Step) -> Head:
    """Make the new folder, durable."""
    for gap in plan.gaps:
        step(f"gap {gap.first}")
        write_sealed(gap_path(made, gap.first, gap.last), gap)
    head = Head(1, 0, 0)
    for run in plan.found.runs:
        is_last = run.last == plan.last
        step(f"segment {run.first}")
        size = _make_segment(plan.found, run, made, is_last)
        if is_last:
            head = Head(run.first, size, run.last)
    if head.seq < plan.last:
        head = Head(plan.last + 1, 0, plan.last)
    if head.byte == 0:
        _write(segment_path(made, head.segment), b"")
    step("head")
    _write(made / "head", encode_head(head))
    sync_folder(made)
    return head


def _make_segment(found: Examination, run: Run, made: Path, is_last: bool) -> int:
    """Take a run over: the file itself if it has nothing else and will not grow, else a copy of its lines."""
    size = run.path.stat().st_size
    path = segment_path(made, run.first)
    if not is_last and (run.begin, run.end, int(run.path.stem)) == (0, size, run.first):
        try:
            os.link(run.path, path)
        except OSError:
            _copy(run, path)
        seal = read_seal(found.folder, run.first)
        if seal is not None:
            write_sealed(seal_path(made, run.first), seal)
    else:
        _copy(run, path)
    return run.end - run.begin


def _copy(run: Run, path: Path) -> None:
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


def _write(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
