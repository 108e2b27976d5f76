"""An origin that pushes its popular pages towards where they are wanted (Gwertzman and Seltzer 1995).

It takes a request by answering it or by sending a redirect, and decides every half hour whether to push. It moves
no pages itself: whoever drives it does, and tells what a push-cache has taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from newsstand.errors import BadOption
from newsstand.planning.push_client import Redirect
from newsstand.planning.push_clusters import cluster_requests, winner
from newsstand.planning.push_history import MOST_ENTRIES, REMEMBER_S, AccessHistory
from newsstand.planning.push_load import DECAY, PERIOD_S, LoadAverage
from newsstand.planning.push_nearness import Nearness
from newsstand.planning.push_redirects import RedirectTable

Page = TypeVar("Page", int, str)


@dataclass(frozen=True)
class PushSettings:
    """The parameters of an origin."""

    threshold: float = 100.0
    """push-threshold: it pushes when its load is above."""
    pages_to_push: int = 10
    decay: float = DECAY
    period_s: float = PERIOD_S
    remember_s: float = REMEMBER_S
    """Subnets and pages without a request for so long are forgotten."""
    most_entries: int = MOST_ENTRIES
    """Of the list of subnets, and of pages."""
    redirects_count: bool = False
    """Whether a request that is answered by a redirect adds to load and history, too."""

    def __post_init__(self) -> None:
        if not self.threshold >= 0:
            raise BadOption(f"threshold is {self.threshold}: it cannot be negative")
        if self.pages_to_push < 1:
            raise BadOption(f"pages-to-push is {self.pages_to_push}: there must be at least one")


@dataclass(frozen=True, slots=True)
class PopularPage(Generic[Page]):
    """A page to be pushed."""

    page: Page
    requests: int
    """Since the last push."""
    expected: float
    """Those of them that came from the winning cluster, if all pages are wanted alike everywhere."""


@dataclass(frozen=True, slots=True)
class Push(Generic[Page]):
    """A decision: these pages, the most popular first, go to that push-cache."""

    server: int
    pages: tuple[PopularPage[Page], ...]
    cluster: int
    """Requests of the winning cluster."""
    requests: int
    """Requests of all clusters."""


class PushOrigin(Generic[Page]):
    """One origin: its load, its access history and its redirects."""

    def __init__(
        self, number: int, settings: PushSettings, caching: Nearness, lookup: Nearness, started: float
    ) -> None:
        self.number = number
        self.settings = settings
        self.redirects: RedirectTable[Page] = RedirectTable(number)
        self._caching = caching
        self._lookup = lookup
        self._load = LoadAverage(started, settings.decay, settings.period_s)
        self._history: AccessHistory[Page] = AccessHistory(settings.remember_s, settings.most_entries)
        self._due = False

    @property
    def load(self) -> float:
        """As it was at the end of the last half hour."""
        return self._load.load

    @property
    def decides_at(self) -> float:
        """When the present half hour ends, and `decide` should be called."""
        return self._load.closes_at

    def request(self, page: Page, subnet: int, now: float, invalid_at: int | None = None) -> Redirect[Page] | None:
        """What to answer a client with: a redirect, or None for the page itself.

        A client that was told *invalid* says by whom, and gets the page: no second cache may be without it, too.
        """
        redirect = None
        if invalid_at is None:
            redirect = self.redirects.redirect(page, subnet, self._lookup)
        else:
            self.redirects.remove(invalid_at, [page])
        if redirect is None or self.settings.redirects_count:
            self._closed(self._load.record(now))
            self._history.record(subnet, page, now)
        return redirect

    def decide(self, now: float, servers: Iterable[int]) -> Push[Page] | None:
        """Whether to push, and then what and where, given the push-cache servers that are available.

        It does if the load was above the threshold when a half hour ended; then it begins anew with a load of 0
        and an empty history. Without a server or requests all stays as it is until the next half hour ends.
        """
        self._closed(self._load.advance(now))
        self._history.expire(now)
        if not self._due:
            return None
        self._due = False
        clusters = cluster_requests(
            self._history.subnets(), (server for server in servers if server != self.number), self._caching
        )
        server = winner(clusters)
        if server is None:
            return None
        requests = sum(clusters.values())
        share = clusters[server] / requests
        pages = tuple(
            PopularPage(page, count, count * share)
            for page, count in self._history.most_popular(self.settings.pages_to_push)
        )
        self._load.reset()
        self._history.clear()
        return Push(server, pages, clusters[server], requests)

    def taken(self, server: int, pages: Iterable[Page]) -> None:
        """A push-cache has these pages now."""
        self.redirects.add(server, pages)

    def left(self, server: int, pages: Iterable[Page]) -> None:
        """A push-cache says that it does not have these pages any more."""
        self.redirects.remove(server, pages)

    def _closed(self, highest: float | None) -> None:
        if highest is not None and highest > self.settings.threshold:
            self._due = True
