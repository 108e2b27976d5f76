"""Slot caches of many brokers with clients that come and go, compiled (Sourlas et al. 2011, sections 2 and 3).

The rules are those of `newsstand.caching.slots` and `newsstand.overlay`, driven by Poisson processes: messages are
published, and clients of a message arrive and leave at every broker. Events are proposed at an upper bound of
their rate, and the excess is rejected (thinning), so there is no calendar of events. A cache is a linked list of
messages, so every move takes constant time.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

jit = numba.njit(cache=True, nogil=True)

NOWHERE = -1
END = 0
"""The node of every list before the first message and after the last. Messages are numbered from 1."""

NOT_HALTED = np.zeros(1, np.bool_)


class SlotCacheRules(NamedTuple):
    """The simulated system; arrays are indexed by the class of messages."""

    brokers: int
    slots: int
    publish_rate: float
    client_rates: Floats
    """Arrivals of clients of one message at a broker."""
    leave_rates: Floats
    """Departures of each client."""
    shares: Floats
    """The cumulative shares of classes among publications: the last one is 1."""
    selective: bool
    flooded: bool
    prioritized: bool


class NetworkState(NamedTuple):
    """Every message that some broker caches. Lists end in END and are indexed by broker and message."""

    clients: Ints
    """The number of clients: [message, broker]."""
    above: Ints
    below: Ints
    """The neighbours of a message in a broker's cache: [broker, message]; `below[:, END]` is the top."""
    held: NDArray[np.bool_]
    used: Ints
    """Slots, by broker."""
    copies: Ints
    born: Floats
    kind: Ints
    """The class of a message."""
    seen: Ints
    """The number of a message among the watched ones, or NOWHERE."""
    live: Ints
    """Messages that are cached somewhere, in any order, then the unused ones."""
    place: Ints
    """The index of a message in `live`."""


class SurvivalObservations(NamedTuple):
    """The observations of the messages published after the warm-up."""

    survival: Floats
    """The time that each message was cached somewhere; 0 if nowhere."""
    kind: Ints
    messages_time: Floats
    """Cached messages times time, by class, between the publications of the first and the last watched one."""
    span: float
    """The time between these publications."""
    copied: int
    """Copies from another broker's cache, in that span."""
    regenerated: int
    degraded: int


def new_network_state(rules: SlotCacheRules) -> NetworkState:
    """Return empty caches."""
    most = rules.brokers * rules.slots + 2
    per_broker = (rules.brokers, most)
    return NetworkState(
        clients=np.zeros((most, rules.brokers), np.int64),
        above=np.zeros(per_broker, np.int64),
        below=np.zeros(per_broker, np.int64),
        held=np.zeros(per_broker, np.bool_),
        used=np.zeros(rules.brokers, np.int64),
        copies=np.zeros(most, np.int64),
        born=np.zeros(most),
        kind=np.zeros(most, np.int64),
        seen=np.full(most, NOWHERE),
        live=np.arange(1, most),
        place=np.arange(-1, most - 1),
    )


@jit
def _unlink(net: NetworkState, broker: int, message: int) -> None:
    above, below = net.above[broker, message], net.below[broker, message]
    net.below[broker, above] = below
    net.above[broker, below] = above


@jit
def _link(net: NetworkState, broker: int, message: int, above: int, below: int) -> None:
    net.above[broker, message], net.below[broker, message] = above, below
    net.below[broker, above] = message
    net.above[broker, below] = message


@jit
def _put(net: NetworkState, broker: int, message: int, slots: int) -> int:
    """Put a message on top of a cache; return the message that is in no cache any more, or END."""
    lost = END
    if net.used[broker] == slots:
        bottom = net.above[broker, END]
        _unlink(net, broker, bottom)
        net.held[broker, bottom] = False
        net.copies[bottom] -= 1
        if net.copies[bottom] == 0:
            lost = bottom
    else:
        net.used[broker] += 1
    _link(net, broker, message, END, net.below[broker, END])
    net.held[broker, message] = True
    net.copies[message] += 1
    return lost


@jit
def _found(net: NetworkState, rules: SlotCacheRules, message: int, asking: int) -> bool:
    """Return whether a request finds a message that its own broker does not have."""
    if rules.flooded:
        return True  # some broker has it, or it would not be among the cached
    for broker in range(rules.brokers):
        if broker != asking and net.held[broker, message] and net.clients[message, broker] > 0:
            return True
    return False


@jit
def _swap(net: NetworkState, one: int, other: int) -> None:
    """Swap two elements of `live`."""
    first, second = net.live[one], net.live[other]
    net.live[one], net.live[other] = second, first
    net.place[first], net.place[second] = other, one


@jit
def simulate(
    rules: SlotCacheRules,
    net: NetworkState,
    random: np.random.Generator,
    warm: int,
    watched: int,
    halted: NDArray[np.bool_],
) -> SurvivalObservations:
    """Publish `warm` messages, then `watched` ones, and continue until no cache has any of the latter.

    If another thread sets `halted[0]`, return the observations so far. It has no default value: Numba stores no
    code on disk for one.
    """
    survival, kinds = np.zeros(watched), np.zeros(watched, np.int64)
    now, begun, span = 0.0, 0.0, 0.0
    messages_time, cached_by_kind = np.zeros(len(rules.shares)), np.zeros(len(rules.shares))
    cached, published, dropped, most_clients = 0, 0, 0, 1
    copied, regenerated, degraded = 0, 0, 0
    client_rate, leave_rate = rules.client_rates.max(), rules.leave_rates.max()
    while dropped < watched and not halted[0]:
        bound = client_rate + leave_rate * most_clients
        rate = rules.publish_rate + cached * rules.brokers * bound
        step = random.exponential() / rate
        is_watching = warm < published < warm + watched
        if is_watching:
            messages_time += cached_by_kind * step
        now += step
        draw = random.random() * rate - rules.publish_rate
        lost = END
        if draw < 0:
            message = net.live[cached]
            published += 1
            if published == warm + 1:
                begun = now
            elif published == warm + watched:
                span = now - begun
            kind, pick = 0, random.random()
            while rules.shares[kind] <= pick:
                kind += 1
            number = published - warm - 1
            net.seen[message] = number if 0 <= number < watched else NOWHERE
            net.born[message], net.kind[message] = now, kind
            intensity = rules.client_rates[kind] / rules.leave_rates[kind]
            cached += 1
            cached_by_kind[kind] += 1
            for broker in range(rules.brokers):
                clients = random.poisson(intensity)
                net.clients[message, broker] = clients
                most_clients = max(most_clients, clients)
                if clients > 0 or not rules.selective:
                    lost = _put(net, broker, message, rules.slots)
                    if lost != END:
                        cached -= 1
                        cached_by_kind[net.kind[lost]] -= 1
                        dropped += _leave(net, lost, cached, now, survival, kinds)
            lost = END if net.copies[message] > 0 else message
        else:
            pair = min(int(draw / bound), cached * rules.brokers - 1)
            draw -= pair * bound
            message, broker = net.live[pair // rules.brokers], pair % rules.brokers
            kind = net.kind[message]
            is_arrival = draw < rules.client_rates[kind]
            clients = net.clients[message, broker]
            if is_arrival:
                net.clients[message, broker] = clients + 1
                most_clients = max(most_clients, clients + 1)
                if net.held[broker, message]:
                    if rules.prioritized:
                        _unlink(net, broker, message)
                        _link(net, broker, message, END, net.below[broker, END])
                        regenerated += is_watching
                elif _found(net, rules, message, broker):
                    lost = _put(net, broker, message, rules.slots)
                    copied += is_watching
            elif draw < rules.client_rates[kind] + rules.leave_rates[kind] * clients:
                net.clients[message, broker] = clients - 1
                if rules.prioritized and clients == 1 and net.held[broker, message]:
                    _unlink(net, broker, message)
                    _link(net, broker, message, net.above[broker, END], END)
                    degraded += is_watching
        if lost != END:
            cached -= 1
            cached_by_kind[net.kind[lost]] -= 1
            dropped += _leave(net, lost, cached, now, survival, kinds)
    return SurvivalObservations(survival, kinds, messages_time, span, copied, regenerated, degraded)


@jit
def _leave(net: NetworkState, message: int, last: int, now: float, survival: Floats, kinds: Ints) -> int:
    """Remove a message that is in no cache; return 1 if it is watched. `last`: the last cached one's index."""
    _swap(net, net.place[message], last)
    number = net.seen[message]
    if number == NOWHERE:
        return 0
    survival[number] = now - net.born[message]
    kinds[number] = net.kind[message]
    return 1
