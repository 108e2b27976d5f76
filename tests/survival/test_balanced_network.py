"""Several brokers whose copies are in balance, and the groups of states that make them few enough."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples
from support.survival.settings import OPPORTUNISTIC_POLICIES, centre

from newsstand.errors import BadOption
from newsstand.lab.survival.simulator import Simulation, run_simulation
from newsstand.model import OpportunisticPolicy
from newsstand.survival.lumped_kernels import multiset_count
from newsstand.survival.methods import solve
from newsstand.survival.one_broker import aggregate, choose_groups, fifo_states, full_states
from newsstand.survival.setting import SurvivalSetting
from newsstand.survival.several_brokers import balanced_network, most_groups
from newsstand.survival.survival_time import SurvivalTime

CENTRE = centre()
FEW = 2000
"""States, where it does not matter how exact the model is."""

some_policies = st.sampled_from(OPPORTUNISTIC_POLICIES)
some_settings = st.builds(
    SurvivalSetting,
    brokers=st.integers(2, 6),
    slots=st.integers(2, 20),
    publish_rate=st.floats(0.1, 2.0),
    client_rate=st.just(0.1),
    intensity=st.floats(0.5, 4.0),
    policy=some_policies.filter(lambda policy: str(policy)[:3] == "sel"),
)


@given(
    slots=st.integers(1, 25),
    intensity=st.floats(0.1, 8.0),
    push_rate=st.floats(0.01, 100.0),
    most=st.integers(2, 40),
    prioritized=st.booleans(),
)
def test_aggregation_keeps_mean_time(
    slots: int, intensity: float, push_rate: float, most: int, prioritized: bool
) -> None:
    policy = OpportunisticPolicy.parse("sel-sub-prt" if prioritized else "sel-sub-nop")
    setting = SurvivalSetting(1, slots, 1.0, 0.1, intensity, policy)
    copy_rate = max(0.0, push_rate - setting.caching_rate)
    push_rate = setting.caching_rate + copy_rate
    states = full_states(setting, copy_rate) if prioritized else fifo_states(setting)
    group = choose_groups(states, push_rate, most, apart=True)
    assert group.min() == 1
    assert group.max() <= max(most, 3)
    cache = aggregate(states, push_rate, group)
    rates = cache.moves + push_rate * cache.pushes
    leaving = np.diag(rates.sum(axis=1) - np.diag(rates))
    generator = rates - np.diag(np.diag(rates)) - leaving
    stay = np.linalg.solve(-generator[1:, 1:], np.ones(group.max()))
    assert cache.entry[1:] @ stay == pytest.approx(slots / push_rate, rel=1e-8)


def test_groups_are_neighbours_with_or_without_clients() -> None:
    states = full_states(replace(CENTRE, slots=12), 0.5)
    group = choose_groups(states, 1.5, 7, apart=True)
    assert group.max() == 7
    for number in range(1, 8):
        inside = group == number
        assert len(set(states.alive[inside])) == 1
        slots = set(states.slot[inside])
        assert slots == set(range(min(slots), max(slots) + 1))
    assert set(states.slot[group == 1]) == {1}


@given(some_settings)
@settings(max_examples=examples(15))
def test_balanced_network_balances_copies(setting: SurvivalSetting) -> None:
    chain, copy_rate = balanced_network(setting, FEW)
    mst = SurvivalTime(chain, setting.loss).mst
    least, greatest = setting.bounds
    assert least * (1 - 1e-6) <= mst <= greatest * (1 + 1e-6)
    elsewhere = setting.publish_rate * mst - setting.slots
    if str(setting.policy)[4:7] == "fld":
        # Messages that a broker lacks, of all that are cached by Little's law, are copied whenever a client comes.
        assert copy_rate == pytest.approx(setting.client_rate * elsewhere, rel=1e-3, abs=1e-6)
    else:
        assert 0 < copy_rate <= setting.client_rate * elsewhere * (1 + 1e-3) + 1e-6


def test_balanced_network_of_one_broker_has_no_copies() -> None:
    one = replace(CENTRE, brokers=1)
    assert solve(one, "balanced").mst == solve(one, "exact").mst
    assert solve(one, "balanced").mst == pytest.approx(10.0, rel=1e-9)


@pytest.mark.parametrize("brokers", [2, 7, 100])
@pytest.mark.parametrize("request_policy", ["sub", "fld"])
def test_balanced_model_of_equal_caches_is_one_cache(brokers: int, request_policy: str) -> None:
    policy = OpportunisticPolicy.parse(f"all-{request_policy}-nop")
    lifetime = solve(SurvivalSetting(brokers, 40, 2.0, 0.1, 2.0, policy), "balanced")
    assert lifetime.mst == pytest.approx(20.0, rel=1e-9)
    assert lifetime.sd == pytest.approx(math.sqrt(40) / 2, rel=1e-9)


def test_exact_method_uses_balanced_model_for_several_brokers() -> None:
    assert solve(CENTRE, "exact").mst == solve(CENTRE, "balanced").mst


def test_priority_and_selective_caching_raise_mean() -> None:
    ordered = [
        solve(replace(CENTRE, policy=OpportunisticPolicy.parse(name)), "balanced").mst
        for name in ("sel-sub-prt", "sel-sub-nop", "all-fld-nop")
    ]
    assert ordered == sorted(ordered, reverse=True)


@pytest.mark.parametrize("brokers", [2, 3, 6, 10, 20])
def test_groups_use_all_allowed_states(brokers: int) -> None:
    groups = most_groups(brokers, 20_000)
    assert multiset_count(brokers, groups + 2) > 20_000
    assert groups == 4 or multiset_count(brokers, groups + 1) <= 20_000


def test_balanced_model_rejects_too_many_brokers() -> None:
    with pytest.raises(BadOption, match=r"brokers 21"):
        solve(replace(CENTRE, brokers=21), "balanced")


def error(setting: SurvivalSetting, observations: int = 60_000) -> float:
    """By how much the model is off simulation, in the direction in which it is surely off."""
    measured = run_simulation(Simulation(setting, observations)).mst
    off = abs(solve(setting, "balanced").mst - measured.mean) - measured.half
    return max(0.0, off) / measured.mean


CORNERS = [
    ("sel-sub-prt", 2, 5, 0.5, 0.1),
    ("sel-sub-prt", 3, 5, 0.7, 0.1),
    ("sel-sub-prt", 4, 5, 0.5, 0.1),
    ("sel-fld-prt", 3, 5, 0.5, 0.1),
    ("sel-sub-prt", 6, 5, 4.0, 2.0),
    ("sel-fld-prt", 6, 5, 0.5, 2.0),
    ("sel-sub-prt", 2, 30, 4.0, 2.0),
    pytest.param("sel-fld-prt", 3, 30, 1.0, 0.5, marks=pytest.mark.slow),
    pytest.param("sel-sub-prt", 3, 20, 0.5, 1.0, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("policy", "brokers", "slots", "intensity", "publish_rate"), CORNERS)
def test_balanced_mean_is_within_five_per_cent_of_simulation(
    policy: str, brokers: int, slots: int, intensity: float, publish_rate: float
) -> None:
    setting = SurvivalSetting(brokers, slots, publish_rate, 0.1, intensity, OpportunisticPolicy.parse(policy))
    assert error(setting, observations=20_000) < 0.05


@pytest.mark.slow
@given(
    brokers=st.integers(2, 6),
    slots=st.integers(5, 30),
    intensity=st.floats(0.5, 4.0),
    publish_rate=st.floats(0.1, 2.0),
    policy=st.sampled_from(["sel-sub-prt", "sel-fld-prt"]),
)
@settings(max_examples=examples(60))
def test_balanced_mean_is_within_five_per_cent_anywhere(
    brokers: int, slots: int, intensity: float, publish_rate: float, policy: str
) -> None:
    setting = SurvivalSetting(brokers, slots, publish_rate, 0.1, intensity, OpportunisticPolicy.parse(policy))
    assert error(setting) < 0.05


@pytest.mark.parametrize("policy", OPPORTUNISTIC_POLICIES, ids=str)
def test_balanced_model_solves_caches_of_one_slot(policy: OpportunisticPolicy) -> None:
    setting = SurvivalSetting(3, 1, 1.0, 0.1, 0.7, policy)
    mst = solve(setting, "balanced").mst
    assert 1.0 - 1e-6 <= mst <= 3.0
    assert mst == pytest.approx(1.0) or setting.selective
