"""The profiles of property tests: `light` by default, `thorough` in `make test-all`."""

from __future__ import annotations

import hypothesis

LIGHT, THOROUGH = "light", "thorough"

# How long an example takes tells of the machine, not of the code.
hypothesis.settings.register_profile(LIGHT, deadline=None, max_examples=25)
hypothesis.settings.register_profile(THOROUGH, deadline=None, max_examples=100)


def examples(thorough: int, light: int | None = None) -> int:
    """Return the number of examples under the profile in use: under `light` a quarter, or as given."""
    if hypothesis.settings.get_current_profile_name() == THOROUGH:
        return thorough
    return max(min(thorough, 10), thorough // 4) if light is None else light
