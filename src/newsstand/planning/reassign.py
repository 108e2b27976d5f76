"""Assigning topics anew when demand has changed, while storages stay (Sourlas et al. 2011, section 6.2).

Storages are rarely moved; topics are, if it pays. So an answer tells what the old assignment costs now, what a
new one would, what has to be moved for it, and what planning from scratch would gain on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Generic, TypeVar

from newsstand.errors import BadNetwork
from newsstand.planning.cost import Figures, evaluate
from newsstand.planning.json_file import Field, Json, read_object
from newsstand.planning.problem import Plan, Problem

LEAST_GAIN = 0.1
"""Below this share of the traffic the paper's storage provider leaves topics where they are (section 6.2)."""


Node = TypeVar("Node", int, str)
"""A broker by its number, or by its name."""


@dataclass(frozen=True)
class Moved(Generic[Node]):
    """To which brokers replicas of a topic are copied, and where they are dropped."""

    added: tuple[Node, ...]
    removed: tuple[Node, ...]


@dataclass(frozen=True)
class Reassignment:
    """A plan with the storages of an old one, and whether it is worth it."""

    plan: Plan
    before: Figures
    """The old assignment under the new demand."""
    after: Figures
    replanned: Figures
    """If storages were chosen anew, too."""
    replanned_storages: tuple[int, ...]
    moved: Mapping[str, Moved[int]]
    moved_demand: float
    """The share of requests that is for replicas copied, if those of a topic are asked alike."""

    new_topics: tuple[str, ...]
    """Topics that were kept nowhere, so that `before` leaves their requests out."""

    @property
    def copies(self) -> int:
        return sum(len(one.added) for one in self.moved.values())

    @property
    def gain(self) -> float:
        """The share of traffic, and of hops, that is spared."""
        return 1 - self.after.traffic / self.before.traffic if self.before.traffic else 0.0

    @property
    def gain_per_copy(self) -> float:
        return self.gain / self.copies if self.copies else 0.0

    def worth_it(self, least_gain: float = LEAST_GAIN, least_gain_per_copy: float = 0.0) -> bool:
        """Whether to move topics: the gain is large enough, also for each replica, or a topic was kept nowhere."""
        if self.new_topics:
            return True
        return self.copies > 0 and self.gain >= least_gain and self.gain_per_copy >= least_gain_per_copy


def read_plan(
    path: Path, problem: Problem, names: Mapping[str, int] | None = None, *, quiet: bool = False
) -> Plan:
    """Storages and assignment from an earlier answer of `newsstand plan --json`.

    If that tells how its brokers were called, they are found by name. `quiet`: topics that the problem does not
    have are those that nobody asks for at the moment, and are left alone.
    """
    found = read_object(path)
    for name in ("storages", "assignment"):
        if name not in found:
            raise BadNetwork(f"{path}: field '{name}' is missing")
    number = _numbers(path, found, problem, names or {})
    storages = _nodes(Field(f"{path}: storages", found["storages"]), number)
    useful = sum(1 for node in storages if problem.capacity[node - 1])
    for name, limits in zip(problem.topics, problem.replication, strict=True):
        if limits.least > useful:
            raise BadNetwork(
                f"{path}: storages: {useful} can keep something, and '{name}' is to be kept {limits.least} times"
            )
    members = Field(f"{path}: assignment", found["assignment"]).members()
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
    """Which node of the problem each node of an earlier answer is; those that are gone are left out."""
    if "brokers" not in found:
        return {node: node for node in range(1, problem.topology.nodes + 1)}
    before = [one.text() for one in Field(f"{path}: brokers", found["brokers"]).items()]
    return {node: names[name] for node, name in enumerate(before, 1) if name in names}


def _nodes(field: Field, number: Mapping[int, int]) -> tuple[int, ...]:
    found = tuple(one.whole(1, max(number, default=None)) for one in field.items())
    if len(set(found)) < len(found):
        field.refuse("names a node twice")
    for node in found:
        if node not in number:
            field.refuse(f"names node {node}, which the network does not have")
    return tuple(number[node] for node in found)


def kept_to(problem: Problem, storages: tuple[int, ...]) -> Problem:
    """The problem if only these nodes can be storages."""
    chosen = set(storages)
    capacity = tuple(room if node in chosen else 0 for node, room in enumerate(problem.capacity, 1))
    return replace(problem, capacity=capacity, storages=sum(map(bool, capacity)))


def compare(problem: Problem, old: Plan, new: Plan, scratch: Plan) -> Reassignment:
    """What a new assignment to the same storages changes."""
    moved = moves(old.assignment, new.assignment)
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


def moves(old: Mapping[str, Sequence[Node]], new: Mapping[str, Sequence[Node]]) -> dict[str, Moved[Node]]:
    """For every topic that is kept elsewhere than before, the difference; one that is new was kept nowhere."""
    found = {}
    for name, keepers in new.items():
        before = old.get(name, ())
        added = tuple(node for node in keepers if node not in before)
        removed = tuple(node for node in before if node not in keepers)
        if added or removed:
            found[name] = Moved(added, removed)
    return found


def _moved_demand(problem: Problem, new: Plan, moved: Mapping[str, Moved[int]]) -> float:
    shares = (
        weight * Fraction(len(moved[name].added), len(new.assignment[name]))
        for name, weight in zip(problem.topics, problem.weights, strict=True)
        if name in moved and new.assignment[name]
    )
    return float(sum(shares, Fraction(0)))
