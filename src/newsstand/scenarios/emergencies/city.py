"""A city in trouble: what the publishers, the people and the subscribers of section VI do.

Everything follows from the seed: two cities of one seed, asked the same questions in the same order, give the same
records. There is no clock inside. `now` is always the time in the city, in seconds since it began.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

CENTRE = (33.68, -117.83)
SIZE_KM = 30.0
"""The city is a square of this side."""

KM_PER_DEGREE = 6371.0088 * math.pi / 180
"""Of latitude; of longitude it is this times the cosine of the latitude."""

KINDS = ("accident", "fire", "flood", "storm", "shooting", "gas_leak", "earthquake", "tornado")
"""Kinds of emergencies, the most common first."""

DISTRICTS = ("Harbour", "Old Town", "Mill Hill", "Northgate", "Riverside", "Stadium", "University", "Orchards")
ADVICE = (
    "Stay away from the area and leave the roads free for the services.",
    "Take only what you need, and look after neighbours who cannot walk well.",
    "Buses of lines 4 and 12 turn round two stops earlier until further notice.",
    "Close windows and doors, and switch off the air conditioning.",
    "Do not call the emergency number for information; it is needed for help.",
    "Schools nearby keep the children inside until they are fetched.",
    "Power is out in some streets; treat crossings without lights as a four-way stop.",
    "Volunteers meet at the fire station and are led from there in groups.",
    "If you smell gas, make no flame, use no switch, and go outside.",
    "Tap water can be used for washing; boil it before you drink it.",
    "Drivers who left their cars behind will be informed where to find them.",
    "The next report follows as soon as more is known.",
    "Witnesses are asked to send pictures only after they have reached safety.",
    "Pets are welcome in the shelters if they are kept on a lead or in a box.",
)
SMALLEST, LARGEST, LONGEST_SENTENCE = 200, 1000, 100
"""Bytes of a publication (section VI), and what one sentence adds at most."""

INCIDENT_S = 600.0
"""How long emergencies last before others take their place."""

Scalar = str | int | float
Record = dict[str, Scalar]
Wanted = tuple[str, dict[str, Scalar]]
"""A subscription: the channel and the values of its parameters."""

Merged = tuple[str, tuple[tuple[str, Scalar], ...]]
"""The same as a key of a dictionary."""


def merged(wanted: Wanted) -> Merged:
    """Return what equal subscriptions have in common."""
    channel, values = wanted
    return channel, tuple(values.items())


@dataclass(frozen=True)
class Mix:
    """How much of all subscribing goes to a channel, and how uneven the popularity of its values is."""

    channel: str
    parameters: tuple[str, ...]
    share: float
    skew: float


TABLE_III = (
    Mix("reports_of_kind", ("kind",), 0.22, 0.8),
    Mix("reports_near", ("place",), 0.16, 0.9),
    Mix("reports_of_kind_near", ("kind", "place"), 0.16, 1.05),
    Mix("reports_with_shelters", ("kind", "place"), 0.12, 1.05),
    Mix("reports_near_user", ("user",), 0.14, 1.05),
    Mix("reports_of_kind_near_user", ("kind", "user"), 0.10, 1.2),
    Mix("reports_near_user_with_shelters", ("kind", "user"), 0.10, 1.2),
)
"""The seven channels, and what the people of this city want from them."""


class City:
    """A city of 30 × 30 km with its shelters, its emergencies, its people and what they subscribe to."""

    def __init__(self, seed: int, users: int = 400, shelters: int = 60, places: int = 50) -> None:
        self.seed = seed
        self.users = [f"user{number:04d}" for number in range(1, users + 1)]
        self.places = [_somewhere(self._randomness("place", number)) for number in range(places)]
        self._shelters = [self._build_shelter(number) for number in range(1, shelters + 1)]
        self._walks = {user: Walk(self._randomness("walk", user)) for user in self.users}
        self._reporting = self._randomness("reports")
        self._moving_in = self._randomness("shelters")
        self._reports = 0

    def shelters(self) -> list[Record]:
        """Return all shelters as they are now."""
        return [dict(shelter) for shelter in self._shelters]

    def shelter_news(self) -> Record:
        """Let some people come to a shelter or leave it; return its record with the free places."""
        shelter = self._moving_in.choice(self._shelters)
        shelter["places"] = max(0, int(shelter["places"]) + self._moving_in.randint(-20, 15))
        return dict(shelter)

    def report(self, now: float) -> Record:
        """Return a report of a present emergency; 200 to 1,000 bytes as JSON."""
        draw = self._reporting
        self._reports += 1
        incident = self._incident(int(now // INCIDENT_S), draw.randrange(5))
        lat, lon = _within(*_moved(incident.lat, incident.lon, draw.gauss(0, 0.6), draw.gauss(0, 0.6)))
        severity = min(5, max(1, incident.severity + draw.choice((-1, 0, 0, 1))))
        title = incident.kind.replace("_", " ").capitalize()
        record: Record = {
            "id": f"{self.seed}-{self._reports:06d}",
            "kind": incident.kind,
            "lat": lat,
            "lon": lon,
            "severity": severity,
            "text": f"{title} near {incident.district}, level {severity} of 5.",
        }
        most = draw.randint(SMALLEST + LONGEST_SENTENCE, LARGEST)
        for sentence in draw.sample(ADVICE, len(ADVICE)):
            if size_of(record) + 1 + len(sentence) > most:
                break
            record["text"] = f"{record['text']} {sentence}"
        return record

    def locations(self, now: float) -> list[Record]:
        """Return where everybody is."""
        return [{"user": user, **_point(*walk.position(now))} for user, walk in self._walks.items()]

    def subscriptions(self, each: float = 8.7) -> dict[str, list[Wanted]]:
        """Return what each subscriber subscribes to: about `each` channels with values, none of them twice."""
        draw = self._randomness("subscriptions")
        popular = {mix.channel: Popularity(self._choices(mix), mix.skew) for mix in TABLE_III}
        shares = [mix.share for mix in TABLE_III]
        everybody: dict[str, list[Wanted]] = {}
        for user in self.users:
            own: dict[Merged, Wanted] = {}
            wanted = max(1, round(draw.gauss(each, 2)))
            while len(own) < wanted:
                mix = draw.choices(TABLE_III, shares)[0]
                values = popular[mix.channel].draw(draw)
                own[merged((mix.channel, values))] = (mix.channel, values)
            everybody[user] = list(own.values())
        return everybody

    def merged(self) -> Counter[Merged]:
        """Count the subscribers of equal subscriptions, which a broker merges."""
        return Counter(merged(one) for wanted in self.subscriptions().values() for one in wanted)

    @staticmethod
    def bounds() -> dict[str, float]:
        """Return the edges of the city, in degrees."""
        south, west = _moved(*CENTRE, -SIZE_KM / 2, -SIZE_KM / 2)
        north, east = _moved(*CENTRE, SIZE_KM / 2, SIZE_KM / 2)
        return {"north": north, "south": south, "east": east, "west": west}

    def _choices(self, mix: Mix) -> list[dict[str, Scalar]]:
        """Return the values that a channel can be given, the most popular first."""
        axes: dict[str, list[dict[str, Scalar]]] = {
            "kind": [{"kind": kind} for kind in KINDS],
            "place": [dict(_point(*place)) for place in self.places],
            "user": [{"user": user} for user in self.users],
        }
        first, *others = [list(enumerate(axes[name], start=1)) for name in mix.parameters]
        ranked = first
        for axis in others:
            ranked = [(rank * other, values | more) for rank, values in ranked for other, more in axis]
        return [values for _, values in sorted(ranked, key=lambda choice: choice[0])]

    def _incident(self, slot: int, number: int) -> Incident:
        draw = self._randomness("incident", slot, number)
        kind = draw.choices(KINDS, _zipf(len(KINDS), 1.0))[0]
        return Incident(kind, *_somewhere(draw), severity=draw.randint(1, 5), district=draw.choice(DISTRICTS))

    def _build_shelter(self, number: int) -> Record:
        draw = self._randomness("shelter", number)
        name = f"{draw.choice(DISTRICTS)} {draw.choice(('School', 'Church', 'Gym', 'Library', 'Hall'))} {number}"
        place = _point(*_somewhere(draw))
        return {"id": f"shelter{number:03d}", "name": name, **place, "places": draw.randint(40, 400)}

    def _randomness(self, *of: object) -> random.Random:
        return random.Random(" ".join(str(part) for part in (self.seed, *of)))


@dataclass(frozen=True)
class Incident:
    """One emergency while it lasts."""

    kind: str
    lat: float
    lon: float
    severity: int
    district: str


@dataclass(frozen=True)
class Leg:
    """A straight way at one speed, and a rest at its end."""

    begins: float
    arrives: float
    ends: float
    origin: tuple[float, float]
    target: tuple[float, float]


class Walk:
    """Random waypoint: choose a point of the city, go there on foot, by bicycle or by car, rest, choose again."""

    def __init__(self, draw: random.Random) -> None:
        self._legs = _legs(draw)
        self._leg = next(self._legs)

    def position(self, now: float) -> tuple[float, float]:
        """Return where the walker is; `now` never goes back."""
        while now > self._leg.ends:
            self._leg = next(self._legs)
        leg = self._leg
        if now < leg.begins:
            raise ValueError(f"now is {now}, but this walk has gone past {leg.begins}")
        part = min(1.0, (now - leg.begins) / (leg.arrives - leg.begins))
        lat, lon = (start + part * (end - start) for start, end in zip(leg.origin, leg.target, strict=True))
        return lat, lon


class Popularity:
    """Choices of which the k-th is drawn in proportion to 1 / k^skew (Zipf)."""

    def __init__(self, choices: Sequence[dict[str, Scalar]], skew: float) -> None:
        self._choices = choices
        self._weights = list(accumulate(_zipf(len(choices), skew)))

    def draw(self, draw: random.Random) -> dict[str, Scalar]:
        return dict(draw.choices(self._choices, cum_weights=self._weights)[0])


def size_of(record: Record) -> int:
    """Return the bytes of a record as JSON."""
    return len(json.dumps(record, separators=(",", ":")))


def _legs(draw: random.Random) -> Iterator[Leg]:
    now, here = 0.0, _somewhere(draw)
    while True:
        there = _somewhere(draw)
        metres = 1000 * max(0.01, _flat_km(here, there))
        arrives = now + metres / draw.choice((1.4, 4.5, 12.0))
        leg = Leg(now, arrives, arrives + draw.uniform(0, 300), here, there)
        yield leg
        now, here = leg.ends, there


def _zipf(count: int, skew: float) -> list[float]:
    return [rank**-skew for rank in range(1, count + 1)]


def _somewhere(draw: random.Random) -> tuple[float, float]:
    half = SIZE_KM / 2
    lat, lon = _moved(*CENTRE, draw.uniform(-half, half), draw.uniform(-half, half))
    return round(lat, 5), round(lon, 5)


def _moved(lat: float, lon: float, north_km: float, east_km: float) -> tuple[float, float]:
    """Move a place; degrees are measured at the city's centre, so that the city is a rectangle of degrees."""
    return lat + north_km / KM_PER_DEGREE, lon + east_km / (KM_PER_DEGREE * math.cos(math.radians(CENTRE[0])))


def _within(lat: float, lon: float) -> tuple[float, float]:
    edges = City.bounds()
    lat, lon = min(edges["north"], max(edges["south"], lat)), min(edges["east"], max(edges["west"], lon))
    return round(lat, 5), round(lon, 5)


def _flat_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    east = (b[1] - a[1]) * math.cos(math.radians(CENTRE[0]))
    return KM_PER_DEGREE * math.hypot(b[0] - a[0], east)


def _point(lat: float, lon: float) -> Record:
    return {"lat": round(lat, 5), "lon": round(lon, 5)}
