"""Notes on settings that are valid but keep pages from being pushed."""

from __future__ import annotations

from pathlib import Path

import pytest

from newsstand.cluster.app_folder import read_app
from newsstand.platform.tables import push_warnings, read_tables

DATASET = '[datasets.reports]\nfields = {id = "string"}\n'
GOOD = """
[push]
enabled = true
node = "newyork"
links = [["newyork", "berlin"]]
[[brokers]]
name = "berlin"
node = "berlin"
"""


def notes(folder: Path, tables: str) -> list[str]:
    (folder / "newsstand.toml").write_text(DATASET + tables)
    return list(push_warnings(read_app(folder), read_tables(folder)))


def test_notes_are_empty_if_pages_can_be_pushed(tmp_path: Path) -> None:
    assert notes(tmp_path, GOOD) == []
    assert notes(tmp_path, '[[brokers]]\nname = "berlin"\n') == [], "nothing is to be pushed"
    assert notes(tmp_path, "[push]\nenabled = true\nlat = 1\nlon = 2\n") == [], "brokers are started elsewhere"


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ('node = "newyork"\n', "", "push: the cluster has no place"),
        ('node = "berlin"\n', "", "push: no broker has room for copies and a place"),
        ('node = "berlin"\n', 'node = "berlin"\npush_cache_bytes = 0\n', "push: no broker has room for copies"),
        ('links = [["newyork", "berlin"]]', 'lookup = "hops"', "push.lookup: is 'hops', but there are no links"),
        ('node = "newyork"', 'node = "nowhere"', "push: node 'nowhere' is at no end of a link"),
        ('node = "berlin"', 'node = "zzz"', "broker berlin: node 'zzz' is at no end of a link"),
    ],
)
def test_notes_name_what_prevents_push(tmp_path: Path, old: str, new: str, note: str) -> None:
    assert old in GOOD
    [output] = notes(tmp_path, GOOD.replace(old, new))
    assert output.startswith(note)
