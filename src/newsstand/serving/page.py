"""Pages over HTTP: whole or in part, conditional, and never taken for something of ours to run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fastapi import Request, Response
from starlette.responses import StreamingResponse

from newsstand.serving.refusals import Refused, Responses

_RANGE = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", re.ASCII)
_BINARY = {"content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}
PAGE_RESPONSES: Responses = {
    200: {"description": "The page.", **_BINARY},
    206: {"description": "A part of it.", **_BINARY},
    304: {"description": "The caller has it."},
}
"""What a page can be answered with, for /openapi.json."""


@dataclass(frozen=True)
class Whole:
    """A page: its id, which is its ETag, for what an id names never changes; bytes; type."""

    id: str
    size: int
    type: str


def page_answer(
    request: Request,
    page: Whole,
    read: Callable[[int, int], bytes | Iterator[bytes]],
    more: dict[str, str] | None = None,
) -> Response:
    """The answer to a request for a page; `read` gives the bytes start <= i < end."""
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
        raise Refused(
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
    """The bytes start <= i < end that a Range header asks for, which may be none; None if it is not honoured.

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
    """Whether If-None-Match names this tag."""
    return any(one.strip().removeprefix("W/") in (tag, "*") for one in header.split(","))
