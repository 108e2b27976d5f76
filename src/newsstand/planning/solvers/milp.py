"""Planning and assignment together as one mixed-integer program.

    y_i    node i is a storage: at most M
    x_ti   node i keeps topic t: x_ti <= y_i, sum_t x_ti <= SC_i y_i, least_t <= sum_i x_ti <= most_t
    z_tB   no node of ball B keeps topic t

A ball is the nodes within some hops of a client. A client that finds no replica within 0, 1, … h hops has to go
h + 1, so that its traffic is its demand times the number of its balls that keep nothing. This *radius formulation*
(Cornuéjols, Nemhauser and Wolsey 1980; García, Labbé and Marín 2011) bounds as tightly as the one with a variable
for each client and storage, and is far smaller: clients share balls, a ball so large that a replica must be in it
needs no variable, and a ball's row names only what it adds to the ball before it:
z_B >= z_before - sum of x over what it adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from newsstand.planning.problem import Ints, Plan, Problem
from newsstand.planning.replication import missing_replicas, storages_allowed

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Balls(NamedTuple):
    """All balls around all clients, each once; and one line for each client and radius."""

    members: Bools
    """One row a ball, one column a node."""
    client: Ints
    ball: Ints
    smaller: Ints
    """The ball of the same client with one hop less; -1 if there is none."""


@dataclass(frozen=True, eq=False)
class Program:
    """Minimise cost @ v with lower <= rows @ v <= upper and 0 <= v <= `most`, with integers where `integral`."""

    problem: Problem
    nodes: Ints
    """The nodes that can be storages, from 0."""
    cost: Floats
    rows: sparse.csr_array
    lower: Floats
    upper: Floats
    most: Floats
    integral: Bools
    units: float
    """Units of demand times hops that a cost of 1 stands for."""
    certain: int
    """Units of demand times hops of every plan, which are not in `cost`."""

    def opened(self, values: Floats) -> Floats:
        """y."""
        return values[: len(self.nodes)]

    def kept(self, values: Floats) -> Floats:
        """x: one row a topic."""
        topics = len(self.problem.topics)
        return values[len(self.nodes) :][: topics * len(self.nodes)].reshape(topics, len(self.nodes))

    def traffic(self, cost: float) -> float:
        """Units of demand times hops."""
        return cost * self.units + self.certain

    def cost_of(self, traffic: int) -> float:
        """Return the cost of traffic: the inverse of `traffic`."""
        return (traffic - self.certain) / self.units

    def plan(self, values: Floats) -> Plan:
        """Return the plan of a whole solution; storages and keepers in ascending order."""
        return as_plan(self.problem, {t: self.nodes[row > 0.5] for t, row in enumerate(self.kept(values))})


def as_plan(problem: Problem, keepers: dict[int, Ints]) -> Plan:
    """Return the plan with these keepers of each topic, all numbers from 0; storages are the keepers."""
    assignment = {name: tuple(int(node) + 1 for node in keepers[t]) for t, name in enumerate(problem.topics)}
    used = sorted({node for nodes in assignment.values() for node in nodes})
    short = {
        name: limits.least - len(assignment[name])
        for name, limits in zip(problem.topics, problem.replication, strict=True)
        if len(assignment[name]) < limits.least
    }
    return Plan(tuple(used), assignment, short=short)


def program(problem: Problem) -> Program:
    """Return the program of a problem; raise `BadOption` if there is no room for each topic."""
    return _ProgramBuilder(problem).program()


class _ProgramBuilder:
    """The (row, column, value) entries of the program so far, and the bounds of each row."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.nodes: Ints = np.flatnonzero(np.asarray(problem.capacity) > 0)
        self.missing = missing_replicas(problem)
        self.columns = len(self.nodes) * (1 + len(problem.topics))
        self.cost: list[Floats] = [np.zeros(self.columns)]
        self.most: list[Floats] = [np.ones(self.columns)]
        self.entries: list[tuple[Ints, Ints, Floats]] = []
        self.lower: list[Floats] = []
        self.upper: list[Floats] = []
        self.height = 0
        self.certain = 0

    def x(self, topic: int) -> Ints:
        """Return the columns of a topic's x."""
        return np.arange(len(self.nodes)) + len(self.nodes) * (1 + topic)

    @cached_property
    def y(self) -> Ints:
        return np.arange(len(self.nodes))

    def program(self) -> Program:
        integral_columns = self.columns
        topics = range(len(self.problem.topics))
        self._storages(topics)
        self._replication(topics)
        balls = all_balls(self.problem, self.nodes)
        for topic in topics:
            if self.problem.totals[topic]:
                self._access(topic, balls)
        units = float(self.problem.totals.sum()) / int(self.problem.demand.any(axis=0).sum())
        rows, columns, values = (np.concatenate(part) for part in zip(*self.entries, strict=True))
        return Program(
            self.problem,
            self.nodes,
            np.concatenate(self.cost) / units,
            sparse.csr_array((values, (rows, columns)), shape=(self.height, self.columns)),
            np.concatenate(self.lower),
            np.concatenate(self.upper),
            np.concatenate(self.most),
            np.arange(self.columns) < integral_columns,
            units,
            self.certain,
        )

    def _add(
        self, rows: int, *entries: tuple[Ints, Ints, float], lower: float = -np.inf, upper: float = np.inf
    ) -> None:
        for at, columns, value in entries:
            self.entries.append((at + self.height, columns, np.full(len(columns), value)))
        self.lower.append(np.full(rows, lower))
        self.upper.append(np.full(rows, upper))
        self.height += rows

    def _new_columns(self, cost: Floats, most: Floats) -> Ints:
        new = np.arange(len(cost)) + self.columns
        self.cost.append(cost)
        self.most.append(most)
        self.columns += len(cost)
        return new

    def _storages(self, topics: range) -> None:
        nodes, each = len(self.nodes), self.y
        self._add(1, (0 * each, self.y, 1), upper=storages_allowed(self.problem))
        for topic in topics:
            self._add(nodes, (each, self.x(topic), 1), (each, self.y, -1), upper=0)
        for node, index in enumerate(self.nodes):
            room = self.problem.capacity[index]
            if room < len(topics):
                keeps = np.array([self.x(topic)[node] for topic in topics])
                self._add(
                    1, (0 * keeps, keeps, 1), (np.zeros(1, np.int64), self.y[node : node + 1], -room), upper=0
                )

    def _replication(self, topics: range) -> None:
        """Short topics share out what is missing, and each keeps one replica."""
        least = np.array([limits.least for limits in self.problem.replication])
        if self.missing:
            short = self._new_columns(np.zeros(len(topics)), least - 1.0)
            self._add(1, (0 * short, short, 1), lower=self.missing, upper=self.missing)
        for topic, limits in enumerate(self.problem.replication):
            x, one = self.x(topic), np.zeros(1, np.int64)
            self._add(1, (0 * x, x, 1), lower=1, upper=limits.most)
            if self.missing:
                self._add(1, (0 * x, x, 1), (one, short[topic : topic + 1], 1), lower=limits.least)
            else:
                self.lower[-1][:] = limits.least

    def _access(self, topic: int, balls: Balls) -> None:
        demand = self.problem.demand[topic][balls.client]
        sizes = balls.members.sum(axis=1)
        surely = 1 if self.missing else self.problem.replication[topic].least
        asked = (demand > 0) & (sizes[balls.ball] <= len(self.nodes) - surely)
        self.certain += int(demand[asked & (sizes[balls.ball] == 0)].sum())
        asked &= sizes[balls.ball] > 0
        used, at = np.unique(balls.ball[asked], return_inverse=True)
        weight = np.zeros(len(used), np.int64)
        np.add.at(weight, at, demand[asked])
        z = self._new_columns(weight.astype(np.float64), np.ones(len(used)))
        before = _largest(len(used), at, balls.smaller[asked], sizes)
        chained = np.flatnonzero(before >= 0)
        added = balls.members[used]
        added[chained] &= ~balls.members[before[chained]]
        rows, nodes = np.nonzero(added)
        self._add(
            len(used),
            (np.arange(len(used)), z, 1),
            (chained, z[np.searchsorted(used, before[chained])], -1),
            (rows, self.x(topic)[nodes], 1),
        )
        self.lower[-1][:] = before < 0


def all_balls(problem: Problem, nodes: Ints) -> Balls:
    """Return the balls around all nodes, but those that hold every node."""
    numbers: dict[bytes, int] = {}
    members: list[Bools] = []
    lines: list[tuple[int, int, int]] = []
    for client, hops in enumerate(problem.hops[:, nodes]):
        smaller = last = -1
        for radius in range(int(hops.max())):
            ball = hops <= radius
            number = numbers.setdefault(np.packbits(ball).tobytes(), len(members))
            if number == len(members):
                members.append(ball)
            if number != last:
                smaller = last if last >= 0 and members[last].any() else -1
                last = number
            lines.append((client, number, smaller))
    table = np.array(lines, np.int64).reshape(-1, 3)
    return Balls(np.array(members, np.bool_).reshape(-1, len(nodes)), table[:, 0], table[:, 1], table[:, 2])


def _largest(balls: int, at: Ints, smaller: Ints, sizes: Ints) -> Ints:
    """Return for each ball the largest of the smaller ones in it; -1 if there is none."""
    size = np.where(smaller < 0, 0, sizes[smaller])
    order = np.lexsort((-smaller, size))
    largest = np.full(balls, -1)
    largest[at[order]] = smaller[order]
    return largest
