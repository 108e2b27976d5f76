"""`newsstand plan` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from newsstand.cli.main import run

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "storage-network.json")


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def tell(*words: str) -> dict[str, object]:
        assert run(["plan", EXAMPLE, *words, "--json"]) == 0
        answer: dict[str, object] = json.loads(capsys.readouterr().out)
        return answer

    return tell


def test_plan_prints_fields_of_contract(output) -> None:  # type: ignore[no-untyped-def]
    assert output("--method", "srl") == {
        "method": "srl",
        "weights": {"a": 0.34, "b": 0.54, "c": 0.12},
        "possible": {"a": [0, 3, 5, 0, 2, 2], "b": [0, 2, 5, 0, 5, 0], "c": [0, 2, 5, 0, 5, 0]},
        "storages": [3, 5, 2],
        "assignment": {"a": [3, 2], "b": [3, 5], "c": [5, 2]},
        "mean_hops": 0.46,
        "traffic": 23.0,
    }


def test_plan_prints_gap_of_proven_plan(output) -> None:  # type: ignore[no-untyped-def]
    assert output("--method", "exact")["gap"] == 0.0


def test_plan_options_replace_fields(output) -> None:  # type: ignore[no-untyped-def]
    assert output("--storages", "4", "--replication", "1")["assignment"] == {"a": [3], "b": [5], "c": [5]}
    assert len(output("--replication", "1,2", "--storage-capacity", "1", "--storages", "4")["storages"]) == 4


def test_plan_prints_missing_replicas(output) -> None:  # type: ignore[no-untyped-def]
    assert output("--storage-capacity", "1", "--method", "srl")["short"] == {"a": 1, "c": 2}


def test_plan_scales_possible_storages_of_publishers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "network.json"
    path.write_text(json.dumps({**json.loads(Path(EXAMPLE).read_text()), "publishing": [0.5] * 6}))
    assert run(["plan", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["possible"]["a"] == [0, 3, 5, 0, 2, 2]


def test_plan_prints_reassignment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, changed = tmp_path / "plan.json", tmp_path / "changed.json"
    assert run(["plan", EXAMPLE, "--json", "--out", str(plan)]) == 0
    assert json.loads(plan.read_text()) == json.loads(capsys.readouterr().out)
    network = json.loads(Path(EXAMPLE).read_text())
    network["topics"] |= {"a": network["topics"]["c"], "c": network["topics"]["a"]}
    changed.write_text(json.dumps(network))
    assert run(["plan", str(changed), "--from", str(plan), "--method", "srl", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["storages"] == [3, 5, 2]
    assert output["assignment"] == {"a": [5, 2], "b": [3, 5], "c": [3, 2]}
    assert output["reassignment"] == {
        "before": {"mean_hops": 0.56, "traffic": 28.0},
        "after": {"mean_hops": 0.46, "traffic": 23.0},
        "gain": 1 - 23 / 28,
        "gain_per_copy": (1 - 23 / 28) / 2,
        "copies": 2,
        "removals": 2,
        "moved_demand": 0.23,
        "moved": {"a": {"added": [5], "removed": [3]}, "c": {"added": [3], "removed": [5]}},
        "replanned": {"mean_hops": 0.46, "traffic": 23.0, "storages": [3, 5, 2]},
        "new_topics": [],
        "worth_it": True,
    }
    assert run(["plan", str(changed), "--from", str(plan), "--least-gain", "0.5"]) == 0
    assert "not worth it: 17.9% less traffic for 2 copies" in capsys.readouterr().out


def test_plan_prints_table_and_draws_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "network.svg"
    assert run(["plan", EXAMPLE, "--figure", str(figure)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "3 storages: 3, 5, 2"
    first = figure.read_bytes()
    assert run(["plan", EXAMPLE, "--figure", str(figure)]) == 0
    assert figure.read_bytes() == first


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["--method", "best"],
            "--method best: must be one of srl, wrr, random, greedy, swap,",
        ),
        (["--storages", "7"], "--storages is 7, and there are 6 nodes"),
        (["--replication", "4"], "--replication is 4, and there are 3 storages"),
        (["--replication", "a,b"], "--replication a,b: must be a whole number, or two as 1,3"),
        (["--storage-capacity", "0"], "--storage-capacity is 0, which is below 1"),
        (["--seed", "-1"], "--seed -1: must not be negative"),
        (["--from", EXAMPLE], f"{EXAMPLE}: field 'assignment' is missing"),
        (["--from", EXAMPLE, "--storages", "2"], "--storages: remove it; with --from the storages stay"),
        (
            ["--from", EXAMPLE, "--method", "exact"],
            "--method exact: must be srl, wrr or swap with --from",
        ),
        (["--out", "nowhere/plan.json"], "--out nowhere/plan.json: cannot be written (No such file or directory)"),
        (
            ["--out", str(Path(EXAMPLE).parent)],
            f"--out {Path(EXAMPLE).parent}: is a folder, not a file",
        ),
        (["--figure", "plan.txt"], "--figure plan.txt: the name must end in .svg, .png or .pdf"),
    ],
)
def test_plan_reports_mistake_in_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", EXAMPLE, *words, "--json"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"newsstand: {line}")
    assert output.err.count("\n") == 1
