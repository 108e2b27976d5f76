"""The WebSocket `/notifications`, one for all subscriptions: notifications wake the iterations over results."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

import aiohttp
import msgspec

from newsstand.client.models import ClientError, Result, Subscription, Suspension
from newsstand.client.session import BrokerSocket, Session
from newsstand.concurrency.pacing import Backoff

logger = logging.getLogger("newsstand.client")


class Cursor:
    """The position of the client in one subscription that is being iterated over.

    `seen` was given to the caller, the caller is `done` with it, `acked` is durable at the broker. A broker that
    has just taken over may know less than the client, so nothing beyond its `head` is acknowledged. Results that
    came with notifications wait until they continue what was seen; all others are read over HTTP.
    """

    __slots__ = (
        *("acked", "again", "backoff", "done", "due", "head", "missed", "moved", "seen", "sent"),
        *("inline", "subscription", "wake"),
    )

    def __init__(self, subscription: Subscription, after: int, wake: asyncio.Event) -> None:
        self.subscription = subscription
        self.wake = wake
        self.seen = self.done = after
        self.acked = self.sent = min(after, subscription.position)
        """`sent` is the last position that was acknowledged over this connection, confirmed or not."""
        self.head = 0
        """The last position that the connected broker reported; 0 if none."""
        self.missed = 0
        self.due = True
        """Whether to read whatever the head is."""
        self.moved = False
        """Whether the broker changed since the last successful read."""
        self.backoff: Backoff | None = None
        self.again: asyncio.TimerHandle | None = None
        """The next read after a response without the results that its head promises."""
        self.inline: deque[Result] = deque()
        """Results of notifications that wait, in the order of their positions."""

    @property
    def pending(self) -> bool:
        return self.due or self.head > self.seen

    def advance(self, head: int) -> None:
        """Note that the stream has reached a position."""
        self.head = max(self.head, head)
        if self.head > self.seen:
            self.wake.set()

    def add_inline(self, results: Iterable[Result], most: int) -> None:
        """Let results wait that continue the waiting ones, up to `most` at a time; others are read over HTTP."""
        self._drop_seen()
        for result in results:
            last = self.inline[-1].position if self.inline else self.seen
            if result.position > last and len(self.inline) < most:
                if self.inline and result.position != last + 1:
                    return
                self.inline.append(result)

    @property
    def continues(self) -> bool:
        """Whether the next result waits."""
        self._drop_seen()
        return bool(self.inline) and self.inline[0].position == self.seen + 1

    def take_inline(self) -> list[Result]:
        """Take the waiting results that continue what was seen, without a gap."""
        taken: list[Result] = []
        self._drop_seen()
        while self.inline and self.inline[0].position == self.seen + len(taken) + 1:
            taken.append(self.inline.popleft())
        return taken

    def _drop_seen(self) -> None:
        while self.inline and self.inline[0].position <= self.seen:
            self.inline.popleft()

    def read_now(self) -> None:
        self.due = True
        self.wake.set()

    def read_after(self, wait_s: float) -> None:
        """Read after a delay, unless a notification comes first."""
        self.cancel_timer()
        self.again = asyncio.get_running_loop().call_later(wait_s, self.read_now)

    def cancel_timer(self) -> None:
        """Read at the next notification only."""
        if self.again is not None:
            self.again.cancel()
            self.again = None

    def on_connected(self, broker: str) -> None:
        """Forget the head if the client is connected to another broker now."""
        if broker != self.subscription.broker:
            self.head = 0
        self.sent = self.acked

    def update(self, subscription: Subscription) -> None:
        """Take over what a broker knows of the subscription."""
        if subscription.broker != self.subscription.broker:
            self.acked = self.sent = subscription.position  # acknowledge again what this broker does not know
            self.moved = True
        if self.subscription.suspended is None:
            _warn_of_suspension(subscription)
        self.subscription = subscription
        self.advance(subscription.head)

    def to_acknowledge(self) -> int | None:
        """Return the position to send now, if any."""
        position = min(self.done, self.head)
        return position if position > self.sent else None


class _NotificationFrame(msgspec.Struct):
    stream: str | None = None
    position: int = 0
    results: list[Result] = []
    ready: bool = False
    acked: dict[str, int] | None = None
    suspended: Suspension | msgspec.UnsetType | None = msgspec.UNSET


_decode = msgspec.json.Decoder(_NotificationFrame).decode


class Notifications(BrokerSocket):
    """The WebSocket for notifications and acknowledgements."""

    path = "notifications"
    renews = True

    def __init__(self, session: Session, list_subscriptions: Callable[[], Awaitable[list[Subscription]]]) -> None:
        """`list_subscriptions` asks the broker: streams have other names at another broker."""
        super().__init__(session)
        self.query = "?results=inline" if self._pace.inline_results else ""
        self._list_subscriptions = list_subscriptions
        self.cursors: dict[str, Cursor] = {}
        self._listing: asyncio.Task[None] | None = None
        self._streams: dict[str, Cursor] = {}
        self._early: dict[str, int] = {}
        """Positions of streams that are not known yet."""
        self._unsent = 0
        self._flush_timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None

    def follow(self, cursor: Cursor) -> None:
        self.cursors[cursor.subscription.id] = cursor
        _warn_of_suspension(cursor.subscription)
        if self._running is None or self._running.done():
            self.failure = None
            self._start()
        elif self.ready.is_set():
            self._map_streams()

    def unfollow(self, cursor: Cursor) -> None:
        for followed, key in ((self.cursors, cursor.subscription.id), (self._streams, cursor.subscription.stream)):
            if followed.get(key) is cursor:  # not the cursor of a newer iteration
                del followed[key]

    async def close(self) -> None:
        """Close the connection and wake all iterations."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        tasks = [task for task in (self._running, self._listing, self._sending) if task is not None]
        for task in tasks:
            task.cancel()
        self._on_end()
        await asyncio.gather(*tasks, return_exceptions=True)

    def acknowledge_soon(self) -> None:
        """Acknowledge a processed result soon, together with others."""
        self._unsent += 1
        if self._unsent >= self._pace.acks:
            self._send()
        elif self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(self._pace.ack_within_s, self._send)

    def _on_lost(self) -> None:
        self._streams.clear()
        self._early.clear()
        for cursor in self.cursors.values():
            cursor.inline.clear()
        if self._listing is not None:
            self._listing.cancel()
            self._listing = None

    def _on_end(self) -> None:
        for cursor in self.cursors.values():
            cursor.wake.set()

    async def _on_frame(self, socket: aiohttp.ClientWebSocketResponse, frame: str | bytes) -> None:
        message = _decode(frame)
        if message.stream is not None and message.suspended is not msgspec.UNSET:
            self._on_suspended(message.stream, message.suspended)
        elif message.stream is not None:
            self._on_position(message.stream, message.position, message.results)
        elif message.acked is not None:
            self._on_acknowledged(message.acked)
        elif message.ready:
            self._backoff.reset()
            self.ready.set()
            for cursor in self.cursors.values():
                cursor.on_connected(self._url)
            self._map_streams()

    def _on_position(self, stream: str, position: int, results: Sequence[Result]) -> None:
        cursor = self._streams.get(stream)
        if cursor is None:
            self._early[stream] = position
            return
        cursor.add_inline(results, self._pace.inline_results)
        cursor.advance(position)
        if cursor.to_acknowledge() is not None:
            self.acknowledge_soon()

    def _on_suspended(self, stream: str, suspended: Suspension | None) -> None:
        """Store a suspension. Suspensions of streams not known yet come with `list_subscriptions`."""
        cursor = self._streams.get(stream)
        if cursor is not None:
            cursor.update(msgspec.structs.replace(cursor.subscription, suspended=suspended))

    def _on_acknowledged(self, positions: dict[str, int]) -> None:
        for key, position in positions.items():
            cursor = self.cursors.get(key)
            if cursor is not None:
                cursor.acked = max(cursor.acked, position)

    def _map_streams(self) -> None:
        """Map streams of this broker to cursors; list the subscriptions if some are unknown."""
        for cursor in self.cursors.values():
            if cursor.subscription.broker == self._url:
                stream = cursor.subscription.stream
                self._streams[stream] = cursor
                cursor.advance(self._early.pop(stream, 0))
            elif self._listing is None:
                self._listing = asyncio.create_task(self._refresh())
        self.acknowledge_soon()

    async def _refresh(self) -> None:
        """List the subscriptions, once per connection. The next read recovers those that are missing."""
        try:
            known = {one.id: one for one in await self._list_subscriptions()}
        except ClientError as error:
            logger.warning("%s", error)
            known = {}
        for key, cursor in self.cursors.items():
            if key in known:
                cursor.update(known[key])
            if cursor.subscription.broker != self._url:
                cursor.moved = cursor.due = True
                cursor.wake.set()
        self._map_streams()

    def _send(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        self._unsent = 0
        if self._socket is None or not self.ready.is_set():
            return
        positions: dict[str, int] = {}
        for key, cursor in self.cursors.items():
            position = cursor.to_acknowledge()
            if position is not None:
                positions[key] = cursor.sent = position
        if positions:
            self._sending = asyncio.create_task(self._write(self._socket, positions))

    async def _write(self, socket: aiohttp.ClientWebSocketResponse, positions: dict[str, int]) -> None:
        with suppress(aiohttp.ClientError, OSError):  # they are sent again over the next connection
            await socket.send_frame(msgspec.json.encode({"ack": positions}), aiohttp.WSMsgType.TEXT)


def _warn_of_suspension(subscription: Subscription) -> None:
    if subscription.suspended is not None:
        logger.warning("subscription %s is suspended: %s", subscription.id, subscription.suspended.error)
