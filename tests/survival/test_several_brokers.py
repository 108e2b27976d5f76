from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import expm_multiply
from support.profiles import examples
from support.survival.settings import OPPORTUNISTIC_POLICIES, centre, rates
from support.survival.unlumped import unlumped_chain

from newsstand.errors import BadOption
from newsstand.model import OpportunisticPolicy
from newsstand.survival.lumped_chain import ExchangeableBrokers, LumpedChain, lumped_chain
from newsstand.survival.lumped_kernels import all_rows, multiset_count, number_after, number_table
from newsstand.survival.methods import solve
from newsstand.survival.setting import SurvivalSetting
from newsstand.survival.several_brokers import broker_network, copy_push_rates
from newsstand.survival.survival_time import SurvivalTime

POLICIES = pytest.mark.parametrize("policy", OPPORTUNISTIC_POLICIES, ids=str)


def small_networks() -> st.SearchStrategy[SurvivalSetting]:
    return st.builds(
        SurvivalSetting,
        brokers=st.integers(2, 4),
        slots=st.integers(1, 5),
        publish_rate=rates(),
        client_rate=rates(),
        intensity=st.floats(0.05, 8),
        policy=st.sampled_from(OPPORTUNISTIC_POLICIES),
    )


def assert_same(one: SurvivalTime, other: SurvivalTime, precision: float) -> None:
    assert one.mst == pytest.approx(other.mst, rel=precision)
    assert one.sd == pytest.approx(other.sd, rel=precision)
    assert one.p_loss == pytest.approx(other.p_loss, abs=1e-12)
    times = np.array([0.02, 0.2, 0.7, 1.5, 4.0]) * one.mean_cached
    np.testing.assert_allclose(one.below(times), other.below(times), atol=1e-7)


@POLICIES
@pytest.mark.parametrize(("brokers", "slots"), [(1, 4), (2, 1), (2, 6), (3, 4), (4, 3)])
def test_lumped_chain_agrees_with_unlumped_chain(policy: OpportunisticPolicy, brokers: int, slots: int) -> None:
    system = broker_network(centre(brokers=brokers, slots=slots, policy=policy))
    plain = SurvivalTime(unlumped_chain(system))
    assert_same(SurvivalTime(LumpedChain(system)), plain, 1e-8)
    assert_same(SurvivalTime(lumped_chain(system)), plain, 1e-9)


@settings(max_examples=examples(40))
@given(small_networks())
def test_written_out_chain_agrees_with_lumped_chain(setting: SurvivalSetting) -> None:
    chain = LumpedChain(broker_network(setting))
    values = np.random.default_rng(1).random(chain.entry.size)
    np.testing.assert_allclose(
        chain.written_out().generator @ values, chain.apply(values), rtol=1e-9, atol=1e-9 * 1e3
    )
    assert chain.entry.sum() == pytest.approx(1 - setting.loss, rel=1e-9)


def test_lumped_chain_takes_any_local_states() -> None:
    """Five states, moves in all directions, a common event with several outcomes, a copy that enters state 2."""
    draw = np.random.default_rng(5)
    local, pushed = draw.random((5, 5)), draw.random((5, 5))
    for rates_of_moves in (local, pushed):
        rates_of_moves[0] = 0.0
        np.fill_diagonal(rates_of_moves, 0.0)
    common = np.array(
        [
            [1.0, 0.0, 0.0, 0.0, 0.0],
            [0.1, 0.2, 0.3, 0.4, 0.0],
            [0.0, 0.0, 0.5, 0.2, 0.3],
            [0.9, 0.0, 0.0, 0.1, 0.0],
            [0.0, 0.0, 0.0, 1.0, 0.0],
        ]
    )
    entry, reachable = np.array([0.2, 0.1, 0.3, 0.0, 0.4]), np.array([0.0, 0.9, 0.1, 0.5, 0.3])
    push_rates = np.array([0.0, 3.0, 1.0, 0.2])
    system = ExchangeableBrokers(3, 4, entry, local, pushed, push_rates, common, 2.0, reachable, 0.7, 2)
    assert_same(SurvivalTime(LumpedChain(system)), SurvivalTime(unlumped_chain(system)), 1e-8)


def test_exchangeable_brokers_reject_cyclic_common_events() -> None:
    system = broker_network(centre(brokers=2, slots=2))
    back = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    with pytest.raises(ValueError, match="lead back"):
        LumpedChain(replace(system, common=back))


@pytest.mark.parametrize(("members", "labels"), [(1, 4), (3, 1), (3, 4), (5, 3)])
def test_multisets_are_numbered_in_order(members: int, labels: int) -> None:
    table = number_table(members, labels)
    expected = sorted(
        tuple(sorted(found, reverse=True)) for found in combinations_with_replacement(range(labels), members)
    )
    rows = all_rows(members, labels, multiset_count(members, labels))
    assert [tuple(row) for row in rows.tolist()] == expected
    place = {row: number for number, row in enumerate(expected)}
    for row, other in zip(rows, expected, strict=True):
        for gone in set(other):
            for come in range(labels):
                rest = list(other)
                rest.remove(gone)
                then = tuple(sorted([*rest, come], reverse=True))
                assert number_after(row, gone, come, table) == place[then]


@pytest.mark.parametrize("brokers", [1, 2, 5])
@pytest.mark.parametrize("client_rate", [0.01, 0.1, 10.0])
def test_mean_of_equal_caches_is_that_of_one(brokers: int, client_rate: float) -> None:
    setting = centre(brokers=brokers, client_rate=client_rate, slots=7, policy="all-fld-nop")
    lifetime = SurvivalTime(lumped_chain(broker_network(setting)))
    assert lifetime.mst == pytest.approx(7, rel=1e-9)
    assert lifetime.sd == pytest.approx(np.sqrt(7), rel=1e-8)


def test_policies_rank_as_in_paper() -> None:
    means = [solve(centre(policy=name), "reduced").mst for name in ("sel-sub-prt", "sel-sub-nop", "all-fld-nop")]
    assert means == sorted(means, reverse=True)
    assert means == pytest.approx([12.53495, 11.56643, 10.0], rel=1e-5)


@settings(max_examples=examples(40))
@given(
    st.builds(
        SurvivalSetting,
        brokers=st.integers(2, 4),
        slots=st.integers(2, 8),
        publish_rate=st.just(1.0),
        client_rate=st.floats(0.01, 0.2),
        intensity=st.floats(0.5, 6),
    )
)
def test_mean_is_within_bounds_in_ranges_of_paper(setting: SurvivalSetting) -> None:
    least, most = setting.bounds
    assert least * (1 - 1e-9) <= solve(setting, "reduced").mst <= most


@settings(max_examples=examples(60))
@given(small_networks())
def test_mean_without_priority_exceeds_lower_bound(setting: SurvivalSetting) -> None:
    policy = replace(setting.policy, priority=centre(policy="sel-sub-nop").policy.priority)
    plain = replace(setting, policy=policy)
    assert solve(plain, "reduced").mst >= plain.bounds[0] * (1 - 1e-9)


def test_reduced_mean_exceeds_bounds_with_many_copies() -> None:
    """Little's law holds for any system of caches; the estimate of the rate of copies does not know of it."""
    many = centre(brokers=4, slots=6, client_rate=26.5, intensity=19.9)
    assert solve(many, "reduced").mst < 0.8 * many.bounds[0]
    kept = centre(brokers=4, slots=2, client_rate=10.0, intensity=0.05, policy="sel-fld-prt")
    assert solve(kept, "reduced").mst > kept.bounds[1]


def test_copy_push_rates_use_floor() -> None:
    idle = np.exp(-2.0)
    expected = [0, 10 * 3 * 0.1 * (1 - idle), 10 * 0.1 * (1 - idle**2), 3 * 0.1 * (1 - idle**3), 0]
    np.testing.assert_allclose(copy_push_rates(centre(brokers=4)), expected)
    flooded = copy_push_rates(centre(brokers=4, policy="sel-fld-prt"))
    np.testing.assert_allclose(flooded, [0, 3, 1, 0.3, 0])


@pytest.mark.parametrize("policy", ["sel-sub-prt", "sel-fld-nop", "all-fld-nop"])
def test_distribution_of_lumped_chain_agrees_with_exponential(policy: str) -> None:
    system = broker_network(centre(brokers=4, slots=9, policy=policy))
    chain = LumpedChain(system)
    assert chain.entry.size == 714
    lifetime = SurvivalTime(chain)
    times = np.linspace(0.0, 2.0 * lifetime.mean_cached, 5)
    columns = expm_multiply(
        chain.written_out().generator, np.ones(chain.entry.size), start=0.0, stop=times[-1], num=times.size
    )
    expected = 1 - columns @ chain.entry
    np.testing.assert_allclose(lifetime.below(times)[1:], expected[1:], atol=1e-6)


def test_lumped_chain_rejects_too_many_states() -> None:
    with pytest.raises(BadOption, match=r"brokers 12, slots 40: make 206,379,406,870 states.*the method simulate"):
        solve(centre(brokers=12, slots=40), "reduced")


def test_lumped_chain_reports_extreme_rates() -> None:
    chain = LumpedChain(broker_network(centre(brokers=4, slots=7, client_rate=1000.0, intensity=0.01)))
    with pytest.raises(BadOption, match=r"client_rate 1000, .* that 329 states found no solution"):
        _ = SurvivalTime(chain).mst
    assert SurvivalTime(chain.written_out()).mst > 0


def test_lumped_chain_rejects_too_many_brokers() -> None:
    for brokers in (256, 1_000_000):
        with pytest.raises(BadOption, match=rf"brokers {brokers}: the chain of several takes at most 255"):
            solve(centre(brokers=brokers, slots=1), "reduced")
    with pytest.raises(BadOption, match=r"brokers 250, slots 3: make 2,667,126 states"):
        solve(centre(brokers=250, slots=3), "reduced")
    with pytest.raises(BadOption, match=r"slots 1000000000000: make more than 1e15 states"):
        solve(centre(brokers=200, slots=10**12), "reduced")
    with pytest.raises(
        BadOption, match=r"brokers 21: the balanced model takes at most 20; try the method simulate"
    ):
        solve(centre(brokers=21), "balanced")


@pytest.mark.parametrize(("brokers", "last"), [(2, 53), (3, 55)])
def test_reduced_model_leaves_bounds_as_documented(brokers: int, last: int) -> None:
    below = [
        solve(setting, "reduced").mst < setting.bounds[0]
        for setting in (centre(brokers=brokers, slots=slots) for slots in (last - 1, last, last + 1))
    ]
    assert below == [False, False, True]
