"""Compiled loops over the states of a lumped chain: numbered multisets of local states.

A multiset is a row of n labels, the largest first. Its number counts the rows that come before it in lexicographic
order: the sum over places i = 0 … n-1 of C(label_i + n - 1 - i, n - i).
"""

from __future__ import annotations

from math import comb

import numpy as np
import numpy.typing as npt
from numba import njit

Labels = npt.NDArray[np.uint16]
Numbers = npt.NDArray[np.int32]
Pointers = npt.NDArray[np.int64]

MOST_LABELS = 65536
"""A label has two bytes."""


def multiset_count(members: int, labels: int) -> int:
    """Return the number of multisets of this many members out of this many labels."""
    return comb(members + labels - 1, members)


def number_table(members: int, labels: int) -> Pointers:
    """Return the term that a label at a place contributes to the number of its row."""
    return np.array(
        [
            [comb(label + members - 1 - place, members - place) for label in range(labels)]
            for place in range(members)
        ],
        dtype=np.int64,
    )


@njit(cache=True)
def all_rows(members: int, labels: int, count: int) -> Labels:
    """Return every multiset, in the order of the numbers."""
    rows = np.zeros((count, members), dtype=np.uint16)
    row = np.zeros(members, dtype=np.int64)
    for number in range(count):
        for place in range(members):
            rows[number, place] = row[place]
        place = members - 1
        while place > 0 and row[place] == row[place - 1]:
            row[place] = 0
            place -= 1
        row[place] += 1
    return rows


@njit(cache=True)
def number_after(row: Labels, gone: int, come: int, table: Pointers) -> int:
    """Return the number of the row after one member with the label `gone` has got the label `come`."""
    number = 0
    place = 0
    waiting = True
    left = True
    for old in range(row.size):
        label = row[old]
        if left and label == gone:
            left = False
            continue
        if waiting and come >= label:
            number += table[place, come]
            place += 1
            waiting = False
        number += table[place, label]
        place += 1
    if waiting:
        number += table[place, come]
    return number


@njit(cache=True)
def move_pointers(rows: Labels, first: Pointers) -> Pointers:
    """Return the first move of each row, if a member with label a has first[a + 1] - first[a] moves."""
    begins = np.zeros(rows.shape[0] + 1, dtype=np.int64)
    for number in range(rows.shape[0]):
        row = rows[number]
        moves = 0
        for place in range(row.size):
            if place == 0 or row[place] != row[place - 1]:
                moves += first[row[place] + 1] - first[row[place]]
        begins[number + 1] = begins[number] + moves
    return begins


@njit(cache=True)
def move_targets(rows: Labels, first: Pointers, come: Pointers, begins: Pointers, table: Pointers) -> Numbers:
    """Return the numbers of the rows that single members' moves lead to, label by label from the largest."""
    targets = np.empty(begins[-1], dtype=np.int32)
    for number in range(rows.shape[0]):
        row = rows[number]
        here = begins[number]
        for place in range(row.size):
            label = row[place]
            if place == 0 or label != row[place - 1]:
                for move in range(first[label], first[label + 1]):
                    targets[here] = number_after(row, label, come[move], table)
                    here += 1
    return targets


Floats = npt.NDArray[np.float64]


@njit(cache=True)
def copy_rates(rows: Labels, missed: Floats, copy_rate: float) -> Floats:
    """Return the rate at which an absent member gets a copy in each state; missed[a] is 1 - reach of label a."""
    rates = np.empty(rows.shape[0])
    for number in range(rows.shape[0]):
        none = 1.0
        for label in rows[number]:
            if label > 0:
                none *= missed[label]
        rates[number] = copy_rate * (1.0 - none)
    return rates


@njit(cache=True)
def leaving_rates(
    rows: Labels, first: Pointers, own: Floats, extra: Floats, push_rates: Floats, copies: Floats
) -> Floats:
    """Return the total rate of single members' moves out of each state."""
    rates = np.empty(rows.shape[0])
    for number in range(rows.shape[0]):
        row = rows[number]
        holders = np.count_nonzero(row)
        total = 0.0
        for label in row:
            if label == 0:
                total += copies[number]
            else:
                for move in range(first[label], first[label + 1]):
                    total += own[move] + push_rates[holders] * extra[move]
        rates[number] = total
    return rates


@njit(cache=True)
def add_moves(
    values: Floats,
    result: Floats,
    rows: Labels,
    first: Pointers,
    own: Floats,
    extra: Floats,
    push_rates: Floats,
    copies: Floats,
    begins: Pointers,
    targets: Numbers,
) -> None:
    """Add to `result` the rates of single members' moves times the values of their targets."""
    members = rows.shape[1]
    for number in range(1, rows.shape[0]):
        row = rows[number]
        holders = np.count_nonzero(row)
        push = push_rates[holders]
        here = begins[number]
        total = 0.0
        place = 0
        while place < members:
            label = row[place]
            end = place + 1
            while end < members and row[end] == label:
                end += 1
            if label == 0:
                total += (end - place) * copies[number] * values[targets[here]]
            else:
                part = 0.0
                for move in range(first[label], first[label + 1]):
                    part += (own[move] + push * extra[move]) * values[targets[here]]
                    here += 1
                total += (end - place) * part
            place = end
        result[number] += total


@njit(cache=True)
def together(rows: Labels, likely: Pointers, chances: Floats, table: Pointers) -> tuple[Numbers, Floats]:
    """Return target and probability of a common event that moves every holder to its likeliest label."""
    members = rows.shape[1]
    targets = np.empty(rows.shape[0], dtype=np.int32)
    joint = np.empty(rows.shape[0])
    moved = np.empty(members, dtype=np.int64)
    for number in range(rows.shape[0]):
        chance = 1.0
        for place in range(members):
            label = rows[number, place]
            moved[place] = likely[label]
            if label > 0:
                chance *= chances[label]
        moved.sort()
        target = 0
        for place in range(members):
            target += table[place, moved[members - 1 - place]]
        targets[number] = target
        joint[number] = chance if target < number else 0.0
    return targets, joint


@njit(cache=True)
def sweep(
    values: Floats,
    shift: float,
    common_rate: float,
    rows: Labels,
    first: Pointers,
    own: Floats,
    common: Floats,
    likely: Floats,
    extra: Floats,
    push_rates: Floats,
    copies: Floats,
    begins: Pointers,
    targets: Numbers,
    joint_targets: Numbers,
    joint: Floats,
) -> Floats:
    """Solve a system approximately, with the moves to smaller numbers only, the smallest number first.

    The common event either moves all holders to their likeliest label, or one of them, at rates that preserve how
    often each one moves.
    """
    members = rows.shape[1]
    result = np.zeros_like(values)
    for number in range(1, rows.shape[0]):
        row = rows[number]
        holders = 0
        while holders < members and row[holders] > 0:
            holders += 1
        push = push_rates[holders]
        here = begins[number]
        chance = joint[number]
        gained = values[number] + common_rate * chance * result[joint_targets[number]]
        leaving = shift + common_rate * chance + (members - holders) * copies[number]
        place = 0
        while place < holders:
            label = row[place]
            end = place + 1
            while end < holders and row[end] == label:
                end += 1
            part = 0.0
            total = 0.0
            for move in range(first[label], first[label + 1]):
                target = targets[here]
                here += 1
                rate = own[move] + push * extra[move] + common_rate * (common[move] - likely[move] * chance)
                total += rate
                if target < number:
                    part += rate * result[target]
            gained += (end - place) * part
            leaving += (end - place) * total
            place = end
        result[number] = gained / leaving
    return result


@njit(cache=True)
def holders_of(rows: Labels, label: int) -> Numbers:
    """Return the numbers of the states in which a member has the label, ascending."""
    count = 0
    for number in range(rows.shape[0]):
        for other in rows[number]:
            if other == label:
                count += 1
                break
    found = np.empty(count, dtype=np.int32)
    count = 0
    for number in range(rows.shape[0]):
        for other in rows[number]:
            if other == label:
                found[count] = number
                count += 1
                break
    return found


@njit(cache=True)
def step_targets(
    rows: Labels, sources: Numbers, gone: int, come: int, table: Pointers
) -> tuple[Numbers, Numbers, npt.NDArray[np.uint8]]:
    """Return for each source the target of one step, its place among the sources, and how many may step."""
    targets = np.empty(sources.size, dtype=np.int32)
    places = np.empty(sources.size, dtype=np.int32)
    counts = np.empty(sources.size, dtype=np.uint8)
    for source in range(sources.size):
        row = rows[sources[source]]
        targets[source] = number_after(row, gone, come, table)
        places[source] = np.searchsorted(sources, targets[source])
        counts[source] = np.sum(row == gone)
    return targets, places, counts


@njit(cache=True)
def take_step(
    values: Floats,
    scratch: Floats,
    sources: Numbers,
    targets: Numbers,
    places: Numbers,
    counts: npt.NDArray[np.uint8],
    binomial: Floats,
) -> None:
    """Replace values, in place, by their expectations after the members of each source stepped or not."""
    for source in range(sources.size):
        count = counts[source]
        total = binomial[count, 0] * values[sources[source]]
        place = source
        for moved in range(1, count + 1):
            total += binomial[count, moved] * values[targets[place]]
            place = places[place]
        scratch[source] = total
    for source in range(sources.size):
        values[sources[source]] = scratch[source]
