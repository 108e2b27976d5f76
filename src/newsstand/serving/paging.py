"""Lists over HTTP are told page by page: at most `limit` entries, in order of their names, after the one named."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar

from fastapi import Query

T = TypeVar("T")
K = TypeVar("K", str, int)
MOST_LISTED = 10_000
"""Entries of one page."""
USUAL = 1_000
"""Entries of a page if the request does not say."""
After = Annotated[str, Query(max_length=256, description="`next` of the page before")]
Limit = Annotated[int, Query(ge=1, le=MOST_LISTED, description="entries of the page at most")]


def page_of(entries: Iterable[T], name: Callable[[T], K], after: K, limit: int) -> tuple[list[T], K | None]:
    """Return the entries after that name, and the name after which the next page begins; None at the end.

    >>> page_of(["c", "a", "b"], str, after="a", limit=1)
    (['b'], 'b')
    """
    ordered = sorted(entries, key=name)
    start = bisect_right(ordered, after, key=name) if after else 0
    page = ordered[start : start + limit]
    return page, name(page[-1]) if start + limit < len(ordered) else None
