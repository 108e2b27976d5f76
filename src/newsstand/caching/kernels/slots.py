"""Slot caches of many brokers with clients that come and go, compiled (Sourlas et al. 2011, sections 2 and 3).

The rules are those of `newsstand.caching.slots` and `newsstand.overlay`, driven by Poisson processes: messages are
published, and at every broker clients who want a message come and leave. One proposal after another is drawn at a
rate that is never too low, and what is too much of it is thrown away (thinning), so no calendar of events is kept.
A cache is a list that is linked through the messages, so every move takes constant time.
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
"""Of every list: before the first message and after the last. Messages are numbered from 1."""


NOT_HALTED = np.zeros(1, np.bool_)


class Rules(NamedTuple):
    """What is simulated; a class of messages is a place in the arrays."""

    brokers: int
    slots: int
    publish_rate: float
    client_rates: Floats
    """Of clients who come to a broker and want a message, by its class."""
    leave_rates: Floats
    """Of each client who is there."""
    shares: Floats
    """Of the classes among the published, added up: the last one is 1."""
    selective: bool
    flooded: bool
    prioritized: bool


class Network(NamedTuple):
    """Every message that some broker caches. Lists end in END and are told by broker and message."""

    clients: Ints
    """How many want a message at a broker: [message, broker]."""
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
    """The number under which a message is observed, or NOWHERE."""
    live: Ints
    """Messages that are cached somewhere, in any order, and then those that are free."""
    place: Ints
    """Where a message is in `live`."""


class Watched(NamedTuple):
    """What was seen of the messages that were published after the warm-up."""

    survival: Floats
    """How long each was cached somewhere; 0 if nowhere."""
    kind: Ints
    messages_time: Floats
    """Cached messages times time, by class, from the first watched one that was published to the last."""
    span: float
    """That time."""
    copied: int
    """Copies from another broker's cache, in that span."""
    regenerated: int
    degraded: int


def new_network(rules: Rules) -> Network:
    """Empty caches."""
    most = rules.brokers * rules.slots + 2
    per_broker = (rules.brokers, most)
    return Network(
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
def _unlink(net: Network, broker: int, message: int) -> None:
    above, below = net.above[broker, message], net.below[broker, message]
    net.below[broker, above] = below
    net.above[broker, below] = above


@jit
def _link(net: Network, broker: int, message: int, above: int, below: int) -> None:
    net.above[broker, message], net.below[broker, message] = above, below
    net.below[broker, above] = message
    net.above[broker, below] = message


@jit
def _put(net: Network, broker: int, message: int, slots: int) -> int:
    """A message comes to the top of a cache: the one that has left every cache by it, or END."""
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
def _found(net: Network, rules: Rules, message: int, asking: int) -> bool:
    """Whether a request finds a message that its own broker does not have."""
    if rules.flooded:
        return True  # somebody has it, or it would not be among the cached
    for broker in range(rules.brokers):
        if broker != asking and net.held[broker, message] and net.clients[message, broker] > 0:
            return True
    return False


@jit
def _swap(net: Network, one: int, other: int) -> None:
    """Change the places of two in `live`."""
    first, second = net.live[one], net.live[other]
    net.live[one], net.live[other] = second, first
    net.place[first], net.place[second] = other, one


@jit
def simulate(
    rules: Rules,
    net: Network,
    random: np.random.Generator,
    warm: int,
    watched: int,
    halted: NDArray[np.bool_] = NOT_HALTED,
) -> Watched:
    """Publish `warm` messages, then `watched` ones, and go on until each of these is gone from every cache.

    If anybody sets `halted[0]` meanwhile, it ends soon, with what has been seen so far.
    """
    survival, kinds = np.zeros(watched), np.zeros(watched, np.int64)
    now, begun, span = 0.0, 0.0, 0.0
    messages_time, cached_by_kind = np.zeros(len(rules.shares)), np.zeros(len(rules.shares))
    cached, published, gone, crowd = 0, 0, 0, 1
    copied, regenerated, degraded = 0, 0, 0
    client_rate, leave_rate = rules.client_rates.max(), rules.leave_rates.max()
    while gone < watched and not halted[0]:
        bound = client_rate + leave_rate * crowd
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
                crowd = max(crowd, clients)
                if clients > 0 or not rules.selective:
                    lost = _put(net, broker, message, rules.slots)
                    if lost != END:
                        cached -= 1
                        cached_by_kind[net.kind[lost]] -= 1
                        gone += _leave(net, lost, cached, now, survival, kinds)
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
                crowd = max(crowd, clients + 1)
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
            gone += _leave(net, lost, cached, now, survival, kinds)
    return Watched(survival, kinds, messages_time, span, copied, regenerated, degraded)


@jit
def _leave(net: Network, message: int, last: int, now: float, survival: Floats, kinds: Ints) -> int:
    """A message is gone from every cache: 1 if it was watched. `last` is the place of the last cached one."""
    _swap(net, net.place[message], last)
    number = net.seen[message]
    if number == NOWHERE:
        return 0
    survival[number] = now - net.born[message]
    kinds[number] = net.kind[message]
    return 1
