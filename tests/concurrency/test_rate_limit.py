"""Limits of events in a period, with a clock by hand."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from newsstand.concurrency.pacing import KeyedSlots, Rate
from newsstand.errors import Busy


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_rate_bucket_is_emptied_at_once_and_refilled_evenly() -> None:
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


def test_rate_forgets_oldest_key_when_full() -> None:
    rate = Rate(1, 3600, Clock(), most_keys=10)
    for number in range(1000):
        rate.take(str(number), "too many")
    with pytest.raises(Busy):
        rate.take("990", "too many")
    rate.take("989", "too many")


def test_slots_forget_key_when_unused() -> None:
    class Key: ...

    async def hold(slots: KeyedSlots[Key], key: Key) -> None:
        async with slots.hold(key):
            await asyncio.sleep(0)

    async def use(slots: KeyedSlots[Key]) -> weakref.ref[Key]:
        key = Key()
        holders = [asyncio.create_task(hold(slots, key)) for _ in range(3)]
        await asyncio.sleep(0)
        holders[1].cancel()
        await asyncio.gather(*holders, return_exceptions=True)
        return weakref.ref(key)

    async def story() -> None:
        slots = KeyedSlots[Key](1, 64)
        used = await use(slots)
        await asyncio.sleep(0)
        gc.collect()
        assert used() is None

    asyncio.run(story())
