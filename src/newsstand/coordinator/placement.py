"""Which brokers keep the past of which topics, and how topics move without being lost.

A topic is *wanted* at some brokers. A broker that keeps it whole, and has told so, is *complete*. One that had to
keep it and is wanted no longer is *leaving*: it goes on until every wanted broker that lives is complete, and at
least one is, and is told to drop the topic only then. What brokers told counts as long as they live and were not
told to drop the topic since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from newsstand.coordinator.records import Storages

Progress = Literal["settled", "moving", "missing"]
"""Complete wherever it is wanted and nowhere else; on its way; complete nowhere."""

NONE = Storages(frozenset())


class Placement:
    """The storages of all topics. What is to change is told first, and changed by `change`, once it is kept."""

    def __init__(self, version: int = 0, topics: Mapping[str, Storages] | None = None) -> None:
        self.version = version
        self._storages: dict[str, Storages] = {}
        self._topics: dict[str, set[str]] = {}
        self._complete: dict[str, frozenset[str]] = {}
        for topic, storages in (topics or {}).items():
            self._put(topic, storages)

    # What is

    def topics(self) -> dict[str, Storages]:
        """Every topic that somebody has to keep, in order, with its storages."""
        return {topic: self._storages[topic] for topic in sorted(self._storages)}

    def told(self, broker: str) -> list[str]:
        """What a broker has to keep, in order."""
        return sorted(self._topics.get(broker, ()))

    def complete(self, topic: str) -> list[str]:
        """The brokers that keep a topic whole, in order."""
        return sorted(name for name in self._storages[topic].keeping if self._is_complete(name, topic))

    def progress(self, topic: str, alive: Collection[str]) -> Progress:
        """How far a topic is on its way."""
        storages = self._storages[topic]
        complete = set(self.complete(topic))
        if storages.wanted <= complete and storages.leaving.isdisjoint(alive):
            return "settled"
        return "moving" if complete else "missing"

    # What brokers tell

    def report(self, broker: str, stored: Iterable[str]) -> None:
        """A broker tells for which topics it is complete; others than it has to keep are passed over."""
        self._complete[broker] = frozenset(stored).intersection(self._topics.get(broker, ()))

    def silence(self, broker: str) -> None:
        """What a broker told counts no longer."""
        self._complete.pop(broker, None)

    def silence_others(self, alive: Collection[str]) -> None:
        """The same for all but those who live."""
        self._complete = {name: topics for name, topics in self._complete.items() if name in alive}

    # What is to change

    def wanting(
        self, wanted: Mapping[str, Collection[str]], alive: Collection[str], known: Collection[str]
    ) -> dict[str, Storages]:
        """The topics that change if these are wanted, and no others.

        Whoever had to keep a topic is leaving, if it is still known or may be the last that has it.
        """
        changes = {}
        for topic in self._storages.keys() | wanted.keys():
            before = self._storages.get(topic, NONE)
            after = frozenset(wanted.get(topic, ()))
            leaving = before.keeping - after
            if self._is_safe(topic, after, alive):
                leaving = leaving.intersection(known)
            if (found := Storages(after, leaving)) != before:
                changes[topic] = found
        return changes

    def releasing(self, broker: str, alive: Collection[str]) -> dict[str, Storages]:
        """The topics that change because a broker that is leaving them may drop them now."""
        return {
            topic: Storages(storages.wanted, storages.leaving - {broker})
            for topic in self._topics.get(broker, ())
            if broker in (storages := self._storages[topic]).leaving
            and self._is_safe(topic, storages.wanted, alive)
        }

    def change(self, changes: Mapping[str, Storages]) -> None:
        """Replace the storages of some topics: a new version."""
        for topic, storages in changes.items():
            self._put(topic, storages)
        self.version += 1

    def _put(self, topic: str, storages: Storages) -> None:
        before = self._storages.pop(topic, NONE)
        if storages.keeping:
            self._storages[topic] = storages
        for broker in storages.keeping - before.keeping:
            self._topics.setdefault(broker, set()).add(topic)
        for broker in before.keeping - storages.keeping:
            self._topics[broker].discard(topic)
            self._complete[broker] = self._complete.get(broker, frozenset()) - {topic}

    def _is_complete(self, broker: str, topic: str) -> bool:
        return topic in self._complete.get(broker, ())

    def _is_safe(self, topic: str, wanted: Collection[str], alive: Collection[str]) -> bool:
        """Whether a topic is where it is wanted, or wanted nowhere."""
        living = [name for name in wanted if name in alive]
        return not wanted or (bool(living) and all(self._is_complete(name, topic) for name in living))
