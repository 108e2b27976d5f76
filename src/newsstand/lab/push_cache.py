"""Push-caching simulated: origins, push-caches and clients over a trace (Gwertzman and Seltzer 1995).

All decisions are those of `planning/push_*`; here are the order of events and the account of what is sent:

- A page costs its size; a redirect, an *invalid*, and a word that a copy is still good cost 34 bytes for each page
  they are about, a URL and a machine. To ask costs nothing. Traffic is bytes times the hops they go.
- When a half hour ends every origin decides, in the order of their numbers, before any request of that moment. All
  pages of a push are sent, whether or not they are kept.
- A push-cache tells an origin what it has of its push, and which of that origin's pages left for it. Other origins
  learn from clients that a page is gone.
- An infinite client cache is one a subnet. It asks again for what is due for a check, by the rule that push-caches
  have, and gets 34 bytes if who answers has no newer page.
"""

from __future__ import annotations

import math

from newsstand.lab.push_cache_demand import PushDemand, Request
from newsstand.lab.push_cache_internet import CACHING, LOOKUP, HopTable, way_of
from newsstand.lab.push_cache_outcome import PushOutcome
from newsstand.lab.push_cache_setting import PushCacheSetting
from newsstand.planning.backbone import Internet
from newsstand.planning.push_cache import PushCache, Verdict
from newsstand.planning.push_client import REDIRECT_BYTES, ClientSide
from newsstand.planning.push_clusters import available_servers
from newsstand.planning.push_consistency import must_check
from newsstand.planning.push_offers import Offer, Taken
from newsstand.planning.push_origin import Push, PushOrigin, PushSettings
from newsstand.planning.push_room import Room

Version = tuple[int, float]
"""The size of a page, and when it became what it is."""


class ClientCaches:
    """What subnets have got, kept without limit."""

    def __init__(self, outcome: PushOutcome) -> None:
        self._outcome = outcome
        self._copies: dict[tuple[int, int], tuple[int, float, float]] = {}

    def version(self, subnet: int, page: int) -> Version | None:
        """What a subnet has of a page."""
        copy = self._copies.get((subnet, page))
        return None if copy is None else copy[:2]

    def answers(self, request: Request) -> bool:
        """Whether a copy is there that need not be checked; then it is the answer."""
        copy = self._copies.get((request.subnet, request.page))
        if copy is None or must_check(request.time, checked=copy[2], modified=copy[1]):
            return False
        self._outcome.client_hits += 1
        self._outcome.client_stale_hits += copy[1] < request.modified
        return True

    def keep(self, request: Request, version: Version) -> None:
        """The page has come, or the word that none is newer."""
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
        self._caches: dict[int, PushCache[int]] = {
            server: PushCache(Room(slots=setting.slots), setting.cap) for server in self._available
        }
        self._active: set[int] = set()
        # What push-caches have of each page; they know themselves, but do not tell.
        self._held: dict[tuple[int, int], Version] = {}
        self._clients: dict[int, ClientSide[int]] = {}
        self._kept = ClientCaches(self.outcome) if setting.client_cache == "infinite" else None
        settings = PushSettings(setting.threshold, setting.pages)
        self._period_s = settings.period_s
        first = float(demand.time[0]) if len(demand) else 0.0
        self._started = math.floor(first / self._period_s) * self._period_s
        caching = way_of(setting.caching, internet, CACHING, setting.seed)
        lookup = way_of(setting.lookup, internet, LOOKUP, setting.seed)
        self._origins: list[PushOrigin[int]] = [
            PushOrigin(number, settings, caching, lookup, self._started) for number in range(origins)
        ]

    def run(self) -> PushOutcome:
        """Go through all requests, once."""
        closes_at = self._started + self._period_s
        for request in self._demand.requests():
            if request.time >= closes_at:
                closes_at = self._close(closes_at, request.time)
            self._answer(request)
        outcome = self.outcome
        outcome.requests = len(self._demand)
        outcome.available, outcome.active = len(self._available), len(self._active)
        for cache in self._caches.values():
            outcome.hits += cache.counts.hits
            outcome.stale_hits += cache.counts.stale_hits
            outcome.checks += cache.counts.checks
            outcome.invalid += cache.counts.invalid
        return outcome

    # The half hours

    def _close(self, closes_at: float, now: float) -> float:
        """Let origins decide where half hours end, up to now; when the next one ends."""
        self._decide(closes_at)
        last = self._started + (now - self._started) // self._period_s * self._period_s
        if last > closes_at:
            # Loads only fall while nobody asks, so in between nobody pushes what was not pushed at the first end.
            self._decide(last)
        return last + self._period_s

    def _decide(self, now: float) -> None:
        for origin in self._origins if self._available else ():
            push = origin.decide(now, self._available)
            if push is not None:
                self._push(origin, push, now)

    def _push(self, origin: PushOrigin[int], push: Push[int], now: float) -> None:
        versions = {one.page: self._demand.versions.at(one.page, now) for one in push.pages}
        offers = [Offer(one.page, *versions[one.page], requests=one.expected) for one in push.pages]
        size = sum(offer.size for offer in offers)
        outcome = self.outcome
        outcome.pushes += 1
        outcome.pushed_pages += len(offers)
        outcome.pushed_bytes += size
        self._from_origin(size, self._hops.between_servers(origin.number, push.server))
        taken = self._caches[push.server].push(origin.number, offers, now)
        self._active.add(push.server)
        origin.taken(push.server, taken.kept)
        self._changed(origin, push.server, taken, versions)

    def _changed(
        self, origin: PushOrigin[int], server: int, taken: Taken[int], versions: dict[int, Version]
    ) -> None:
        """A push-cache has taken pages of an origin, and others may have left for them."""
        outcome = self.outcome
        for owner, page in taken.left:
            outcome.stored_bytes -= self._held.pop((server, page))[0]
            if owner == origin.number:
                origin.left(server, [page])
        for page in taken.kept:
            outcome.stored_bytes += versions[page][0] - self._held.get((server, page), (0, 0.0))[0]
            self._held[server, page] = versions[page]
        outcome.most_stored_bytes = max(outcome.most_stored_bytes, outcome.stored_bytes)

    # Requests

    def _answer(self, request: Request) -> None:
        if self._kept is None:
            self._fetch(request, None)
        elif not self._kept.answers(request):
            self._kept.keep(request, self._fetch(request, self._kept.version(request.subnet, request.page)))

    def _fetch(self, request: Request, have: Version | None) -> Version:
        """The version with which a client ends up that may have one already: by redirects or from the origin."""
        client = self._clients.get(request.subnet)
        server = None if client is None else client.server(request.server, request.page)
        if server is None:
            server = self._asked_first(request)
            if server is None:
                return self._answered_by_origin(request, have)
        cache = self._caches[server]
        verdict = cache.request(request.server, request.page, request.time, request.modified)
        hops = self._hops.rows[request.subnet][server]
        if verdict is Verdict.INVALID:
            self._from_cache(REDIRECT_BYTES, hops)
            self._clients[request.subnet].invalid(request.server, request.page, server)
            self._origins[request.server].request(request.page, request.subnet, request.time, invalid_at=server)
            return self._answered_by_origin(request, have)
        is_sure = verdict is Verdict.HIT
        version = self._held[server, request.page] if is_sure else self._checked(request, server)
        if have is not None and have[1] >= version[1]:
            self._from_cache(REDIRECT_BYTES, hops)
            return have
        self._from_cache(version[0], hops)
        return version

    def _asked_first(self, request: Request) -> int | None:
        """The push-cache to which the origin redirects a client that knew of none; None if it gives the page."""
        redirect = self._origins[request.server].request(request.page, request.subnet, request.time)
        if redirect is None:
            return None
        self.outcome.redirects += 1
        self.outcome.redirected_pages += len(redirect.pages)
        self._from_origin(redirect.size, self._hops.rows[request.subnet][request.server])
        client = self._clients.get(request.subnet)
        if client is None:
            client = self._clients[request.subnet] = ClientSide()
        client.learn(redirect)
        return redirect.server

    def _answered_by_origin(self, request: Request, have: Version | None) -> Version:
        is_new = have is None or have[1] < request.modified
        self.outcome.origin_answers += 1
        hops = self._hops.rows[request.subnet][request.server]
        self._from_origin(request.size if is_new else REDIRECT_BYTES, hops)
        return request.size, request.modified

    def _checked(self, request: Request, server: int) -> Version:
        """A push-cache asks the origin for a newer page, or whether there is none."""
        page, version = request.page, (request.size, request.modified)
        hops = self._hops.between_servers(request.server, server)
        cache = self._caches[server]
        if self._held[server, page][1] >= request.modified:
            self._from_origin(REDIRECT_BYTES, hops)
            cache.confirm(request.server, page, request.time)
            return version
        self.outcome.renewals += 1
        self._from_origin(request.size, hops)
        taken = cache.renew(request.server, Offer(page, *version), request.time)
        self._changed(self._origins[request.server], server, taken, {page: version})
        return version

    # What is sent

    def _from_origin(self, size: int, hops: int) -> None:
        self.outcome.primary_traffic += size
        self.outcome.traffic += size * hops

    def _from_cache(self, size: int, hops: int) -> None:
        self.outcome.cache_traffic += size
        self.outcome.traffic += size * hops


def simulated(demand: PushDemand, internet: Internet, setting: PushCacheSetting) -> PushOutcome:
    """One simulation, from the first request to the last."""
    return PushSimulation(demand, internet, setting).run()
