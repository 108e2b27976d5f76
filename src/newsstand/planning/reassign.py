"""Reassignment of topics when demand has changed, with the same storages (Sourlas et al. 2011, section 6.2).

Storages are rarely moved; topics are, if it pays. A reassignment compares the cost of the old assignment with that
of a new one, lists the replicas to move, and gives the cost of planning from scratch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Generic, TypeVar

from newsstand.config.files import Json, JsonField, read_object
from newsstand.errors import BadNetwork
from newsstand.planning.problem import Plan, PlanCost, Problem, evaluate

LEAST_GAIN = 0.1
"""The least share of the traffic to save for which the paper's provider moves topics (section 6.2)."""


Node = TypeVar("Node", int, str)
"""A broker by its number, or by its name."""


@dataclass(frozen=True)
class ReplicaMoves(Generic[Node]):
    """The brokers to which replicas of a topic are copied, and those that drop theirs."""

    added: tuple[Node, ...]
    removed: tuple[Node, ...]


@dataclass(frozen=True)
class Reassignment:
    """A plan with the storages of an old one, and what it saves."""

    plan: Plan
    before: PlanCost
    """The old assignment under the new demand."""
    after: PlanCost
    replanned: PlanCost
    """If storages were chosen again, too."""
    replanned_storages: tuple[int, ...]
    moved: Mapping[str, ReplicaMoves[int]]
    moved_demand: float
    """The share of requests for copied replicas, if all replicas of a topic are requested equally."""
    new_topics: tuple[str, ...]
    """Topics without a storage before, whose requests `before` leaves out."""

    @property
    def copies(self) -> int:
        return sum(len(one.added) for one in self.moved.values())

    @property
    def gain(self) -> float:
        """The share of traffic, and of hops, that is saved."""
        return 1 - self.after.traffic / self.before.traffic if self.before.traffic else 0.0

    @property
    def gain_per_copy(self) -> float:
        return self.gain / self.copies if self.copies else 0.0

    def worth_it(self, least_gain: float = LEAST_GAIN, least_gain_per_copy: float = 0.0) -> bool:
        """Return whether to move topics: the gain in total and per copy is large enough, or a topic is new."""
        if self.new_topics:
            return True
        return self.copies > 0 and self.gain >= least_gain and self.gain_per_copy >= least_gain_per_copy


def read_plan(
    path: Path, problem: Problem, names: Mapping[str, int] | None = None, *, quiet: bool = False
) -> Plan:
    """Return storages and assignment from an earlier output of `newsstand plan --json`.

    Brokers are matched by name if the output has their names. With `quiet`, topics that the problem does not have
    are ignored, as they have no requests at present.
    """
    found = read_object(path)
    for name in ("storages", "assignment"):
        if name not in found:
            raise BadNetwork(f"{path}: field '{name}' is missing")
    number = _numbers(path, found, problem, names or {})
    storages = _nodes(JsonField(f"{path}: storages", found["storages"]), number)
    useful = sum(1 for node in storages if problem.capacity[node - 1])
    for name, limits in zip(problem.topics, problem.replication, strict=True):
        if limits.least > useful:
            raise BadNetwork(
                f"{path}: storages: {useful} have room for topics, and '{name}' needs {limits.least} replicas"
            )
    members = JsonField(f"{path}: assignment", found["assignment"]).members()
    for name in members:
        if name not in problem.topics and not quiet:
            raise BadNetwork(f"{path}: assignment.{name}: the network has no such topic")
    assignment = {name: _nodes(members[name], number) if name in members else () for name in problem.topics}
    for name, keepers in assignment.items():
        for node in keepers:
            if node not in storages:
                raise BadNetwork(f"{path}: assignment.{name}: node {node} is not among the storages")
    return Plan(storages, assignment)


def _numbers(path: Path, found: Mapping[str, Json], problem: Problem, names: Mapping[str, int]) -> dict[int, int]:
    """Return the node of the problem for each node of an earlier output, without those that were removed."""
    if "brokers" not in found:
        return {node: node for node in range(1, problem.topology.nodes + 1)}
    before = [one.text() for one in JsonField(f"{path}: brokers", found["brokers"]).items()]
    return {node: names[name] for node, name in enumerate(before, 1) if name in names}


def _nodes(field: JsonField, number: Mapping[int, int]) -> tuple[int, ...]:
    found = tuple(one.whole(1, max(number, default=None)) for one in field.items())
    if len(set(found)) < len(found):
        field.reject("names a node twice")
    for node in found:
        if node not in number:
            field.reject(f"names node {node}, which the network does not have")
    return tuple(number[node] for node in found)


def restrict_storages(problem: Problem, storages: tuple[int, ...]) -> Problem:
    """Return the problem with only these nodes as possible storages."""
    chosen = set(storages)
    capacity = tuple(room if node in chosen else 0 for node, room in enumerate(problem.capacity, 1))
    return replace(problem, capacity=capacity, storages=sum(map(bool, capacity)))


def compare(problem: Problem, old: Plan, new: Plan, scratch: Plan) -> Reassignment:
    """Compare a new assignment to the same storages with the old one."""
    moved = replica_moves(old.assignment, new.assignment)
    return Reassignment(
        new,
        before=evaluate(problem, old),
        after=evaluate(problem, new),
        replanned=evaluate(problem, scratch),
        replanned_storages=scratch.storages,
        moved=moved,
        moved_demand=_moved_demand(problem, new, moved),
        new_topics=tuple(name for name in problem.topics if new.assignment[name] and not old.assignment[name]),
    )


def replica_moves(
    old: Mapping[str, Sequence[Node]], new: Mapping[str, Sequence[Node]]
) -> dict[str, ReplicaMoves[Node]]:
    """Return the added and removed brokers of each topic whose brokers change."""
    found = {}
    for name, keepers in new.items():
        before = old.get(name, ())
        added = tuple(node for node in keepers if node not in before)
        removed = tuple(node for node in before if node not in keepers)
        if added or removed:
            found[name] = ReplicaMoves(added, removed)
    return found


def _moved_demand(problem: Problem, new: Plan, moved: Mapping[str, ReplicaMoves[int]]) -> float:
    shares = (
        weight * Fraction(len(moved[name].added), len(new.assignment[name]))
        for name, weight in zip(problem.topics, problem.weights, strict=True)
        if name in moved and new.assignment[name]
    )
    return float(sum(shares, Fraction(0)))
