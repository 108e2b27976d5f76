"""The connections of a broker, and notifications to those that follow a stream.

A notification has the new position, and for connections that want them the new results if they are small. Each of
the two frames is encoded once for all who follow the stream. A client that does not read costs a reference to the
newest frame without results of each stream it follows, and is closed when that lasts too long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from newsstand.broker.websocket.connection import (
    PING,
    Connection,
    inline_frame,
    notification_frame,
    suspension_frame,
)
from newsstand.wire.notifications import CloseCode


class _OnlineSubscriber:
    """The connections and the streams of a subscriber that is online."""

    __slots__ = ("connections", "streams")

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.streams: set[str] = set()


class NotifiedConnections(NamedTuple):
    """The number of connections that were notified, of those among them that got results, and these results."""

    all: int
    inline: int
    results: Sequence[bytes] = ()


@dataclass(eq=False, repr=False)
class Hub:
    """All connections of one broker process; used from the event loop's thread only. Times are Unix milliseconds.

    The streams of a subscriber are known while it is online.
    """

    high_water: int = 65_536
    stuck_after_ms: int = 30_000
    ping_every_ms: int = 20_000
    on_offline: Callable[[str], None] = lambda subscriber: None
    """Called with each subscriber whose last connection has closed."""
    lease: Callable[[], int | None] = lambda: 0
    """Returns the number of the broker's present lease; None while it has none."""
    lease_of: Callable[[str], int | None] = lambda subscriber: 0
    """Returns the lease in which a subscriber was last confirmed, if any. In another one it may have moved
    unnoticed: it gets no results."""

    def __post_init__(self) -> None:
        self._online: dict[str, _OnlineSubscriber] = {}
        self._followers: dict[str, set[Connection]] = {}
        self._connections: set[Connection] = set()
        self._leave = self.leave  # one bound method for all connections

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._connections)

    @property
    def streams(self) -> set[str]:
        """The streams that have followers."""
        return set(self._followers)

    @property
    def subscribers(self) -> int:
        return len(self._online)

    def online(self, subscriber: str) -> bool:
        return subscriber in self._online

    def connections_of(self, subscriber: str) -> int:
        online = self._online.get(subscriber)
        return 0 if online is None else len(online.connections)

    def join(self, connection: Connection, subscriber: str, session: str, expires_ms: int) -> None:
        """Add a connection until its token expires; it follows the streams of the subscriber."""
        if connection.closing:
            return
        connection.set_limits(self.high_water)
        connection.on_close = self._leave
        connection.subscriber, connection.session, connection.expires_ms = subscriber, session, expires_ms
        self._connections.add(connection)
        online = self._online.setdefault(subscriber, _OnlineSubscriber())
        online.connections.append(connection)
        for stream in online.streams:
            self._followers[stream].add(connection)

    def send_results(self, connection: Connection) -> None:
        """Send results with notifications to a connection that has joined."""
        connection.inline = True
        connection.lease = self.lease_of(connection.subscriber)

    def leave(self, connection: Connection) -> None:
        """Remove a connection; connections call this themselves when they close."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        online = self._online[connection.subscriber]
        online.connections.remove(connection)
        for stream in online.streams:
            self._drop(stream, (connection,))
        if not online.connections:
            del self._online[connection.subscriber]
            self.on_offline(connection.subscriber)

    def follow(self, subscriber: str, stream: str) -> None:
        """Let all connections of a subscriber that is online follow a stream."""
        online = self._online.get(subscriber)
        if online is not None:
            online.streams.add(stream)
            self._followers.setdefault(stream, set()).update(online.connections)

    def unfollow(self, subscriber: str, stream: str) -> None:
        online = self._online.get(subscriber)
        if online is not None and stream in online.streams:
            online.streams.remove(stream)
            self._drop(stream, online.connections)

    def notify(
        self, stream: str, position: int, now: int, results: Callable[[], Sequence[bytes]] = tuple
    ) -> NotifiedConnections:
        """Send the position of a stream to all followers, with results to those that want them and read.

        `results` returns the newest results as JSON, or none; it is called if there is such a connection.
        """
        followers = self._followers.get(stream)
        if not followers:
            return NotifiedConnections(0, 0)
        frame = notification_frame(stream, position)
        with_results: bytes | None = None
        found: Sequence[bytes] = ()
        lease, inline = self.lease(), 0
        for connection in followers:
            if connection.paused:
                connection.stuck_since = connection.stuck_since or now
                connection.deliver(stream, frame)
            elif (
                connection.inline
                and lease is not None
                and connection.lease == lease
                and now < connection.expires_ms
            ):
                if with_results is None:
                    found = results()
                    with_results = inline_frame(stream, position, found) if found else frame
                inline += with_results is not frame
                connection.write(with_results)
            else:
                connection.write(frame)
        return NotifiedConnections(len(followers), inline, found)

    def suspended(self, stream: str, position: int, suspended: object) -> None:
        """Notify all followers that a stream was suspended, or resumed if `suspended` is None."""
        frame = suspension_frame(stream, position, suspended)
        for connection in self._followers.get(stream, ()):
            connection.deliver(f"suspended {stream}", frame)

    def sweep(self, now: int) -> None:
        """Close connections that have expired or stopped reading; ping silent ones.

        To be called about once a second.
        """
        lease = self.lease()
        for connection in tuple(self._connections):
            if connection.inline and connection.lease != lease:
                connection.lease = self.lease_of(connection.subscriber)
            if connection.expires_ms <= now:
                connection.close(CloseCode.UNAUTHORIZED, "the token has expired")
            elif connection.paused:
                connection.stuck_since = connection.stuck_since or now
                if now - connection.stuck_since >= self.stuck_after_ms:
                    connection.close(CloseCode.TOO_SLOW, "the client stopped reading")
            elif connection.heard or connection.busy:
                connection.heard = connection.pinged = False
                connection.quiet_since = now
            elif not connection.pinged:
                if now - connection.quiet_since >= self.ping_every_ms:
                    connection.pinged = True
                    connection.quiet_since = now
                    connection.write(PING)
            elif now - connection.quiet_since >= self.stuck_after_ms:
                connection.close(CloseCode.TOO_SLOW, "the client does not answer pings")

    def close(self, code: int, reason: str, *, subscriber: str | None = None, session: str | None = None) -> int:
        """Close all connections, those of a subscriber or of a session; return their number."""
        if subscriber is None:
            among: Iterable[Connection] = self._connections
        else:
            online = self._online.get(subscriber)
            among = () if online is None else online.connections
        chosen = [connection for connection in among if session is None or connection.session == session]
        for connection in chosen:
            connection.close(code, reason)
        return len(chosen)

    def _drop(self, stream: str, connections: Iterable[Connection]) -> None:
        followers = self._followers[stream]
        followers.difference_update(connections)
        if not followers:
            del self._followers[stream]
