"""The live broker: the pure core, its caches and clock, between the data cluster and the subscribers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from newsstand.broker.access_log import AccessLog
from newsstand.broker.backends import Backends
from newsstand.broker.broker import Broker, Reading, Span
from newsstand.broker.channel_list import ChannelList
from newsstand.broker.members import Elsewhere, Member, Members
from newsstand.broker.metrics import Metrics
from newsstand.broker.permits import bound_values, follows_rules, permits, require_sizes
from newsstand.broker.pulls import Pulls
from newsstand.broker.records import (
    Ack,
    Allowed,
    Change,
    EndSession,
    Held,
    Record,
    Subscribe,
    Unsubscribe,
    frontend_id,
)
from newsstand.broker.shelf import Shelf
from newsstand.broker.socket_frames import DISABLED, MOVED
from newsstand.broker.sockets import Hub
from newsstand.broker.store import Store
from newsstand.broker.told import Suspension, Told
from newsstand.broker.upstream import Away, Gone, Standing, Upstream
from newsstand.caching import ResultCaches
from newsstand.errors import BadInput, NotFound
from newsstand.model import Scalar, subscription_id
from newsstand.values import parse_values

AROUND = 2
"""Spans of one read that are fetched one by one: what is older than all that is cached, and what is newer."""


@dataclass(frozen=True)
class Frontend:
    """A subscription as its subscriber sees it."""

    id: str
    channel: str
    values: dict[str, Scalar]
    stream: str
    position: int
    head: int
    suspended: Suspension | None


@dataclass(frozen=True)
class Delivery:
    """Results for a reader, as JSON, oldest first; `next` is the last position if more are pending."""

    results: list[bytes]
    head: int
    next: int | None


class Edge:
    """What a broker does for its subscribers, but for who they are (`Members`) and how to reach them (`Hub`)."""

    def __init__(
        self,
        name: str,
        results: ResultCaches[str, bytes],
        shelf: Shelf,
        members: Members,
        hub: Hub,
        upstream: Upstream,
        metrics: Metrics,
        log: AccessLog,
        now_ms: Callable[[], int],
        register: Callable[[], Awaitable[bool]],
        linger_s: float = 10.0,
        store: Store | None = None,
    ) -> None:
        self.name = name
        self.core = Broker(results)
        self.shelf = shelf
        self.members = members
        self.hub = hub
        self.upstream = upstream
        self.metrics = metrics
        self.backends = Backends(upstream, register, self._stood, linger_s=linger_s)
        self.topic_hub = Hub(stuck_after_ms=hub.stuck_after_ms)
        """The connections of sessions that follow topics."""
        self._log = log
        self.now_ms = now_ms
        self.channels = ChannelList(upstream.channels, store)
        self._pulls = Pulls(self.core, upstream, self.backends, hub, metrics, log, now_ms)
        self._streams: dict[str, str] = {}
        """The stream of each subscription."""
        self._known: set[str] = set()
        """Streams of which the cluster has told where they stand."""
        self._suspended: dict[str, Suspension] = {}
        """Streams that the cluster leaves out."""
        self._early: dict[str, int] = {}
        """How far streams have come that are just being opened."""
        self._online: dict[str, set[str]] = {}
        """The sessions of each subscriber that have connections; and the other way round:"""
        self._whose: dict[str, str] = {}
        hub.on_gone = self._disconnected
        shelf.on_push = lambda *offered: log.offered(now_ms(), *offered)

    # Subscribers who come and go.

    def came(self, record: Record) -> None:
        """Take up a subscriber's subscriptions where they stand."""
        now = self.now_ms()
        for key, held in record.subscriptions.items():
            self._follow(record, key, held, head=held.acked, now=now)

    def caught_up(self, record: Record, changes: Sequence[Change]) -> None:
        """Take up what a subscriber did at another broker."""
        now = self.now_ms()
        for change in changes:
            if isinstance(change, Subscribe):
                self._unfollow(record, change.id)  # an earlier subscription of the same id, if there is one
                if (held := record.subscriptions.get(change.id)) is not None:
                    self._follow(record, change.id, held, head=held.acked, now=now)
            elif isinstance(change, EndSession):
                self.ended(record.name, change.sid)
            elif isinstance(change, Unsubscribe) and change.id in self._streams:
                self._unfollow(record, change.id)
            elif isinstance(change, Ack) and change.id in self._streams:
                self.core.acknowledge(record.name, self._streams[change.id], change.position, now)

    def fenced(self, record: Record) -> None:
        """Close the connections of a subscriber that has another home; its streams are followed for now."""
        for sid in record.sessions:
            self._close(MOVED, "moved to another broker; ask the coordinator", sid)

    def disabled(self, record: Record) -> None:
        """Close the connections of a subscriber whose account is disabled; its streams are followed."""
        for sid in record.sessions:
            self._close(DISABLED, "the account is disabled", sid)

    def went(self, record: Record) -> None:
        """Let go of a subscriber that is at home elsewhere."""
        self.fenced(record)
        for key in record.subscriptions:
            self._unfollow(record, key)

    def ended(self, name: str, sid: str) -> None:
        """Close the connections of a session that has ended."""
        self._close(4001, "the session has ended", sid)

    def _close(self, code: int, reason: str, sid: str) -> None:
        for hub in (self.hub, self.topic_hub):
            hub.close(code, reason, subscriber=sid)

    def sockets(self, member: Member) -> int:
        """How many WebSockets a subscriber has here, over all its sessions."""
        hubs = (self.hub, self.topic_hub)
        return sum(hub.connections_of(sid) for hub in hubs for sid in member.record.sessions)

    @property
    def connections(self) -> int:
        """How many WebSockets of subscribers there are."""
        return len(self.hub) + len(self.topic_hub)

    def connected(self, member: Member) -> None:
        """A session of a member's has a connection."""
        sessions = self._online.setdefault(member.name, set())
        if not sessions:
            self._log.online(self.now_ms(), member.name)
        sessions.add(member.claims.session)
        self._whose[member.claims.session] = member.name

    def _disconnected(self, sid: str) -> None:
        name = self._whose.pop(sid)
        self._online[name].remove(sid)
        if not self._online[name]:
            del self._online[name]
            self._log.offline(self.now_ms(), name)

    # Subscriptions.

    async def subscribe(
        self, member: Member, channel_name: str, given: dict[str, Scalar] | list[Scalar], since: str | int
    ) -> tuple[Frontend, bool]:
        """Make a subscription, and whether it is new."""
        channel = await self.channels.find(channel_name)
        values = parse_values(channel, bound_values(channel, given, member.name))
        require_sizes(self.members.limits, channel, values)
        named = dict(zip((one.name for one in channel.parameters), values, strict=True))
        if not permits(member.claims.allow, channel.name, named):
            raise NotFound(f"no channel '{channel_name}' with these values, for this token")
        key = frontend_id(member.name, channel.name, list(values))
        held = member.record.subscriptions.get(key)
        if held is not None and key in self._streams:
            return self._frontend(key, held), False
        held_now = len(member.record.subscriptions)  # before the cluster is told of the stream
        self.members.limits.require("subscriptions", held_now, "subscriptions of one subscriber")
        stream = subscription_id(channel.name, values, self.name)
        self.backends.more(stream, channel.name, values)
        if stream not in self.core:
            self._early.setdefault(stream, 0)
        try:
            standing = await self._standing(stream, since)
            position = _position(since, standing)
            record, held = await self.members.subscribe(member.name, key, channel.name, list(values), position)
            if self.core.position(member.name, stream) is None:
                head = max(standing.head, self._early.get(stream, 0))
                self._follow(record, key, held, head=head, now=self.now_ms())
                self._known.add(stream)
        finally:
            self.backends.fewer(stream)
            if stream in self.core or not self.backends.frontends(stream):
                self._early.pop(stream, None)
        self._log.subscribed(self.now_ms(), member.name, stream)
        return self._frontend(key, held), True

    async def unsubscribe(self, member: Member, key: str) -> None:
        """Drop a subscription; the last one to leave a stream drops it at the cluster."""
        await self.channels.told()
        self._held(member, key)
        await self.members.unsubscribe(member.name, key)
        if key in self._streams:  # unless it was dropped twice at once
            self._log.unsubscribed(self.now_ms(), member.name, self._streams[key])
            self._unfollow(member.record, key)

    def subscription(self, member: Member, key: str) -> Frontend:
        """One subscription of a subscriber's; NotFound if it has none of that id, or its token may not see it."""
        return self._frontend(key, self._held(member, key))

    def subscriptions(self, member: Member) -> list[Frontend]:
        """All that the member's token may see."""
        return [
            self._frontend(key, held)
            for key, held in sorted(member.record.subscriptions.items())
            if key in self._streams and self._permitted(member, held)
        ]

    def streams(self, member: Member) -> Iterator[tuple[str, int | None]]:
        """All streams that the member's token may see, with the head of those that have pending results."""
        for key, held in member.record.subscriptions.items():
            if key in self._streams and self._permitted(member, held):
                stream = self._streams[key]
                yield stream, self.core.head(stream) if self.core.pending(member.name, stream) else None

    # Results.

    async def read(self, member: Member, key: str, after: int | None, limit: int) -> Delivery:
        """What is pending, from the cache and then from the cluster, oldest first."""
        await self.channels.told()
        self._held(member, key)
        stream = self._streams[key]
        begun = time.monotonic()
        now = self.now_ms()
        self.core.results.advance(now)
        reading = self.core.read(member.name, stream, limit=limit, now=now, after=after)
        found, missed_bytes = [hit.value for hit in reading.hits], 0
        if len(found) < len(reading.span):
            found, missed_bytes = await self._with_missing(stream, reading, begun)
        latency = time.monotonic() - begun
        self.metrics.read(len(reading.hits), max(0, len(found) - len(reading.hits)), latency)
        self._log.read(now, stream, len(reading.hits), reading.hit_bytes, missed_bytes, latency)
        last = reading.span.after + len(found)
        return Delivery(found, reading.head, last if found and last < reading.head else None)

    async def _with_missing(self, stream: str, reading: Reading[bytes], begun: float) -> tuple[list[bytes], int]:
        """What was read and what the cluster has of the rest, up to where one is missing; and the bytes fetched.

        Gone if retention has removed the first; what is cached before that which it removed is read all the same.
        """
        placed = [(hit.position, hit.value) for hit in reading.hits]
        held = {hit.position for hit in reading.hits}
        missed_bytes = 0
        spans = reading.missing
        if len(spans) > AROUND:  # with what lies between them: bytes are cheaper than round trips
            spans = (Span(spans[0].after, spans[-1].until),)
        for span in spans:
            try:
                fetched = [one for one in await self._pulls.fetches.get(stream, span) if one.position not in held]
            except Gone:
                if not _unbroken(reading.span.after, sorted(placed)):
                    raise
                break
            suffix = b',"origin":"cluster","latency_ms":%.1f}' % ((time.monotonic() - begun) * 1000)
            placed += [(one.position, one.opening + suffix) for one in fetched]
            missed_bytes += sum(len(one.opening) for one in fetched)
        self.core.missed(len(placed) - len(reading.hits), missed_bytes)
        return _unbroken(reading.span.after, sorted(placed)), missed_bytes

    async def acknowledge(self, member: Member, positions: dict[str, int]) -> dict[str, int]:
        """Results up to a position are acknowledged, for each subscription; durable when it returns."""
        await self.channels.told()
        streams: dict[str, str] = {}
        for key, position in positions.items():
            self._held(member, key)
            streams[key] = stream = self._streams[key]
            if not 0 <= position <= self.core.head(stream):
                raise BadInput(f"position {position}: the stream has come to {self.core.head(stream)}")
        moved = {
            key: position
            for key, position in positions.items()
            if position > (self.core.position(member.name, streams[key]) or 0)
        }
        if moved:
            await self.members.acknowledge(member.name, moved)
        now = self.now_ms()
        acked = {}
        for key, stream in streams.items():
            if self.core.position(member.name, stream) is None:
                raise Elsewhere(member.name)
            if key in moved:
                self.core.acknowledge(member.name, stream, moved[key], now)
            acked[key] = self.core.position(member.name, stream) or 0
        return acked

    # What the cluster says.

    def told(self, told: Told) -> None:
        """Act on a notification of the cluster's."""
        for moved in told.streams:
            stream = moved.subscription
            if stream in self._early:
                self._early[stream] = max(self._early[stream], moved.position)
            self._pulls.told(stream, moved.position, moved.results, told.at_ms)
        if told.suspended is not None:
            over = [one for one in self._suspended if told.channel in (None, self.backends.channel(one))]
            for stream in dict.fromkeys([*over, *told.suspended]):
                self._suspend(stream, told.suspended.get(stream))
        for page in told.pages:
            self.shelf.offered(page.page, page.size, page.subscriptions)

    def _suspend(self, stream: str, suspended: Suspension | None) -> None:
        """Note that a stream is suspended, or is not any more, and tell those who follow it."""
        if self._suspended.get(stream) == suspended:
            return
        if suspended is None:
            del self._suspended[stream]
        elif self.backends.channel(stream) is not None:
            self._suspended[stream] = suspended
        if stream in self.core:
            self.hub.suspended(stream, self.core.head(stream), suspended)

    def page_read(self, page: str, size: int, hit: bool, seconds: float) -> None:
        """A subscriber has read a page."""
        self._log.requested(self.now_ms(), page, size, hit, seconds)

    def tick(self) -> None:
        """What has to happen as time goes by; to be called a few times a second."""
        now = self.now_ms()
        self.core.results.advance(now)
        self.hub.sweep(now)
        self.topic_hub.sweep(now)
        self._log.flush(now)

    def switch(self, policy: str | None, budget: int | None) -> None:
        """Change the policy or the budget of the result caches; nothing is lost."""
        now = self.now_ms()
        if policy is not None:
            self.core.results.switch(policy, now)
        if budget is not None:
            self.core.results.resize(budget, now)

    async def close(self) -> None:
        """Stop pulling."""
        self._pulls.close()
        self._log.flush(self.now_ms())

    def _stood(self, stream: str, standing: Standing) -> None:
        self._suspend(stream, standing.suspended)
        if stream in self.core:
            self._known.add(stream)
        self._pulls.stands(stream, standing.head)

    async def _standing(self, stream: str, since: str | int) -> Standing:
        """Where a stream stands; for one that is followed here already, only `earliest` has to be asked for."""
        if stream in self.core and stream in self._known and since != "earliest":
            return Standing(self.core.head(stream), 0)
        return await self.backends.standing(stream)

    def _follow(self, record: Record, key: str, held: Held, *, head: int, now: int) -> None:
        self._streams[key] = stream = subscription_id(held.channel, held.values, self.name)
        self.backends.more(stream, held.channel, tuple(held.values))
        self.core.follow(record.name, stream, position=held.acked, head=head, now=now)
        for sid, session in record.sessions.items():
            if self.channels.is_told and self._permits(record.name, session.allow, held):
                self.hub.follow(sid, stream)
        self._pulls.stands(stream, head)

    def _unfollow(self, record: Record, key: str) -> None:
        stream = self._streams.pop(key, None)
        if stream is None:
            return
        for sid in record.sessions:
            self.hub.unfollow(sid, stream)
        if self.core.unfollow(record.name, stream, self.now_ms()):
            self._known.discard(stream)
            self._suspended.pop(stream, None)
        self.backends.fewer(stream)

    def _held(self, member: Member, key: str) -> Held:
        held = member.record.subscriptions.get(key)
        if held is None or not self._permitted(member, held):
            raise NotFound(f"you have no subscription '{key}'")
        if key not in self._streams:
            raise Elsewhere(member.name)
        return held

    def _permitted(self, member: Member, held: Held) -> bool:
        if not self.channels.is_told:
            raise Away("the data cluster has not told its channels yet")
        return self._permits(member.name, member.claims.allow, held)

    def _permits(self, name: str, allow: Sequence[Allowed] | None, held: Held) -> bool:
        """Whether the rules of the operator and the limits of a token permit a subscription."""
        values = self.channels.named(held.channel, held.values)
        channel = self.channels.known.get(held.channel)
        if channel is not None and not follows_rules(channel, values, name):
            return False
        return permits(allow, held.channel, values)

    def _frontend(self, key: str, held: Held) -> Frontend:
        stream = self._streams[key]
        return Frontend(
            key,
            held.channel,
            self.channels.named(held.channel, held.values),
            stream,
            held.acked,
            self.core.head(stream),
            self._suspended.get(stream),
        )


def _unbroken(after: int, results: list[tuple[int, bytes]]) -> list[bytes]:
    """Results one after the other, up to where one is missing: what lies beyond is read when that is known."""
    return [text for wanted, (position, text) in enumerate(results, after + 1) if position == wanted]


def _position(since: str | int, standing: Standing) -> int:
    if since == "now":
        return standing.head
    if since == "earliest":
        return max(0, standing.earliest - 1)
    if not isinstance(since, int) or not 0 <= since <= standing.head:
        raise BadInput(f"since: 'now', 'earliest' or a position from 0 to {standing.head}")
    return since
