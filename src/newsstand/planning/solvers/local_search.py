"""Local search from a plan to one that no small change improves (method `swap`).

A replica moves to another storage (*shift*), two storages trade a topic each (*exchange*), all that a storage
keeps moves to a node that keeps nothing (*relocate*), a topic gets one replica more (*add*), or a storage keeps
another topic instead (*replace*). The last two only where the limits of topics leave a choice.

For one topic, the cost of every swap of a keeper for another node follows from the nearest and the second nearest
keeper of each client (Whitaker 1983; Resende and Werneck 2007): N² steps for all k x N swaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.planning.problem import LARGEST, Hops, Ints, Plan, Problem
from newsstand.planning.replication import storages_allowed
from newsstand.planning.solvers.milp import as_plan

Bools = npt.NDArray[np.bool_]


class Change(NamedTuple):
    """The node that stops keeping a topic, and the one that starts to; either may be None."""

    topic: int
    leaves: int | None
    joins: int | None


class Move(NamedTuple):
    """Changes at once, and the rise of demand times hops that they cause."""

    rise: int
    changes: tuple[Change, ...]


class Deltas(NamedTuple):
    """The rises of one topic's traffic by single changes."""

    keepers: Ints
    swap: Ints
    """Row: the keeper that leaves; column: the node that joins."""
    join: Ints
    leave: Ints


def deltas(demand: Ints, hops: Hops, keepers: Ints) -> Deltas:
    """Return the rises of traffic of one topic with at least one keeper."""
    join = np.zeros(len(hops), np.int64)
    swap = np.zeros((len(keepers), len(hops)), np.int64)
    leave = np.zeros(len(keepers), np.int64)
    _add_clients(demand, hops, keepers, swap, join, leave)
    swap += join
    return Deltas(keepers, swap, join, leave)


@njit(cache=True, nogil=True)
def _add_clients(demand: Ints, hops: Hops, keepers: Ints, swap: Ints, join: Ints, leave: Ints) -> None:
    """Add to `swap` what differs from `join`: clients whose nearest keeper leaves and none as near joins."""
    nodes = len(demand)
    for client in range(nodes):
        asked = demand[client]
        if asked == 0:
            continue
        away = hops[client]
        nearest, near, second = 0, nodes, nodes
        for slot in range(len(keepers)):
            hop = int(away[keepers[slot]])
            if hop < near:
                nearest, near, second = slot, hop, near
            elif hop < second:
                second = hop
        leave[nearest] += asked * (second - near)
        lost = swap[nearest]
        for node in range(nodes):
            hop = int(away[node])
            if hop < near:
                join[node] -= asked * (near - hop)
            else:
                lost[node] += asked * (min(second, hop) - near)


class Neighbourhood:
    """A plan that can be changed step by step; nodes and topics from 0."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem = problem
        self.capacity = np.array(problem.capacity)
        self.storages = storages_allowed(problem)
        self.keeps = np.zeros(problem.demand.shape, np.bool_)
        for topic, name in enumerate(problem.topics):
            self.keeps[topic, np.array(plan.assignment[name], np.int64) - 1] = True
        self.deltas: dict[int, Deltas] = {}
        for topic in range(len(problem.topics)):
            self._evaluate(topic)

    def best(self) -> Move | None:
        """Return the move that saves most, among equals the first in the order of kinds; None if no move saves."""
        self.load: Ints = self.keeps.sum(axis=0)
        moves = (
            *self._shifts(),
            *self._exchanges(),
            *self._relocations(),
            *self._additions(),
            *self._replacements(),
        )
        best = min(moves, key=lambda move: move.rise, default=None)
        return best if best is not None and best.rise < 0 else None

    def make(self, move: Move) -> None:
        for topic, leaves, joins in move.changes:
            if leaves is not None:
                self.keeps[topic, leaves] = False
            if joins is not None:
                self.keeps[topic, joins] = True
        for topic in {change.topic for change in move.changes}:
            self._evaluate(topic)

    def _evaluate(self, topic: int) -> None:
        keepers = np.flatnonzero(self.keeps[topic])
        if len(keepers):
            self.deltas[topic] = deltas(self.problem.demand[topic], self.problem.hops, keepers)

    def _may_open(self) -> bool:
        return int((self.load > 0).sum()) < self.storages

    def _with_room(self, topic: int) -> Bools:
        """Nodes with room for a topic that they do not keep, storages or not."""
        room: Bools = (self.load < self.capacity) & ~self.keeps[topic]
        return room

    def _shifts(self) -> Iterator[Move]:
        for topic, of in self.deltas.items():
            allowed = np.tile(self._with_room(topic), (len(of.keepers), 1))
            if not self._may_open():
                emptied = self.load[of.keepers] == 1
                allowed &= (self.load > 0) | emptied[:, None]
            at = _lowest(of.swap, allowed)
            if at is not None:
                yield Move(int(of.swap[at]), (Change(topic, int(of.keepers[at[0]]), at[1]),))

    def _exchanges(self) -> Iterator[Move]:
        for (one, of_one), (other, of_other) in combinations(self.deltas.items(), 2):
            rows = np.flatnonzero(~self.keeps[other, of_one.keepers])
            columns = np.flatnonzero(~self.keeps[one, of_other.keepers])
            left, right = of_one.keepers[rows], of_other.keepers[columns]
            rise = of_one.swap[np.ix_(rows, right)] + of_other.swap[np.ix_(columns, left)].T
            at = _lowest(rise, np.ones_like(rise, np.bool_))
            if at is not None:
                leaves, joins = int(left[at[0]]), int(right[at[1]])
                yield Move(int(rise[at]), (Change(one, leaves, joins), Change(other, joins, leaves)))

    def _relocations(self) -> Iterator[Move]:
        storages = np.flatnonzero(self.load)
        rise = np.zeros((len(storages), len(self.load)), np.int64)
        for of in self.deltas.values():
            rise[np.searchsorted(storages, of.keepers)] += of.swap
        at = _lowest(rise, (self.load == 0) & (self.capacity >= self.load[storages, None]))
        if at is not None:
            old = int(storages[at[0]])
            topics = np.flatnonzero(self.keeps[:, old])
            yield Move(int(rise[at]), tuple(Change(int(topic), old, at[1]) for topic in topics))

    def _additions(self) -> Iterator[Move]:
        for topic, of in self._may_grow():
            allowed = self._with_room(topic)
            if not self._may_open():
                allowed &= self.load > 0
            at = _lowest(of.join[None], allowed[None])
            if at is not None:
                yield Move(int(of.join[at[1]]), (Change(topic, None, at[1]),))

    def _replacements(self) -> Iterator[Move]:
        for topic, of in self._may_grow():
            for other, of_other in self.deltas.items():
                if len(of_other.keepers) > max(1, self.problem.replication[other].least):
                    rise = of_other.leave + of.join[of_other.keepers]
                    at = _lowest(rise[None], ~self.keeps[topic, of_other.keepers][None])
                    if at is not None:
                        node = int(of_other.keepers[at[1]])
                        yield Move(int(rise[at[1]]), (Change(other, node, None), Change(topic, None, node)))

    def _may_grow(self) -> Iterator[tuple[int, Deltas]]:
        for topic, of in self.deltas.items():
            if len(of.keepers) < self.problem.replication[topic].most:
                yield topic, of


def _lowest(rise: Ints, allowed: Bools) -> tuple[int, int] | None:
    """Return the row and the column of the lowest allowed value, the first of equals."""
    if not allowed.any():
        return None
    at = int(np.where(allowed, rise, LARGEST).argmin())
    row, column = divmod(at, rise.shape[1])
    return row, column


def improve(problem: Problem, plan: Plan) -> Plan:
    """Make the best move until none saves traffic, within M, SC and the limits of topics.

    Storages of the result are the nodes that keep a topic. Nodes of the plan keep their order, new ones follow in
    ascending order.
    """
    neighbourhood = Neighbourhood(problem, plan)
    for _ in descent(neighbourhood):
        pass
    found = as_plan(problem, {topic: np.flatnonzero(row) for topic, row in enumerate(neighbourhood.keeps)})
    return replace(
        found,
        storages=_in_order(plan.storages, found.storages),
        assignment={name: _in_order(plan.assignment[name], now) for name, now in found.assignment.items()},
        possible=plan.possible,
    )


def _in_order(before: tuple[int, ...], now: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(now, key=lambda node: before.index(node) if node in before else len(before)))


def descent(neighbourhood: Neighbourhood) -> Iterator[Move]:
    """Yield the moves down to a local optimum, each after it is made."""
    while move := neighbourhood.best():
        neighbourhood.make(move)
        yield move
