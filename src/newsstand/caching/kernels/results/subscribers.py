"""The sessions and subscriptions in a replay, and their effects on the result caches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from newsstand.caching.kernels import borrowing
from newsstand.caching.kernels.results import broker as state
from newsstand.caching.kernels.results.table import ResultTable
from newsstand.caching.kernels.results.wide_integers import add

PERSON = np.dtype([("first_pair", np.int32), ("subscribed", np.int32), ("online", np.int32)], align=True)

PAIR = np.dtype(
    [
        ("subscription", np.int32),
        ("active", np.int32),  # in the n-th pair of a subscriber: its n-th pair that is subscribed
        ("place", np.int32),  # the n of this one, -1 if it is not subscribed
        ("acked", np.int32),  # the position up to which an offline subscriber has everything
    ],
    align=True,
)
"""A subscriber and a subscription that it ever makes."""


class SubscriberTable(NamedTuple):
    """The subscribers with an extra last one, and the adjacent pairs of each."""

    people: npt.NDArray[np.void]
    pairs: npt.NDArray[np.void]


def new_subscriber_table(table: ResultTable) -> SubscriberTable:
    """Return a table with every subscriber offline."""
    people = np.zeros(len(table.first_pair), PERSON)
    people["first_pair"] = table.first_pair
    pairs = np.zeros(len(table.paired_with), PAIR)
    pairs["subscription"] = table.paired_with
    pairs["place"] = -1
    return SubscriberTable(people, pairs)


@borrowing(cache=True, forceinline=True)
def login(broker, subscribers, rules, who):  # type: ignore[no-untyped-def]
    """Log a subscriber in and let it retrieve all that is pending; return False if it is online."""
    person = subscribers.people[who]
    if person.online:
        return False
    person.online = 1
    for place in range(person.first_pair, person.first_pair + person.subscribed):
        pair = subscribers.pairs[subscribers.pairs[place].active]
        which = np.int64(pair.subscription)
        cache = broker.caches[which]
        after = stop_waiting(broker, cache, pair)
        cache.online += 1
        if after < cache.newest:
            state.retrieve(broker, rules, cache, after)
            state.sweep(broker, rules, which, state.CONSUMED)
    return True


@borrowing(cache=True, forceinline=True)
def logout(broker, subscribers, who):  # type: ignore[no-untyped-def]
    """Log a subscriber out; return False if it is offline."""
    person = subscribers.people[who]
    if not person.online:
        return False
    person.online = 0
    for place in range(person.first_pair, person.first_pair + person.subscribed):
        pair = subscribers.pairs[subscribers.pairs[place].active]
        cache = broker.caches[pair.subscription]
        cache.online -= 1
        wait(broker, cache, pair)
    return True


@borrowing(cache=True, forceinline=True)
def subscribe(broker, subscribers, who, which):  # type: ignore[no-untyped-def]
    """Attach a subscriber; return False if it is attached already."""
    person, cache = subscribers.people[who], broker.caches[which]
    number = find(subscribers, who, which)
    pair = subscribers.pairs[number]
    if pair.place >= 0:
        return False
    pair.place = person.subscribed
    subscribers.pairs[person.first_pair + person.subscribed].active = number
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
def unsubscribe(broker, subscribers, rules, who, which):  # type: ignore[no-untyped-def]
    """Detach a subscriber and remove objects that only it waits for; return False if it is not attached."""
    number = find(subscribers, who, which)
    if number < 0 or subscribers.pairs[number].place < 0:
        return False
    person, cache, pair = subscribers.people[who], broker.caches[which], subscribers.pairs[number]
    person.subscribed -= 1
    last = subscribers.pairs[person.first_pair + person.subscribed].active
    subscribers.pairs[person.first_pair + pair.place].active = last
    subscribers.pairs[last].place = pair.place
    pair.place = -1
    cache.subscribers -= 1
    if person.online:
        cache.online -= 1
    else:
        add(broker.sums, state.UNDELIVERED, cache.newest - stop_waiting(broker, cache, pair))
    state.sweep(broker, rules, which, state.ABANDONED)
    return True


@borrowing(cache=True, forceinline=True)
def find(subscribers, who, which):  # type: ignore[no-untyped-def]
    """Return the pair of a subscriber and a subscription, -1 if there is none."""
    low, end = np.int64(subscribers.people[who].first_pair), np.int64(subscribers.people[who + 1].first_pair)
    high = end
    while low < high:
        middle = (low + high) >> 1
        if subscribers.pairs[middle].subscription < which:
            low = middle + 1
        else:
            high = middle
    return low if low < end and subscribers.pairs[low].subscription == which else -1


@borrowing(cache=True, forceinline=True)
def wait(broker, cache, pair):  # type: ignore[no-untyped-def]
    """Let an offline subscriber that has all objects wait for further ones."""
    newest = cache.newest
    pair.acked = newest
    broker.acked_at[newest] += 1
    if newest < cache.tail:
        cache.behind += 1


@borrowing(cache=True, forceinline=True)
def stop_waiting(broker, cache, pair):  # type: ignore[no-untyped-def]
    """Remove an offline subscriber from those that wait; return its position."""
    after = np.int64(pair.acked)
    broker.acked_at[after] -= 1
    if after < cache.tail:
        cache.behind -= 1
    return after


@borrowing(cache=True)
def pending(broker, subscribers):  # type: ignore[no-untyped-def]
    """Return the number of pending pairs of results and subscribers."""
    found = 0
    for who in range(len(subscribers.people) - 1):
        person = subscribers.people[who]
        if not person.online:
            for place in range(person.first_pair, person.first_pair + person.subscribed):
                pair = subscribers.pairs[subscribers.pairs[place].active]
                found += broker.caches[pair.subscription].newest - pair.acked
    return found
