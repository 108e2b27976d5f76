"""How long a published message survives (Sourlas et al. 2011, section 3 and Eq. 3)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from newsstand.errors import BadOption
from newsstand.survival.chain import Chain, Floats
from newsstand.survival.curve import Curve, fitted_curve
from newsstand.survival.setting import RATES

LONGEST = 2.0**60
"""No quantile is looked for beyond so many means."""


class Lifetime:
    """How long a message survives that is published now; one that no broker caches is lost and survives 0.

    Nothing is computed before it is asked for: the mean takes one system of equations, the deviation a second one,
    the distribution a few dozen more, once for all arguments.
    """

    def __init__(self, chain: Chain, p_loss: float | None = None) -> None:
        self._chain = chain
        self.p_loss = max(0.0, 1.0 - float(chain.entry.sum())) if p_loss is None else p_loss
        """P_loss: the probability that no broker caches the message."""

    @cached_property
    def _means(self) -> Floats:
        return self._chain.solve(np.ones_like(self._chain.entry))

    @cached_property
    def mst(self) -> float:
        """MST = -phi Tr^-1 e: the mean survival time, to which lost messages contribute 0 (Eq. 3)."""
        return float(self._chain.entry @ self._means)

    @property
    def mean_cached(self) -> float:
        """The mean survival time of messages that were cached at all."""
        return self.mst / self._caught

    @cached_property
    def sd(self) -> float:
        """The standard deviation of the survival time of messages that were cached at all."""
        second = 2.0 * float(self._chain.entry @ self._chain.solve(self._means)) / self._caught
        return float(np.sqrt(max(0.0, second - self.mean_cached**2)))

    def below(self, x: npt.ArrayLike) -> Floats:
        """P(T < x), lost messages included, for each x."""
        times = np.asarray(x, dtype=np.float64)
        chance = 1.0 - self._curve.survival(np.maximum(times, 0.0)) * self._caught
        return np.where(times > 0.0, np.clip(chance, self.p_loss, 1.0), 0.0)

    def density(self, x: npt.ArrayLike) -> Floats:
        """The density of T for x > 0, whose integral is 1 - P_loss."""
        times = np.asarray(x, dtype=np.float64)
        dense = self._curve.density(np.maximum(times, 0.0)) * self._caught
        return np.where(times >= 0.0, np.maximum(dense, 0.0), 0.0)

    def quantile(self, p: float) -> float:
        """The time that a message that was cached outlives with probability 1 - p."""
        if not 0.0 <= p < 1.0:
            raise ValueError(f"{p}: a quantile is asked for with a probability from 0 to below 1")
        if p == 0.0:
            return 0.0
        far = self.mean_cached
        while self._lacking(far, p) < 0.0:
            far *= 2.0
            if far > LONGEST * self.mean_cached:
                raise BadOption(f"{RATES}: at these the quantile {p} is beyond the precision of the distribution")
        return float(brentq(self._lacking, 0.0, far, args=(p,), xtol=1e-12 * far, rtol=1e-12))

    def _lacking(self, x: float, p: float) -> float:
        return 1.0 - p - float(self._curve.survival(np.asarray(x)))

    @property
    def _caught(self) -> float:
        return float(self._chain.entry.sum())

    @cached_property
    def _curve(self) -> Curve:
        return fitted_curve(self._chain, self.mean_cached)
