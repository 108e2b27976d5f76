from __future__ import annotations

from dataclasses import replace

import pytest
from support.survival.settings import centre

from newsstand.errors import BadOption
from newsstand.survival.methods import smallest_slots, solve


@pytest.mark.parametrize("target", [0.1, 1.0, 7.0, 7.1, 30.0])
@pytest.mark.parametrize("method", ["exact", "reduced"])
def test_smallest_slots_of_one_broker_are_twice_target(target: float, method: str) -> None:
    slots, lifetime = smallest_slots(centre(brokers=1, publish_rate=2.0), target, method)
    assert slots == -(-2 * target // 1)
    assert lifetime.mst == pytest.approx(slots / 2)


@pytest.mark.parametrize("target", [1.0, 12.5, 12.6, 20.0])
@pytest.mark.parametrize("policy", ["sel-sub-prt", "all-fld-nop"])
def test_smallest_slots_is_minimal(target: float, policy: str) -> None:
    setting = centre(policy=policy)
    slots, lifetime = smallest_slots(setting, target, "reduced")
    assert lifetime.mst >= target * (1 - 1e-9)
    assert slots == 1 or solve(replace(setting, slots=slots - 1), "reduced").mst < target


@pytest.mark.parametrize(
    ("client_rate", "intensity", "policy", "target"),
    [(26.5, 19.9, "sel-sub-prt", 5.0), (10.0, 0.05, "sel-fld-prt", 10.0)],
)
def test_smallest_slots_rejects_impossible_means(
    client_rate: float, intensity: float, policy: str, target: float
) -> None:
    setting = centre(brokers=4, client_rate=client_rate, intensity=intensity, policy=policy)
    with pytest.raises(BadOption, match=r"method reduced: with \d+ slots its mean is outside"):
        smallest_slots(setting, target, "reduced")


def test_smallest_slots_rejects_unsolvable_target() -> None:
    with pytest.raises(BadOption, match=r"target_mst 1e\+06: needs caches too large to be solved"):
        smallest_slots(centre(), 1e6, "reduced")
    with pytest.raises(BadOption, match=r"target_mst 0: must be a number above 0"):
        smallest_slots(centre(), 0.0, "reduced")
