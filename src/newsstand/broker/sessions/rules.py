"""The operator's rules: the values that subscribers may give, and the topics that they may publish to and read.

They hold for every token, whatever its scopes. Without rules for topics every subscriber may publish to every
topic and read it. With rules, a topic that no pattern matches is closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from newsstand.config.settings import SubscriberLimits
from newsstand.errors import BadValues, NewsstandError
from newsstand.model import ChannelDefinition, Scalar, Values
from newsstand.overlay.filters.filter import Filter

EVERYBODY = "*"
_WILD = frozenset("*?[")


class RuleViolation(NewsstandError):
    """A rule of the operator forbids the request; the message names the rule."""

    http_status = 403


def bound_values(
    channel: ChannelDefinition, given: Mapping[str, Scalar] | Sequence[Scalar], subscriber: str
) -> dict[str, Scalar] | list[Scalar]:
    """Fill in the values that the operator's rules bind; raise RuleViolation if another value is given.

    >>> near_user = ChannelDefinition("near_user", "", "", (), bind=(("user", "subscriber"),))
    >>> bound_values(near_user, {}, "ann")
    {'user': 'ann'}
    """
    if isinstance(given, Mapping):
        bound = {name: _bound(channel, name, given.get(name, subscriber), subscriber) for name, _ in channel.bind}
        return {**given, **bound}
    names = [one.name for one in channel.parameters]
    for name, value in zip(names, given, strict=False):
        if name in dict(channel.bind):
            _bound(channel, name, value, subscriber)
    return list(given)


def follows_rules(channel: ChannelDefinition, values: Mapping[str, Scalar], subscriber: str) -> bool:
    """Return whether an existing subscription has the values that the operator's rules bind."""
    return all(values.get(name) == subscriber for name, _ in channel.bind)


def _bound(channel: ChannelDefinition, name: str, value: Scalar, subscriber: str) -> Scalar:
    if value != subscriber:
        raise RuleViolation(
            f"channel '{channel.name}': parameter '{name}' is bound to the subscriber's name; "
            f"leave it out, or give '{subscriber}'"
        )
    return value


def require_sizes(limits: SubscriberLimits, channel: ChannelDefinition, values: Values) -> None:
    """Raise BadValues if the values of a subscription are larger than the limits."""
    total = 2
    for parameter, value in zip(channel.parameters, values, strict=True):
        size = len(msgspec.json.encode(value))
        total += size + 1
        if size > limits.value_bytes:
            raise BadValues(
                f"channel '{channel.name}', parameter '{parameter.name}': the value has {size:,} bytes as JSON; "
                f"limits.value_bytes allows {limits.value_bytes:,}"
            )
    if total > limits.values_bytes:
        raise BadValues(
            f"channel '{channel.name}': the values have {total:,} bytes as JSON; "
            f"limits.values_bytes allows {limits.values_bytes:,}"
        )


class TopicRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The subscribers that may publish to the topics of a pattern, and those that may read them; `*` for all."""

    publish: list[str] = []
    subscribe: list[str] = []


class TopicRules:
    """Rules by topic pattern: a plain name precedes a pattern, a longer pattern a shorter one.

    >>> rules = TopicRules({"news.*": TopicRule(["ann"], ["*"])})
    >>> rules.may_publish("ann", "news.town"), rules.may_publish("bob", "news.town")
    (True, False)
    >>> rules.may_read("bob", "news.town"), rules.may_read("bob", "gossip")
    (True, False)
    """

    def __init__(self, rules: Mapping[str, TopicRule]) -> None:
        self._rules = sorted(rules.items(), key=lambda one: (not _WILD.isdisjoint(one[0]), -len(one[0]), one[0]))

    def may_publish(self, subscriber: str, topic: str) -> bool:
        rule = self._rule(topic)
        return rule is None or _names(rule.publish, subscriber)

    def may_read(self, subscriber: str, topic: str) -> bool:
        """Return whether a subscriber may receive the messages of a topic, and read its history."""
        rule = self._rule(topic)
        return rule is None or _names(rule.subscribe, subscriber)

    def readable(self, subscriber: str, topics: Iterable[str]) -> list[str]:
        """Return the topics that a subscriber may read: others do not learn that they exist."""
        return [topic for topic in topics if self.may_read(subscriber, topic)]

    def require_publish(self, subscriber: str, topic: str) -> None:
        if not self.may_publish(subscriber, topic):
            raise RuleViolation(f"topic '{topic}': the operator's rules do not let '{subscriber}' publish to it")

    def require_read(self, subscriber: str, wanted: Filter) -> None:
        """Raise RuleViolation if a filter names topics and the subscriber may read none of them."""
        named = wanted.topics
        if named and not any(self.may_read(subscriber, topic) for topic in named):
            topics = ", ".join(f"'{topic}'" for topic in sorted(named)[:3])
            raise RuleViolation(f"topic {topics}: the operator's rules do not let '{subscriber}' subscribe to it")

    def _rule(self, topic: str) -> TopicRule | None:
        """Return the rule of a topic; None without rules."""
        if not self._rules:
            return None
        return next((rule for pattern, rule in self._rules if fnmatchcase(topic, pattern)), TopicRule())


def _names(listed: list[str], subscriber: str) -> bool:
    return EVERYBODY in listed or subscriber in listed
