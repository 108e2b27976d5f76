"""Large systems of equations, given only as what they do to a column."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from numba import njit

Floats = npt.NDArray[np.float64]
Linear = Callable[[Floats], Floats]

MOST_STEPS = 1500


@njit(cache=True, fastmath={"reassoc", "contract"})
def dot(left: Floats, right: Floats) -> float:
    """The product of two columns, on this thread: those of a library wait for each other."""
    total = 0.0
    for place in range(left.size):
        total += left[place] * right[place]
    return total


def length_of(values: Floats) -> float:
    """The Euclidean norm."""
    return math.sqrt(dot(values, values))


def bicgstab(operator: Linear, improved: Linear, values: Floats, precision: float) -> Floats:
    """Solve operator(x) = values by stabilized biconjugate gradients (van der Vorst 1992).

    `improved` gives a rough solution for a right-hand side: the preconditioner, applied from the right.
    Ends when the norm of the residual is at most `precision` times that of `values`.
    """
    target = precision * length_of(values)
    solution = improved(values)
    residual = values - operator(solution)
    shadow, direction = residual.copy(), residual.copy()
    product = dot(shadow, residual)
    for _ in range(MOST_STEPS):
        if length_of(residual) <= target or product == 0.0:
            residual = values - operator(solution)
            if length_of(residual) <= target:
                return solution
            shadow, direction = residual.copy(), residual.copy()
            product = dot(shadow, residual)
        better = improved(direction)
        image = operator(better)
        length = product / dot(shadow, image)
        solution += length * better
        residual -= length * image
        if length_of(residual) <= target:
            continue
        better = improved(residual)
        change = operator(better)
        weight = dot(change, residual) / dot(change, change)
        solution += weight * better
        residual -= weight * change
        before, product = product, dot(shadow, residual)
        direction = residual + (product / before) * (length / weight) * (direction - weight * image)
    raise ArithmeticError(f"no solution after {MOST_STEPS} steps")
