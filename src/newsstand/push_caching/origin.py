"""An origin that pushes its popular pages towards the demand (Gwertzman and Seltzer 1995).

It answers a request with the page or a redirect, and decides every half hour whether to push, by its load and its
access history. Its caller transfers the pages and reports which of them a push-cache has stored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from newsstand.errors import BadOption
from newsstand.push_caching.clusters import Nearness, cluster_requests, winner
from newsstand.push_caching.redirects import OriginRedirects, Redirect

Page = TypeVar("Page", int, str)

PERIOD_S = 1800.0
DECAY = 0.5


class LoadAverage:
    """A load average as in Unix: every half hour load = a·load + (1−a)·requests, with the decay a.

    Half hours are counted from `started`; each includes its first moment and excludes its last.

    >>> load = LoadAverage(started=0.0)
    >>> for second in range(300):
    ...     load.record(float(second))
    >>> load.advance(1800.0), load.advance(3600.0)
    (150.0, 75.0)
    """

    def __init__(self, started: float, decay: float = DECAY, period_s: float = PERIOD_S) -> None:
        if not 0 <= decay < 1:
            raise BadOption("must be at least 0 and below 1", decay=decay)
        if not period_s > 0:
            raise BadOption("must be above 0", period_s=period_s)
        self.load = 0.0
        self._requests = 0
        self._started = started
        self._closed = 0
        self._decay = decay
        self._period_s = period_s

    @property
    def closes_at(self) -> float:
        """The end of the present half hour."""
        # By multiplication, as sums of periods would drift.
        return self._started + (self._closed + 1) * self._period_s

    def record(self, now: float, requests: int = 1) -> float | None:
        """Record requests that were answered now; return what `advance` returns."""
        highest = self.advance(now)
        self._requests += requests
        return highest

    def advance(self, now: float) -> float | None:
        """Close the half hours that have ended; return the highest load at such an end, None if none has ended."""
        if now < self.closes_at:
            return None
        self.load = highest = self._decay * self.load + (1 - self._decay) * self._requests
        self._requests = 0
        self._closed += 1
        if now >= self.closes_at:
            # Nothing was recorded since: the load only falls, however many half hours there are.
            idle = int((now - self.closes_at) // self._period_s) + 1
            self.load *= self._decay**idle
            self._closed += idle
        return highest

    def reset(self) -> None:
        """Set the load to 0, after a push."""
        self.load = 0.0


REMEMBER_S = 86_400.0
MOST_ENTRIES = 10_000


class RecentCounts(Generic[Page]):
    """The access history of an origin: its requests since the last push, by subnet or by page.

    Not by both: the paper finds that the pattern of all requests is that of the popular pages (correlation 0.98).
    A key without a request for `remember_s` is forgotten, and so is the least recent of more than `most_entries`.
    """

    def __init__(self, remember_s: float = REMEMBER_S, most_entries: int = MOST_ENTRIES) -> None:
        if not remember_s > 0:
            raise BadOption("must be above 0", remember_s=remember_s)
        if most_entries < 1:
            raise BadOption("must be at least 1", most_entries=most_entries)
        self._remember_s = remember_s
        self._most = most_entries
        # In the order of their last requests, so that the oldest are found without a search.
        self._seen: OrderedDict[Page, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def record(self, key: Page, now: float) -> None:
        count, _ = self._seen.pop(key, (0, now))
        self._seen[key] = (count + 1, now)
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)

    def expire(self, now: float) -> None:
        """Forget keys without a request for `remember_s`."""
        while self._seen and next(iter(self._seen.values()))[1] < now - self._remember_s:
            self._seen.popitem(last=False)

    def clear(self) -> None:
        """Forget everything, after a push."""
        self._seen.clear()

    def counts(self) -> dict[Page, int]:
        """Return the requests of each key, in the order of keys."""
        return {key: self._seen[key][0] for key in sorted(self._seen)}

    def most_frequent(self, keys: int) -> list[tuple[Page, int]]:
        """Return the keys with most requests and these, of equals the lowest key first."""
        ranked = sorted((-count, key) for key, (count, _) in self._seen.items())
        return [(key, -count) for count, key in ranked[:keys]]


@dataclass(frozen=True)
class PushOriginSettings:
    """The parameters of an origin."""

    threshold: float = 100.0
    """push-threshold: the load above which it pushes."""
    pages_to_push: int = 10
    decay: float = DECAY
    period_s: float = PERIOD_S
    remember_s: float = REMEMBER_S
    """The time without a request after which subnets and pages are forgotten."""
    most_entries: int = MOST_ENTRIES
    """The length of the list of subnets, and of that of pages."""
    redirects_count: bool = False
    """Whether a request that is answered by a redirect also counts for load and history."""

    def __post_init__(self) -> None:
        if not self.threshold >= 0:
            raise BadOption("must not be negative", threshold=self.threshold)
        if self.pages_to_push < 1:
            raise BadOption("must be at least 1", pages_to_push=self.pages_to_push)


@dataclass(frozen=True, slots=True)
class PushCandidate(Generic[Page]):
    """A page to be pushed."""

    page: Page
    requests: int
    """Since the last push."""
    expected: float
    """The requests from the winning cluster, if all pages are equally popular everywhere."""


@dataclass(frozen=True, slots=True)
class PushDecision(Generic[Page]):
    """The decision to push pages, the most popular first, to a push-cache."""

    server: int
    pages: tuple[PushCandidate[Page], ...]
    cluster: int
    """Requests of the winning cluster."""
    requests: int
    """Requests of all clusters."""


class PushOrigin(Generic[Page]):
    """One origin: its load, its access history and its redirects."""

    def __init__(
        self, number: int, settings: PushOriginSettings, caching: Nearness, lookup: Nearness, started: float
    ) -> None:
        self.number = number
        self.settings = settings
        self.redirects: OriginRedirects[Page] = OriginRedirects(number)
        self._caching = caching
        self._lookup = lookup
        self._load = LoadAverage(started, settings.decay, settings.period_s)
        self._subnets: RecentCounts[int] = RecentCounts(settings.remember_s, settings.most_entries)
        self._pages: RecentCounts[Page] = RecentCounts(settings.remember_s, settings.most_entries)
        self._due = False

    @property
    def load(self) -> float:
        """The load at the end of the last half hour."""
        return self._load.load

    @property
    def decides_at(self) -> float:
        """The end of the present half hour, when `decide` should be called."""
        return self._load.closes_at

    def request(self, page: Page, subnet: int, now: float, invalid_at: int | None = None) -> Redirect[Page] | None:
        """Return the answer to a client: a redirect, or None for the page itself.

        A client that got *invalid* names the cache and gets the page, as a second cache may lack it, too.
        """
        redirect = None
        if invalid_at is None:
            redirect = self.redirects.redirect(page, subnet, self._lookup)
        else:
            self.redirects.remove(invalid_at, [page])
        if redirect is None or self.settings.redirects_count:
            self._closed(self._load.record(now))
            self._subnets.record(subnet, now)
            self._pages.record(page, now)
        return redirect

    def decide(self, now: float, servers: Iterable[int]) -> PushDecision[Page] | None:
        """Return the pages to push and the push-cache among the available servers; None for no push.

        An origin pushes if the load was above the threshold when a half hour ended. Then the load and the history
        are reset. Without a server or requests nothing changes until the next half hour ends.
        """
        self._closed(self._load.advance(now))
        self._subnets.expire(now)
        self._pages.expire(now)
        if not self._due:
            return None
        self._due = False
        others = (server for server in servers if server != self.number)
        clusters = cluster_requests(self._subnets.counts(), others, self._caching)
        server = winner(clusters)
        if server is None:
            return None
        requests = sum(clusters.values())
        share = clusters[server] / requests
        pages = tuple(
            PushCandidate(page, count, count * share)
            for page, count in self._pages.most_frequent(self.settings.pages_to_push)
        )
        self._load.reset()
        self._subnets.clear()
        self._pages.clear()
        return PushDecision(server, pages, clusters[server], requests)

    def add_copies(self, server: int, pages: Iterable[Page]) -> None:
        """Note that a push-cache has these pages now."""
        self.redirects.add(server, pages)

    def remove_copies(self, server: int, pages: Iterable[Page]) -> None:
        """Note that a push-cache does not have these pages any more."""
        self.redirects.remove(server, pages)

    def _closed(self, highest: float | None) -> None:
        if highest is not None and highest > self.settings.threshold:
            self._due = True
