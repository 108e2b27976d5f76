"""Which process is the broker of a name, for the coordinator and for the data cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.coordinator.coordinators import LEASE_S, broker, coordinating

from newsstand.cluster.api.context import BrokerInstances
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
            instances.check("a", instance, claim=True)

        yield claim, lambda instance: instances.check("a", instance, claim=False)
        return
    with coordinating(tmp_path) as (coordinator, _):

        def register(instance: str, now: float) -> None:
            coordinator.tick(now)
            coordinator.tick(now)
            coordinator.register(replace(broker("a"), instance=instance), now)

        yield register, lambda instance: coordinator.require_instance("a", instance)


def test_process_with_other_folder_rejected_during_lease_of_first(
    fence: tuple[Claim, Require],
) -> None:
    claim, require = fence
    claim("one.1.x", 0)
    with pytest.raises(Duplicate):
        claim("other.1.y", 1)
    require("one.1.x")
    with pytest.raises(Duplicate):
        require("other.1.y")


def test_restarted_broker_takes_its_name_from_earlier_process_at_once(
    fence: tuple[Claim, Require],
) -> None:
    claim, require = fence
    claim("one.1.x", 0)
    claim("one.2.y", 1)
    require("one.2.y")
    with pytest.raises(Duplicate):
        require("one.1.x")


def test_registration_rejected_when_late_and_of_earlier_start(fence: tuple[Claim, Require]) -> None:
    claim, require = fence
    claim("one.2.y", 0)
    with pytest.raises(Duplicate, match=r"restarted|started again"):
        claim("one.1.x", 1)
    require("one.2.y")
    claim("one.2.y", 1.1)


def test_restarted_broker_claims_its_name_with_any_call() -> None:
    instances = BrokerInstances(lambda: 0.0, LEASE_S)
    instances.check("a", "one.1.x", claim=True)
    instances.check("a", "one.2.y", claim=False)
    for stale in ("one.1.x", "other.1.z"):
        with pytest.raises(Duplicate):
            instances.check("a", stale, claim=False)
