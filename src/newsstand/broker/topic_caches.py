"""How a broker caches messages that no storage keeps, as it is told to; and what Prometheus hears of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from newsstand.broker.overlay_told import Opportunistic
from newsstand.model import OpportunisticPolicy
from newsstand.overlay.opportunistic import CachingBroker

logger = logging.getLogger(__name__)
EVENTS = ("cached", "copied", "regenerated", "degraded", "requests")


def cache_as_told(node: CachingBroker, told: Opportunistic) -> None:
    """Cache by this policy in so many slots; not at all by a policy that a later version may know."""
    try:
        policy, slots = OpportunisticPolicy.parse(told.policy), max(0, told.slots)
    except ValueError as error:
        policy, slots = node.policy, 0
        if node.cache.slots:
            logger.warning("messages of topics without storages are not cached any more: %s", error)
    if (policy, slots) != (node.policy, node.cache.slots):
        node.cache_by(policy, slots)


class CacheNumbers(Collector):
    """What is in a broker's cache, and what has happened there."""

    def __init__(self, node: CachingBroker) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        name = "newsstand_broker_topic_cache"
        cache = self._node.cache
        yield GaugeMetricFamily(f"{name}_messages", "Messages of topics that are cached.", len(cache))
        yield GaugeMetricFamily(f"{name}_bytes", "About how many bytes they are.", cache.bytes)
        events = CounterMetricFamily(f"{name}_events", "What has happened to them.", labels=["event"])
        for event in EVENTS:
            events.add_metric([event], self._node.cached[event])
        yield events
