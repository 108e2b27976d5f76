"""The Subscription Table (Sourlas et al. 2011, section 4): who wants what, and what neighbours must be told of it.

A neighbour is told the filters of everybody else. Under *coverage* it is spared those that another one covers:
it is told exactly the widest, of filters that cover each other the one whose text comes first. What it is told
so depends on the filters alone and never on the order in which they came. When the widest goes, those that it
covered are told before its end is.

A neighbour that is linked, but not by a link of the tree, is told nothing; what it tells is noted and not heeded
until the link is one of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from newsstand.overlay.covering_forest import CoveringForest, FiltersByTopic
from newsstand.overlay.filters import Filter, Overlapping
from newsstand.overlay.messages import Name, Publication, Subscribe, Unsubscribe

Client = Hashable
Told = list[tuple[Name, Subscribe | Unsubscribe]]
"""What to send to whom, in order."""


class Wanting:
    """Who wants what matches one filter. Dictionaries stand for sets that keep their order."""

    __slots__ = ("clients", "neighbours")

    def __init__(self) -> None:
        self.clients: dict[Client, None] = {}
        self.neighbours: dict[Name, None] = {}

    def beside(self, neighbour: Name) -> bool:
        """Whether anybody wants it but this neighbour."""
        return bool(self.clients) or len(self.neighbours) > (neighbour in self.neighbours)

    @property
    def is_nobody(self) -> bool:
        return not self.clients and not self.neighbours


class SubscriptionTable:
    """The filters of a broker's clients and neighbours."""

    def __init__(self, covering: bool = True) -> None:
        self._wanting: dict[Filter, Wanting] = {}
        self._by_topic = FiltersByTopic()
        self._forest = CoveringForest(covering)
        """What anybody wants: so what a neighbour has to be told that has wanted nothing yet."""
        self._of_client: dict[Client, dict[Filter, None]] = {}
        self._heard: dict[Name, dict[Filter, None]] = {}
        self._told: dict[Name, CoveringForest] = {}
        """For every neighbour by the tree what others than itself want. The widest it has been told."""

    def add(self, client: Client, wanted: Filter) -> Told:
        """A client wants what matches."""
        self._of_client.setdefault(client, {})[wanted] = None
        return self._changed(wanted, lambda wanting: wanting.clients.setdefault(client))

    def remove(self, client: Client, wanted: Filter) -> Told:
        """A client no longer wants what matches."""
        filters = self._of_client.get(client, {})
        filters.pop(wanted, None)
        if not filters:
            self._of_client.pop(client, None)
        return self._changed(wanted, lambda wanting: wanting.clients.pop(client, None))

    def hear(self, neighbour: Name, wanted: Filter) -> Told:
        """A neighbour wants what matches."""
        self._heard[neighbour][wanted] = None
        return self._heed(neighbour, wanted) if neighbour in self._told else []

    def unhear(self, neighbour: Name, wanted: Filter) -> Told:
        """A neighbour no longer wants what matches."""
        self._heard[neighbour].pop(wanted, None)
        return self._ignore(neighbour, wanted)

    def link_up(self, neighbour: Name, tree: bool) -> Told:
        """A link begins: what the new neighbour must be told."""
        self._heard[neighbour] = {}
        return self.set_tree(neighbour, tree)

    def link_down(self, neighbour: Name) -> Told:
        """A link has ended: what the others must be told."""
        told = self.set_tree(neighbour, False)
        del self._heard[neighbour]
        return [(other, message) for other, message in told if other != neighbour]

    def set_tree(self, neighbour: Name, tree: bool) -> Told:
        """A link belongs to the tree from now on, or no longer does."""
        if tree == (neighbour in self._told):
            return []
        if not tree:
            withdrawn = self._told.pop(neighbour)
            out: Told = [(neighbour, Unsubscribe(wanted)) for wanted in withdrawn.widest]
            for wanted in self._heard[neighbour]:
                out += self._ignore(neighbour, wanted)
            return out
        of_others = self._forest.copy()
        out = []
        for wanted in self._heard[neighbour]:
            out += self._heed(neighbour, wanted)
        self._told[neighbour] = of_others
        return out + [(neighbour, Subscribe(wanted)) for wanted in of_others.widest]

    def clients_of(self, publication: Publication) -> list[Client]:
        """Whom a publication is delivered to."""
        found: dict[Client, None] = {}
        for wanted in self._by_topic.of(publication.topic):
            clients = self._wanting[wanted].clients
            if clients and not clients.keys() <= found.keys() and wanted.matches(publication):
                found |= clients
        return list(found)

    def neighbours_of(self, publication: Publication, sender: Name | None) -> list[Name]:
        """Whom a publication is forwarded to: not back to its sender."""
        found: dict[Name, None] = {} if sender is None else {sender: None}
        for wanted in self._by_topic.of(publication.topic):
            neighbours = self._wanting[wanted].neighbours
            if neighbours and not neighbours.keys() <= found.keys() and wanted.matches(publication):
                found |= neighbours
        return [neighbour for neighbour in found if neighbour != sender]

    def neighbours_near(self, wanted: Filter, sender: Name | None) -> list[Name]:
        """From whom subscriptions came that may match the same as a filter: not its sender."""
        found: dict[Name, None] = {} if sender is None else {sender: None}
        near = Overlapping(wanted)
        for other in self._by_topic.near(wanted):
            neighbours = self._wanting[other].neighbours
            if neighbours and not neighbours.keys() <= found.keys() and near.overlaps(other):
                found |= neighbours
        return [neighbour for neighbour in found if neighbour != sender]

    def of_client(self, client: Client) -> list[Filter]:
        """What a client wants."""
        return list(self._of_client.get(client, ()))

    def wants(self, client: Client, wanted: Filter) -> bool:
        """Whether a client has subscribed with this filter."""
        return wanted in self._of_client.get(client, ())

    def heard(self) -> dict[Name, frozenset[Filter]]:
        """The table: for every neighbour the filters that it has sent."""
        return {neighbour: frozenset(filters) for neighbour, filters in self._heard.items()}

    def told(self) -> dict[Name, frozenset[Filter]]:
        """For every neighbour by the tree the filters that it was sent."""
        return {neighbour: frozenset(filters.widest) for neighbour, filters in self._told.items()}

    def _heed(self, neighbour: Name, wanted: Filter) -> Told:
        return self._changed(wanted, lambda wanting: wanting.neighbours.setdefault(neighbour))

    def _ignore(self, neighbour: Name, wanted: Filter) -> Told:
        return self._changed(wanted, lambda wanting: wanting.neighbours.pop(neighbour, None))

    def _changed(self, wanted: Filter, change: Callable[[Wanting], object]) -> Told:
        """What neighbours must be told of a change of those who want one filter."""
        known = wanted in self._wanting
        wanting = self._wanting[wanted] if known else Wanting()
        before = [neighbour for neighbour in self._told if wanting.beside(neighbour)]
        change(wanting)
        after = [neighbour for neighbour in self._told if wanting.beside(neighbour)]
        if known and wanting.is_nobody:
            self._leave(wanted)
        elif not known and not wanting.is_nobody:
            self._enter(wanted, wanting)
        if len(after) > len(before):
            return self._tell(wanted, [neighbour for neighbour in after if neighbour not in before])
        return self._untell(wanted, [neighbour for neighbour in before if neighbour not in after])

    def _enter(self, wanted: Filter, wanting: Wanting) -> None:
        self._wanting[wanted] = wanting
        self._by_topic.add(wanted)
        self._forest.add(wanted)

    def _leave(self, wanted: Filter) -> None:
        del self._wanting[wanted]
        self._by_topic.remove(wanted)
        self._forest.remove(wanted)

    def _tell(self, wanted: Filter, neighbours: Iterable[Name]) -> Told:
        out: Told = []
        for neighbour in neighbours:
            of_others = self._told[neighbour]
            narrower = of_others.add(wanted)
            if wanted in of_others.widest:
                out.append((neighbour, Subscribe(wanted)))
                out += [(neighbour, Unsubscribe(other)) for other in narrower]
        return out

    def _untell(self, wanted: Filter, neighbours: Iterable[Name]) -> Told:
        out: Told = []
        for neighbour in neighbours:
            of_others = self._told[neighbour]
            was_told = wanted in of_others.widest
            out += [(neighbour, Subscribe(other)) for other in of_others.remove(wanted)]
            if was_told:
                out.append((neighbour, Unsubscribe(wanted)))
        return out
