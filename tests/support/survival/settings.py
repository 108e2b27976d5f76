"""Settings for tests."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from newsstand.model import CachingPolicy, OpportunisticPolicy, PriorityPolicy, RequestPolicy
from newsstand.survival.setting import SurvivalSetting

OPPORTUNISTIC_POLICIES = tuple(
    OpportunisticPolicy(*kinds) for kinds in itertools.product(CachingPolicy, RequestPolicy, PriorityPolicy)
)
"""All eight; the paper is about sel-sub-prt and compares it with sel-fld-prt, sel-sub-nop and all-fld-nop."""


def centre(**changed: object) -> SurvivalSetting:
    """The middle of the paper's ranges, with some values changed."""
    values: dict[str, object] = {
        "brokers": 3,
        "slots": 10,
        "publish_rate": 1.0,
        "client_rate": 0.1,
        "intensity": 2.0,
    }
    policy = OpportunisticPolicy.parse(str(changed.pop("policy", "sel-sub-prt")))
    return SurvivalSetting(**(values | changed), policy=policy)  # type: ignore[arg-type]


def settings_of_one_broker(most_slots: int = 60) -> st.SearchStrategy[SurvivalSetting]:
    return st.builds(
        SurvivalSetting,
        brokers=st.just(1),
        slots=st.integers(1, most_slots),
        publish_rate=rates(),
        client_rate=rates(),
        intensity=st.floats(-3, 1.3).map(lambda power: 10.0**power),
        policy=st.sampled_from(OPPORTUNISTIC_POLICIES),
    )


def rates() -> st.SearchStrategy[float]:
    return st.floats(-3, 3).map(lambda power: 10.0**power)
