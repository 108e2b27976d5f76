"""The setting of a survival model: brokers, slots, rates and a policy (Sourlas et al. 2011, section 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from newsstand.errors import BadOption
from newsstand.model import CachingPolicy, OpportunisticPolicy, PriorityPolicy

MOST_INTENSITY = 700.0
"""Beyond it exp(-rho) underflows to zero."""
RATES = dict.fromkeys(("publish_rate", "client_rate", "intensity"))
"""The fields that an error names if it concerns them together."""
LEAST_RATE, MOST_RATE = 1e-16, 1e15
"""The limits of rates and of the intensity. Only their ratios matter."""


def require_rate(field: str, rate: float) -> None:
    """Reject a rate out of range."""
    if not (math.isfinite(rate) and rate > 0):
        raise BadOption("must be a number above 0", **{field: rate})
    if rate < LEAST_RATE:
        raise BadOption(f"must be at least {LEAST_RATE:g}", **{field: rate})
    if rate > MOST_RATE:
        raise BadOption(f"must be at most {MOST_RATE:g}", **{field: rate})


@dataclass(frozen=True)
class SurvivalSetting:
    """Equal brokers with equal caches; every message has its own clients, equally at all brokers."""

    brokers: int
    """n."""
    slots: int
    """k: the number of messages in a full cache."""
    publish_rate: float
    """lambda_b: publications per unit of time in the whole network."""
    client_rate: float
    """lambda_c: arrivals of clients for one message at one broker per unit of time."""
    intensity: float
    """rho_c = lambda_c / mu_c: mean number of clients for one message at one broker."""
    policy: OpportunisticPolicy = field(default_factory=OpportunisticPolicy)

    def __post_init__(self) -> None:
        for name, count in (("brokers", self.brokers), ("slots", self.slots)):
            if count < 1:
                raise BadOption("must be at least 1", **{name: count})
        for name in RATES:
            require_rate(name, getattr(self, name))
        if self.intensity > MOST_INTENSITY:
            raise BadOption(f"must be at most {MOST_INTENSITY:g}", intensity=self.intensity)

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
        """lambda_g: the rate at which a cached message moves to the top; 0 for `nop` (section 4)."""
        return self.client_rate if self.prioritized else 0.0

    @property
    def degradation_rate(self) -> float:
        """mu_d = lambda_c pi_0 / (1 - pi_0): the rate at which a message loses its last client; 0 for `nop`."""
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
