"""The tables of newsstand.toml about coordinator, brokers, limits, storages, topics and pages, read and checked.

The keys of the first two are those of `newsstand coordinator` and `newsstand broker`, without those that the
platform decides itself: the secret, the tokens, and the addresses of the other processes.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard, cast

from newsstand.broker.pages.hosts import AllowedHost
from newsstand.broker.settings import BrokerSettings
from newsstand.cluster.app_folder import FILE, App, BadAppFile, read_app
from newsstand.config.files import read_toml
from newsstand.config.settings import SettingsReader, SubscriberLimits, check_certificate
from newsstand.config.types import read_value, unknown_name
from newsstand.coordinator.server import CoordinatorSettings
from newsstand.errors import BadApp, BadInput, BadOption
from newsstand.model import is_subscriber_name, is_topic

Table = dict[str, object]
Storages = Mapping[str, list[str]]
"""For each topic the brokers that store its history."""
Access = dict[str, dict[str, list[str]]]
"""For each pattern of topics the subscribers that may publish and subscribe; `*` for all."""

DECIDED = ("cluster", "coordinator", "secret", "secret_file", "storages", "token", "token_file", "topics")
"""Settings that `newsstand up` decides."""
COMMON = ("opportunistic_policy", "opportunistic_slots")
"""Settings that the coordinator distributes, so that they are the same for all brokers."""
_RESERVED = dict.fromkeys(DECIDED, "is decided by `newsstand up`; leave it out")
_BROKER_RESERVED = _RESERVED | dict.fromkeys(COMMON, "is the same for all brokers; write it in [coordinator]")

ACTIONS = ("publish", "subscribe")


@dataclass(frozen=True)
class PlatformTables:
    """What an app declares about its coordinator, its brokers and their topics; every broker has a name."""

    coordinator: Table = field(default_factory=dict)
    brokers: tuple[Table, ...] = ()
    storages: Storages = field(default_factory=dict)
    topics: Access = field(default_factory=dict)
    pages_allow: tuple[str, ...] = ()
    """`allow` of `[pages]`, for brokers without one of their own."""
    limits: Table = field(default_factory=dict)
    """`[limits]`, for coordinator and brokers without one of their own."""


def read_tables(folder: Path) -> PlatformTables:
    """Read the tables of an app folder; raise BadAppFile with every mistake in them."""
    path = folder / FILE
    try:
        document = read_toml(path)
    except BadInput as error:
        raise BadApp(str(error)) from error
    reading = _Reading(document)
    tables = reading.tables()
    if reading.mistakes:
        raise BadAppFile([f"{path}: {mistake}" for mistake in reading.mistakes])
    return tables


class _Reading:
    """One pass over the tables, which goes on after a mistake."""

    def __init__(self, document: Mapping[str, object]) -> None:
        self.document = document
        self.mistakes: list[str] = []

    def tables(self) -> PlatformTables:
        coordinator, storages = self.table("coordinator"), self.table("storages")
        self.check_coordinator(coordinator)
        self.mistakes += _storage_mistakes(storages)
        topics, groups = self.table("topics", '[topics."news.*"]'), self.table("groups")
        self.mistakes += _access_mistakes(topics, groups)
        allow = self.pages_allow()
        limits = self.table("limits")
        self.check_value("limits", limits, SubscriberLimits)
        brokers = self.brokers()
        if self.mistakes:
            return PlatformTables()
        access = _without_groups(cast("Access", topics), cast("dict[str, list[str]]", groups))
        return PlatformTables(coordinator, brokers, cast("Storages", storages), access, allow, limits)

    def table(self, name: str, written: str = "") -> Table:
        found = self.document.get(name, {})
        if isinstance(found, dict):
            return found
        self.mistakes.append(f"{name}: must be a table, written as {written or f'[{name}]'}")
        return {}

    def check_value(self, place: str, value: object, kind: object) -> None:
        try:
            read_value(place, value, kind)
        except BadInput as error:
            self.mistakes.append(str(error))

    def check_coordinator(self, table: Table) -> None:
        reader = SettingsReader(CoordinatorSettings, "coordinator")
        reader.add_table(table, "coordinator.", reserved=_RESERVED)
        reader.finish()
        self.mistakes += reader.mistakes

    def pages_allow(self) -> tuple[str, ...]:
        table = self.table("pages")
        for key in table:
            if key != "allow":
                self.mistakes.append(f"pages.{key}: {unknown_name(key, ('allow',))}")
        allow = table.get("allow", [])
        if not _is_strings(allow):
            self.mistakes.append("pages.allow: must be a list of strings")
            return ()
        for one in allow:
            try:
                AllowedHost.parse(one)
            except BadInput as error:
                self.mistakes.append(f"pages.allow: {error}")
        return tuple(allow)

    def brokers(self) -> tuple[Table, ...]:
        listed = self.document.get("brokers", [])
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            self.mistakes.append("brokers: must be written as [[brokers]]")
            return ()
        named = [
            {"name": "edge" if number == 1 else f"edge{number}"} | one for number, one in enumerate(listed, 1)
        ]
        names: set[str] = set()
        for number, table in enumerate(named, start=1):
            place = f"brokers, number {number}"
            reader = SettingsReader(BrokerSettings, place)
            reader.add_table(table, f"{place}: ", reserved=_BROKER_RESERVED)
            reader.finish(**{"cluster": "", "data": Path()} | ({"name": "x"} if reader.mistakes else {}))
            self.mistakes += reader.mistakes
            if str(table["name"]) in names:
                self.mistakes.append(f"{place}: the name '{table['name']}' is taken")
            names.add(str(table["name"]))
        return tuple(named)


def require_brokers(file: Path, storages: Storages, brokers: Collection[str]) -> None:
    """Raise BadOption if a topic is to be stored by a broker that the platform does not have."""
    for topic, names in storages.items():
        for name in names:
            if name not in brokers:
                raise BadOption(f"{file}: storages.{topic}: broker '{name}' {unknown_name(name, brokers)}")


def _storage_mistakes(storages: Mapping[str, object]) -> Iterator[str]:
    for topic, brokers in storages.items():
        if not is_topic(topic):
            yield f"storages: {topic!r}: a topic is 1 to 256 characters without control characters"
        if not _is_strings(brokers) or not brokers:
            yield f'storages.{topic}: must be a list of brokers, such as ["edge"]'


def _access_mistakes(topics: Table, groups: Table) -> Iterator[str]:
    for group, names in groups.items():
        if not _is_strings(names) or not all(is_subscriber_name(name) for name in names):
            yield f'groups.{group}: must be a list of names of subscribers, such as ["ann", "bob"]'
    for pattern, rule in topics.items():
        if not isinstance(rule, dict):
            yield f'topics."{pattern}": must be a table, written as [topics."{pattern}"]'
            continue
        for action, names in rule.items():
            place = f'topics."{pattern}".{action}'
            if action not in ACTIONS:
                yield f"{place}: {unknown_name(action, ACTIONS)}"
            elif not _is_strings(names):
                yield f'{place}: must be a list of names and groups, such as ["ann", "@staff"] or ["*"]'
            else:
                yield from (f"{place}: {mistake}" for mistake in _name_mistakes(names, groups))


def _name_mistakes(names: list[str], groups: Table) -> Iterator[str]:
    for name in names:
        if name.startswith("@") and name[1:] not in groups:
            hint = unknown_name(name[1:], tuple(groups)) if groups else "is not known; declare it in [groups]"
            yield f"group '{name}' {hint}"
        elif not name.startswith("@") and name != "*" and not is_subscriber_name(name):
            yield f"{name!r} cannot be the name of a subscriber"


def _without_groups(topics: Mapping[str, Mapping[str, list[str]]], groups: Mapping[str, list[str]]) -> Access:
    """Return the rules with groups replaced by their members.

    >>> _without_groups({"news.*": {"publish": ["@staff", "eve"]}}, {"staff": ["bob", "ann"]})
    {'news.*': {'publish': ['ann', 'bob', 'eve']}}
    """

    def members(names: list[str]) -> Iterator[str]:
        for name in names:
            yield from groups[name[1:]] if name.startswith("@") else [name]

    return {
        pattern: {action: sorted(set(members(names))) for action, names in rule.items()}
        for pattern, rule in topics.items()
    }


def _is_strings(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def check_app(folder: Path, environment: Mapping[str, str]) -> tuple[App, PlatformTables]:
    """Read the app and the tables of its platform; raise BadAppFile with the mistakes of all tables."""
    mistakes: list[str] = []
    try:
        app = read_app(folder, environment)
    except BadAppFile as error:
        mistakes += error.mistakes
    try:
        tables = read_tables(folder)
    except BadAppFile as error:
        mistakes += error.mistakes
    if not mistakes:
        mistakes += [f"{folder / FILE}: {one}" for one in _certificate_mistakes(app, tables)]
    if mistakes:
        raise BadAppFile(list(dict.fromkeys(mistakes)))
    return app, tables


def _certificate_mistakes(app: App, tables: PlatformTables) -> Iterator[str]:
    """Find certificates, keys and authorities that no server could start with."""
    cluster: Table = {
        key: str(value) for key in ("certificate", "key", "authority") if (value := getattr(app.cluster, key))
    }
    named: list[tuple[str, Table]] = [("cluster", cluster), ("coordinator", tables.coordinator)]
    named += [(f"brokers, number {number}", one) for number, one in enumerate(tables.brokers, start=1)]
    for place, table in named:
        found = absolute(table, app.folder)
        try:
            if "certificate" in found:
                check_certificate(Path(str(found["certificate"])), Path(str(found["key"])))
        except BadOption as error:
            yield f"{place}: certificate and key: {error}"
        if "authority" in found:
            try:
                ssl.create_default_context(cafile=str(found["authority"]))
            except OSError as error:
                yield f"{place}.authority: {found['authority']}: no certificates can be read ({error.strerror})"


def push_warnings(app: App, tables: PlatformTables) -> Iterator[str]:
    """Find what is valid in `[push]` and `[[brokers]]`, and yet keeps pages from being pushed."""
    push = app.push
    if not push.enabled:
        return
    if not push.location.known:
        yield "push: the cluster has no place (lat and lon, or node): no broker can be nearer than the cluster"
    receivers = [broker for broker in tables.brokers if broker.get("push_cache_bytes") != 0]
    if tables.brokers and not any("node" in broker or "lat" in broker for broker in receivers):
        yield "push: no broker has room for copies and a place (lat and lon, or node): no broker receives pages"
    nodes = {node for link in push.links for node in link}
    for key in ("caching", "lookup"):
        if getattr(push, key) == "hops" and not nodes:
            yield f"push.{key}: is 'hops', but there are no links to count"
    located = [("push", push.node), *((f"broker {one.get('name')}", one.get("node")) for one in tables.brokers)]
    for name, node in located if nodes else ():
        if node is not None and node not in nodes:
            yield f"{name}: node '{node}' is at no end of a link"


_PATHS = ("data", "certificate", "key", "authority")
"""Settings that are paths, taken from the app folder on."""


def absolute(table: Mapping[str, object], folder: Path) -> Table:
    """Return a table with absolute paths."""
    return {
        key: str(folder.absolute() / value) if key in _PATHS and isinstance(value, str) else value
        for key, value in table.items()
    }
