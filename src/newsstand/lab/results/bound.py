"""A bound on what any policy of result caches can gain: on the utility of equation 2.

Uddin & Venkatasubramanian (2018, section IV.A, equations 1 to 4) maximise the sum of x_ij phi_ij over what is
cached at one moment. Over time, object j gains its value v_j with every late retrieval until which it is cached
without a break: what has left is never cached again. To keep it from its arrival a_j until t takes s_j bytes of
the room for t - a_j, and there are B bytes of it at every moment. Give a byte any price p(t) >= 0. Then

    utility <= B (integral of p) + sum over j of the best of 0 and v_j m - s_j (integral of p from a_j to t_jm),

t_jm being the m-th late retrieval of j: what a policy gains with an object is at most its term of the sum plus the
price of the room it takes, and the room of all objects together costs at most the first term. Every price gives a
bound; the lowest found is reported. With one price for all time it is the fractional knapsack of all (object,
retrieval) intervals in B times time. Then only the average size matters: with the average size of `ttl` for B it
bounds `ttl`, too.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from newsstand.caching.kernels.results.offline import LateRetrievals, buy, late_retrievals
from newsstand.errors import BadOption
from newsstand.lab.results.compiled import arrange_events
from newsstand.lab.results.events import BrokerEvents
from newsstand.lab.results.replay import ReplaySetting

Utility = Literal["hits", "bytes", "latency"]
"""The value of a late hit: 1 (equation 3), its bytes (equation 4), or the seconds that a fetch takes."""

SLOTS = 72
"""The number of periods with prices of their own."""
STEPS = 40
"""The number of times that prices are improved."""
LEAST_PRICE = 1e-30
_Floats = npt.NDArray[np.float64]


def bound(events: BrokerEvents, setting: ReplaySetting, utility: Utility = "hits") -> dict[str, float]:
    """Return bounds that no policy exceeds on these events; of the setting only budget and end matter.

    `late` is the bound on the utility of late retrievals with prices that change, `late_average` that with one
    price, which also holds for policies that keep to the budget on average only; `late_ratio` and
    `late_ratio_average` are the same as parts of all late retrievals, `hit_ratio` and `hit_ratio_average` with the
    hits of online subscribers included.
    """
    return bound_late(
        late_retrievals(arrange_events(events)), setting.cache_bytes, setting.end_of(events), utility
    )


def bound_late(late: LateRetrievals, budget: int, end_ms: int, utility: Utility = "hits") -> dict[str, float]:
    """Return the bounds for late retrievals that are known already."""
    value = _value(late, utility)
    retrievals = np.diff(late.first)
    possible = float(retrievals @ value)
    changing, average = _lowest(late, value, budget, max(1, end_ms))
    found = {"late": min(changing, possible), "late_average": min(average, possible), "late_possible": possible}
    if utility == "hits":
        pushed, all_of_them = late.pushed, late.pushed + int(retrievals.sum())
        for name, late_hits in (("", found["late"]), ("_average", found["late_average"])):
            found[f"late_ratio{name}"] = late_hits / possible if possible else 0.0
            found[f"hit_ratio{name}"] = (pushed + late_hits) / all_of_them if all_of_them else 0.0
    return found


def _value(late: LateRetrievals, utility: Utility) -> _Floats:
    match utility:
        case "hits":
            return np.ones(len(late.size))
        case "bytes":
            return late.size.astype(np.float64)
        case "latency":
            return 0.5 + late.size / 1e7
    raise BadOption("must be hits, bytes or latency", utility=utility)


def _lowest(late: LateRetrievals, value: _Floats, budget: int, end_ms: int) -> tuple[float, float]:
    """Return the lowest bounds found: with a price for each slot, and with one price."""
    slot_ms = -(-end_ms // SLOTS)
    slots = -(-end_ms // slot_ms)
    widths = np.minimum(slot_ms, end_ms - slot_ms * np.arange(slots)).astype(np.float64)
    room = budget * widths
    used, until = np.zeros(slots + 1), np.zeros(len(late.size), np.int64)

    def tried(prices: _Floats) -> float:
        """Return the bound at a price for a byte and millisecond in each slot."""
        paid_until = np.concatenate(([0.0], np.cumsum(prices * slot_ms), [0.0]))
        paid_until[-1] = paid_until[-2]
        return float(prices @ room) + float(buy(late, value, paid_until, slot_ms, used, until))

    low, high = 0.0, 1.0 + float(np.diff(late.first) @ value)  # buys too much, buys nothing
    average, best = math.inf, high
    while high > 1.0001 * low and high > LEAST_PRICE:
        price = high / 1000 if low == 0 else math.sqrt(low * high)
        found = tried(np.full(slots, price))
        if found < average:
            average, best = found, price
        if used.sum() > room.sum():
            low = price
        else:
            high = price
    changing, prices = average, np.full(slots, best)
    for step in range(STEPS):
        # Prices rise with demand, in ever smaller steps.
        changing = min(changing, tried(prices))
        demand = used[:slots] / np.maximum(room, 1.0)
        prices = prices * np.clip(demand, 0.2, 5.0) ** (0.5 / (1 + step / 8))
    return changing, average
