"""Access logs, read into memory: the same requests, pages and notes as `access_log` reads on Spark.

Java's regular expressions decide there. Here those of RE2 run over bytes, so what the two understand differently
is spelled out: white space is ASCII and has a vertical tab, and an end of text may lie before a line separator.
"""

from __future__ import annotations

import bz2
import gzip
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from newsstand.errors import BadTrace
from newsstand.workload.client_network import networks_of
from newsstand.workload.log_line import LARGEST_ANSWER, SEPARATOR, LogCounts
from newsstand.workload.trace.columns import PublicationColumns, RequestColumns, SubscriptionColumns, TraceColumns
from newsstand.workload.trace.files import data_files
from newsstand.workload.trace.memory import HADOOP_CODECS

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

_SPACE = r"\t\n\x0B\f\r "
_END = r"(?:\xC2\x85|\xE2\x80[\xA8\xA9])?\n?$"
_LINE = (
    rf"^(?P<host>[^{_SPACE}]+) [^{_SPACE}]+ [^{_SPACE}]+ "
    r"\[(?P<time>[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{4})\] "
    r'"(?P<request>(?s:[^"\\]*(?:\\.[^"\\]*)*))" '
    rf"(?P<status>[0-9]{{3}}) (?P<bytes>[0-9]+|-)(?:[{_SPACE}]|{_END})"
)
_GET = rf"(?s)^GET +(?P<target>[^{_SPACE}].*?)(?: +HTTP/[^{_SPACE}]+)?[{_SPACE}]*{_END}"


_TIME_LENGTH = len("10/Oct/2000:13:55:36 -0700")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LATEST_ZONE = 18 * 60
"""Minutes by which a zone may differ from UTC, as Java has it."""


def read_log_columns(
    path: Path, *, strict: bool = False, prefix_v4: int = 24, prefix_v6: int = 48
) -> TraceColumns:
    """Return a log as a trace: a GET answered with 2xx or 304 is a request, the largest answer the size."""
    files = data_files(path)
    parts = [_parse(file) for file in files]
    targets = pa.chunked_array([part.target for part in parts]).combine_chunks().dictionary_encode()
    target = targets.indices.to_numpy(zero_copy_only=False)
    answer = np.concatenate([part.answer for part in parts])
    time = np.concatenate([part.time for part in parts])

    largest = np.full(len(targets.dictionary), -1, np.int64)
    np.maximum.at(largest, target, answer)
    is_sized = largest >= 0
    kept = is_sized[target]
    counts = LogCounts(
        lines=sum(part.lines for part in parts),
        malformed=sum(part.malformed for part in parts),
        other=sum(part.other for part in parts),
        sized=int(is_sized.sum()),
        unsized=int((~is_sized).sum()),
        unsized_lines=int((~kept).sum()),
    )
    shown = [(file, line) for file, part in zip(files, parts, strict=True) for line in part.first_malformed]
    notes = counts.notes(path, shown, strict=strict)

    number = np.cumsum(is_sized) - 1
    page, time = number[target[kept]], time[kept]
    first = np.full(len(number), np.inf)
    np.minimum.at(first, target[kept], time)
    hosts = pa.chunked_array([part.host for part in parts]).combine_chunks().filter(pa.array(kept))
    return TraceColumns(
        str(path),
        RequestColumns(time, _proxies(hosts, prefix_v4, prefix_v6), page),
        PublicationColumns(np.arange(counts.sized), first[is_sized], np.maximum(largest[is_sized], 1)),
        SubscriptionColumns.none(),
        notes,
    )


@dataclass(frozen=True)
class ParsedLog:
    """The page requests of a file: their columns, in the order of the lines."""

    host: pa.Array
    time: npt.NDArray[np.float64]
    target: pa.Array
    answer: Int64s
    """The bytes of each answer, or -1 if the line does not tell."""
    lines: int
    malformed: int
    other: int
    first_malformed: list[str]


def _parse(file: Path) -> ParsedLog:
    content = _content(file)
    lines = _lines(content)
    fields = pc.extract_regex(lines, _LINE)
    matched = fields.is_valid().to_numpy(zero_copy_only=False)
    at = np.flatnonzero(matched)
    host, text, request, status, size = fields.filter(fields.is_valid()).flatten()
    time, is_time = _times(text)
    if SEPARATOR.encode() in content:
        is_time &= ~(_has_separator(host) | _has_separator(request))
    requests = request.dictionary_encode()
    (targets,) = pc.extract_regex(requests.dictionary, _GET).flatten()
    target = targets.take(requests.indices)
    code = _digits(status, 3) @ np.array([100, 10, 1])
    answered = (code >= 200) & (code <= 299)
    is_page = is_time & target.is_valid().to_numpy(zero_copy_only=False) & (answered | (code == 304))
    answer = np.where(answered, _sizes(size), -1)

    unread = np.ones(len(lines), np.bool_)
    unread[at[is_time]] = False
    rest = lines.filter(pa.array(unread))
    texts = [line.rstrip(b"\n") for line in rest.to_pylist()]
    malformed = [text for text in texts if text.strip(b" ")]
    keep = pa.array(is_page)
    return ParsedLog(
        host=host.filter(keep),
        time=time[is_page],
        target=target.filter(keep),
        answer=answer[is_page],
        lines=len(lines) - len(texts) + len(malformed),
        malformed=len(malformed),
        other=int(is_time.sum() - is_page.sum()),
        first_malformed=[text.decode() for text in malformed[:3]],
    )


def _content(file: Path) -> bytes:
    """Return the bytes of a file as lines that each end in a line feed, in valid UTF-8."""
    try:
        content = _unpacked(file)
    except (OSError, EOFError, zlib.error) as error:
        raise BadTrace(f"{file}: not readable as text ({error})") from error
    content = content.removeprefix(b"\xef\xbb\xbf")
    if b"\r" in content:
        content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if content and not content.endswith(b"\n"):
        content += b"\n"
    if not content.isascii():
        try:
            content.decode()
        except UnicodeDecodeError:
            # Java decodes an encoded surrogate, or the start of one, as one malformed character.
            single = re.sub(rb"\xED[\xA0-\xBF][\x80-\xBF]?", "\N{REPLACEMENT CHARACTER}".encode(), content)
            content = single.decode(errors="replace").encode()
    return content


def _unpacked(file: Path) -> bytes:
    if file.suffix in (".gz", ".bz2"):
        with (gzip if file.suffix == ".gz" else bz2).open(file) as unpacked:
            content: bytes = unpacked.read()
        return content
    if file.suffix in HADOOP_CODECS:
        raise BadTrace(f"{file}: only Spark reads {file.suffix} files; unpack it, or set --engine spark")
    return file.read_bytes()


def _lines(content: bytes) -> pa.Array:
    """Return the lines of a text, each with its line feed."""
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n")) + 1
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_binary(), len(ends), buffers)


def _has_separator(column: pa.Array) -> Bools:
    found: Bools = pc.match_substring(column, SEPARATOR.encode()).to_numpy(zero_copy_only=False)
    return found


def _letters(column: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    """Return the letters of texts that have all the same length."""
    joined = pa.chunked_array([column]).combine_chunks()
    data = np.frombuffer(joined.buffers()[2] or b"", np.uint8)
    start = np.frombuffer(joined.buffers()[1], np.int64)[joined.offset] if len(joined) else 0
    return data[start : start + width * len(joined)].reshape(len(joined), width)


def _digits(column: pa.Array, width: int) -> Int64s:
    return _letters(column, width).astype(np.int64) - ord("0")


def _times(column: pa.Array) -> tuple[npt.NDArray[np.float64], Bools]:
    """Return times in seconds since 1970, and which of them exist: no 31 February, no 24:00, no leap second."""
    letters = _letters(column, _TIME_LENGTH)
    digits = letters.astype(np.int64) - ord("0")

    def number(start: int, width: int = 2) -> Int64s:
        found: Int64s = digits[:, start : start + width] @ 10 ** np.arange(width - 1, -1, -1)
        return found

    day, year, hour, minute, second = number(0), number(7, 4), number(12), number(15), number(18)
    zone, zone_minute = 60 * number(22) + number(24), number(24)
    names = letters[:, 3:6].astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    known = np.array([int.from_bytes(name.encode(), "big") for name in _MONTHS])
    order = np.argsort(known)
    place = np.minimum(np.searchsorted(known[order], names), len(known) - 1)
    month = order[place]
    months = (12 * (year - 1970) + month).astype("datetime64[M]")
    first = months.astype("datetime64[D]").astype(np.int64)
    length = (months + 1).astype("datetime64[D]").astype(np.int64) - first
    exists = (
        (known[month] == names)
        & (day >= 1)
        & (day <= length)
        & (hour < 24)
        & (minute < 60)
        & (second < 60)
        & (zone_minute < 60)
        & (zone <= _LATEST_ZONE)
    )
    east = np.where(letters[:, 21] == ord("-"), -zone, zone)
    seconds = 86400 * (first + day - 1) + 3600 * hour + 60 * (minute - east) + second
    return seconds.astype(np.float64), exists


def _sizes(column: pa.Array) -> Int64s:
    """Return the numbers of bytes, or -1 for one that is missing or that no page has."""
    texts = column.dictionary_encode()
    counts = [
        -1 if text == b"-" or len(text.lstrip(b"0")) > 16 else int(text) for text in texts.dictionary.to_pylist()
    ]
    sizes = np.array([size if size <= LARGEST_ANSWER else -1 for size in counts], np.int64)
    found: Int64s = sizes[texts.indices.to_numpy(zero_copy_only=False)]
    return found


def _proxies(hosts: pa.Array, prefix_v4: int, prefix_v6: int) -> npt.NDArray[np.int32]:
    """Return the number of each host's network, in the order of the networks' texts."""
    encoded = hosts.dictionary_encode()
    names = [host.decode() for host in encoded.dictionary.to_pylist()]
    networks = [network.encode() for network in networks_of(names, prefix_v4, prefix_v6)]
    number = {network: place for place, network in enumerate(sorted(set(networks)))}
    numbers = np.array([number[network] for network in networks], np.int32)
    found: npt.NDArray[np.int32] = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
    return found
