"""`newsstand survive` where some methods have an answer and others none, and where files cannot be written."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from newsstand.cli import survive
from newsstand.cli.main import run
from newsstand.lab import survival_answers
from newsstand.lab.intervals import Interval
from newsstand.lab.survival_answers import Question, Refusal, by_model, tried
from newsstand.survival.setting import Setting

TOO_LARGE = "--slots 301: --method exact solves at most 300 slots; try --method simulate"
DIFFERENT = ("--brokers", "2", "--slots", "4", "--intensity", "1e-9", "--client-rate", "1", "--method", "balanced")


def test_those_with_an_answer_are_told_and_why_others_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["survive", "--slots", "5,301"]) == 0
    told = capsys.readouterr()
    assert told.err == f"no answer for exact, sel-sub-prt, 1 brokers, 301 slots: {TOO_LARGE}\n"
    assert [row.split()[:2] for row in told.out.splitlines()[2:-1]] == [["5", "5"]]


def test_programs_find_the_refusal_in_the_place_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["survive", "--slots", "301,5", "--json"]) == 0
    refused, answer = json.loads(capsys.readouterr().out)
    assert (refused["slots"], refused["method"], refused["mst"]) == (301, "exact", None)
    assert refused["refused"] == TOO_LARGE
    assert answer["mst"] == pytest.approx(5)
    assert "refused" not in answer


def test_one_method_that_cannot_say_how_many_slots_does_not_silence_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rates = ("--brokers", "4", "--client-rate", "10", "--intensity", "0.05", "--policy", "sel-fld-prt")
    assert run(["survive", *rates, "--target-mst", "4", "--method", "reduced,exact", "--json"]) == 0
    told = capsys.readouterr()
    reduced, exact = json.loads(told.out)
    assert reduced["slots"] is None
    assert "its mean is outside of what 4 brokers can have" in reduced["refused"]
    assert exact["mst"] >= 4
    assert told.err.count("\n") == 1


def test_where_nothing_has_an_answer_the_first_reason_is_the_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["survive", "--slots", "301,302", "--json"]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"newsstand: {TOO_LARGE}\n")


def test_of_many_refusals_the_first_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["survive", "--slots", "5,301,302,303,304,305,306,307,308,309,310"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6
    assert lines[-1] == "… and none for 5 others"


def test_a_simulation_that_would_not_end_is_refused_beside_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--brokers 2 --slots 2 --client-rate 100 --intensity 0.01 --method reduced,simulate --observations 5000"
    )
    assert run(["survive", *words.split()]) == 0
    told = capsys.readouterr()
    assert "reduced" in told.out
    assert "--method simulate: would draw about 3,600,000,000 events" in told.err


def test_rates_too_different_for_a_model_are_one_line_without_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(["survive", *DIFFERENT]) == 2
        assert run(["survive", "--brokers", "3", "--slots", "5", "--intensity", "1e-5"]) == 0
    told = capsys.readouterr()
    assert told.err.startswith("newsstand: --publish-rate, --client-rate, --intensity: so different that --method")
    assert told.err.count("\n") == 1


def test_a_number_that_is_none_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    question = Question(Setting(1, 5, 1.0, 0.1, 2.0), "exact")
    answer = by_model(question)
    assert tried(question) == answer
    broken = replace(answer, sd=Interval(float("nan")))
    monkeypatch.setattr(survival_answers, "_solved", lambda _: broken)
    assert isinstance(tried(question), Refusal)


# Files


@pytest.mark.parametrize("name", ["folder.svg", "/proc/figure.svg"])
def test_a_figure_that_cannot_be_written_is_refused_before_anything_is_computed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.svg").mkdir()
    monkeypatch.setattr(survival_answers, "tried", lambda *_: pytest.fail("computed"))
    assert run(["survive", "--slots", "5,6", "--figure", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err.startswith(f"newsstand: --figure {tmp_path / name}: ")


def test_a_figure_is_told_and_one_that_was_refused_leaves_the_old_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_a_single_question_is_followed_too(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_an_option_of_simulations_is_said_to_be_unused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["survive", "--slots", "5", option, "200"]) == 0
    assert capsys.readouterr().err == f"{option}: is not used, as nothing is simulated\n"


def test_a_method_named_twice_answers_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["survive", "--slots", "5", "--method", "exact,exact", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "exact"


# Reports


@pytest.mark.parametrize("paper", ["bad2018", "chen2003", "push1995", "storage2011", "survival2011"])
def test_a_reproduction_needs_the_name_of_a_folder_and_leaves_none_if_it_does_not_begin(
    paper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["reproduce", paper, "--quick", "--out", ""]) == 2
    assert capsys.readouterr().err == "newsstand: --out: the name of a folder is missing; . is this one\n"
    assert run(["reproduce", paper, "--quick", "--out", "deep/report", "--master", "bad"]) == 2
    assert capsys.readouterr().err.startswith("newsstand: master 'bad' is none of")
    assert [*tmp_path.iterdir()] == []
