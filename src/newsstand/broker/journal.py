"""Changes written together: everybody who asks while one transaction is under way shares the next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from newsstand.broker.records import Change
from newsstand.broker.store import Store


class Journal:
    """Awaits are answered when the store has the changes for good; a fault is told to all who shared it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Sequence[Change], asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, *changes: Change) -> None:
        """Make changes durable."""
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((changes, written))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        await written

    async def drained(self) -> None:
        """Wait until nothing is being written."""
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        try:
            while self._waiting:
                together, self._waiting = self._waiting, []
                changes = [change for some, _ in together for change in some]
                fault: Exception | None = None
                try:
                    await asyncio.to_thread(self._store.write, changes)
                except Exception as error:  # whoever asked has to be told
                    fault = error
                for _, written in together:
                    if written.done():
                        continue
                    if fault is None:
                        written.set_result(None)
                    else:
                        written.set_exception(fault)
        finally:
            self._writing = None
