"""Random worlds of brokers, a coordinator and clients keep what was answered."""

from __future__ import annotations

import pytest
from hypothesis import settings
from support.broker.subscriber_world import World


class TestWorld(World.TestCase):  # type: ignore[misc, name-defined]
    """A few worlds."""

    settings = settings(max_examples=25, stateful_step_count=30, derandomize=True)


@pytest.mark.slow
class TestManyWorlds(World.TestCase):  # type: ignore[misc, name-defined]
    """Many worlds, others each time."""

    settings = settings(max_examples=600, stateful_step_count=50, deadline=None)
