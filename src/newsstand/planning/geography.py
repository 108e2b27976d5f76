"""Places on the globe and the miles between them.

Distances are by great circle. A place is a unit vector in space, and the angle between two of them is taken by
Kahan's formula, which is accurate for neighbours and for antipodes alike: places given as 32-bit floats cost some
feet, where the usual formulas with arccos or arcsin would cost miles.

>>> towns = Places.of([(40.71, -74.01), (34.05, -118.24), (51.51, -0.13)])
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
from newsstand.planning.places import EARTH_RADIUS_MILES

Floats = npt.NDArray[np.float64]
Degrees = npt.NDArray[np.float32 | np.float64]
Ints = npt.NDArray[np.int64]
Index = int | slice | npt.NDArray[np.integer] | npt.NDArray[np.bool_]

MOST_LATITUDE, MOST_LONGITUDE = 90.0, 180.0


@dataclass(frozen=True, eq=False)
class Places:
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
    def of(cls, pairs: Iterable[tuple[float, float]]) -> Places:
        """Places from pairs of latitude and longitude."""
        table = np.array(list(pairs), np.float64).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1])

    def __len__(self) -> int:
        return len(self.latitudes)

    def __getitem__(self, index: Index) -> Places:
        return Places(np.asarray(self.latitudes[index]), np.asarray(self.longitudes[index]))

    @cached_property
    def vectors(self) -> Floats:
        """Each place as a point of the unit sphere, in the last axis."""
        north = np.radians(np.asarray(self.latitudes, np.float64))
        east = np.radians(np.asarray(self.longitudes, np.float64))
        return np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=-1)


def miles(one: Places, other: Places) -> Floats:
    """The distance of each place from its counterpart, as arrays are matched by NumPy."""
    return vector_miles(one.vectors, other.vectors)


def miles_matrix(rows: Places, columns: Places) -> npt.NDArray[np.float32]:
    """All distances between two sets of places, in 32 bits as there are many of them."""
    return vector_miles(rows.vectors[:, None], columns.vectors[None]).astype(np.float32)


def vector_miles(one: Floats, other: Floats) -> Floats:
    """The distance between points of the unit sphere, given by their vectors in the last axis."""
    apart = np.linalg.norm(one - other, axis=-1)
    opposite = np.linalg.norm(one + other, axis=-1)
    found: Floats = 2 * EARTH_RADIUS_MILES * np.arctan2(apart, opposite)
    return found


def nearest_places(places: Places, candidates: Places) -> Ints:
    """For each place the candidate with the fewest miles to it, the first of equals; no matrix is made."""
    if not len(candidates):
        raise BadOption("nothing is nearest where there are no candidates")
    found: Ints = nearest_vectors(places.vectors, candidates.vectors)
    return found


@njit(cache=True, nogil=True)
def nearest_vectors(points: Floats, candidates: Floats) -> Ints:
    """`nearest_places` for vectors. The shorter chord is the shorter way: no angle is needed to compare."""
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


def scattered(centres: Places, spread_miles: float, rng: np.random.Generator) -> Places:
    """One place near each centre: as far as a bell curve of that spread has it, in any direction.

    The offsets are drawn on the plane that touches the globe, so near a pole a place is as far off as anywhere.
    """
    if not spread_miles >= 0:
        raise BadOption(f"spread_miles is {spread_miles}: it cannot be negative")
    vectors = centres.vectors
    offsets = rng.normal(0.0, spread_miles / EARTH_RADIUS_MILES, vectors.shape)
    offsets -= (offsets * vectors).sum(axis=-1, keepdims=True) * vectors
    moved = vectors + offsets
    moved /= np.linalg.norm(moved, axis=-1, keepdims=True)
    return Places(
        np.degrees(np.arcsin(np.clip(moved[..., 2], -1.0, 1.0))),
        np.degrees(np.arctan2(moved[..., 1], moved[..., 0])),
    )
