"""The app under test: its channels, the interests of subscribers, and matching in plain Python."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

APP = """
[datasets.reports]
fields = { id = "string", kind = "string", lat = "double", lon = "double" }

[channels.of_kind]
parameters = { kind = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"

[channels.near]
parameters = { lat = "double", lon = "double", km = "double" }
query = "SELECT r.id, r.kind FROM reports r WHERE distance_km(r.lat, r.lon, :lat, :lon) < :km"
"""
CHANNELS = ("of_kind", "near")
EARTH_KM = 6371.0088
STEP = 0.01
"""Degrees between two places: 1.1 km, so that no report is at the limit of a distance."""


@dataclass(frozen=True)
class Interest:
    """A channel with values; journals identify it by `key`."""

    channel: str
    values: Mapping[str, object]

    @property
    def key(self) -> str:
        return key_of(self.channel, self.values)


def key_of(channel: str, values: Mapping[str, object]) -> str:
    return f"{channel} {json.dumps(values, sort_keys=True)}"


def of_kind(kind: str) -> Interest:
    return Interest("of_kind", {"kind": kind})


def near(place: int, km: float) -> Interest:
    return Interest("near", {"lat": latitude(place), "lon": 0.5, "km": km})


def latitude(place: int) -> float:
    return round(10 + STEP * place, 6)


KINDS = [f"kind{number}" for number in range(6)]
LONE_KINDS = [f"lone{number}" for number in range(24)]
PLACES = list(range(24))
STEADY = [*map(of_kind, KINDS), *(near(place, 1.7) for place in PLACES[::4])]
"""Interests with a subscription from the first publication to the last: their streams have all matches."""
LONE = [*map(of_kind, LONE_KINDS), *(near(place, 0.6) for place in PLACES[1::4])]
"""Interests of the subscribers alone: a stream gets no results between its last subscription and the next."""
ALL = {one.key: one for one in [*STEADY, *LONE]}


def matches(key: str, record: Mapping[str, object]) -> bool:
    """Return whether a record of the log is a result for an interest."""
    interest = ALL[key]
    if interest.channel == "of_kind":
        return record["kind"] == interest.values["kind"]
    given = [record["lat"], record["lon"], interest.values["lat"], interest.values["lon"]]
    lat1, lon1, lat2, lon2 = (math.radians(float(str(one))) for one in given)
    half = math.sin((lat1 - lat2) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon1 - lon2) / 2) ** 2
    return 2 * EARTH_KM * math.asin(math.sqrt(half)) < float(str(interest.values["km"]))
