"""The subscribers at home at this broker: how they register, log in, prove who they are, come and go."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, Protocol
from weakref import WeakValueDictionary

import msgspec

from newsstand.broker.accounts import (
    ACCESS_S,
    SESSION_S,
    BadLogin,
    BadToken,
    Claims,
    Disabled,
    Passwords,
    Tokens,
    check_name_and_password,
)
from newsstand.broker.attempts import Attempts
from newsstand.broker.home import AccountChanged, Home, Taken
from newsstand.broker.journal import Journal
from newsstand.broker.records import (
    HERE_ONLY,
    Ack,
    Adopt,
    Allowed,
    Change,
    EndSession,
    Forget,
    Held,
    Merge,
    Record,
    SessionChange,
    Subscribe,
    Unsubscribe,
    apply,
    missing,
)
from newsstand.errors import NewsstandError, NotFound
from newsstand.model import Scalar
from newsstand.serving.limits import Limits
from newsstand.serving.passwords import check_password

Durability = Literal["broker", "replicated"]
durability: ContextVar[Durability] = ContextVar("durability", default="broker")
"""Where the changes of the present request are durable: at this broker alone, or at the coordinator too."""


class Elsewhere(NewsstandError):
    """A subscriber has moved to another broker while it asked this one."""

    def __init__(self, name: str) -> None:
        super().__init__(f"subscriber '{name}' is moving to another broker; try again")


class GoingDown(NewsstandError):
    """The broker is going down, and changes nothing any more."""


class Pair(msgspec.Struct, frozen=True):
    """What a login is answered with."""

    access: str
    refresh: str
    expires_in: int
    subscriber: str


@dataclass(frozen=True)
class Member:
    """A subscriber who has proved who it is, in one of its sessions."""

    record: Record
    claims: Claims

    @property
    def name(self) -> str:
        return self.record.name


class Comings(Protocol):
    """Who has to know when subscribers come and go."""

    def came(self, record: Record) -> None:
        """A subscriber is at home here now, with all its subscriptions."""
        ...

    def caught_up(self, record: Record, changes: Sequence[Change]) -> None:
        """A subscriber that is here has done this elsewhere."""
        ...

    def fenced(self, record: Record) -> None:
        """A subscriber has another home, which may not follow its streams yet."""
        ...

    def disabled(self, record: Record) -> None:
        """An operator has disabled a subscriber's account."""
        ...

    def went(self, record: Record) -> None:
        """A subscriber is not at home here any more."""
        ...

    def ended(self, name: str, sid: str) -> None:
        """A session has ended."""
        ...


class Members:
    """All records in memory, every change in the journal first."""

    def __init__(
        self,
        records: dict[str, Record],
        journal: Journal,
        tokens: Tokens,
        passwords: Passwords,
        random: Callable[[int], str],
        now_ms: Callable[[], int],
        unsent: Callable[[], Sequence[Change]] = list,
        limits: Limits = Limits(),  # noqa: B008  it is frozen
    ) -> None:
        """`random` gives a text of so many random bytes; `unsent` what the coordinator has not heard of yet."""
        self.records = records
        self._journal = journal
        self._tokens = tokens
        self._passwords = passwords
        self._random = random
        self._now_ms = now_ms
        self._unsent = unsent
        self.limits = limits
        self.attempts = Attempts()
        self._registering: set[str] = set()
        self._refreshing: set[str] = set()
        self._ending: set[str] = set()
        self._fenced: set[str] = set()
        """Who has a record here and another home: this broker answers nothing for them."""
        self._verified: dict[str, int] = {}
        """The lease of this broker in which the coordinator has confirmed a record last."""
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Subscriptions that are being made: two requests for one must not make it twice."""
        self._altering: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Accounts whose password or state is being changed: each change writes both."""
        self._promised: Counter[str] = Counter()
        """How many subscriptions are being made for each subscriber, to be counted with those that it has."""
        self.leaving = False
        """Whether the broker is going down: nothing is changed any more."""
        self.home: Home | None = None
        self.comings: Comings | None = None

    async def register(self, name: str, password: str, address: str = "") -> None:
        """Make a subscriber; Taken if there is one of that name, LimitReached if there are too many.

        The coordinator counts registrations by the client's address; none is given for those of operators.
        """
        check_name_and_password(name, password)
        if name in self.records or name in self._registering:
            raise Taken(f"the name '{name}' is taken")
        if self.home is None:
            self.limits.require("accounts", len(self.records) + len(self._registering), "accounts")
        self._registering.add(name)
        try:
            hash = await self._passwords.hash(password)
            epoch = 0 if self.home is None else await self.home.register_subscriber(name, hash, address)
            now_s = self._now_ms() // 1000
            await self.adopt([Record(name, hash, epoch=epoch, born=epoch, created=now_s)])
        finally:
            self._registering.remove(name)

    async def login(self, name: str, password: str, allow: list[Allowed] | None, address: str = "") -> Pair:
        """Begin a session, limited to `allow` if that is given; Busy if too many from the address have failed."""
        self.attempts.require(name, address)
        known = self.records.get(name)
        if self.home is not None and (known is None or not await self._is_current(known, fresh=True)):
            known = (await self.home.lookup([name])).get(name)
        verified = None if known is None else known.hash
        if not await self._verify(name, verified, password, address):
            raise BadLogin("the name or the password is wrong")
        if known is not None and known.disabled:
            raise Disabled(name)
        await self.at_home(name)  # not before: only who knows the password moves a subscriber here
        async with self._altering.setdefault(name, asyncio.Lock()):  # a new password ends all sessions of before
            record = self._here(name)
            if record.hash != verified:  # it was changed while this one was verified
                raise BadLogin("the name or the password is wrong")
            now = self._now_ms()
            sid = self._random(12)
            session = SessionChange(name, sid, 1, now + SESSION_S * 1000, allow, record.epoch)
            await self.change(*self._making_room(record, now), session)
        return self._pair(name, sid)

    async def refresh(self, token: str) -> Pair:
        """New tokens for a session. A refresh token is good once: a second use ends the session."""
        name, sid, generation = self._tokens.read_refresh(token, self._now_ms() / 1000)
        record = await self.at_home(name, sid, fresh=True)  # another broker may have renewed or ended it
        session = None if record is None else record.sessions.get(sid)
        if session is None or sid in self._ending:
            raise BadToken("the session has ended: log in")
        if record is not None and record.disabled:
            raise Disabled(name)
        # A higher generation than is known here is one of a broker that died before it could tell.
        if generation < session.generation or sid in self._refreshing:
            await self.end(name, [sid])
            raise BadToken("the refresh token was used before, so its session is ended: log in")
        expires = self._now_ms() + SESSION_S * 1000
        self._refreshing.add(sid)
        try:
            epoch = 0 if record is None else record.epoch
            await self.change(SessionChange(name, sid, generation + 1, expires, session.allow, epoch))
        finally:
            self._refreshing.remove(sid)
        return self._pair(name, sid)

    async def admit(self, token: str, *, fresh: bool = False, subscription: str | None = None) -> Member:
        """Whose access token this is; BadToken if it is nobody's, has expired or its session has ended.

        `fresh`: ask the coordinator whether the subscriber was elsewhere in between, if it answers. It is asked,
        too, where the record lacks the session, or the subscription that this is about.
        """
        claims = self._tokens.read(token, self._now_ms() / 1000)
        record = await self.at_home(claims.subscriber, claims.session, fresh=fresh)
        if record is not None and not fresh:
            lacks_subscription = subscription is not None and subscription not in record.subscriptions
            if lacks_subscription or claims.session not in record.sessions:
                record = await self.at_home(claims.subscriber, claims.session, fresh=True)
        if record is None or claims.session not in record.sessions:
            raise BadToken("the session has ended: log in")
        if record.disabled:
            raise Disabled(record.name)
        return Member(record, claims)

    async def _verify(self, name: str, hash: str | None, password: str, address: str) -> bool:
        """Whether a password is right; failures slow further attempts down."""

        def require() -> None:
            self.attempts.require(name, address)

        require()
        is_right = await self._passwords.verify(hash, password, require)
        (self.attempts.succeeded if is_right else self.attempts.failed)(name, address)
        return is_right

    async def change_password(self, member: Member, current: str, password: str, address: str = "") -> None:
        """Give a subscriber another password, if it knows the current one; its other sessions end."""
        verified = member.record.hash
        if not await self._verify(member.name, verified, current, address):
            raise BadLogin("the current password is wrong")
        await self.set_password(member.name, password, keep=member.claims.session, verified=verified)

    async def set_password(
        self, name: str, password: str, keep: str | None = None, verified: str | None = None
    ) -> None:
        """Give a subscriber another password, and end its sessions but the one to keep; raise NotFound.

        Raise AccountChanged if the account was changed meanwhile: with `verified`, if its password until now has
        another hash than that.
        """
        check_password(password)
        record = await self._present(name)
        epoch = record.epoch

        def require_unchanged(expected: str | None) -> None:
            if self._here(name) is not record or record.epoch != epoch or expected not in (None, record.hash):
                raise AccountChanged(name)

        require_unchanged(verified)
        hash = await self._passwords.hash(password)
        async with self._altering.setdefault(name, asyncio.Lock()):
            require_unchanged(verified)
            if self.home is not None:
                await self.home.set_password(name, hash, epoch)
                require_unchanged(verified)  # an operator may have reset it after that
            await self.change(Merge(name, hash, epoch, disabled=record.disabled))
            ending = [sid for sid in record.sessions if sid != keep]
        await self.end(name, ending)

    async def set_disabled(self, name: str, disabled: bool) -> None:
        """Disable or enable an account at a broker without a coordinator; raise NotFound."""
        record = await self._present(name)
        async with self._altering.setdefault(name, asyncio.Lock()):
            await self.change(Merge(name, record.hash, record.epoch, disabled=disabled))
        self._tell_disabled(record)

    def _tell_disabled(self, record: Record) -> None:
        if record.disabled and self.comings is not None:
            self.comings.disabled(record)

    async def delete(self, name: str) -> None:
        """Delete a subscriber with its sessions and subscriptions; raise NotFound."""
        record = await self._present(name)
        await self.end(name, list(record.sessions))
        if self.home is not None:
            await self.home.delete_subscriber(name)
        await self.forget([name])

    async def _present(self, name: str) -> Record:
        record = await self.at_home(name)
        if record is None:
            raise NotFound(f"there is no subscriber '{name}'")
        return record

    async def end(self, name: str, sids: Sequence[str]) -> None:
        """End sessions: their tokens are not accepted any more."""
        self._ending.update(sids)
        record = self.records.get(name)
        try:
            await self.change(*(EndSession(name, sid, record.epoch if record else 0) for sid in sids))
        finally:
            self._ending.difference_update(sids)
        if self.comings is not None:
            for sid in sids:
                self.comings.ended(name, sid)

    async def at_home(self, name: str, session: str | None = None, *, fresh: bool = False) -> Record | None:
        """A subscriber, brought here if it is at home elsewhere; None if there is none of that name.

        With a session it is brought only if that has not ended.
        """
        if self.home is not None:
            await self.home.settled()
        record = self.records.get(name)
        if self.home is None or (record is not None and await self._is_current(record, fresh)):
            return record
        return self.records.get(name) if await self.home.take(name, session) else None

    async def _is_current(self, record: Record, fresh: bool) -> bool:
        """Whether the coordinator, if it answers, says that the subscriber has been at home here all the time.

        It is asked once in each lease of this broker: while a broker has a lease, it hears of moves in time.
        """
        name = record.name
        if self.home is None:
            return True
        lease = self.home.lease
        if name not in self._fenced and (fresh or self._verified.get(name) != lease):
            epoch = record.epoch
            is_stale = await self.home.is_stale(name, epoch)
            if is_stale:
                self.fence({name: epoch})
            elif is_stale is False:
                self._verified[name] = lease
        return name not in self._fenced and self.records.get(name) is record

    async def change(self, *changes: Change) -> None:
        """Make changes durable, here and, while it answers, at the coordinator; then apply them.

        `durability` tells the caller, in the same task, whether they survive the loss of this broker. Raise
        Elsewhere if the subscriber has another home: the coordinator has the changes, and may have newer ones.
        """
        if self.leaving:
            raise GoingDown("the broker is going down; ask the coordinator for another")
        await self._journal.write(*changes)
        if self.home is not None and not all(isinstance(change, HERE_ONLY) for change in changes):
            durability.set("replicated" if await self.home.changes.replicate() else "broker")
        gone = ""
        for change in changes:
            apply(self.records, change)
            name = change.record.name if isinstance(change, Adopt) else change.name
            record = self.records.get(name)
            if record is None or name in self._fenced:
                gone = name
                if record is not None and self.comings is not None:  # the caller does not go on
                    self.comings.caught_up(record, [change])
        if gone:
            raise Elsewhere(gone)

    async def subscribe(
        self, name: str, key: str, channel: str, values: list[Scalar], position: int
    ) -> tuple[Record, Held]:
        """Make a subscription that starts after a position, unless it is there by now; raise Elsewhere."""
        async with self._making.setdefault(key, asyncio.Lock()):
            record = self._here(name)
            if key not in record.subscriptions:
                held = len(record.subscriptions) + self._promised[name]
                self.limits.require("subscriptions", held, "subscriptions of one subscriber")
                version = record.next_version()
                with self._promise(name):
                    await self.change(Subscribe(name, key, channel, values, position, version))
        record = self._here(name)  # it may have gone and come meanwhile
        if (made := record.subscriptions.get(key)) is None:
            raise Elsewhere(name)
        return record, made

    @contextmanager
    def _promise(self, name: str) -> Iterator[None]:
        self._promised[name] += 1
        try:
            yield
        finally:
            self._promised[name] -= 1
            if not self._promised[name]:
                del self._promised[name]

    async def unsubscribe(self, name: str, key: str) -> None:
        """Drop a subscription; raise Elsewhere."""
        await self.change(Unsubscribe(name, key, self._here(name).next_version()))

    async def acknowledge(self, name: str, positions: Mapping[str, int]) -> None:
        """Note that results up to some positions are acknowledged, by subscription; raise Elsewhere."""
        held = self._here(name).subscriptions
        if not positions.keys() <= held.keys():
            raise Elsewhere(name)
        await self.change(*(Ack(name, key, position, held[key].version) for key, position in positions.items()))

    def _here(self, name: str) -> Record:
        record = self.records.get(name)
        if record is None or name in self._fenced:
            raise Elsewhere(name)
        return record

    def fence(self, moved: Mapping[str, int]) -> None:
        """Answer nothing for subscribers that have another home; their streams are followed until `left`.

        Those with a record of a later epoch have come back.
        """
        for name, serial in moved.items():
            record = self.records.get(name)
            if record is not None and record.epoch <= serial and name not in self._fenced:
                self._fenced.add(name)
                self._verified.pop(name, None)
                if self.comings is not None:
                    self.comings.fenced(record)

    async def adopt(self, records: Sequence[Record]) -> None:
        """Subscribers are at home here from now on: these are the coordinator's records of them."""
        # An account that was deleted and registered again is another one of the same name.
        replaced = [
            record.name
            for record in records
            if (here := self.records.get(record.name)) is not None and here.epoch < record.born
        ]
        await self.forget(replaced)
        new = [record for record in records if record.name not in self.records]
        if new:
            await self._journal.write(*(Adopt(record) for record in new))
        known = [(here, record) for record in records if (here := self.records.get(record.name)) is not None]
        if known:
            unsent = await asyncio.to_thread(self._unsent)
            for here, record in known:
                await self._catch_up(here, record, unsent)
                self._fenced.discard(record.name)
        for record in new:
            if self.records.setdefault(record.name, record) is record and self.comings is not None:
                self.comings.came(record)

    async def _catch_up(self, known: Record, found: Record, unsent: Sequence[Change]) -> None:
        """A subscriber that is here was elsewhere meanwhile: take over what it did there."""
        missed = list(missing(known, found, unsent))
        known.clock = max(known.clock, found.clock)
        if missed or (known.hash, known.epoch, known.disabled) != (found.hash, found.epoch, found.disabled):
            merge = Merge(known.name, found.hash, found.epoch, missed, found.disabled)
            await self._journal.write(merge)
            if self.records.get(known.name) is not known:  # it has left meanwhile
                return
            apply(self.records, merge)
            if missed and self.comings is not None:
                self.comings.caught_up(known, missed)
            self._tell_disabled(known)

    async def left(self, moved: Mapping[str, int]) -> None:
        """Subscribers are followed by other brokers; those with a record of a later epoch have come back."""
        gone = [name for name in moved if name in self.records and self.records[name].epoch <= moved[name]]
        await self.forget(gone)

    async def forget(self, names: Sequence[str]) -> None:
        """Subscribers are at home elsewhere."""
        here = [name for name in names if name in self.records]
        if here:
            await self._journal.write(*(Forget(name) for name in here))
        for name in here:
            self._fenced.discard(name)
            self._verified.pop(name, None)
            record = self.records.pop(name, None)
            if record is not None and self.comings is not None:
                self.comings.went(record)

    async def only(self, names: Sequence[str], held: Sequence[str] = (), serial: int = 2**63) -> list[str]:
        """Nobody but these was at home here at the last move; return who has to be brought, or to catch up.

        Those in `held` have another home, and no other broker follows their streams yet.
        """
        self.fence(dict.fromkeys(held, serial))
        here = {*names, *held}
        await self.left({name: serial for name in self.records if name not in here})
        return list(names)

    def _making_room(self, record: Record, now: int) -> list[EndSession]:
        over = [sid for sid, session in record.sessions.items() if session.expires <= now]
        left = [sid for sid in record.sessions if sid not in over]
        if (surplus := len(left) - self.limits.sessions + 1) > 0:
            over += sorted(left, key=lambda sid: record.sessions[sid].expires)[:surplus]
        return [EndSession(record.name, sid, record.epoch) for sid in over]

    def _pair(self, name: str, sid: str) -> Pair:
        record = self.records.get(name)
        session = None if record is None else record.sessions.get(sid)
        if session is None:
            raise Elsewhere(name)
        now_s = self._now_ms() // 1000
        access = self._tokens.access(name, sid, session.allow, now_s)
        return Pair(access, self._tokens.refresh(name, sid, session, now_s), ACCESS_S, name)
