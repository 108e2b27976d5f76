"""Who is connected to a broker, and how they are told that a stream has grown.

A notification is a signal with the new position, encoded once for all who follow the stream. A client that does
not read costs a reference to the newest frame of each stream it follows, and is closed when that lasts too long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from newsstand.broker.socket_connection import Connection
from newsstand.broker.socket_frames import NO_TOKEN, PING, TOO_SLOW, signal_frame, suspension_frame

SERVER_SETTINGS = {"ws": Connection, "ws_ping_interval": None, "ws_per_message_deflate": False}
"""Arguments of `uvicorn.Config` for a server whose WebSockets can join a hub."""


class _Presence:
    """A subscriber who is online."""

    __slots__ = ("connections", "streams")

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.streams: set[str] = set()


class Hub:
    """All connections of one broker process; used from the event loop's thread only. Times are Unix milliseconds.

    What a subscriber follows is known while it is online and forgotten with its last connection.
    """

    def __init__(
        self, *, high_water: int = 65_536, stuck_after_ms: int = 30_000, ping_every_ms: int = 20_000
    ) -> None:
        self._high_water = high_water
        self.stuck_after_ms = stuck_after_ms
        self._ping_every_ms = ping_every_ms
        self._present: dict[str, _Presence] = {}
        self._followers: dict[str, set[Connection]] = {}
        self._connections: set[Connection] = set()
        self.on_gone: Callable[[str], None] | None = None
        """Told of each subscriber whose last connection is gone."""
        self._leave = self.leave  # one bound method for all connections

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def subscribers(self) -> int:
        """How many subscribers are online."""
        return len(self._present)

    def online(self, subscriber: str) -> bool:
        """Has the subscriber any connection here?"""
        return subscriber in self._present

    def connections_of(self, subscriber: str) -> int:
        """How many connections the subscriber has here."""
        presence = self._present.get(subscriber)
        return 0 if presence is None else len(presence.connections)

    def join(self, connection: Connection, subscriber: str, session: str, expires_ms: int) -> None:
        """A subscriber's connection is let in until its token expires; it follows what the subscriber follows."""
        if connection.closing:
            return
        connection.limit(self._high_water)
        connection.left = self._leave
        connection.subscriber, connection.session, connection.expires_ms = subscriber, session, expires_ms
        self._connections.add(connection)
        presence = self._present.setdefault(subscriber, _Presence())
        presence.connections.append(connection)
        for stream in presence.streams:
            self._followers[stream].add(connection)

    def leave(self, connection: Connection) -> None:
        """A connection is gone. Connections call this themselves when they close or are lost."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        presence = self._present[connection.subscriber]
        presence.connections.remove(connection)
        for stream in presence.streams:
            self._drop(stream, (connection,))
        if not presence.connections:
            del self._present[connection.subscriber]
            if self.on_gone is not None:
                self.on_gone(connection.subscriber)

    def follow(self, subscriber: str, stream: str) -> None:
        """All connections of a subscriber that is online follow a stream from now on."""
        presence = self._present.get(subscriber)
        if presence is not None:
            presence.streams.add(stream)
            self._followers.setdefault(stream, set()).update(presence.connections)

    def unfollow(self, subscriber: str, stream: str) -> None:
        """The subscriber does not follow the stream any longer."""
        presence = self._present.get(subscriber)
        if presence is not None and stream in presence.streams:
            presence.streams.remove(stream)
            self._drop(stream, presence.connections)

    def signal(self, stream: str, position: int, now: int) -> int:
        """Tell all followers that a stream has reached a position; returns how many connections that are."""
        followers = self._followers.get(stream)
        if not followers:
            return 0
        self._tell(followers, stream, position, now)
        return len(followers)

    def suspended(self, stream: str, position: int, suspended: object) -> None:
        """Tell all followers that a stream was suspended, or resumed if `suspended` is None."""
        frame = suspension_frame(stream, position, suspended)
        for connection in self._followers.get(stream, ()):
            connection.deliver(f"suspended {stream}", frame)

    def tell(self, subscriber: str, stream: str, position: int, now: int) -> int:
        """Tell one subscriber's connections only; returns how many they are."""
        presence = self._present.get(subscriber)
        if presence is None:
            return 0
        self._tell(presence.connections, stream, position, now)
        return len(presence.connections)

    def sweep(self, now: int) -> None:
        """Close whose token has expired and who has stopped reading; ask the silent whether they are there.

        To be called about once a second.
        """
        for connection in tuple(self._connections):
            if connection.expires_ms <= now:
                connection.close(NO_TOKEN, "the token has expired")
            elif connection.paused:
                connection.stuck_since = connection.stuck_since or now
                if now - connection.stuck_since >= self.stuck_after_ms:
                    connection.close(TOO_SLOW, "stopped reading")
            elif connection.heard or connection.busy:
                connection.heard = connection.asked = False
                connection.quiet_since = now
            elif not connection.asked:
                if now - connection.quiet_since >= self._ping_every_ms:
                    connection.asked = True
                    connection.quiet_since = now
                    connection.write(PING)
            elif now - connection.quiet_since >= self.stuck_after_ms:
                connection.close(TOO_SLOW, "does not answer pings")

    def close(self, code: int, reason: str, *, subscriber: str | None = None, session: str | None = None) -> int:
        """Close all connections, a subscriber's, or a session's; returns how many."""
        if subscriber is None:
            among: Iterable[Connection] = self._connections
        else:
            presence = self._present.get(subscriber)
            among = () if presence is None else presence.connections
        chosen = [connection for connection in among if session is None or connection.session == session]
        for connection in chosen:
            connection.close(code, reason)
        return len(chosen)

    def _tell(self, connections: Iterable[Connection], stream: str, position: int, now: int) -> None:
        frame = signal_frame(stream, position)
        for connection in connections:
            if connection.paused:
                connection.stuck_since = connection.stuck_since or now
                connection.deliver(stream, frame)
            else:
                connection.write(frame)

    def _drop(self, stream: str, connections: Iterable[Connection]) -> None:
        followers = self._followers[stream]
        followers.difference_update(connections)
        if not followers:
            del self._followers[stream]
