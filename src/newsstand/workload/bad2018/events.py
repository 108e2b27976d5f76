"""The broker workload of Uddin & Venkatasubramanian (2018, section V): its settings and its events.

Subscribers join, come online and go offline, and change their subscriptions; subscriptions have results. Where
Table II is incomplete or contradicts the text, these rules apply:

- A kilobyte has 1000 bytes. A log-normal distribution has the mu and sigma of the table, in minutes. The means of
  20 and 30 minutes online and offline in the text are not those of the table, 15.9 and 20.7; the table counts.
- A subscription's mean interval between results is uniform over 10 to 60 seconds. Its results are a Poisson stream
  from time 0 on, even without subscribers.
- A subscriber has the same number of live subscriptions at all times. When one ends, another one begins in the
  same millisecond, drawn from all but the live ones, so that the one that ended may begin again.
- A subscriber that joins makes all subscriptions at that moment, and comes online then (`online`), or has the
  stationary distribution of both states (`stationary`).
- Nothing lasts for less than a millisecond.
- Under `zipf` the popularity of a subscription falls with its number.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from newsstand.errors import BadOption
from newsstand.workload.randomness import generator, uniform

MINUTE = 60_000.0
"""In milliseconds."""
JOINING, PRESENCE, SUBSCRIBING, RESULTS = 11, 12, 13, 14
"""The streams of draws."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Pair = tuple[float, float]


@dataclass(frozen=True)
class SimulationSettings:
    """Table II without the settings of the replay; log-normal distributions as (mu, sigma) in minutes."""

    subscribers: int = 10_000
    subscriptions: int = 1_000
    per_subscriber: int = 10
    hours: float = 6.0
    interval: Pair = (10.0, 60.0)
    """The range of the mean interval of a subscription's results, in seconds."""
    size: tuple[int, int] = (1_000, 500_000)
    """The range of the size of a result in bytes, both ends included."""
    on: Pair = (1.753, 1.425)
    off: Pair = (2.415, 1.11)
    duration: Pair = (1.0, 2.0)
    """The duration of a subscription."""
    popularity: Literal["uniform", "zipf"] = "uniform"
    exponent: float = 1.0
    join_minutes: float = 0.0
    """Subscribers join at times that are uniform over these first minutes."""
    start: Literal["online", "stationary"] = "online"
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("subscribers", "subscriptions", "per_subscriber"):
            if not 1 <= getattr(self, name) < 2**31:
                raise BadOption("must be within 1 … 2^31 - 1", **{name: getattr(self, name)})
        if not 0 <= self.seed < 2**63:
            raise BadOption("must be within 0 … 2^63 - 1", seed=self.seed)
        if self.per_subscriber > self.subscriptions:
            raise BadOption(
                "a subscriber cannot have more than there are",
                per_subscriber=self.per_subscriber,
                subscriptions=self.subscriptions,
            )
        if not 0 < self.hours <= 10_000:
            raise BadOption("must be within (0, 10000]", hours=self.hours)
        if not 0 <= self.join_minutes <= self.hours * 60:
            raise BadOption(
                f"must be within 0 … {self.hours * 60:g}, the whole time", join_minutes=self.join_minutes
            )
        if not 0.001 <= self.interval[0] <= self.interval[1] < math.inf:
            raise BadOption("must be a range of seconds from 0.001 on", interval=_shown(self.interval))
        if not 1 <= self.size[0] <= self.size[1] < 2**31:
            raise BadOption("must be a range of bytes within 1 … 2^31 - 1", size=_shown(self.size))
        for name in ("on", "off", "duration"):
            mu, sigma = getattr(self, name)
            if not (abs(mu) <= 50 and 0 <= sigma <= 10):
                raise BadOption("must be a mu within ±50 and a sigma within 0 … 10", **{name: _shown((mu, sigma))})
        if self.popularity not in ("uniform", "zipf"):
            raise BadOption("must be uniform or zipf", popularity=self.popularity)
        if not 0 <= self.exponent <= 100:
            raise BadOption("must be within 0 … 100", exponent=self.exponent)
        if self.start not in ("online", "stationary"):
            raise BadOption("must be online or stationary", start=self.start)

    @property
    def end_ms(self) -> int:
        """The end of the events."""
        return max(1, round(self.hours * 60 * MINUTE))

    @cached_property
    def popularities(self) -> Floats:
        """The weight with which each subscription is chosen."""
        ranks = np.arange(1, self.subscriptions + 1, dtype=np.float64)
        weight: Floats = ranks**-self.exponent if self.popularity == "zipf" else np.ones_like(ranks)
        return weight

    def described(self) -> dict[str, object]:
        """Return the settings as JSON."""
        return {"workload": "bad2018", **asdict(self), "end_ms": self.end_ms}


def _shown(pair: tuple[float, float]) -> str:
    return f"{pair[0]:g} {pair[1]:g}"


def results(settings: SimulationSettings, unit: int, first: int, last: int) -> tuple[Ints, Ints, Ints]:
    """Return the results of the subscriptions from `first` to before `last`: time, subscription, size.

    A Poisson stream has a Poisson number of arrivals, each at a uniform time.
    """
    draw = generator(settings.seed, RESULTS, unit)
    interval = draw.uniform(*settings.interval, last - first)
    counts = draw.poisson(settings.end_ms / 1000 / interval)
    arrivals = int(counts.sum())
    time = np.floor(draw.random(arrivals) * settings.end_ms).astype(np.int64)
    size = draw.integers(settings.size[0], settings.size[1], arrivals, endpoint=True)
    return time, np.repeat(np.arange(first, last), counts), size


KINDS = ("unsubscribe", "subscribe", "logout", "login", "result")
"""The order of rows of one time: an end comes before the beginning that replaces it."""
UNSUBSCRIBE, SUBSCRIBE, LOGOUT, LOGIN, RESULT = range(len(KINDS))


class SubscriberEvents(NamedTuple):
    """Events of subscribers; `subscription` is -1 where they log in or out."""

    time: Ints
    kind: Ints
    subscriber: Ints
    subscription: Ints


def subscriber_events(settings: SimulationSettings, first: int, last: int) -> SubscriberEvents:
    """Return the events of the subscribers from `first` to before `last`, in no order."""
    seed, end = np.uint64(settings.seed), settings.end_ms
    join = _joins(seed, first, last, settings.join_minutes * MINUTE, end)
    stationary = settings.start == "stationary"
    presence = _presence(seed, first, join, end, settings.on, settings.off, stationary)
    cumulative = np.cumsum(settings.popularities)
    choices = _choices(seed, first, join, end, settings.duration, settings.per_subscriber, cumulative)
    return SubscriberEvents(*np.concatenate([presence, choices], axis=1))


@njit(cache=True)
def _draw(seed, stream, subscriber, place):  # type: ignore[no-untyped-def]
    """Return the number in (0, 1] at a place of a subscriber's stream."""
    return uniform(seed, (stream << 48) | subscriber, place)


@njit(cache=True)
def _lasts(seed, stream, subscriber, place, law, longest):  # type: ignore[no-untyped-def]
    """Return milliseconds, from 1 to `longest`, of a log-normal distribution in minutes; uses two places."""
    radius = math.sqrt(-2.0 * math.log(_draw(seed, stream, subscriber, place)))
    normal = radius * math.cos(2.0 * math.pi * _draw(seed, stream, subscriber, place + 1))
    drawn = math.exp(law[0] + law[1] * normal) * MINUTE
    return np.int64(min(max(drawn + 0.5, 1.0), longest))


@njit(cache=True)
def _append_row(rows, used, time, kind, subscriber, subscription):  # type: ignore[no-untyped-def]
    """Append a row; double the length of a full table."""
    if used == rows.shape[1]:
        longer = np.empty((4, 2 * used), np.int64)
        longer[:, :used] = rows
        rows = longer
    rows[0, used] = time
    rows[1, used] = kind
    rows[2, used] = subscriber
    rows[3, used] = subscription
    return rows, used + 1


@njit(cache=True)
def _joins(seed, first, last, within, end):  # type: ignore[no-untyped-def]
    """Return the time at which each subscriber joins."""
    join = np.empty(last - first, np.int64)
    for subscriber in range(first, last):
        drawn = (1.0 - _draw(seed, JOINING, subscriber, 0)) * within
        join[subscriber - first] = min(np.int64(drawn), end - 1)
    return join


@njit(cache=True)
def _presence(seed, first, join, end, on, off, stationary):  # type: ignore[no-untyped-def]
    """Return logins and logouts; subscribers are offline before they join."""
    rows, used = np.empty((4, 4096), np.int64), 0
    mean_on, mean_off = math.exp(on[0] + on[1] ** 2 / 2), math.exp(off[0] + off[1] ** 2 / 2)
    for subscriber in range(first, first + len(join)):
        now, online, law, place = join[subscriber - first], True, on, 2
        if stationary:
            online = _draw(seed, PRESENCE, subscriber, 0) * (mean_on + mean_off) <= mean_on
            law = on if online else off
            # At a random time a long stay is more likely than a short one (length-biased sampling).
            found = law[0] + law[1] ** 2 + math.log(_draw(seed, PRESENCE, subscriber, 1))
            law = (found, law[1])
        if online:
            rows, used = _append_row(rows, used, now, LOGIN, subscriber, -1)
        now += _lasts(seed, PRESENCE, subscriber, place, law, end)
        while now < end:
            online = not online
            place += 2
            rows, used = _append_row(rows, used, now, LOGIN if online else LOGOUT, subscriber, -1)
            now += _lasts(seed, PRESENCE, subscriber, place, on if online else off, end)
    return rows[:, :used]


@njit(cache=True)
def _choices(seed, first, join, end, duration, live, cumulative):  # type: ignore[no-untyped-def]
    """Return `live` subscriptions of each subscriber, and another one whenever one ends."""
    rows, used = np.empty((4, 4096), np.int64), 0
    held, until = np.empty(live, np.int64), np.empty(live, np.int64)
    for subscriber in range(first, first + len(join)):
        now, count, place = join[subscriber - first], 0, 0
        while now < end:
            while count < live:
                chosen = choose(1.0 - _draw(seed, SUBSCRIBING, subscriber, place), held[:count], cumulative)
                at = count
                while at > 0 and held[at - 1] > chosen:
                    held[at], until[at] = held[at - 1], until[at - 1]
                    at -= 1
                held[at] = chosen
                until[at] = now + _lasts(seed, SUBSCRIBING, subscriber, place + 1, duration, end)
                rows, used = _append_row(rows, used, now, SUBSCRIBE, subscriber, chosen)
                count += 1
                place += 3
            over = np.argmin(until)
            now = until[over]
            if now < end:
                rows, used = _append_row(rows, used, now, UNSUBSCRIBE, subscriber, held[over])
                count -= 1
                for at in range(over, count):
                    held[at], until[at] = held[at + 1], until[at + 1]
    return rows[:, :used]


@njit(cache=True)
def choose(share, taken, cumulative):  # type: ignore[no-untyped-def]
    """Return the item at a share in [0, 1) of the weight of all items but the `taken` ones, which ascend."""
    weight = cumulative[-1]
    for item in taken:
        weight -= cumulative[item] - (cumulative[item - 1] if item else 0.0)
    at = share * weight
    for item in taken:
        before = cumulative[item - 1] if item else 0.0
        if at < before:
            break
        at += cumulative[item] - before
    low, high = 0, len(cumulative) - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > at:
            high = middle
        else:
            low = middle + 1
    # Rounded sums may lead to a taken item; the next item that is not taken may be the first.
    for _ in range(2):
        for item in taken:
            if item == low:
                low = (low + 1) % len(cumulative)
    return low


KIND_BITS, FIELD_BITS = 3, 31


def packed_subscriber_events(settings: SimulationSettings, first: int, last: int) -> Ints:
    """Return the packed events of the subscribers from `first` to before `last`."""
    done = subscriber_events(settings, first, last)
    return _packed(done.time, done.kind, done.subscriber, np.maximum(done.subscription, 0))


def packed_results(settings: SimulationSettings, unit: int, first: int, last: int) -> Ints:
    """Return the packed results of the subscriptions from `first` to before `last`."""
    time, subscription, size = results(settings, unit, first, last)
    return _packed(time, RESULT, subscription, size)


def _packed(time: Ints, kind: Ints | int, one: Ints, other: Ints) -> Ints:
    return np.stack([(time << KIND_BITS) | kind, (one << FIELD_BITS) | other], axis=1)


def time_of(packed: Ints) -> Ints:
    """Return the times of packed events."""
    times: Ints = packed[:, 0] >> KIND_BITS
    return times


def columns(packed: Ints) -> pa.Table:
    """Return the events as a table, in order; fields that a kind does not use are null."""
    packed = packed[np.lexsort((packed[:, 1], packed[:, 0]))]
    kind = packed[:, 0] & (2**KIND_BITS - 1)
    one, other = packed[:, 1] >> FIELD_BITS, packed[:, 1] & (2**FIELD_BITS - 1)
    is_result, is_session = kind == RESULT, (kind == LOGIN) | (kind == LOGOUT)
    return pa.table(
        {
            "time_ms": time_of(packed),
            "kind": pa.DictionaryArray.from_arrays(kind.astype(np.int8), KINDS),
            "subscriber": _nullable(one, is_result),
            "subscription": _nullable(np.where(is_result, one, other), is_session),
            "size": _nullable(other, ~is_result),
        }
    )


def _nullable(values: Ints, missing: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, mask=missing)
