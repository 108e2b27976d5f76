"""The broker's membership at the coordinator: registration, lease, and subscribers that move here.

A broker goes on without the coordinator.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from newsstand.auth.credentials import SharedKeys
from newsstand.broker.coordinator_client.change_sender import ChangeSender, CoordinatorLimits, SubscriberMoves
from newsstand.broker.coordinator_client.client import (
    CoordinatorClient,
    CoordinatorUnavailable,
    CredentialRejected,
    DuplicateBroker,
    IncarnationSuperseded,
    NotRegistered,
)
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.concurrency.coalescing import Batcher
from newsstand.concurrency.pacing import LogOnce
from newsstand.errors import NewsstandError
from newsstand.wire.coordination import (
    HeartbeatRequest,
    HeartbeatResponse,
    OverlayDuties,
    RegisterBroker,
    RegisteredBroker,
)

logger = logging.getLogger(__name__)


class OverlayMember(Protocol):
    """The broker in the overlay: the topics that it stores completely, and the coordinator's instructions."""

    @property
    def complete_topics(self) -> list[str]: ...
    def configure(self, overlay: OverlayDuties) -> None: ...


@dataclass(eq=False, repr=False)
class Heartbeat:
    """Registers the broker, renews its lease and executes the coordinator's instructions."""

    client: CoordinatorClient
    endpoint: RegisterBroker
    store: SubscriberStore
    load: Callable[[], tuple[int, int]]
    """Returns the numbers of connections and of subscribers."""
    moves: SubscriberMoves
    overlay: OverlayMember | None = None
    set_keys: Callable[[SharedKeys], None] = lambda keys: None
    clock: Callable[[], float] = time.monotonic
    limits: CoordinatorLimits = field(default_factory=CoordinatorLimits)

    def __post_init__(self) -> None:
        self.changes = ChangeSender(self.store, self.client.send_changes, self.moves, self.limits)
        self._takes = Batcher[tuple[str, str | None], bool](self._take, delay_s=self.limits.batch_s)
        self._stale_checks = Batcher[tuple[str, int], bool | None](self._check, serial=True)
        self._fetching: asyncio.Task[None] | None = None
        self._adopted: dict[str, int] = {}
        self._forgot: dict[str, int] = {}
        """The handovers that the next heartbeat confirms: subscribers and numbers."""
        self._leaving = False
        self._registration: RegisteredBroker | None = None
        self._duplicate_since: float | None = None
        self._lease_until = -1.0
        self._lease_s = 0.0
        self._leases = 0
        """The number of leases so far: a record that was checked in one may be stale in the next."""
        self.joined = asyncio.Event()
        """Set when the coordinator has accepted the broker, or does not respond: the broker may serve."""

    async def settled(self) -> None:
        """Wait, for a limited time, until the coordinator has accepted this broker or is known to be away."""
        if not self.joined.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self.limits.replication_s):
                    await self.joined.wait()

    @property
    def lease(self) -> int | None:
        """The number of this broker's lease; None while it has none, so that records may be stale."""
        return None if self.clock() > self._lease_until else self._leases

    async def run(self) -> None:
        """Register and send heartbeats until cancelled.

        Raise CredentialRejected if the broker was never accepted, IncarnationSuperseded if it was replaced.
        """
        accepted, log = False, LogOnce(logger)
        while not self._leaving:
            try:
                await self.beat()
                accepted = True
                log.succeeded()
            except IncarnationSuperseded:
                raise
            except DuplicateBroker as error:
                log.failed("%s; waiting for the end of its lease", error)
            except NewsstandError as error:
                if isinstance(error, CredentialRejected) and not accepted:
                    raise
                log.failed("%s; the broker goes on without it", error)
            except Exception:  # the broker must go on renewing its lease
                logger.exception("heartbeat failed")
            await asyncio.sleep(1.0 if self._registration is None else self._registration.heartbeat_s)

    async def beat(self) -> None:
        """Send a heartbeat, after registering if necessary, and execute the instructions of the response."""
        try:
            try:
                sent, duties = await self._exchange()
            except NotRegistered:
                self._registration = None
                sent, duties = await self._exchange()
        except BaseException:
            self.client.is_up = False
            raise
        finally:
            if self._duplicate_since is None:
                self.joined.set()
            self.changes.mark_contacted()
        if self.lease is None:
            self._leases += 1
        self._lease_until = sent + self._lease_s  # the coordinator's lease begins, and ends, later
        self.client.is_up = True
        if duties.moved:
            await self.moves.release_moved(duties.moved)
        self._forgot = duties.moved
        self._fetch_adopted(duties.adopt)
        self._apply_overlay(duties.overlay)

    async def leave(self) -> int:
        """Withdraw the broker from the coordinator; return how many of its subscribers were moved."""
        self._leaving = True  # a heartbeat now would register it again
        await self.changes.flush()
        return await self.client.leave()

    async def _exchange(self) -> tuple[float, HeartbeatResponse]:
        if self._registration is None:
            self._registration = await self._register()
        adopted = dict(self._adopted)
        stored = [] if self.overlay is None else self.overlay.complete_topics
        sent = self.clock()
        duties = await self.client.heartbeat(HeartbeatRequest(*self.load(), adopted, self._forgot, stored))
        self._adopted = dict(self._adopted.items() - adopted.items())
        return sent, duties

    async def _register(self) -> RegisteredBroker:
        store = await asyncio.to_thread(self.store.get_meta, "coordinator")
        try:
            registration = await self.client.register(self.endpoint, store)
        except DuplicateBroker as error:
            self._raise_duplicate(error)
        except CoordinatorUnavailable:
            self._duplicate_since = None
            raise
        self._duplicate_since = None
        if registration.store and not store:
            await asyncio.to_thread(self.store.set_meta, "coordinator", registration.store)
        if registration.keys is not None:
            keys = msgspec.json.encode(registration.keys).decode()
            await asyncio.to_thread(self.store.set_meta, "keys", keys)
            self.set_keys(registration.keys)
        self.client.is_registered = True
        self._lease_s = registration.lease_s
        # The coordinator needs the local changes first: otherwise a change that it does not have yet looks like
        # one that another broker has undone.
        await self.changes.flush()
        await self.moves.retain_only(registration.subscribers, registration.held, registration.serial)
        self._fetch_adopted(registration.subscribers)
        self._apply_overlay(registration.overlay)
        logger.info("registered at the coordinator")
        return registration

    def _raise_duplicate(self, error: DuplicateBroker) -> None:
        """Raise IncarnationSuperseded if another process of this name keeps a lease, else CoordinatorUnavailable.

        The other process may be this broker before it lost its data folder, so its lease gets the time to expire.
        """
        now = self.clock()
        if self._duplicate_since is None:
            self._duplicate_since = now
        was_registered = self._lease_s > 0
        if was_registered or now - self._duplicate_since > self.limits.duplicate_leases * error.lease_s:
            raise IncarnationSuperseded(str(error))
        raise error

    def _apply_overlay(self, overlay: OverlayDuties | None) -> None:
        if overlay is not None and self.overlay is not None:
            self.overlay.configure(overlay)

    # Records of subscribers.

    async def is_stale(self, name: str, epoch: int) -> bool | None:
        """Return whether a subscriber was at another broker since the epoch of its record; None if unknown.

        Callers that wait while a call is under way share the next one.
        """
        if not self.client.is_up:
            return None
        return await self._stale_checks.submit((name, epoch))

    async def _check(self, checks: list[tuple[str, int]]) -> list[bool | None]:
        epochs = dict(checks)
        stale: set[str] | None = None
        try:
            stale = await self.client.stale_records(epochs, self.limits.replication_s)
        except NotRegistered:
            stale = set(epochs)
        except NewsstandError as error:
            logger.warning("records could not be checked: %s", error)
            self.client.is_up = False
        except Exception:
            logger.exception("records could not be checked")
        # Of two records of a subscriber, the earlier one is stale.
        return [epoch != epochs[name] or (None if stale is None else name in stale) for name, epoch in checks]

    async def take(self, name: str, session: str | None = None) -> bool:
        """Move a subscriber to this broker and adopt its record; return whether it exists.

        With a session that has ended, the subscriber stays where it is, and the result is False.
        """
        return await self._takes.submit((name, session))

    async def _take(self, requests: list[tuple[str, str | None]]) -> list[bool | Exception]:
        unconditional = {name for name, session in requests if session is None}
        sessions: dict[str, set[str]] = defaultdict(set)
        for name, session in requests:
            if session is not None and name not in unconditional:
                sessions[name].add(session)
        try:
            existing, rejected = await self._adopt_from_coordinator(list(dict(requests)), sessions)
        except NewsstandError:
            raise
        except Exception as error:
            raise CoordinatorUnavailable("unexpected response") from error
        fault = CoordinatorUnavailable("this broker accepts no subscribers; ask the coordinator for another")
        return [fault if name in rejected else name in existing for name, _ in requests]

    async def _adopt_from_coordinator(
        self, names: Sequence[str], sessions: Mapping[str, Collection[str]] | None = None
    ) -> tuple[set[str], set[str]]:
        """Take subscribers; return those that exist, and those that must not be taken."""
        async with self.changes.exchange:
            await self.changes.flush_locked()
            found = await self.client.find(names, True, sessions)
            await self.moves.adopt(list(found.subscribers.values()))
            self._adopted |= found.handovers
        return set(found.subscribers), set(found.elsewhere)

    def _fetch_adopted(self, names: Sequence[str]) -> None:
        """Adopt subscribers in the background, without those whose records have arrived since."""
        missing = [name for name in names if name not in self._adopted]
        if missing and (self._fetching is None or self._fetching.done()):
            self._fetching = asyncio.create_task(self._fetch(missing))

    async def _fetch(self, names: Sequence[str]) -> None:
        try:
            await self._adopt_from_coordinator(names)
        except NewsstandError as error:
            logger.warning("subscribers could not be adopted: %s", error)
        except Exception:
            logger.exception("subscribers could not be adopted")
