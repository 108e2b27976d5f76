"""Page numbers by first appearance, against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from newsstand.workload.trace.numbering import number_groups, number_pages

SLOTS_SHARED = st.sampled_from([0, 1, 2**32, 2**43, 2**63 - 1, -(2**63), -1])
"""Keys of which several start at one slot of a small table."""
KEYS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 30) | SLOTS_SHARED


@settings(max_examples=examples(200))
@given(st.lists(st.lists(KEYS, max_size=40), max_size=6))
def test_groups_are_numbered_on_their_own(groups: list[list[int]]) -> None:
    offset = np.cumsum([0, *map(len, groups)])
    keys = np.array([key for group in groups for key in group], np.int64)
    numbers, page_offset, first = number_groups(offset, keys)
    expected = [list(dict.fromkeys(group)) for group in groups]
    assert page_offset.tolist() == [0, *np.cumsum([len(pages) for pages in expected])]
    for group, pages, start, base in zip(groups, expected, offset, page_offset, strict=False):
        assert numbers[start : start + len(group)].tolist() == [pages.index(key) for key in group]
        assert (first[base : base + len(pages)] - start).tolist() == [group.index(page) for page in pages]


@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(KEYS, st.sampled_from([0, 1, 7, 2**32 - 1]), st.integers(0, 3)), max_size=60), st.booleans()
)
def test_pages_are_numbered_with_largest_size(rows: list[tuple[int, int, int]], is_sorted: bool) -> None:
    if is_sorted:
        rows = sorted(rows, key=lambda row: row[2])
    records = np.array(rows, np.dtype([("key", "<i8"), ("size", "<u4"), ("time", "<u4")]))
    found = number_pages(records["key"], records["size"], records["time"])
    pages = list(dict.fromkeys(key for key, _, _ in rows))
    assert found.numbers.tolist() == [pages.index(key) for key, _, _ in rows]
    assert found.first.tolist() == [[key for key, _, _ in rows].index(page) for page in pages]
    assert found.largest.tolist() == [max(size for key, size, _ in rows if key == page) for page in pages]
    times = [time for _, _, time in rows]
    assert found.in_order == (times == sorted(times))


@pytest.mark.parametrize("step", [1, 2**20, 2**43, 0x9E3779B97F4A7C15])
def test_many_pages_are_numbered(step: int) -> None:
    random = np.random.default_rng(3)
    pages = random.integers(0, 50_000, 300_000).astype(np.uint64) * np.uint64(step)
    found = number_pages(pages, np.ones(len(pages), np.uint32), np.zeros(len(pages), np.uint32))
    distinct, first = np.unique(pages, return_index=True)
    assert np.array_equal(np.sort(first), found.first)
    assert np.array_equal(pages[found.first][found.numbers], pages)
    assert len(found.first) == len(distinct)
