"""Redirects of clients from origins to push-caches (Gwertzman and Seltzer 1995).

The simplest lookup of the paper: a client asks the origin first, which knows the push-caches of its pages, and
caches the redirects that it gets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from newsstand.errors import BadOption
from newsstand.push_caching.clusters import Nearness, closest

Page = TypeVar("Page", bound=Hashable)

REDIRECT_BYTES = 34
"""A URL of 30 bytes on average, and the address of a machine."""

MOST_REDIRECTS = 50_000


@dataclass(frozen=True, slots=True)
class Redirect(Generic[Page]):
    """The answer of an origin: the pages that a push-cache has of it."""

    origin: int
    server: int
    pages: tuple[Page, ...]

    @property
    def size(self) -> int:
        """The bytes of the message."""
        return REDIRECT_BYTES * len(self.pages)


class RedirectCache(Generic[Page]):
    """The newest redirects, up to a number, that the clients of a subnet or their proxy cache.

    A client always follows a cached redirect, as the push-cache checks its copies.
    """

    def __init__(self, most: int = MOST_REDIRECTS) -> None:
        if most < 1:
            raise BadOption("must be at least 1", redirects=most)
        self._most = most
        # From the least to the most recently used.
        self._servers: OrderedDict[tuple[int, Page], int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._servers)

    def learn(self, redirect: Redirect[Page]) -> None:
        """Store the push-cache of pages in place of an earlier one."""
        for page in redirect.pages:
            self._servers[redirect.origin, page] = redirect.server
            self._servers.move_to_end((redirect.origin, page))
        while len(self._servers) > self._most:
            self._servers.popitem(last=False)

    def server(self, origin: int, page: Page) -> int | None:
        """Return the push-cache to ask for a page; None for the origin."""
        server = self._servers.get((origin, page))
        if server is not None:
            self._servers.move_to_end((origin, page))
        return server

    def invalid(self, origin: int, page: Page, server: int) -> None:
        """Remove the redirect to a push-cache that has answered that it does not have the page."""
        if self._servers.get((origin, page)) == server:
            del self._servers[origin, page]


class OriginRedirects(Generic[Page]):
    """The push-caches of the pages of one origin, as far as it knows."""

    def __init__(self, origin: int) -> None:
        self.origin = origin
        # Dictionaries as sets that keep an order.
        self._pages: dict[int, dict[Page, None]] = {}
        self._servers: dict[Page, set[int]] = {}

    def add(self, server: int, pages: Iterable[Page]) -> None:
        """Note that a push-cache has taken pages."""
        for page in pages:
            self._pages.setdefault(server, {})[page] = None
            self._servers.setdefault(page, set()).add(server)

    def remove(self, server: int, pages: Iterable[Page]) -> None:
        """Note that a push-cache does not have pages any more."""
        for page in pages:
            self._pages.get(server, {}).pop(page, None)
            servers = self._servers.get(page, set())
            servers.discard(server)
            if not servers:
                self._servers.pop(page, None)
        if not self._pages.get(server):
            self._pages.pop(server, None)

    def remove_server(self, server: int) -> None:
        """Forget a push-cache."""
        self.remove(server, tuple(self._pages.get(server, ())))

    def servers(self) -> tuple[int, ...]:
        """Return the push-caches with pages of this origin, in the order of their numbers."""
        return tuple(sorted(self._pages))

    def pages_at(self, server: int) -> tuple[Page, ...]:
        return tuple(self._pages.get(server, ()))

    def holders(self, page: Page) -> tuple[int, ...]:
        """Return the push-caches that have a page, in the order of their numbers."""
        return tuple(sorted(self._servers.get(page, ())))

    def redirect(self, page: Page, subnet: int, way: Nearness) -> Redirect[Page] | None:
        """Return a redirect to all pages at the nearest push-cache with this one; None if the origin is as near.

        With random distances, the origin takes part in the draw.
        """
        found = closest(way, subnet, self._servers.get(page, ()))
        if found is None or not found[0] < way.distance(subnet, self.origin):
            return None
        return Redirect(self.origin, found[1], self.pages_at(found[1]))
