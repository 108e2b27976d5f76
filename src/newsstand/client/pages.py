"""Pages: from the subscriber's own broker, or from another one that it names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from newsstand.client.calls import Answer, Calls, NotNow
from newsstand.client.nouns import Page

ELSEWHERE_S = 3.0
"""How long another broker may take; then the own one is asked again."""


class Pages:
    """Fetches pages, and goes where it is sent for them; if that was in vain, the own broker is asked again."""

    def __init__(
        self,
        calls: Calls,
        ask: Callable[..., Awaitable[Answer]],
        near: tuple[float, float] | None,
        node: str | None,
    ) -> None:
        self._calls = calls
        self._ask = ask
        self._told: dict[str, str] = {"Newsstand-Redirects": "yes"}
        if near is not None:
            self._told["Newsstand-Near"] = f"{near[0]:.6f},{near[1]:.6f}"
        if node is not None:
            self._told["Newsstand-Node"] = node

    async def get(self, path: str, name: str, etag: str | None) -> Page | None:
        """The page of a path; None if it is still the one of `etag`."""
        conditions = {} if etag is None else {"If-None-Match": etag}
        answer = await self._ask("GET", path, headers={**conditions, **self._told})
        if answer.status == 307:
            there = await self._elsewhere(answer.headers.get("location", ""), conditions)
            if there is None:
                in_vain = {"Newsstand-Invalid-At": answer.headers.get("newsstand-redirect", "")}
                there = await self._ask("GET", path, headers={**conditions, **self._told, **in_vain})
            answer = there
        if answer.status == 304:
            return None
        kind = answer.headers.get("content-type", "application/octet-stream")
        return Page(name, answer.content, kind, answer.headers.get("etag", ""))

    async def _elsewhere(self, location: str, headers: dict[str, Any]) -> Answer | None:
        """What another broker answers; None if it has no such page, or is not there."""
        try:
            async with asyncio.timeout(ELSEWHERE_S):
                answer = await self._calls.once("GET", location, headers=headers)
        except (NotNow, TimeoutError):
            return None
        return answer if answer.status in (200, 304) else None
