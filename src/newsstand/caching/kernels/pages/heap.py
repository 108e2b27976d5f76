"""A min-heap over the pages of one proxy, ordered by (value, stamp), that can find and move any page.

Each node has four children, so that the keys of siblings are adjacent. `place[page]` is the page's node, or -1.
Pages get a higher value far more often than they leave, so `rekey` only stores a higher key, and `lowest` moves
the page when it comes to the top: a hit needs no sifting. The functions are inlined because passing a heap costs
more than most of them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit


class Heap(NamedTuple):
    """Nodes (`node_*`, the first `size[0]` of them) and the current key of each page."""

    node_value: npt.NDArray[np.float64]
    node_stamp: npt.NDArray[np.int64]
    node_page: npt.NDArray[np.int32]
    size: npt.NDArray[np.int64]
    place: npt.NDArray[np.int32]
    value: npt.NDArray[np.float64]
    stamp: npt.NDArray[np.int64]


@njit(cache=True, forceinline=True)
def make_heap(pages: int) -> Heap:
    """Return an empty heap for pages 0 … pages - 1."""
    return Heap(
        np.empty(pages, np.float64),
        np.empty(pages, np.int64),
        np.empty(pages, np.int32),
        np.zeros(1, np.int64),
        np.full(pages, -1, np.int32),
        np.empty(pages, np.float64),
        np.empty(pages, np.int64),
    )


@njit(cache=True, forceinline=True)
def _put(heap: Heap, node: int, value: float, stamp: int, page: int) -> None:
    heap.node_value[node] = value
    heap.node_stamp[node] = stamp
    heap.node_page[node] = page
    heap.place[page] = node


@njit(cache=True, forceinline=True)
def _sift_up(heap: Heap, node: int, value: float, stamp: int, page: int) -> None:
    while node > 0:
        parent = (node - 1) >> 2
        parent_value = heap.node_value[parent]
        if parent_value < value or (parent_value == value and heap.node_stamp[parent] < stamp):
            break
        _put(heap, node, parent_value, heap.node_stamp[parent], heap.node_page[parent])
        node = parent
    _put(heap, node, value, stamp, page)


@njit(cache=True, forceinline=True)
def _sift_down(heap: Heap, node: int, value: float, stamp: int, page: int) -> None:
    size = heap.size[0]
    while True:
        child = 4 * node + 1
        if child >= size:
            break
        best = child
        best_value = heap.node_value[child]
        for other in range(child + 1, min(child + 4, size)):
            other_value = heap.node_value[other]
            if other_value < best_value or (
                other_value == best_value and heap.node_stamp[other] < heap.node_stamp[best]
            ):
                best = other
                best_value = other_value
        if value < best_value or (value == best_value and stamp < heap.node_stamp[best]):
            break
        _put(heap, node, best_value, heap.node_stamp[best], heap.node_page[best])
        node = best
    _put(heap, node, value, stamp, page)


@njit(cache=True, forceinline=True)
def insert(heap: Heap, page: int, value: float, stamp: int) -> None:
    """Add a page that is not in the heap."""
    heap.value[page] = value
    heap.stamp[page] = stamp
    node = heap.size[0]
    heap.size[0] = node + 1
    _sift_up(heap, node, value, stamp, page)


@njit(cache=True, forceinline=True)
def rekey(heap: Heap, page: int, value: float, stamp: int) -> None:
    """Give a page a new key, which is not older than its present one."""
    before = heap.value[page]
    heap.value[page] = value
    heap.stamp[page] = stamp
    if value < before:
        node = heap.place[page]
        if value < heap.node_value[node]:
            _sift_up(heap, node, value, stamp, page)


@njit(cache=True, forceinline=True)
def remove(heap: Heap, page: int) -> None:
    """Remove a page from any node."""
    node = heap.place[page]
    heap.place[page] = -1
    last = heap.size[0] - 1
    heap.size[0] = last
    if node == last:
        return
    value = heap.node_value[last]
    stamp = heap.node_stamp[last]
    moved = heap.node_page[last]
    if value < heap.node_value[node] or (value == heap.node_value[node] and stamp < heap.node_stamp[node]):
        _sift_up(heap, node, value, stamp, moved)
    else:
        _sift_down(heap, node, value, stamp, moved)


@njit(cache=True, forceinline=True)
def lowest(heap: Heap) -> int:
    """Return the page with the lowest key; the heap is not empty."""
    page = int(heap.node_page[0])
    while heap.node_stamp[0] != heap.stamp[page]:
        _sift_down(heap, 0, heap.value[page], heap.stamp[page], page)
        page = int(heap.node_page[0])
    return page
