from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.stats import gamma
from settings_of_survival import centre, settings_of_one_broker

from newsstand.errors import BadOption
from newsstand.model import OPPORTUNISTIC_POLICIES
from newsstand.survival.alive import alive_counts, alive_in_front, alive_in_slot
from newsstand.survival.full_chain import full_chain
from newsstand.survival.lifetime import Lifetime
from newsstand.survival.methods import solve
from newsstand.survival.reduced_chain import reduced_chain
from newsstand.survival.setting import Setting

ONE = centre(brokers=1, slots=5, intensity=0.5)


@settings(max_examples=60)
@given(settings_of_one_broker())
@pytest.mark.parametrize("method", ["exact", "reduced"])
def test_the_mean_is_what_littles_law_demands(method: str, setting: Setting) -> None:
    assert solve(setting, method).mst == pytest.approx(setting.slots / setting.publish_rate, rel=1e-9)


def test_the_deviation_of_the_exact_model_is_that_of_the_simulation() -> None:
    lifetime = solve(ONE, "exact")
    assert lifetime.sd == pytest.approx(11.33, abs=0.005)
    assert lifetime.p_loss == pytest.approx(np.exp(-0.5))
    assert lifetime.mean_cached == pytest.approx(5 / (1 - np.exp(-0.5)))


@pytest.mark.parametrize("method", ["exact", "reduced"])
@pytest.mark.parametrize("slots", [1, 2, 7, 40])
@pytest.mark.parametrize("caching", ["sel", "all"])
def test_without_priority_the_survival_time_is_erlang(method: str, slots: int, caching: str) -> None:
    setting = replace(ONE, slots=slots, policy=centre(policy=f"{caching}-sub-nop").policy)
    lifetime = solve(setting, method)
    erlang = gamma(slots, scale=1 / setting.caching_rate)
    times = erlang.ppf([0.001, 0.1, 0.5, 0.9, 0.999])
    caught = 1 - setting.loss
    np.testing.assert_allclose(lifetime.below(times), setting.loss + caught * erlang.cdf(times), atol=1e-9)
    np.testing.assert_allclose(lifetime.density(times), caught * erlang.pdf(times), atol=1e-8)
    assert lifetime.quantile(0.9) == pytest.approx(times[3], rel=1e-8)
    assert lifetime.sd == pytest.approx(erlang.std(), rel=1e-9)


def test_one_slot_is_left_with_the_next_message_that_is_cached() -> None:
    single = replace(ONE, slots=1)
    for method in ("exact", "reduced"):
        lifetime = solve(single, method)
        assert lifetime.sd == pytest.approx(1 / single.caching_rate)
        assert lifetime.quantile(0.5) == pytest.approx(np.log(2) / single.caching_rate)


def test_two_slots_by_hand() -> None:
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


@settings(max_examples=30)
@given(settings_of_one_broker(most_slots=20))
def test_alive_messages_are_born_and_degraded_in_balance(setting: Setting) -> None:
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


@settings(max_examples=30)
@given(settings_of_one_broker(most_slots=12))
def test_degradations_in_the_full_chain_happen_at_the_rate_of_all_alive_messages(setting: Setting) -> None:
    chain = full_chain(setting)
    slots = setting.slots
    alive = np.repeat(np.arange(slots + 1), slots)
    listed = chain.moves.tocoo()
    fewer = alive[listed.col] < alive[listed.row]
    down = np.bincount(listed.row[fewer], listed.data[fewer], minlength=alive.size)
    np.testing.assert_allclose(down, alive * setting.degradation_rate, rtol=1e-9)


@pytest.mark.parametrize("policy", OPPORTUNISTIC_POLICIES, ids=str)
def test_both_models_agree_on_the_distribution_within_a_few_hundredths(policy: object) -> None:
    setting = centre(brokers=1, policy=policy, slots=15)
    exact, reduced = Lifetime(full_chain(setting)), Lifetime(reduced_chain(setting))
    times = np.linspace(0.5, 80, 40)
    np.testing.assert_allclose(exact.below(times), reduced.below(times), atol=0.02)


def test_an_unknown_method_is_answered_with_those_there_are() -> None:
    with pytest.raises(BadOption, match="--method guess: there is no such method; there are exact, reduced"):
        solve(centre(), "guess")


@pytest.mark.parametrize(("method", "slots"), [("exact", 301), ("reduced", 2501)])
def test_caches_too_large_to_be_solved_are_refused(method: str, slots: int) -> None:
    told = f"--slots {slots}: --method {method} solves at most {slots - 1} slots; try --method simulate"
    with pytest.raises(BadOption, match=told):
        solve(centre(brokers=1, slots=slots), method)
