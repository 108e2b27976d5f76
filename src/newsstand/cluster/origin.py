"""All that makes the cluster the origin of pages beyond keeping them: named pages, redirects and pushes.

A page's path is its key: `pages/ID` for one that a publication carried, `named/NAME` for one that may be replaced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from newsstand.cluster.app_folder import App
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.named_pages import NamedPages
from newsstand.cluster.page_origin import PageOrigin, SentTo
from newsstand.cluster.page_pushing import PagePushing
from newsstand.cluster.pages import PageStore
from newsstand.cluster.push_caches import LEASE_S, KnownCache
from newsstand.errors import BadApp, NotFound
from newsstand.model import Broker, is_page_path
from newsstand.planning.places import Place


@dataclass(frozen=True)
class Demand:
    """Who wants a page: where they are, and where they were sent to in vain."""

    place: Place
    invalid_at: str | None = None


class Origin:
    """Methods block and may be called from several threads. `clock` is in seconds and only rises."""

    def __init__(
        self,
        app: App,
        data: Path,
        pages: PageStore,
        broker: Callable[[str], Broker | None],
        metrics: Metrics,
        now_ms: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.named = NamedPages(data / "named")
        self.now_ms = now_ms
        self._pages = pages
        self._broker = broker
        self._metrics = metrics
        self._clock = clock
        self._pushes: PageOrigin | None = None
        self._pushing: PagePushing | None = None
        if app.push.enabled:
            self._pushes = PageOrigin(app.push, clock())
            authority = None if app.cluster.authority is None else app.folder / app.cluster.authority
            self._pushing = PagePushing(
                self._pushes, broker, self.dated, clock, now_ms, told=metrics.pushed, authority=authority
            )
        metrics.before_telling(self._measure)

    def start(self) -> None:
        """Begin to push, if the app says so."""
        if self._pushing is not None:
            self._pushing.start()

    def stop(self) -> None:
        """Push no more."""
        if self._pushing is not None:
            self._pushing.stop()

    def asked(self, path: str, demand: Demand | None) -> SentTo | None:
        """Where to send a request for a page that is here; None if it is to be answered."""
        if self._pushes is None or demand is None:
            return None
        found = self._pushes.request(path, demand.place, self._clock(), demand.invalid_at)
        if found is not None:
            self._metrics.page_redirected()
        return found

    def answered(self, demand: Demand | None, size: int) -> None:
        """A request was answered with so many bytes of a page."""
        if self._pushes is not None and demand is not None:
            self._metrics.page_answered(size)

    def announce(self, cache: KnownCache, pages: Sequence[str]) -> dict[str, object]:
        """A broker is a push-cache that has these pages; what it is told. Raise NotFound, or BadApp for a path."""
        broker = self._broker(cache.name)
        if broker is None:
            raise NotFound(f"no broker '{cache.name}'")
        if urlsplit(cache.push)[:2] != urlsplit(broker.callback)[:2]:
            raise BadApp("push: must be where the broker's callback is")
        for path in pages:
            require_path(path)
        if self._pushes is not None:
            self._pushes.announce(cache, pages, self._clock())
        return {"enabled": self._pushes is not None, "lease_s": LEASE_S}

    def withdraw(self, broker: str) -> None:
        """A broker says that it is no push-cache any more; raise NotFound if there is no such broker."""
        if self._broker(broker) is None:
            raise NotFound(f"no broker '{broker}'")
        self.gone(broker)

    def gone(self, broker: str) -> None:
        """A broker is no push-cache any more, if it was one."""
        if self._pushes is not None:
            self._pushes.gone(broker)

    def dated(self, path: str) -> tuple[int, int] | None:
        """The bytes of a page and when it was last modified, in Unix milliseconds; None if it is not here."""
        kind, _, name = path.partition("/")
        if kind == "named":
            try:
                page = self.named.find(name)
            except NotFound:
                return None
            return page.size, page.modified_ms
        stored = self._pages.find(name)
        if stored is None or stored.path is None:
            return None
        try:
            return stored.size, stored.path.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None

    def _measure(self) -> None:
        if self._pushes is not None:
            self._metrics.origin_stands(*self._pushes.stands(self._clock()))


def require_path(path: str) -> None:
    """Raise BadApp if this cannot be the path of a page."""
    if not is_page_path(path):
        raise BadApp(f"pages: '{path[:50]}' is neither pages/ID nor named/NAME")
