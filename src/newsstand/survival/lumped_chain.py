"""The chain of several brokers, lumped: states are multisets of local states, the matrix is not written out.

Lumping is exact because the brokers are exchangeable. A common event would lead from one state to up to 2^n
others; it is applied as a product of steps instead, one for each local state, in each of which a binomial number
moves.
"""

from __future__ import annotations

from math import comb

import numpy as np
from scipy.stats import binom

from newsstand.errors import BadOption
from newsstand.survival import lumped_kernels as kernels
from newsstand.survival.chain import PRECISION, Chain, Floats, SparseChain
from newsstand.survival.exchangeable import Exchangeable
from newsstand.survival.krylov import bicgstab
from newsstand.survival.multisets import (
    MOST_LABELS,
    Labels,
    Pointers,
    all_rows,
    how_many,
    move_pointers,
    move_targets,
    number_table,
)

FEW = 600
"""So many states are solved by elimination."""
MOST_MEMBERS = 255
"""As many as are counted in a byte."""
MOST_PLACES = 60_000_000
"""States times brokers: what is listed."""
MOST = 6_000_000
"""So many states are solved at all: some 500 bytes each, and minutes."""
INSTEAD = "try --method simulate"
"""What answers where no model does."""


def refuse_too_many(brokers: int, slots: int, states: int) -> None:
    """Say at once that a chain of so many local states a broker cannot be solved."""
    if brokers > MOST_MEMBERS:
        raise BadOption(f"--brokers {brokers}: the chain of several takes at most {MOST_MEMBERS}; {INSTEAD}")
    size = how_many(brokers, states)
    if size > MOST or states > MOST_LABELS or size * brokers > MOST_PLACES:
        told = f"{size:,}" if size < 10**15 else "more than 1e15"
        raise BadOption(
            f"--brokers {brokers}, --slots {slots}: make {told} states, more than can be solved; {INSTEAD}"
        )


def lumped(system: Exchangeable) -> Chain:
    """The chain of an exchangeable system in the form that suits its size."""
    refuse_too_many(system.brokers, system.slots, system.entry.size)
    return suited(LumpedChain(system))


def suited(chain: LumpedChain) -> Chain:
    """The same chain, written out if it is small."""
    return chain.written_out() if chain.entry.size < FEW else chain


class LumpedChain:
    """An exchangeable system as an absorbing chain.

    Local states are relabelled so that absent is 0 and the others descend to 1: what brings a message closer to
    its loss lowers the number of the multiset, the loss itself has number 0, and transient state i has number i +
    1.
    """

    def __init__(self, system: Exchangeable) -> None:
        self.system = system
        states = system.entry.size
        count = how_many(system.brokers, states)
        table = number_table(system.brokers, states)
        self.rows = all_rows(system.brokers, states, count)
        self._moves = _Moves(system, self.rows, table)
        self._steps = [
            _Step(self.rows, _label(gone, states), _label(come, states), chance, table)
            for gone, come, chance in system.common_steps()
        ]
        self._scratch = np.empty(max([1, *(step.sources.size for step in self._steps)]))
        self.entry = self._entries(table)[1:]

    def apply(self, values: Floats) -> Floats:
        return -self._operator(values, 0.0)

    def solve(self, values: Floats, shift: float = 0.0, precision: float = PRECISION) -> Floats:
        def improved(residual: Floats) -> Floats:
            return self._moves.sweep(_with_loss(residual), shift)[1:]

        try:
            return bicgstab(lambda column: self._operator(column, shift), improved, values, precision)
        except ArithmeticError:
            raise BadOption(
                f"--client-rate {self.system.copy_rate:g}, --publish-rate {self.system.common_rate:g}: so "
                f"different that {self.entry.size:,} states found no solution; {INSTEAD}"
            ) from None

    @property
    def copying(self) -> Floats:
        """The rate at which copies are made in each transient state, into all members that lack one together."""
        return np.asarray((np.count_nonzero(self.rows == 0, axis=1) * self._moves.copies)[1:])

    def written_out(self) -> SparseChain:
        """The same chain with a matrix, for few states."""
        size = self.rows.shape[0]
        rates = np.column_stack([self._gained(column) for column in np.eye(size)])
        return SparseChain(self.entry, rates[1:, 1:], rates[1:, 0])

    def _operator(self, values: Floats, shift: float) -> Floats:
        """(shift I - Tr) times a column."""
        column = _with_loss(values)
        leaving = self._moves.leaving + (self.system.common_rate + shift)
        return np.asarray(leaving * column - self._gained(column))[1:]

    def _gained(self, column: Floats) -> Floats:
        """The rates of all moves, those to the same state included, times the values where they lead."""
        gained = column.copy()
        for step in reversed(self._steps):
            step.take(gained, self._scratch)
        gained *= self.system.common_rate
        self._moves.add(column, gained)
        return gained

    def _entries(self, table: Pointers) -> Floats:
        """The multinomial law of independent entries, written only where it is not 0."""
        states = self.system.entry.size
        possible = [(int(state), float(self.system.entry[state])) for state in np.flatnonzero(self.system.entry)]
        possible.sort(key=lambda pair: -_label(pair[0], states))
        entry = np.zeros(self.rows.shape[0])

        def fill(number: int, place: int, chance: float, rest: list[tuple[int, float]]) -> None:
            left = self.system.brokers - place
            if not rest:
                if left == 0:
                    entry[number] = chance
                return
            (state, share), others = rest[0], rest[1:]
            for members in range(left + 1):
                fill(number, place + members, chance * comb(left, members) * share**members, others)
                if members < left:
                    number += int(table[place + members, _label(state, states)])

        fill(0, 0, 1.0, possible)
        return entry


class _Moves:
    """Single members' moves: their rates by label, and where they lead from each multiset."""

    def __init__(self, system: Exchangeable, rows: Labels, table: Pointers) -> None:
        states = system.entry.size
        apart = np.where(np.eye(states, dtype=bool), 0.0, 1.0)
        common = system.common * apart
        happens = (system.local * apart != 0) | (system.pushed * apart != 0) | (common != 0)
        likeliest = np.where(common.max(axis=1) > 0, common.argmax(axis=1), np.arange(states))
        rates, come, first = [(0.0, 0.0, 0.0, 0.0)], [_label(system.copy_to, states)], [0, 1]
        for label in range(1, states):
            state = states - label
            for target in np.flatnonzero(happens[state]):
                likely = float(target == likeliest[state])
                rates.append(
                    (system.local[state, target], system.pushed[state, target], common[state, target], likely)
                )
                come.append(_label(int(target), states))
            first.append(len(come))
        self.rows = rows
        self.first = np.array(first, dtype=np.int64)
        self.own, self.extra, self.common, self.likely = np.array(rates).T.copy()
        self.common_rate = system.common_rate
        self.push_rates = system.push_rates
        relabelled = (states - np.arange(states)) % states
        self.copies = kernels.copy_rates(rows, 1.0 - system.reachable[relabelled], system.copy_rate)
        self.begins = move_pointers(rows, self.first)
        self.targets = move_targets(rows, self.first, np.array(come, dtype=np.int64), self.begins, table)
        self.leaving = kernels.leaving_rates(rows, self.first, self.own, self.extra, self.push_rates, self.copies)
        leads_to = np.array([_label(int(likeliest[state]), states) for state in relabelled], dtype=np.int64)
        chances = common.max(axis=1)[relabelled]
        self.joint_targets, self.joint = kernels.together(rows, leads_to, chances, table)

    def add(self, values: Floats, result: Floats) -> None:
        rates = (self.own, self.extra, self.push_rates, self.copies)
        kernels.add_moves(values, result, self.rows, self.first, *rates, self.begins, self.targets)

    def sweep(self, values: Floats, shift: float) -> Floats:
        rates = (self.own, self.common, self.likely, self.extra, self.push_rates, self.copies)
        leads = (self.begins, self.targets, self.joint_targets, self.joint)
        return np.asarray(
            kernels.sweep(values, shift, self.common_rate, self.rows, self.first, *rates, *leads), dtype=np.float64
        )


class _Step:
    """One step of the common event."""

    def __init__(self, rows: Labels, gone: int, come: int, chance: float, table: Pointers) -> None:
        self.sources = kernels.holders_of(rows, gone)
        self.targets, self.places, self.counts = kernels.step_targets(rows, self.sources, gone, come, table)
        number = np.arange(rows.shape[1] + 1)
        self.binomial = np.asarray(binom.pmf(number[None, :], number[:, None], chance))

    def take(self, values: Floats, scratch: Floats) -> None:
        kernels.take_step(values, scratch, self.sources, self.targets, self.places, self.counts, self.binomial)


def _label(state: int, states: int) -> int:
    return (states - state) % states


def _with_loss(values: Floats) -> Floats:
    return np.concatenate([[0.0], values])
