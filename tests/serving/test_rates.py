"""So many events in a period, with a clock by hand."""

from __future__ import annotations

import pytest

from newsstand.errors import Busy
from newsstand.serving.rates import Rate


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_is_emptied_at_once_and_refilled_evenly() -> None:
    clock = Clock()
    rate = Rate(4, 3600, clock)
    for _ in range(4):
        rate.take("a", "too many")
    for _ in range(3):
        with pytest.raises(Busy, match="too many") as busy:
            rate.take("a", "too many")
        assert busy.value.after_s == pytest.approx(900)
    rate.take("b", "too many")
    clock.now += 900
    rate.take("a", "too many")
    with pytest.raises(Busy):
        rate.take("a", "too many")


def test_keys_are_bounded() -> None:
    rate = Rate(4, 3600, Clock(), most_keys=10)
    for number in range(1000):
        rate.take(str(number), "too many")
    assert len(rate._full_at) == 10
