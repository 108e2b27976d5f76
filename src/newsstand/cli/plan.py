"""`newsstand plan`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from newsstand.cli.options import Conf, Json, Master
from newsstand.cli.plan_report import answer_of, reassignment_of, show, show_reassignment
from newsstand.cli.progress import each, progress
from newsstand.errors import BadOption

if TYPE_CHECKING:
    from newsstand.cli.plan_applied import Operator
    from newsstand.planning.json_file import Json as Value
    from newsstand.planning.problem import Ints, Problem


def plan(
    network: Annotated[
        Path | None, typer.Argument(help="A network file: nodes, edges, topics, and what storages hold.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="srl, wrr, random, greedy (no limits on storages), swap, relaxed or exact.",
        ),
    ] = "swap",
    seed: Annotated[int, typer.Option(metavar="N", help="For random: another seed, another plan.")] = 0,
    storages: Annotated[
        int | None, typer.Option(metavar="M", help="How many storages, instead of what the file says.")
    ] = None,
    replication: Annotated[
        str | None,
        typer.Option(metavar="K|MIN,MAX", help="How often each topic is kept, instead of what the file says."),
    ] = None,
    storage_capacity: Annotated[
        int | None,
        typer.Option(metavar="SC", help="How many topics a storage keeps, instead of what the file says."),
    ] = None,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="For relaxed and exact: when to stop.", min=0)
    ] = 300.0,
    demand: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Count demand in the access logs of brokers, instead of what the file says; may be repeated.",
        ),
    ] = None,
    old: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PLAN.json",
            help="Keep the storages of an earlier answer, and assign topics anew (srl, wrr or swap).",
        ),
    ] = None,
    least_gain: Annotated[
        float,
        typer.Option(metavar="F", help="With --from: the share of traffic that is worth moving topics for."),
    ] = 0.1,
    least_gain_per_copy: Annotated[
        float, typer.Option(metavar="F", help="With --from: the same, for each replica that is copied.")
    ] = 0.0,
    coordinator: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="A running platform: its brokers and links, if there is no network file."
        ),
    ] = None,
    secret_file: Annotated[Path | None, typer.Option(metavar="FILE", help="The secret of that platform.")] = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Tell that platform: topics move to their storages. With --from, if that is worth it.",
        ),
    ] = False,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="With --apply: how long topics may take to move.", min=0)
    ] = 120.0,
    out: Annotated[
        Path | None, typer.Option(metavar="PLAN.json", help="Write what --json prints to a file, too.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a small network (.svg, .png or .pdf).")
    ] = None,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Choose which brokers of a network become storages, and which topics each keeps.

    Example: newsstand plan examples/storage-network.json --method wrr --json

    With --coordinator, for the brokers of a running platform, called by their names:

    Example: newsstand plan --coordinator http://127.0.0.1:8770 --secret-file data/platform.secret
    --demand data/brokers --replication 2 --storage-capacity 5 --apply
    """
    from newsstand.cli.plan_applied import Operator, applied, require_settled, show_applied
    from newsstand.planning.methods import Asked, planned
    from newsstand.planning.network_file import names_of, problem_of
    from newsstand.planning.reassign import compare, kept_to, read_plan

    operator = None if coordinator is None else Operator(coordinator, secret_file)
    place, found = _found(network, operator, apply=apply)
    names = names_of(place, found)

    instead = _instead(
        storages=storages,
        replication=_limits(replication),
        storage_capacity=storage_capacity,
        topics=_demand(names, demand, master, conf or []),
    )
    problem = problem_of(place, found, instead)
    if figure is not None:
        from newsstand.lab.plan_figure import require_small

        require_small(problem, figure)
    if out is not None:
        _require_writable(out)
    _require_known(method, reassigns=old is not None)
    if old is not None and storages is not None:
        raise BadOption("--storages: with --from the storages stay")
    if seed < 0:
        raise BadOption(f"--seed {seed}: must not be negative")
    before = None if old is None else read_plan(old, problem, names, quiet=demand is not None)
    possible = partial(_possible, master=master, conf=conf or [])
    if before is None:
        answer = planned(method, Asked(problem, possible(problem), seed, time_limit))
        told = answer_of(problem, answer, method)
    else:
        kept = kept_to(problem, before.storages)
        answer = planned(method, Asked(kept, possible(kept)))
        scratch = planned(method, Asked(problem, possible(problem)))
        result = compare(problem, before, answer.plan, scratch.plan)
        told = answer_of(problem, answer, method)
        advice = result.worth_it(least_gain, least_gain_per_copy)
        told["reassignment"] = reassignment_of(result, worth_it=advice)
        apply = apply and advice
    if operator is not None:
        told["brokers"] = list(names)
        if apply:
            told["applied"] = applied(operator, problem, answer.plan, list(names), wait)
    if figure is not None:
        from newsstand.lab.plan_figure import draw_plan

        draw_plan(problem, answer.plan, figure, title=f"{place}, {method}")
    if out is not None:
        _write(out, json.dumps(told, indent=1) + "\n")
    if as_json:
        print(json.dumps(told))
    else:
        show(told)
        if before is not None:
            show_reassignment(told)
        if apply:
            show_applied(told)
    if apply:
        require_settled(told, wait)


def _require_writable(out: Path) -> None:
    if not out.parent.is_dir():
        raise BadOption(f"--out {out}: no folder {out.parent}")
    if out.is_dir() or not os.access(out if out.exists() else out.parent, os.W_OK):
        raise BadOption(f"--out {out}: cannot be written ({'Is a directory' if out.is_dir() else 'not allowed'})")


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text)
    except OSError as error:
        raise BadOption(f"--out {out}: cannot be written ({error.strerror})") from error


def _require_known(method: str, *, reassigns: bool) -> None:
    """Refuse a method that there is not, before anything is computed for it."""
    from newsstand.planning.methods import METHODS

    if method not in METHODS:
        raise BadOption(f"--method {method}: there is no such method; there are {', '.join(METHODS)}")
    if reassigns and method not in ("srl", "wrr", "swap"):
        raise BadOption(f"--method {method}: with --from, topics are assigned by srl, wrr or swap")


def _instead(**options: object) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


def _limits(text: str | None) -> int | list[int] | None:
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise BadOption(f"--replication {text}: not a whole number, nor two with a comma between them") from None
    return numbers[0] if len(numbers) == 1 else numbers


def _found(network: Path | None, operator: Operator | None, *, apply: bool) -> tuple[str, Mapping[str, Value]]:
    """The fields of the network file, or of a running platform, and where they are from."""
    if apply and operator is None:
        raise BadOption("--apply: to which platform? Give --coordinator URL and --secret-file FILE")
    if network is not None:
        from newsstand.planning.json_file import read_object

        return str(network), read_object(network)
    if operator is None:
        raise BadOption("give a network file, or --coordinator URL for the brokers of a running platform")
    return operator.where, operator.overlay().network


def _demand(
    nodes: Mapping[str, int], logs: list[Path] | None, master: str | None, conf: list[str]
) -> dict[str, list[float]] | None:
    if not logs:
        return None
    from newsstand.lab.topic_demand import demand_of
    from newsstand.spark import open_session

    with open_session(master, conf, "newsstand plan", brief=True) as spark, progress(spark, "counting"):
        return demand_of(spark, logs, nodes)


def _possible(problem: Problem, master: str | None, conf: list[str]) -> Ints:
    from newsstand.planning.greedy import possible_storages

    if master or conf:
        from newsstand.lab.plan_on_spark import possible_on_spark
        from newsstand.spark import open_session

        with open_session(master, conf, "newsstand plan", brief=True) as spark, progress(spark, "planning"):
            return possible_on_spark(spark, problem)
    return possible_storages(problem, lambda rows, total: each(rows, total, "planning"))
