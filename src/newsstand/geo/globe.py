"""Locations on the globe and the miles between them.

Distances are by great circle. A location is a unit vector in space, and the angle between two of them is computed
by Kahan's formula, which is accurate for neighbours and for antipodes: locations in 32-bit floats have errors of
some feet, while the usual formulas with arccos or arcsin have errors of miles.

>>> towns = Locations.of([(40.71, -74.01), (34.05, -118.24), (51.51, -0.13)])
>>> miles(towns[0], towns[1:]).round().tolist()
[2445.0, 3461.0]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from numba import njit

from newsstand.errors import BadOption
from newsstand.geo.location import EARTH_RADIUS_MILES

Floats = npt.NDArray[np.float64]
Degrees = npt.NDArray[np.float32 | np.float64]
Ints = npt.NDArray[np.int64]
Index = int | slice | npt.NDArray[np.integer] | npt.NDArray[np.bool_]

MOST_LATITUDE, MOST_LONGITUDE = 90.0, 180.0


@dataclass(frozen=True, eq=False)
class Locations:
    """Latitudes and longitudes in degrees, of one place or of many."""

    latitudes: Degrees
    longitudes: Degrees

    def __post_init__(self) -> None:
        if np.shape(self.latitudes) != np.shape(self.longitudes):
            raise BadOption(
                f"{np.size(self.latitudes)} latitudes and {np.size(self.longitudes)} longitudes are not places"
            )
        for name, degrees, most in (
            ("latitude", self.latitudes, MOST_LATITUDE),
            ("longitude", self.longitudes, MOST_LONGITUDE),
        ):
            wrong = ~(np.abs(degrees) <= most)
            if wrong.any():
                first = float(np.asarray(degrees)[wrong].flat[0])
                raise BadOption(f"{name} {first} is not between -{most:g} and {most:g} degrees")

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> Locations:
        """Return places from pairs of latitude and longitude."""
        table = np.array(list(pairs), np.float64).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1])

    def __len__(self) -> int:
        return len(self.latitudes)

    def __getitem__(self, index: Index) -> Locations:
        return Locations(np.asarray(self.latitudes[index]), np.asarray(self.longitudes[index]))

    @cached_property
    def vectors(self) -> Floats:
        """Each place as a point of the unit sphere, in the last axis."""
        north = np.radians(np.asarray(self.latitudes, np.float64))
        east = np.radians(np.asarray(self.longitudes, np.float64))
        return np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=-1)


def miles(one: Locations, other: Locations) -> Floats:
    """Return the distance of each place from its counterpart, as arrays are matched by NumPy."""
    return vector_miles(one.vectors, other.vectors)


def vector_miles(one: Floats, other: Floats) -> Floats:
    """Return the distance between points of the unit sphere, given by their vectors in the last axis."""
    apart = np.linalg.norm(one - other, axis=-1)
    opposite = np.linalg.norm(one + other, axis=-1)
    found: Floats = 2 * EARTH_RADIUS_MILES * np.arctan2(apart, opposite)
    return found


def nearest_locations(places: Locations, candidates: Locations) -> Ints:
    """Return the candidate with the fewest miles to each place, the first of equals, without a matrix."""
    if not len(candidates):
        raise BadOption("no candidates: there must be at least one")
    found: Ints = nearest_vectors(places.vectors, candidates.vectors)
    return found


@njit(cache=True, nogil=True)
def nearest_vectors(points: Floats, candidates: Floats) -> Ints:
    """Return the nearest candidates by vectors: a shorter chord is a shorter distance."""
    found = np.zeros(len(points), np.int64)
    for point in range(len(points)):
        shortest = np.inf
        for candidate in range(len(candidates)):
            x = points[point, 0] - candidates[candidate, 0]
            y = points[point, 1] - candidates[candidate, 1]
            z = points[point, 2] - candidates[candidate, 2]
            chord = x * x + y * y + z * z
            if chord < shortest:
                shortest, found[point] = chord, candidate
    return found


def scattered(centres: Locations, spread_miles: float, rng: np.random.Generator) -> Locations:
    """Draw one location near each centre, normally distributed, in any direction.

    Offsets are drawn in the tangent plane, so that distances have the same distribution near a pole as elsewhere.
    """
    if not spread_miles >= 0:
        raise BadOption("must not be negative", spread_miles=spread_miles)
    vectors = centres.vectors
    offsets = rng.normal(0.0, spread_miles / EARTH_RADIUS_MILES, vectors.shape)
    offsets -= (offsets * vectors).sum(axis=-1, keepdims=True) * vectors
    moved = vectors + offsets
    moved /= np.linalg.norm(moved, axis=-1, keepdims=True)
    return Locations(
        np.degrees(np.arcsin(np.clip(moved[..., 2], -1.0, 1.0))),
        np.degrees(np.arctan2(moved[..., 1], moved[..., 0])),
    )
