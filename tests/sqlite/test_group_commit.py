from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from newsstand.errors import NoRoom
from newsstand.sqlite.group_commit import GroupCommit


class SlowDisk:
    """A disk whose commits wait for permission."""

    def __init__(self) -> None:
        self.commits: list[list[int]] = []
        self.let = threading.Semaphore(0)
        self.faults: list[Exception] = []

    def commit(self, items: Sequence[int]) -> None:
        assert self.let.acquire(timeout=10)
        if self.faults:
            raise self.faults.pop(0)
        self.commits.append(list(items))


def test_items_added_during_a_transaction_share_the_next() -> None:
    async def story() -> None:
        disk = SlowDisk()
        group = GroupCommit(disk.commit)
        first = asyncio.create_task(group.write(1))
        await asyncio.sleep(0.02)
        rest = [asyncio.create_task(group.write(number)) for number in (2, 3)]
        called: list[int] = []
        await asyncio.sleep(0.02)
        group.after_commit(lambda: called.append(len(disk.commits)))
        disk.let.release()
        await first
        assert not any(task.done() for task in rest)
        disk.let.release()
        await asyncio.gather(*rest)
        assert (disk.commits, called) == ([[1], [2, 3]], [2])
        group.after_commit(lambda: called.append(0))
        assert called == [2, 0]
        await group.flushed()
        await group.drained()

    asyncio.run(story())


def test_failed_items_are_dropped_without_recovery() -> None:
    async def story() -> None:
        disk = SlowDisk()
        disk.faults = [NoRoom("full")]
        group = GroupCommit(disk.commit)
        disk.let.release(2)
        with pytest.raises(NoRoom):
            await group.write(1)
        await group.write(2)
        assert (disk.commits, group.fault) == ([[2]], None)

    asyncio.run(story())


def test_failed_items_are_written_later_with_recovery() -> None:
    async def story() -> None:
        disk = SlowDisk()
        disk.faults = [OSError("full")]
        group = GroupCommit(
            disk.commit,
            recover=lambda error, items: (NoRoom(str(error)), [item for item in items if item != 2]),
            retry_s=0.01,
        )
        called: list[str] = []
        group.add(1, 2)
        group.after_commit(lambda: called.append("done"))
        disk.let.release()
        with pytest.raises(NoRoom, match="full"):
            await group.flushed()
        assert isinstance(group.fault, NoRoom)
        assert called == []
        await group.drained()
        disk.let.release(2)
        await group.write(3)
        assert [item for items in disk.commits for item in items] == [1, 3]
        assert (called, group.fault) == (["done"], None)

    asyncio.run(story())
