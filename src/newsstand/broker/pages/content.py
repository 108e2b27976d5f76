"""Pages as a broker handles them: paths, contents, and responses that carry them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import aiohttp

from newsstand.errors import NewsstandError
from newsstand.http.pages import MODIFIED

_TYPE = re.compile(r"[!-~][ -~]{0,255}")
_MODIFIED = re.compile(r"[0-9]{1,15}", re.ASCII)
_TAG = re.compile(r'(?:W/)?"([!#-~]{1,64})"')


@dataclass(frozen=True, slots=True)
class PageContent:
    """A page: its bytes and their type, the name of this version, and since when it is valid."""

    data: bytes
    type: str
    version: str = ""
    modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class PageResponse:
    """A response to a request for a page; its body is read piece by piece, as it was sent."""

    path: str
    status: int
    headers: Mapping[str, str]
    """Their names are case-insensitive."""
    chunks: AsyncIterator[bytes]

    @classmethod
    def of(cls, response: aiohttp.ClientResponse) -> PageResponse:
        return cls(response.url.path, response.status, response.headers, response.content.iter_any())


class PageTooLarge(NewsstandError):
    """A page that is larger than what is held in memory."""


def is_fixed(path: str) -> bool:
    """Return whether the page of this path never changes."""
    return path.startswith("pages/")


async def steady(chunks: AsyncIterator[bytes], pause_s: float) -> AsyncIterator[bytes]:
    """Yield a body; raise TimeoutError if a chunk takes too long. The time of the reader does not count."""
    while True:
        try:
            async with asyncio.timeout(pause_s):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        yield chunk


async def read_content(response: PageResponse, largest: int) -> PageContent:
    """Return the page of a response; raise PageTooLarge if it has more than `largest` bytes."""
    data = bytearray()
    length = response.headers.get("content-length", "")
    too_large = length.isdecimal() and int(length) > largest
    if not too_large:
        async for chunk in response.chunks:
            data += chunk
            if too_large := len(data) > largest:
                break
    if too_large:
        raise PageTooLarge(f"page '{response.path}' has more than {largest} bytes")
    type, tag, modified = (response.headers.get(name, "") for name in ("content-type", "etag", MODIFIED))
    known = _TAG.fullmatch(tag)
    return PageContent(
        bytes(data),
        type if _TYPE.fullmatch(type) else "application/octet-stream",
        "" if known is None else known[1],
        int(modified) if _MODIFIED.fullmatch(modified) else 0,
    )
