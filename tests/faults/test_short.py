"""A platform for a minute: each kind of process is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.run import Run
from faults.schedule import SHORT


@pytest.mark.processes
def test_answered_changes_survive_kill_of_each_process(tmp_path: Path) -> None:
    report = Run(tmp_path / "run", seed=0)(SHORT)
    shown = "\n".join(str(one)[:600] for one in report.violations[:20])
    assert not report.violations, f"seed 0; journals in {tmp_path / 'run'}\n{shown}"
    assert report.figures["publications"] > 20
    assert report.figures["results received"] > 200
    assert report.figures["ends"] > 0
