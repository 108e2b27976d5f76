"""Plain Python functions made callable from compiled code, as they are."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TypeVar, cast

from numba.extending import register_jitable

F = TypeVar("F", bound=Callable[..., object])
_registered: set[FunctionType] = set()


def jitable(function: F) -> F:
    """Let compiled code call `function` and the plain functions that it names."""
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
