"""Where a request for a page comes from, as its headers say, and to which broker it is sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

from newsstand.serving.refusals import Refused

NEAR = "Newsstand-Near"
NODE = "Newsstand-Node"
INVALID_AT = "Newsstand-Invalid-At"
"""The broker to which the caller was sent in vain."""
REDIRECT = "Newsstand-Redirect"
"""The broker to which an answer sends the caller."""
REDIRECTS = "Newsstand-Redirects"
"""`yes` if a client goes itself where it is sent, and comes back if it went in vain."""

_NUMBER = re.compile(r"-?[0-9]{1,3}(\.[0-9]{1,12})?")
_LONGEST_NODE = 64
MODIFIED = "Newsstand-Modified"
"""When a page was last modified, in Unix milliseconds."""


class Near(NamedTuple):
    """A place by its parts, each of which may be missing."""

    lat: float | None
    lon: float | None
    node: str | None


def near_of(headers: Mapping[str, str]) -> Near | None:
    """Where a request comes from; None if it does not say. What is no place is refused."""
    place, node = headers.get(NEAR), headers.get(NODE)
    if place is None and node is None:
        return None
    if node is not None:
        node = unquote(node)
        if not 1 <= len(node) <= _LONGEST_NODE or not node.isprintable():
            raise Refused(422, f"header {NODE}: must be the name of a node, percent-encoded, 1 to 64 characters")
    if place is None:
        return Near(None, None, node)
    parts = [part.strip() for part in place.split(",")]
    if len(parts) == 2 and all(_NUMBER.fullmatch(part) for part in parts):
        lat, lon = map(float, parts)
        if abs(lat) <= 90 and abs(lon) <= 180:
            return Near(lat, lon, node)
    raise Refused(422, f"header {NEAR}: must be a latitude and a longitude in degrees, such as 52.52,13.4")


def near_headers(lat: float | None, lon: float | None, node: str | None) -> dict[str, str]:
    """The headers that tell of a place."""
    told = {} if lat is None or lon is None else {NEAR: f"{lat:.6f},{lon:.6f}"}
    return told if node is None else {**told, NODE: quote(node, safe="")}
