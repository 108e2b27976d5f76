"""What a broker holds and does, in one object, for the dashboard."""

from __future__ import annotations

from newsstand.broker.edge import Edge
from newsstand.broker.members import Members
from newsstand.broker.page_metrics import SOURCES
from newsstand.broker.pages import Pages


def stats_of(edge: Edge, members: Members, pages: Pages) -> dict[str, object]:
    """The statistics of this moment; counts are since the start, latencies of the last minute."""
    results, counts, shelf = edge.core.results, edge.core.counts, edge.shelf
    return {
        "broker": edge.name,
        "now_ms": edge.now_ms(),
        "connections": edge.connections,
        "subscribers": len(members.records),
        "frontends": sum(len(record.subscriptions) for record in members.records.values()),
        "backends": len(edge.core),
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
            "dropped": edge.metrics.removed["dropped"],
            "consumed": edge.metrics.removed["consumed"],
        },
        "pages": {
            "policy": shelf.policy,
            "capacity": shelf.capacity,
            "bytes": shelf.bytes,
            "objects": len(shelf),
            "hits": shelf.counts.hits,
            "misses": shelf.counts.misses,
            "pushed": shelf.counts.pushed,
            "push_refused": shelf.counts.push_refused,
        },
        "push_cache": {
            "bytes": pages.copies.bytes,
            "objects": len(pages.copies),
            "hits": pages.copies.counts.hits,
            "checks": pages.copies.counts.checks,
            "refused": pages.copies.counts.refused,
            "left": pages.copies.counts.left,
        },
        "served": {source: pages.metrics.pages[source] for source in SOURCES},
        "latency_ms": {
            "notification": edge.metrics.notification_ms.quantiles(),
            "results": edge.metrics.results_ms.quantiles(),
        },
        "notifications": edge.metrics.notifications,
        "cluster": "up" if edge.upstream.is_up else "down",
        "coordinator": None if members.home is None else "up" if members.home.is_up else "down",
    }
