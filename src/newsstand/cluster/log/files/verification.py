"""Verification of a dataset's log: reads all of it and changes nothing.

Readers stop at the first damage; verification continues after it and finds all valid records, so that a repair can
keep them with their numbers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from newsstand.cluster.log.files import segments
from newsstand.cluster.log.files.segments import Gap, Head, KeyedAppend, LogPart, SegmentBytes, segment_path
from newsstand.errors import LogDamage

_KEY = re.compile(rb',"_key":("(?:[^"\\]|\\.)*")(?:,"_by":("(?:[^"\\]|\\.)*"))?')


@dataclass(frozen=True)
class ValidRun:
    """Consecutive valid lines of a segment: the records `first` to `last`, in these bytes."""

    path: Path
    begin: int
    end: int
    first: int
    last: int


@dataclass(frozen=True)
class LogFault:
    """Damage in these bytes of a file, and the records that it affects, if any."""

    path: Path
    begin: int
    end: int
    what: str
    first: int = 0
    last: int = 0


@dataclass(frozen=True)
class KnownPosition:
    """The last record of a dataset that a channel or a file refers to."""

    by: str
    seq: int


@dataclass(frozen=True)
class _DamagedLines:
    """Consecutive damaged lines, after the record `after` according to the valid lines."""

    path: Path
    begin: int
    end: int
    after: int
    lines: int


@dataclass
class Examination:
    """The findings in the folder of one dataset."""

    folder: Path
    head: Head | None = None
    runs: list[ValidRun] = field(default_factory=list)
    """All valid records, once each, by number."""
    gaps: list[Gap] = field(default_factory=list)
    """Records that an earlier repair could not recover."""
    faults: list[LogFault] = field(default_factory=list)
    keys: list[KeyedAppend] = field(default_factory=list)
    """The idempotency keys of all appends that could be read, by number."""
    guessed: list[KeyedAppend] = field(default_factory=list)
    """Those of them that were read from damaged lines and may be wrong."""
    end: int = 0
    """The number of the newest accepted record, according to the log alone."""
    beyond: Sequence[KnownPosition] = ()
    """The known positions beyond that record."""

    @property
    def dataset(self) -> str:
        """The name of the dataset."""
        return self.folder.name

    @property
    def valid(self) -> bool:
        """Whether nothing must be repaired."""
        return not self.faults and not self.beyond

    def add_fault(self, path: Path, what: str) -> None:
        """Add a fault of a whole file."""
        self.faults.append(LogFault(path, 0, _size(path), what))

    @property
    def lost(self) -> list[tuple[int, int]]:
        """The accepted records that are missing, without those in gaps."""
        missing, expected = [], 1
        present = [(run.first, run.last) for run in self.runs] + [(gap.first, gap.last) for gap in self.gaps]
        for first, last in sorted(present):
            if first > expected:
                missing.append((expected, first - 1))
            expected = max(expected, last + 1)
        return [*missing, (expected, self.end)] if expected <= self.end else missing


def examine(folder: Path, known: Sequence[KnownPosition], advance: Callable[[int], object]) -> Examination:
    """Read all of a dataset's log; `advance` is called with the number of bytes of each segment."""
    found = Examination(folder)
    head_file = folder / "head"
    try:
        found.head = segments.read_head(folder)
    except LogDamage:
        found.add_fault(head_file, "does not match its checksum")
    files = segments.parts(folder)  # after the head: a cluster may begin a segment meanwhile
    if found.head is None and not found.faults and files:
        found.add_fault(head_file, "is missing; the end of the log is taken from the records")
    bad: list[_DamagedLines] = []
    for part in files:
        is_last = part is files[-1]
        if part.last is not None:
            _examine_gap(found, part, part.last)
            continue
        data = segments.map_file(part.path, _size(part.path))
        if found.head is not None and found.head.segment == part.first and not _fits(found.head, part, data):
            found.add_fault(head_file, f"does not match {part.path.name}")
            found.head = None
        bad += _scan(found, part, data, _limit(found.head, part, data, is_last))
        _examine_seal(found, part, is_last)
        advance(len(data))
    found.runs = _distinct(found)
    ends = [one.after + one.lines for one in bad] if found.head is None else [found.head.seq]
    found.end = max([0, *ends, *(run.last for run in found.runs), *(gap.last for gap in found.gaps)])
    if found.runs and unfinished(found.runs[-1]) is not None:
        found.end = max(found.end, found.runs[-1].last + 1)
    certain = {(keyed.publisher, keyed.key) for keyed in found.keys}
    found.guessed = [keyed for keyed in found.guessed if (keyed.publisher, keyed.key) not in certain]
    found.keys = sorted({*found.keys, *found.guessed}, key=lambda keyed: (keyed.last, keyed.first, keyed.key))
    found.faults += _faults(found, bad)
    found.beyond = [one for one in known if one.seq > found.end]
    return found


def sizes(folder: Path) -> int:
    """Return the number of bytes that `examine` reads."""
    return sum(_size(part.path) for part in segments.parts(folder) if part.last is None)


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _limit(head: Head | None, part: LogPart, data: SegmentBytes, is_last: bool) -> int:
    """Return where to stop reading a segment: the rest may belong to an append that a crash interrupted."""
    if not is_last or head is None:
        return len(data)
    byte, seq = 0, part.first - 1
    if _fits(head, part, data):
        byte, seq = min(head.byte, len(data)), head.seq
    end, seq = segments.valid_end(data, byte, seq)
    return len(data) if end < len(data) and segments.has_later_commit(data, end, seq) else end


def _fits(head: Head, part: LogPart, data: SegmentBytes) -> bool:
    """Return whether `head` matches a segment: a line ends at its byte, with its number if it is valid."""
    if head.segment != part.first:
        return False
    if head.byte == 0 or head.byte > len(data):
        return True
    line = segments.parse_line(data[data.rfind(b"\n", 0, head.byte - 1) + 1 : head.byte - 1])
    return data[head.byte - 1 : head.byte] == b"\n" and (line is None or int(line["seq"]) == head.seq)


def _scan(found: Examination, part: LogPart, data: SegmentBytes, limit: int) -> list[_DamagedLines]:
    """Add the valid lines of a segment and its keys; return the damaged lines."""
    runs: list[ValidRun] = []
    bad: list[_DamagedLines] = []
    path, byte, seq = part.path, 0, part.first - 1
    while byte < limit:
        newline = data.find(b"\n", byte, limit)
        end = limit if newline < 0 else newline + 1
        line = segments.parse_line(data[byte : end - 1]) if newline >= 0 else None
        if line is None:
            if bad and bad[-1].end == byte:
                bad[-1] = replace(bad[-1], end=end, lines=bad[-1].lines + 1)
            else:
                bad.append(_DamagedLines(path, byte, end, seq, 1))
            _guess_key(data[byte:end], bad[-1].after + bad[-1].lines, found.guessed)
        else:
            number = int(line["seq"])
            if runs and runs[-1].end == byte and number == runs[-1].last + 1:
                runs[-1] = ValidRun(path, runs[-1].begin, end, runs[-1].first, number)
            else:
                runs.append(ValidRun(path, byte, end, number, number))
            seq = number
            if (keyed := segments.keyed_append(line)) is not None:
                found.keys.append(keyed)
        byte = end
    found.runs += runs
    return bad


def _guess_key(line: bytes, last: int, guessed: list[KeyedAppend]) -> None:
    """Append the key in the damaged line of record `last` if it can be read: better an uncertain key than none."""
    found = _KEY.search(line)
    first = re.search(rb',"_end":(\d{1,18})', line)
    if found is None or first is None:
        return
    try:
        key = msgspec.json.decode(found[1], type=str)
        by = msgspec.json.decode(found[2], type=str) if found[2] is not None else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if 0 < int(first[1]) <= last:
        guessed.append(KeyedAppend(key, int(first[1]), last, by))


def _examine_gap(found: Examination, part: LogPart, last: int) -> None:
    try:
        gap = segments.read_gap(part)
    except LogDamage:
        found.add_fault(part.path, "does not match its checksum")
        gap = Gap(part.first, last, 0, "the record of the loss was damaged")
    found.gaps.append(gap)
    found.keys += gap.keys


def _examine_seal(found: Examination, part: LogPart, is_last: bool) -> None:
    path, seal = segments.seal_path(found.folder, part.first), segments.read_seal(found.folder, part.first)
    if seal is not None:
        found.keys += seal.keys
    elif path.exists() and not is_last:
        found.add_fault(path, "does not match its checksum; the next start writes it again")


def _distinct(found: Examination) -> list[ValidRun]:
    """Return runs by number; of duplicate records the first is taken, and the others are faults."""
    distinct: list[ValidRun] = []
    for run in sorted(found.runs, key=lambda run: (run.first, -run.last, run.path)):
        skip = min(run.last, distinct[-1].last) + 1 - run.first if distinct else 0
        begin = run.begin
        if skip > 0:
            data = segments.map_file(run.path, run.end)
            for _ in range(skip):
                begin = data.find(b"\n", begin) + 1
            what = f"records {run.first} to {run.first + skip - 1} are also in {distinct[-1].path.name}"
            found.faults.append(LogFault(run.path, run.begin, begin, what))
        if begin < run.end:
            distinct.append(ValidRun(run.path, begin, run.end, run.first + max(0, skip), run.last))
    return distinct


def unfinished(run: ValidRun) -> int | None:
    """Return the first record of an append that continues after a run; None if the run ends with an append."""
    data = segments.map_file(run.path, run.end)
    first, end = run.last + 1, run.end
    while end > run.begin:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        line = segments.parse_line(data[begin : end - 1])
        if line is None or line["end"] is not None:
            break
        first, end = first - 1, begin
    return first if first <= run.last else None


def _faults(found: Examination, bad: Sequence[_DamagedLines]) -> list[LogFault]:
    """Return the faults of the segments: damaged lines, and missing records."""
    faults: list[LogFault] = []
    explained = set()
    for first, last in found.lost:
        here = [one for one in bad if first - 1 <= one.after < last]
        explained.update(here)
        for one in here:
            begin = max(first, one.after + 1)
            until = min([last, *(other.after for other in here if other.after > one.after)])
            faults.append(LogFault(one.path, one.begin, one.end, _lines(one), begin, until))
        if not here:
            path, byte = _expected_position(found, first)
            what = "records are missing here" if path.exists() else "the file is missing"
            faults.append(LogFault(path, byte, byte, what, first, last))
    faults += [LogFault(one.path, one.begin, one.end, _lines(one)) for one in bad if one not in explained]
    head = found.head
    if head is not None and not segment_path(found.folder, head.segment).exists():
        path = segment_path(found.folder, head.segment)
        if all(fault.path != path for fault in faults):
            faults.append(LogFault(path, 0, 0, "the file is missing"))
    for run in found.runs:
        name = int(run.path.stem)
        if run.begin == 0 and run.first != name:
            faults.append(LogFault(run.path, 0, run.end, f"begins with record {run.first} instead of {name}"))
    return sorted(faults, key=lambda fault: (fault.path, fault.begin))


def _lines(bad: _DamagedLines) -> str:
    if bad.lines == 1:
        return "1 line does not match its checksum"
    return f"{bad.lines} lines do not match their checksums"


def _expected_position(found: Examination, first: int) -> tuple[Path, int]:
    """Return where a missing record should be: after the previous one, or at the beginning of a segment."""
    path = segment_path(found.folder, first)
    begins = path.exists() or (found.head is not None and found.head.segment == first)
    for run in found.runs:
        if run.last == first - 1 and (run.end < _size(run.path) or not begins):
            return run.path, run.end
    return path, 0
