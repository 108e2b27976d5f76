"""Who is online and subscribed to what in a replay, and what coming and going does to the result caches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newsstand.caching.kernels import results_broker as state
from newsstand.caching.kernels.results_jit import borrowing
from newsstand.caching.kernels.results_sums import add
from newsstand.caching.kernels.results_table import ResultTable

PERSON = np.dtype([("first_pair", np.int32), ("subscribed", np.int32), ("online", np.int32)], align=True)

PAIR = np.dtype(
    [
        ("subscription", np.int32),
        ("active", np.int32),  # in the n-th pair of a subscriber: its n-th pair that is subscribed
        ("place", np.int32),  # the n of this one, -1 if it is not subscribed
        ("acked", np.int32),  # the position up to which somebody offline has everything
    ],
    align=True,
)
"""A subscriber and a subscription that it ever makes."""


class Crowd(NamedTuple):
    """The subscribers, one more than there are, and the pairs of each side by side."""

    people: npt.NDArray[np.void]
    pairs: npt.NDArray[np.void]


def new_crowd(table: ResultTable) -> Crowd:
    """Everybody offline."""
    people = np.zeros(len(table.first_pair), PERSON)
    people["first_pair"] = table.first_pair
    pairs = np.zeros(len(table.paired_with), PAIR)
    pairs["subscription"] = table.paired_with
    pairs["place"] = -1
    return Crowd(people, pairs)


@borrowing(cache=True, forceinline=True)
def login(broker, crowd, rules, who):  # type: ignore[no-untyped-def]
    """Let somebody come and retrieve all that is pending; False if it is here."""
    person = crowd.people[who]
    if person.online:
        return False
    person.online = 1
    for place in range(person.first_pair, person.first_pair + person.subscribed):
        pair = crowd.pairs[crowd.pairs[place].active]
        which = np.int64(pair.subscription)
        cache = broker.caches[which]
        after = stop_waiting(broker, cache, pair)
        cache.online += 1
        if after < cache.newest:
            state.retrieve(broker, rules, cache, after)
            state.sweep(broker, rules, which, state.CONSUMED)
    return True


@borrowing(cache=True, forceinline=True)
def logout(broker, crowd, who):  # type: ignore[no-untyped-def]
    """Let somebody go; False if it is not here."""
    person = crowd.people[who]
    if not person.online:
        return False
    person.online = 0
    for place in range(person.first_pair, person.first_pair + person.subscribed):
        pair = crowd.pairs[crowd.pairs[place].active]
        cache = broker.caches[pair.subscription]
        cache.online -= 1
        wait(broker, cache, pair)
    return True


@borrowing(cache=True, forceinline=True)
def subscribe(broker, crowd, who, which):  # type: ignore[no-untyped-def]
    """Attach somebody; False if it is attached already."""
    person, cache = crowd.people[who], broker.caches[which]
    number = find(crowd, who, which)
    pair = crowd.pairs[number]
    if pair.place >= 0:
        return False
    pair.place = person.subscribed
    crowd.pairs[person.first_pair + person.subscribed].active = number
    person.subscribed += 1
    cache.subscribers += 1
    if not cache.measured:
        cache.measured = 1
        broker.numbers[state.MEASURED] += 1
    if person.online:
        cache.online += 1
    else:
        wait(broker, cache, pair)
    return True


@borrowing(cache=True, forceinline=True)
def unsubscribe(broker, crowd, rules, who, which):  # type: ignore[no-untyped-def]
    """Detach somebody, and remove what only it waited for; False if it is not attached."""
    number = find(crowd, who, which)
    if number < 0 or crowd.pairs[number].place < 0:
        return False
    person, cache, pair = crowd.people[who], broker.caches[which], crowd.pairs[number]
    person.subscribed -= 1
    last = crowd.pairs[person.first_pair + person.subscribed].active
    crowd.pairs[person.first_pair + pair.place].active = last
    crowd.pairs[last].place = pair.place
    pair.place = -1
    cache.subscribers -= 1
    if person.online:
        cache.online -= 1
    else:
        add(broker.sums, state.UNDELIVERED, cache.newest - stop_waiting(broker, cache, pair))
    state.sweep(broker, rules, which, state.ABANDONED)
    return True


@borrowing(cache=True, forceinline=True)
def find(crowd, who, which):  # type: ignore[no-untyped-def]
    """The pair of a subscriber and a subscription, -1 if it is never made."""
    low, end = np.int64(crowd.people[who].first_pair), np.int64(crowd.people[who + 1].first_pair)
    high = end
    while low < high:
        middle = (low + high) >> 1
        if crowd.pairs[middle].subscription < which:
            low = middle + 1
        else:
            high = middle
    return low if low < end and crowd.pairs[low].subscription == which else -1


@borrowing(cache=True, forceinline=True)
def wait(broker, cache, pair):  # type: ignore[no-untyped-def]
    """Let somebody who has everything wait, offline, for what comes."""
    newest = cache.newest
    pair.acked = newest
    broker.acked_at[newest] += 1
    if newest < cache.tail:
        cache.behind += 1


@borrowing(cache=True, forceinline=True)
def stop_waiting(broker, cache, pair):  # type: ignore[no-untyped-def]
    """Take somebody offline out of those who wait; the position up to which it had everything."""
    after = np.int64(pair.acked)
    broker.acked_at[after] -= 1
    if after < cache.tail:
        cache.behind -= 1
    return after


@borrowing(cache=True)
def pending(broker, crowd):  # type: ignore[no-untyped-def]
    """How many results wait for how many in all."""
    found = 0
    for who in range(len(crowd.people) - 1):
        person = crowd.people[who]
        if not person.online:
            for place in range(person.first_pair, person.first_pair + person.subscribed):
                pair = crowd.pairs[crowd.pairs[place].active]
                found += broker.caches[pair.subscription].newest - pair.acked
    return found
