"""Pages: from the subscriber's broker, or from the broker that it redirects to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from newsstand.client.http import ApiResponse, HttpCalls, TransientError
from newsstand.client.models import Page, UsageError
from newsstand.model import is_page_path, page_id


class Pages:
    """Page requests that follow a redirect once; if it fails, the subscriber's broker serves the page."""

    def __init__(
        self,
        calls: HttpCalls,
        ask: Callable[..., Awaitable[ApiResponse]],
        near: tuple[float, float] | None,
        node: str | None,
    ) -> None:
        self._calls = calls
        self._request = ask
        self._location: dict[str, str] = {}
        if near is not None:
            self._location["Newsstand-Near"] = f"{near[0]:.6f},{near[1]:.6f}"
        if node is not None:
            self._location["Newsstand-Node"] = quote(node, safe="")

    async def get(self, path: str, name: str, etag: str | None) -> Page | None:
        """Return the page of a path; None if `etag` is still its entity tag."""
        if not isinstance(name, str) or not is_page_path(path):
            raise UsageError(f"{name!r}: not a valid page id or name")
        conditions = {} if etag is None else {"If-None-Match": etag}
        common = {**conditions, **self._location}
        response = await self._request(
            "GET", f"/{path}", headers={**common, "Newsstand-Redirects": "yes"}, follow_redirects=True
        )
        if response.status == 307:
            redirected = await self._follow(response.headers.get("location", ""), path, conditions)
            failed = {"Newsstand-Invalid-At": response.headers["newsstand-redirect"]}
            response = redirected or await self._request("GET", f"/{path}", headers={**common, **failed})
        if response.status == 304:
            return None
        kind = response.headers.get("content-type", "application/octet-stream")
        return Page(name, response.content, kind, response.headers.get("etag", ""))

    async def _follow(self, location: str, path: str, conditions: dict[str, str]) -> ApiResponse | None:
        """Return the response of another broker; None if it fails or is not the page."""
        try:
            response = await self._calls.once(
                "GET", location, headers=conditions, timeout_s=self._calls.pace.redirect_s
            )
        except TransientError:
            return None
        if response.status == 304 and conditions:
            return response
        digest = path.removeprefix("pages/") if path.startswith("pages/") else response.headers.get("etag", "")
        is_page = response.status == 200 and page_id(response.content) == digest.strip('"')
        return response if is_page else None
