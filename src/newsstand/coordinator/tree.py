"""The tree of the overlay: which brokers are linked, so that between any two there is exactly one way.

A broker that comes is linked to the nearest one that has links to spare. Where one goes, the parts that are left
are linked again by the nearest pairs. Links between brokers that stay are never touched, so a change costs as few
as it can. Near is as in `choosing`: by hops where the network connects two brokers, otherwise by miles; of equals,
and where nothing is known, the pair that makes the shortest of the longest ways, then the first by name.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, product

from newsstand.coordinator.records import Link
from newsstand.planning.places import Network, Place, great_circle_miles

DEFAULT_DEGREE = 4
LEAST_DEGREE = 2
"""Every part of a tree has a broker with one link at most: if each may have two, there is a pair to link."""

Pair = tuple[float, float, int, str, str]
"""Hops and miles between two brokers, how far the farthest are from them, and who they are: the least is first."""


def mended(
    links: Iterable[Link], places: Mapping[str, Place], network: Network, degree: int = DEFAULT_DEGREE
) -> frozenset[Link]:
    """The links of a tree over exactly the brokers in `places`, made of those that there were.

    No broker gets a link beyond `degree`, which is at least 2; one that had more, keeps them.

    >>> sorted(mended([("a", "b"), ("b", "c")], dict.fromkeys("acd", Place()), Network()))
    [('a', 'c'), ('a', 'd')]
    """
    parts = _Parts(places)
    kept = {(a, b) for a, b in sorted(links) if a in places and b in places and parts.join(a, b)}
    pairs = [
        (network.hops(places[a].node, places[b].node), great_circle_miles(places[a], places[b]), 0, a, b)
        for a, b in parts.between()
    ]
    heapq.heapify(pairs)
    for a, b in _nearest(pairs, parts, degree):
        if parts.join(a, b):
            kept.add((a, b))
            if len(kept) == len(places) - 1:
                break
    return frozenset(kept)


def neighbours(links: Iterable[Link], name: str) -> list[str]:
    """The brokers that one is linked to, in order."""
    return sorted(b if a == name else a for a, b in links if name in (a, b))


def _nearest(pairs: list[Pair], parts: _Parts, degree: int) -> Iterator[Link]:
    """Pairs of a heap with links to spare, the nearest first, while the caller links some of them.

    Ways only become longer, so a pair that comes with shorter ones than it has now goes back to its place in line.
    """
    while pairs:
        hops, miles, before, a, b = heapq.heappop(pairs)
        if max(len(parts.linked[a]), len(parts.linked[b])) >= degree:
            continue
        now = parts.farthest(a) + parts.farthest(b)
        if now > before:
            heapq.heappush(pairs, (hops, miles, now, a, b))
        else:
            yield a, b


class _Parts:
    """Brokers in parts that are joined, each of them a tree."""

    def __init__(self, names: Iterable[str]) -> None:
        self._part = {name: [name] for name in sorted(names)}
        self.linked: dict[str, list[str]] = {name: [] for name in self._part}
        self._farthest = dict.fromkeys(self._part, 0)

    def join(self, one: str, other: str) -> bool:
        """Make one part of two by a link; whether they were two."""
        small, large = sorted((self._part[one], self._part[other]), key=len)
        if small is large:
            return False
        large += small
        for name in small:
            self._part[name] = large
        self.linked[one].append(other)
        self.linked[other].append(one)
        for name in large:
            self._farthest.pop(name, None)
        return True

    def farthest(self, name: str) -> int:
        """How many hops it is to the farthest of the part."""
        if name not in self._farthest:
            one_end = max(hops := self._hops(name), key=hops.__getitem__)
            other_end = max(hops := self._hops(one_end), key=hops.__getitem__)
            back = self._hops(other_end)
            self._farthest.update((each, max(hops[each], back[each])) for each in hops)
        return self._farthest[name]

    def between(self) -> Iterator[Link]:
        """Every pair of brokers in different parts."""
        parts = {id(part): part for part in self._part.values()}
        for one, other in combinations(parts.values(), 2):
            for a, b in product(one, other):
                yield (a, b) if a < b else (b, a)

    def _hops(self, name: str) -> dict[str, int]:
        hops, waiting = {name: 0}, [name]
        for here in waiting:
            for there in self.linked[here]:
                if there not in hops:
                    hops[there] = hops[here] + 1
                    waiting.append(there)
        return hops
