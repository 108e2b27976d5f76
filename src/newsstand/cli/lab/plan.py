"""`newsstand plan`: the command, and its report as JSON or as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from newsstand.cli.options import Json, SparkOptions, require_writable
from newsstand.cli.several_values import option_of
from newsstand.cli.terminal import each, print_table
from newsstand.errors import BadOption

if TYPE_CHECKING:
    from newsstand.cli.lab.plan_apply import OperatorClient
    from newsstand.config.files import Json as Value
    from newsstand.planning.methods import PlanningResult
    from newsstand.planning.problem import Ints, PlanCost, Problem
    from newsstand.planning.reassign import Reassignment
    from newsstand.wire.coordination import OverlayInfo


PlanReport = Mapping[str, Any]


def answer_of(problem: Problem, answer: PlanningResult, method: str) -> dict[str, object]:
    """Return the answer as JSON has it."""
    from newsstand.planning.problem import evaluate

    figures = evaluate(problem, answer.plan)
    report: dict[str, object] = {
        "method": method,
        "weights": {name: float(weight) for name, weight in zip(problem.topics, problem.weights, strict=True)},
        "possible": {name: _counts(problem, counts) for name, counts in answer.plan.possible.items()},
        "storages": list(answer.plan.storages),
        "assignment": {name: list(keepers) for name, keepers in answer.plan.assignment.items()},
        "mean_hops": figures.mean_hops,
        "traffic": figures.traffic,
    }
    if answer.gap is not None:
        report["gap"] = answer.gap
    if answer.plan.short:
        report["short"] = dict(answer.plan.short)
    return report


def _counts(problem: Problem, counts: Sequence[int]) -> list[int] | list[float]:
    """PS as if each of N servers counted once on average, whatever the unit of publishing."""
    if problem.publishing is None:
        return list(counts)
    scale = Fraction(problem.topology.nodes, int(problem.publishing.sum()))
    return [float(count * scale) for count in counts]


def reassignment_of(result: Reassignment, *, worth_it: bool) -> dict[str, object]:
    """Return what a reassignment changes, as JSON has it."""
    return {
        "before": costs_of(result.before),
        "after": costs_of(result.after),
        "gain": result.gain,
        "gain_per_copy": result.gain_per_copy,
        "copies": result.copies,
        "removals": sum(len(one.removed) for one in result.moved.values()),
        "moved_demand": result.moved_demand,
        "moved": {
            name: {"added": list(one.added), "removed": list(one.removed)} for name, one in result.moved.items()
        },
        "replanned": {**costs_of(result.replanned), "storages": list(result.replanned_storages)},
        "new_topics": list(result.new_topics),
        "worth_it": worth_it,
    }


def costs_of(figures: PlanCost) -> dict[str, float]:
    """Return what an assignment costs, as JSON has it."""
    return {"mean_hops": figures.mean_hops, "traffic": figures.traffic}


def show(report: PlanReport) -> None:
    """Print a plan for people: a row a topic, heaviest first."""
    names = dict(enumerate(report.get("brokers", ()), 1))
    print(f"{len(report['storages'])} storages: {_named(report['storages'], names)}")
    short = report.get("short", {})
    rows = []
    for name in sorted(report["weights"], key=lambda topic: -report["weights"][topic]):
        stored_at = _named(report["assignment"][name], names) or "-"
        missing = f"  ({short[name]} missing: no room)" if name in short else ""
        rows.append((name, f"{report['weights'][name]:.4f}", stored_at + missing))
    print_table(("topic", "weight", "stored at"), rows, left=("topic", "stored at"))
    proof = ""
    if "gap" in report:
        proof = f"; another plan might spare {report['gap']:.2%}" if report["gap"] else "; no plan has less"
    print(f"{report['mean_hops']:.4f} hops on average, {report['traffic']:,.6g} requests x hops/s{proof}")


def _named(nodes: Sequence[int], names: Mapping[int, str] = {}) -> str:
    return ", ".join(names.get(node, str(node)) for node in nodes)


def show_reassignment(report: PlanReport) -> None:
    """Print whether to reassign topics, for people."""
    result = report["reassignment"]
    costs = (("assigned before", "before"), ("reassigned", "after"), ("replanned", "replanned"))
    rows = [(text, f"{result[key]['mean_hops']:.4f}", f"{result[key]['traffic']:,.6g}") for text, key in costs]
    print_table(("", "hops", "requests x hops/s"), rows, left=[""])
    for name, one in result["moved"].items():
        moves = [f"copy to {_named(one['added'])}"] if one["added"] else []
        moves += [f"drop from {_named(one['removed'])}"] if one["removed"] else []
        print(f"{name}: {', '.join(moves)}")
    advice = "worth it" if result["worth_it"] else "not worth it"
    change = f"{abs(result['gain']):.1%} {'less' if result['gain'] >= 0 else 'more'} traffic"
    copies = f"{result['copies']} {'copy' if result['copies'] == 1 else 'copies'}"
    print(f"{advice}: {change} for {copies}, to serve {result['moved_demand']:.1%} of the requests")


def plan(
    spark: SparkOptions,
    network: Annotated[
        Path | None, Argument(help="A network file: nodes, edges, topics, and what storages hold.")
    ] = None,
    method: Annotated[
        str, "NAME", "srl, wrr, random, greedy (no limits on storages), swap, relaxed or exact."
    ] = "swap",
    seed: Annotated[int, "N", "For random: another seed, another plan."] = 0,
    storages: Annotated[int | None, "M", "Storages, instead of the file's number."] = None,
    replication: Annotated[
        str | None, "K|MIN,MAX", "Replicas of each topic, instead of the file's number."
    ] = None,
    storage_capacity: Annotated[
        int | None, "SC", "Topics that a storage holds, instead of the file's number."
    ] = None,
    time_limit: Annotated[
        float, Option(metavar="SECONDS", help="For relaxed and exact: when to stop.", min=0)
    ] = 300.0,
    demand: Annotated[
        list[Path] | None,
        "DIR",
        "Count demand in the event logs of brokers, instead of the file's; may be repeated.",
    ] = None,
    old: Annotated[
        Path | None,
        Option(
            "--from",
            metavar="PLAN.json",
            help="Keep the storages of an earlier answer, and reassign topics (srl, wrr or swap).",
        ),
    ] = None,
    least_gain: Annotated[float, "F", "With --from: the least share of traffic to save."] = 0.1,
    least_gain_per_copy: Annotated[float, "F", "With --from: the same, for each copied replica."] = 0.0,
    coordinator: Annotated[
        str | None, "URL", "A running platform: its brokers and links, if there is no network file."
    ] = None,
    secret_file: Annotated[Path | None, "FILE", "The secret of that platform."] = None,
    apply: Annotated[
        bool, "Apply the plan to that platform: topics move. With --from, only if it is worth it."
    ] = False,
    wait: Annotated[
        float, Option(metavar="SECONDS", help="With --apply: how long topics may take to move.", min=0)
    ] = 120.0,
    out: Annotated[Path | None, "PLAN.json", "Write what --json prints to a file, too."] = None,
    figure: Annotated[Path | None, "FILE", "Draw a small network (.svg, .png or .pdf)."] = None,
    as_json: Json = False,
) -> None:
    """Choose which brokers of a network become storages, and which topics each keeps.

    Example: newsstand plan examples/storage-network.json --method wrr --json

    With --coordinator, for the brokers of a running platform, called by their names:

    Example: newsstand plan --coordinator http://127.0.0.1:8770 --secret-file data/platform.secret
    --demand data/brokers --replication 2 --storage-capacity 5 --apply
    """
    from newsstand.cli.lab.plan_apply import OperatorClient, apply_plan, require_settled, show_applied
    from newsstand.planning.methods import PlanningRequest, run_method
    from newsstand.planning.problem import node_numbers, problem_of
    from newsstand.planning.reassign import compare, read_plan, restrict_storages

    operator = None if coordinator is None else OperatorClient(coordinator, secret_file)
    if apply and operator is None:
        raise BadOption("--apply: missing platform; give --coordinator URL and --secret-file FILE")
    # Read before the plan is made: it is applied only if the placement is still the same then.
    overlay = operator.overlay() if operator is not None and (apply or network is None) else None
    place, found = _network_fields(network, operator, overlay)
    names = node_numbers(place, found)
    if network is None and not demand:
        raise BadOption("--coordinator: missing demand, which no platform reports; give --demand DIR")

    options = {
        "storages": storages,
        "replication": _limits(replication),
        "storage_capacity": storage_capacity,
        "topics": _demand(names, demand, spark),
    }
    instead = {name: value for name, value in options.items() if value is not None}
    problem = problem_of(place, found, instead, option_of)
    if figure is not None:
        from newsstand.lab.planning import require_small

        require_small(problem, figure)
    if out is not None:
        require_writable(out, "--out")
    _require_known(method, reassigns=old is not None)
    if old is not None and storages is not None:
        raise BadOption("--storages: remove it; with --from the storages stay")
    if seed < 0:
        raise BadOption(f"--seed {seed}: must not be negative")
    before = None if old is None else read_plan(old, problem, names, quiet=demand is not None)
    possible = partial(_possible, spark)
    if before is None:
        answer = run_method(method, PlanningRequest(problem, possible(problem), seed, time_limit))
        report = answer_of(problem, answer, method)
    else:
        fixed = restrict_storages(problem, before.storages)
        answer = run_method(method, PlanningRequest(fixed, possible(fixed)))
        scratch = run_method(method, PlanningRequest(problem, possible(problem)))
        result = compare(problem, before, answer.plan, scratch.plan)
        report = answer_of(problem, answer, method)
        advice = result.worth_it(least_gain, least_gain_per_copy)
        report["reassignment"] = reassignment_of(result, worth_it=advice)
        apply = apply and advice
    if operator is not None:
        report["brokers"] = list(names)
        if apply and overlay is not None:
            report["applied"] = apply_plan(operator, overlay, problem, answer.plan, list(names), wait)
    if figure is not None:
        from newsstand.lab.planning import draw_plan

        draw_plan(problem, answer.plan, figure, title=f"{place}, {method}")
    if out is not None:
        out.write_text(json.dumps(report, indent=1) + "\n")
    if as_json:
        print(json.dumps(report))
    else:
        show(report)
        if before is not None:
            show_reassignment(report)
        if apply:
            show_applied(report)
    if apply:
        require_settled(report, wait)


def _require_known(method: str, *, reassigns: bool) -> None:
    """Reject a method that there is not, before anything is computed for it."""
    from newsstand.planning.methods import METHODS

    if method not in METHODS:
        raise BadOption(f"--method {method}: must be one of {', '.join(METHODS)}")
    if reassigns and method not in ("srl", "wrr", "swap"):
        raise BadOption(f"--method {method}: must be srl, wrr or swap with --from")


def _limits(text: str | None) -> int | list[int] | None:
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise BadOption(f"--replication {text}: must be a whole number, or two as 1,3") from None
    return numbers[0] if len(numbers) == 1 else numbers


def _network_fields(
    network: Path | None, operator: OperatorClient | None, overlay: OverlayInfo | None
) -> tuple[str, Mapping[str, Value]]:
    """Return where the network is from, and its fields: those of a file, or else of a running platform."""
    if network is not None:
        from newsstand.config.files import read_object

        return str(network), read_object(network)
    if operator is None or overlay is None:
        raise BadOption("NETWORK: missing; give a network file, or --coordinator URL of a running platform")
    from newsstand.cli.lab.plan_apply import network_of

    return operator.where, network_of(overlay)


def _demand(
    nodes: Mapping[str, int], logs: list[Path] | None, spark: SparkOptions
) -> dict[str, list[float]] | None:
    if not logs:
        return None
    from newsstand.lab.planning import demand_of

    with spark.session("plan", "counting") as session:
        return demand_of(session, logs, nodes)


def _possible(spark: SparkOptions, problem: Problem) -> Ints:
    if not spark.is_given:
        from newsstand.planning.solvers.greedy import possible_storages

        return possible_storages(problem, lambda rows, total: each(rows, total, "planning"))
    from newsstand.lab.planning import possible_on_spark

    with spark.session("plan", "planning") as session:
        return possible_on_spark(session, problem)
