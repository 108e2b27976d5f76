"""Pages as a broker handles them: their paths, their bytes, and what an origin says of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from newsstand.errors import NewsstandError
from newsstand.serving.near import MODIFIED

_TYPE = re.compile(r"[!-~][ -~]{0,255}")
_MODIFIED = re.compile(r"[0-9]{1,15}", re.ASCII)
_TAG = re.compile(r'(?:W/)?"([!#-~]{1,64})"')


@dataclass(frozen=True, slots=True)
class Content:
    """A page: its bytes and their type, the name of this version, and since when it is so."""

    data: bytes
    type: str
    version: str = ""
    modified_ms: int = 0


class TooLarge(NewsstandError):
    """A page that is larger than what goes through memory."""


def is_fixed(path: str) -> bool:
    """Whether the page of this path never changes."""
    return path.startswith("pages/")


async def content_of(response: httpx.Response, largest: int) -> Content:
    """The page that an origin or another broker answers with; TooLarge if it is larger than that."""
    pieces: list[bytes] = []
    size = _length(response.headers)
    if size <= largest:
        size = 0
        async for piece in response.aiter_bytes():
            pieces.append(piece)
            size += len(piece)
            if size > largest:
                break
    if size > largest:
        raise TooLarge(f"page '{response.url.path}' has more than {largest} bytes")
    type, tag, modified = (response.headers.get(name, "") for name in ("content-type", "etag", MODIFIED))
    known = _TAG.fullmatch(tag)
    return Content(
        b"".join(pieces),
        type if _TYPE.fullmatch(type) else "application/octet-stream",
        "" if known is None else known[1],
        int(modified) if _MODIFIED.fullmatch(modified) else 0,
    )


def _length(headers: Mapping[str, str]) -> int:
    told = headers.get("content-length", "")
    return int(told) if told.isdecimal() else 0
