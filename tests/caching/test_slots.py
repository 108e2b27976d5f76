"""The cache of k slots against a plain list, top first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from newsstand.caching.slots import SlotCache

KEYS = st.integers(0, 11)


class AgainstAList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.slots = 5
        self.cache: SlotCache[int, str] = SlotCache(self.slots)
        self.list: list[tuple[int, str]] = []

    @rule(key=KEYS, text=st.text(max_size=2))
    def put(self, key: int, text: str) -> None:
        self.list = [(key, text), *(one for one in self.list if one[0] != key)]
        left = self.list.pop() if len(self.list) > self.slots else None
        assert self.cache.put(key, text) == left

    @rule(keys=st.sets(KEYS))
    def regenerate(self, keys: set[int]) -> None:
        chosen = [one for one in self.list if one[0] in keys]
        self.list = chosen + [one for one in self.list if one[0] not in keys]
        self.cache.regenerate(*(key for key, _ in reversed(chosen)))

    @rule(keys=st.sets(KEYS))
    def degrade(self, keys: set[int]) -> None:
        chosen = [one for one in self.list if one[0] in keys]
        self.list = [one for one in self.list if one[0] not in keys] + chosen
        self.cache.degrade(*(key for key, _ in chosen))

    @precondition(lambda self: self.list)
    @rule()
    def take_bottom(self) -> None:
        assert self.cache.take_bottom() == self.list.pop()

    @invariant()
    def the_same(self) -> None:
        assert list(self.cache) == [key for key, _ in self.list]
        assert len(self.cache) == len(self.list)
        for place, (key, text) in enumerate(self.list, start=1):
            assert key in self.cache
            assert self.cache.position(key) == place
            assert self.cache[key] == text


TestAgainstAList = AgainstAList.TestCase


@given(st.lists(KEYS))
def test_slot_cache_without_slots_is_empty(keys: list[int]) -> None:
    cache: SlotCache[int, None] = SlotCache(0)
    assert [cache.put(key, None) for key in keys] == [(key, None) for key in keys]
    assert list(cache) == []


@pytest.mark.parametrize("move", ["regenerate", "degrade"])
def test_slot_cache_rejects_moves_of_missing_items(move: str) -> None:
    cache: SlotCache[str, int] = SlotCache(3)
    for number, key in enumerate("abc"):
        cache.put(key, number)
    with pytest.raises(KeyError):
        getattr(cache, move)("a", "x")
    assert list(cache) == ["c", "b", "a"]


def test_slot_cache_has_no_position_of_missing_items() -> None:
    with pytest.raises(KeyError):
        SlotCache[str, int](1).position("x")


def test_slot_cache_rejects_negative_slots() -> None:
    with pytest.raises(ValueError, match="-1 slots"):
        SlotCache[str, int](-1)
