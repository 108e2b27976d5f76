"""A broker's result service over a scripted cluster, with subscribers of the test."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from newsstand.auth.tokens import ChannelScope, Claims, SubscriberTokens
from newsstand.broker.event_log import EventLog
from newsstand.broker.metrics import Metrics
from newsstand.broker.pages.content import PageContent
from newsstand.broker.pages.match_cache import MatchCache
from newsstand.broker.results.presence import Presence
from newsstand.broker.results.service import ResultLimits, ResultService
from newsstand.broker.results.subscription_sync import SubscriptionSyncLimits
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.broker.sessions.subscribers import AuthenticatedSubscriber, SubscriberDirectory
from newsstand.broker.websocket.hub import Hub, NotifiedConnections
from newsstand.caching import ResultCaches
from newsstand.errors import NotFound
from newsstand.sqlite.group_commit import GroupCommit
from newsstand.wire.cluster import FetchedResult
from newsstand.wire.notifications import Notification, StreamProgress
from newsstand.wire.subscribers import SessionRecord, SubscriberRecord
from support.broker.scripted_cluster import ScriptedCluster


class RecordedConnection:
    """A connection of the hub whose frames are kept; `paused` as if the client did not read."""

    def __init__(self, inline: bool) -> None:
        self.inline = inline
        self.lease = 0
        self.paused = self.closing = self.busy = self.pinged = False
        self.heard = True
        self.quiet_since = 0
        self.frames: list[dict[str, Any]] = []
        self.queue: dict[str, bytes] = {}
        self.stuck_since = self.expires_ms = 0

    def set_limits(self, high_water: int) -> None:
        """Have no limits."""

    def write(self, frame: bytes) -> None:
        self.frames.append(json.loads(frame[frame.index(b'{"') :]))

    def deliver(self, key: str, frame: bytes) -> None:
        if self.paused:
            self.queue[key] = frame
        else:
            self.write(frame)

    def resume(self) -> None:
        self.paused = False
        for frame in self.queue.values():
            self.write(frame)
        self.queue.clear()

    def sent(self) -> list[tuple[int, list[object]]]:
        """Return each position with the payloads that came with it."""
        return [(one["position"], [each["payload"] for each in one.get("results", [])]) for one in self.frames]


class Scene:
    """An edge with its parts, and subscribers made by hand."""

    def __init__(self, folder: Path, policy: str = "lsc", budget: int = 100_000) -> None:
        self.cluster = ScriptedCluster()
        self.clock = 1000.0
        self.store = SubscriberStore(folder / "broker.sqlite", replicate=False)
        self.folder = folder / "access"
        clock = itertools.count(1_000_000)
        now = lambda: next(clock)  # noqa: E731
        journal = GroupCommit(self.store.write)
        self.members = SubscriberDirectory(self.store.load(), journal, SubscriberTokens("k" * 32), now)
        log = EventLog(self.folder, 1_000_000)
        self.presence = Presence(log, now)
        self.hub = self.presence.hub
        self.notifications: list[tuple[str, int]] = []
        self.hub.notify = self._notify  # type: ignore[method-assign]
        self.edge = ResultService(
            "edge",
            ResultCaches[str, bytes](policy, budget, start_ms=1_000_000),
            MatchCache("sg2", 1000, _no_page),
            self.members,
            self.presence,
            self.cluster,  # type: ignore[arg-type]
            Metrics(),
            log,
            now,
            self.cluster.register,
            store=self.store,
            clock=lambda: self.clock,
            limits=ResultLimits(sync=SubscriptionSyncLimits(linger_s=0)),
        )

    def _notify(
        self, stream: str, position: int, now: int, results: Callable[[], Sequence[bytes]]
    ) -> NotifiedConnections:
        self.notifications.append((stream, position))
        return Hub.notify(self.hub, stream, position, now, results)

    async def __aenter__(self) -> Scene:
        for record in self.members.records.values():
            self.edge.on_adopted(record)
        self.running = asyncio.create_task(self.edge.sync.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.edge.close()
        self.store.close()

    def connect(self, member: AuthenticatedSubscriber, inline: bool = True) -> RecordedConnection:
        """Connect a subscriber as its WebSocket does."""
        connection = RecordedConnection(inline)
        session = member.claims.session
        self.hub.join(connection, session, session, 2**50)  # type: ignore[arg-type]
        self.presence.on_connected(member)
        for stream, _ in self.edge.streams(member):
            self.hub.follow(session, stream)
        return connection

    async def member(self, name: str, allow: list[ChannelScope] | None = None) -> AuthenticatedSubscriber:
        record = self.members.records.get(name)
        if record is None:
            session = SessionRecord(1, 2**50, allow)
            await self.members.adopt([SubscriberRecord(name, "hash", {f"s-{name}": session})])
            record = self.members.records[name]
        allowed = None if allow is None else tuple(allow)
        return AuthenticatedSubscriber(record, Claims(name, f"s-{name}", 2**40, allowed))

    async def follows(self, member: AuthenticatedSubscriber, kind: str, since: str | int = "now") -> str:
        frontend, _ = await self.edge.subscribe(member, "of_kind", {"kind": kind}, since)
        return frontend.id

    async def follower(
        self, name: str, kind: str, since: str | int = "now"
    ) -> tuple[AuthenticatedSubscriber, str]:
        """Return a subscriber, and the key of its subscription."""
        member = await self.member(name)
        return member, await self.follows(member, kind, since)

    def tell(self, kind: str, position: int, *pushed: FetchedResult) -> None:
        self.edge.on_notification(
            Notification(streams=[StreamProgress(self.cluster.stream(kind), position, list(pushed))])
        )

    async def settled(self) -> None:
        await self.until(lambda: not self.edge.puller.pulling)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for a limited time, in which other tasks run at least once."""
        for _ in range(2000):
            await asyncio.sleep(0.002)
            if true():
                return
        raise AssertionError("timeout")


async def _no_page(page: str) -> PageContent:
    raise NotFound(page)


def play(folder: Path, story: Callable[[Scene], Awaitable[None]], **how: object) -> None:
    async def run() -> None:
        async with Scene(folder, **how) as scene:  # type: ignore[arg-type]
            await asyncio.wait_for(story(scene), 20)

    asyncio.run(run())
