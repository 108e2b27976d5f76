"""What `newsstand plan` answers: for programs, and as a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from newsstand.planning.cost import Figures
    from newsstand.planning.methods import Planned
    from newsstand.planning.problem import Problem
    from newsstand.planning.reassign import Reassignment

Told = Mapping[str, Any]


def answer_of(problem: Problem, answer: Planned, method: str) -> dict[str, object]:
    """The answer as JSON has it."""
    from newsstand.planning.cost import evaluate

    figures = evaluate(problem, answer.plan)
    told: dict[str, object] = {
        "method": method,
        "weights": {name: float(weight) for name, weight in zip(problem.topics, problem.weights, strict=True)},
        "possible": {name: _counts(problem, counts) for name, counts in answer.plan.possible.items()},
        "storages": list(answer.plan.storages),
        "assignment": {name: list(keepers) for name, keepers in answer.plan.assignment.items()},
        "mean_hops": figures.mean_hops,
        "traffic": figures.traffic,
    }
    if answer.gap is not None:
        told["gap"] = answer.gap
    if answer.plan.short:
        told["short"] = dict(answer.plan.short)
    return told


def _counts(problem: Problem, counts: Sequence[int]) -> list[int] | list[float]:
    """PS as if each of N servers counted once on average, whatever the unit of publishing."""
    if problem.publishing is None:
        return list(counts)
    scale = Fraction(problem.topology.nodes, int(problem.publishing.sum()))
    return [float(count * scale) for count in counts]


def reassignment_of(result: Reassignment, *, worth_it: bool) -> dict[str, object]:
    """What assigning anew changes, as JSON has it."""
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


def costs_of(figures: Figures) -> dict[str, float]:
    """What an assignment costs, as JSON has it."""
    return {"mean_hops": figures.mean_hops, "traffic": figures.traffic}


def show(told: Told) -> None:
    """Print a plan for people: a row a topic, heaviest first."""
    console = Console(highlight=False)
    called = dict(enumerate(told.get("brokers", ()), 1))
    storages = _called(told["storages"], called)
    console.print(f"{len(told['storages'])} storages: {storages}", soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    table.add_column("topic")
    table.add_column("weight", justify="right")
    table.add_column("kept at")
    short = told.get("short", {})
    for name in sorted(told["weights"], key=lambda topic: -told["weights"][topic]):
        kept = _called(told["assignment"][name], called) or "-"
        missing = f"  ({short[name]} missing: no room)" if name in short else ""
        table.add_row(name, f"{told['weights'][name]:.4f}", kept + missing)
    console.print(table)
    proof = ""
    if "gap" in told:
        proof = f"; another plan might spare {told['gap']:.2%}" if told["gap"] else "; no plan has less"
    console.print(f"{told['mean_hops']:.4f} hops on average, {told['traffic']:,.6g} requests x hops/s{proof}")


def _called(nodes: Sequence[int], called: Mapping[int, str]) -> str:
    return ", ".join(called.get(node, str(node)) for node in nodes)


def show_reassignment(told: Told) -> None:
    """Print whether to assign anew, for people."""
    console = Console(highlight=False)
    result = told["reassignment"]
    table = Table(box=None, pad_edge=False)
    for name in ("", "hops", "requests x hops/s"):
        table.add_column(name, justify="right" if name else "left")
    rows = (("as it was assigned", "before"), ("assigned anew", "after"), ("planned anew", "replanned"))
    for text, key in rows:
        table.add_row(text, f"{result[key]['mean_hops']:.4f}", f"{result[key]['traffic']:,.6g}")
    console.print(table)
    for name, one in result["moved"].items():
        moves = [f"copy to {_listed(one['added'])}"] if one["added"] else []
        moves += [f"drop from {_listed(one['removed'])}"] if one["removed"] else []
        console.print(f"{name}: {', '.join(moves)}", soft_wrap=True)
    advice = "worth it" if result["worth_it"] else "not worth it"
    change = f"{abs(result['gain']):.1%} {'less' if result['gain'] >= 0 else 'more'} traffic"
    console.print(
        f"{advice}: {change} for {result['copies']} {'copy' if result['copies'] == 1 else 'copies'}, "
        f"to serve {result['moved_demand']:.1%} of the requests",
        soft_wrap=True,
    )


def _listed(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes))
