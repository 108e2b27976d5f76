"""What a model of survival is about: brokers, slots, rates and a policy (Sourlas et al. 2011, section 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from newsstand.errors import BadOption
from newsstand.model import CachingPolicy, OpportunisticPolicy, PriorityPolicy

MOST_INTENSITY = 700.0
"""Beyond it exp(-rho) is not a number that a computer tells from zero."""
RATES = "--publish-rate, --client-rate, --intensity"
"""Named where no single one of them is to blame."""
LEAST_RATE, MOST_RATE = 1e-16, 1e15
"""Of rates, and of the intensity: only their ratios matter, and beyond these no model tells them apart."""


def require_rate(option: str, rate: float) -> None:
    """Refuse a rate that nothing can be computed with."""
    if not (math.isfinite(rate) and rate > 0):
        raise BadOption(f"{option} {rate:g}: must be a number above 0")
    if rate < LEAST_RATE:
        raise BadOption(f"{option} {rate:g}: must be at least {LEAST_RATE:g}")
    if rate > MOST_RATE:
        raise BadOption(f"{option} {rate:g}: must be at most {MOST_RATE:g}")


@dataclass(frozen=True)
class Setting:
    """Equal brokers with equal caches; every message has clients of its own, alike at all brokers."""

    brokers: int
    """n."""
    slots: int
    """k: how many messages a cache holds."""
    publish_rate: float
    """lambda_b: publications per unit of time in the whole network."""
    client_rate: float
    """lambda_c: arrivals of clients for one message at one broker per unit of time."""
    intensity: float
    """rho_c = lambda_c / mu_c: mean number of clients for one message at one broker."""
    policy: OpportunisticPolicy = field(default_factory=OpportunisticPolicy)

    def __post_init__(self) -> None:
        for option, count in (("--brokers", self.brokers), ("--slots", self.slots)):
            if count < 1:
                raise BadOption(f"{option} {count}: must be at least 1")
        rates = {
            "--publish-rate": self.publish_rate,
            "--client-rate": self.client_rate,
            "--intensity": self.intensity,
        }
        for option, rate in rates.items():
            require_rate(option, rate)
        if self.intensity > MOST_INTENSITY:
            raise BadOption(f"--intensity {self.intensity:g}: must be at most {MOST_INTENSITY:g}")

    @property
    def selective(self) -> bool:
        """Whether only brokers with a client who wants a publication cache it."""
        return self.policy.caching is CachingPolicy.SELECTIVE

    @property
    def prioritized(self) -> bool:
        """Whether clients change the order of a cache."""
        return self.policy.priority is PriorityPolicy.PRIORITY

    @property
    def idle(self) -> float:
        """pi_0 = exp(-rho_c): the probability that a broker has no client for a message."""
        return math.exp(-self.intensity)

    @property
    def interested(self) -> float:
        """1 - pi_0, exact for small rho_c, too."""
        return -math.expm1(-self.intensity)

    @property
    def cached(self) -> float:
        """The probability that a given broker caches a publication: 1 - pi_0 for `sel`, 1 for `all`."""
        return self.interested if self.selective else 1.0

    @property
    def caching_rate(self) -> float:
        """lambda_n: the rate of publications that one broker caches (section 4)."""
        return self.publish_rate * self.cached

    @property
    def regeneration_rate(self) -> float:
        """lambda_g: the rate at which a cached message is brought to the top; 0 for `nop` (section 4)."""
        return self.client_rate if self.prioritized else 0.0

    @property
    def degradation_rate(self) -> float:
        """mu_d = lambda_c pi_0 / (1 - pi_0): at which a message loses its last client; 0 for `nop`."""
        return self.client_rate / math.expm1(self.intensity) if self.prioritized else 0.0

    @property
    def loss(self) -> float:
        """P_loss: the probability that no broker caches a publication: pi_0^n for `sel`, 0 for `all`."""
        return math.exp(-self.intensity * self.brokers) if self.selective else 0.0

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest possible mean survival time: k / lambda_b and n k / lambda_b (Eq. 1)."""
        least = self.slots / self.publish_rate
        return least, self.brokers * least
