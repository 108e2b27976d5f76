"""`newsstand workload push1995`, `push1995-import` and `push1995-report`: output and rejected input."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from newsstand.cli.main import run

Lent = Callable[[], AbstractContextManager[None]]
EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SMALL = ["--servers", "2", "--subnets", "30", "--requests", "600", "--days", "1", "--pages", "20", "--seed", "4"]


@pytest.fixture
def run_command(lent: Lent, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def tell(*words: object) -> tuple[int, str, str]:
        with lent():
            code = run(["workload", *map(str, words)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return tell


def test_trace_is_written_and_its_demand_reported(
    run_command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    code, out, _ = run_command("push1995", *SMALL, "--kind", "flat", "--out", tmp_path / "trace", "--json")
    assert code == 0
    made = json.loads(out)
    assert made["rows"]["requests"] == 600
    assert (made["kind"], made["core"], made["regional"], made["end"]) == ("flat", 0.5, 0.1, 86_400.0)
    code, out, _ = run_command("push1995-report", tmp_path / "trace", "--pages", 3, "--square", 20, "--json")
    assert code == 0
    report = json.loads(out)
    assert [server["server"] for server in report["servers"]] == [0, 1]
    assert sum(server["requests"] for server in report["servers"]) == 600
    for server in report["servers"]:
        assert len(server["popular"]) == 3
        assert server["popular_share"] == sum(page["requests"] for page in server["popular"]) / server["requests"]
        assert -1 <= server["correlation"] <= 1
    code, out, _ = run_command("push1995-report", tmp_path / "trace")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split("  ")[0] == "server"
    assert len(lines) == 5
    code, _, err = run_command("push1995", *SMALL, "--out", tmp_path / "trace")
    assert (code, err.count("\n")) == (2, 1)
    assert "exists already" in err


def test_log_is_imported_and_subnets_without_location_are_counted(
    run_command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    code, out, err = run_command(
        "push1995-import",
        *("--log", f"www={EXAMPLES / 'access.log'}"),
        *("--servers", EXAMPLES / "push-servers.csv", "--places", EXAMPLES / "push-places.csv"),
        *("--out", tmp_path / "trace", "--json"),
    )
    assert code == 0
    made = json.loads(out)
    assert made["rows"] == {"servers": 2, "subnets": 2, "pages": 67, "requests": 188}
    assert made["notes"][-1].startswith("1 of 3 subnets, with 88 of 276 requests, have no place in ")
    assert err.count("note: ") == 4
    assert (tmp_path / "trace" / "urls").is_dir()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["push1995", "--out", "x", "--visit", "0"], "--visit 0: must be within 1 … 10000"),
        (["push1995", "--out", "x", "--pages", "9"], "--pages 9: must be within 11 … "),
        (["push1995-report", "nowhere"], "nowhere: no such trace folder"),
        (["push1995-report", "nowhere", "--pages", "0"], "--pages 0: must be at least 1"),
        (
            ["push1995-report", "nowhere", "--square", "200"],
            "--square 200: must be above 0 and at most 180",
        ),
        (["push1995-import", "--log", "www"], "--log www: must have the form SERVER=FILE"),
        (["push1995-import", "--log", "www=none.log"], "--log www=none.log: no such file or folder"),
        (["push1995-import", "--log", "a=.", "--log", "a=.."], "--log a=..: a has a log already; put its files"),
        (["push1995-import", "--log", "a=."], "--servers s.csv: no such file or folder"),
    ],
)
def test_command_reports_mistake_in_one_line(
    run_command: Callable[..., tuple[int, str, str]], words: list[str], reason: str
) -> None:
    if words[0] == "push1995-import":
        words = [*words, "--servers", "s.csv", "--places", "p.csv", "--out", "x"]
    code, out, err = run_command(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"newsstand: {reason}")
    assert err.count("\n") == 1
