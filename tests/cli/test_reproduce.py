"""`newsstand reproduce chen2003`, from end to end on a trace too small for verdicts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.environment import without_settings

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

COMMAND = "reproduce chen2003 --out reproduced --quick --requests 2000 --proxies 4"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command given twice: for programs, and for people."""
    folder = tmp_path_factory.mktemp("reproduce")
    subprocess.run(
        [sys.executable, Path(__file__).parents[1] / "support" / "lab" / "batch.py", folder / "outcomes.json"],
        input=json.dumps([[*COMMAND.split(), "--json"], COMMAND.split()]),
        cwd=folder,
        env=without_settings(),
        text=True,
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> list[dict[str, str]]:
    loaded: list[dict[str, str]] = json.loads((folder / "outcomes.json").read_text())
    return loaded


def test_result_is_json_and_names_all_claims(outcomes: list[dict[str, str]]) -> None:
    assert outcomes[0]["code"] == 0, outcomes[0]["err"]
    result = json.loads(outcomes[0]["out"], parse_constant=pytest.fail)
    assert set(result) == {"claims", "tables", "figures", "report"}
    assert all(set(claim) == {"id", "text", "paper", "measured", "holds"} for claim in result["claims"])
    assert len(result["claims"]) > 20


def test_second_run_computes_nothing(outcomes: list[dict[str, str]]) -> None:
    first, second = (outcome["err"].splitlines() for outcome in outcomes)
    assert first == ["news, seed 1", "alternative, seed 1"]
    assert second == ["news, seed 1: done before", "alternative, seed 1: done before"]


def test_verdicts_and_path_of_report_are_printed(outcomes: list[dict[str, str]]) -> None:
    claims = json.loads(outcomes[0]["out"])["claims"]
    *verdicts, last = outcomes[1]["out"].splitlines()
    held = {line.split()[1]: line.startswith("holds ") for line in verdicts}
    assert held == {claim["id"]: claim["holds"] for claim in claims}
    assert last == f"{sum(held.values())} of {len(held)} claims hold; see reproduced/report.html"


def test_files_are_complete(folder: Path, outcomes: list[dict[str, str]]) -> None:
    result = json.loads(outcomes[0]["out"])
    for svg in result["figures"].values():
        assert (folder / svg).read_text().count("<svg") == 1
        assert (folder / svg).with_suffix(".png").stat().st_size > 1000
    tables = {file.stem for file in (folder / "reproduced" / "tables").glob("*.csv")}
    assert tables > set(result["tables"])
    assert len(list((folder / "reproduced" / "runs").iterdir())) == 2
    assert not [path for path in folder.rglob("*") if path.name.startswith(".") or "partial" in path.name]


def test_report_loads_nothing_from_other_hosts(folder: Path, outcomes: list[dict[str, str]]) -> None:
    page = (folder / json.loads(outcomes[0]["out"])["report"]).read_text()
    assert not re.search(r"""(?:src|href)\s*=\s*["']?https?://""", page)
    assert not re.search(r"<(?:link|script|img|iframe)\b", page)
