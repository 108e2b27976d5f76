"""How the replay of result caches is compiled."""

from functools import partial

from numba import njit

borrowing = partial(njit, _nrt=False)
"""For functions that make no arrays and keep none: they count no references, which would take half the time."""
