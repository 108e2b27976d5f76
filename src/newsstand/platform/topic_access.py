"""The tables `[topics."PATTERN"]` and `[groups]` of an app: who may publish to topics, and who may read them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from newsstand.cluster.app_folder import unknown

SUBSCRIBER = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
ACTIONS = ("publish", "subscribe")
Access = dict[str, dict[str, list[str]]]
"""For each pattern of topics the names that may do what; `*` for every subscriber."""


def access_mistakes(topics: object, groups: object) -> Iterator[str]:
    """What is wrong with the two tables."""
    if not isinstance(groups, dict):
        yield "groups: must be a table, written as [groups]"
        groups = {}
    for group, names in groups.items():
        if not _is_texts(names) or not all(SUBSCRIBER.fullmatch(name) for name in names):
            yield f'groups.{group}: must be a list of names of subscribers, such as ["ann", "bob"]'
    if not isinstance(topics, dict):
        yield 'topics: must be a table, written as [topics."news.*"]'
        return
    for pattern, rule in topics.items():
        if not isinstance(rule, dict):
            yield f'topics."{pattern}": must be a table, written as [topics."{pattern}"]'
            continue
        for action, names in rule.items():
            place = f'topics."{pattern}".{action}'
            if action not in ACTIONS:
                yield f"{place}: {unknown(action, ACTIONS)}"
            elif not _is_texts(names):
                yield f'{place}: must be a list of names and groups, such as ["ann", "@staff"] or ["*"]'
            else:
                yield from (f"{place}: {mistake}" for mistake in _name_mistakes(names, groups))


def access_of(topics: Mapping[str, Mapping[str, list[str]]], groups: Mapping[str, list[str]]) -> Access:
    """The rules with groups replaced by their members.

    >>> access_of({"news.*": {"publish": ["@staff", "eve"]}}, {"staff": ["bob", "ann"]})
    {'news.*': {'publish': ['ann', 'bob', 'eve']}}
    """
    return {
        pattern: {action: sorted(set(_members(names, groups))) for action, names in rule.items()}
        for pattern, rule in topics.items()
    }


def _name_mistakes(names: list[str], groups: Mapping[str, object]) -> Iterator[str]:
    for name in names:
        if name.startswith("@") and name[1:] not in groups:
            hint = unknown(name[1:], tuple(groups)) if groups else "is not known; declare it in [groups]"
            yield f"group '{name}' {hint}"
        elif not name.startswith("@") and name != "*" and SUBSCRIBER.fullmatch(name) is None:
            yield f"{name!r} cannot be the name of a subscriber"


def _members(names: list[str], groups: Mapping[str, list[str]]) -> Iterator[str]:
    for name in names:
        if name.startswith("@"):
            yield from groups[name[1:]]
        else:
            yield name


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
