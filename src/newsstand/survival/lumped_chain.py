"""The lumped chain of exchangeable brokers: states are multisets of local states (Sourlas et al. 2011, section 6).

Each broker has a local state of one message, for instance the slot of its copy. In local state 0 the message is
absent; when it is absent everywhere, it is lost. Lumping is exact because the brokers are exchangeable. The matrix
is not written out, as a common event leads from one state to up to 2^n others. It is applied as a product of
steps, one for each local state, in each of which a binomial number of members moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from scipy import special

from newsstand.errors import BadOption
from newsstand.survival import lumped_kernels as kernels
from newsstand.survival.absorbing_chain import PRECISION, Chain, Floats, SparseChain, bicgstab
from newsstand.survival.lumped_kernels import (
    MOST_LABELS,
    Labels,
    Pointers,
    all_rows,
    move_pointers,
    move_targets,
    multiset_count,
    number_table,
)


@dataclass(frozen=True)
class ExchangeableBrokers:
    """`brokers` equal members with L local states each, L the length of `entry`.

    Systems of equations are solved faster if moves towards the loss of a message lead to higher numbers of states.
    """

    brokers: int
    slots: int
    """Slots of a cache; only for errors about too large systems."""
    entry: Floats
    """The distribution of a member's state when the message is published; members are independent."""
    local: Floats
    """L x L: rates of a holder's own moves, independent of all others. Row 0 and the diagonal are empty."""
    pushed: Floats
    """L x L: further moves of a holder, whose rates are multiplied by push_rates[number of holders]."""
    push_rates: Floats
    """For 0 … n holders."""
    common: Floats
    """L x L, stochastic: the moves of every member at a common event, independently. Common events alone never
    lead back to a state that a member has left."""
    common_rate: float
    reachable: Floats
    """For each local state, the probability that a request reaches a holder in it."""
    copy_rate: float
    """An absent member gets a copy at this rate times the probability that a request reaches any holder."""
    copy_to: int = 1

    def __post_init__(self) -> None:
        states = self.entry.size
        square = (states, states)
        if not self.local.shape == self.pushed.shape == self.common.shape == square:
            raise ValueError(f"rates of {states} local states must be {square}")
        if self.push_rates.shape != (self.brokers + 1,) or self.reachable.shape != (states,):
            raise ValueError("push_rates: one for each number of holders; reachable: one for each state")
        if self.local[0].any() or self.pushed[0].any() or self.common[0, 0] != 1.0:
            raise ValueError("an absent message comes back by copies only")
        if not np.allclose(self.common.sum(axis=1), 1.0) or (self.common < 0).any():
            raise ValueError("common must be stochastic")

    def common_steps(self) -> list[tuple[int, int, float]]:
        """Return the common event as a sequence of steps (from, to, probability).

        Each member in the first state takes the step with the probability. The steps from a state come after those
        from the states that it leads to, so that no member moves twice.
        """
        steps: list[tuple[int, int, float]] = []
        done: set[int] = set()
        path: set[int] = set()

        def leave(state: int) -> None:
            if state in path:
                raise ValueError("common events lead back to a state")
            if state in done:
                return
            path.add(state)
            targets = [int(target) for target in np.flatnonzero(self.common[state]) if target != state]
            for target in targets:
                leave(target)
            path.remove(state)
            done.add(state)
            rest = 1.0
            for target in targets:
                chance = float(self.common[state, target])
                steps.append((state, target, min(1.0, chance / rest)))
                rest -= chance

        for state in range(self.entry.size):
            leave(state)
        return steps


FEW = 600
"""Chains with fewer states are solved by elimination."""
MOST_MEMBERS = 255
"""Members are counted in one byte."""
MOST_PLACES = 60_000_000
"""The size of the table of states: states times brokers."""
MOST = 6_000_000
"""The largest number of states, which takes 500 bytes for each state, and minutes."""
HINT = "try the method simulate"
"""The end of errors where no model has an answer."""


def reject_too_many(brokers: int, slots: int, states: int) -> None:
    """Reject a chain with too many states to be solved."""
    if brokers > MOST_MEMBERS:
        raise BadOption(f"the chain of several takes at most {MOST_MEMBERS}; {HINT}", brokers=brokers)
    size = multiset_count(brokers, states)
    if size > MOST or states > MOST_LABELS or size * brokers > MOST_PLACES:
        size_text = f"{size:,}" if size < 10**15 else "more than 1e15"
        raise BadOption(f"make {size_text} states, more than can be solved; {HINT}", brokers=brokers, slots=slots)


def lumped_chain(system: ExchangeableBrokers) -> Chain:
    """Return the chain of an exchangeable system in the form that suits its size."""
    reject_too_many(system.brokers, system.slots, system.entry.size)
    return compact_form(LumpedChain(system))


def compact_form(chain: LumpedChain) -> Chain:
    """Return an equal chain, written out if it is small."""
    return chain.written_out() if chain.entry.size < FEW else chain


class LumpedChain:
    """An exchangeable system as an absorbing chain.

    Local states are relabelled so that absent is 0 and the others descend to 1: a move towards the loss of a
    message lowers the number of the multiset. The loss has number 0, transient state i has number i + 1.
    """

    def __init__(self, system: ExchangeableBrokers) -> None:
        self.system = system
        states = system.entry.size
        count = multiset_count(system.brokers, states)
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
        """Return Tr times a column: the rate at which the expectation of `values` changes from each state."""
        return -self._operator(values, 0.0)

    def solve(self, values: Floats, shift: float = 0.0, precision: float = PRECISION) -> Floats:
        def improved(residual: Floats) -> Floats:
            return self._moves.sweep(_with_loss(residual), shift)[1:]

        try:
            return bicgstab(lambda column: self._operator(column, shift), improved, values, precision)
        except ArithmeticError:
            raise BadOption(
                f"so different that {self.entry.size:,} states found no solution; {HINT}",
                client_rate=self.system.copy_rate,
                publish_rate=self.system.common_rate,
            ) from None

    @property
    def copying(self) -> Floats:
        """The total rate of copies to members in each transient state."""
        return np.asarray((np.count_nonzero(self.rows == 0, axis=1) * self._moves.copies)[1:])

    def written_out(self) -> SparseChain:
        """Return an equal chain with a matrix, for few states."""
        size = self.rows.shape[0]
        rates = np.column_stack([self._gained(column) for column in np.eye(size)])
        return SparseChain(self.entry, rates[1:, 1:], rates[1:, 0])

    def _operator(self, values: Floats, shift: float) -> Floats:
        """Return (shift I - Tr) times a column."""
        column = _with_loss(values)
        leaving = self._moves.leaving + (self.system.common_rate + shift)
        return np.asarray(leaving * column - self._gained(column))[1:]

    def _gained(self, column: Floats) -> Floats:
        """Return the rates of all moves, also to the same state, times the values of their targets."""
        gained = column.copy()
        for step in reversed(self._steps):
            step.take(gained, self._scratch)
        gained *= self.system.common_rate
        self._moves.add(column, gained)
        return gained

    def _entries(self, table: Pointers) -> Floats:
        """Return the multinomial distribution of independent entries."""
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
    """The moves of single members: their rates by label, and their targets from each multiset."""

    def __init__(self, system: ExchangeableBrokers, rows: Labels, table: Pointers) -> None:
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
        left = np.maximum(number[:, None] - number, 0)
        # `scipy.stats` has this, too, but takes most of a second to load.
        self.binomial = special.binom(number[:, None], number) * chance**number * (1 - chance) ** left

    def take(self, values: Floats, scratch: Floats) -> None:
        kernels.take_step(values, scratch, self.sources, self.targets, self.places, self.counts, self.binomial)


def _label(state: int, states: int) -> int:
    return (states - state) % states


def _with_loss(values: Floats) -> Floats:
    return np.concatenate([[0.0], values])
