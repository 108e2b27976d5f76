"""What of a log in files is sound, and what is not: all of it is read, and nothing is changed.

Unlike readers, which stop at the first damage, this goes on behind it: it finds all sound records wherever they
lie, so that a repair can keep them with their numbers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from newsstand.cluster.log_seals import Gap, read_gap, read_seal, seal_path
from newsstand.cluster.log_segments import (
    Bytes,
    Head,
    Keyed,
    Part,
    gap_path,
    has_later_commit,
    keyed_of,
    mapped,
    parse_line,
    part_path,
    parts,
    read_head,
    segment_path,
    sound_end,
)
from newsstand.errors import LogDamage

_KEY = re.compile(rb',"_key":("(?:[^"\\]|\\.)*")(?:,"_by":("(?:[^"\\]|\\.)*"))?')


@dataclass(frozen=True)
class Run:
    """Sound lines that follow each other in a segment: the records `first` to `last`, in these bytes."""

    path: Path
    begin: int
    end: int
    first: int
    last: int


@dataclass(frozen=True)
class Fault:
    """What is wrong in these bytes of a file, and the records that it costs, if any."""

    path: Path
    begin: int
    end: int
    what: str
    first: int = 0
    last: int = 0


@dataclass(frozen=True)
class _Bad:
    """Lines that are not sound, after the record `after` as far as one can tell."""

    path: Path
    begin: int
    end: int
    after: int
    lines: int


@dataclass
class Examination:
    """What was found in the folder of one dataset."""

    folder: Path
    head: Head | None = None
    runs: list[Run] = field(default_factory=list)
    """All sound records, once each, by number."""
    gaps: list[Gap] = field(default_factory=list)
    """Records that an earlier repair gave up."""
    faults: list[Fault] = field(default_factory=list)
    keys: list[Keyed] = field(default_factory=list)
    """The idempotency keys of all appends of which one can tell, by number."""
    guessed: list[Keyed] = field(default_factory=list)
    """Those of them that were read from damaged lines: a letter may be wrong."""
    end: int = 0
    """The number of the newest record that was accepted, as far as the log alone can tell."""

    @property
    def lost(self) -> list[tuple[int, int]]:
        """The records that were accepted and are not there, without those that were given up before."""
        missing, expected = [], 1
        known = [(run.first, run.last) for run in self.runs] + [(gap.first, gap.last) for gap in self.gaps]
        for first, last in sorted(known):
            if first > expected:
                missing.append((expected, first - 1))
            expected = max(expected, last + 1)
        return [*missing, (expected, self.end)] if expected <= self.end else missing


def examine(folder: Path, advance: Callable[[int], object] = lambda size: None) -> Examination:
    """Read all of a dataset's log; `advance` is told how many bytes were read."""
    found = Examination(folder)
    try:
        found.head = read_head(folder)
    except LogDamage:
        found.faults.append(Fault(folder / "head", 0, _size(folder / "head"), "does not match its checksum"))
    known = parts(folder)
    if found.head is None and not found.faults and known:
        found.faults.append(Fault(folder / "head", 0, 0, "is missing: only the records tell where the log ends"))
    bad: list[_Bad] = []
    for part in known:
        if part.last is not None:
            _examine_gap(found, part)
            continue
        path = segment_path(folder, part.first)
        data = mapped(path, _size(path))
        if found.head is not None and found.head.segment == part.first and not _fits(found.head, part, data):
            found.faults.append(Fault(folder / "head", 0, _size(folder / "head"), f"does not fit {path.name}"))
            found.head = None
        limit = _limit(found.head, part, data, part is known[-1])
        runs, wrong = _scan(path, data, part.first, limit, found.keys, found.guessed)
        found.runs += runs
        bad += wrong
        _examine_seal(found, part, part is known[-1])
        advance(_size(path))
    found.runs = _distinct(found)
    found.end = max(
        found.head.seq if found.head else 0,
        max((run.last for run in found.runs), default=0),
        max((gap.last for gap in found.gaps), default=0),
        max((one.after + one.lines for one in bad), default=0) if found.head is None else 0,
    )
    if found.runs and unfinished(found.runs[-1]) is not None:
        found.end = max(found.end, found.runs[-1].last + 1)
    certain = {(keyed.publisher, keyed.key) for keyed in found.keys}
    found.guessed = [keyed for keyed in found.guessed if (keyed.publisher, keyed.key) not in certain]
    found.keys += found.guessed
    found.keys = sorted(set(found.keys), key=lambda keyed: (keyed.last, keyed.first, keyed.key))
    found.faults += _faults(found, bad)
    return found


def sizes(folder: Path) -> int:
    """How many bytes `examine` reads."""
    return sum(_size(part_path(folder, part)) for part in parts(folder) if not part.is_gap)


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _limit(head: Head | None, part: Part, data: Bytes, is_last: bool) -> int:
    """Up to where a segment is to be read: the rest may be of an append that a crash cut off."""
    if not is_last:
        return len(data)
    if head is None:
        return len(data)
    byte, seq = 0, part.first - 1
    if _fits(head, part, data):
        byte, seq = min(head.byte, len(data)), head.seq
    end, seq = sound_end(data, byte, seq)
    return len(data) if end < len(data) and has_later_commit(data, end, seq) else end


def _fits(head: Head, part: Part, data: Bytes) -> bool:
    """Whether `head` may be that of this segment: a line ends where it says, and is not another record."""
    if head.segment != part.first:
        return False
    if head.byte == 0 or head.byte > len(data):
        return True
    line = parse_line(data[data.rfind(b"\n", 0, head.byte - 1) + 1 : head.byte - 1])
    return data[head.byte - 1 : head.byte] == b"\n" and (line is None or int(line["seq"]) == head.seq)


def _scan(
    path: Path, data: Bytes, first: int, limit: int, keys: list[Keyed], guessed: list[Keyed]
) -> tuple[list[Run], list[_Bad]]:
    """All sound lines of a segment, and all others."""
    runs: list[Run] = []
    bad: list[_Bad] = []
    byte, seq = 0, first - 1
    while byte < limit:
        newline = data.find(b"\n", byte, limit)
        end = limit if newline < 0 else newline + 1
        line = parse_line(data[byte : end - 1]) if newline >= 0 else None
        if line is None:
            if bad and bad[-1].end == byte:
                bad[-1] = replace(bad[-1], end=end, lines=bad[-1].lines + 1)
            else:
                bad.append(_Bad(path, byte, end, seq, 1))
            _guess_key(data[byte:end], bad[-1], guessed)
        else:
            number = int(line["seq"])
            if runs and runs[-1].end == byte and number == runs[-1].last + 1:
                runs[-1] = Run(path, runs[-1].begin, end, runs[-1].first, number)
            else:
                runs.append(Run(path, byte, end, number, number))
            seq = number
            keyed = keyed_of(line)
            if keyed is not None:
                keys.append(keyed)
        byte = end
    return runs, bad


def _guess_key(line: bytes, bad: _Bad, guessed: list[Keyed]) -> None:
    """The key in a damaged line, as it can be read; better than to forget it."""
    found = _KEY.search(line)
    first = re.search(rb',"_end":(\d{1,18})', line)
    if found is None or first is None:
        return
    last = bad.after + bad.lines
    try:
        key = msgspec.json.decode(found[1], type=str)
        by = msgspec.json.decode(found[2], type=str) if found[2] is not None else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if 0 < int(first[1]) <= last:
        guessed.append(Keyed(key, int(first[1]), last, by))


def _examine_gap(found: Examination, part: Part) -> None:
    assert part.last is not None
    try:
        gap = read_gap(found.folder, part)
    except LogDamage:
        path = gap_path(found.folder, part.first, part.last)
        found.faults.append(Fault(path, 0, _size(path), "does not match its checksum"))
        gap = Gap(part.first, part.last, 0, "its record of the loss was damaged")
    found.gaps.append(gap)
    found.keys += gap.keys


def _examine_seal(found: Examination, part: Part, is_last: bool) -> None:
    path = seal_path(found.folder, part.first)
    if not path.exists():
        return
    seal = read_seal(found.folder, part.first)
    if seal is not None:
        found.keys += seal.keys
    elif not is_last:
        found.faults.append(
            Fault(path, 0, _size(path), "does not match its checksum; the next start makes it again")
        )


def _distinct(found: Examination) -> list[Run]:
    """Runs by number; of records that are there twice the first is taken, and the others are faults."""
    taken: list[Run] = []
    for run in sorted(found.runs, key=lambda run: (run.first, -run.last, run.path)):
        skip = min(run.last, taken[-1].last) + 1 - run.first if taken else 0
        begin = run.begin
        if skip > 0:
            data = mapped(run.path, run.end)
            for _ in range(skip):
                begin = data.find(b"\n", begin) + 1
            what = f"records {run.first} to {run.first + skip - 1} are also in {taken[-1].path.name}"
            found.faults.append(Fault(run.path, run.begin, begin, what))
        if begin < run.end:
            taken.append(Run(run.path, begin, run.end, run.first + max(0, skip), run.last))
    return taken


def unfinished(run: Run) -> int | None:
    """The first record, in a run, of an append that goes on after the run; None if the run ends with an append."""
    data = mapped(run.path, run.end)
    first, end = run.last + 1, run.end
    while end > run.begin:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        line = parse_line(data[begin : end - 1])
        if line is None or line["end"] is not None:
            break
        first, end = first - 1, begin
    return first if first <= run.last else None


def _faults(found: Examination, bad: Sequence[_Bad]) -> list[Fault]:
    """What is wrong with the segments: where lines are not sound, and where records are missing altogether."""
    faults: list[Fault] = []
    explained = set()
    for first, last in found.lost:
        here = [one for one in bad if first - 1 <= one.after < last]
        explained.update(here)
        for one in here:
            begin = max(first, one.after + 1)
            until = min([last, *(other.after for other in here if other.after > one.after)])
            faults.append(Fault(one.path, one.begin, one.end, _lines(one), begin, until))
        if not here:
            path, byte = _place(found, first)
            what = "records are missing here" if path.exists() else "the file is missing"
            faults.append(Fault(path, byte, byte, what, first, last))
    faults += [Fault(one.path, one.begin, one.end, _lines(one)) for one in bad if one not in explained]
    head = found.head
    if head is not None and not segment_path(found.folder, head.segment).exists():
        path = segment_path(found.folder, head.segment)
        if all(fault.path != path for fault in faults):
            faults.append(Fault(path, 0, 0, "the file is missing"))
    for run in found.runs:
        name = int(run.path.stem)
        if run.begin == 0 and run.first != name:
            faults.append(Fault(run.path, 0, run.end, f"begins with record {run.first} where {name} belongs"))
    return sorted(faults, key=lambda fault: (fault.path, fault.begin))


def _lines(bad: _Bad) -> str:
    many = bad.lines > 1
    return (
        f"{bad.lines} line{'s do' if many else ' does'} not match {'their checksums' if many else 'its checksum'}"
    )


def _place(found: Examination, first: int) -> tuple[Path, int]:
    """Where a record that is missing should be: after the one before it, or in a segment of its own."""
    for run in found.runs:
        if run.last == first - 1 and run.end < _size(run.path):
            return run.path, run.end
    path = segment_path(found.folder, first)
    before = [run for run in found.runs if run.last == first - 1]
    follows = found.head is not None and found.head.segment == first
    if before and not path.exists() and not follows:
        return before[0].path, before[0].end
    return path, 0
