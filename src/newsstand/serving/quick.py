"""A quick lane for the few calls that come all the time: straight to the endpoint, past a framework's machinery.

The framework keeps a route of the same path for /openapi.json, and answers where the quick lane does not: another
method, or a path that only looks like it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from newsstand.errors import NewsstandError
from newsstand.serving.refusals import Refused, answer


@dataclass(frozen=True)
class Quick:
    """One call: its method, the template of its path, and what answers it."""

    method: str
    path: str
    endpoint: Callable[[Request], Awaitable[Response]]
    bare: bool = False
    """Only without a query: the framework reads that better."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """What matches its paths."""
        return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(self.path)))


class QuickLane:
    """ASGI middleware: answers these calls itself and leaves the others to the app."""

    def __init__(self, app: ASGIApp, calls: list[Quick], refusal: Callable[[NewsstandError], Refused]) -> None:
        self._app = app
        self._calls = [(call, call.method, call.pattern) for call in calls]
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            for call, method, pattern in self._calls:
                if scope["method"] == method and (found := pattern.fullmatch(scope["path"])) is not None:
                    if call.bare and scope["query_string"]:
                        break
                    scope["path_params"] = found.groupdict()
                    scope["route"] = call
                    response = await self._answered(call, Request(scope, receive))
                    await response(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _answered(self, call: Quick, request: Request) -> Response:
        try:
            return await call.endpoint(request)
        except Refused as error:
            refused = error
        except NewsstandError as error:
            refused = self._refusal(error)
        return answer(refused.body, refused.status, refused.headers)


def whole_number(request: Request, name: str, default: int | None, least: int, most: int) -> int | None:
    """A number of the query, within bounds."""
    if not request.scope["query_string"]:
        return default
    text = request.query_params.get(name)
    if text is None:
        return default
    number = int(text) if text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 20 else None
    if number is None or not least <= number <= most:
        raise Refused(422, f"query {name}: must be a whole number from {least} to {most}")
    return number
