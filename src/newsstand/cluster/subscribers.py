"""Brokers and their subscriptions, and the results that they read."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from newsstand.cluster.cluster_parts import ClusterParts
from newsstand.cluster.facade import Facts, Wanted
from newsstand.cluster.reading import Asked, Slice, read_all
from newsstand.errors import NotFound
from newsstand.model import Broker, Channel, Result, Subscription, Values
from newsstand.values import parse_values


class Subscribers(ClusterParts):
    """Who gets what comes out."""

    def register_broker(self, name: str, callback: str, signing: str | None = None) -> Broker:
        """Add a broker or change its callback; `signing` is the key of its webhooks, if the broker knows it.

        Otherwise a secret is made for them, which is told when it is made, and never again.
        """
        with self._changing:
            known = self._results.broker(name)
            secret = signing or (known.secret if known else secrets.token_urlsafe(32))
            self._results.register(Broker(name, callback, secret))
        self.notifier.returned(name)
        return Broker(name, callback, "" if known or signing else secret)

    def dismiss_broker(self, name: str) -> None:
        """Drop a broker with its subscriptions."""
        with self._changing:
            self._require_broker(name)
            self._dropped(self._results.dismiss(name))
            self.metrics.forget_broker(name)
        self.origin.gone(name)
        self.notifier.wake()

    def brokers(self) -> list[Broker]:
        """All brokers by name."""
        return self._results.brokers()

    def broker_status(self, name: str) -> Facts:
        """What a broker is still to be told."""
        self._require_broker(name)
        return dict(self.notifier.status_of(name))

    def subscribe(self, broker: str, wanted: Sequence[Wanted]) -> list[Subscription]:
        """Add or update subscriptions, all or none; they take effect at the next executions of their channels."""
        self._require_broker(broker)
        channels, asked = self._asked(wanted)
        with self._changing:
            now = self.catalog.channels()
            if any(name not in now or now[name].parameters != one.parameters for name, one in channels.items()):
                channels, asked = self._asked(wanted)
            counts: dict[str, dict[Values, int]] = {name: {} for name in channels}
            for (name, values), (_, _, frontends) in zip(asked, wanted, strict=True):
                counts[name][values] = frontends
            made: dict[str, dict[Values, Subscription]] = {name: {} for name in channels}
            for one in self._results.subscribe_all(broker, counts):
                made[one.channel][one.values] = one
            for name, subscribed in made.items():
                self._tables.subscribed(channels[name], subscribed.values())
        return [made[name][values] for name, values in asked]

    def _asked(self, wanted: Sequence[Wanted]) -> tuple[dict[str, Channel], list[tuple[str, Values]]]:
        """The channels that are wanted, as they are now, and the values that their parameters are given."""
        known = self.catalog.channels()
        channels = {name: known.get(name) or self.catalog.channel(name) for name, _, _ in wanted}
        return channels, [(name, parse_values(channels[name], given)) for name, given, _ in wanted]

    def unsubscribe(self, broker: str, ids: Sequence[str]) -> int:
        """Drop a broker's subscriptions; return how many there were."""
        self._require_broker(broker)
        with self._changing:
            dropped = self._results.unsubscribe(broker, ids)
            self._dropped(dropped)
        return len(dropped)

    def subscription(self, subscription: str) -> Subscription:
        """One subscription; raise NotFound."""
        found = self._results.subscription(subscription)
        if found is None:
            raise NotFound(f"no subscription '{subscription}'")
        return found

    def subscriptions(self, broker: str, after: str, limit: int) -> list[Subscription]:
        """A broker's subscriptions in the order of their ids."""
        self._require_broker(broker)
        return list(self._results.subscriptions(broker, after=after, limit=limit))

    def read_all(self, broker: str, asked: Sequence[Asked]) -> list[Slice]:
        """The next results of many of a broker's subscriptions; those it does not have are left out."""
        self._require_broker(broker)
        return read_all(self._results, broker, asked)

    def results(self, subscription: str, after: int, until: int | None, limit: int) -> list[Result]:
        """Results with after < position <= until, oldest first, at most `limit`; raise Gone."""
        return self._results.read(self.subscription(subscription).stream, after, until, limit)

    def extent(self, subscription: str) -> tuple[int, int]:
        """The positions of the earliest result that is left and of the newest; (1, 0) if there is none yet."""
        return self._results.head(self.subscription(subscription).stream)

    def _dropped(self, subscriptions: Sequence[Subscription]) -> None:
        channels = self.catalog.channels()
        streams: dict[str, list[int]] = {}
        for one in subscriptions:
            streams.setdefault(one.channel, []).append(one.stream)
        for name, touched in streams.items():
            if name in channels:
                self._tables.unsubscribed(channels[name], touched)

    def _require_broker(self, name: str) -> None:
        if self._results.broker(name) is None:
            raise NotFound(f"no broker '{name}'")
