"""What clients remember of push-caches: the redirects that origins answer with (Gwertzman and Seltzer 1995)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from newsstand.errors import BadOption

Page = TypeVar("Page", int, str)

REDIRECT_BYTES = 34
"""A URL of 30 bytes in the mean, and the address of a machine."""

MOST_REDIRECTS = 50_000


@dataclass(frozen=True, slots=True)
class Redirect(Generic[Page]):
    """The answer of an origin: these of its pages are at that push-cache."""

    origin: int
    server: int
    pages: tuple[Page, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return REDIRECT_BYTES * len(self.pages)


class ClientSide(Generic[Page]):
    """What the clients of a subnet, or their proxy, remember of redirects: the newest, up to so many.

    A client always tries a redirect that it has, since the push-cache sees to it that its copies are good.
    """

    def __init__(self, most: int = MOST_REDIRECTS) -> None:
        if most < 1:
            raise BadOption(f"redirects is {most}: a client remembers at least one")
        self._most = most
        # From the one not used for longest to the one used last.
        self._servers: OrderedDict[tuple[int, Page], int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._servers)

    def learn(self, redirect: Redirect[Page]) -> None:
        """Remember where pages are; what was known of them before is forgotten."""
        for page in redirect.pages:
            self._servers[redirect.origin, page] = redirect.server
            self._servers.move_to_end((redirect.origin, page))
        while len(self._servers) > self._most:
            self._servers.popitem(last=False)

    def server(self, origin: int, page: Page) -> int | None:
        """The push-cache to be asked for a page; None for the origin."""
        server = self._servers.get((origin, page))
        if server is not None:
            self._servers.move_to_end((origin, page))
        return server

    def invalid(self, origin: int, page: Page, server: int) -> None:
        """The push-cache did not have the page: do not ask there again, but the origin."""
        if self._servers.get((origin, page)) == server:
            del self._servers[origin, page]
