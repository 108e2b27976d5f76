"""`newsstand plan` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from newsstand.cli.main import run

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "storage-network.json")


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def tell(*words: str) -> dict[str, object]:
        assert run(["plan", EXAMPLE, *words, "--json"]) == 0
        answer: dict[str, object] = json.loads(capsys.readouterr().out)
        return answer

    return tell


def test_the_answer_has_the_names_agreed(told) -> None:  # type: ignore[no-untyped-def]
    assert told("--method", "srl") == {
        "method": "srl",
        "weights": {"a": 0.34, "b": 0.54, "c": 0.12},
        "possible": {"a": [0, 3, 5, 0, 2, 2], "b": [0, 2, 5, 0, 5, 0], "c": [0, 2, 5, 0, 5, 0]},
        "storages": [3, 5, 2],
        "assignment": {"a": [3, 2], "b": [3, 5], "c": [5, 2]},
        "mean_hops": 0.46,
        "traffic": 23.0,
    }


def test_a_proven_plan_tells_its_gap(told) -> None:  # type: ignore[no-untyped-def]
    assert told("--method", "exact")["gap"] == 0.0


def test_options_take_the_place_of_fields(told) -> None:  # type: ignore[no-untyped-def]
    assert told("--storages", "4", "--replication", "1")["assignment"] == {"a": [3], "b": [5], "c": [5]}
    assert len(told("--replication", "1,2", "--storage-capacity", "1", "--storages", "4")["storages"]) == 4


def test_missing_replicas_are_told(told) -> None:  # type: ignore[no-untyped-def]
    assert told("--storage-capacity", "1", "--method", "srl")["short"] == {"a": 1, "c": 2}


def test_publishing_is_told_as_if_each_server_counted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "network.json"
    path.write_text(json.dumps({**json.loads(Path(EXAMPLE).read_text()), "publishing": [0.5] * 6}))
    assert run(["plan", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["possible"]["a"] == [0, 3, 5, 0, 2, 2]


def test_assigning_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, changed = tmp_path / "plan.json", tmp_path / "changed.json"
    assert run(["plan", EXAMPLE, "--json", "--out", str(plan)]) == 0
    assert json.loads(plan.read_text()) == json.loads(capsys.readouterr().out)
    network = json.loads(Path(EXAMPLE).read_text())
    network["topics"] |= {"a": network["topics"]["c"], "c": network["topics"]["a"]}
    changed.write_text(json.dumps(network))
    assert run(["plan", str(changed), "--from", str(plan), "--method", "srl", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["storages"] == [3, 5, 2]
    assert told["assignment"] == {"a": [5, 2], "b": [3, 5], "c": [3, 2]}
    assert told["reassignment"] == {
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


def test_a_table_for_people_and_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
            "--method best: there is no such method; there are srl, wrr, random, greedy, swap,",
        ),
        (["--storages", "7"], "--storages is 7, and there are 6 nodes"),
        (["--replication", "4"], "--replication is 4, and there are 3 storages"),
        (["--replication", "a,b"], "--replication a,b: not a whole number, nor two with a comma between them"),
        (["--storage-capacity", "0"], "--storage-capacity is 0, which is below 1"),
        (["--seed", "-1"], "--seed -1: must not be negative"),
        (["--from", EXAMPLE], f"{EXAMPLE}: field 'assignment' is missing"),
        (["--from", EXAMPLE, "--storages", "2"], "--storages: with --from the storages stay"),
        (
            ["--from", EXAMPLE, "--method", "exact"],
            "--method exact: with --from, topics are assigned by srl, wrr or swap",
        ),
        (["--out", "nowhere/plan.json"], "--out nowhere/plan.json: no folder nowhere"),
        (
            ["--out", str(Path(EXAMPLE).parent)],
            f"--out {Path(EXAMPLE).parent}: cannot be written (Is a directory)",
        ),
        (["--figure", "plan.txt"], "--figure plan.txt: the name must end in .svg, .png or .pdf"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", EXAMPLE, *words, "--json"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"newsstand: {line}")
    assert told.err.count("\n") == 1
