"""Who may publish to which topics, and who may read them: the rules of the operator.

Without any rule every subscriber may publish to every topic and read it. Once there is a rule, a topic that no
pattern fits is closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec

from newsstand.broker.permits import Forbidden
from newsstand.overlay.filters import Filter

EVERYBODY = "*"
_WILD = frozenset("*?[")


class TopicRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The subscribers that may publish to the topics of a pattern, and those that may read them; `*` for all."""

    publish: list[str] = []
    subscribe: list[str] = []


class TopicRules:
    """Rules by patterns of topics: a plain name goes before a pattern, a longer pattern before a shorter one.

    >>> rules = TopicRules({"news.*": TopicRule(["ann"], ["*"])})
    >>> rules.may_publish("ann", "news.town"), rules.may_publish("bob", "news.town")
    (True, False)
    >>> rules.may_read("bob", "news.town"), rules.may_read("bob", "gossip")
    (True, False)
    """

    def __init__(self, rules: Mapping[str, TopicRule]) -> None:
        self._rules = sorted(rules.items(), key=lambda one: (not _WILD.isdisjoint(one[0]), -len(one[0]), one[0]))

    def may_publish(self, subscriber: str, topic: str) -> bool:
        """Whether a subscriber may publish to a topic."""
        rule = self._rule(topic)
        return rule is None or _names(rule.publish, subscriber)

    def may_read(self, subscriber: str, topic: str) -> bool:
        """Whether a subscriber may get the messages of a topic, those of the past included."""
        rule = self._rule(topic)
        return rule is None or _names(rule.subscribe, subscriber)

    def require_publish(self, subscriber: str, topic: str) -> None:
        """Raise Forbidden unless the subscriber may publish to the topic."""
        if not self.may_publish(subscriber, topic):
            raise Forbidden(f"topic '{topic}': the operator's rules do not let '{subscriber}' publish to it")

    def require_read(self, subscriber: str, wanted: Filter) -> None:
        """Raise Forbidden if a filter names topics and the subscriber may read none of them."""
        named = wanted.topics
        if named and not any(self.may_read(subscriber, topic) for topic in named):
            topics = ", ".join(f"'{topic}'" for topic in sorted(named)[:3])
            raise Forbidden(f"topic {topics}: the operator's rules do not let '{subscriber}' subscribe to it")

    def _rule(self, topic: str) -> TopicRule | None:
        """The rule of a topic; None if there is no rule at all."""
        if not self._rules:
            return None
        return next((rule for pattern, rule in self._rules if fnmatchcase(topic, pattern)), TopicRule())


def _names(listed: list[str], subscriber: str) -> bool:
    return EVERYBODY in listed or subscriber in listed
