from __future__ import annotations

import math
from dataclasses import replace

import pytest

from newsstand.errors import BadOption
from newsstand.model import OpportunisticPolicy
from newsstand.survival.setting import SurvivalSetting

CENTRE = SurvivalSetting(3, 10, 1.0, 0.1, 2.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"brokers": 0}, r"brokers 0: must be at least 1"),
        ({"slots": 0}, r"slots 0: must be at least 1"),
        ({"publish_rate": 0.0}, r"publish_rate 0: must be a number above 0"),
        ({"client_rate": -1.5}, r"client_rate -1.5: must be a number above 0"),
        ({"intensity": math.nan}, r"intensity nan: must be a number above 0"),
        ({"intensity": math.inf}, r"intensity inf: must be a number above 0"),
        ({"intensity": 1000.0}, r"intensity 1000: must be at most 700"),
        ({"intensity": 1e-300}, r"intensity 1e-300: must be at least 1e-16"),
        ({"publish_rate": 1e308}, r"publish_rate 1e\+308: must be at most 1e\+15"),
        ({"client_rate": 1e-320}, r"client_rate 9.99989e-321: must be at least 1e-16"),
    ],
)
def test_survival_setting_names_invalid_field(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        replace(CENTRE, **wrong)


def test_survival_setting_rates_of_selective_caching() -> None:
    idle = math.exp(-2)
    assert CENTRE.idle == idle
    assert CENTRE.caching_rate == pytest.approx(1 - idle, rel=1e-14)
    assert CENTRE.regeneration_rate == 0.1
    assert CENTRE.degradation_rate == pytest.approx(0.1 * idle / (1 - idle), rel=1e-14)
    assert CENTRE.loss == pytest.approx(idle**3, rel=1e-14)
    assert CENTRE.bounds == (10, 30)


def test_survival_setting_without_loss_and_regeneration() -> None:
    everything = replace(CENTRE, policy=OpportunisticPolicy.parse("all-fld-nop"))
    assert (everything.caching_rate, everything.loss) == (1, 0)
    assert (everything.regeneration_rate, everything.degradation_rate) == (0, 0)
