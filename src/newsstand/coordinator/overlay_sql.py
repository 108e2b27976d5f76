"""The overlay in SQL: the links of the tree, the storages of topics, and the versions of both."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from newsstand.coordinator.records import Storages, Tree

_KEEP_VERSION = "INSERT OR REPLACE INTO about VALUES (?, ?)"


def read_tree(connection: sqlite3.Connection) -> Tree:
    """The tree that was kept last."""
    links = connection.execute("SELECT one, other FROM links").fetchall()
    return Tree(_version(connection, "tree"), frozenset(links))


def write_tree(connection: sqlite3.Connection, tree: Tree) -> None:
    """Put a tree in the place of the one that was kept."""
    connection.execute("DELETE FROM links")
    connection.executemany("INSERT INTO links VALUES (?, ?)", sorted(tree.links))
    connection.execute(_KEEP_VERSION, ("tree", str(tree.version)))


def read_storages(connection: sqlite3.Connection) -> tuple[int, dict[str, Storages]]:
    """The version of the placement, and the storages of every topic that has any."""
    brokers: dict[str, tuple[set[str], set[str]]] = {}
    for topic, broker, wanted in connection.execute("SELECT topic, broker, wanted FROM storages"):
        brokers.setdefault(topic, (set(), set()))[0 if wanted else 1].add(broker)
    found = {topic: Storages(frozenset(some), frozenset(others)) for topic, (some, others) in brokers.items()}
    return _version(connection, "storages"), found


def write_storages(connection: sqlite3.Connection, version: int, changes: Mapping[str, Storages]) -> None:
    """Replace the storages of some topics."""
    connection.executemany("DELETE FROM storages WHERE topic = ?", ((topic,) for topic in changes))
    connection.executemany(
        "INSERT INTO storages VALUES (?, ?, ?)",
        (
            (topic, broker, broker in storages.wanted)
            for topic, storages in changes.items()
            for broker in sorted(storages.keeping)
        ),
    )
    connection.execute(_KEEP_VERSION, ("storages", str(version)))


def _version(connection: sqlite3.Connection, of: str) -> int:
    row = connection.execute("SELECT text FROM about WHERE what = ?", (of,)).fetchone()
    return 0 if row is None else int(row[0])
