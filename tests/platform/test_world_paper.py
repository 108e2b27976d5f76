"""The world paper of the examples: its pages move nearer to readers, as its page shows."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support.broker.press import ADMIN
from support.broker.up import Up

from newsstand.cli.main import run
from newsstand.cluster.app_folder import read_app
from newsstand.geo.location import LinkGraph
from newsstand.platform.tables import read_tables

EXAMPLE = Path(__file__).parents[2] / "examples" / "world-paper"
ROW = re.compile(r" +\d+ +(\d+) +(\d+) +(\d+) +([\d,]+) +(\d+)")
AT_LAST = re.compile(r"the new front page is in ([\w-]+) after \d+\.\d s")


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Starts the example's platform, of a copy of its folder."""
    shutil.copytree(EXAMPLE, tmp_path / "app", ignore=shutil.ignore_patterns("data"))
    started: list[Up] = []

    def start(*words: object, command: tuple[object, ...] = ()) -> Up:
        started.append(Up(tmp_path, *words, command=command))
        return started[-1]

    yield start
    for one in started:
        one.sweep()


def test_world_paper_folder_has_no_mistakes(
    lent: Callable[[], AbstractContextManager[None]], capsys: pytest.CaptureFixture[str]
) -> None:
    with lent():
        assert run(["check", str(EXAMPLE), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mistakes"] == []


def test_play_counts_hops_as_platform_does() -> None:
    push = read_app(EXAMPLE).push
    assert push.enabled
    network = LinkGraph(push.links)
    brokers = {str(one["name"]): str(one["node"]) for one in read_tables(EXAMPLE).brokers}
    hops = runpy.run_path(str(EXAMPLE / "play.py"))["HOPS"]
    assert set(hops) == set(brokers)
    nodes = brokers | {"origin": str(push.node)}
    for region, far in hops.items():
        assert far == {one: network.hops(brokers[region], nodes[one]) for one in far}, region


@pytest.mark.timeout(240)
def test_pages_are_pushed_to_their_readers(platform: Callable[..., Up], tmp_path: Path) -> None:
    (tmp_path / "token").write_text(ADMIN)
    up = platform()
    output = up.addresses()
    require_played(up, output, tmp_path / "token")
    require_played(up, output, tmp_path / "token", rounds=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pages_are_pushed_to_their_readers_with_spark(platform: Callable[..., Up], tmp_path: Path) -> None:
    newsstand = (sys.executable, "-m", "newsstand.cli.main", "up", tmp_path / "app", "--json", "--base-port", 0)
    up = platform("--master", "local[2]", "--conf", "spark.driver.memory=1g", command=newsstand)
    output = up.addresses()
    require_played(up, output, Path(output["cluster"]["token_file"]))  # type: ignore[index]


def require_played(up: Up, output: dict[str, object], token: Path, rounds: int | None = None) -> None:
    """Play, and compare with the page: all pages move to where they are read, and a change comes everywhere."""
    coordinator, cluster = (output[part]["url"] for part in ("coordinator", "cluster"))  # type: ignore[index]
    played = subprocess.run(
        [sys.executable, EXAMPLE / "play.py", coordinator, cluster, token],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert played.returncode == 0, played.stderr + up.output()[-5000:]
    [shown] = re.findall(r"```text\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.S)
    table, regions = read(played.stdout)
    shown_table, shown_regions = read(shown)
    assert played.stdout.splitlines()[0] == shown.splitlines()[0]
    assert regions == shown_regions
    assert all(sum(row[:3]) == sum(shown_table[0][:3]) for row in table)
    assert table[-1][:4] == shown_table[-1][:4], "the end is the same, whatever the way there"
    if rounds is None:
        assert len(table) > 1, "a first round finds pages at the origin"
        assert table[0][3] > table[-1][3]
    else:
        assert len(table) == rounds, "what was pushed is still there"


def read(printed: str) -> tuple[list[tuple[int, ...]], list[str]]:
    """The rows of a play's table, and the regions that have got the new page."""
    lines = printed.splitlines()
    rows = [
        tuple(int(cell.replace(",", "")) for cell in found.groups())
        for found in map(ROW.fullmatch, lines)
        if found
    ]
    return rows, [found[1] for found in map(AT_LAST.fullmatch, lines) if found]
