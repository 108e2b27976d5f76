"""Copies in a push-cache, and which of them leave first."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from newsstand.planning.push_room import Room, Used

Page = TypeVar("Page", int, str)


@dataclass(slots=True, eq=False)
class Copy(Generic[Page]):
    """A page that is here."""

    origin: int
    page: Page
    size: int
    modified: float
    checked: float
    popularity: float
    arrival: int

    @property
    def rank(self) -> tuple[float, int]:
        """Lowest leaves first: the least popular, of equals the one that came first."""
        return self.popularity, self.arrival

    @property
    def used(self) -> Used:
        return Used(1, self.size)


def median(ranked: Sequence[Copy[Page]], room: Room) -> float:
    """The least popularity above which pages have at most half of a room, of slots and of bytes.

    Room that nobody uses counts as not popular at all. Were it the median of the pages, large new ones could
    raise it by leaving fewer.
    """
    above = Used()
    half = room.part(0.5)
    for copy in reversed(ranked):
        above += copy.used
        if not half.holds(above):
            return copy.popularity
    return 0.0


def freed(
    new: Copy[Page],
    worth: float,
    candidates: Iterable[Copy[Page]],
    room: Room,
    used: Used,
    offered: Container[Page],
) -> list[Copy[Page]] | None:
    """The candidates that leave so that a new copy fits; None if it cannot, or if one of them is worth more.

    Of equals the newer one wins, but of those offered together the earlier.
    """
    leaving: list[Copy[Page]] = []
    used += new.used
    if room.holds(used):
        return leaving
    for copy in candidates:
        together = copy.origin == new.origin and copy.page in offered
        if copy.popularity > worth or (copy.popularity == worth and together):
            return None
        leaving.append(copy)
        used -= copy.used
        if room.holds(used):
            return leaving
    return None
