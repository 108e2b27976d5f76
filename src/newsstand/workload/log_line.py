"""The line of an access log in the Common or Combined Log Format, and the notes about lines that are skipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from newsstand.errors import BadTrace

LINE = (
    r"^(\S+) \S+ \S+ "
    r"\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "
    r'"([^"\\]*+(?:\\.[^"\\]*+)*+)" '  # possessive: Java's matcher would recurse once per character otherwise
    r"(\d{3}) (\d+|-)(?:\s|$)"
)
"""A line: host, time, request, status, bytes; the rest of the line is ignored."""

SEPARATOR = "\x01"
"""What no field of a line may have: it separates them on Spark. Servers write control characters escaped."""
LARGEST_ANSWER = 2**53
"""The most bytes of an answer; a larger number tells no size."""
SHOWN_LINES = 3
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True)
class LogCounts:
    """What a log holds: lines of each kind, and pages with and without a known size."""

    lines: int
    malformed: int
    other: int
    sized: int
    unsized: int
    unsized_lines: int

    def notes(self, path: str | Path, malformed: Sequence[tuple[Path, str]], *, strict: bool) -> tuple[str, ...]:
        """Return what was skipped; `malformed` holds the file and the text of the first malformed lines."""
        notes = []
        if self.malformed:
            shown = [_shown(file, text) for file, text in malformed[:SHOWN_LINES]]
            if strict:
                raise BadTrace(f"{shown[0]}: not a line of the Common or Combined Log Format")
            more = ", ..." if self.malformed > len(shown) else ""
            notes.append(f"{self.malformed} lines cannot be parsed: {', '.join(shown)}{more}")
        if self.other:
            notes.append(f"{self.other} lines are not page requests (a GET answered with 2xx or 304)")
        if self.unsized:
            notes.append(
                f"{self.unsized} pages are dropped, with {self.unsized_lines} requests: no answer tells their size"
            )
        if not self.lines:
            raise BadTrace(f"{path}: the log is empty")
        if not self.sized:
            raise BadTrace(f"{path}: no line of the log can be used: {'; '.join(notes)}")
        return tuple(notes)


def _shown(file: Path, text: str) -> str:
    """Return the file and the start of a line; its number is unknown, as a file may be read in blocks."""
    cut = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    return f"{file.absolute()}: {cut!r}"
