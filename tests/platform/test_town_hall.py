"""The town hall of the examples, and `[storages]` of an app."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.broker.up import Up, eventually

from newsstand.auth.credentials import operator_token
from newsstand.cluster.app_folder import read_app
from newsstand.errors import NewsstandError
from newsstand.platform.processes import plan
from newsstand.platform.tables import read_tables

EXAMPLE = Path(__file__).parents[2] / "examples" / "town-hall"


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    shutil.copytree(EXAMPLE, tmp_path / "app")
    made = Up(tmp_path)
    yield made
    made.sweep()


def test_town_hall_plays_as_its_page_shows(up: Up) -> None:
    output = up.addresses()
    coordinator = output["coordinator"]["url"]  # type: ignore[index]
    played = subprocess.run(
        [sys.executable, EXAMPLE / "play.py", coordinator], capture_output=True, text=True, timeout=90, check=False
    )
    [shown] = re.findall(r"```text\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.S)
    assert played.stdout == shown, played.stderr + up.output()[-5000:]
    secret = Path(str(output["secret_file"])).read_text().strip()
    token = operator_token(secret, "test", ["operator"], now_s=time.time(), days=1)
    headers = {"Authorization": f"Bearer {token}"}

    def overlay() -> dict[str, object]:
        return httpx.get(f"{coordinator}/overlay", headers=headers).raise_for_status().json()

    assert eventually(lambda: overlay()["settled"])
    kept = {topic: storages["complete"] for topic, storages in overlay()["storages"].items()}  # type: ignore[attr-defined]
    assert kept == {"warnings": ["harbour", "university"], "roadworks": ["market"]}


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("storages = 3", "storages: must be a table, written as [storages]"),
        ('[storages]\nstorms = "edge"', 'storages.storms: must be a list of brokers, such as ["edge"]'),
        ("[storages]\nstorms = []", 'storages.storms: must be a list of brokers, such as ["edge"]'),
        ('[storages]\n"a\\u0000b" = ["edge"]', "a topic is 1 to 256 characters without control characters"),
        ('[storages]\nstorms = ["egde"]', "storages.storms: broker 'egde' is not known; did you mean 'edge'?"),
        ("[[brokers]]\nopportunistic_slots = 5", "opportunistic_slots: is the same for all brokers"),
        (
            '[coordinator]\nopportunistic_policy = "sel"',
            "coordinator.opportunistic_policy: sel: must be",
        ),
        ('[[brokers]]\nstorages = ["a"]', "brokers, number 1: storages: is decided by `newsstand up`"),
    ],
)
def test_storages_mistake_is_reported_with_its_place(tmp_path: Path, table: str, why: str) -> None:
    (tmp_path / "newsstand.toml").write_text(table)
    with pytest.raises(NewsstandError) as output:
        plan(read_app(tmp_path), read_tables(tmp_path))
    assert why in str(output.value)
