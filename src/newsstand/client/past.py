"""What a client reads of the past of topics: messages, and what their coming from caches says of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Self

import msgspec

from newsstand.client.calls import Answer, decoded
from newsstand.client.errors import Refused
from newsstand.client.nouns import Message

PAGE = 200
Ask = Callable[..., Awaitable[Answer]]


class _Page(msgspec.Struct):
    messages: list[Message]
    next: str | None = None
    missing: list[str] = []
    cached: list[str] = []
    whole: bool = True


class Past(AsyncIterator[Message]):
    """The messages, oldest first, fetched as they are taken; after the last one the rest is known, too."""

    def __init__(self, ask: Ask, wanted: str) -> None:
        self._messages = self._read(ask, wanted)
        self.cached: set[str] = set()
        """Topics without a storage: what has come of them is what brokers happened to have cached.

        A topic that the filter names, of which nothing has come, is empty if it is not one of these. If it is, it
        has no storage: nothing is cached of it, or its name is mistyped.
        """
        self.whole = True
        """Whether all that is cached has come; if not, a broker has not answered, or it was too much at once."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        return await anext(self._messages)

    async def _read(self, ask: Ask, wanted: str) -> AsyncIterator[Message]:
        query: dict[str, object] = {"filter": wanted, "limit": PAGE}
        while True:
            page = decoded(await ask("GET", "/topics", params=query), _Page)
            self.cached = self.cached.union(page.cached).difference(page.missing)
            self.whole = self.whole and page.whole
            for message in page.messages:
                yield message
            if page.missing:
                raise Refused(f"not everything is there of {', '.join(page.missing)}: no storage answers", 503)
            if page.next is None:
                return
            query["after"] = page.next
