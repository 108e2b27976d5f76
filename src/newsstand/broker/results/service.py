"""Subscriptions, reads and acknowledgements of a broker's subscribers, around the pure `ResultBroker`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec

from newsstand.auth.tokens import ChannelScope, permits
from newsstand.broker.cluster_client.client import (
    ChannelDirectory,
    ClusterClient,
    ClusterUnavailable,
)
from newsstand.broker.event_log import EventLog
from newsstand.broker.metrics import Metrics
from newsstand.broker.pages.match_cache import MatchCache
from newsstand.broker.results.broker import CacheRead, PositionRange, ResultBroker
from newsstand.broker.results.deliveries import DeliveryHistory
from newsstand.broker.results.presence import Presence
from newsstand.broker.results.puller import Puller, PullerLimits
from newsstand.broker.results.subscription_sync import SubscriptionSync, SubscriptionSyncLimits
from newsstand.broker.sessions.rules import bound_values, follows_rules, require_sizes
from newsstand.broker.sessions.state import Change, frontend_id
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.broker.sessions.subscribers import (
    AuthenticatedSubscriber,
    SubscriberDirectory,
    SubscriberListener,
    SubscriberMoved,
)
from newsstand.caching import ResultCaches
from newsstand.errors import BadInput, NotFound, ResultsExpired
from newsstand.model import ChannelDefinition, Scalar, parse_values, subscription_id
from newsstand.wire.cluster import FetchedResult, StreamStatus, StreamSuspension
from newsstand.wire.notifications import Notification
from newsstand.wire.subscribers import (
    Ack,
    AddSubscription,
    RemoveSubscription,
    SubscriberRecord,
    SubscriptionRecord,
)

MOST_GAPS = 2
"""Ranges of one read that are fetched one by one: before the cached results, and after them."""


class SubscriptionInfo(msgspec.Struct, frozen=True):
    """A subscription as its subscriber sees it."""

    id: str
    channel: str
    values: dict[str, Scalar]
    stream: Annotated[str, msgspec.Meta(description="its name in notifications")]
    position: Annotated[int, msgspec.Meta(description="the acknowledged position")]
    head: Annotated[int, msgspec.Meta(description="the newest position")]
    suspended: Annotated[
        StreamSuspension | None, msgspec.Meta(description="set while the channel's query fails on the values")
    ]


class ResultPage(NamedTuple):
    """Results for a reader, as JSON, oldest first; `next` is the last position if more are pending."""

    results: list[bytes]
    head: int
    next: int | None


@dataclass(frozen=True)
class ResultLimits:
    """The limits of a broker's results, by component."""

    sync: SubscriptionSyncLimits = field(default_factory=SubscriptionSyncLimits)
    puller: PullerLimits = field(default_factory=PullerLimits)


@dataclass(eq=False, repr=False)
class ResultService(SubscriberListener):
    """Subscriptions and results of a broker's subscribers."""

    name: str
    results: ResultCaches[str, bytes]
    match_cache: MatchCache
    subscribers: SubscriberDirectory
    presence: Presence
    cluster: ClusterClient
    metrics: Metrics
    log: EventLog
    now_ms: Callable[[], int]
    register: Callable[[], Awaitable[bool]]
    store: SubscriberStore | None = None
    clock: Callable[[], float] = time.monotonic
    """Monotonic seconds."""
    limits: ResultLimits = ResultLimits()

    def __post_init__(self) -> None:
        self.core = ResultBroker(self.results)
        self._hub = self.presence.hub
        self._hub.lease = lambda: self.subscribers.lease
        self._hub.lease_of = lambda session: self.subscribers.lease_of(self.presence.owner(session))
        self.sync = SubscriptionSync(self.cluster, self.register, self._on_extent, self.clock, self.limits.sync)
        self.channels = ChannelDirectory(self.cluster.channels, self.store, self.clock, self._on_channels_changed)
        self.deliveries = DeliveryHistory(self.metrics.stages)
        self.puller = Puller(
            self.core,
            self.cluster,
            self.sync,
            self._hub,
            self.metrics,
            self.log,
            self.now_ms,
            self.limits.puller,
            self.deliveries,
        )
        self._streams: dict[str, str] = {}
        """The stream of each subscription."""
        self._synced: set[str] = set()
        """Streams whose extent at the cluster is known."""
        self.suspended: dict[str, StreamSuspension] = {}
        """Streams that the cluster has suspended."""
        self._opening: dict[str, int] = {}
        """The positions of streams that are being subscribed to."""
        self.subscribers.listeners += (self.presence, self)

    # Moves of subscribers.

    def on_adopted(self, record: SubscriberRecord) -> None:
        """Follow a subscriber's streams from its acknowledged positions."""
        for key, subscription in record.subscriptions.items():
            self._follow(record, key, subscription, subscription.acked)

    def on_synced(self, record: SubscriberRecord, changes: Sequence[Change]) -> None:
        """Apply the changes that a subscriber made at another broker."""
        for change in changes:
            if isinstance(change, AddSubscription | RemoveSubscription):
                self._unfollow(record, change.id)
            if isinstance(change, AddSubscription) and change.id in record.subscriptions:
                subscription = record.subscriptions[change.id]
                self._follow(record, change.id, subscription, subscription.acked)
            elif isinstance(change, Ack) and change.id in self._streams:
                self.core.acknowledge(record.name, self._streams[change.id], change.position, self.now_ms())

    def on_released(self, record: SubscriberRecord) -> None:
        for key in record.subscriptions:
            self._unfollow(record, key)

    # Subscriptions.

    async def subscribe(
        self,
        subscriber: AuthenticatedSubscriber,
        channel_name: str,
        given: dict[str, Scalar] | list[Scalar],
        since: str | int,
    ) -> tuple[SubscriptionInfo, bool]:
        """Create a subscription; return it, and whether it is new."""
        channel = await self.channels.find(channel_name)
        values = parse_values(channel, bound_values(channel, given, subscriber.name))
        require_sizes(self.subscribers.limits, channel, values)
        named = dict(zip((one.name for one in channel.parameters), values, strict=True))
        if not permits(subscriber.claims.allow, channel.name, named):
            raise NotFound(f"no channel '{channel_name}' with these values, for this token")
        key = frontend_id(subscriber.name, channel.name, list(values))
        subscription = subscriber.record.subscriptions.get(key)
        if subscription is not None and key in self._streams:
            return self._describe(key, subscription), False
        count = len(subscriber.record.subscriptions)  # before the cluster gets the stream
        self.subscribers.limits.require("subscriptions", count, "subscriptions of one subscriber")
        stream = subscription_id(channel.name, values, self.name)
        self.sync.add_ref(stream, channel.name, values)
        if stream not in self.core:
            self._opening.setdefault(stream, 0)
        try:
            status = await self._status(stream, since)
            position = _position(since, status)
            record, subscription = await self.subscribers.subscribe(
                subscriber.name, key, channel.name, list(values), position
            )
            if self.core.position(subscriber.name, stream) is None:
                head = max(status.head, self._opening.get(stream, 0))
                self._follow(record, key, subscription, head)
                self._synced.add(stream)
        finally:
            self.sync.release_ref(stream)
            if stream in self.core or not self.sync.frontends(stream):
                self._opening.pop(stream, None)
        self.log.event(self.now_ms(), "subscribe", subscriber.name, stream)
        return self._describe(key, subscription), True

    async def unsubscribe(self, subscriber: AuthenticatedSubscriber, key: str) -> None:
        """Drop a subscription; the last one to leave a stream drops it at the cluster."""
        await self.channels.ensure_loaded()
        self._require_subscription(subscriber, key)
        await self.subscribers.unsubscribe(subscriber.name, key)
        if key in self._streams:  # unless it was dropped twice at once
            self.log.event(self.now_ms(), "unsubscribe", subscriber.name, self._streams[key])
            self._unfollow(subscriber.record, key)

    def subscription(self, subscriber: AuthenticatedSubscriber, key: str) -> SubscriptionInfo:
        """Return one subscription; raise NotFound if there is none of that id, or the token does not permit it."""
        return self._describe(key, self._require_subscription(subscriber, key))

    def subscriptions(self, subscriber: AuthenticatedSubscriber) -> list[SubscriptionInfo]:
        return [
            self._describe(key, subscription)
            for key, subscription in sorted(subscriber.record.subscriptions.items())
            if key in self._streams and self._may_see(subscriber, subscription)
        ]

    def streams(self, subscriber: AuthenticatedSubscriber) -> Iterator[tuple[str, int | None]]:
        """Yield all streams that the token permits, with the head of those that have pending results."""
        for key, subscription in subscriber.record.subscriptions.items():
            if key in self._streams and self._may_see(subscriber, subscription):
                stream = self._streams[key]
                yield stream, self.core.head(stream) if self.core.pending(subscriber.name, stream) else None

    # Results.

    async def read(
        self, subscriber: AuthenticatedSubscriber, key: str, after: int | None, limit: int
    ) -> ResultPage:
        """Return pending results, from the cache and then from the cluster, oldest first."""
        await self.channels.ensure_loaded()
        self._require_subscription(subscriber, key)
        stream = self._streams[key]
        begun = time.monotonic()
        now = self.now_ms()
        self.core.results.advance(now)
        reading = self.core.read(subscriber.name, stream, limit=limit, now=now, after=after)
        found, missed_bytes = [hit.value for hit in reading.hits], 0
        if len(found) < len(reading.span):
            found, missed_bytes = await self._fill_gaps(stream, reading, begun)
        latency = time.monotonic() - begun
        self.metrics.count_read(len(reading.hits), max(0, len(found) - len(reading.hits)), latency)
        self.log.results_read(now, stream, len(reading.hits), reading.hit_bytes, missed_bytes, latency)
        last = reading.span.after + len(found)
        self.deliveries.read(stream, reading.span.after, last, self.now_ms())
        return ResultPage(found, reading.head, last if found and last < reading.head else None)

    async def _fill_gaps(self, stream: str, reading: CacheRead[bytes], begun: float) -> tuple[list[bytes], int]:
        """Add the missing results from the cluster; return results without a gap, and the bytes fetched.

        Raise ResultsExpired if retention has removed the first; cached results before a removed one are returned.
        """
        placed = [(hit.position, hit.value) for hit in reading.hits]
        cached = {hit.position for hit in reading.hits}
        missed_bytes = 0
        spans = reading.missing
        if len(spans) > MOST_GAPS:  # as one range: bytes are cheaper than round trips
            spans = (PositionRange(spans[0].after, spans[-1].until),)
        for span in spans:
            try:
                fetched = [
                    one for one in await self.puller.fetcher.get(stream, span) if one.position not in cached
                ]
            except ResultsExpired:
                if not _unbroken(reading.span.after, sorted(placed)):
                    raise
                break
            suffix = b',"origin":"cluster","latency_ms":%.1f}' % ((time.monotonic() - begun) * 1000)
            placed += [(one.position, one.json_prefix + suffix) for one in fetched]
            missed_bytes += sum(len(one.json_prefix) for one in fetched)
        self.core.count_misses(len(placed) - len(reading.hits), missed_bytes)
        return _unbroken(reading.span.after, sorted(placed)), missed_bytes

    async def acknowledge(self, subscriber: AuthenticatedSubscriber, positions: dict[str, int]) -> dict[str, int]:
        """Acknowledge results up to a position of each subscription; durable when it returns."""
        await self.channels.ensure_loaded()
        streams: dict[str, str] = {}
        for key, position in positions.items():
            self._require_subscription(subscriber, key)
            streams[key] = stream = self._streams[key]
            if not 0 <= position <= self.core.head(stream):
                raise BadInput(f"position {position}: the stream ends at {self.core.head(stream)}")
        moved = {
            key: position
            for key, position in positions.items()
            if position > (self.core.position(subscriber.name, streams[key]) or 0)
        }
        if moved:
            await self.subscribers.acknowledge(subscriber.name, moved)
        now = self.now_ms()
        acked = {}
        for key, stream in streams.items():
            before = self.core.position(subscriber.name, stream)
            if before is None:
                raise SubscriberMoved(subscriber.name)
            if key in moved:
                self.deliveries.acknowledged(stream, before, moved[key], now)
                self.core.acknowledge(subscriber.name, stream, moved[key], now)
            acked[key] = self.core.position(subscriber.name, stream) or 0
        return acked

    # Notifications of the cluster.

    def on_notification(self, notification: Notification[FetchedResult]) -> None:
        self.deliveries.notified(
            notification, lambda one: self.core.head(one) if one in self.core else None, self.now_ms()
        )
        for progress in notification.streams:
            stream = progress.subscription
            if stream in self._opening:
                self._opening[stream] = max(self._opening[stream], progress.position)
            self.puller.on_progress(stream, progress.position, progress.results, notification.at_ms)
        if notification.suspended is not msgspec.UNSET and notification.suspended is not None:
            suspended = {
                one.subscription: StreamSuspension(one.error, one.since_ms) for one in notification.suspended
            }
            channel = notification.channel
            known = [one for one in self.suspended if channel in (None, self.sync.channel_of(one))]
            for stream in dict.fromkeys([*known, *suspended]):
                self._suspend(stream, suspended.get(stream))
        for page in notification.pages:
            self.match_cache.offer(page.page, page.size, page.subscriptions)

    def _suspend(self, stream: str, suspended: StreamSuspension | None) -> None:
        """Record that a stream was suspended or resumed, and notify its followers."""
        if self.suspended.get(stream) == suspended:
            return
        if suspended is None:
            del self.suspended[stream]
        elif self.sync.channel_of(stream) is not None:
            self.suspended[stream] = suspended
        if stream in self.core:
            self._hub.suspended(stream, self.core.head(stream), suspended)

    def on_page_read(self, page: str, size: int, hit: bool, seconds: float) -> None:
        self.log.page_requested(self.now_ms(), page, size, hit, seconds)

    def tick(self) -> None:
        """Do the periodic work; to be called a few times a second."""
        now = self.now_ms()
        self.core.results.advance(now)
        self.presence.sweep(now)
        self.log.flush(now)
        self.deliveries.expire(now)

    def set_policy(self, policy: str | None, budget: int | None) -> None:
        """Change the policy or the budget of the result caches; no result is lost."""
        now = self.now_ms()
        if policy is not None:
            self.core.results.switch(policy, now)
        if budget is not None:
            self.core.results.resize(budget, now)

    async def close(self) -> None:
        self.puller.close()
        self.log.flush(self.now_ms())

    def _on_extent(self, stream: str, status: StreamStatus) -> None:
        self._suspend(stream, status.suspended)
        if stream in self.core:
            self._synced.add(stream)
        self.puller.on_extent(stream, status.head)

    async def _status(self, stream: str, since: str | int) -> StreamStatus:
        """Return the extent of a stream; a stream that is followed already needs a call only for `earliest`."""
        if stream in self.core and stream in self._synced and since != "earliest":
            return StreamStatus(self.core.head(stream), 0)
        return await self.sync.status(stream)

    def _follow(self, record: SubscriberRecord, key: str, subscription: SubscriptionRecord, head: int) -> None:
        self._streams[key] = stream = subscription_id(subscription.channel, subscription.values, self.name)
        self.sync.add_ref(stream, subscription.channel, tuple(subscription.values))
        self.core.follow(record.name, stream, position=subscription.acked, head=head, now=self.now_ms())
        for sid, session in record.sessions.items():
            if self.channels.is_loaded and self._permits(record.name, session.allow, subscription):
                self._hub.follow(sid, stream)
        self.puller.on_extent(stream, head)

    def _on_channels_changed(self, previous: Mapping[str, ChannelDefinition] | None) -> None:
        """Let the sessions that are online follow what the changed rules of channels permit, and nothing else.

        Only subscriptions of channels whose rules have changed are visited; all of them after the first load.
        Forget the metrics of dropped channels.
        """
        known = self.channels.known
        changed = None
        if previous is not None:
            for dropped in previous.keys() - known.keys():
                self.deliveries.forget_channel(dropped)
            changed = {
                name for name in previous.keys() | known.keys() if _rules(previous, name) != _rules(known, name)
            }
            if not changed:
                return
        for record in self.subscribers.records.values():
            online = {sid: one for sid, one in record.sessions.items() if self._hub.online(sid)}
            if not online:
                continue
            for key, subscription in record.subscriptions.items():
                if key not in self._streams or (changed is not None and subscription.channel not in changed):
                    continue
                for sid, session in online.items():
                    is_permitted = self._permits(record.name, session.allow, subscription)
                    (self._hub.follow if is_permitted else self._hub.unfollow)(sid, self._streams[key])

    def _unfollow(self, record: SubscriberRecord, key: str) -> None:
        stream = self._streams.pop(key, None)
        if stream is None:
            return
        for sid in record.sessions:
            self._hub.unfollow(sid, stream)
        if self.core.unfollow(record.name, stream, self.now_ms()):
            self._synced.discard(stream)
            self.suspended.pop(stream, None)
        self.sync.release_ref(stream)

    def _require_subscription(self, subscriber: AuthenticatedSubscriber, key: str) -> SubscriptionRecord:
        subscription = subscriber.record.subscriptions.get(key)
        if subscription is None or not self._may_see(subscriber, subscription):
            raise NotFound(f"you have no subscription '{key}'")
        if key not in self._streams:
            raise SubscriberMoved(subscriber.name)
        return subscription

    def _may_see(self, subscriber: AuthenticatedSubscriber, subscription: SubscriptionRecord) -> bool:
        if not self.channels.is_loaded:
            raise ClusterUnavailable("the channels of the data cluster are not known yet")
        return self._permits(subscriber.name, subscriber.claims.allow, subscription)

    def _permits(self, name: str, allow: Sequence[ChannelScope] | None, subscription: SubscriptionRecord) -> bool:
        """Return whether the operator's rules and a token's scopes permit a subscription."""
        channel = self.channels.known.get(subscription.channel)
        if allow is None and (channel is None or not channel.bind):
            return True  # neither rules nor scopes: no need for the values' names
        values = self.channels.values_by_name(subscription.channel, subscription.values)
        if channel is not None and not follows_rules(channel, values, name):
            return False
        return permits(allow, subscription.channel, values)

    def _describe(self, key: str, subscription: SubscriptionRecord) -> SubscriptionInfo:
        stream = self._streams[key]
        return SubscriptionInfo(
            key,
            subscription.channel,
            self.channels.values_by_name(subscription.channel, subscription.values),
            stream,
            subscription.acked,
            self.core.head(stream),
            self.suspended.get(stream),
        )


def _rules(channels: Mapping[str, ChannelDefinition], name: str) -> object:
    """Return what decides who may follow subscriptions of a channel; None if there is no such channel."""
    channel = channels.get(name)
    return None if channel is None else (channel.parameters, channel.bind)


def _unbroken(after: int, results: list[tuple[int, bytes]]) -> list[bytes]:
    """Return the results before the first missing one."""
    return [text for wanted, (position, text) in enumerate(results, after + 1) if position == wanted]


def _position(since: str | int, status: StreamStatus) -> int:
    if since == "now":
        return status.head
    if since == "earliest":
        return max(0, status.earliest - 1)
    if not isinstance(since, int) or not 0 <= since <= status.head:
        raise BadInput(f"since: 'now', 'earliest' or a position from 0 to {status.head}")
    return since
