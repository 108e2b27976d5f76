"""The subscribers of this broker: their records, subscriptions, and moves between brokers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from weakref import WeakValueDictionary

from newsstand.auth.tokens import BadToken, Claims, SubscriberTokens
from newsstand.broker.coordinator_client.heartbeat import Heartbeat
from newsstand.broker.sessions.state import HERE_ONLY, Adopt, Change, Forget, Merge, apply, diff
from newsstand.config.settings import SubscriberLimits
from newsstand.errors import NewsstandError
from newsstand.model import Scalar
from newsstand.sqlite.group_commit import GroupCommit
from newsstand.wire.subscribers import (
    Ack,
    AddSubscription,
    RemoveSubscription,
    SubscriberRecord,
    SubscriptionRecord,
)

durability: ContextVar[Literal["broker", "replicated"]] = ContextVar("durability", default="broker")
"""Where the changes of the current request are durable: at this broker alone, or at the coordinator too."""


class AccountDisabled(NewsstandError):
    """An operator has disabled the account."""

    http_status = 403

    def __init__(self, name: str) -> None:
        super().__init__(f"the account '{name}' is disabled: ask the operator of the platform")


class SubscriberMoved(NewsstandError):
    """A subscriber has moved to another broker during its request."""

    http_status = 503

    def __init__(self, name: str) -> None:
        super().__init__(f"subscriber '{name}' is moving to another broker; try again")


class ShuttingDown(NewsstandError):
    """The broker is shutting down and accepts no changes."""

    http_status = 503


class AuthenticatedSubscriber(NamedTuple):
    """A subscriber with the claims of its token."""

    record: SubscriberRecord
    claims: Claims

    @property
    def name(self) -> str:
        return self.record.name


class SubscriberListener:
    """Callbacks about the subscribers of this broker; by default they do nothing."""

    def on_adopted(self, record: SubscriberRecord) -> None:
        """Handle a subscriber that has moved to this broker, with all its subscriptions."""

    def on_synced(self, record: SubscriberRecord, changes: Sequence[Change]) -> None:
        """Handle changes that a subscriber made at another broker."""

    def on_fenced(self, record: SubscriberRecord) -> None:
        """Handle a subscriber that has moved to a broker which may not follow its streams yet."""

    def on_disabled(self, record: SubscriberRecord) -> None:
        """Handle a subscriber whose account an operator has disabled."""

    def on_released(self, record: SubscriberRecord) -> None:
        """Handle a subscriber that was removed from this broker."""

    def on_session_ended(self, session: str) -> None:
        """Handle a session that has ended."""


@dataclass(eq=False, repr=False)
class SubscriberDirectory:
    """The records of all subscribers in memory. Every change is durable before it is applied."""

    records: dict[str, SubscriberRecord]
    commits: GroupCommit[Change]
    tokens: SubscriberTokens
    now_ms: Callable[[], int]
    unsent: Callable[[], Sequence[Change]] = list
    """Returns the changes that the coordinator lacks."""
    limits: SubscriberLimits = field(default_factory=SubscriberLimits)
    connect: Callable[[SubscriberDirectory], Heartbeat] | None = None
    """Makes the connection to the coordinator."""

    def __post_init__(self) -> None:
        self._fenced: set[str] = set()
        """Subscribers that have moved, but whose record is still here: their requests are rejected."""
        self._verified: dict[str, int] = {}
        """The lease of this broker in which the coordinator last confirmed a record."""
        self._moving = asyncio.Lock()
        """Serializes adoptions and releases: both wait for the disk between a check and a change."""
        self._subscribing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Subscriptions that are being created: concurrent requests must not create one twice."""
        self._reserved: Counter[str] = Counter()
        """The number of subscriptions that are being created for each subscriber; they count for its limit."""
        self.shutting_down = False
        """Whether the broker is shutting down: it accepts no changes."""
        self.listeners: list[SubscriberListener] = []
        """Called when subscribers arrive, leave or change."""
        self.coordinator = None if self.connect is None else self.connect(self)

    def notify_disabled(self, record: SubscriberRecord) -> None:
        for listener in self.listeners if record.disabled else ():
            listener.on_disabled(record)

    async def authenticate(
        self, token: str, *, fresh: bool = False, subscription: str | None = None
    ) -> AuthenticatedSubscriber:
        """Return the subscriber of an access token; raise BadToken if it is invalid, expired or its session ended.

        With `fresh`, check at the coordinator that the record is current. It is also checked if the record lacks
        the session, or the `subscription` that the request is about.
        """
        claims = self.tokens.read(token, self.now_ms() / 1000)
        record = await self.find(claims.subscriber, claims.session, fresh=fresh)
        if record is not None and not fresh:
            lacks_subscription = subscription is not None and subscription not in record.subscriptions
            if lacks_subscription or claims.session not in record.sessions:
                record = await self.find(claims.subscriber, claims.session, fresh=True)
        if record is None or claims.session not in record.sessions:
            raise BadToken("the session has ended: log in")
        if record.disabled:
            raise AccountDisabled(record.name)
        return AuthenticatedSubscriber(record, claims)

    async def find(self, name: str, session: str | None = None, *, fresh: bool = False) -> SubscriberRecord | None:
        """Return a subscriber, moved here from another broker if necessary; None if it does not exist.

        With a session, it is moved only if that has not ended.
        """
        if self.coordinator is not None:
            await self.coordinator.settled()
        record = self.records.get(name)
        if self.coordinator is None or (record is not None and await self.is_current(record, fresh)):
            return record
        return self.records.get(name) if await self.coordinator.take(name, session) else None

    @property
    def lease(self) -> int | None:
        """The number of this broker's lease: None while it has none, always 0 without a coordinator."""
        return 0 if self.coordinator is None else self.coordinator.lease

    def lease_of(self, name: str) -> int | None:
        """Return the lease in which a record was last confirmed; in no other one is it current without a check."""
        return 0 if self.coordinator is None else self._verified.get(name)

    async def is_current(self, record: SubscriberRecord, fresh: bool) -> bool:
        """Return whether a record is current, as far as the coordinator responds.

        Check it once per lease: a broker with a lease is notified of moves in time. Without a lease, check it
        each time.
        """
        name = record.name
        if self.coordinator is None:
            return True
        lease = self.coordinator.lease
        if name not in self._fenced and (fresh or lease is None or self._verified.get(name) != lease):
            epoch = record.epoch
            is_stale = await self.coordinator.is_stale(name, epoch)
            if is_stale and record.epoch != epoch:  # the record was synchronized meanwhile
                return await self.is_current(record, fresh)
            if is_stale:
                self.fence({name: epoch})
            elif is_stale is False and lease is not None:
                self._verified[name] = lease
        return name not in self._fenced and self.records.get(name) is record

    async def change(self, *changes: Change) -> None:
        """Make changes durable, here and at the coordinator if it responds; then apply them.

        Set `durability` for the current task. Raise SubscriberMoved for a subscriber of another broker: the
        coordinator has the changes, and maybe newer ones.
        """
        if self.shutting_down:
            raise ShuttingDown("the broker is shutting down; ask the coordinator for another")
        await self.commits.write(*changes)
        if self.coordinator is not None and not all(isinstance(change, HERE_ONLY) for change in changes):
            durability.set("replicated" if await self.coordinator.changes.replicate() else "broker")
        moved = ""
        for change in changes:
            apply(self.records, change)
            name = change.record.name if isinstance(change, Adopt) else change.name
            record = self.records.get(name)
            if record is None or name in self._fenced:
                moved = name
                if record is not None:  # the caller gets an error
                    for listener in self.listeners:
                        listener.on_synced(record, [change])
        if moved:
            raise SubscriberMoved(moved)

    async def subscribe(
        self, name: str, key: str, channel: str, values: list[Scalar], position: int
    ) -> tuple[SubscriberRecord, SubscriptionRecord]:
        """Create a subscription that starts after a position, unless it exists; raise SubscriberMoved."""
        async with self._subscribing.setdefault(key, asyncio.Lock()):
            record = self.local(name)
            if key not in record.subscriptions:
                held = len(record.subscriptions) + self._reserved[name]
                self.limits.require("subscriptions", held, "subscriptions of one subscriber")
                version = record.next_version()
                self._reserved[name] += 1
                try:
                    await self.change(AddSubscription(name, key, channel, values, position, version))
                finally:
                    self._reserved[name] -= 1
                    if not self._reserved[name]:
                        del self._reserved[name]
        record = self.local(name)  # it may have moved and returned meanwhile
        if (made := record.subscriptions.get(key)) is None:
            raise SubscriberMoved(name)
        return record, made

    async def unsubscribe(self, name: str, key: str) -> None:
        """Drop a subscription; raise SubscriberMoved."""
        await self.change(RemoveSubscription(name, key, self.local(name).next_version()))

    async def acknowledge(self, name: str, positions: Mapping[str, int]) -> None:
        """Acknowledge results up to a position of each subscription; raise SubscriberMoved."""
        held = self.local(name).subscriptions
        if not positions.keys() <= held.keys():
            raise SubscriberMoved(name)
        await self.change(*(Ack(name, key, position, held[key].version) for key, position in positions.items()))

    def local(self, name: str) -> SubscriberRecord:
        record = self.records.get(name)
        if record is None or name in self._fenced:
            raise SubscriberMoved(name)
        return record

    def fence(self, moved: Mapping[str, int]) -> None:
        """Reject requests of subscribers that have moved; follow their streams until `release_moved`.

        `moved` has the serial number of each move. A subscriber with a record of a later epoch has returned.
        """
        for name, serial in moved.items():
            record = self.records.get(name)
            if record is not None and record.epoch <= serial and name not in self._fenced:
                self._fenced.add(name)
                self._verified.pop(name, None)
                for listener in self.listeners:
                    listener.on_fenced(record)

    async def adopt(self, records: Sequence[SubscriberRecord]) -> None:
        """Take over subscribers with their records of the coordinator."""
        async with self._moving:
            # An account that was deleted and registered again is another account.
            replaced = [
                record.name
                for record in records
                if (here := self.records.get(record.name)) is not None and here.epoch < record.born
            ]
            await self._forget(replaced)
            new = [record for record in records if record.name not in self.records]
            if new:
                await self.commits.write(*(Adopt(record) for record in new))
            known = [(here, record) for record in records if (here := self.records.get(record.name)) is not None]
            if known:
                unsent = await asyncio.to_thread(self.unsent)
                for here, record in known:
                    await self._sync(here, record, unsent)
                    self._fenced.discard(record.name)
            for record in new:
                if self.records.setdefault(record.name, record) is record:
                    for listener in self.listeners:
                        listener.on_adopted(record)

    async def _sync(self, known: SubscriberRecord, found: SubscriberRecord, unsent: Sequence[Change]) -> None:
        """Merge the changes that a subscriber made at another broker."""
        missed = list(diff(known, found, unsent))
        known.clock = max(known.clock, found.clock)
        if missed or (known.hash, known.epoch, known.disabled) != (found.hash, found.epoch, found.disabled):
            merge = Merge(known.name, found.hash, found.epoch, missed, found.disabled)
            await self.commits.write(merge)
            if self.records.get(known.name) is not known:  # it has moved meanwhile
                return
            apply(self.records, merge)
            for listener in self.listeners if missed else ():
                listener.on_synced(known, missed)
            self.notify_disabled(known)

    async def release_moved(self, moved: Mapping[str, int]) -> None:
        """Release subscribers that other brokers follow; those with a record of a later epoch have returned."""
        async with self._moving:
            await self._forget(
                [name for name in moved if name in self.records and self.records[name].epoch <= moved[name]]
            )

    async def forget(self, names: Sequence[str]) -> None:
        """Release subscribers of other brokers."""
        async with self._moving:
            await self._forget(names)

    async def _forget(self, names: Sequence[str]) -> None:
        here = [name for name in names if name in self.records]
        if here:
            await self.commits.write(*(Forget(name) for name in here))
        for name in here:
            self._fenced.discard(name)
            self._verified.pop(name, None)
            record = self.records.pop(name, None)
            if record is not None:
                for listener in self.listeners:
                    listener.on_released(record)

    async def retain_only(self, names: Sequence[str], held: Sequence[str] = (), serial: int = 2**63) -> None:
        """Release all subscribers but these; `held` have moved, but no other broker follows their streams yet."""
        self.fence(dict.fromkeys(held, serial))
        await self.release_moved(dict.fromkeys(self.records.keys() - {*names, *held}, serial))
