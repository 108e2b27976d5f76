"""The bound on the utility of result caches holds by brute force and for every policy, and is tight."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from newsstand.caching import RESULT_POLICIES
from newsstand.caching.kernels.results.offline import LateRetrievals, late_retrievals
from newsstand.lab.results.bound import Utility, bound, bound_late
from newsstand.lab.results.compiled import arrange_events
from newsstand.lab.results.events import BrokerEvents, events_of
from newsstand.lab.results.replay import ReplaySetting, replay

Row = tuple[int, str, int, int, int]


def crowded(seed: int, results: int, *, end: int = 70, largest: int = 9) -> BrokerEvents:
    """Six subscribers of three caches who come and go, and their results."""
    chosen = random.Random(seed)
    rows: list[Row] = [(0, "subscribe", who, which, 0) for who in range(6) for which in range(3)]
    for who in range(6):
        rows += [(chosen.randrange(end), chosen.choice(["login", "logout"]), who, 0, 0) for _ in range(6)]
        rows.append((chosen.randrange(end), "unsubscribe", who, chosen.randrange(3), 0))
    for _ in range(results):
        rows.append((chosen.randrange(end), "result", 0, chosen.randrange(3), chosen.randrange(1, largest + 1)))
    return events_of(sorted(rows, key=lambda row: row[0]))


def value_of(utility: Utility, size: int) -> float:
    return {"hits": 1.0, "bytes": float(size), "latency": 0.5 + size / 1e7}[utility]


class Choices(NamedTuple):
    """All ways to keep each object until one of its retrievals, or not at all."""

    most_held: npt.NDArray[np.int64]
    gained: npt.NDArray[np.float64]

    def best(self, budget: int) -> float:
        """The most that can be had."""
        return float(self.gained[self.most_held <= budget].max())


def choices(late: LateRetrievals, utility: Utility) -> Choices:
    held, gained = np.zeros((1, 100), np.int16), np.zeros(1)
    for which, size in enumerate(late.size.tolist()):
        times = late.at_ms[late.first[which] : late.first[which + 1]]
        helds, gains = [held], [gained]
        for until in np.unique(times):
            longer = held.copy()
            longer[:, late.arrived_ms[which] : until] += size
            helds.append(longer)
            gains.append(gained + value_of(utility, size) * int((times <= until).sum()))
        held, gained = np.concatenate(helds), np.concatenate(gains)
    return Choices(held.max(axis=1).astype(np.int64), gained)


def test_late_retrievals_are_those_at_logins() -> None:
    rows: list[Row] = [
        *((0, "login", 0, 0, 0), (0, "subscribe", 0, 7, 0), (0, "subscribe", 1, 7, 0), (0, "subscribe", 2, 7, 0)),
        *((1, "result", 0, 7, 40), (2, "logout", 0, 0, 0), (3, "result", 0, 7, 50), (4, "login", 1, 0, 0)),
        *((5, "unsubscribe", 2, 7, 0), (6, "login", 2, 0, 0), (9, "login", 0, 0, 0)),
    ]
    late = late_retrievals(arrange_events(events_of(rows)))
    assert late.pushed == 1
    found = {
        (int(late.size[which]), int(late.arrived_ms[which])): late.at_ms[late.first[which] : late.first[which + 1]]
        for which in range(len(late.size))
        if late.size[which]
    }
    assert {key: times.tolist() for key, times in found.items()} == {(40, 1): [4], (50, 3): [4, 9]}


@pytest.mark.parametrize("utility", ["hits", "bytes", "latency"])
@pytest.mark.parametrize("seed", range(8))
def test_bound_exceeds_every_choice(seed: int, utility: Utility) -> None:
    late = late_retrievals(arrange_events(crowded(seed, 7)))
    possible = choices(late, utility)
    for budget in (0, 3, 8, 15, 100):
        found = bound_late(late, budget, 70, utility)
        wanted = possible.best(budget)
        assert wanted <= found["late"] * (1 + 1e-9) + 1e-9
        assert found["late"] <= found["late_average"] <= found["late_possible"]
    assert found["late"] == pytest.approx(wanted) == pytest.approx(found["late_possible"])


def test_bound_is_tight_for_even_demand() -> None:
    """The best of eight objects for one place, each wanted once: of each overlapping group one, and no more."""
    rows: list[Row] = [(0, "subscribe", who, who, 0) for who in range(8)]
    for who in range(8):
        rows.append((8 * (who // 2), "result", 0, who, 5))
        rows.append((8 * (who // 2) + 8, "login", who, 0, 0))
    events = events_of(sorted(rows, key=lambda row: row[0]))
    found = bound(events, ReplaySetting("lsc", 5, end_ms=32))
    assert choices(late_retrievals(arrange_events(events)), "hits").best(5) == 4
    assert found["late"] == pytest.approx(4, abs=0.01)
    assert found["late_ratio"] == found["hit_ratio"] == pytest.approx(0.5, abs=0.002)


@pytest.mark.parametrize("policy", RESULT_POLICIES)
def test_bound_exceeds_every_policy(policy: str) -> None:
    for seed in range(4):
        events = crowded(seed, 300, end=1000, largest=50)
        for budget in (60, 400):
            measured = replay(events, ReplaySetting(policy, budget, "after", window_ms=100, cap_ms=300))
            late_hits = int(str(measured["hits"])) - int(str(measured["hits_push"]))
            at_most = budget
            if policy == "ttl":  # it keeps to its average size, and to nothing else
                at_most = int(float(str(measured["avg_bytes"]))) + 1
            found = bound(events, ReplaySetting(policy, at_most))
            assert late_hits <= found["late_average" if policy == "ttl" else "late"] + 1e-6
            assert found["hit_ratio"] <= found["hit_ratio_average"] + 1e-12
