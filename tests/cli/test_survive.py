"""`newsstand survive` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.environment import without_settings

from newsstand.cli.main import run
from newsstand.cli.several_values import numbers, whole_numbers
from newsstand.lab.survival.simulator import Simulation, run_simulation
from newsstand.survival.setting import SurvivalSetting

FEW = ("--method", "simulate", "--observations", "2000", "--replications", "4")


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def tell(*words: str) -> Any:
        assert run(["survive", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out, parse_constant=pytest.fail)

    return tell


# One answer


def test_survive_prints_fields_of_contract(output) -> None:  # type: ignore[no-untyped-def]
    answer = output("--slots", "5", "--intensity", "0.5")
    assert set(answer) == {
        *("brokers", "slots", "publish_rate", "client_rate", "intensity", "policy", "method"),
        *("mst", "sd", "p_loss", "quantiles", "bounds", "within_bounds", "model"),
    }
    assert answer["method"] == "exact"
    assert answer["model"] == "two-dimensional"
    assert answer["within_bounds"] is True
    assert answer["policy"] == "sel-sub-prt"
    assert answer["mst"] == pytest.approx(5)
    assert answer["sd"] == pytest.approx(11.33, abs=0.005)
    assert answer["p_loss"] == pytest.approx(0.60653, abs=1e-5)
    assert [*answer["quantiles"]] == ["0.05", "0.25", "0.5", "0.75", "0.95"]
    assert sorted(answer["quantiles"].values()) == [*answer["quantiles"].values()]
    assert answer["bounds"] == [5, 5]


def test_survive_names_approximation(output, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    answer = output("--brokers", "2", "--slots", "4")
    assert (answer["method"], answer["model"]) == ("exact", "balanced")
    assert run(["survive", "--brokers", "2", "--slots", "4", "--policy", "all-sub-prt"]) == 0
    shown = capsys.readouterr().out
    assert "several brokers: by the balanced model, as none is exact" in shown
    assert "all with prt: models take every cached message as wanted" in shown


def test_survive_names_impossible_mean(output, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    words = [
        "--brokers",
        "4",
        "--slots",
        "2",
        "--client-rate",
        "10",
        "--intensity",
        "0.05",
        "--policy",
        "sel-fld-prt",
    ]
    assert output(*words, "--method", "reduced")["within_bounds"] is False
    assert run(["survive", *words, "--method", "reduced"]) == 0
    assert "a mean outside of its bounds cannot be right" in capsys.readouterr().out


def test_survive_prints_simulation_with_intervals(output) -> None:  # type: ignore[no-untyped-def]
    answer = output("--brokers", "3", "--slots", "4", "--seed", "7", *FEW)
    survival = run_simulation(Simulation(SurvivalSetting(3, 4, 1, 0.1, 2), 2000, 4, 7))
    assert answer["mst"] == survival.mst.mean
    assert answer["half_widths"]["mst"] == survival.mst.half
    assert answer["half_widths"]["quantiles"]["0.5"] == survival.quantiles[0.5].half
    assert (answer["observations"], answer["replications"], answer["seed"]) == (2000, 4, 7)
    assert answer["bounds"] == [4, 12]


def test_survive_prints_no_interval_of_one_replication(output) -> None:  # type: ignore[no-untyped-def]
    assert output("--slots", "4", *FEW, "--replications", "1")["half_widths"]["mst"] is None


def test_survive_prints_classes(output) -> None:  # type: ignore[no-untyped-def]
    answer = output("--brokers", "2", "--slots", "5", *FEW, "--class", "0.25,0.1,1", "--class", "0.75,0.5,5")
    rare, frequent = answer["classes"]
    assert (rare["share"], rare["client_rate"], rare["intensity"]) == (0.25, 0.1, 1)
    assert rare["mst"] < frequent["mst"]
    assert 0.25 * rare["mst"] + 0.75 * frequent["mst"] == pytest.approx(answer["mst"])
    assert "intensity" not in answer


# Ranges


def test_survive_answers_combinations_in_order(output) -> None:  # type: ignore[no-untyped-def]
    answers = output("--slots", "5:15:5", "--intensity", "0.5,2", "--method", "reduced,exact")
    found = [(one["slots"], one["intensity"], one["method"]) for one in answers]
    assert found == [(k, rho, method) for k in (5, 10, 15) for rho in (0.5, 2) for method in ("reduced", "exact")]
    assert [one["mst"] for one in answers] == pytest.approx([one["slots"] for one in answers])


def test_survive_prints_list_for_range_of_one_number(output) -> None:  # type: ignore[no-untyped-def]
    assert len(output("--slots", "5:5:1")) == 1


def test_survive_takes_policies_in_any_spelling(output) -> None:  # type: ignore[no-untyped-def]
    ways = (
        ["sel-sub-prt", "sel-sub-nop"],
        ["sel-sub-prt,sel-sub-nop"],
        ["sel-sub-prt", "--policy", "sel-sub-nop"],
    )
    first, *others = (output("--slots", "5", "--policy", *way) for way in ways)
    assert [one["policy"] for one in first] == ["sel-sub-prt", "sel-sub-nop"]
    assert others == [first, first]


def test_survive_range_includes_its_end() -> None:
    assert numbers("--intensity", "0.1:0.3:0.1") == (0.1, 0.2, 0.3)
    assert numbers("--intensity", "0.1:0.35:0.1") == (0.1, 0.2, 0.3)
    assert whole_numbers("--slots", "5:30:10") == (5, 15, 25)
    assert whole_numbers("--slots", "7,5,7") == (7, 5)


# The smallest cache


@pytest.mark.parametrize("method", ["exact", "reduced", "simulate"])
def test_survive_finds_slots_of_one_broker(output, method: str) -> None:  # type: ignore[no-untyped-def]
    answer = output("--target-mst", "6.5", "--publish-rate", "2", "--method", method, "--observations", "2000")
    assert answer["slots"] == 13
    assert answer["target_mst"] == 6.5
    assert answer["mst"] == pytest.approx(6.5)


def test_survive_finds_smallest_number_of_slots(output) -> None:  # type: ignore[no-untyped-def]
    answer = output("--brokers", "3", "--target-mst", "12", *FEW)
    slots = answer["slots"]
    assert answer["mst"] >= 12
    assert output("--brokers", "3", "--slots", str(slots), *FEW)["mst"] == answer["mst"]
    assert output("--brokers", "3", "--slots", str(slots - 1), *FEW)["mst"] < 12


# For people


def test_survive_table_has_common_values_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["survive", "--slots", "5,10", "--method", "exact,reduced"]) == 0
    first, head, *rows, last = capsys.readouterr().out.splitlines()
    assert first == "brokers 1, publish rate 1, client rate 0.1, intensity 2, sel-sub-prt"
    assert head.split() == ["slots", "method", "mean", "lost", "deviation", "5%", "25%", "50%", "75%", "95%"]
    assert rows[0].split()[:4] == ["5", "exact", "5", "13.53%"]
    assert len(rows) == 4
    assert last == "deviation and quantiles are those of messages that were cached at all"


def test_survive_notes_estimate_of_simulated_slots(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["survive", "--brokers", "2", "--target-mst", "5", *FEW]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("the slots found are an estimate")


@pytest.mark.parametrize(
    "words",
    [
        ["--slots", "5:15:5"],
        ["--slots", "5:15:5", "--brokers", "1,2", *FEW],
        ["--brokers", "1,2", "--policy", "sel-sub-prt,all-fld-nop", "--target-mst", "5", *FEW],
        ["--slots", "3,5", *FEW, "--class", "0.5,0.1,1", "--class", "0.5,0.5,5"],
    ],
)
def test_survive_draws_same_figure_again(words: list[str], tmp_path: Path) -> None:
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    for file in (first, second):
        assert run(["survive", *words, "--figure", str(file)]) == 0
    assert first.read_bytes() == second.read_bytes()


def test_survive_draws_over_first_range(tmp_path: Path) -> None:
    for words, axis in (
        (["--slots", "3,5", "--intensity", "1,2"], "slots k"),
        (["--intensity", "1,2", "--slots", "3,5"], "clients per message and broker"),
    ):
        assert run(["survive", *words, "--figure", str(tmp_path / "figure.svg")]) == 0
        assert axis in (tmp_path / "figure.svg").read_text()


# Mistakes


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", "--slots: missing; give the messages that a cache holds, or give --target-mst"),
        ("--slots 5:3:1", "--slots 5:3:1: the last number must not be below the first"),
        ("--slots 5:30:0", "--slots 5:30:0: the step must be above 0"),
        ("--slots 5:30", "--slots 5:30: must be a range 5:30:5"),
        ("--slots 5,6:9:1", "--slots 5,6:9:1: must be a range 5:30:5"),
        ("--slots x", "--slots x: must be a whole number"),
        ("--slots=", "--slots : must be a whole number"),
        ("--slots 2.5", "--slots 2.5: must be a whole number"),
        ("--slots -5", "--slots -5: must be at least 1"),
        ("--slots 0", "--slots 0: must be at least 1"),
        ("--slots 1:100000:1", "--slots 1:100000:1: more than 10,000 numbers"),
        ("--slots 1:6000:1 --brokers 1,2", "--slots: all options together ask for more than 10,000"),
        ("--slots 5 --brokers 0", "--brokers 0: must be at least 1"),
        ("--slots 5 --publish-rate nan", "--publish-rate nan: must be a number"),
        ("--slots 5 --publish-rate 1e308", "--publish-rate 1e+308: must be at most 1e+15"),
        ("--slots 5 --publish-rate 1e-320", "--publish-rate 9.99989e-321: must be at least 1e-16"),
        ("--slots 5 --intensity 1e-300", "--intensity 1e-300: must be at least 1e-16"),
        ("--slots 5 --method simulate --client-rate 1e300", "--client-rate 1e+300: must be at most 1e+15"),
        ("--slots 5 --method simulate --client-rate 1e15", "--method simulate: would draw about"),
        ("--slots 5 --method simulate --class 1,1e300,1", "--class 1,1e300,1: all three must be from"),
        ("--slots 5 --method simulate --replications 100000000", "--replications: must be at most 100,000"),
        (f"--slots {'9' * 300}", f"--slots {'9' * 60}…: must be at most 1,000,000,000,000"),
        (f"--slots {'9' * 5000}", f"--slots {'9' * 60}…: must be a whole number"),
        ("--slots 1000 --brokers 3", "--slots 1000: method balanced"),
        ("--slots 5,6 --figure=", "--figure: empty; name a file"),
        ("--slots 1:13:1 --intensity 1:13:1 --figure a.svg", "--figure a.svg: 13 lines would be drawn"),
        ("--slots 5 --client-rate -1", "--client-rate -1: must be a number above 0"),
        ("--slots 5 --intensity 0:inf:1", "--intensity 0:inf:1: must be a number"),
        ("--slots 5 --policy lru", "--policy lru: must be sel or all"),
        ("--slots 5 --method best", "--method best: must be one of exact, reduced"),
        ("--slots 5 --target-mst 60", "--target-mst: finds the slots; remove --slots"),
        ("--target-mst nan", "--target-mst nan: must be a number above 0"),
        ("--target-mst 0", "--target-mst 0: must be a number above 0"),
        ("--target-mst 1e12 --method simulate", "--target-mst 1e+12: may take"),
        ("--slots 5 --class 1,1,1", "--class: only simulation has several classes; give --method simulate"),
        ("--slots 5 --method simulate --class 1,1", "--class 1,1: must be three numbers, SHARE,RATE,RHO"),
        ("--slots 5 --method simulate --class 1,0,1", "--class 1,0,1: all three must be above 0"),
        ("--slots 5 --method simulate --class 1,1,nan", "--class 1,1,nan: all three must be above 0"),
        ("--slots 5 --method simulate --class 0.5,1,1", "--class: the shares of all classes must add up to 1"),
        (
            "--slots 5 --method simulate --class 1,1,1 --intensity 2",
            "--intensity: remove it; every --class has",
        ),
        ("--slots 5 --method simulate --observations 3", "--observations 3: must be at least two for each of "),
        ("--slots 5 --method simulate --replications 0", "--replications 0: must be at least 1"),
        ("--slots 5 --method simulate --seed -1", "--seed -1: must not be negative"),
        ("--slots 99999999 --method simulate", "--slots 99999999: with 1 brokers more than"),
        ("--slots 5 --figure a.svg", "--figure a.svg: needs a number with a range, such as --slots 5:30:5"),
        ("--slots 5,6 --figure a.txt", "--figure a.txt: the name must end in .svg, .png or .pdf"),
        (
            "--slots 5,6 --brokers 1,2 --intensity 1,2 --figure a.svg",
            "--figure a.svg: at most two numbers may have a range",
        ),
    ],
)
def test_survive_reports_mistake_in_one_line(words: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["survive", *words.split(), "--json"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"newsstand: {line}")
    assert output.err.count("\n") == 1


# On Spark


@pytest.mark.timeout(300)
def test_survive_on_spark_agrees(tmp_path: Path) -> None:
    questions = (
        ["--slots", "3,5", "--brokers", "1,2", *FEW],
        ["--slots", "3,5", "--method", "exact"],
        ["--brokers", "2", "--target-mst", "5", *FEW],
        ["--slots", "5,301", "--client-rate", "0.1,1e14", "--method", "exact,simulate", *FEW[2:]],
    )
    commands = [
        ["survive", *words, *where, "--json"] for words in questions for where in ([], ["--master", "local[2]"])
    ]
    subprocess.run(
        [sys.executable, Path(__file__).parents[1] / "support" / "lab" / "batch.py", tmp_path / "outcomes.json"],
        input=json.dumps(commands),
        cwd=tmp_path,
        env=without_settings(),
        text=True,
        check=True,
    )
    outcomes = json.loads((tmp_path / "outcomes.json").read_text())
    assert [outcome["code"] for outcome in outcomes] == [0] * 8
    for here, there in zip(outcomes[::2], outcomes[1::2], strict=True):
        assert json.loads(here["out"]) == json.loads(there["out"])
    rejected = [
        (one["slots"], one["client_rate"], one["method"]) for one in json.loads(here["out"]) if "rejected" in one
    ]
    assert {(301, 0.1, "exact"), (301, 1e14, "exact"), (5, 1e14, "simulate"), (301, 1e14, "simulate")} <= {
        *rejected
    }
