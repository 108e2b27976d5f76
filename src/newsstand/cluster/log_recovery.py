"""What is done when a log is opened for writing: all of it is verified, and what no append finished is cut off."""

from __future__ import annotations

import logging
import os
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from newsstand.cluster.log_seals import read_gap, sealed_segment
from newsstand.cluster.log_segments import (
    Bytes,
    Head,
    Keyed,
    Part,
    damage,
    has_later_commit,
    mapped,
    part_path,
    parts,
    read_head,
    segment_path,
    sound_end,
)
from newsstand.cluster.pages import sync_folder
from newsstand.errors import LogDamage

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recovered:
    """Where a log ends; its last segment, open for writing, and its checksum; the newest keys, oldest first."""

    head: Head
    segment: int
    crc: int
    older: Sequence[Keyed]
    newest: Sequence[Keyed]
    """The keys of the last segment."""


def recover(folder: Path, remembered: int) -> Recovered:
    """Verify a log, cut off what no append finished, and recall the newest keys; raise `LogDamage`.

    The segments before the last one are whole: a new one is begun when all before it is durable.
    """
    try:
        head = read_head(folder)
    except LogDamage as error:
        logger.warning("%s; the end is found by the checksums", str(error).partition(";")[0])
        head = None
    known = parts(folder)
    _require_end(folder, known, head)
    last = known[-1].first if known else 1
    older = _verify_full(folder, known, remembered)
    descriptor = open_segment(folder, last)
    try:
        size = os.fstat(descriptor).st_size
        path = segment_path(folder, last)
        data = mapped(path, size)
        newest: list[Keyed] = []
        byte, seq = 0, last - 1
        if head is not None and head.segment == last:
            if head.byte > size:
                raise damage(path, size, f"records up to {head.seq} were accepted and some are not here")
            byte, seq = sound_end(data, byte, seq, newest, head.byte)
            if (byte, seq) != (head.byte, head.seq):
                raise damage(path, byte, f"the append after record {seq} does not match its checksum")
        byte, seq = _tail_end(path, data, byte, seq, newest, head)
        os.ftruncate(descriptor, byte)
        os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    older = older[max(0, len(older) + len(newest) - remembered) :]
    return Recovered(Head(last, byte, seq), descriptor, zlib.crc32(data[:byte]), older, newest[-remembered:])


def open_segment(folder: Path, first: int) -> int:
    """Open a segment for writing; make it if need be."""
    descriptor = os.open(segment_path(folder, first), os.O_RDWR | os.O_CREAT, 0o600)
    sync_folder(folder)
    return descriptor


def _require_end(folder: Path, known: Sequence[Part], head: Head | None) -> None:
    """Refuse a log without its last segment, or without its first part."""
    if known and known[0].first != 1:
        raise damage(part_path(folder, known[0]), 0, f"records 1 to {known[0].first - 1} are missing before it")
    if known and known[-1].is_gap:
        raise damage(part_path(folder, known[-1]), 0, "the segment after it is missing")
    last = known[-1].first if known else 1
    if head is not None and (head.segment > last or (not known and head.seq)):
        raise damage(segment_path(folder, head.segment), 0, "the file is missing")


def _verify_full(folder: Path, known: Sequence[Part], remembered: int) -> Sequence[Keyed]:
    """Verify all parts but the last; return their newest keys."""
    keys: deque[Keyed] = deque(maxlen=remembered)
    for part, following in pairwise(known):
        if part.last is None:
            keys.extend(sealed_segment(folder, part.first, following.first - 1).keys)
            continue
        keys.extend(read_gap(folder, part).keys)
        if part.last != following.first - 1:
            path = part_path(folder, following)
            raise damage(path, 0, f"begins with record {following.first} where {part.last + 1} belongs")
    return list(keys)


def _tail_end(
    path: Path, data: Bytes, byte: int, seq: int, newest: list[Keyed], head: Head | None
) -> tuple[int, int]:
    """Where whole appends end; raise `LogDamage` if what follows is not just what a crash cut off.

    `head` is durable before the first append, so a crash leaves it: without it nobody knows what was accepted.
    """
    byte, seq = sound_end(data, byte, seq, newest)
    if byte < len(data) and head is None:
        what = f"the append after record {seq} does not match its checksum, and head, which tells the end, is lost"
        raise damage(path, byte, what)
    if byte < len(data) and has_later_commit(data, byte, seq):
        raise damage(path, byte, f"the append after record {seq} does not match its checksum, and later ones do")
    return byte, seq
