"""Placement of topics on storages, and moves of topics without loss.

A topic is *wanted* at some brokers. A broker that reports to have all of it is *complete*. A broker that stored it
and is wanted no longer is *leaving*: it drops the topic only when every live wanted broker is complete, and at
least one is. A report counts while the broker lives and until it has to drop the topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from newsstand.coordinator.model import StorageSet

MoveProgress = Literal["settled", "moving", "missing"]
"""Complete exactly where it is wanted; moving; complete nowhere."""

NONE = StorageSet(frozenset())


class TopicPlacement:
    """The storages of all topics. A caller computes changes, stores them, and then passes them to `change`."""

    def __init__(self, version: int = 0, topics: Mapping[str, StorageSet] | None = None) -> None:
        self.version = version
        self._storages: dict[str, StorageSet] = {}
        self._topics: dict[str, set[str]] = {}
        self._complete: dict[str, frozenset[str]] = {}
        for topic, storages in (topics or {}).items():
            self._put(topic, storages)

    # Reading

    def topics(self) -> dict[str, StorageSet]:
        """Return every topic with storages, in order."""
        return {topic: self._storages[topic] for topic in sorted(self._storages)}

    def topics_of(self, broker: str) -> list[str]:
        """Return the topics that a broker has to store, in order."""
        return sorted(self._topics.get(broker, ()))

    def complete(self, topic: str) -> list[str]:
        """Return the complete brokers of a topic, in order."""
        return sorted(name for name in self._storages[topic].keeping if self._is_complete(name, topic))

    def progress(self, topic: str, alive: Collection[str]) -> MoveProgress:
        """Return the progress of a topic."""
        storages = self._storages[topic]
        complete = set(self.complete(topic))
        if storages.wanted <= complete and storages.leaving.isdisjoint(alive):
            return "settled"
        return "moving" if complete else "missing"

    # Reports of brokers

    def report(self, broker: str, stored: Iterable[str]) -> None:
        """Record the topics for which a broker is complete; topics that it need not store are ignored."""
        self._complete[broker] = frozenset(stored).intersection(self._topics.get(broker, ()))

    def drop_reports(self, broker: str) -> None:
        """Forget the reports of a broker."""
        self._complete.pop(broker, None)

    def retain_reports(self, alive: Collection[str]) -> None:
        """Forget the reports of all brokers but live ones."""
        self._complete = {name: topics for name, topics in self._complete.items() if name in alive}

    # Changes

    def changes_for(
        self, wanted: Mapping[str, Collection[str]], alive: Collection[str], known: Collection[str]
    ) -> dict[str, StorageSet]:
        """Return the topics whose storages change under a new assignment.

        A storage that is wanted no longer is leaving if it is still known or may be the last one with the topic.
        """
        changes = {}
        for topic in self._storages.keys() | wanted.keys():
            before = self._storages.get(topic, NONE)
            after = frozenset(wanted.get(topic, ()))
            leaving = before.keeping - after
            if self._is_safe(topic, after, alive):
                leaving = leaving.intersection(known)
            if (found := StorageSet(after, leaving)) != before:
                changes[topic] = found
        return changes

    def releases_of(self, broker: str, alive: Collection[str]) -> dict[str, StorageSet]:
        """Return the topics whose storages change because a leaving broker may drop them now."""
        return {
            topic: StorageSet(storages.wanted, storages.leaving - {broker})
            for topic in self._topics.get(broker, ())
            if broker in (storages := self._storages[topic]).leaving
            and self._is_safe(topic, storages.wanted, alive)
        }

    def change(self, changes: Mapping[str, StorageSet]) -> None:
        """Replace the storages of some topics and raise the version."""
        for topic, storages in changes.items():
            self._put(topic, storages)
        self.version += 1

    def _put(self, topic: str, storages: StorageSet) -> None:
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
        """Return whether a topic is complete where it is wanted, or wanted nowhere."""
        living = [name for name in wanted if name in alive]
        return not wanted or (bool(living) and all(self._is_complete(name, topic) for name in living))
