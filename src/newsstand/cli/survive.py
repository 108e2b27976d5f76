"""`newsstand survive`."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from newsstand.cli.number_ranges import is_list, numbers, option_of, require_few, whole_numbers
from newsstand.cli.options import Conf, Json, Master, RangeFigure
from newsstand.cli.progress import each, progress
from newsstand.cli.survive_report import answer_of, show
from newsstand.errors import BadOption
from newsstand.model import OpportunisticPolicy

if TYPE_CHECKING:
    from newsstand.lab.survival import MessageClass
    from newsstand.lab.survival_answers import Answer, Question

MOST_OBSERVATIONS = 1_000_000_000
USUAL = {"brokers": "1", "slots": "1", "publish_rate": "1", "client_rate": "0.1", "intensity": "2"}
"""One slot is where the search for more begins."""


def survive(
    context: typer.Context,
    brokers: Annotated[str, typer.Option(metavar="N", help="Brokers, each with a cache (n).")] = "1",
    slots: Annotated[
        str | None, typer.Option(metavar="K", help="Messages that each cache holds (k); or give --target-mst.")
    ] = None,
    publish_rate: Annotated[
        str, typer.Option(metavar="RATE", help="Publications per unit of time (lambda_b).")
    ] = "1",
    client_rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="Clients that come for one message to one broker per unit of time (lambda_c); default 0.1.",
        ),
    ] = None,
    intensity: Annotated[
        str | None,
        typer.Option(
            metavar="RHO", help="Clients that one message has at one broker, on average (rho_c); default 2."
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="sel or all, sub or fld, prt or nop, as in sel-sub-prt, the default; may be several.",
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="exact (the default; of several brokers it is balanced, the nearest model), reduced (the "
            "paper's), balanced or simulate; may be several.",
        ),
    ] = None,
    target_mst: Annotated[
        float | None,
        typer.Option(
            "--target-mst",
            metavar="TIME",
            help="Find the smallest cache with which messages survive so long on average.",
        ),
    ] = None,
    observations: Annotated[
        int, typer.Option(metavar="N", help="simulate: messages that are watched, in all replications.")
    ] = 50_000,
    replications: Annotated[
        int, typer.Option(metavar="N", help="simulate: independent parts, which the intervals are from.")
    ] = 10,
    seed: Annotated[int, typer.Option(metavar="N", help="simulate: another seed, other random numbers.")] = 1,
    message_class: Annotated[
        list[str] | None,
        typer.Option(
            "--class",
            metavar="SHARE,RATE,RHO",
            help="simulate: a class of messages with its share, client rate and intensity; repeated for others.",
        ),
    ] = None,
    figure: RangeFigure = None,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """How long do messages survive in the caches of brokers, before all have dropped them?

    Numbers may be a list, 5,10,20, or a range with both ends, 5:30:5; every combination is answered.

    Example: newsstand survive --slots 15 --intensity 2

    Example: newsstand survive --brokers 1:6:1 --slots 10 --policy sel-sub-prt sel-sub-nop --method simulate
    --figure survival.svg

    Example: newsstand survive --brokers 3 --target-mst 60 --json
    """
    texts = {
        "brokers": brokers,
        "slots": slots,
        "publish_rate": publish_rate,
        "client_rate": client_rate,
        "intensity": intensity,
    }
    in_order = {name: texts[name] for name in context.params if name in texts}  # as they were given
    asked = Ranges.of(in_order, policy, method, target_mst, message_class)
    drawn = partial(_question, asked, observations=observations, replications=replications, seed=seed)
    questions = [drawn(one) for one in asked.combinations]
    if figure is not None:
        from newsstand.lab.survival_figure import require_drawable_ranges

        require_drawable_ranges(figure, asked.ranged)
    answers = _answers(questions, master, conf or [])
    if figure is not None:
        from newsstand.lab.survival_figure import draw_survival

        draw_survival(answers, asked.ranged, figure)
    told = [answer_of(answer) for answer in answers]
    if as_json:
        print(json.dumps(told if asked.is_list else told[0]))
    else:
        show(answers, asked.ranged)


Combination = tuple[int, int, float, float, float, OpportunisticPolicy, str]


@dataclass(frozen=True)
class Ranges:
    """What was asked for, each option with all its values."""

    brokers: tuple[int, ...]
    slots: tuple[int, ...]
    publish_rate: tuple[float, ...]
    client_rate: tuple[float, ...]
    intensity: tuple[float, ...]
    policies: tuple[OpportunisticPolicy, ...]
    methods: tuple[str, ...]
    target_mst: float | None
    classes: tuple[MessageClass, ...]
    ranged: tuple[str, ...]
    """The options that were given several numbers, in the order given, named as the fields of a setting."""

    @classmethod
    def of(
        cls,
        texts: Mapping[str, str | None],
        policies: list[str] | None,
        methods: list[str] | None,
        target_mst: float | None,
        classes: list[str] | None,
    ) -> Ranges:
        """Read all options."""
        _require_one_question(texts["slots"], target_mst)
        for name in ("client_rate", "intensity"):
            if classes and texts[name] is not None:
                raise BadOption(f"{option_of(name)}: every --class has its own")
        given = {name: USUAL[name] if text is None else text for name, text in texts.items()}
        found = cls(
            whole_numbers("--brokers", given["brokers"]),
            whole_numbers("--slots", given["slots"]),
            numbers("--publish-rate", given["publish_rate"]),
            numbers("--client-rate", given["client_rate"]),
            numbers("--intensity", given["intensity"]),
            _policies(policies),
            _methods(methods),
            target_mst,
            _classes(classes),
            tuple(name for name, text in given.items() if is_list(text)),
        )
        if found.classes and found.methods != ("simulate",):
            raise BadOption("--class: messages of several classes are for --method simulate alone")
        require_few(found._all, found.ranged, "combinations")
        return found

    @property
    def is_list(self) -> bool:
        """Whether more than one answer was asked for."""
        return bool(self.ranged) or len(self.policies) > 1 or len(self.methods) > 1

    @property
    def combinations(self) -> list[Combination]:
        """Of all values of all options."""
        return list(itertools.product(*self._all))  # type: ignore[arg-type]

    @property
    def _all(self) -> tuple[tuple[object, ...], ...]:
        rates = (self.publish_rate, self.client_rate, self.intensity)
        return (self.brokers, self.slots, *rates, self.policies, self.methods)


def _require_one_question(slots: str | None, target_mst: float | None) -> None:
    if slots is None and target_mst is None:
        raise BadOption("--slots: how many messages does a cache hold? Or give --target-mst")
    if target_mst is None:
        return
    if slots is not None:
        raise BadOption("--target-mst: finds the slots, so do not give --slots")
    if not (math.isfinite(target_mst) and target_mst > 0):
        raise BadOption(f"--target-mst {target_mst:g}: must be a number above 0")


def _policies(names: list[str] | None) -> tuple[OpportunisticPolicy, ...]:
    try:
        return tuple(dict.fromkeys(OpportunisticPolicy.parse(name) for name in names or ("sel-sub-prt",)))
    except ValueError as error:
        raise BadOption(f"--policy {error}") from None


def _methods(names: list[str] | None) -> tuple[str, ...]:
    from newsstand.lab.survival_answers import method_names

    asked = tuple(dict.fromkeys(part for name in names or ("exact",) for part in name.split(",")))
    for name in asked:
        if name not in method_names():
            raise BadOption(f"--method {name}: there is no such method; there are {', '.join(method_names())}")
    return asked


def _classes(texts: list[str] | None) -> tuple[MessageClass, ...]:
    from newsstand.lab.survival import MessageClass
    from newsstand.survival.setting import MOST_INTENSITY

    found = []
    for text in texts or ():
        parts = text.split(",")
        try:
            share, rate, intensity = (float(part) for part in parts)
        except ValueError:
            raise BadOption(f"--class {text}: three numbers are wanted: SHARE,RATE,RHO") from None
        if not all(0 < one < math.inf for one in (share, rate, intensity)):
            raise BadOption(f"--class {text}: all three must be above 0")
        if intensity > MOST_INTENSITY:
            raise BadOption(f"--class {text}: the intensity must be at most {MOST_INTENSITY:g}")
        found.append(MessageClass(share, rate, intensity))
    shares = sum(one.share for one in found)
    if found and not math.isclose(shares, 1, rel_tol=1e-6):
        raise BadOption(f"--class: the shares of all classes must add up to 1, not to {shares:g}")
    return tuple(found)


def _question(
    asked: Ranges, combination: Combination, *, observations: int, replications: int, seed: int
) -> Question:
    from newsstand.lab.survival_answers import SIMULATE, Question
    from newsstand.survival.setting import Setting

    if observations > MOST_OBSERVATIONS:
        raise BadOption(f"--observations {observations}: must be at most {MOST_OBSERVATIONS:,}")
    brokers, slots, publish_rate, client_rate, intensity, policy, method = combination
    setting = Setting(brokers, slots, publish_rate, client_rate, intensity, policy)
    question = Question(setting, method, asked.target_mst, observations, replications, seed, asked.classes)
    if method == SIMULATE:
        question.simulation()  # refuses what cannot be simulated, before anything else is computed
    return question


def _answers(questions: list[Question], master: str | None, conf: list[str]) -> list[Answer]:
    from newsstand.lab.survival_answers import answered, answered_on_spark

    if master or conf:
        from newsstand.spark import open_session

        with open_session(master, conf, "newsstand survive", brief=True) as spark, progress(spark, "computing"):
            return answered_on_spark(spark, questions)
    if len(questions) == 1:
        (question,) = questions
        return [answered(question, lambda parts: each(parts, question.replications, "simulating"))]
    return list(each(map(answered, questions), len(questions), "computing"))
