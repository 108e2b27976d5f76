from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from support.profiles import examples
from support.survival.settings import OPPORTUNISTIC_POLICIES, centre, settings_of_one_broker

from newsstand.errors import BadOption
from newsstand.survival.methods import solve
from newsstand.survival.one_broker import (
    alive_counts,
    alive_in_front,
    alive_in_slot,
    full_chain,
    reduced_chain,
)
from newsstand.survival.setting import SurvivalSetting
from newsstand.survival.survival_time import SurvivalTime

ONE = centre(brokers=1, slots=5, intensity=0.5)


@settings(max_examples=examples(60))
@given(settings_of_one_broker())
@pytest.mark.parametrize("method", ["exact", "reduced"])
def test_mean_of_one_broker_obeys_littles_law(method: str, setting: SurvivalSetting) -> None:
    assert solve(setting, method).mst == pytest.approx(setting.slots / setting.publish_rate, rel=1e-9)


def test_exact_deviation_agrees_with_simulation() -> None:
    lifetime = solve(ONE, "exact")
    assert lifetime.sd == pytest.approx(11.33, abs=0.005)
    assert lifetime.p_loss == pytest.approx(np.exp(-0.5))
    assert lifetime.mean_cached == pytest.approx(5 / (1 - np.exp(-0.5)))


@pytest.mark.parametrize("method", ["exact", "reduced"])
@pytest.mark.parametrize("slots", [1, 2, 7, 40])
@pytest.mark.parametrize("caching", ["sel", "all"])
def test_survival_time_without_priority_is_erlang(method: str, slots: int, caching: str) -> None:
    from scipy.stats import gamma

    setting = replace(ONE, slots=slots, policy=centre(policy=f"{caching}-sub-nop").policy)
    lifetime = solve(setting, method)
    erlang = gamma(slots, scale=1 / setting.caching_rate)
    times = erlang.ppf([0.001, 0.1, 0.5, 0.9, 0.999])
    caught = 1 - setting.loss
    np.testing.assert_allclose(lifetime.below(times), setting.loss + caught * erlang.cdf(times), atol=1e-9)
    np.testing.assert_allclose(lifetime.density(times), caught * erlang.pdf(times), atol=1e-8)
    assert lifetime.quantile(0.9) == pytest.approx(times[3], rel=1e-8)
    assert lifetime.sd == pytest.approx(erlang.std(), rel=1e-9)


def test_survival_time_of_one_slot_is_exponential() -> None:
    single = replace(ONE, slots=1)
    for method in ("exact", "reduced"):
        lifetime = solve(single, method)
        assert lifetime.sd == pytest.approx(1 / single.caching_rate)
        assert lifetime.quantile(0.5) == pytest.approx(np.log(2) / single.caching_rate)


def test_survival_time_of_two_slots_agrees_with_formula() -> None:
    """Between slots 1 and 2 only two rates matter in the reduced chain: down a, up b, out of slot 2 at c."""
    setting = replace(ONE, slots=2)
    alive, front = alive_in_slot(setting), alive_in_front(setting)
    down = setting.client_rate + setting.caching_rate + alive[0] * setting.degradation_rate
    up = setting.client_rate + front[1] * setting.degradation_rate
    out = setting.caching_rate
    second = np.linalg.solve([[down, -down], [-up, up + out]], [1.0, 1.0])
    lifetime = solve(setting, "reduced")
    assert lifetime.mean_cached == pytest.approx(second[0])
    variance = 2 * np.linalg.solve([[down, -down], [-up, up + out]], second)[0] - second[0] ** 2
    assert lifetime.sd == pytest.approx(np.sqrt(variance))


@settings(max_examples=examples(30))
@given(settings_of_one_broker(most_slots=20))
def test_alive_counts_balance_births_and_deaths(setting: SurvivalSetting) -> None:
    counts, slots = alive_counts(setting), setting.slots
    assert counts.sum() == pytest.approx(1)
    if setting.prioritized:
        number = np.arange(slots)
        up = counts[:-1] * ((slots - number) * setting.client_rate + setting.caching_rate)
        np.testing.assert_allclose(
            up, counts[1:] * (number + 1) * setting.degradation_rate, rtol=1e-9, atol=1e-300
        )
        in_slots = alive_in_slot(setting)
        np.testing.assert_allclose(alive_in_front(setting), np.cumsum(in_slots) - in_slots, rtol=1e-9, atol=1e-12)


@settings(max_examples=examples(30))
@given(settings_of_one_broker(most_slots=12))
def test_full_chain_degrades_at_rate_of_alive_messages(setting: SurvivalSetting) -> None:
    chain = full_chain(setting)
    slots = setting.slots
    alive = np.repeat(np.arange(slots + 1), slots)
    listed = chain.moves.tocoo()
    fewer = alive[listed.col] < alive[listed.row]
    down = np.bincount(listed.row[fewer], listed.data[fewer], minlength=alive.size)
    np.testing.assert_allclose(down, alive * setting.degradation_rate, rtol=1e-9)


@pytest.mark.parametrize("policy", OPPORTUNISTIC_POLICIES, ids=str)
def test_exact_and_reduced_distributions_agree(policy: object) -> None:
    setting = centre(brokers=1, policy=policy, slots=15)
    exact, reduced = SurvivalTime(full_chain(setting)), SurvivalTime(reduced_chain(setting))
    times = np.linspace(0.5, 80, 40)
    np.testing.assert_allclose(exact.below(times), reduced.below(times), atol=0.02)


def test_solve_rejects_unknown_method() -> None:
    with pytest.raises(BadOption, match="method guess: must be one of exact, reduced"):
        solve(centre(), "guess")


@pytest.mark.parametrize(("method", "slots"), [("exact", 301), ("reduced", 2501)])
def test_solve_rejects_too_large_caches(method: str, slots: int) -> None:
    message = f"slots {slots}: method {method} solves at most {slots - 1} slots; try the method simulate"
    with pytest.raises(BadOption, match=message):
        solve(centre(brokers=1, slots=slots), method)
