"""Online subscribers, and the WebSockets of their sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from newsstand.broker.event_log import EventLog
from newsstand.broker.sessions.state import Change
from newsstand.broker.sessions.subscribers import AuthenticatedSubscriber, SubscriberListener
from newsstand.broker.websocket.hub import Hub
from newsstand.wire.notifications import CloseCode
from newsstand.wire.subscribers import EndSession, SubscriberRecord


@dataclass(eq=False, repr=False)
class Presence(SubscriberListener):
    """The connections of all sessions. A hub knows sessions as its subscribers: each has limits of its own."""

    log: EventLog
    now_ms: Callable[[], int]
    stuck_after_ms: int = 30_000

    def __post_init__(self) -> None:
        self.hub = Hub(stuck_after_ms=self.stuck_after_ms, on_offline=self._on_offline)
        """The connections that are notified of new results."""
        self.topic_hub = Hub(stuck_after_ms=self.stuck_after_ms)
        """The connections that publish to topics and follow them."""
        self._hubs = (self.hub, self.topic_hub)
        self._sessions: dict[str, set[str]] = {}
        """The sessions of each subscriber that have connections in `hub`."""
        self._owners: dict[str, str] = {}
        """The subscriber of each of these sessions."""

    def __len__(self) -> int:
        return sum(len(hub) for hub in self._hubs)

    def owner(self, session: str) -> str:
        """Return the subscriber of a session that has connections in `hub`."""
        return self._owners[session]

    def connections_of(self, subscriber: AuthenticatedSubscriber) -> int:
        """Return the number of WebSockets of a subscriber, over all its sessions."""
        return sum(hub.connections_of(sid) for hub in self._hubs for sid in subscriber.record.sessions)

    def on_connected(self, subscriber: AuthenticatedSubscriber) -> None:
        """Record the connection of a session."""
        sessions = self._sessions.setdefault(subscriber.name, set())
        if not sessions:
            self.log.event(self.now_ms(), "login", subscriber.name)
        sessions.add(subscriber.claims.session)
        self._owners[subscriber.claims.session] = subscriber.name

    def close_all(self, code: CloseCode, reason: str) -> None:
        for hub in self._hubs:
            hub.close(code, reason)

    def sweep(self, now: int) -> None:
        """Close connections that have expired or do not read; to be called about once a second."""
        for hub in self._hubs:
            hub.sweep(now)

    def on_fenced(self, record: SubscriberRecord) -> None:
        self._close_sessions(CloseCode.MOVED, "moved to another broker; ask the coordinator", record)

    on_released = on_fenced

    def on_disabled(self, record: SubscriberRecord) -> None:
        self._close_sessions(CloseCode.DISABLED, "the account is disabled", record)

    def on_synced(self, record: SubscriberRecord, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, EndSession):
                self.on_session_ended(change.sid)

    def on_session_ended(self, session: str) -> None:
        self._close(CloseCode.UNAUTHORIZED, "the session has ended", session)

    def _close_sessions(self, code: CloseCode, reason: str, record: SubscriberRecord) -> None:
        for sid in record.sessions:
            self._close(code, reason, sid)

    def _close(self, code: CloseCode, reason: str, session: str) -> None:
        for hub in self._hubs:
            hub.close(code, reason, subscriber=session)

    def _on_offline(self, session: str) -> None:
        name = self._owners.pop(session)
        self._sessions[name].remove(session)
        if not self._sessions[name]:
            del self._sessions[name]
            self.log.event(self.now_ms(), "logout", name)
