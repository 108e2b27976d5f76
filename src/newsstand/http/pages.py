"""Pages over HTTP: whole or partial responses, sandboxed in a browser, and headers that locate a client."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from newsstand.http.errors import HttpError
from newsstand.http.openapi import BINARY, DeclaredResponse
from newsstand.model import is_broker_name

_RANGE = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", re.ASCII)
_BINARY = {"*/*": BINARY}
PAGE_ANSWERS = {
    200: DeclaredResponse("The page.", _BINARY),
    206: DeclaredResponse("A part of it.", _BINARY),
    304: DeclaredResponse("The caller has it."),
}
"""Responses with a page, for /openapi.json."""


@dataclass(frozen=True)
class Whole:
    """A page: its id, which is its ETag; its size in bytes; its media type."""

    id: str
    size: int
    type: str


def page_answer(
    request: Request,
    page: Whole,
    read: Callable[[int, int], bytes | Iterator[bytes]],
    more: dict[str, str] | None = None,
) -> Response:
    """Return the response with a page; `read` returns the bytes start <= i < end."""
    tag = f'"{page.id}"'
    headers = {
        "ETag": tag,
        "Cache-Control": "private, max-age=31536000, immutable",
        "Accept-Ranges": "bytes",
        "Content-Type": page.type,  # as a header, since a framework would add a charset to it
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox",
        **(more or {}),
    }
    if _names(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    wanted = request.headers.get("range", "")
    if request.headers.get("if-range", tag) != tag or request.method == "HEAD":
        wanted = ""
    part = byte_range(wanted, page.size)
    start, end = part or (0, page.size)
    if part and start >= end:
        raise HttpError(
            416, f"Range '{wanted}': the page has {page.size} bytes", {"Content-Range": f"bytes */{page.size}"}
        )
    if part:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{page.size}"
    headers["Content-Length"] = str(end - start)
    status = 206 if part else 200
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers)
    content = read(start, end)
    if isinstance(content, bytes):
        return Response(content, status, headers)
    return StreamingResponse(content, status, headers)


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """Return the bytes start <= i < end of a Range header, which may be none; None if the header is ignored.

    What is not one plain range of bytes is answered with the whole (RFC 9110, section 14.2).
    """
    asked = _RANGE.fullmatch(header)
    if asked is None or asked[1] == asked[2] == "":
        return None
    if asked[1] == "":
        return max(0, size - int(asked[2])), size
    start, end = int(asked[1]), int(asked[2]) + 1 if asked[2] else size
    return None if asked[2] and end <= start else (start, min(size, end))


def _names(header: str, tag: str) -> bool:
    """Return whether If-None-Match names this tag."""
    return any(one.strip().removeprefix("W/") in (tag, "*") for one in header.split(","))


NEAR = "Newsstand-Near"
NODE = "Newsstand-Node"
INVALID_AT = "Newsstand-Invalid-At"
"""The broker that did not have the page to which it was redirected."""
REDIRECT = "Newsstand-Redirect"
"""The broker to which a response redirects."""
REDIRECTS = "Newsstand-Redirects"
"""`yes` if a client follows redirects itself, and comes back if a broker does not have the page."""

_NUMBER = re.compile(r"-?[0-9]{1,3}(\.[0-9]{1,12})?")
_LONGEST_NODE = 64
MODIFIED = "Newsstand-Modified"
"""When a page was last modified, in Unix milliseconds."""


class ClientLocation(NamedTuple):
    """Where a client is, by the parts of which each may be missing."""

    lat: float | None
    lon: float | None
    node: str | None

    @classmethod
    def read(cls, headers: Mapping[str, str]) -> ClientLocation | None:
        """Return where a request comes from, None if it does not say; raise HttpError for a malformed header."""
        place, node = headers.get(NEAR), headers.get(NODE)
        if place is None and node is None:
            return None
        if node is not None:
            node = unquote(node)
            if not 1 <= len(node) <= _LONGEST_NODE or not node.isprintable():
                raise HttpError(422, f"header {NODE}: must be a percent-encoded name of 1 to 64 characters")
        if place is None:
            return cls(None, None, node)
        parts = [part.strip() for part in place.split(",")]
        if len(parts) == 2 and all(_NUMBER.fullmatch(part) for part in parts):
            lat, lon = map(float, parts)
            if abs(lat) <= 90 and abs(lon) <= 180:
                return cls(lat, lon, node)
        raise HttpError(422, f"header {NEAR}: must be a latitude and a longitude in degrees, such as 52.52,13.4")

    def headers(self) -> dict[str, str]:
        """Return the headers that say where a client is."""
        near = {} if self.lat is None or self.lon is None else {NEAR: f"{self.lat:.6f},{self.lon:.6f}"}
        return near if self.node is None else {**near, NODE: quote(self.node, safe="")}


def invalid_at_of(headers: Mapping[str, str]) -> str | None:
    """Return the broker that did not have the page to which it was redirected, if a request names one."""
    name = headers.get(INVALID_AT)
    if name is not None and not is_broker_name(name):
        raise HttpError(422, f"header {INVALID_AT}: must be the name of a broker")
    return name
