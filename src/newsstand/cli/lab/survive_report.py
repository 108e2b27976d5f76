"""What `newsstand survive` answers: for programs, and as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from newsstand.cli.options import message_of
from newsstand.cli.terminal import print_table

if TYPE_CHECKING:
    from newsstand.lab.reporting.statistics import Interval
    from newsstand.lab.survival.solve import Outcome, Question, SurvivalAnswer
    from newsstand.survival.setting import SurvivalSetting

NUMBERS = ("brokers", "slots", "publish_rate", "client_rate", "intensity")
"""The numbers of a setting."""
TEXTS = ("policy", "method")
NOTHING = 1e-9
"""Of a mean: intervals below it are rounding, as for one broker, whose cache is always full."""


def outcome_of(outcome: Outcome) -> dict[str, object]:
    """Return an answer as JSON has it, or the reason why there is none."""
    from newsstand.lab.survival.solve import SurvivalAnswer

    if isinstance(outcome, SurvivalAnswer):
        return answer_of(outcome)
    question = outcome.question
    report = _question_fields(question, question.setting)
    if question.target_mst is not None:
        report |= {"slots": None, "target_mst": question.target_mst}
    return report | dict.fromkeys(("mst", "sd", "p_loss", "quantiles")) | {"rejected": message_of(outcome.reason)}


def named(question: Question) -> str:
    """Return a question in few words, for a note."""
    setting = question.setting
    words = [question.method, str(setting.policy), f"{setting.brokers} brokers"]
    return ", ".join(words if question.target_mst is not None else [*words, f"{setting.slots} slots"])


def _question_fields(question: Question, setting: SurvivalSetting) -> dict[str, object]:
    report: dict[str, object] = {name: getattr(setting, name) for name in NUMBERS}
    if question.classes:
        del report["client_rate"], report["intensity"]
    return report | {"policy": str(setting.policy), "method": question.method}


def answer_of(answer: SurvivalAnswer) -> dict[str, object]:
    """Return the answer as JSON has it."""
    setting, question = answer.setting, answer.question
    report = _question_fields(question, setting) | {"model": answer.model}
    if question.target_mst is not None:
        report["target_mst"] = question.target_mst
    report |= {
        "mst": answer.mst.mean,
        "sd": answer.sd.mean,
        "p_loss": answer.p_loss.mean,
        "quantiles": {f"{level:g}": one.mean for level, one in answer.quantiles.items()},
        "bounds": list(setting.bounds),
        "within_bounds": answer.is_within_bounds,
    }
    if not answer.is_simulated:
        return report
    report |= {
        "observations": question.observations,
        "replications": question.replications,
        "seed": question.seed,
        "half_widths": {
            "mst": _half(answer.mst),
            "sd": _half(answer.sd),
            "p_loss": _half(answer.p_loss),
            "quantiles": {f"{level:g}": _half(one) for level, one in answer.quantiles.items()},
        },
    }
    if question.classes:
        report["classes"] = [
            {
                "share": one.share,
                "client_rate": one.client_rate,
                "intensity": one.intensity,
                "mst": mst.mean,
                "half_width": _half(mst),
            }
            for one, mst in zip(question.classes, answer.class_mst, strict=True)
        ]
    return report


def _half(one: Interval) -> float | None:
    """Return the half width; None instead of NaN, which JSON lacks."""
    return one.half if one.is_known else None


def show(answers: Sequence[SurvivalAnswer], ranged: Sequence[str]) -> None:
    """Print answers for people: common parameters, then a row for each."""
    rows = [_cells(answer) for answer in answers]
    excluded = {*ranged, *([] if answers[0].question.target_mst is None else ["slots"])}
    names = [name for name in (*NUMBERS, *TEXTS) if name in rows[0] and name not in excluded]
    in_common = [name for name in names if len({row[name] for row in rows}) == 1]
    values = [(_label(name), rows[0][name]) for name in in_common]
    print(", ".join(f"{label} {value}" if label not in TEXTS else value for label, value in values))
    alone = all(answer.setting.brokers == 1 for answer in answers)
    shown = [name for name in rows[0] if name not in in_common and not (name == "bounds" and alone)]
    print_table(list(map(_label, shown)), [[row[name] for name in shown] for row in rows], left=TEXTS)
    _explain(answers)


def _label(name: str) -> str:
    return name.replace("_", " ")


def _explain(answers: Sequence[SurvivalAnswer]) -> None:
    print("deviation and quantiles are those of messages that were cached at all")
    if any(answer.model == "balanced" for answer in answers):
        print("several brokers: by the balanced model, as none is exact")
    if any(answer.is_rough for answer in answers):
        print("all with prt: models take every cached message as wanted, and err where clients are few")
    if not all(answer.is_within_bounds for answer in answers):
        print("a mean outside of its bounds cannot be right: the model does not hold for these rates")
    if any(answer.is_simulated for answer in answers):
        question = next(answer.question for answer in answers if answer.is_simulated)
        print(f"simulated: {question.observations:,} messages, ± is the 95 % interval of the mean", end="")
        print("; the slots found are an estimate" if question.target_mst is not None else "")
    for place, one in enumerate(answers[0].question.classes, 1):
        print(f"class {place}: share {one.share:g}, client rate {one.client_rate:g}, intensity {one.intensity:g}")


def _cells(answer: SurvivalAnswer) -> dict[str, str]:
    setting = answer.setting
    cells = {name: f"{getattr(setting, name):g}" for name in NUMBERS}
    cells |= {"slots": str(setting.slots), "policy": str(setting.policy), "method": answer.question.method}
    cells["mean"] = _number(answer.mst)
    cells |= {f"class {place}": _number(one) for place, one in enumerate(answer.class_mst, 1)}
    cells["bounds"] = " to ".join(f"{one:.4g}" for one in setting.bounds)
    cells |= {"lost": f"{answer.p_loss.mean:.2%}", "deviation": f"{answer.sd.mean:.4g}"}
    cells |= {f"{level:.0%}": f"{one.mean:.4g}" for level, one in answer.quantiles.items()}
    if answer.question.classes:
        del cells["client_rate"], cells["intensity"]
    return cells


def _number(one: Interval) -> str:
    is_sure = not one.is_known or one.half < NOTHING * one.mean
    return f"{one.mean:.5g}" if is_sure else f"{one.mean:.5g} ± {one.half:.2g}"
