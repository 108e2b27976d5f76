"""A platform for minutes: hundreds of kills and pauses in an order that the seed determines.

python -m pytest -m slow tests/faults --seeds 1-5 --kills 40 --basetemp FOLDER
"""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.run import Run
from faults.schedule import schedule


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    first, _, last = metafunc.config.getoption("--seeds").partition("-")
    metafunc.parametrize("seed", range(int(first), int(last or first) + 1))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_answered_changes_survive_random_kills_and_pauses(
    tmp_path: Path, seed: int, request: pytest.FixtureRequest
) -> None:
    kills, pauses = (int(request.config.getoption(f"--{what}")) for what in ("kills", "pauses"))
    report = Run(tmp_path / "run", seed)(schedule(seed, kills, pauses))
    shown = "\n".join(str(one)[:600] for one in report.violations[:20])
    assert not report.violations, f"seed {seed}; journals in {tmp_path / 'run'}\n{shown}"
    assert report.figures["results received"] > 1000
