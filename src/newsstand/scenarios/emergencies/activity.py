"""What happens in an experiment with the prototype (section VI): a trace of timestamped activity.

Subscribers log in and out, subscribe and unsubscribe; publishers tell of emergencies, of shelters and of where
people are. Everything follows from the seed. Times are seconds of the trace; they may pass faster in a play.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from newsstand.scenarios.emergencies.city import City, Record, Wanted, merged

Action = Literal["login", "logout", "subscribe", "unsubscribe"]

ON_MINUTES, OFF_MINUTES = (1.753, 1.425), (2.415, 1.11)
"""Mu and sigma of the lognormal laws by which subscribers are online and offline (Table II)."""

PAST_S = 12 * 3600.0
"""How long subscribers are active before the trace begins, so that it begins in a steady state."""

REPORT_S, SHELTER_S = (5.0, 15.0), (5.0, 15.0)
"""Seconds between two reports, and between two news of shelters: around ten (section VI)."""

MOVES_S = 30.0
"""Seconds between two rounds of locations."""

CHANGES_MIND = 0.25
"""The share of logins after which a subscriber replaces a subscription by another."""


@dataclass(frozen=True)
class Activity:
    """One thing that a subscriber does."""

    time_s: float
    subscriber: str
    action: Action
    wanted: Wanted | None = None
    """What is subscribed to or given up."""


@dataclass(frozen=True)
class Publishing:
    """Records that are published together."""

    time_s: float
    dataset: str
    records: list[Record]


@dataclass(frozen=True)
class ActivityTrace:
    """An experiment, ready to be played."""

    seed: int
    duration_s: float
    activities: list[Activity] = field(repr=False)
    """In the order of time; those of time 0 say how things stand at the beginning."""
    publishing: list[Publishing] = field(repr=False)

    @property
    def subscribers(self) -> list[str]:
        return sorted({one.subscriber for one in self.activities})

    @property
    def initial(self) -> dict[str, list[Wanted]]:
        """The subscriptions of each subscriber when the trace begins."""
        held: dict[str, list[Wanted]] = {name: [] for name in self.subscribers}
        for one in self.activities:
            if one.time_s == 0 and one.action == "subscribe" and one.wanted is not None:
                held[one.subscriber].append(one.wanted)
        return held

    @property
    def frontends(self) -> int:
        """The number of subscriptions when the trace begins."""
        return sum(map(len, self.initial.values()))

    @property
    def backends(self) -> int:
        """The number of merged subscriptions when the trace begins."""
        return len({merged(wanted) for held in self.initial.values() for wanted in held})


def make_trace(seed: int, duration_s: float, subscribers: int = 400) -> ActivityTrace:
    """Make the trace of a seed: 400 subscribers make about 3,500 subscriptions out of 800 (section VI)."""
    city = City(seed, users=subscribers)
    held = city.subscriptions()
    popular = [wanted for of_one in held.values() for wanted in of_one]
    activities = [Activity(0.0, user, "subscribe", wanted) for user, of_one in held.items() for wanted in of_one]
    for user, of_one in held.items():
        activities += _life(user, list(of_one), popular, duration_s, random.Random(f"{seed} activity {user}"))
    activities.sort(key=lambda one: one.time_s)
    publishing = sorted(_publishing(city, duration_s), key=lambda one: one.time_s)
    return ActivityTrace(seed, duration_s, activities, publishing)


def _life(
    user: str, held: list[Wanted], popular: list[Wanted], duration_s: float, draw: random.Random
) -> Iterator[Activity]:
    """Yield the activities of a subscriber; a new subscription is one that anybody has, to keep popularities."""
    now, online = -PAST_S, draw.random() < 0.5
    while True:
        lasts = 60 * draw.lognormvariate(*(ON_MINUTES if online else OFF_MINUTES))
        begins, now = now, now + lasts
        if online and now > 0:
            yield Activity(max(0.0, begins), user, "login")
            if begins > 0 and draw.random() < CHANGES_MIND:
                yield from _change_of_mind(begins, min(now, duration_s), user, held, popular, draw)
            if now < duration_s:
                yield Activity(now, user, "logout")
        if now >= duration_s:
            return
        online = not online


def _change_of_mind(
    begins: float, ends: float, user: str, held: list[Wanted], popular: list[Wanted], draw: random.Random
) -> Iterator[Activity]:
    known = {merged(one) for one in held}
    new = draw.choice(popular)
    place = draw.randrange(len(held))
    at = begins + draw.random() * (ends - begins)
    if merged(new) not in known:
        yield Activity(at, user, "unsubscribe", held[place])
        yield Activity(at, user, "subscribe", new)
        held[place] = new


def _publishing(city: City, duration_s: float) -> Iterator[Publishing]:
    draw = random.Random(f"{city.seed} publishing")
    yield Publishing(0.0, "shelters", city.shelters())
    places = {one["user"]: one for one in city.locations(0.0)}
    yield Publishing(0.0, "locations", list(places.values()))
    for every_s, dataset, record in (
        (REPORT_S, "reports", city.report),
        (SHELTER_S, "shelters", lambda _: city.shelter_news()),
    ):
        now = draw.uniform(*every_s)
        while now < duration_s:
            yield Publishing(now, dataset, [record(now)])
            now += draw.uniform(*every_s)
    now = MOVES_S
    while now < duration_s:
        moved = [one for one in city.locations(now) if places[one["user"]] != one]
        places |= {one["user"]: one for one in moved}
        if moved:
            yield Publishing(now, "locations", moved)
        now += MOVES_S
