"""Items that are handled together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from support.event_loops import run
from support.profiles import examples

from newsstand.concurrency.coalescing import Batcher


class Handler:
    """Doubles numbers; an odd one is an error."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.release = asyncio.Event()
        self.release.set()

    async def __call__(self, items: list[int]) -> Sequence[int | Exception]:
        self.batches.append(items)
        await self.release.wait()
        return [ValueError(item) if item % 2 else 2 * item for item in items]


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.integers(1, 5), st.booleans())
def test_caller_gets_result_of_its_item(items: list[int], most: int, distinct: bool) -> None:
    async def story() -> None:
        handler = Handler()
        batcher = Batcher[int, int](handler, most=most, key=(lambda item: item) if distinct else None)
        found = await asyncio.gather(*map(batcher.submit, items), return_exceptions=True)
        for item, result in zip(items, found, strict=True):
            assert isinstance(result, ValueError) if item % 2 else result == 2 * item
        assert [item for batch in handler.batches for item in batch] == items
        assert all(len(batch) <= most for batch in handler.batches)
        assert not distinct or all(len(set(batch)) == len(batch) for batch in handler.batches)

    run(story)


def test_items_within_the_delay_form_one_batch() -> None:
    async def story() -> None:
        handler = Handler()
        batcher = Batcher[int, int](handler, delay_s=0.05)

        async def later(item: int) -> int:
            await asyncio.sleep(0.005)
            return await batcher.submit(item)

        assert await asyncio.gather(batcher.submit(2), later(4)) == [4, 8]
        assert await batcher.submit(6) == 12
        assert handler.batches == [[2, 4], [6]]

    run(story)


def test_serial_batches_run_one_at_a_time_and_collect_meanwhile() -> None:
    async def story() -> None:
        handler = Handler()
        handler.release.clear()
        batcher = Batcher[int, int](handler, serial=True)
        tasks = [asyncio.create_task(batcher.submit(2))]
        await asyncio.sleep(0.001)
        tasks += [asyncio.create_task(batcher.submit(item)) for item in (4, 6)]
        await asyncio.sleep(0.001)
        assert handler.batches == [[2]]
        handler.release.set()
        assert await asyncio.gather(*tasks) == [4, 8, 12]
        assert handler.batches == [[2], [4, 6]]

    run(story)


def test_batches_that_are_not_serial_overlap() -> None:
    async def story() -> None:
        handler = Handler()
        handler.release.clear()
        batcher = Batcher[int, int](handler)
        tasks = [asyncio.create_task(batcher.submit(2))]
        await asyncio.sleep(0.001)
        tasks.append(asyncio.create_task(batcher.submit(4)))
        await asyncio.sleep(0.001)
        assert handler.batches == [[2], [4]]
        handler.release.set()
        assert await asyncio.gather(*tasks) == [4, 8]

    run(story)


def test_error_of_the_handler_reaches_every_caller_and_the_next_batch_is_handled() -> None:
    async def story() -> None:
        faults = [OSError("away")]

        async def handle(items: list[int]) -> list[int]:
            if faults:
                raise faults.pop()
            return items

        batcher = Batcher[int, int](handle, serial=True)
        found = await asyncio.gather(batcher.submit(1), batcher.submit(2), return_exceptions=True)
        assert [type(one) for one in found] == [OSError, OSError]
        assert await batcher.submit(3) == 3

    run(story)


def test_cancelled_caller_leaves_its_item_in_the_batch() -> None:
    async def story() -> None:
        handler = Handler()
        batcher = Batcher[int, int](handler, delay_s=0.01)
        leaving, staying = (asyncio.create_task(batcher.submit(item)) for item in (2, 4))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await staying == 8
        assert handler.batches == [[2, 4]]

    run(story)
