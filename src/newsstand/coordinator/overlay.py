"""The overlay in the coordinator: the tree of live brokers, and the storages of topics.

The store has every change before a broker learns of it. A broker in maintenance stays in the tree and keeps its
topics.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product

from newsstand.coordinator.model import BrokerRecord, Link, OverlayTree, StorageSet
from newsstand.coordinator.placement import MoveProgress, TopicPlacement
from newsstand.coordinator.registry import BrokerRegistry
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.errors import BadInput, NewsstandError
from newsstand.geo.location import LinkGraph, Location, great_circle_miles
from newsstand.model import is_topic
from newsstand.wire.coordination import Neighbour, OpportunisticCaching, OverlayDuties, StorageDuties

MOST_NAMED = 5
"""Mistakes that an error names."""


DEFAULT_DEGREE = 4
LEAST_DEGREE = 2
"""Each component of a tree has a broker with at most one link: with two allowed, there is a pair to link."""

Pair = tuple[float, float, int, str, str]
"""Hops and miles between two brokers, the sum of their eccentricities, and their names; the least is first."""


class PlacementChanged(NewsstandError):
    """The wanted storages of topics have changed since the caller read them."""

    http_status = 412

    def __init__(self, expected: str, version: str) -> None:
        super().__init__(
            f"the placement of topics has changed from version {expected} to {version}; read GET /overlay again, "
            "and repeat the request with the new version in If-Match"
        )


class OverlayController:
    """Tree and topic placement over a store and the registered brokers."""

    def __init__(
        self,
        store: CoordinatorStore,
        network: LinkGraph,
        degree: int,
        brokers: BrokerRegistry,
        opportunistic: OpportunisticCaching,
    ) -> None:
        self._store = store
        self._network = network
        self._degree = degree
        self._brokers = brokers
        self._opportunistic = opportunistic
        self._members: Collection[str] | None = None
        """The brokers in the tree; None before the first repair."""
        self.tree = store.tree()
        self._placement = TopicPlacement(*store.storages())
        self.repair()

    # The tree

    def on_register(self, broker: BrokerRecord) -> None:
        """Drop the reports of a registering broker, and announce a new URL to its neighbours."""
        self._placement.drop_reports(broker.name)
        known = self._brokers.get(broker.name)
        if known is not None and known.record.url != broker.url and neighbours(self.tree.links, broker.name):
            self._put_tree(self.tree.links)

    def repair(self) -> None:
        """Make the tree span exactly the live brokers."""
        alive = self._brokers.living()
        if alive.keys() == self._members:
            return
        links = repaired(self.tree.links, alive, self._network, self._degree)
        if links != self.tree.links:
            self._put_tree(links)
        self._placement.retain_reports(alive)
        self._members = frozenset(alive)

    def _put_tree(self, links: frozenset[Link]) -> None:
        tree = OverlayTree(self.tree.version + 1, links)
        self._store.put_tree(tree)
        self.tree = tree

    # Topics

    @property
    def placement_version(self) -> str:
        """The version of the wanted storages: a digest of them."""
        wanted = [(topic, sorted(storages.wanted)) for topic, storages in self._placement.topics().items()]
        text = json.dumps([one for one in wanted if one[1]])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def place(self, assignment: Mapping[str, Collection[str]], expected: Collection[str] | None = None) -> None:
        """Assign topics to brokers, and drop all other topics; raise BadInput for a mistake in them.

        With `expected`, raise PlacementChanged unless it has the present version.
        """
        version = self.placement_version
        if expected is not None and version not in expected:
            raise PlacementChanged(", ".join(sorted(expected)), version)
        _require(assignment, self._brokers, self._placement.topics())
        self._put_storages(self._placement.changes_for(assignment, self._brokers.living(), self._brokers))

    def report(self, name: str, stored: Sequence[str]) -> OverlayDuties:
        """Record the topics that a broker has completely, and return its duties."""
        self._placement.report(name, stored)
        self._put_storages(self._placement.releases_of(name, self._brokers.living()))
        return self.duties_of(name)

    def _put_storages(self, changes: Mapping[str, StorageSet]) -> None:
        if changes:
            self._store.put_storages(self._placement.version + 1, changes)
            self._placement.change(changes)

    # Reading

    def duties_of(self, name: str) -> OverlayDuties:
        """Return a broker's neighbours, the topics that it has to store, and how it caches."""
        linked = (self._brokers[one] for one in neighbours(self.tree.links, name) if one in self._brokers)
        links = [Neighbour(one.name, one.record.url) for one in linked if one.state != "dead"]
        storage = StorageDuties(self._placement.version, self._placement.topics_of(name))
        return OverlayDuties(self.tree.version, links, storage, self._opportunistic)

    def brokers(self) -> list[str]:
        """Return the brokers in the tree, in order."""
        return sorted(self._members or ())

    def storages(self) -> dict[str, dict[str, list[str]]]:
        """Return each topic, in order, with its wanted, complete and leaving brokers."""
        return {
            topic: {
                "wanted": sorted(storages.wanted),
                "complete": self._placement.complete(topic),
                "leaving": sorted(storages.leaving),
            }
            for topic, storages in self._placement.topics().items()
        }

    def progress(self) -> Counter[MoveProgress]:
        """Count topics by their progress."""
        alive = self._brokers.living()
        return Counter(self._placement.progress(topic, alive) for topic in self._placement.topics())


def _require(
    assignment: Mapping[str, Collection[str]], known: Collection[str], before: Mapping[str, StorageSet]
) -> None:
    """Require known brokers and valid topics; an unknown broker that a topic is assigned to already may stay."""
    if bad := [topic for topic in assignment if not is_topic(topic)]:
        raise BadInput(f"assignment: a topic is 1 to 256 characters without control characters: {_named(bad)}")
    if bad := [topic for topic, brokers in assignment.items() if not brokers]:
        raise BadInput(f"assignment: a topic needs at least one broker; leave it out to drop it: {_named(bad)}")
    unknown = (
        set(brokers).difference(known, before[topic].wanted if topic in before else ())
        for topic, brokers in assignment.items()
    )
    if bad := sorted(set().union(*unknown)):
        raise BadInput(f"assignment: brokers that are not registered: {_named(bad)}")


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(repr(name) for name in names[:MOST_NAMED]) + more


def repaired(
    links: Iterable[Link], places: Mapping[str, Location], network: LinkGraph, degree: int = DEFAULT_DEGREE
) -> frozenset[Link]:
    """Return the links of a tree over exactly the brokers in `places`, with as many of `links` as possible.

    A new broker is linked to the nearest one with a free link; after a loss, the remaining components are linked
    by their nearest pairs. No broker gets more than `degree` links (at least 2), except links that it had. Near is
    by hops where the network connects two brokers, otherwise by miles; of equal pairs, the one with the smallest
    resulting diameter, then the first by name.

    >>> sorted(repaired([("a", "b"), ("b", "c")], dict.fromkeys("acd", Location()), LinkGraph()))
    [('a', 'c'), ('a', 'd')]
    """
    components = _Components(places)
    kept = {(a, b) for a, b in sorted(links) if a in places and b in places and components.join(a, b)}
    pairs = [
        (network.hops(places[a].node, places[b].node), great_circle_miles(places[a], places[b]), 0, a, b)
        for a, b in components.between()
    ]
    heapq.heapify(pairs)
    for a, b in _nearest(pairs, components, degree):
        if components.join(a, b):
            kept.add((a, b))
            if len(kept) == len(places) - 1:
                break
    return frozenset(kept)


def neighbours(links: Iterable[Link], name: str) -> list[str]:
    """Return the brokers that one is linked to, in order."""
    return sorted(b if a == name else a for a, b in links if name in (a, b))


def _nearest(pairs: list[Pair], components: _Components, degree: int) -> Iterator[Link]:
    """Return the pairs of a heap that have free links, nearest first, while the caller links some of them.

    Distances within a component only grow, so a pair with an outdated sum is pushed again.
    """
    while pairs:
        hops, miles, before, a, b = heapq.heappop(pairs)
        if max(len(components.linked[a]), len(components.linked[b])) >= degree:
            continue
        now = components.farthest(a) + components.farthest(b)
        if now > before:
            heapq.heappush(pairs, (hops, miles, now, a, b))
        else:
            yield a, b


class _Components:
    """Brokers in components, each of them a tree."""

    def __init__(self, names: Iterable[str]) -> None:
        self._component = {name: [name] for name in sorted(names)}
        self.linked: dict[str, list[str]] = {name: [] for name in self._component}
        self._farthest = dict.fromkeys(self._component, 0)

    def join(self, one: str, other: str) -> bool:
        """Link two brokers if they are in different components; return whether they were."""
        small, large = sorted((self._component[one], self._component[other]), key=len)
        if small is large:
            return False
        large += small
        for name in small:
            self._component[name] = large
        self.linked[one].append(other)
        self.linked[other].append(one)
        for name in large:
            self._farthest.pop(name, None)
        return True

    def farthest(self, name: str) -> int:
        """Return the hops from a broker to the farthest one of its component."""
        if name not in self._farthest:
            one_end = max(hops := self._hops(name), key=hops.__getitem__)
            other_end = max(hops := self._hops(one_end), key=hops.__getitem__)
            back = self._hops(other_end)
            self._farthest.update((each, max(hops[each], back[each])) for each in hops)
        return self._farthest[name]

    def between(self) -> Iterator[Link]:
        """Return every pair of brokers in different components."""
        components = {id(component): component for component in self._component.values()}
        for one, other in combinations(components.values(), 2):
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
