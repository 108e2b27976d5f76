"""The Subscription Table (Sourlas et al. 2011, section 4): filters of clients and neighbours.

A neighbour is sent the filters of all others. Under *coverage* it is sent exactly the widest, of filters that
cover each other the first by text, so what it is sent depends on the filters alone and not on the order of their
arrival. When the widest filter is removed, those that it covered are sent before its end.

A neighbour whose link does not belong to the tree is sent nothing; its filters are stored, and used once the link
joins the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from newsstand.overlay.filters.filter import Filter, OverlapCheck
from newsstand.overlay.messages import Name, Publication, Subscribe, Unsubscribe
from newsstand.overlay.routing.covering_forest import CoveringForest, FiltersByTopic

Client = Hashable
Announcements = list[tuple[Name, Subscribe | Unsubscribe]]
"""Messages to neighbours, in order."""


class FilterSubscribers:
    """Subscribers of one filter, in insertion order."""

    __slots__ = ("clients", "neighbours")

    def __init__(self) -> None:
        self.clients: dict[Client, None] = {}
        self.neighbours: dict[Name, None] = {}

    def others_than(self, neighbour: Name) -> bool:
        return bool(self.clients) or len(self.neighbours) > (neighbour in self.neighbours)

    @property
    def is_empty(self) -> bool:
        return not self.clients and not self.neighbours


class SubscriptionTable:
    """The filters of a broker's clients and neighbours."""

    def __init__(self, covering: bool = True) -> None:
        self._subscribers: dict[Filter, FilterSubscribers] = {}
        self._by_topic = FiltersByTopic()
        self._forest = CoveringForest(covering)
        """All filters: what a new neighbour must be sent."""
        self._of_client: dict[Client, dict[Filter, None]] = {}
        self._received: dict[Name, dict[Filter, None]] = {}
        self._sent: dict[Name, CoveringForest] = {}
        """For every neighbour by the tree the filters of all others; it was sent the widest."""

    def add(self, client: Client, wanted: Filter) -> Announcements:
        self._of_client.setdefault(client, {})[wanted] = None
        return self._change(wanted, lambda subscribers: subscribers.clients.setdefault(client))

    def remove(self, client: Client, wanted: Filter) -> Announcements:
        filters = self._of_client.get(client, {})
        filters.pop(wanted, None)
        if not filters:
            self._of_client.pop(client, None)
        return self._change(wanted, lambda subscribers: subscribers.clients.pop(client, None))

    def receive(self, neighbour: Name, wanted: Filter) -> Announcements:
        self._received[neighbour][wanted] = None
        return self._add_neighbour(neighbour, wanted) if neighbour in self._sent else []

    def withdraw(self, neighbour: Name, wanted: Filter) -> Announcements:
        self._received[neighbour].pop(wanted, None)
        return self._remove_neighbour(neighbour, wanted)

    def link_up(self, neighbour: Name, tree: bool) -> Announcements:
        """Begin a link; return the subscriptions for the neighbour."""
        self._received[neighbour] = {}
        return self.set_tree(neighbour, tree)

    def link_down(self, neighbour: Name) -> Announcements:
        """End a link; return the changes for other neighbours."""
        announcements = self.set_tree(neighbour, False)
        del self._received[neighbour]
        return [(other, message) for other, message in announcements if other != neighbour]

    def set_tree(self, neighbour: Name, tree: bool) -> Announcements:
        if tree == (neighbour in self._sent):
            return []
        if not tree:
            withdrawn = self._sent.pop(neighbour)
            out: Announcements = [(neighbour, Unsubscribe(wanted)) for wanted in withdrawn.widest]
            for wanted in self._received[neighbour]:
                out += self._remove_neighbour(neighbour, wanted)
            return out
        of_others = self._forest.copy()
        out = []
        for wanted in self._received[neighbour]:
            out += self._add_neighbour(neighbour, wanted)
        self._sent[neighbour] = of_others
        return out + [(neighbour, Subscribe(wanted)) for wanted in of_others.widest]

    def clients_of(self, publication: Publication) -> list[Client]:
        """Return the clients to which a publication is delivered."""
        found: dict[Client, None] = {}
        for wanted in self._by_topic.of(publication.topic):
            clients = self._subscribers[wanted].clients
            if clients and not clients.keys() <= found.keys() and wanted.matches(publication):
                found |= clients
        return list(found)

    def neighbours_of(self, publication: Publication, sender: Name | None) -> list[Name]:
        """Return the neighbours to which a publication is forwarded, without its sender."""
        found: dict[Name, None] = {} if sender is None else {sender: None}
        for wanted in self._by_topic.of(publication.topic):
            neighbours = self._subscribers[wanted].neighbours
            if neighbours and not neighbours.keys() <= found.keys() and wanted.matches(publication):
                found |= neighbours
        return [neighbour for neighbour in found if neighbour != sender]

    def neighbours_near(self, wanted: Filter, sender: Name | None) -> list[Name]:
        """Return neighbours with subscriptions that overlap a filter, without its sender."""
        found: dict[Name, None] = {} if sender is None else {sender: None}
        near = OverlapCheck(wanted)
        for other in self._by_topic.near(wanted):
            neighbours = self._subscribers[other].neighbours
            if neighbours and not neighbours.keys() <= found.keys() and near.overlaps(other):
                found |= neighbours
        return [neighbour for neighbour in found if neighbour != sender]

    def of_client(self, client: Client) -> list[Filter]:
        return list(self._of_client.get(client, ()))

    def wants(self, client: Client, wanted: Filter) -> bool:
        return wanted in self._of_client.get(client, ())

    def received(self) -> dict[Name, frozenset[Filter]]:
        """Return for every neighbour the filters that it has sent."""
        return {neighbour: frozenset(filters) for neighbour, filters in self._received.items()}

    def sent(self) -> dict[Name, frozenset[Filter]]:
        """Return for every neighbour by the tree the filters that it was sent."""
        return {neighbour: frozenset(filters.widest) for neighbour, filters in self._sent.items()}

    def _add_neighbour(self, neighbour: Name, wanted: Filter) -> Announcements:
        return self._change(wanted, lambda subscribers: subscribers.neighbours.setdefault(neighbour))

    def _remove_neighbour(self, neighbour: Name, wanted: Filter) -> Announcements:
        return self._change(wanted, lambda subscribers: subscribers.neighbours.pop(neighbour, None))

    def _change(self, wanted: Filter, change: Callable[[FilterSubscribers], object]) -> Announcements:
        """Change the subscribers of a filter; return the messages to neighbours."""
        known = wanted in self._subscribers
        subscribers = self._subscribers[wanted] if known else FilterSubscribers()
        before = [neighbour for neighbour in self._sent if subscribers.others_than(neighbour)]
        change(subscribers)
        after = [neighbour for neighbour in self._sent if subscribers.others_than(neighbour)]
        if known and subscribers.is_empty:
            self._leave(wanted)
        elif not known and not subscribers.is_empty:
            self._enter(wanted, subscribers)
        if len(after) > len(before):
            return self._announce_to(wanted, [neighbour for neighbour in after if neighbour not in before])
        return self._withdraw_from(wanted, [neighbour for neighbour in before if neighbour not in after])

    def _enter(self, wanted: Filter, subscribers: FilterSubscribers) -> None:
        self._subscribers[wanted] = subscribers
        self._by_topic.add(wanted)
        self._forest.add(wanted)

    def _leave(self, wanted: Filter) -> None:
        del self._subscribers[wanted]
        self._by_topic.remove(wanted)
        self._forest.remove(wanted)

    def _announce_to(self, wanted: Filter, neighbours: Iterable[Name]) -> Announcements:
        out: Announcements = []
        for neighbour in neighbours:
            of_others = self._sent[neighbour]
            narrower = of_others.add(wanted)
            if wanted in of_others.widest:
                out.append((neighbour, Subscribe(wanted)))
                out += [(neighbour, Unsubscribe(other)) for other in narrower]
        return out

    def _withdraw_from(self, wanted: Filter, neighbours: Iterable[Name]) -> Announcements:
        out: Announcements = []
        for neighbour in neighbours:
            of_others = self._sent[neighbour]
            was_sent = wanted in of_others.widest
            out += [(neighbour, Subscribe(other)) for other in of_others.remove(wanted)]
            if was_sent:
                out.append((neighbour, Unsubscribe(wanted)))
        return out
