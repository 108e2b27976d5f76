"""Pages: from the subscriber's own broker, or from another one that it names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from newsstand.client.calls import Answer, Calls, NotNow
from newsstand.client.errors import Misused
from newsstand.client.nouns import Page
from newsstand.model import is_page_path, page_id

ELSEWHERE_S = 3.0
"""How long another broker may take to answer, and between pieces; then the own one is asked again."""


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
        self._told: dict[str, str] = {}
        if near is not None:
            self._told["Newsstand-Near"] = f"{near[0]:.6f},{near[1]:.6f}"
        if node is not None:
            self._told["Newsstand-Node"] = quote(node, safe="")

    async def get(self, path: str, name: str, etag: str | None) -> Page | None:
        """The page of a path; None if it is still the one of `etag`."""
        if not isinstance(name, str) or not is_page_path(path):
            raise Misused(f"{name!r} is not what a page can be called")
        conditions = {} if etag is None else {"If-None-Match": etag}
        told = {**conditions, **self._told}
        answer = await self._ask(
            "GET", f"/{path}", headers={**told, "Newsstand-Redirects": "yes"}, may_be_sent=True
        )
        if answer.status == 307:
            there = await self._elsewhere(answer.headers.get("location", ""), path, conditions)
            in_vain = {"Newsstand-Invalid-At": answer.headers["newsstand-redirect"]}
            answer = there or await self._ask("GET", f"/{path}", headers={**told, **in_vain})
        if answer.status == 304:
            return None
        kind = answer.headers.get("content-type", "application/octet-stream")
        return Page(name, answer.content, kind, answer.headers.get("etag", ""))

    async def _elsewhere(self, location: str, path: str, conditions: dict[str, str]) -> Answer | None:
        """What another broker answers; None if it is not there, or answers anything else than the page."""
        try:
            answer = await self._calls.once("GET", location, headers=conditions, answer_s=ELSEWHERE_S)
        except NotNow:
            return None
        if answer.status == 304 and conditions:
            return answer
        stands_for = path.removeprefix("pages/") if path.startswith("pages/") else answer.headers.get("etag", "")
        is_page = answer.status == 200 and page_id(answer.content) == stands_for.strip('"')
        return answer if is_page else None
