"""Decorators that compile replay kernels and the Python functions that they call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import TypeVar, cast

from numba import njit
from numba.extending import register_jitable

F = TypeVar("F", bound=Callable[..., object])
_registered: set[FunctionType] = set()


def jitable(function: F) -> F:
    """Let compiled code call `function` and the plain functions that it calls."""
    plain = cast(FunctionType, function)
    if plain in _registered:
        return function
    _registered.add(plain)
    for name in plain.__code__.co_names:
        named = plain.__globals__.get(name)
        if isinstance(named, FunctionType):
            jitable(named)
    register_jitable(plain)
    return function


borrowing = partial(njit, _nrt=False)
"""For functions that neither make nor store arrays: they skip reference counts, which take half the time."""
