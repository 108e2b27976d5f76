"""`newsstand survive` with methods that have no answer, and with files that cannot be written."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from newsstand.cli.lab import survive
from newsstand.cli.main import run
from newsstand.lab.survival import solve as survival_answers
from newsstand.lab.survival.solve import NoSurvivalAnswer, Question, by_model, try_answer
from newsstand.survival.setting import SurvivalSetting

TOO_LARGE = "--slots 301: method exact solves at most 300 slots; try the method simulate"
DIFFERENT = ("--brokers", "2", "--slots", "4", "--intensity", "1e-9", "--client-rate", "1", "--method", "balanced")


def test_survive_prints_answers_and_rejections(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["survive", "--slots", "5,301"]) == 0
    output = capsys.readouterr()
    assert output.err == f"no answer for exact, sel-sub-prt, 1 brokers, 301 slots: {TOO_LARGE}\n"
    assert [row.split()[:2] for row in output.out.splitlines()[2:-1]] == [["5", "5"]]


def test_survive_json_has_rejection_in_place_of_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["survive", "--slots", "301,5", "--json"]) == 0
    rejected, answer = json.loads(capsys.readouterr().out)
    assert (rejected["slots"], rejected["method"], rejected["mst"]) == (301, "exact", None)
    assert rejected["rejected"] == TOO_LARGE
    assert answer["mst"] == pytest.approx(5)
    assert "rejected" not in answer


def test_survive_answers_by_other_methods(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rates = ("--brokers", "4", "--client-rate", "10", "--intensity", "0.05", "--policy", "sel-fld-prt")
    assert run(["survive", *rates, "--target-mst", "4", "--method", "reduced,exact", "--json"]) == 0
    output = capsys.readouterr()
    reduced, exact = json.loads(output.out)
    assert reduced["slots"] is None
    assert "its mean is outside the bounds for 4 brokers" in reduced["rejected"]
    assert exact["mst"] >= 4
    assert output.err.count("\n") == 1


def test_survive_raises_first_rejection_without_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["survive", "--slots", "301,302", "--json"]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", f"newsstand: {TOO_LARGE}\n")


def test_survive_prints_first_of_many_rejections(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["survive", "--slots", "5,301,302,303,304,305,306,307,308,309,310"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6
    assert lines[-1] == "… and none for 5 others"


def test_survive_rejects_too_long_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--brokers 2 --slots 2 --client-rate 100 --intensity 0.01 --method reduced,simulate --observations 5000"
    )
    assert run(["survive", *words.split()]) == 0
    output = capsys.readouterr()
    assert "reduced" in output.out
    assert "--method simulate: would draw about 3,600,000,000 events" in output.err


def test_survive_reports_extreme_rates_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(["survive", *DIFFERENT]) == 2
        assert run(["survive", "--brokers", "3", "--slots", "5", "--intensity", "1e-5"]) == 0
    output = capsys.readouterr()
    assert output.err.startswith("newsstand: --publish-rate, --client-rate, --intensity: so different that method")
    assert output.err.count("\n") == 1


def test_survive_rejects_answer_of_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    question = Question(SurvivalSetting(1, 5, 1.0, 0.1, 2.0), "exact")
    answer = by_model(question)
    assert try_answer(question) == answer
    broken = SimpleNamespace(mst=1.0, sd=float("nan"), p_loss=0.0, quantile=lambda level: level)
    monkeypatch.setattr(survival_answers, "solve", lambda *_: broken)
    assert isinstance(try_answer(question), NoSurvivalAnswer)


# Files


@pytest.mark.parametrize("name", ["folder.svg", "/proc/figure.svg"])
def test_survive_rejects_unwritable_figure_first(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.svg").mkdir()
    monkeypatch.setattr(survival_answers, "try_answer", lambda *_: pytest.fail("computed"))
    assert run(["survive", "--slots", "5,6", "--figure", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err.startswith(f"newsstand: --figure {tmp_path / name}: ")


def test_survive_keeps_old_figure_on_rejection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figure.svg"
    file.write_text("old")
    assert run(["survive", "--slots", "301,302", "--figure", str(file)]) == 2
    assert file.read_text() == "old"
    assert run(["survive", "--slots", "301,302", "--figure", str(tmp_path / "new.svg")]) == 2
    assert [*tmp_path.iterdir()] == [file]
    capsys.readouterr()
    assert run(["survive", "--slots", "5,6", "--figure", str(file)]) == 0
    assert capsys.readouterr().err == f"figure: {file}\n"


# Progress


def test_survive_shows_progress_of_single_question(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = []

    def each(items: Iterable[object], total: int, text: str) -> Iterator[object]:
        followed.append((total, text))
        yield from items

    monkeypatch.setattr(survive, "each", each)
    assert run(["survive", "--slots", "5"]) == 0
    assert run(["survive", "--slots", "5", "--method", "simulate", "--observations", "400"]) == 0
    assert followed == [(1, "computing"), (10, "simulating")]


# What is not used


@pytest.mark.parametrize("option", ["--observations", "--replications", "--seed"])
def test_survive_notes_unused_option(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["survive", "--slots", "5", option, "200"]) == 0
    assert capsys.readouterr().err == f"{option}: is not used, as nothing is simulated\n"


def test_survive_answers_repeated_method_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["survive", "--slots", "5", "--method", "exact,exact", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "exact"


# Reports


@pytest.mark.parametrize("paper", ["bad2018", "chen2003", "push1995", "storage2011", "survival2011"])
def test_reproduce_needs_folder_and_leaves_none_on_failure(
    paper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["reproduce", paper, "--quick", "--out", ""]) == 2
    assert capsys.readouterr().err == "newsstand: --out: empty; name a folder, such as . for this one\n"
    assert run(["reproduce", paper, "--quick", "--out", "deep/report", "--master", "bad"]) == 2
    assert capsys.readouterr().err.startswith("newsstand: master 'bad' is none of")
    assert [*tmp_path.iterdir()] == []
