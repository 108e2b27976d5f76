"""Equal things that hold copies of one message, each in a local state of its own, and what moves them.

A general form of the chain of several brokers (Sourlas et al. 2011, section 6), into which other local states than
slots can be put. Local state 0 means that the message is absent; when it is absent everywhere, it is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Exchangeable:
    """`brokers` equal members with L local states each, L the length of `entry`.

    States should be numbered so that what brings a message closer to its loss raises the number: systems of
    equations are then solved faster.
    """

    brokers: int
    slots: int
    """Of a cache; only to say which option made the system too large."""
    entry: Floats
    """The distribution of a member's state when the message is published; members are independent."""
    local: Floats
    """L x L: rates of a holder's own moves, independent of all others. Row 0 and the diagonal are empty."""
    pushed: Floats
    """L x L: further moves of a holder, whose rates are multiplied by push_rates[number of holders]."""
    push_rates: Floats
    """For 0 … n holders."""
    common: Floats
    """L x L, stochastic: what a common event does to every member, independently. No member may come back to a
    state by common events alone, but by staying there."""
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
            raise ValueError(
                "there must be a push rate for every number of holders, and one reach for every state"
            )
        if self.local[0].any() or self.pushed[0].any() or self.common[0, 0] != 1.0:
            raise ValueError("an absent message comes back by copies only")
        if not np.allclose(self.common.sum(axis=1), 1.0) or (self.common < 0).any():
            raise ValueError("common must be stochastic")

    def common_steps(self) -> list[tuple[int, int, float]]:
        """The common event as single steps (from, to, probability), to be taken one after the other.

        All members in one state take the step, each with its probability. A state is left only after those that it
        leads to, so nobody is moved twice.
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
