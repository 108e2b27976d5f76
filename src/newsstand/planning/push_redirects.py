"""How an origin sends clients to push-caches: by redirects (Gwertzman and Seltzer 1995).

The simplest way that the paper names: a client asks the origin first, which knows what it has pushed where.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from newsstand.planning.push_client import Redirect
from newsstand.planning.push_nearness import Nearness, closest

Page = TypeVar("Page", int, str)


class RedirectTable(Generic[Page]):
    """What one origin has at which push-caches, as far as it knows."""

    def __init__(self, origin: int) -> None:
        self.origin = origin
        # Dictionaries as sets that keep an order.
        self._pages: dict[int, dict[Page, None]] = {}
        self._servers: dict[Page, set[int]] = {}

    def add(self, server: int, pages: Iterable[Page]) -> None:
        """A push-cache has taken pages."""
        for page in pages:
            self._pages.setdefault(server, {})[page] = None
            self._servers.setdefault(page, set()).add(server)

    def remove(self, server: int, pages: Iterable[Page]) -> None:
        """A push-cache does not have pages any more."""
        for page in pages:
            self._pages.get(server, {}).pop(page, None)
            servers = self._servers.get(page, set())
            servers.discard(server)
            if not servers:
                self._servers.pop(page, None)
        if not self._pages.get(server):
            self._pages.pop(server, None)

    def remove_server(self, server: int) -> None:
        """A push-cache is gone."""
        self.remove(server, tuple(self._pages.get(server, ())))

    def servers(self) -> tuple[int, ...]:
        """The push-caches that have something of this origin, in the order of their numbers."""
        return tuple(sorted(self._pages))

    def pages_at(self, server: int) -> tuple[Page, ...]:
        return tuple(self._pages.get(server, ()))

    def holders(self, page: Page) -> tuple[int, ...]:
        """The push-caches that have a page, in the order of their numbers."""
        return tuple(sorted(self._servers.get(page, ())))

    def redirect(self, page: Page, subnet: int, way: Nearness) -> Redirect[Page] | None:
        """Redirects for all pages at the nearest push-cache that has this one, if the origin is not as near.

        By chance, the origin is one of those on which it may fall.
        """
        found = closest(way, subnet, self._servers.get(page, ()))
        if found is None or not found[0] < way.distance(subnet, self.origin):
            return None
        return Redirect(self.origin, found[1], self.pages_at(found[1]))
