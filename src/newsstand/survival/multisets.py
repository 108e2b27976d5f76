"""Multisets of local states, numbered: what is left of n equal brokers when nobody asks which is which.

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


def how_many(members: int, labels: int) -> int:
    """The number of multisets of so many members out of so many labels."""
    return comb(members + labels - 1, members)


def number_table(members: int, labels: int) -> Pointers:
    """What a label at a place adds to the number of its row."""
    return np.array(
        [
            [comb(label + members - 1 - place, members - place) for label in range(labels)]
            for place in range(members)
        ],
        dtype=np.int64,
    )


@njit(cache=True)
def all_rows(members: int, labels: int, count: int) -> Labels:
    """Every multiset, in the order of the numbers."""
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
    """The number of the row after one member with the label `gone` has got the label `come`."""
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
    """Where the moves of each row begin, when a member with label a has first[a + 1] - first[a] of them."""
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
    """The numbers of the rows that single members' moves lead to, label by label from the largest."""
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
