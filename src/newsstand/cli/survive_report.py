"""What `newsstand survive` answers: for programs, and as a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from newsstand.lab.intervals import Interval
    from newsstand.lab.survival_answers import Answer, Outcome, Question
    from newsstand.survival.setting import Setting

NAMES = {
    "brokers": "brokers",
    "slots": "slots",
    "publish_rate": "publish rate",
    "client_rate": "client rate",
    "intensity": "intensity",
}
"""What people read, for each number of a setting."""
WIDEST = 1000
NOTHING = 1e-9
"""Of a mean: intervals below it are rounding, as for one broker, whose cache is always full."""


def outcome_of(outcome: Outcome) -> dict[str, object]:
    """An answer as JSON has it; of one that there is not, why."""
    from newsstand.lab.survival_answers import Answer

    if isinstance(outcome, Answer):
        return answer_of(outcome)
    question = outcome.question
    told = _asked(question, question.setting)
    if question.target_mst is not None:
        told |= {"slots": None, "target_mst": question.target_mst}
    return told | dict.fromkeys(("mst", "sd", "p_loss", "quantiles")) | {"refused": outcome.reason}


def named(question: Question) -> str:
    """A question in few words, for a note."""
    setting = question.setting
    words = [question.method, str(setting.policy), f"{setting.brokers} brokers"]
    return ", ".join(words if question.target_mst is not None else [*words, f"{setting.slots} slots"])


def _asked(question: Question, setting: Setting) -> dict[str, object]:
    told: dict[str, object] = {name: getattr(setting, name) for name in NAMES}
    if question.classes:
        del told["client_rate"], told["intensity"]
    return told | {"policy": str(setting.policy), "method": question.method}


def answer_of(answer: Answer) -> dict[str, object]:
    """The answer as JSON has it."""
    setting, question = answer.setting, answer.question
    told = _asked(question, setting) | {"model": answer.model}
    if question.target_mst is not None:
        told["target_mst"] = question.target_mst
    told |= {
        "mst": answer.mst.mean,
        "sd": answer.sd.mean,
        "p_loss": answer.p_loss.mean,
        "quantiles": {f"{level:g}": one.mean for level, one in answer.quantiles.items()},
        "bounds": list(setting.bounds),
        "within_bounds": answer.is_within_bounds,
    }
    if not answer.is_simulated:
        return told
    told |= {
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
        told["classes"] = [
            {
                "share": one.share,
                "client_rate": one.client_rate,
                "intensity": one.intensity,
                "mst": mst.mean,
                "half_width": _half(mst),
            }
            for one, mst in zip(question.classes, answer.class_mst, strict=True)
        ]
    return told


def _half(one: Interval) -> float | None:
    """JSON has no NaN, which is what one replication leaves."""
    return one.half if one.is_known else None


def show(answers: Sequence[Answer], ranged: Sequence[str]) -> None:
    """Print answers for people: what they have in common, then a row for each."""
    table = Table(box=None, pad_edge=False)
    rows = [_cells(answer) for answer in answers]
    in_common = [name for name in _parameters(answers[0]) if name not in ranged and _is_common(rows, name)]
    print(", ".join(_told(name, rows[0][name]) for name in in_common))
    alone = all(answer.setting.brokers == 1 for answer in answers)
    shown = [name for name in rows[0] if name not in in_common and not (name == "bounds" and alone)]
    for name in shown:
        table.add_column(NAMES.get(name, name), justify="left" if name in ("policy", "method") else "right")
    for row in rows:
        table.add_row(*(row[name] for name in shown))
    whole = Console(width=WIDEST).measure(table).maximum
    Console(highlight=False, width=whole).print(table)
    _explain(answers)


def _explain(answers: Sequence[Answer]) -> None:
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


def _parameters(answer: Answer) -> list[str]:
    """What an answer was asked with."""
    given = [name for name in NAMES if not (answer.question.classes and name in ("client_rate", "intensity"))]
    if answer.question.target_mst is not None:
        given.remove("slots")
    return [*given, "policy", "method"]


def _is_common(rows: Sequence[Mapping[str, str]], name: str) -> bool:
    return len({row[name] for row in rows}) == 1


def _told(name: str, value: str) -> str:
    return f"{NAMES[name]} {value}" if name in NAMES else value


def _cells(answer: Answer) -> dict[str, str]:
    setting = answer.setting
    cells = {name: f"{getattr(setting, name):g}" for name in NAMES}
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
