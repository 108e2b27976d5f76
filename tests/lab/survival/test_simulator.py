"""The compiled simulation of survival agrees with the overlay's brokers and with theory, however it is run."""

from __future__ import annotations

import doctest
import threading
import time
from collections.abc import Iterable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import replace

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support.profiles import examples
from support.survival.settings import OPPORTUNISTIC_POLICIES

from newsstand.caching.kernels import slots
from newsstand.caching.kernels.slots import SlotCacheRules, SurvivalObservations
from newsstand.errors import BadOption
from newsstand.lab.reporting.statistics import interval
from newsstand.lab.survival import overlay_simulator as survival_overlay
from newsstand.lab.survival import simulator as survival
from newsstand.lab.survival.simulator import (
    MessageClass,
    Replication,
    Simulation,
    observe,
    run_replication,
    run_simulation,
    simulate_on_spark,
    summarize,
)
from newsstand.lab.survival.solve import MOST_EVENTS
from newsstand.model import OpportunisticPolicy
from newsstand.overlay.topology import Topology, line, random_tree, star
from newsstand.survival.methods import solve
from newsstand.survival.setting import SurvivalSetting

LEVEL = 0.01
"""Of all tests of distributions: so often they would fail by chance if seeds were not fixed."""
TREES = {
    "line": line,
    "star": star,
    "random": lambda nodes: random_tree(nodes, np.random.default_rng(nodes)),
}
POPULAR, RARE = MessageClass(0.3, 0.2, 4.0), MessageClass(0.7, 0.05, 0.3)


def simulation(
    brokers: int = 3,
    slots: int = 10,
    client_rate: float = 0.1,
    intensity: float = 2.0,
    policy: str | OpportunisticPolicy = "sel-sub-prt",
    **more: object,
) -> Simulation:
    setting = SurvivalSetting(brokers, slots, 1.0, client_rate, intensity, OpportunisticPolicy.parse(str(policy)))
    return Simulation(setting, **more)  # type: ignore[arg-type]


def compiled(rules: SlotCacheRules, seed: int, warm: int, count: int) -> SurvivalObservations:
    draws = np.random.Generator(np.random.SFC64(seed))
    return slots.simulate(rules, slots.new_network_state(rules), draws, warm, count, slots.NOT_HALTED)


def by_brokers(rules: SlotCacheRules, tree: Topology, seed: int, warm: int, count: int) -> SurvivalObservations:
    draws = np.random.Generator(np.random.SFC64(seed))
    return survival_overlay.simulate(rules, tree, draws, warm, count)


def assert_same(one: SurvivalObservations, other: SurvivalObservations) -> None:
    """To the last bit, and in every count."""
    for name, mine, others in zip(SurvivalObservations._fields, one, other, strict=True):
        np.testing.assert_array_equal(mine, others, name)


# The kernel and the overlay's brokers


def test_overlay_simulator_example_runs() -> None:
    assert doctest.testmod(survival_overlay).failed == 0


@numba.njit
def drawn(random: np.random.Generator, intensity: float, times: int) -> list[float]:
    found = [0.0]
    for _ in range(times):
        found += [random.exponential(), random.random(), float(random.poisson(intensity))]
    return found


@pytest.mark.parametrize("bits", [np.random.SFC64, np.random.PCG64])
@pytest.mark.parametrize("intensity", [0.3, 9.9, 10.0, 300.0])
def test_kernel_draws_as_numpy(bits: type[np.random.BitGenerator], intensity: float) -> None:
    """Below a mean of 10 Poisson's numbers are made in another way than above."""
    mine, compiled_ones = np.random.Generator(bits(3)), np.random.Generator(bits(3))
    assert drawn(compiled_ones, intensity, 3000) == drawn.py_func(mine, intensity, 3000)


@pytest.mark.parametrize("policy", OPPORTUNISTIC_POLICIES, ids=str)
@pytest.mark.parametrize(
    ("tree", "brokers", "size", "client_rate", "intensity"),
    [("line", 4, 3, 0.1, 0.7), ("star", 3, 6, 0.05, 2.0), ("random", 4, 1, 0.3, 1.0), ("line", 1, 4, 0.3, 0.5)],
)
def test_overlay_agrees_with_kernel_exactly(
    tree: str, brokers: int, size: int, client_rate: float, intensity: float, policy: OpportunisticPolicy
) -> None:
    rules = simulation(brokers, size, client_rate, intensity, policy).rules
    seen = compiled(rules, 7, 40, 160)
    assert_same(by_brokers(rules, TREES[tree](brokers), 7, 40, 160), seen)
    assert seen.survival.max() > 0


@settings(max_examples=examples(40))
@given(
    policy=st.sampled_from(OPPORTUNISTIC_POLICIES),
    parents=st.lists(st.integers(0, 99), max_size=3),
    size=st.integers(1, 6),
    client_rate=st.floats(0.01, 0.3),
    intensity=st.floats(0.05, 15),
    seed=st.integers(0, 2**32),
    warm=st.integers(0, 30),
    count=st.integers(1, 60),
)
def test_overlay_agrees_with_kernel_on_any_tree(
    policy: OpportunisticPolicy,
    parents: list[int],
    size: int,
    client_rate: float,
    intensity: float,
    seed: int,
    warm: int,
    count: int,
) -> None:
    brokers = len(parents) + 1
    tree = Topology(brokers, [(at % number + 1, number + 1) for number, at in enumerate(parents, 1)])
    rules = simulation(brokers, size, client_rate, intensity, policy).rules
    assert_same(by_brokers(rules, tree, seed, warm, count), compiled(rules, seed, warm, count))


@pytest.mark.parametrize("policy", ["sel-sub-prt", "sel-fld-nop", "all-sub-prt"])
def test_overlay_agrees_with_kernel_on_classes(policy: str) -> None:
    rules = simulation(3, 3, policy=policy, classes=(POPULAR, RARE)).rules
    seen = compiled(rules, 11, 40, 200)
    assert_same(by_brokers(rules, star(3), 11, 40, 200), seen)
    assert set(seen.kind) == {0, 1}


def test_overlay_and_kernel_have_same_distribution() -> None:
    """Kolmogorov and Smirnov, at the level above, on every twelfth message: three times what both caches hold."""
    from scipy.stats import ks_2samp

    rules = simulation(2, 2, 0.1, 1.0).rules
    few = by_brokers(rules, line(2), 1, 40, 1800).survival[::12]
    many = compiled(rules, 2, 40, 120_000).survival[::12]
    assert abs(np.corrcoef(many[1:], many[:-1])[0, 1]) < 0.05
    assert ks_2samp(few[few > 0], many[many > 0]).pvalue > LEVEL


@pytest.mark.parametrize(
    "tree", [line(3), Topology(4, ((1, 2), (3, 4))), Topology(4, ((1, 2), (2, 3), (3, 4), (1, 4)))]
)
def test_overlay_rejects_other_topologies(tree: Topology) -> None:
    with pytest.raises(BadOption, match="must be a tree of 4 brokers"):
        by_brokers(simulation(4).rules, tree, 1, 0, 1)


def test_overlay_rejects_too_long_trees() -> None:
    rules = simulation(64, 1, 0.002, 0.1).rules
    assert_same(by_brokers(rules, line(64), 1, 0, 3), compiled(rules, 1, 0, 3))
    more = simulation(65, 1, 0.002, 0.1).rules
    with pytest.raises(BadOption, match="no way may have more than 64"):
        by_brokers(more, line(65), 1, 0, 3)
    assert_same(by_brokers(more, star(65), 1, 0, 3), compiled(more, 1, 0, 3))


# The kernel and theory


@pytest.mark.parametrize("policy", OPPORTUNISTIC_POLICIES, ids=str)
@pytest.mark.parametrize("size", [1, 5, 15])
def test_mean_of_one_full_cache_obeys_littles_law(policy: OpportunisticPolicy, size: int) -> None:
    one = simulation(1, size, 0.1, 0.5, policy, observations=2000, replications=2)
    found = [run_replication(one, number).mst for number in range(2)]
    assert found == pytest.approx([size, size], rel=1e-9)


def deviation_of_two_slots(setting: SurvivalSetting, most: int = 9) -> float:
    """Of one broker's survival times under sel-prt, exactly: states are clients of the top and of the bottom."""
    from scipy.stats import poisson

    size = most + 1
    entering = poisson(setting.intensity).pmf(range(size))
    entering[0] = 0
    entering /= entering.sum()
    come, leave, push = setting.client_rate, setting.client_rate / setting.intensity, setting.caching_rate
    stay, change, pushed = np.zeros((3, size, size, size, size))
    for top in range(size):
        for bottom in range(size):
            stay[top, bottom, min(top + 1, most), bottom] += come
            change[top, bottom, min(bottom + 1, most), top] += come
            if top == 1:
                change[top, bottom, bottom, 0] += leave
            elif top:
                stay[top, bottom, top - 1, bottom] += leave * top
            if bottom:
                stay[top, bottom, top, bottom - 1] += leave * bottom
            pushed[top, bottom, :, top] += push * entering
    states = size * size
    stay, change, pushed = (rates.reshape(states, states) for rates in (stay, change, pushed))
    cache = stay + change + pushed
    balance = (cache - np.diag(cache.sum(1))).T
    balance[0] = 1
    often = np.linalg.solve(balance, np.r_[1, np.zeros(states - 1)]).reshape(size, size)
    # One message is followed: first at the top, above what was there, until it is pushed out of the bottom.
    moves = np.block([[stay, change + pushed], [change, stay]])
    leaving = np.r_[np.zeros(states), np.full(states, push)]
    generator = np.diag(moves.sum(1) + leaving) - moves
    entry = np.r_[np.outer(entering, often.sum(1)).ravel(), np.zeros(states)]
    mean = np.linalg.solve(generator, np.ones(2 * states))
    square = 2 * np.linalg.solve(generator, mean)
    return float(np.sqrt(entry @ square - (entry @ mean) ** 2))


@pytest.mark.parametrize(("client_rate", "intensity"), [(0.5, 0.5), (0.5, 2.0)])
def test_deviation_of_two_slots(client_rate: float, intensity: float) -> None:
    one = simulation(1, 2, client_rate, intensity, observations=300_000, replications=20)
    found = run_simulation(one).sd
    assert abs(found.mean - deviation_of_two_slots(one.setting)) < found.half < 0.02 * found.mean


def test_deviation_of_five_slots_is_near_model() -> None:
    """11.33 there for k = 5 and rho = 0.5, where the time until the last client goes is taken for exponential.

    It is not, which makes half a percent; see above for what is exact.
    """
    one = simulation(1, 5, 0.1, 0.5, observations=400_000, replications=20)
    found = run_simulation(one).sd
    assert found.half < 0.01 * 11.33
    assert found.mean == pytest.approx(11.33, rel=0.015)
    assert solve(one.setting, "exact").sd == pytest.approx(11.33, abs=0.005)


def test_mean_time_obeys_littles_law() -> None:
    one = simulation(1, 5, 0.1, 0.5, observations=400_000, replications=20)
    means = interval([float(observe(one, number).survival.mean()) for number in range(20)])
    assert abs(means.mean - 5) < means.half < 0.05


@pytest.mark.parametrize("brokers", [1, 2, 4])
def test_mean_of_all_fld_nop_is_that_of_queue(brokers: int) -> None:
    from scipy.stats import gamma, kstest

    size = 5
    plain = simulation(brokers, size, policy="all-fld-nop", observations=10_000, replications=1)
    seen = observe(plain, 0)
    # Messages that are k publications apart share none of the intervals that their times are made of.
    assert kstest(seen.survival[::size], gamma(size).cdf).pvalue > LEVEL
    assert run_replication(plain, 0).mst == pytest.approx(size, rel=1e-9)
    assert seen.survival.min() > 0
    assert seen.copied == seen.regenerated == seen.degraded == 0


@pytest.mark.parametrize("policy", ["sel-sub-prt", "sel-fld-nop"])
@pytest.mark.parametrize("brokers", [1, 2, 3])
def test_message_is_lost_without_clients(brokers: int, policy: str) -> None:
    count = 20_000
    survival = observe(simulation(brokers, 3, 0.1, 0.5, policy, observations=count, replications=1), 0).survival
    lost = np.exp(-0.5 * brokers)
    assert np.mean(survival == 0) == pytest.approx(lost, abs=3 * np.sqrt(lost * (1 - lost) / count))


def test_policies_rank_as_in_paper_by_simulation() -> None:
    names = ("sel-sub-prt", "sel-sub-nop", "all-fld-nop")
    best, second, worst = (run_simulation(simulation(policy=name, observations=20_000)).mst for name in names)
    assert best.mean - best.half > second.mean + second.half
    assert second.mean - second.half > worst.mean + worst.half
    assert worst.mean == pytest.approx(10, rel=1e-9)
    assert best.mean < 30


# Classes of messages


def test_classes_of_popular_messages_survive_longer() -> None:
    count = 20_000
    two = simulation(observations=count, classes=(POPULAR, RARE))
    survival = run_simulation(two)
    popular, rare = survival.class_mst
    assert popular.mean - popular.half > rare.mean + rare.half
    assert 0.3 * popular.mean + 0.7 * rare.mean == pytest.approx(survival.mst.mean, rel=1e-9)
    kinds = observe(replace(two, replications=1), 0).kind
    assert np.mean(kinds == 0) == pytest.approx(0.3, abs=3 * np.sqrt(0.3 * 0.7 / count))


def test_classes_that_are_alike_change_nothing() -> None:
    one = simulation(observations=500, replications=1)
    alike = replace(one, classes=(MessageClass(0.3, 0.1, 2.0), MessageClass(0.7, 0.1, 2.0)))
    np.testing.assert_array_equal(observe(one, 0).survival, observe(alike, 0).survival)
    assert set(observe(alike, 0).kind) == {0, 1}


# However it is run

SOME = simulation(2, 4, observations=1003, replications=4, seed=5)


@pytest.mark.parametrize("workers", [1, 8])
def test_simulation_is_independent_of_threads(workers: int) -> None:
    with ThreadPoolExecutor(workers) as threads:
        found = list(threads.map(lambda number: run_replication(SOME, number), reversed(range(4))))
    assert summarize(found[::-1]) == run_simulation(SOME)


def test_simulation_depends_on_seed_and_replication() -> None:
    seen = {observe(replace(SOME, seed=seed), number).survival.sum() for seed in (5, 6) for number in range(4)}
    assert len(seen) == 8


def test_simulation_watches_every_message_once() -> None:
    assert [len(observe(SOME, number).survival) for number in range(4)] == [251, 251, 251, 250]


def test_simulation_yields_replications_to_caller() -> None:
    yielded: list[Replication] = []

    def each(coming):  # type: ignore[no-untyped-def]
        for one in coming:
            yielded.append(one)
            yield one

    survival = run_simulation(SOME, each)
    assert survival == run_simulation(SOME)
    assert yielded == [run_replication(SOME, number) for number in range(4)]


def test_simulation_needs_two_messages_per_replication() -> None:
    survival = run_simulation(simulation(observations=6, replications=3, classes=(POPULAR, RARE)))
    assert survival.mst.mean > 0
    assert all(one.mean > 0 for one in survival.class_mst)


@pytest.mark.parametrize("intensity", [0.01, 0.05])
def test_warm_up_fills_caches(intensity: float) -> None:
    one = run_simulation(simulation(1, 4, 0.1, intensity, observations=4000, replications=4))
    assert one.mst.mean == pytest.approx(4.0, rel=1e-9)


def test_simulation_ends_when_halted() -> None:
    rules = simulation().rules
    seen = slots.simulate(
        rules, slots.new_network_state(rules), np.random.default_rng(1), 10, 10, np.ones(1, np.bool_)
    )
    assert not seen.survival.any()


def test_halted_replication_is_not_summarized() -> None:
    with pytest.raises(CancelledError):
        run_replication(SOME, 0, np.ones(1, np.bool_))


def test_simulation_estimates_events() -> None:
    slow = simulation(2, 2, 100.0, 0.01, observations=5000)
    # Some 9,000 are published for each part, and of two messages at two brokers 10,100 a time unit come and go.
    assert slow.events == pytest.approx(10 * (slow.warm + 500) * 2 * 2 * (100 + 2 * 10_000), rel=0.01)
    assert replace(slow, replications=5, observations=2500).events == pytest.approx(slow.events / 2)
    with_classes = replace(slow, classes=(MessageClass(1.0, 100.0, 0.01),))
    assert with_classes.events == slow.events
    assert simulation(3, 1000).events < MOST_EVENTS < slow.events


def test_replications_are_halted_by_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, halts = threading.Event(), []

    def endless(_: Simulation, number: int, halted: np.ndarray) -> None:
        begun.set()
        until = time.monotonic() + 60
        while not halted[0] and time.monotonic() < until:
            time.sleep(0.01)
        halts.append(bool(halted[0]))

    def interrupted(_: Iterable[Replication]) -> Iterable[Replication]:
        begun.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(survival, "run_replication", endless)
    with pytest.raises(KeyboardInterrupt):
        run_simulation(simulation(), interrupted)
    assert halts
    assert all(halts)


def test_simulation_rejects_too_large_caches() -> None:
    with pytest.raises(BadOption, match=r"slots 1000: with 2000 brokers the simulation would take \d+ GB"):
        simulation(2000, 1000)
    with pytest.raises(BadOption, match=r"intensity: so few messages are wanted"):
        simulation(1, 1000, intensity=1e-6)


def test_simulation_on_spark_is_identical(spark: SparkSession) -> None:
    two = simulation(observations=600, replications=2, classes=(POPULAR, RARE))
    assert simulate_on_spark(spark, [SOME, two]) == [run_simulation(SOME), run_simulation(two)]
    assert simulate_on_spark(spark, []) == []


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"replications": 0}, "replications 0: must be at least 1"),
        ({"replications": 10**8}, "replications: must be at most 100,000"),
        ({"observations": 9}, "observations 9: must be at least two for each of 10 replications"),
        ({"observations": 10**300}, "observations: must be at most 1,000,000,000"),
        ({"seed": -1}, "seed -1: must not be negative"),
        ({"classes": (POPULAR, POPULAR)}, "the shares of all classes together must be 1"),
    ],
)
def test_simulation_rejects_invalid_samples(bad: dict[str, object], error: str) -> None:
    with pytest.raises(BadOption, match=error):
        simulation(**bad)  # type: ignore[arg-type]
