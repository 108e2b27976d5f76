"""Figures of survival times are legible."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from newsstand.errors import BadOption
from newsstand.lab.survival import figure as survival_figure
from newsstand.lab.survival.figure import MOST_LINES, draw_survival, require_drawable_ranges
from newsstand.lab.survival.simulator import MessageClass
from newsstand.lab.survival.solve import Question, SurvivalAnswer, try_answer
from newsstand.survival.setting import SurvivalSetting


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """The panel that comes of questions, instead of a file."""
    figures: list[Figure] = []
    monkeypatch.setattr(survival_figure, "save", lambda figure, *_: figures.append(figure))

    def draw(questions: Sequence[Question], ranged: Sequence[str]) -> Axes:
        answers = [answer for answer in map(try_answer, questions) if isinstance(answer, SurvivalAnswer)]
        assert len(answers) == len(questions)
        draw_survival(answers, ranged, Path("figure.svg"))
        return figures[-1].axes[0]

    return draw


def questions(method: str, numbers: Sequence[int] = (1, 2, 3), **more: object) -> list[Question]:
    return [Question(SurvivalSetting(n, 4, 1.0, 0.1, 2.0), method, **more) for n in numbers]  # type: ignore[arg-type]


def labels(panel: Axes) -> list[str]:
    return panel.get_legend_handles_labels()[1]


def test_figure_shows_equal_lines(drawn) -> None:  # type: ignore[no-untyped-def]
    panel = drawn([*questions("exact"), *questions("balanced")], ["brokers"])
    first, second = (container[0] for container in panel.containers)
    assert first.get_ydata() == pytest.approx(second.get_ydata())
    assert first.get_linestyle() != second.get_linestyle()
    assert first.get_marker() != second.get_marker()
    assert first.get_markersize() < second.get_markersize()
    assert second.get_markerfacecolor() == "none"


def test_figure_legend_names_model(drawn) -> None:  # type: ignore[no-untyped-def]
    several = drawn([*questions("exact"), *questions("reduced")], ["brokers"])
    assert {"sel-sub-prt, exact (balanced)", "sel-sub-prt, reduced"} <= {*labels(several)}
    assert "sel-sub-prt, exact" in labels(drawn(questions("exact", [1]), ["brokers"]))


def test_figure_has_integer_ticks(drawn) -> None:  # type: ignore[no-untyped-def]
    panel = drawn(questions("exact", target_mst=3.0), ["brokers"])
    for ticks in (panel.get_xticks(), panel.get_yticks()):
        assert all(float(tick).is_integer() for tick in ticks)


def test_figure_labels_quartiles_of_all_messages(drawn) -> None:  # type: ignore[no-untyped-def]
    classes = (MessageClass(0.5, 0.1, 1.0), MessageClass(0.5, 0.5, 5.0))
    panel = drawn(questions("simulate", classes=classes, observations=400, replications=2), ["brokers"])
    assert "quartiles of all messages, if cached" in labels(panel)
    band = panel.collections[-1].get_facecolor()[0][:3]
    assert band[0] == band[1] == band[2]  # grey, which no line is


def test_figure_rejects_too_many_lines(tmp_path: Path) -> None:
    require_drawable_ranges(tmp_path / "figure.svg", ["slots"], MOST_LINES)
    with pytest.raises(BadOption, match=r"13 lines would be drawn, and at most 12 are legible"):
        require_drawable_ranges(tmp_path / "figure.svg", ["slots"], MOST_LINES + 1)
