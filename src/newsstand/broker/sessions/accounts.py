"""Accounts of a broker's subscribers: registration, logins, sessions, passwords, and delays after failed logins.

Guessing a password costs time, and a stranger cannot lock an account. Failures are counted per pair of account and
address, per address, and per account. The first failures are free; each further one doubles the wait before the
next attempt. An address from which the account was logged in to before waits only for the failures of the pair:
others may exhaust the free ones of the account or the network. Tokens and their renewal are not affected. The
counts are in the memory of one broker and expire an hour after the last failure.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

import msgspec

from newsstand.auth.passwords import BadLogin, Passwords, check_name_and_password, check_password
from newsstand.auth.tokens import ACCESS_S, SESSION_S, BadToken, ChannelScope, SubscriberTokens
from newsstand.broker.coordinator_client.client import AccountChanged, NameTaken
from newsstand.broker.coordinator_client.heartbeat import Heartbeat
from newsstand.broker.sessions.state import Merge
from newsstand.broker.sessions.subscribers import (
    AccountDisabled,
    AuthenticatedSubscriber,
    SubscriberDirectory,
    SubscriberMoved,
)
from newsstand.errors import Busy, NotFound
from newsstand.http.server import network_of
from newsstand.model import is_subscriber_name
from newsstand.wire.subscribers import EndSession, SessionChange, SubscriberRecord


@dataclass(frozen=True)
class Delay:
    """No delay for `free` failures; then one second, doubled by each further failure up to `most_s`."""

    free: int
    most_s: float

    def after(self, failures: int) -> float:
        return 0.0 if failures < self.free else min(self.most_s, 2.0 ** min(failures - self.free, 30))


@dataclass(frozen=True, slots=True)
class LoginLimits:
    """Limits of failed logins."""

    pair: Delay = Delay(5, 300)
    """Of one account from one address."""
    address: Delay = Delay(50, 300)
    """Of all accounts from one address."""
    account: Delay = Delay(100, 60)
    """Of one account from all addresses."""
    forget_s: float = 3600.0
    capacity: int = 100_000
    """Entries of each kind; the one that failed longest ago is evicted."""


@dataclass
class _Failures:
    count: int = 0
    last_s: float = 0.0
    until_s: float = 0.0


class LoginAttempts:
    """The failed logins of the last hour at one broker."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        limits: LoginLimits = LoginLimits(),  # noqa: B008  it is frozen
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._pairs: OrderedDict[str, _Failures] = OrderedDict()
        self._addresses: OrderedDict[str, _Failures] = OrderedDict()
        self._accounts: OrderedDict[str, _Failures] = OrderedDict()
        self._good: OrderedDict[str, None] = OrderedDict()
        """Pairs of account and address with a login that succeeded."""

    def __len__(self) -> int:
        return len(self._pairs) + len(self._addresses) + len(self._accounts) + len(self._good)

    def require_allowed(self, account: str, address: str) -> None:
        """Raise Busy if an attempt comes too early after failed ones; it is not counted."""
        pair = _pair(account, address)
        now = self._clock()
        waits = [
            failures.until_s - now
            for table, key, _ in self._tables(account, address)
            if (table is self._pairs or pair not in self._good) and (failures := table.get(key)) is not None
        ]
        if (wait_s := max(waits, default=0.0)) > 0:
            raise Busy("too many logins have failed; try again later", wait_s)

    def record_failure(self, account: str, address: str) -> None:
        now = self._clock()
        for table, key, delay in self._tables(account, address):
            failures = table.pop(key, None)
            if failures is None or now - failures.last_s > self._limits.forget_s:
                failures = _Failures()
            failures.count += 1
            failures.last_s = now
            failures.until_s = now + delay.after(failures.count)
            table[key] = failures
            if len(table) > self._limits.capacity:
                table.popitem(last=False)

    def record_success(self, account: str, address: str) -> None:
        """Forget the failures of this account from this address; those of others at the address stay."""
        pair = _pair(account, address)
        self._pairs.pop(pair, None)
        self._good.pop(pair, None)
        self._good[pair] = None
        if len(self._good) > self._limits.capacity:
            self._good.popitem(last=False)

    def _tables(self, account: str, address: str) -> Iterator[tuple[OrderedDict[str, _Failures], str, Delay]]:
        yield self._pairs, _pair(account, address), self._limits.pair
        yield self._addresses, network_of(address), self._limits.address
        yield self._accounts, _known(account), self._limits.account


def _pair(account: str, address: str) -> str:
    return f"{_known(account)} {network_of(address)}"


def _known(account: str) -> str:
    """Return the account, or the empty text for an invalid name: long texts are not stored."""
    return account if is_subscriber_name(account) else ""


class TokenPair(msgspec.Struct, frozen=True):
    """An access token for `expires_in` seconds, and a refresh token that is valid once."""

    access: str
    refresh: str
    expires_in: int
    subscriber: str


@dataclass(eq=False, repr=False)
class AccountService:
    """Registers subscribers, verifies their passwords, and manages their sessions."""

    directory: SubscriberDirectory
    tokens: SubscriberTokens
    passwords: Passwords
    random: Callable[[int], str]
    """Returns a text of that many random bytes."""
    now_ms: Callable[[], int]

    def __post_init__(self) -> None:
        self._attempts = LoginAttempts()
        self._registering: set[str] = set()
        self._refreshing: set[str] = set()
        self._ending: set[str] = set()
        self._altering: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Accounts whose password or state is being changed: each change writes both."""

    @property
    def _coordinator(self) -> Heartbeat | None:
        return self.directory.coordinator

    async def register(self, name: str, password: str, address: str = "") -> None:
        """Register a subscriber; raise NameTaken, or LimitReached if there are too many.

        The coordinator counts registrations by client address; those of operators have none.
        """
        check_name_and_password(name, password)
        if name in self.directory.records or name in self._registering:
            raise NameTaken(name)
        if self._coordinator is None:
            self.directory.limits.require(
                "accounts", len(self.directory.records) + len(self._registering), "accounts"
            )
        self._registering.add(name)
        try:
            hash = await self.passwords.hash(password)
            epoch = 0
            if self._coordinator is not None:
                epoch = await self._coordinator.client.register_subscriber(name, hash, address)
            now_s = self.now_ms() // 1000
            await self.directory.adopt([SubscriberRecord(name, hash, epoch=epoch, born=epoch, created=now_s)])
        finally:
            self._registering.remove(name)

    async def login(
        self, name: str, password: str, allow: list[ChannelScope] | None, address: str = ""
    ) -> TokenPair:
        """Begin a session, limited to the scopes `allow`; raise Busy after too many failures."""
        self._attempts.require_allowed(name, address)
        known = self.directory.records.get(name)
        if self._coordinator is not None and (
            known is None or not await self.directory.is_current(known, fresh=True)
        ):
            known = (await self._coordinator.client.lookup([name])).get(name)
        verified = None if known is None else known.hash
        if not await self._verify(name, verified, password, address):
            raise BadLogin("the name or the password is wrong")
        if known is not None and known.disabled:
            raise AccountDisabled(name)
        await self.directory.find(name)  # after the check: only the password moves a subscriber here
        async with self._altering.setdefault(name, asyncio.Lock()):  # a new password ends all earlier sessions
            record = self.directory.local(name)
            if record.hash != verified:  # it was changed while this one was verified
                raise BadLogin("the name or the password is wrong")
            now = self.now_ms()
            sid = self.random(12)
            session = SessionChange(name, sid, 1, now + SESSION_S * 1000, allow, record.epoch)
            await self.directory.change(*self._making_room(record, now), session)
        return self._pair(name, sid)

    async def refresh(self, token: str) -> TokenPair:
        """Return new tokens for a session. A refresh token is valid once: a second use ends the session."""
        name, sid, generation = self.tokens.read_refresh(token, self.now_ms() / 1000)
        record = await self.directory.find(name, sid, fresh=True)  # another broker may have renewed or ended it
        session = None if record is None else record.sessions.get(sid)
        if session is None or sid in self._ending:
            raise BadToken("the session has ended: log in")
        if record is not None and record.disabled:
            raise AccountDisabled(name)
        # A broker that died may have issued a higher generation than the one that is known here.
        if generation < session.generation or sid in self._refreshing:
            await self.end_sessions(name, [sid])
            raise BadToken("the refresh token was used before, so its session is ended: log in")
        expires = self.now_ms() + SESSION_S * 1000
        self._refreshing.add(sid)
        try:
            epoch = 0 if record is None else record.epoch
            await self.directory.change(SessionChange(name, sid, generation + 1, expires, session.allow, epoch))
        finally:
            self._refreshing.remove(sid)
        return self._pair(name, sid)

    async def _verify(self, name: str, hash: str | None, password: str, address: str) -> bool:
        """Return whether a password is right; failures delay further attempts."""
        self._attempts.require_allowed(name, address)
        is_right = await self.passwords.verify(
            hash, password, lambda: self._attempts.require_allowed(name, address)
        )
        (self._attempts.record_success if is_right else self._attempts.record_failure)(name, address)
        return is_right

    async def change_password(
        self, subscriber: AuthenticatedSubscriber, current: str, password: str, address: str = ""
    ) -> None:
        """Change a password after a check of the current one; the other sessions end."""
        verified = subscriber.record.hash
        if not await self._verify(subscriber.name, verified, current, address):
            raise BadLogin("the current password is wrong")
        await self.set_password(subscriber.name, password, keep=subscriber.claims.session, verified=verified)

    async def set_password(
        self, name: str, password: str, keep: str | None = None, verified: str | None = None
    ) -> None:
        """Change a password and end all sessions but `keep`; raise NotFound.

        Raise AccountChanged if the account was changed meanwhile, or if its hash is not `verified`.
        """
        check_password(password)
        record = await self._existing(name)
        epoch = record.epoch

        def require_unchanged(expected: str | None) -> None:
            if (
                self.directory.local(name) is not record
                or record.epoch != epoch
                or expected not in (None, record.hash)
            ):
                raise AccountChanged(name)

        require_unchanged(verified)
        hash = await self.passwords.hash(password)
        async with self._altering.setdefault(name, asyncio.Lock()):
            require_unchanged(verified)
            if self._coordinator is not None:
                await self._coordinator.client.set_password(name, hash, epoch)
                require_unchanged(verified)  # an operator may have reset it meanwhile
            await self.directory.change(Merge(name, hash, epoch, disabled=record.disabled))
            ending = [sid for sid in record.sessions if sid != keep]
        await self.end_sessions(name, ending)

    async def set_disabled(self, name: str, disabled: bool) -> None:
        """Disable or enable an account at a broker without a coordinator; raise NotFound."""
        record = await self._existing(name)
        async with self._altering.setdefault(name, asyncio.Lock()):
            await self.directory.change(Merge(name, record.hash, record.epoch, disabled=disabled))
        self.directory.notify_disabled(record)

    async def delete(self, name: str) -> None:
        """Delete a subscriber with its sessions and subscriptions; raise NotFound."""
        record = await self._existing(name)
        await self.end_sessions(name, list(record.sessions))
        if self._coordinator is not None:
            await self._coordinator.client.delete_subscriber(name)
        await self.directory.forget([name])

    async def _existing(self, name: str) -> SubscriberRecord:
        record = await self.directory.find(name)
        if record is None:
            raise NotFound(f"there is no subscriber '{name}'")
        return record

    async def end_sessions(self, name: str, sids: Sequence[str]) -> None:
        """End sessions: their tokens become invalid."""
        self._ending.update(sids)
        record = self.directory.records.get(name)
        try:
            await self.directory.change(*(EndSession(name, sid, record.epoch if record else 0) for sid in sids))
        finally:
            self._ending.difference_update(sids)
        for listener in self.directory.listeners:
            for sid in sids:
                listener.on_session_ended(sid)

    def _making_room(self, record: SubscriberRecord, now: int) -> list[EndSession]:
        over = [sid for sid, session in record.sessions.items() if session.expires <= now]
        left = [sid for sid in record.sessions if sid not in over]
        if (surplus := len(left) - self.directory.limits.sessions + 1) > 0:
            over += sorted(left, key=lambda sid: record.sessions[sid].expires)[:surplus]
        return [EndSession(record.name, sid, record.epoch) for sid in over]

    def _pair(self, name: str, sid: str) -> TokenPair:
        record = self.directory.records.get(name)
        session = None if record is None else record.sessions.get(sid)
        if session is None:
            raise SubscriberMoved(name)
        now_s = self.now_ms() // 1000
        access = self.tokens.access(name, sid, session.allow, now_s)
        refresh = self.tokens.refresh(name, sid, session.generation, session.expires // 1000, now_s)
        return TokenPair(access, refresh, ACCESS_S, name)
