"""The Advertisement Table (Sourlas et al. 2011, section 4.1): where the nearest storage of a topic lies.

Of each neighbour the table remembers the last advertisement of a topic with its path. What it shows is the
nearest of them. So the three rules of the paper come out: one that is equally near is added and not forwarded,
one that is nearer replaces the others and is forwarded, one that is farther is not forwarded. And when the
nearest storage, the link to it or a broker between goes, the next nearest is known already.

Paths make it work on any graph: a broker ignores ways through itself, so distances never count up without end.
A way through another neighbour is ignored if that neighbour has told otherwise since; without this rule,
brokers would try one outdated way after the other when a storage goes (Pei et al., *Improving BGP convergence
through consistency assertions*, 2002).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import MOST_HOPS, MOST_TOPICS, Advertise, Name, Path, Unadvertise

Told = list[tuple[Name, Advertise | Unadvertise]]
"""What to send to whom, in order."""


class Nearest(NamedTuple):
    """A row of the table: how far the nearest storage is, and the neighbours by which it can be reached."""

    distance: int
    neighbours: tuple[Name, ...]


HERE = Nearest(0, ())


class AdvertisementTable:
    """What a broker knows about storages."""

    def __init__(self, name: Name) -> None:
        self._name = name
        self._own: dict[str, None] = {}
        self._heard: dict[str, dict[Name, Path | None]] = {}
        """For each topic and neighbour the last usable path; None if a former one is no longer right."""
        self._nearest: dict[str, Nearest] = {}
        self._chosen: dict[str, Path] = {}
        """For each topic the way that neighbours are told, from the next broker to the storage's."""
        self._told: dict[Name, dict[str, None]] = {}

    @property
    def own(self) -> frozenset[str]:
        """The topics that are stored here."""
        return frozenset(self._own)

    def nearest(self, topic: str) -> Nearest | None:
        """The row of a topic; None if no storage of it is known."""
        return self._nearest.get(topic)

    def rows(self) -> dict[str, Nearest]:
        """The whole table."""
        return dict(self._nearest)

    def topics_of(self, wanted: Filter) -> list[str]:
        """The topics with a storage of which messages may match a filter, in the order of their names."""
        named = self._nearest if wanted.topics is None else wanted.topics
        return sorted(topic for topic in named if topic in self._nearest and wanted.may_match(topic))

    def store(self, topics: Iterable[str]) -> Told:
        """These topics are stored here, and no others."""
        before, self._own = self._own, dict.fromkeys(topics)
        return self._changed({**before, **self._own})

    def hear(self, neighbour: Name, topics: Iterable[str], path: Path) -> Told:
        """A neighbour advertises topics."""
        usable = path if self._name not in path and len(path) <= MOST_HOPS else None
        for topic in topics:
            self._heard.setdefault(topic, {})[neighbour] = usable
        return self._changed(topics)

    def unhear(self, neighbour: Name, topics: Iterable[str]) -> Told:
        """A neighbour withdraws what it has advertised."""
        known = [topic for topic in topics if topic in self._heard]
        for topic in known:
            self._heard[topic][neighbour] = None
        return self._changed(known)

    def link_up(self, neighbour: Name) -> Told:
        """A link begins: what the new neighbour must be told."""
        self._told[neighbour] = {}
        out = _Changes()
        for topic in self._chosen:
            self._tell(neighbour, topic, out)
        return list(out.messages())

    def link_down(self, neighbour: Name) -> Told:
        """A link has ended: what the others must be told."""
        del self._told[neighbour]
        touched = [topic for topic, heard in self._heard.items() if neighbour in heard]
        for topic in touched:
            del self._heard[topic][neighbour]
        return self._changed(touched)

    def _changed(self, topics: Iterable[str]) -> Told:
        out = _Changes()
        for topic in topics:
            before = self._chosen.get(topic)
            self._choose(topic)
            if self._chosen.get(topic) != before:
                for neighbour in self._told:
                    self._tell(neighbour, topic, out)
        return list(out.messages())

    def _choose(self, topic: str) -> None:
        """The row of a topic, and the way to tell: the same as before if it is still among the shortest."""
        heard = self._heard.get(topic, {})
        if not any(heard.values()):
            self._heard.pop(topic, None)
        if topic in self._own:
            self._nearest[topic], self._chosen[topic] = HERE, ()
            return
        ways = [path for path in heard.values() if path and _is_current(path, heard)]
        if not ways:
            self._nearest.pop(topic, None)
            self._chosen.pop(topic, None)
            return
        distance = min(map(len, ways))
        shortest = [path for path in ways if len(path) == distance]
        self._nearest[topic] = Nearest(distance, tuple(sorted(path[0] for path in shortest)))
        if self._chosen.get(topic) not in shortest:
            self._chosen[topic] = min(shortest)

    def _tell(self, neighbour: Name, topic: str, out: _Changes) -> None:
        path = self._chosen.get(topic)
        told = self._told[neighbour]
        if path is not None and neighbour not in path and len(path) < MOST_HOPS:
            told[topic] = None
            out.advertise(neighbour, (self._name, *path), topic)
        elif topic in told:
            del told[topic]
            out.withdraw(neighbour, topic)


def _is_current(path: Path, heard: dict[Name, Path | None]) -> bool:
    """Whether no other neighbour on a path has told otherwise."""
    return all(broker not in heard or heard[broker] == path[place:] for place, broker in enumerate(path) if place)


class _Changes:
    """What neighbours are to be told, topics of one kind in one message."""

    def __init__(self) -> None:
        self._topics: dict[tuple[Name, Path | None], list[str]] = {}

    def advertise(self, neighbour: Name, path: Path, topic: str) -> None:
        self._topics.setdefault((neighbour, path), []).append(topic)

    def withdraw(self, neighbour: Name, topic: str) -> None:
        self._topics.setdefault((neighbour, None), []).append(topic)

    def messages(self) -> Iterator[tuple[Name, Advertise | Unadvertise]]:
        for (neighbour, path), topics in self._topics.items():
            for first in range(0, len(topics), MOST_TOPICS):
                some = tuple(topics[first : first + MOST_TOPICS])
                yield neighbour, Unadvertise(some) if path is None else Advertise(some, path)
