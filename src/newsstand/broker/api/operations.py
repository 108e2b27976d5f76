"""Routes for operators of a broker: statistics and the caching policy."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from newsstand.broker.api.context import BrokerContext
from newsstand.broker.metrics import SOURCES
from newsstand.caching import RESULT_POLICIES
from newsstand.http.app import Routes
from newsstand.http.errors import json_response

Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ResultCaching(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How results are cached."""

    policy: str | None = None
    budget: Bytes | None = None


class PageCaching(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How pages are cached."""

    policy: str | None = None
    capacity: Bytes | None = None
    push: Literal["needed", "always"] | None = None


class CachingSettings(msgspec.Struct, forbid_unknown_fields=True):
    """The caching policy of a broker; a PUT changes the fields that it has."""

    results: ResultCaching = ResultCaching()
    pages: PageCaching = PageCaching()


def operator_routes(context: BrokerContext) -> Routes:
    """Return the routes of operators."""
    routes = Routes("operation")

    @routes.get("/stats", response=dict[str, object], errors=(403,))
    async def stats(request: Request) -> Response:
        """Return statistics of the broker, for the dashboard."""
        if not context.settings.open_stats:
            await context.require_operator(request)
        return json_response(
            stats_of(context),
            headers={"Access-Control-Allow-Origin": "*"},
        )

    @routes.get("/policy", response=CachingSettings, errors=(403,))
    async def policy(request: Request) -> Response:
        """Return the caching policy."""
        await context.require_operator(request)
        return json_response(_policy(context))

    @routes.put("/policy", response=CachingSettings, errors=(403,), body=CachingSettings)
    async def put_policy(request: Request) -> Response:
        """Change the caching policy while the broker runs."""
        await context.require_operator(request)
        given = await context.decode(request, CachingSettings)
        if given.results.policy is not None:
            RESULT_POLICIES[given.results.policy]  # all or nothing: raises before anything is changed
        match_cache = context.results.match_cache
        if given.pages != PageCaching():
            match_cache.reconfigure(
                given.pages.policy or match_cache.policy,
                match_cache.capacity if given.pages.capacity is None else given.pages.capacity,
                given.pages.push or match_cache.push,
            )
        context.results.set_policy(given.results.policy, given.results.budget)
        return json_response(_policy(context))

    return routes


def _policy(context: BrokerContext) -> dict[str, dict[str, object]]:
    results, match_cache = context.results.core.results, context.results.match_cache
    return {
        "results": {"policy": results.policy.name, "budget": results.budget},
        "pages": {"policy": match_cache.policy, "capacity": match_cache.capacity, "push": match_cache.push},
    }


def stats_of(context: BrokerContext) -> dict[str, object]:
    """Return current statistics; counts are since the start, latencies of the last minute."""
    service, records, pages = context.results, context.subscribers.records, context.pages
    results, counts, match_cache = service.core.results, service.core.counts, service.match_cache
    coordinator = context.subscribers.coordinator
    return {
        "broker": service.name,
        "now_ms": service.now_ms(),
        "connections": len(service.presence),
        "subscribers": len(records),
        "frontends": sum(len(record.subscriptions) for record in records.values()),
        "backends": len(service.core),
        "results": {
            "policy": results.policy.name,
            "budget": results.budget,
            "bytes": results.bytes,
            "objects": results.objects,
            "hits": counts.hits,
            "misses": counts.misses,
            "hit_bytes": counts.hit_bytes,
            "miss_bytes": counts.miss_bytes,
            "pulled_bytes": counts.pulled_bytes,
            "fetched_bytes": counts.fetched_bytes,
            "dropped": service.metrics.removed["dropped"],
            "consumed": service.metrics.removed["consumed"],
        },
        "pages": {
            "policy": match_cache.policy,
            "capacity": match_cache.capacity,
            "bytes": match_cache.bytes,
            "objects": len(match_cache),
            "hits": match_cache.counts.hits,
            "misses": match_cache.counts.misses,
            "pushed": match_cache.counts.pushed,
            "push_rejected": match_cache.counts.push_rejected,
        },
        "push_cache": {
            "bytes": pages.push_cache.bytes,
            "objects": len(pages.push_cache),
            "hits": pages.push_cache.counts.hits,
            "checks": pages.push_cache.counts.checks,
            "rejected": pages.push_cache.counts.rejected,
            "evicted": pages.push_cache.counts.evicted,
        },
        "served": {source: pages.metrics.pages[source] for source in SOURCES},
        "latency_ms": {
            "notification": service.metrics.notification_ms.quantiles(),
            "results": service.metrics.results_ms.quantiles(),
        },
        "notifications": service.metrics.notifications,
        "cluster": _up_or_down(service.cluster.is_up),
        "coordinator": None if coordinator is None else _up_or_down(coordinator.client.is_up),
    }


def _up_or_down(is_up: bool) -> str:
    return "up" if is_up else "down"
