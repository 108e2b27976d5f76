"""Brokers, their subscriptions, and the results that they read."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from newsstand.cluster.catalog import Catalog
from newsstand.cluster.matching.tables import Tables
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.notifier import Notifier
from newsstand.cluster.pages.origin import Origin
from newsstand.cluster.results.stores import ResultStores
from newsstand.errors import NotFound
from newsstand.model import (
    BackendSubscription,
    Broker,
    ChannelDefinition,
    GivenValues,
    JsonObject,
    Values,
    parse_values,
)
from newsstand.wire.cluster import StreamPage, StreamRange, StreamResult

SubscriptionRequest = tuple[str, GivenValues, int]
"""A requested subscription: channel, values, number of subscriptions of frontends behind it."""


@dataclass(frozen=True)
class Subscriptions:
    """The service for brokers and subscriptions. Methods block and may be called from several threads."""

    catalog: Catalog
    stores: ResultStores
    tables: Tables
    notifier: Notifier
    origin: Origin
    metrics: Metrics
    changes: threading.RLock
    """A lock that is held while definitions or subscriptions change."""

    def register_broker(self, name: str, callback: str, signing_key: str | None = None) -> Broker:
        """Add a broker or change its callback.

        Without a `signing_key`, which the broker knows, a secret for its webhook is generated. The returned broker
        contains this secret only when it is new.
        """
        with self.changes:
            known = self.stores.outbox.broker(name)
            secret = signing_key or (known.secret if known else secrets.token_urlsafe(32))
            self.stores.outbox.put_broker(Broker(name, callback, secret))
        self.notifier.broker_registered(name)
        return Broker(name, callback, "" if known or signing_key else secret)

    def remove_broker(self, name: str) -> None:
        """Drop a broker with its subscriptions."""
        with self.changes:
            self._require_broker(name)
            self._refresh_tables(self.stores.outbox.remove_broker(name))
            self.metrics.forget_broker(name)
        self.origin.remove_cache(name)
        self.notifier.wake()

    def brokers(self) -> list[Broker]:
        """Return all brokers by name."""
        return self.stores.outbox.brokers()

    def broker_status(self, name: str) -> JsonObject:
        """Return a broker's pending deliveries, and whether it is away."""
        self._require_broker(name)
        return dict(self.notifier.status(name))

    def subscribe(self, broker: str, requests: Sequence[SubscriptionRequest]) -> list[BackendSubscription]:
        """Add or update subscriptions, all or none; return them in the order of the requests.

        They take effect at the next executions of their channels.
        """
        self._require_broker(broker)
        channels, parsed = self._parsed(requests)
        with self.changes:
            now = self.catalog.channels()
            if any(name not in now or now[name].parameters != one.parameters for name, one in channels.items()):
                channels, parsed = self._parsed(requests)
            counts: dict[str, dict[Values, int]] = {name: {} for name in channels}
            for (name, values), (_, _, frontends) in zip(parsed, requests, strict=True):
                counts[name][values] = frontends
            made: dict[str, dict[Values, BackendSubscription]] = {name: {} for name in channels}
            for one in self.stores.subscriptions.subscribe(broker, counts):
                made[one.channel][one.values] = one
            for name, subscribed in made.items():
                self.tables.add(channels[name], subscribed.values())
        return [made[name][values] for name, values in parsed]

    def unsubscribe(self, broker: str, ids: Sequence[str]) -> int:
        """Drop a broker's subscriptions; return how many existed."""
        self._require_broker(broker)
        with self.changes:
            dropped = self.stores.subscriptions.unsubscribe(broker, ids)
            self._refresh_tables(dropped)
        return len(dropped)

    def get(self, subscription: str) -> BackendSubscription:
        """Return one subscription; raise NotFound."""
        found = self.stores.subscriptions.find(subscription)
        if found is None:
            raise NotFound(f"no subscription '{subscription}'")
        return found

    def of_broker(self, broker: str, after: str, limit: int) -> list[BackendSubscription]:
        """Return a broker's subscriptions in the order of their ids, starting after the id `after`."""
        self._require_broker(broker)
        return list(self.stores.subscriptions.scan(broker, after=after, limit=limit))

    def read(self, subscription: str, after: int, until: int | None, limit: int) -> list[StreamResult]:
        """Return results with after < position <= until, oldest first, at most `limit`; raise ResultsExpired."""
        return self.stores.results.read(self.get(subscription).stream, after, until, limit)

    def read_many(self, broker: str, ranges: Sequence[StreamRange]) -> list[StreamPage[StreamResult]]:
        """Return the next results of many of a broker's subscriptions; unknown ones are left out."""
        self._require_broker(broker)
        return self.stores.read_all(broker, ranges)

    def extent(self, subscription: str) -> tuple[int, int]:
        """Return the positions of the earliest result that is left and of the newest; (1, 0) if there is none."""
        return self.stores.results.extent(self.get(subscription).stream)

    def _parsed(
        self, requests: Sequence[SubscriptionRequest]
    ) -> tuple[dict[str, ChannelDefinition], list[tuple[str, Values]]]:
        """Return the requested channels as they are now, and the values of each request by its channel."""
        known = self.catalog.channels()
        channels = {name: known.get(name) or self.catalog.channel(name) for name, _, _ in requests}
        return channels, [(name, parse_values(channels[name], given)) for name, given, _ in requests]

    def _refresh_tables(self, dropped: Iterable[BackendSubscription]) -> None:
        channels = self.catalog.channels()
        streams: dict[str, list[int]] = {}
        for one in dropped:
            streams.setdefault(one.channel, []).append(one.stream)
        for name, touched in streams.items():
            if name in channels:
                self.tables.refresh(channels[name], touched)

    def _require_broker(self, name: str) -> None:
        if self.stores.outbox.broker(name) is None:
            raise NotFound(f"no broker '{name}'")
