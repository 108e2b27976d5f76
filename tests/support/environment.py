"""The environment of tests, and of commands that they run as processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

KEPT = ("NEWSSTAND_CLASS_ARCHIVE", "NEWSSTAND_SPARK_CONF")
"""Without them, a command would create an archive of Spark's classes beside the other tests, and start slowly."""


def without_settings() -> dict[str, str]:
    """Return the environment without the settings of the user who runs the tests."""
    return {key: value for key, value in os.environ.items() if key in KEPT or not key.startswith("NEWSSTAND_")}


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a working directory without a configuration, and none in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("NEWSSTAND_CONFIG", "NEWSSTAND_SPARK_CONF", "NEWSSTAND_MASTER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "newsstand-test", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small tmpfs here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)
