"""Seals of full segments and gaps: small files of JSON, each with a CRC-32 of it in front.

The seal of a segment has the CRC-32 of the whole file, so that a start can verify it at the speed of the disk, and
its idempotency keys. It is derived: if it is gone or wrong, it is made again from the lines.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from newsstand.cluster.log_segments import (
    Bytes,
    Keyed,
    Part,
    damage,
    gap_path,
    keyed_of,
    mapped,
    segment_path,
    sound_lines,
)
from newsstand.cluster.pages import write_whole

logger = logging.getLogger(__name__)


class Seal(msgspec.Struct, frozen=True):
    """What a full segment has: its records, its bytes and their checksum, and its keys, oldest first."""

    first: int
    last: int
    size: int
    crc: int
    keys: Sequence[Keyed] = ()


class Gap(msgspec.Struct, frozen=True):
    """Records that are lost."""

    first: int
    last: int
    at_ms: int
    """When the gap was made."""
    why: str
    keys: Sequence[Keyed] = ()
    """Keys of appends of which other records are left: a repetition of these still adds nothing."""


Sealed = TypeVar("Sealed", Seal, Gap)


def seal_path(folder: Path, first: int) -> Path:
    """The seal of a segment."""
    return segment_path(folder, first).with_suffix(".keys")


def write_sealed(path: Path, value: Seal | Gap) -> None:
    """Write one of the two, whole and durable."""
    data = msgspec.json.encode(value)
    write_whole(path, b"%08x\n%b" % (zlib.crc32(data), data))


def _read(path: Path, kind: type[Sealed]) -> Sealed | None:
    checksum, _, data = path.read_bytes().partition(b"\n")
    if checksum != b"%08x" % zlib.crc32(data):
        return None
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError:  # of an older version
        return None


def read_seal(folder: Path, first: int) -> Seal | None:
    """The seal of a segment, if there is one and it is sound."""
    try:
        seal = _read(seal_path(folder, first), Seal)
    except FileNotFoundError:
        return None
    return seal if seal is not None and seal.first == first else None


def read_gap(folder: Path, part: Part) -> Gap:
    """What is known of lost records; raise `LogDamage`."""
    assert part.last is not None
    path = gap_path(folder, part.first, part.last)
    gap = _read(path, Gap)
    if gap is None or (gap.first, gap.last) != (part.first, part.last):
        raise damage(path, 0, "its checksum does not match")
    return gap


def sealed_segment(folder: Path, first: int, last: int) -> Seal:
    """Verify all of a full segment whose last record is `last`; raise `LogDamage` with the place."""
    path = segment_path(folder, first)
    size = path.stat().st_size
    data = mapped(path, size)
    crc = zlib.crc32(data)
    seal = read_seal(folder, first)
    if seal is not None and (seal.last, seal.size, seal.crc) == (last, size, crc):
        return seal
    if seal is not None or seal_path(folder, first).exists():
        logger.warning("%s: does not fit its segment; it is made again", seal_path(folder, first))
    seal = Seal(first, last, size, crc, _verified_keys(path, data, size, first, last))
    write_sealed(seal_path(folder, first), seal)
    return seal


def _verified_keys(path: Path, data: Bytes, size: int, first: int, last: int) -> list[Keyed]:
    """The keys of a segment, which must have exactly the records from `first` to `last`."""
    end, seq, keys = 0, first - 1, []
    for end, line in sound_lines(data, 0, first - 1, size):  # noqa: B007  what comes after the last sound line
        seq = int(line["seq"])
        keyed = keyed_of(line)
        if keyed is not None:
            keys.append(keyed)
    if end != size:
        raise damage(path, end, f"the line after record {seq} does not match its checksum or its number")
    if seq < last:
        raise damage(path, end, f"records {seq + 1} to {last} are missing here")
    if seq > last:
        raise damage(path, end, f"the records end with {seq}, and record {last + 1} begins the next file")
    return keys
