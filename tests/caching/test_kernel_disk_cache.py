"""Compiled code is stored on disk and found by a second process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPLAY = """
import sys
import numpy as np
from newsstand.caching import POLICIES
from newsstand.caching.kernels.pages.compiled import compiled
from newsstand.caching.pages.policy import PolicyFile

PolicyFile.read(sys.argv[1]).load()
outcome = np.zeros(3, np.uint8)
sizes, events = np.array([3, 1]), np.array([1, ~0, 0], np.int32)
compiled(POLICIES["mine"])(events, sizes, np.array([2, 0]), 3, 2.0, outcome)
print(outcome.tolist())
"""

MINE = """
from newsstand.caching import policy

def worth(e):
    return {worth}

@policy("mine", push="by-value", miss="by-value")
def mine(e):
    return worth(e)
"""

MISS_STORE_HIT = "[0, 3, 1]"
MISS_REJECT_MISS = "[0, 2, 0]"


class Machine:
    """A place for compiled code and a policy file, for processes to share."""

    def __init__(self, folder: Path) -> None:
        self.code = folder / "code"
        self.policy = folder / "mine.py"

    def replay(self, worth: str) -> str:
        """The outcome of a tiny replay in a process of its own."""
        self.policy.write_text(MINE.format(worth=worth))
        environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
        return subprocess.run(
            [sys.executable, "-c", REPLAY, str(self.policy)],
            env=environment | {"XDG_CACHE_HOME": str(self.code)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    @property
    def compiled(self) -> dict[Path, int]:
        """The files of compiled code, and when each was written."""
        return {file: file.stat().st_mtime_ns for file in self.code.rglob("*.nbc")}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    assert machine.replay("e.subscriptions / e.size") == MISS_STORE_HIT
    return machine


def test_kernel_cache_serves_second_process(machine: Machine) -> None:
    before = machine.compiled
    assert before
    machine.replay("e.subscriptions / e.size")
    assert machine.compiled == before


def test_kernel_cache_ignores_edited_policy_file(machine: Machine) -> None:
    assert machine.replay("1 / e.size") == MISS_REJECT_MISS
