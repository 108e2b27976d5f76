"""What origins offer to push-caches, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from newsstand.errors import BadOption

Page = TypeVar("Page", int, str)


@dataclass(frozen=True, slots=True)
class Offer(Generic[Page]):
    """A page that an origin pushes."""

    page: Page
    size: int = 0
    modified: float = 0.0
    requests: float = 0.0
    """How many requests the origin expects here: a claim."""

    def __post_init__(self) -> None:
        if self.size < 0:
            raise BadOption(f"page {self.page}: size is {self.size}, which is negative")


@dataclass(frozen=True, slots=True)
class Taken(Generic[Page]):
    """What came of a push: the pages that are now here, and those, with their origins, that no longer are."""

    kept: tuple[Page, ...] = ()
    left: tuple[tuple[int, Page], ...] = ()
