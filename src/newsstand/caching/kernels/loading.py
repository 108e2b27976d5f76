"""Compiled kernels from disk, without the compiler.

Numba imports its whole compiler before it loads a function that an earlier process has compiled. That takes most
of the time until a short replay starts. The function needs nothing of it, and one that is not on disk imports the
compiler before it is compiled. This replaces a method of Numba that is not public.
"""

from __future__ import annotations

from typing import Any

from numba.core.caching import Cache
from numba.core.runtime.nrt import rtsys


def load_without_compiler() -> None:
    """Let Numba load functions that it finds on disk without its compiler."""
    if hasattr(Cache, "_load_overload"):
        setattr(Cache, "load_overload", _load_overload)  # noqa: B010  mypy rejects the assignment of a method


def _load_overload(cache: Any, signature: Any, target: Any) -> Any:
    rtsys.initialize(target)  # what allocates arrays
    with cache._guard_against_spurious_io_errors():
        return cache._load_overload(signature, target)
