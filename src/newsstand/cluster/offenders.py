"""Which streams make an execution fail: a search by halves among the values that are subscribed to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from newsstand.model import Values

Stream = tuple[int, Values]
Fails = Callable[[int, int], str | None]
"""Try the streams with first <= id <= last: why they fail together; None if they do not."""

SAMPLES = 8
"""Single streams that are tried first: if none of them passes, the values are hardly to blame."""

MOST_TRIALS = 400
"""Trials of one search, about log2(streams) for each stream that it finds."""


@dataclass
class Search:
    """One search among streams in the order of their ids, whose execution fails on data."""

    streams: Sequence[Stream]
    fails: Fails
    trials: int = MOST_TRIALS

    def run(self) -> Iterator[tuple[int, str]]:
        """Find the streams that fail, each with the reason; none if the records or the query are to blame.

        A search that comes to the end of its trials has found some of them.
        """
        count = len(self.streams)
        samples = sorted({count * number // SAMPLES for number in range(SAMPLES)})
        if count <= SAMPLES:
            samples = list(range(count))
        tried = {number: self._try(number, number + 1) for number in samples}
        failed = {number: error for number, error in tried.items() if error is not None}
        none_passes = len(failed) == len(tried)
        if none_passes:
            # What a record brings about, it brings about for all; an error that names the value is the value's.
            failed = {number: error for number, error in failed.items() if _names(error, self.streams[number][1])}
        if none_passes or count <= SAMPLES:
            yield from ((self.streams[number][0], error) for number, error in failed.items())
            return
        failing = [(0, count)]
        while failing and self.trials > 0:
            first, end = failing.pop()
            if end - first == 1:
                error = tried[first] if first in tried else self._try(first, end)
                if error is not None:
                    yield self.streams[first][0], error
                continue
            middle = (first + end) // 2
            left = self._try(first, middle) is not None
            if not left or self._try(middle, end) is not None:
                failing.append((middle, end))
            if left:
                failing.append((first, middle))

    def _try(self, first: int, end: int) -> str | None:
        self.trials -= 1
        return self.fails(self.streams[first][0], self.streams[end - 1][0])


def _names(error: str, values: Values) -> bool:
    """Whether an error quotes one of the values, or has a line that is one."""
    texts = [value for value in values if isinstance(value, str)]
    return any(f"'{text}'" in error or text in error.splitlines() for text in texts)
