"""The tables of an app's newsstand.toml about coordinator, brokers, storages, topics and pages, checked.

The keys of the first two are those of `newsstand coordinator` and `newsstand broker`, but for what the platform
decides itself: the secret, the tokens, and where the parts find each other.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from newsstand.broker.page_hosts import AllowedHost
from newsstand.broker.settings import BrokerSettings
from newsstand.cluster.app_folder import FILE, BadAppFile, unknown
from newsstand.coordinator.settings import KEYS
from newsstand.errors import BadApp, BadInput
from newsstand.platform.storages import Storages, storage_mistakes
from newsstand.platform.topic_access import Access, access_mistakes, access_of
from newsstand.serving.limits import read_limits
from newsstand.serving.settings import read_value

Table = dict[str, object]

DECIDED = ("cluster", "coordinator", "secret", "secret_file", "storages", "token", "token_file", "topics")
"""What `newsstand up` decides, and no table can."""

TOLD = ("opportunistic_policy", "opportunistic_slots")
"""What the coordinator tells brokers, so that it is the same for all."""

COORDINATOR_KEYS = tuple(key for key in KEYS if key not in DECIDED)
BROKER_TYPES = {
    one.name: one.type for one in msgspec.structs.fields(BrokerSettings) if one.name not in (*DECIDED, *TOLD)
}


@dataclass(frozen=True)
class Declared:
    """What an app says about its coordinator, its brokers and their topics; every broker has a name."""

    coordinator: Table = field(default_factory=dict)
    brokers: tuple[Table, ...] = ()
    storages: Storages = field(default_factory=dict)
    topics: Access = field(default_factory=dict)
    pages_allow: tuple[str, ...] = ()
    """`allow` of `[pages]`, for brokers that do not say otherwise."""
    limits: Table = field(default_factory=dict)
    """`[limits]`, for coordinator and brokers that do not say otherwise."""


def read_declared(folder: Path) -> Declared:
    """Read the tables of an app folder; raise BadAppFile with every mistake in them."""
    path = folder / FILE
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadApp(f"{path}: cannot be read ({error})") from error
    mistakes: list[str] = []
    coordinator, brokers = document.get("coordinator", {}), document.get("brokers", [])
    storages = document.get("storages", {})
    if not isinstance(coordinator, dict):
        mistakes.append("coordinator: must be a table, written as [coordinator]")
        coordinator = {}
    if not isinstance(brokers, list) or not all(isinstance(one, dict) for one in brokers):
        mistakes.append("brokers: must be written as [[brokers]]")
        brokers = []
    if not isinstance(storages, dict):
        mistakes.append("storages: must be a table, written as [storages]")
        storages = {}
    mistakes += _coordinator_mistakes(coordinator)
    mistakes += storage_mistakes(storages)
    topics, groups = document.get("topics", {}), document.get("groups", {})
    mistakes += access_mistakes(topics, groups)
    pages = document.get("pages", {})
    mistakes += _pages_mistakes(pages)
    limits = document.get("limits", {})
    try:
        read_limits(limits)
    except BadInput as error:
        mistakes.append(f"limits.{error}" if isinstance(limits, dict) else "limits: must be a table")
    named = [
        {"name": "edge" if number == 1 else f"edge{number}"} | broker for number, broker in enumerate(brokers, 1)
    ]
    taken: set[object] = set()
    for number, broker in enumerate(named, start=1):
        mistakes += _broker_mistakes(f"brokers, number {number}", broker)
        if isinstance(broker["name"], str) and broker["name"] in taken:
            mistakes.append(f"brokers, number {number}: the name '{broker['name']}' is taken")
        taken.add(str(broker["name"]))
    if mistakes:
        raise BadAppFile([f"{path}: {mistake}" for mistake in mistakes])
    allow = tuple(pages.get("allow", ()))
    return Declared(coordinator, tuple(named), storages, access_of(topics, groups), allow, limits)


def _coordinator_mistakes(table: Mapping[str, object]) -> Iterator[str]:
    yield from _unknown_keys("coordinator.", table, COORDINATOR_KEYS)
    for key, value in table.items():
        if key in COORDINATOR_KEYS:
            try:
                KEYS[key](value)
            except BadInput as error:
                yield f"coordinator.{key}: {error}"
    if ("certificate" in table) != ("key" in table):
        yield "coordinator: certificate and key: give both or neither"


def _pages_mistakes(table: object) -> Iterator[str]:
    if not isinstance(table, dict):
        yield "pages: must be a table, written as [pages]"
        return
    yield from _unknown_keys("pages.", table, ("allow",))
    allow = table.get("allow", [])
    if not isinstance(allow, list) or not all(isinstance(one, str) for one in allow):
        yield "pages.allow: must be a list of texts"
        return
    for one in allow:
        try:
            AllowedHost.parse(one)
        except BadInput as error:
            yield f"pages.allow: {error}"


def _broker_mistakes(place: str, table: Mapping[str, object]) -> Iterator[str]:
    yield from (
        f"{place}: {key}: is the same for all brokers; write it in [coordinator]" for key in table if key in TOLD
    )
    rest = {key: value for key, value in table.items() if key not in TOLD}
    yield from _unknown_keys(f"{place}: ", rest, tuple(BROKER_TYPES))
    values: Table = {"cluster": "", "data": Path()}
    found = False
    for key, value in table.items():
        if key in BROKER_TYPES:
            try:
                values[key] = read_value(value, BROKER_TYPES[key])
            except BadInput as error:
                found = True
                yield f"{place}: {key}: {error}"
    if not found:
        try:
            BrokerSettings(**values)  # type: ignore[arg-type]
        except BadInput as error:
            yield f"{place}: {error}"


def _unknown_keys(place: str, table: Mapping[str, object], known: tuple[str, ...]) -> Iterator[str]:
    for key in table:
        if key in DECIDED:
            yield f"{place}{key}: is decided by `newsstand up`; leave it out"
        elif key not in known:
            yield f"{place}{key}: {unknown(key, known)}"
