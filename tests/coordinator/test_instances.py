"""Which process is the broker of a name, at the coordinator and at the cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from coordinating import LEASE_S, broker, coordinating

from newsstand.cluster.broker_instances import BrokerInstances
from newsstand.errors import Duplicate

Claim = Callable[[str, float], None]
Require = Callable[[str], None]


@pytest.fixture(params=["coordinator", "cluster"])
def fence(request: pytest.FixtureRequest, tmp_path: Path):  # type: ignore[no-untyped-def]
    """How a process becomes the broker, at a time, and how it is asked for with each request."""
    if request.param == "cluster":
        times = [0.0]
        instances = BrokerInstances(lambda: times[-1], LEASE_S)

        def claim(instance: str, now: float) -> None:
            times.append(now)
            instances.claim("a", instance)

        yield claim, lambda instance: instances.require("a", instance)
        return
    with coordinating(tmp_path) as (coordinator, _):

        def register(instance: str, now: float) -> None:
            coordinator.tick(now)
            coordinator.tick(now)
            coordinator.register(replace(broker("a"), instance=instance), now)

        yield register, lambda instance: coordinator.require_instance("a", instance)


def test_a_process_with_another_folder_is_refused_while_the_first_has_a_lease(
    fence: tuple[Claim, Require],
) -> None:
    claim, require = fence
    claim("one.1.x", 0)
    with pytest.raises(Duplicate):
        claim("other.1.y", 1)
    require("one.1.x")
    with pytest.raises(Duplicate):
        require("other.1.y")


def test_a_broker_that_is_started_again_has_its_name_at_once_and_the_earlier_process_has_not(
    fence: tuple[Claim, Require],
) -> None:
    claim, require = fence
    claim("one.1.x", 0)
    claim("one.2.y", 1)
    require("one.2.y")
    with pytest.raises(Duplicate):
        require("one.1.x")


def test_a_registration_of_an_earlier_start_that_arrives_late_is_refused(fence: tuple[Claim, Require]) -> None:
    claim, require = fence
    claim("one.2.y", 0)
    with pytest.raises(Duplicate, match="started again"):
        claim("one.1.x", 1)
    require("one.2.y")
    claim("one.2.y", 1.1)
