"""`newsstand reproduce chen2003`, from end to end on a trace far too small to prove anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

COMMAND = "reproduce chen2003 --out reproduced --quick --requests 2000 --proxies 4"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command given twice: for programs, and for people."""
    folder = tmp_path_factory.mktemp("reproduce")
    subprocess.run(
        [sys.executable, Path(__file__).parent / "batch.py", folder / "outcomes.json"],
        input=json.dumps([[*COMMAND.split(), "--json"], COMMAND.split()]),
        cwd=folder,
        env={key: value for key, value in os.environ.items() if not key.startswith("NEWSSTAND_")},
        text=True,
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> list[dict[str, str]]:
    told: list[dict[str, str]] = json.loads((folder / "outcomes.json").read_text())
    return told


def test_the_result_is_json_and_names_every_claim(outcomes: list[dict[str, str]]) -> None:
    assert outcomes[0]["code"] == 0, outcomes[0]["err"]
    told = json.loads(outcomes[0]["out"], parse_constant=pytest.fail)
    assert set(told) == {"claims", "tables", "figures", "report"}
    assert all(set(claim) == {"id", "text", "paper", "measured", "holds"} for claim in told["claims"])
    assert len(told["claims"]) > 20


def test_a_second_run_computes_nothing_anew(outcomes: list[dict[str, str]]) -> None:
    first, second = (outcome["err"].splitlines() for outcome in outcomes)
    assert first == ["news, seed 1", "alternative, seed 1"]
    assert second == ["news, seed 1: done before", "alternative, seed 1: done before"]


def test_people_get_verdicts_and_the_place_of_the_report(outcomes: list[dict[str, str]]) -> None:
    claims = json.loads(outcomes[0]["out"])["claims"]
    *verdicts, last = outcomes[1]["out"].splitlines()
    held = {line.split()[1]: line.startswith("holds ") for line in verdicts}
    assert held == {claim["id"]: claim["holds"] for claim in claims}
    assert last == f"{sum(held.values())} of {len(held)} claims hold; see reproduced/report.html"


def test_every_file_is_there_and_nothing_half_done(folder: Path, outcomes: list[dict[str, str]]) -> None:
    told = json.loads(outcomes[0]["out"])
    for svg in told["figures"].values():
        assert (folder / svg).read_text().count("<svg") == 1
        assert (folder / svg).with_suffix(".png").stat().st_size > 1000
    tables = {file.stem for file in (folder / "reproduced" / "tables").glob("*.csv")}
    assert tables > set(told["tables"])
    assert len(list((folder / "reproduced" / "runs").iterdir())) == 2
    assert not [path for path in folder.rglob("*") if path.name.startswith(".") or "partial" in path.name]


def test_the_report_needs_no_other_host(folder: Path, outcomes: list[dict[str, str]]) -> None:
    page = (folder / json.loads(outcomes[0]["out"])["report"]).read_text()
    assert not re.search(r"""(?:src|href)\s*=\s*["']?https?://""", page)
    assert not re.search(r"<(?:link|script|img|iframe)\b", page)
