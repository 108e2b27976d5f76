"""`newsstand survive`: its options, and the questions that they ask."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from newsstand.cli.lab.survive_report import named, outcome_of, show
from newsstand.cli.options import Json, RangeFigure, SparkOptions, message_of, require_writable
from newsstand.cli.several_values import Ranges, Reader, numbers, option_of, whole_numbers, words
from newsstand.cli.terminal import each, say
from newsstand.errors import BadOption
from newsstand.model import OpportunisticPolicy

if TYPE_CHECKING:
    from newsstand.lab.survival.simulator import MessageClass
    from newsstand.lab.survival.solve import Outcome, Question, SurvivalAnswer


USUAL = {"brokers": "1", "slots": "1", "publish_rate": "1", "client_rate": "0.1", "intensity": "2"}
"""One slot is where the search for more begins."""


def _require_one_question(slots: str | None, target_mst: float | None) -> None:
    if slots is None and target_mst is None:
        raise BadOption("--slots: missing; give the messages that a cache holds, or give --target-mst")
    if target_mst is None:
        return
    if slots is not None:
        raise BadOption("--target-mst: finds the slots; remove --slots")
    if not (math.isfinite(target_mst) and target_mst > 0):
        raise BadOption(f"--target-mst {target_mst:g}: must be a number above 0")


def _policies(option: str, text: str) -> tuple[OpportunisticPolicy, ...]:
    try:
        return tuple(OpportunisticPolicy.parse(name) for name in words(option, text))
    except ValueError as error:
        raise BadOption(f"{option} {error}") from None


def _methods(option: str, text: str) -> tuple[str, ...]:
    from newsstand.lab.survival.solve import METHOD_NAMES

    for name in words(option, text):
        if name not in METHOD_NAMES:
            raise BadOption(f"{option} {name}: must be one of {', '.join(METHOD_NAMES)}")
    return words(option, text)


READERS: dict[str, Reader] = {
    "brokers": whole_numbers,
    "slots": whole_numbers,
    "publish_rate": numbers,
    "client_rate": numbers,
    "intensity": numbers,
    "policy": _policies,
    "method": _methods,
}
"""How the options are read whose combinations are answered."""


def _classes(texts: list[str] | None) -> tuple[MessageClass, ...]:
    from newsstand.lab.survival.simulator import MessageClass
    from newsstand.survival.setting import LEAST_RATE, MOST_INTENSITY, MOST_RATE

    found = []
    for text in texts or ():
        parts = text.split(",")
        try:
            share, rate, intensity = (float(part) for part in parts)
        except ValueError:
            raise BadOption(f"--class {text}: must be three numbers, SHARE,RATE,RHO") from None
        if not all(0 < one < math.inf for one in (share, rate, intensity)):
            raise BadOption(f"--class {text}: all three must be above 0")
        if intensity > MOST_INTENSITY:
            raise BadOption(f"--class {text}: the intensity must be at most {MOST_INTENSITY:g}")
        if not all(LEAST_RATE <= one <= MOST_RATE for one in (share, rate, intensity)):
            raise BadOption(f"--class {text}: all three must be from {LEAST_RATE:g} to {MOST_RATE:g}")
        found.append(MessageClass(share, rate, intensity))
    shares = sum(one.share for one in found)
    if found and not math.isclose(shares, 1, rel_tol=1e-6):
        raise BadOption(f"--class: the shares of all classes must add up to 1, not to {shares:g}")
    return tuple(found)


MOST_NOTES = 5
"""Questions without an answer that are listed one by one."""


def survive(
    spark: SparkOptions,
    context: typer.Context,
    brokers: Annotated[str, "N", "Brokers, each with a cache (n)."] = "1",
    slots: Annotated[str | None, "K", "Messages that each cache holds (k); or give --target-mst."] = None,
    publish_rate: Annotated[str, "RATE", "Publications per unit of time (lambda_b)."] = "1",
    client_rate: Annotated[
        str | None,
        "RATE",
        "Clients that come for one message to one broker per unit of time (lambda_c); default 0.1.",
    ] = None,
    intensity: Annotated[
        str | None, "RHO", "Clients that one message has at one broker, on average (rho_c); default 2."
    ] = None,
    policy: Annotated[
        list[str] | None,
        "NAME",
        "sel or all, sub or fld, prt or nop, as in sel-sub-prt, the default; may be several.",
    ] = None,
    method: Annotated[
        list[str] | None,
        "NAME",
        "exact (the default; of several brokers it is balanced, the nearest model), reduced (the "
        "paper's), balanced or simulate; may be several.",
    ] = None,
    target_mst: Annotated[
        float | None, "TIME", "Find the smallest cache with which messages survive so long on average."
    ] = None,
    observations: Annotated[int, "N", "simulate: messages that are watched, in all replications."] = 50_000,
    replications: Annotated[int, "N", "simulate: independent parts, which the intervals are from."] = 10,
    seed: Annotated[int, "N", "simulate: another seed, other random numbers."] = 1,
    message_class: Annotated[
        list[str] | None,
        Option(
            "--class",
            metavar="SHARE,RATE,RHO",
            help="simulate: a class of messages with its share, client rate and intensity; repeated for others.",
        ),
    ] = None,
    figure: RangeFigure = None,
    as_json: Json = False,
) -> None:
    """Compute how long messages survive in the caches of brokers, until all have dropped them.

    Numbers may be a list, 5,10,20, or a range with both ends, 5:30:5; every combination is answered.

    Example: newsstand survive --slots 15 --intensity 2

    Example: newsstand survive --brokers 1:6:1 --slots 10 --policy sel-sub-prt sel-sub-nop --method simulate
    --figure survival.svg

    Example: newsstand survive --brokers 3 --target-mst 60 --json
    """
    from newsstand.lab.survival.solve import Question
    from newsstand.survival.setting import SurvivalSetting

    _require_one_question(slots, target_mst)
    for name in ("client_rate", "intensity"):
        if message_class and context.params[name] is not None:
            raise BadOption(f"{option_of(name)}: remove it; every --class has its own")
    # In the order in which the options were given.
    given = {name: context.params[name] for name in context.params if name in READERS}
    given["policy"] = ",".join(dict.fromkeys(policy or ["sel-sub-prt"]))
    given["method"] = ",".join(dict.fromkeys(method or ["exact"]))
    ranges = Ranges.read(READERS, {name: USUAL[name] if text is None else text for name, text in given.items()})
    classes = _classes(message_class)
    methods = ranges.values["method"]
    if classes and methods != ("simulate",):
        raise BadOption("--class: only simulation has several classes; give --method simulate")
    sample = (observations, replications, seed)
    _require_sample(context, methods, *sample)
    questions = []
    for values in ranges.combinations:
        by = values.pop("method")
        questions.append(Question(SurvivalSetting(**values), by, target_mst, *sample, classes))
    ranged = ranges.ranged
    if figure is not None:
        from newsstand.lab.survival.figure import require_drawable_ranges

        second = len(ranges.values[ranged[1]]) if len(ranged) > 1 else 1
        lines = len(ranges.values["policy"]) * len(methods) * second * max(1, len(classes))
        require_drawable_ranges(figure, ranged, lines)
        require_writable(figure, "--figure")
    outcomes = _outcomes(questions, spark)
    answers = _answers(outcomes)
    if as_json:
        reports = [outcome_of(outcome) for outcome in outcomes]
        print(json.dumps(reports if ranges.varied else reports[0]))
    else:
        show(answers, ranged)
    if figure is not None:
        from newsstand.lab.survival.figure import draw_survival

        draw_survival(answers, ranged, figure)
        say(f"figure: {figure}")


def _require_sample(
    context: typer.Context, methods: Sequence[str], observations: int, replications: int, seed: int
) -> None:
    from newsstand.lab.survival.simulator import require_sample
    from newsstand.lab.survival.solve import SIMULATE

    if SIMULATE in methods:
        require_sample(observations, replications, seed)
        return
    for name in ("observations", "replications", "seed"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            say(f"{option_of(name)}: is not used, as nothing is simulated")


def _outcomes(questions: list[Question], spark: SparkOptions) -> list[Outcome]:
    from newsstand.lab.survival.solve import SIMULATE, try_answer, try_on_spark

    if spark.is_given:
        with spark.session("survive", "computing") as session:
            return try_on_spark(session, questions)
    if len(questions) == 1 and questions[0].method == SIMULATE:
        (question,) = questions
        return [try_answer(question, lambda parts: each(parts, question.replications, "simulating"))]
    return list(each(map(try_answer, questions), len(questions), "computing"))


def _answers(outcomes: list[Outcome]) -> list[SurvivalAnswer]:
    """Return the answers and print why others are missing; raise the reason if there is none."""
    from newsstand.lab.survival.solve import SurvivalAnswer

    answers = [one for one in outcomes if isinstance(one, SurvivalAnswer)]
    rejected = [one for one in outcomes if not isinstance(one, SurvivalAnswer)]
    if not answers:
        raise rejected[0].reason
    for one in rejected[:MOST_NOTES]:
        say(f"no answer for {named(one.question)}: {message_of(one.reason)}")
    if len(rejected) > MOST_NOTES:
        say(f"… and none for {len(rejected) - MOST_NOTES} others")
    return answers
