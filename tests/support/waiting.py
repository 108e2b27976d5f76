"""Waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until a condition is true, or fail after some seconds."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "timeout"
        time.sleep(0.02)
