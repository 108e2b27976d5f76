"""The profiles of property tests: `light` by default, `thorough` in `make test-all`."""

from __future__ import annotations

import hypothesis

LIGHT, THOROUGH = "light", "thorough"

# How long an example takes tells of the machine, not of the code.
hypothesis.settings.register_profile(LIGHT, deadline=None, max_examples=25)
hypothesis.settings.register_profile(THOROUGH, deadline=None, max_examples=100)


def examples(thorough: int) -> int:
    """Return the number of examples under the profile in use: a quarter under `light`."""
    light = hypothesis.settings.get_current_profile_name() != THOROUGH
    return max(min(thorough, 10), thorough // 4) if light else thorough
