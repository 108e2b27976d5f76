from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.linalg import expm
from support.survival.settings import centre

from newsstand.survival import survival_time as curve
from newsstand.survival.absorbing_chain import SparseChain
from newsstand.survival.methods import solve
from newsstand.survival.one_broker import full_chain, reduced_chain
from newsstand.survival.setting import SurvivalSetting
from newsstand.survival.survival_time import SurvivalTime


class CountingChain(SparseChain):
    """A chain that knows how often it was solved."""

    solved = 0

    def solve(self, values: np.ndarray, shift: float = 0.0, precision: float = 0.0) -> np.ndarray:
        self.solved += 1
        return super().solve(values, shift)


def test_survival_time_of_two_states() -> None:
    """Half enter state 1, a quarter state 2; 1 goes to 2 at rate 2, 2 is left at rate 4."""
    lifetime = SurvivalTime(
        SparseChain(np.array([0.5, 0.25]), np.array([[0.0, 2.0], [0.0, 0.0]]), np.array([0.0, 4.0]))
    )
    assert lifetime.p_loss == 0.25
    assert lifetime.mst == pytest.approx(0.5 * 0.75 + 0.25 * 0.25)
    times = np.array([-1.0, 0.0, 0.3, 1.0])
    first, second = 2 * np.exp(-2 * times) - np.exp(-4 * times), np.exp(-4 * times)
    expected = 1 - 0.5 * first - 0.25 * second
    expected[:2] = 0
    np.testing.assert_allclose(lifetime.below(times), expected, atol=1e-12)


@pytest.mark.parametrize("intensity", [0.01, 0.5, 2.0, 10.0])
@pytest.mark.parametrize("client_rate", [0.001, 0.1, 10.0, 1000.0])
def test_distribution_agrees_with_matrix_exponential(intensity: float, client_rate: float) -> None:
    setting = centre(brokers=1, intensity=intensity, client_rate=client_rate)
    chain = full_chain(setting)
    lifetime = SurvivalTime(chain)
    times = np.array([0.001, 0.03, 0.3, 1.0, 3.0, 20.0]) * lifetime.mean_cached
    generator = chain.generator.toarray()
    expected = [1 - chain.entry @ expm(time * generator).sum(axis=1) for time in times]
    np.testing.assert_allclose(lifetime.below(times), expected, atol=1e-8)


def test_density_is_derivative_without_lost_messages() -> None:
    lifetime = SurvivalTime(reduced_chain(centre(brokers=1, intensity=0.5)))
    whole, _ = quad(lambda time: float(lifetime.density(time)), 0, 40 * lifetime.mean_cached, limit=200)
    assert whole == pytest.approx(1 - lifetime.p_loss, abs=1e-6)
    step = 1e-3
    slope = (lifetime.below(12 + step) - lifetime.below(12 - step)) / (2 * step)
    assert float(lifetime.density(12)) == pytest.approx(float(slope), rel=1e-5)


def test_quantile_inverts_distribution() -> None:
    lifetime = SurvivalTime(full_chain(centre(brokers=1, intensity=0.5)))
    for chance in (0.0, 0.01, 0.5, 0.99, 0.99999):
        reached = float(lifetime.below(lifetime.quantile(chance)))
        expected = lifetime.p_loss + (1 - lifetime.p_loss) * chance if chance else 0.0
        assert reached == pytest.approx(expected, abs=1e-9)
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        lifetime.quantile(1.0)


def test_below_keeps_shape_of_argument() -> None:
    lifetime = SurvivalTime(reduced_chain(centre(brokers=1)))
    assert lifetime.below(3.0).shape == ()
    assert lifetime.below([]).shape == (0,)
    assert lifetime.density(np.ones((2, 3))).shape == (2, 3)


def test_survival_time_is_solved_lazily() -> None:
    plain = reduced_chain(centre(brokers=1))
    chain = CountingChain(plain.entry, plain.moves, plain.exits)
    lifetime = SurvivalTime(chain)
    assert (lifetime.p_loss > 0, chain.solved) == (True, 0)
    assert (lifetime.mst > 0, chain.solved) == (True, 1)
    assert (lifetime.sd > 0, chain.solved) == (True, 2)
    assert lifetime.quantile(0.5) > 0
    after = chain.solved
    assert lifetime.quantile(0.9) > lifetime.quantile(0.1)
    assert chain.solved == after


def test_sparse_chain_solves_wide_bands() -> None:
    """A ring of 3,000 states, left from each."""
    size = 3000
    ring = np.roll(np.arange(size), -1)
    from scipy import sparse

    moves = sparse.coo_array((np.ones(size), (np.arange(size), ring)), shape=(size, size))
    entry = np.zeros(size)
    entry[7] = 1.0
    lifetime = SurvivalTime(SparseChain(entry, moves, np.full(size, 0.5)))
    assert lifetime.mst == pytest.approx(2.0)
    assert lifetime.sd == pytest.approx(2.0)


def test_low_accuracy_is_within_a_thousandth(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = SurvivalSetting(4, 12, 1.0, 0.1, 2.0)
    lifetime = solve(setting, "reduced")
    times = lifetime.mean_cached * np.geomspace(0.05, 6.0, 25)
    full = lifetime.below(times)
    monkeypatch.setattr(curve, "accuracy_for", lambda _: curve.LOW_ACCURACY)
    np.testing.assert_allclose(solve(setting, "reduced").below(times), full, atol=1e-3)
