"""What would keep pages from being pushed is noted, though it is no mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from newsstand.cluster.app_folder import read_app
from newsstand.platform.declared import read_declared
from newsstand.platform.push_notes import push_notes

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
    return list(push_notes(read_app(folder), read_declared(folder)))


def test_what_can_push_has_no_notes(tmp_path: Path) -> None:
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
def test_what_cannot_is_told(tmp_path: Path, old: str, new: str, note: str) -> None:
    assert old in GOOD
    [told] = notes(tmp_path, GOOD.replace(old, new))
    assert told.startswith(note)
