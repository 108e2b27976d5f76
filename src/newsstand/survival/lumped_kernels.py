"""Compiled loops over the states of a lumped chain."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.survival.multisets import Labels, Numbers, Pointers, number_after

Floats = npt.NDArray[np.float64]


@njit(cache=True)
def copy_rates(rows: Labels, missed: Floats, copy_rate: float) -> Floats:
    """At which rate an absent member gets a copy, in each state; missed[a] is 1 - reach of label a."""
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
    """The total rate of single members' moves out of each state."""
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
    """Add to `result` the rates of single members' moves times the values where they lead."""
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
    """Where a common event leads that moves every holder to its likeliest label, and how probable that is."""
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
    """Nearly solve a system: as if there were only moves to smaller numbers, the smallest number first.

    The common event either moves all holders to their likeliest label, or one of them, at rates that keep right
    how often each one is moved.
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
    """The numbers of the states in which somebody has the label, ascending."""
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
    """For each source: where one member's step leads, the place of that among them, and how many may step."""
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
    """Replace values by their expectation after each of the members in question stepped or not; in place."""
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
