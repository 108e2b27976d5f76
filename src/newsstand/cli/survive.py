"""`newsstand survive`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from newsstand.cli.number_ranges import option_of
from newsstand.cli.options import Conf, Json, Master, RangeFigure, require_writable
from newsstand.cli.progress import each, progress, say
from newsstand.cli.survive_ranges import Combination, Ranges
from newsstand.cli.survive_report import named, outcome_of, show
from newsstand.errors import BadOption

if TYPE_CHECKING:
    from newsstand.lab.survival_answers import Answer, Outcome, Question

MOST_NOTES = 5
"""Of questions without an answer that are told one by one."""


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
    _require_sample(context, asked, observations, replications, seed)
    questions = [_question(asked, one, observations, replications, seed) for one in asked.combinations]
    if figure is not None:
        from newsstand.lab.survival_figure import require_drawable_ranges

        require_drawable_ranges(figure, asked.ranged, asked.lines)
        require_writable(figure, "--figure")
    outcomes = _outcomes(questions, master, conf or [])
    answers = _answers(outcomes)
    if as_json:
        told = [outcome_of(outcome) for outcome in outcomes]
        print(json.dumps(told if asked.is_list else told[0]))
    else:
        show(answers, asked.ranged)
    if figure is not None:
        from newsstand.lab.survival_figure import draw_survival

        draw_survival(answers, asked.ranged, figure)
        say(f"figure: {figure}")


def _require_sample(
    context: typer.Context, asked: Ranges, observations: int, replications: int, seed: int
) -> None:
    from newsstand.lab.survival import require_sample
    from newsstand.lab.survival_answers import SIMULATE

    if SIMULATE in asked.methods:
        require_sample(observations, replications, seed)
        return
    for name in ("observations", "replications", "seed"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            say(f"{option_of(name)}: is not used, as nothing is simulated")


def _question(
    asked: Ranges, combination: Combination, observations: int, replications: int, seed: int
) -> Question:
    from newsstand.lab.survival_answers import Question
    from newsstand.survival.setting import Setting

    brokers, slots, publish_rate, client_rate, intensity, policy, method = combination
    setting = Setting(brokers, slots, publish_rate, client_rate, intensity, policy)
    return Question(setting, method, asked.target_mst, observations, replications, seed, asked.classes)


def _outcomes(questions: list[Question], master: str | None, conf: list[str]) -> list[Outcome]:
    from newsstand.lab.survival_answers import SIMULATE, tried, tried_on_spark

    if master or conf:
        from newsstand.spark import open_session

        with open_session(master, conf, "newsstand survive", brief=True) as spark, progress(spark, "computing"):
            return tried_on_spark(spark, questions)
    if len(questions) == 1 and questions[0].method == SIMULATE:
        (question,) = questions
        return [tried(question, lambda parts: each(parts, question.replications, "simulating"))]
    return list(each(map(tried, questions), len(questions), "computing"))


def _answers(outcomes: list[Outcome]) -> list[Answer]:
    """Those that there are; why others are not is told in a line each. There is at least one, or a mistake."""
    from newsstand.lab.survival_answers import Answer

    answers = [one for one in outcomes if isinstance(one, Answer)]
    refused = [one for one in outcomes if not isinstance(one, Answer)]
    if not answers:
        raise BadOption(refused[0].reason)
    for one in refused[:MOST_NOTES]:
        say(f"no answer for {named(one.question)}: {one.reason}")
    if len(refused) > MOST_NOTES:
        say(f"… and none for {len(refused) - MOST_NOTES} others")
    return answers
