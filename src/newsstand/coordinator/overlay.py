"""The overlay as the coordinator keeps it: the tree of the brokers that live, and who keeps which topics.

Whatever a broker is told is in the store before. A broker in maintenance stays in the tree and keeps its topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from newsstand.coordinator.placement import Placement, Progress
from newsstand.coordinator.records import BrokerRecord, Link, Storages, Tree
from newsstand.coordinator.standing import Address, Brokers, Opportunistic, OverlayTold, StorageTold
from newsstand.coordinator.store import Store
from newsstand.coordinator.tree import mended, neighbours
from newsstand.errors import BadInput
from newsstand.model import is_topic
from newsstand.planning.places import Network

MOST_NAMED = 5
"""How many mistakes a refusal names."""


class Overlay:
    """Tree and placement over a store, and over the brokers that the coordinator knows at the time."""

    def __init__(
        self, store: Store, network: Network, degree: int, brokers: Brokers, opportunistic: Opportunistic
    ) -> None:
        self._store = store
        self._network = network
        self._degree = degree
        self._brokers = brokers
        self._opportunistic = opportunistic
        self._members: Collection[str] | None = None
        """Over whom the tree is; None if that is not looked after yet."""
        self._tree = store.tree()
        self._placement = Placement(*store.storages())
        self.mend()

    # The tree

    def registers(self, broker: BrokerRecord) -> None:
        """A broker is about to be registered: it begins anew, and may be elsewhere than its neighbours know."""
        self._placement.silence(broker.name)
        known = self._brokers.get(broker.name)
        if known is not None and known.record.url != broker.url and neighbours(self._tree.links, broker.name):
            self._keep_tree(self._tree.links)

    def mend(self) -> None:
        """Let the tree be one over exactly the brokers that live."""
        alive = self._brokers.living()
        if alive.keys() == self._members:
            return
        links = mended(self._tree.links, alive, self._network, self._degree)
        if links != self._tree.links:
            self._keep_tree(links)
        self._placement.silence_others(alive)
        self._members = frozenset(alive)

    def _keep_tree(self, links: frozenset[Link]) -> None:
        tree = Tree(self._tree.version + 1, links)
        self._store.keep_tree(tree)
        self._tree = tree

    # Topics

    def want(self, assignment: Mapping[str, Collection[str]]) -> None:
        """Let these brokers keep these topics, and nobody any other; BadInput names what is wrong with them."""
        _require(assignment, self._brokers, self._placement.topics())
        self._keep_storages(self._placement.wanting(assignment, self._brokers.living(), self._brokers))

    def report(self, name: str, stored: Sequence[str]) -> OverlayTold:
        """A broker tells for which topics it is complete; what it has to do."""
        self._placement.report(name, stored)
        self._keep_storages(self._placement.releasing(name, self._brokers.living()))
        return self.tell(name)

    def _keep_storages(self, changes: Mapping[str, Storages]) -> None:
        if changes:
            self._store.keep_storages(self._placement.version + 1, changes)
            self._placement.change(changes)

    # What is told

    def tell(self, name: str) -> OverlayTold:
        """Whom a broker is linked to, what it has to keep, and how it caches."""
        linked = (self._brokers[one] for one in neighbours(self._tree.links, name) if one in self._brokers)
        links = [Address(one.name, one.record.url) for one in linked if one.state != "dead"]
        storage = StorageTold(self._placement.version, self._placement.told(name))
        return OverlayTold(self._tree.version, links, storage, self._opportunistic)

    @property
    def tree(self) -> Tree:
        """The tree as it is."""
        return self._tree

    def brokers(self) -> list[str]:
        """Who is in the tree, in order."""
        return sorted(self._members or ())

    def storages(self) -> dict[str, dict[str, list[str]]]:
        """Each topic, in order, with the brokers that are wanted, complete and leaving."""
        return {
            topic: {
                "wanted": sorted(storages.wanted),
                "complete": self._placement.complete(topic),
                "leaving": sorted(storages.leaving),
            }
            for topic, storages in self._placement.topics().items()
        }

    def progress(self) -> Counter[Progress]:
        """How many topics are how far on their way."""
        alive = self._brokers.living()
        return Counter(self._placement.progress(topic, alive) for topic in self._placement.topics())


def _require(
    assignment: Mapping[str, Collection[str]], known: Collection[str], before: Mapping[str, Storages]
) -> None:
    """Brokers must be known, but for those that a topic was wanted at before: they may come back."""
    if bad := [topic for topic in assignment if not is_topic(topic)]:
        raise BadInput(f"assignment: a topic is 1 to 256 characters without control characters: {_named(bad)}")
    if bad := [topic for topic, brokers in assignment.items() if not brokers]:
        raise BadInput(f"assignment: name brokers, or leave the topic out: {_named(bad)}")
    strangers = (
        set(brokers).difference(known, before[topic].wanted if topic in before else ())
        for topic, brokers in assignment.items()
    )
    if bad := sorted(set().union(*strangers)):
        raise BadInput(f"assignment: no such broker is registered: {_named(bad)}")


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(repr(name) for name in names[:MOST_NAMED]) + more
