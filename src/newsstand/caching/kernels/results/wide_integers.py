"""Sums, products and quotients of integers beyond 64 bits, for compiled code.

A sum is a row of an array: its low and its high 64 bits. Everything is unsigned.
"""

import numpy as np
import numpy.typing as npt

from newsstand.caching.kernels import borrowing

Sums = npt.NDArray[np.uint64]
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_TOP = np.uint64(63)


def new_sums(number: int) -> Sums:
    """Return a number of sums, all zero."""
    return np.zeros((number, 2), np.uint64)


def totals(sums: Sums) -> list[int]:
    """Return the sums as integers."""
    return [high << 64 | low for low, high in sums.tolist()]


@borrowing(cache=True, forceinline=True)
def add(sums, which, value):  # type: ignore[no-untyped-def]
    """Add a number of 63 bits."""
    low = sums[which, 0] + np.uint64(value)
    if low < np.uint64(value):
        sums[which, 1] += _ONE
    sums[which, 0] = low


@borrowing(cache=True, forceinline=True)
def take(sums, which, value):  # type: ignore[no-untyped-def]
    """Subtract a number of 63 bits from a sum that is not smaller."""
    if sums[which, 0] < np.uint64(value):
        sums[which, 1] -= _ONE
    sums[which, 0] -= np.uint64(value)


@borrowing(cache=True, forceinline=True)
def add_product(sums, which, one, other):  # type: ignore[no-untyped-def]
    """Add the product of two numbers of 63 bits."""
    low, high = product(np.uint64(one), np.uint64(other))
    low += sums[which, 0]
    if low < sums[which, 0]:
        high += _ONE
    sums[which, 0] = low
    sums[which, 1] += high


@borrowing(cache=True, forceinline=True)
def product(one, other):  # type: ignore[no-untyped-def]
    """Return both words of a product of two words, the low one first."""
    one_low, one_high = one & _LOW_HALF, one >> _HALF
    other_low, other_high = other & _LOW_HALF, other >> _HALF
    low = one_low * other_low
    middle = one_high * other_low + (low >> _HALF)
    crossed = one_low * other_high + (middle & _LOW_HALF)
    high = one_high * other_high + (middle >> _HALF) + (crossed >> _HALF)
    return (crossed << _HALF) | (low & _LOW_HALF), high


@borrowing(cache=True)
def quotient(low, high, divisor):  # type: ignore[no-untyped-def]
    """Return (low word, high word, remainder) of the quotient of two words by one of at most 63 bits."""
    above = high // divisor
    rest = high % divisor
    if rest == 0:
        return low // divisor, above, low % divisor
    below = np.uint64(0)
    for _ in range(64):
        rest = (rest << _ONE) | (low >> _TOP)
        low <<= _ONE
        below <<= _ONE
        if rest >= divisor:
            rest -= divisor
            below |= _ONE
    return below, above, rest


@borrowing(cache=True)
def share(part, total, low, high, divisor, most):  # type: ignore[no-untyped-def]
    """Return min(most, floor(part * amount / (total * divisor))), amount in two words, part <= total < 2^31."""
    # floor(floor(part * amount / total) / divisor) is equal, and no step takes more than two words.
    each_low, each_high, rest = quotient(low, high, np.uint64(total))
    given_low, given_high = product(np.uint64(part), each_low)
    given_high += np.uint64(part) * each_high
    left_over = np.uint64(part) * rest // np.uint64(total)
    given_low += left_over
    if given_low < left_over:
        given_high += _ONE
    found, beyond, _ = quotient(given_low, given_high, np.uint64(divisor))
    if beyond != 0 or found > np.uint64(most):
        return most
    return np.int64(found)
