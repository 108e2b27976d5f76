"""The environment of commands that tests run as processes."""

from __future__ import annotations

import os

KEPT = "NEWSSTAND_CLASS_ARCHIVE"
"""Without it, a command would create an archive of Spark's classes beside the other tests."""


def without_settings() -> dict[str, str]:
    """Return the environment without the settings of the user who runs the tests."""
    return {key: value for key, value in os.environ.items() if key == KEPT or not key.startswith("NEWSSTAND_")}
