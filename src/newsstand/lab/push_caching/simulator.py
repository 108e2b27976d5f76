"""Push-caching simulated: origins, push-caches and clients over a trace (Gwertzman and Seltzer 1995).

All decisions are those of `newsstand.push_caching`; here are the order of events and the account of what is sent:

- A page costs its size; a redirect, an *invalid*, and the confirmation of a copy cost 34 bytes for each page they
  are about, a URL and a machine. To ask costs nothing. Traffic is bytes times the hops they go.
- When a half hour ends every origin decides, in the order of their numbers, before any request of that moment. All
  pages of a push are sent, whether or not they are kept.
- A push-cache reports to an origin what it has of its push, and which of that origin's pages left for it. Other
  origins learn from clients that a page is gone.
- An infinite client cache is one a subnet. It asks again for what is due for a check, by the rule that push-caches
  have, and gets 34 bytes if who answers has no newer page.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from newsstand.errors import BadOption
from newsstand.geo.backbone import Internet
from newsstand.lab.push_caching.demand import PageDemand, PushDemand
from newsstand.lab.push_caching.internet import CACHING, LOOKUP, MOST_PUSH_CACHES, HopTable, way_of
from newsstand.push_caching.cache import ORIGIN_SHARE, PushCache, Verdict
from newsstand.push_caching.clusters import available_servers
from newsstand.push_caching.copies import CacheChanges, Capacity, Offer, must_check
from newsstand.push_caching.origin import PushDecision, PushOrigin, PushOriginSettings
from newsstand.push_caching.redirects import REDIRECT_BYTES, RedirectCache
from newsstand.push_caching.strategies import STRATEGIES

CLIENT_CACHES = ("none", "infinite")
SLOTS = 1_000


@dataclass(frozen=True)
class PushCacheSetting:
    """The parameters of one simulation."""

    threshold: float = 100.0
    """push-threshold: an origin pushes when its load is above."""
    pages: int = 10
    """pages-to-push: pages of one push."""
    servers: int = 20
    """server-number: the push-caches that are available."""
    caching: str = "hops"
    """caching-strategy: what nearest means where an origin chooses a push-cache."""
    lookup: str = "hops"
    """lookup-strategy: what nearest means where an origin answers a client."""
    client_cache: str = "none"
    """Whether each subnet has a proxy that keeps every page it received."""
    slots: int = SLOTS
    """Pages that a push-cache holds."""
    cap: float = ORIGIN_SHARE
    """The share of them that any one origin may have."""
    seed: int = 1
    """The seed of places, generated networks, and random choices."""

    def __post_init__(self) -> None:
        if not self.threshold >= 0:
            raise BadOption("must not be negative", threshold=self.threshold)
        limits = {"pages": (1, 1_000_000), "servers": (0, MOST_PUSH_CACHES), "slots": (1, 10_000_000)}
        for field, (least, most) in (limits | {"seed": (0, 2**63 - 1)}).items():
            if not least <= getattr(self, field) <= most:
                raise BadOption(f"must be from {least} to {most}", **{field: getattr(self, field)})
        known = {"caching": tuple(STRATEGIES), "lookup": tuple(STRATEGIES), "client_cache": CLIENT_CACHES}
        for field, names in known.items():
            if getattr(self, field) not in names:
                raise BadOption(f"must be one of {', '.join(names)}", **{field: getattr(self, field)})
        if not 0 < self.cap <= 1:
            raise BadOption("must be above 0 and at most 1", cap=self.cap)


@dataclass(slots=True)
class PushOutcome:
    """Counts of one simulation. Every request is a client's hit, a hit, a check or an answer of its origin."""

    origins: int = 0
    available: int = 0
    """Push-caches that could be used."""
    active: int = 0
    """Push-caches that received at least one push."""
    requests: int = 0
    client_hits: int = 0
    """Answered by the cache of the subnet, without a request to a server."""
    client_stale_hits: int = 0
    """Those for which the page had changed."""
    client_bytes: int = 0
    """The bytes in the caches of all subnets in the end."""
    hits: int = 0
    """Answered by a push-cache without asking the origin."""
    stale_hits: int = 0
    """Those for which the page had changed."""
    checks: int = 0
    """Answered by a push-cache after it had asked the origin."""
    renewals: int = 0
    """Those for which the origin sent a newer page."""
    origin_answers: int = 0
    """Answered by the origin."""
    redirects: int = 0
    """Answers of origins that sent a client to a push-cache."""
    redirected_pages: int = 0
    """The pages in these answers."""
    invalid: int = 0
    """Requests to push-caches that did not have the page, after which the client asked the origin."""
    pushes: int = 0
    pushed_pages: int = 0
    pushed_bytes: int = 0
    stored_bytes: int = 0
    """The bytes in all push-caches in the end."""
    most_stored_bytes: int = 0
    """The most bytes in all push-caches at any time."""
    traffic: int = 0
    """Bytes times hops, of all that was sent."""
    primary_traffic: int = 0
    """Bytes that origins have sent: pages, redirects, pushes, and answers to checks."""
    cache_traffic: int = 0
    """Bytes that push-caches have sent."""

    @property
    def primary_requests(self) -> int:
        """The requests that origins answered: with a page, with redirects, or as a check."""
        return self.origin_answers + self.redirects + self.checks

    @property
    def server_traffic(self) -> float:
        """The mean of the bytes that an origin or an active push-cache has sent."""
        servers = self.origins + self.active
        return (self.primary_traffic + self.cache_traffic) / servers if servers else 0.0


Version = tuple[int, float]
"""The size of a page, and the time since which it is unchanged."""


class ClientCaches:
    """The pages that subnets received, kept without limit."""

    def __init__(self, outcome: PushOutcome) -> None:
        self._outcome = outcome
        self._copies: dict[tuple[int, int], tuple[int, float, float]] = {}

    def version(self, subnet: int, page: int) -> Version | None:
        """Return the version of a page that a subnet has."""
        copy = self._copies.get((subnet, page))
        return None if copy is None else copy[:2]

    def answers(self, request: PageDemand) -> bool:
        """Return whether a copy that need not be checked answers a request."""
        copy = self._copies.get((request.subnet, request.page))
        if copy is None or must_check(request.time, checked=copy[2], modified=copy[1]):
            return False
        self._outcome.client_hits += 1
        self._outcome.client_stale_hits += copy[1] < request.modified
        return True

    def keep(self, request: PageDemand, version: Version) -> None:
        """Store a page that arrived, or note that a copy was confirmed."""
        key = request.subnet, request.page
        old = self._copies.get(key)
        self._outcome.client_bytes += version[0] - (old[0] if old else 0)
        self._copies[key] = (*version, request.time)


class PushSimulation:
    """One run over a trace; the servers of the internet are the trace's origins, then push-caches."""

    def __init__(self, demand: PushDemand, internet: Internet, setting: PushCacheSetting) -> None:
        origins = len(demand.servers)
        self.outcome = PushOutcome(origins=origins)
        self._demand = demand
        self._hops = HopTable(internet)
        self._available = available_servers(range(origins, len(internet.servers)), setting.servers)
        self.caches: dict[int, PushCache[int]] = {
            server: PushCache(Capacity(slots=setting.slots), setting.cap) for server in self._available
        }
        self._active: set[int] = set()
        # The versions that push-caches hold; `PushCache` does not expose them.
        self._held: dict[tuple[int, int], Version] = {}
        self._clients: dict[int, RedirectCache[int]] = {}
        self._client_caches = ClientCaches(self.outcome) if setting.client_cache == "infinite" else None
        settings = PushOriginSettings(setting.threshold, setting.pages)
        self._period_s = settings.period_s
        first = float(demand.time[0]) if len(demand) else 0.0
        self._started = math.floor(first / self._period_s) * self._period_s
        caching = way_of(setting.caching, internet, CACHING, setting.seed)
        lookup = way_of(setting.lookup, internet, LOOKUP, setting.seed)
        self._origins: list[PushOrigin[int]] = [
            PushOrigin(number, settings, caching, lookup, self._started) for number in range(origins)
        ]

    def run(self) -> PushOutcome:
        """Replay all requests, once."""
        closes_at = self._started + self._period_s
        for request in self._demand.requests():
            if request.time >= closes_at:
                closes_at = self._close(closes_at, request.time)
            self._answer(request)
        outcome = self.outcome
        outcome.requests = len(self._demand)
        outcome.available, outcome.active = len(self._available), len(self._active)
        for cache in self.caches.values():
            outcome.hits += cache.counts.hits
            outcome.stale_hits += cache.counts.stale_hits
            outcome.checks += cache.counts.checks
            outcome.invalid += cache.counts.invalid
        return outcome

    # The half hours

    def _close(self, closes_at: float, now: float) -> float:
        """Let origins decide at the ends of half hours up to now; return when the next one ends."""
        self._decide(closes_at)
        last = self._started + (now - self._started) // self._period_s * self._period_s
        if last > closes_at:
            # Loads only fall without requests, so no page becomes due between the first end and the last.
            self._decide(last)
        return last + self._period_s

    def _decide(self, now: float) -> None:
        for origin in self._origins if self._available else ():
            push = origin.decide(now, self._available)
            if push is not None:
                self._push(origin, push, now)

    def _push(self, origin: PushOrigin[int], push: PushDecision[int], now: float) -> None:
        versions = {one.page: self._demand.versions.at(one.page, now) for one in push.pages}
        offers = [Offer(one.page, *versions[one.page], requests=one.expected) for one in push.pages]
        size = sum(offer.size for offer in offers)
        outcome = self.outcome
        outcome.pushes += 1
        outcome.pushed_pages += len(offers)
        outcome.pushed_bytes += size
        self.send_from_origin(size, self._hops.between_servers(origin.number, push.server))
        taken = self.caches[push.server].push(origin.number, offers, now)
        self._active.add(push.server)
        origin.add_copies(push.server, taken.cached)
        self._changed(origin, push.server, taken, versions)

    def _changed(
        self, origin: PushOrigin[int], server: int, taken: CacheChanges[int], versions: dict[int, Version]
    ) -> None:
        """Account for pages that a push-cache took from an origin, and for those that it evicted."""
        outcome = self.outcome
        for owner, page in taken.evicted:
            outcome.stored_bytes -= self._held.pop((server, page))[0]
            if owner == origin.number:
                origin.remove_copies(server, [page])
        for page in taken.cached:
            outcome.stored_bytes += versions[page][0] - self._held.get((server, page), (0, 0.0))[0]
            self._held[server, page] = versions[page]
        outcome.most_stored_bytes = max(outcome.most_stored_bytes, outcome.stored_bytes)

    # Requests

    def _answer(self, request: PageDemand) -> None:
        if self._client_caches is None:
            self._fetch(request, None)
        elif not self._client_caches.answers(request):
            self._client_caches.keep(
                request, self._fetch(request, self._client_caches.version(request.subnet, request.page))
            )

    def _fetch(self, request: PageDemand, have: Version | None) -> Version:
        """Return the version that a client receives, by redirects or from the origin; it may `have` one."""
        client = self._clients.get(request.subnet)
        server = None if client is None else client.server(request.server, request.page)
        if server is None:
            server = self._redirect_of(request)
            if server is None:
                return self._answered_by_origin(request, have)
        cache = self.caches[server]
        verdict = cache.request(request.server, request.page, request.time, request.modified)
        hops = self._hops.rows[request.subnet][server]
        if verdict is Verdict.INVALID:
            self.send_from_cache(REDIRECT_BYTES, hops)
            self._clients[request.subnet].invalid(request.server, request.page, server)
            self._origins[request.server].request(request.page, request.subnet, request.time, invalid_at=server)
            return self._answered_by_origin(request, have)
        is_sure = verdict is Verdict.HIT
        version = self._held[server, request.page] if is_sure else self._checked(request, server)
        if have is not None and have[1] >= version[1]:
            self.send_from_cache(REDIRECT_BYTES, hops)
            return have
        self.send_from_cache(version[0], hops)
        return version

    def _redirect_of(self, request: PageDemand) -> int | None:
        """Return the push-cache to which the origin redirects a client; None if it answers with the page."""
        redirect = self._origins[request.server].request(request.page, request.subnet, request.time)
        if redirect is None:
            return None
        self.outcome.redirects += 1
        self.outcome.redirected_pages += len(redirect.pages)
        self.send_from_origin(redirect.size, self._hops.rows[request.subnet][request.server])
        client = self._clients.get(request.subnet)
        if client is None:
            client = self._clients[request.subnet] = RedirectCache()
        client.learn(redirect)
        return redirect.server

    def _answered_by_origin(self, request: PageDemand, have: Version | None) -> Version:
        is_new = have is None or have[1] < request.modified
        self.outcome.origin_answers += 1
        hops = self._hops.rows[request.subnet][request.server]
        self.send_from_origin(request.size if is_new else REDIRECT_BYTES, hops)
        return request.size, request.modified

    def _checked(self, request: PageDemand, server: int) -> Version:
        """Let a push-cache ask the origin for a newer page; return the version that it has then."""
        page, version = request.page, (request.size, request.modified)
        hops = self._hops.between_servers(request.server, server)
        cache = self.caches[server]
        if self._held[server, page][1] >= request.modified:
            self.send_from_origin(REDIRECT_BYTES, hops)
            cache.confirm(request.server, page, request.time)
            return version
        self.outcome.renewals += 1
        self.send_from_origin(request.size, hops)
        taken = cache.renew(request.server, Offer(page, *version), request.time)
        self._changed(self._origins[request.server], server, taken, {page: version})
        return version

    # What is sent

    def send_from_origin(self, size: int, hops: int) -> None:
        """Count bytes that an origin sends over some hops."""
        self.outcome.primary_traffic += size
        self.outcome.traffic += size * hops

    def send_from_cache(self, size: int, hops: int) -> None:
        """Count bytes that a push-cache sends over some hops."""
        self.outcome.cache_traffic += size
        self.outcome.traffic += size * hops


def simulate_pushing(demand: PushDemand, internet: Internet, setting: PushCacheSetting) -> PushOutcome:
    """Run one simulation, from the first request to the last."""
    return PushSimulation(demand, internet, setting).run()
