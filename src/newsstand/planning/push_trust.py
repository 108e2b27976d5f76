"""How far claims are believed: as far as what an origin claimed before came true.

>>> records = TrackRecords()
>>> records.trust(7, unit=1.0)
1.0
>>> records.grant(7, 9.0)
>>> records.earn(7, 4.0)
>>> records.trust(7, unit=1.0)
0.5
"""

from __future__ import annotations

from collections import OrderedDict

MOST_ORIGINS = 10_000
"""Of more the one not heard of for longest is forgotten."""


class TrackRecords:
    """For each origin the requests that were granted to its pages in advance, and those that came."""

    def __init__(self, most: int = MOST_ORIGINS) -> None:
        self._most = most
        self._records: OrderedDict[int, tuple[float, float]] = OrderedDict()

    def trust(self, origin: int, unit: float) -> float:
        """Requests that came for each that was granted, at most 1. One of both is added: all begin at 1."""
        granted, earned = self._records.get(origin, (0.0, 0.0))
        return min(1.0, (earned + unit) / (granted + unit))

    def grant(self, origin: int, requests: float) -> None:
        self._add(origin, requests, 0.0)

    def earn(self, origin: int, requests: float) -> None:
        self._add(origin, 0.0, requests)

    def scale(self, factor: float) -> None:
        """The unit of requests has changed."""
        for origin, (granted, earned) in self._records.items():
            self._records[origin] = (granted * factor, earned * factor)

    def copy(self) -> TrackRecords:
        """The same records, to be changed by themselves."""
        other = TrackRecords(self._most)
        other._records = OrderedDict(self._records)
        return other

    def _add(self, origin: int, granted: float, earned: float) -> None:
        before = self._records.pop(origin, (0.0, 0.0))
        self._records[origin] = (before[0] + granted, before[1] + earned)
        if len(self._records) > self._most:
            self._records.popitem(last=False)
