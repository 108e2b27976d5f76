"""The coordinator without sockets and clocks: registrations, leases, assignments, moves and maintenance.

Every subscriber is assigned to one broker, which has its state. When that broker is not up, the selection strategy
gives its subscribers new brokers, all in one transaction. While no broker is up, and for one lease after the first
one is, assignments do not change, so a restarted platform finds all subscribers where they were. Leases use the
time that calls bring: `now`, in seconds of any clock that only rises. Everything else is in the store before a
call returns, so a restarted coordinator continues where it was.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from newsstand.config.settings import SubscriberLimits
from newsstand.coordinator.model import BrokerRecord, StaleAccount, SubscriberMove, WrongBroker
from newsstand.coordinator.overlay import DEFAULT_DEGREE, OverlayController
from newsstand.coordinator.registry import (
    STRATEGIES,
    BrokerChoice,
    BrokerRegistry,
    BrokerState,
    HandoverQueue,
    LeaseLimits,
    Reason,
    SelectionContext,
)
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.errors import Duplicate, NotFound
from newsstand.geo.location import UNKNOWN, Location
from newsstand.model import OPPORTUNISTIC_SLOTS, is_earlier_start, is_same_folder
from newsstand.wire.coordination import (
    BrokerPhase,
    ChangesResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    LookupResponse,
    OpportunisticCaching,
    RegisteredBroker,
)
from newsstand.wire.subscribers import SubscriberAccount, SubscriberChange

logger = logging.getLogger(__name__)


class Coordinator:
    """The coordinator over a store. It is not thread-safe: the caller serializes calls."""

    def __init__(
        self,
        store: CoordinatorStore,
        context: SelectionContext,
        now: float,
        *,
        policy: str = "nearest",
        leases: LeaseLimits = LeaseLimits(),  # noqa: B008
        overlay_degree: int = DEFAULT_DEGREE,
        opportunistic: OpportunisticCaching = OpportunisticCaching(slots=OPPORTUNISTIC_SLOTS),  # noqa: B008
        limits: SubscriberLimits = SubscriberLimits(),  # noqa: B008  it is frozen
        on_moved: Callable[[Reason, int], None] = lambda reason, count: None,
    ) -> None:
        self.store = store
        self.identity = store.identity
        self._context = context
        self._policy = policy
        self._leases = leases
        self.lease_s = leases.lease_s
        self._on_moved = on_moved
        self.limits = limits
        self._brokers = BrokerRegistry((one.name, BrokerState(one, now)) for one in store.brokers())
        self._orphans: Counter[str] = Counter()
        """Subscribers of each broker that left while no other was up."""
        self._ticked = self._now = now
        self._settle_from: float | None = None
        """When subscribers of dead brokers may move: one lease after the first heartbeat."""
        self._handovers = HandoverQueue(store, now, leases)
        self.overlay = OverlayController(store, context.network, overlay_degree, self._brokers, opportunistic)
        for owner, count in store.count_subscribers().items():
            self._count(owner, count)

    # Brokers

    def register(self, broker: BrokerRecord, now: float) -> RegisteredBroker:
        """Register a broker, or renew its registration.

        Raise Duplicate while a process with another data folder has the name and a lease. A process with the same
        folder is the restarted broker, and takes the name over at once.
        """
        known = self._brokers.get(broker.name)
        if known is not None and known.state != "dead":
            record = known.record
            if is_earlier_start(broker.instance, record.instance):
                raise Duplicate(
                    f"broker '{broker.name}' was restarted by a newer process; stop this one", self.lease_s
                )
            if not is_same_folder(record.instance, broker.instance):
                raise Duplicate(
                    f"a broker named '{broker.name}' runs at {record.url}; give each broker a unique name",
                    self.lease_s,
                )
        draining = known is not None and known.record.draining
        record = replace(broker, draining=draining, dead=False)
        self.overlay.on_register(record)
        if known is None or known.record != record:
            self.store.put_broker(record)
        if known is None:
            known = self._brokers[broker.name] = BrokerState(
                record, now, assigned=self._orphans.pop(broker.name, 0)
            )
        known.record = record
        self._renew_lease(known, now)
        self.overlay.repair()
        self._settle()
        names = self.store.subscribers_of(broker.name)
        held = self.store.held(broker.name, self._handovers.released)
        return RegisteredBroker(
            self.lease_s,
            self.lease_s / 3,
            names,
            held,
            self.store.newest_serial(),
            known.state,
            self.identity,
            self.overlay.duties_of(broker.name),
        )

    def require_instance(self, name: str, instance: str) -> None:
        """Raise Duplicate if another process has registered under a broker's name."""
        known = self._brokers.get(name)
        if known is not None and known.record.instance != instance:
            raise Duplicate(
                f"another process has registered as broker '{name}', at {known.record.url}; stop this one",
                self.lease_s,
            )

    def heartbeat(self, name: str, report: HeartbeatRequest, now: float) -> HeartbeatResponse:
        """Renew a lease and return the broker's duties, until it confirms them; raise NotFound without a lease."""
        broker = self._brokers.alive(name)
        self._renew_lease(broker, now)
        broker.connections, broker.subscribers = report.connections, report.subscribers
        broker.expected_arrivals //= 2
        self._handovers.confirm(broker, "adopt", report.adopted)
        self._handovers.confirm(broker, "moved", report.forgot)
        adopt, moved = self._handovers.adoptions_for(broker), self._handovers.departures_for(broker)
        return HeartbeatResponse(
            self.lease_s, broker.state, adopt, moved, self.overlay.report(name, report.stored)
        )

    def leave(self, name: str) -> int:
        """Remove a broker; return the number of subscribers that moved."""
        broker = self._brokers.known(name)
        self.store.remove_broker(name)
        del self._brokers[name]
        self._count(name, broker.assigned)
        self.overlay.repair()
        return self._settle({name: "left"}, {name: broker.place})

    def set_draining(self, name: str, draining: bool) -> tuple[BrokerPhase, int]:
        """Begin maintenance, which moves a broker's subscribers away, or end it; return state and moves."""
        broker = self._brokers.known(name)
        record = replace(broker.record, draining=draining)
        if record != broker.record:
            self.store.put_broker(record)
            broker.record = record
        moved = self._settle()
        return broker.state, moved

    def brokers(self) -> list[BrokerState]:
        """Return all known brokers, by name."""
        return [self._brokers[name] for name in sorted(self._brokers)]

    def tick(self, now: float) -> int:
        """Detect dead brokers, and move subscribers off brokers that are not up; return the number of moves.

        The caller ticks several times per lease. After a longer gap, the coordinator itself was suspended and
        received no heartbeats: every broker gets one more lease.
        """
        was_away = now - self._ticked > self.lease_s / 2
        self._ticked = now
        self._advance_clock(now)
        if was_away:
            self._settle_from = None
        for broker in list(self._brokers.values()):
            if broker.record.dead:
                if not broker.assigned and now - broker.last_heard > self._leases.forgotten_after_s:
                    self.store.remove_broker(broker.name)
                    del self._brokers[broker.name]
            elif was_away:
                broker.last_heard = now
            elif now - broker.last_heard > self.lease_s:
                record = replace(broker.record, dead=True)
                self.store.put_broker(record)
                self._brokers[broker.name] = BrokerState(record, now, assigned=broker.assigned)
                fields = {
                    "broker": broker.name,
                    "silent_s": round(now - broker.last_heard, 1),
                    "assigned": broker.assigned,
                }
                logger.warning("broker is dead", extra={"fields": fields})
        self.overlay.repair()
        return self._settle()

    @property
    def unserved(self) -> int:
        """The number of subscribers whose broker is not up."""
        return self._orphans.total() + sum(one.assigned for one in self._brokers.values() if one.state != "up")

    @property
    def subscribers(self) -> int:
        """The number of subscribers."""
        return self._orphans.total() + sum(one.assigned for one in self._brokers.values())

    # Subscribers

    def broker_for(
        self, subscriber: str | None, place: Location, policy: str | None = None
    ) -> BrokerChoice | None:
        """Return a subscriber's broker if it is up; otherwise select another one, and assign it.

        An unknown subscriber gets a selected broker. Return None while no broker is up.
        """
        found = self.store.assignment(subscriber) if subscriber is not None else None
        if subscriber is not None and found is not None:
            if place.known and place != found[1]:
                self.store.set_location(subscriber, place)
            owner = self._brokers.get(found[0])
            if owner is not None and owner.state == "up":
                return BrokerChoice(owner.record, True)
            last = found[1] if found[1].known or owner is None else owner.place
            place = place if place.known else last
        up = self._brokers.up()
        if not up:
            return None
        chosen = self._choose(up, place, policy)
        if subscriber is not None and found is not None:
            self._move([SubscriberMove(subscriber, found[0], chosen.name)], "asked")
        return BrokerChoice(chosen.record, False)

    def add_subscriber(self, name: str, hash_: str, broker: str) -> int:
        """Add a subscriber at its broker; return its epoch. Raise SubscriberExists or LimitReached."""
        self._brokers.known(broker)
        if self.store.assignment(name) is None:
            self.limits.require("accounts", self.subscribers, "accounts")
        if self.store.add_subscriber(name, hash_, broker):
            self._count(broker, 1)
        return self.store.owners([name])[name][1]

    def set_hash(self, name: str, hash_: str, epoch: int) -> None:
        """Replace the hash of a password; raise StaleAccount if its broker has a record of another epoch."""
        self.account(name)
        if not self.store.set_hash(name, hash_, epoch):
            raise StaleAccount(f"the account '{name}' was changed since epoch {epoch}; read its record again")

    def account(self, name: str) -> SubscriberAccount:
        """Return one account; raise NotFound."""
        account = self.store.account(name)
        if account is None:
            raise NotFound(f"there is no subscriber '{name}'")
        return account

    def set_disabled(self, name: str, disabled: bool) -> SubscriberAccount:
        """Disable or enable an account; its broker learns of it by the next heartbeat. Raise NotFound."""
        if self.account(name).state != ("disabled" if disabled else "active"):
            self.store.change_account(name, disabled=disabled)
        return self.account(name)

    def reset_password(self, name: str, hash_: str) -> None:
        """Replace a subscriber's password and end its sessions; raise NotFound."""
        self.account(name)
        self.store.change_account(name, hash_=hash_)

    def delete_subscriber(self, name: str) -> None:
        """Remove a subscriber; raise NotFound."""
        self.account(name)
        owner = self.store.delete_subscriber(name)
        if owner is not None:
            self._count(owner, -1)

    def require_owner(self, broker: str, name: str) -> None:
        """Raise NotFound for an unknown subscriber, WrongBroker if it belongs to another one."""
        owner = self.store.assignment(name)
        if owner is None:
            raise NotFound(f"there is no subscriber '{name}'")
        if owner[0] != broker:
            raise WrongBroker(f"broker '{broker}' does not have subscriber '{name}'")

    def lookup(
        self,
        broker: str,
        names: Collection[str],
        take: bool,
        sessions: Mapping[str, Collection[str]] = {},
    ) -> LookupResponse:
        """Return the records of existing subscribers; with `take`, assign them to the broker.

        A draining broker takes no subscriber and reads only its own. Without `take`, nothing changes. A subscriber
        in `sessions` is skipped unless one of these sessions exists: a revoked token moves no subscriber.
        """
        if not take:
            self._brokers.known(broker)
            return LookupResponse(self.store.records(names), [], {})
        asking = self._brokers.alive(broker)
        if sessions:
            names = self._with_session(names, sessions)
        owners = self.store.brokers_of(names)
        elsewhere = [name for name, owner in owners.items() if owner != broker]
        if asking.state == "up":
            self._move([SubscriberMove(name, owners[name], broker) for name in elsewhere], "took", takes=True)
            asking.recently_taken.update(elsewhere)
            elsewhere = []
        own = owners.keys() - set(elsewhere)
        handovers = self.store.mark_read(broker, own)
        return LookupResponse(self.store.records(own), elsewhere, handovers)

    def stale(self, broker: str, epochs: Mapping[str, int]) -> list[str]:
        """Return the subscribers that another broker has, or had since the given epoch."""
        self._brokers.alive(broker)
        owners = self.store.owners(epochs.keys())
        return [name for name, epoch in epochs.items() if owners.get(name) != (broker, epoch)]

    def _with_session(self, names: Collection[str], sessions: Mapping[str, Collection[str]]) -> list[str]:
        records = self.store.records([name for name in names if name in sessions])
        known = {name: record.sessions for name, record in records.items()}
        return [
            name
            for name in names
            if name not in sessions or any(sid in known.get(name, {}) for sid in sessions[name])
        ]

    def change(self, broker: str, changes: Sequence[SubscriberChange]) -> ChangesResponse:
        """Apply a broker's changes to its subscribers; see `CoordinatorStore.apply`."""
        self._brokers.known(broker)
        return self.store.apply(broker, changes, self._handovers.released)

    # Assignments

    def _settle(
        self, reasons: Mapping[str, Reason] | None = None, places: Mapping[str, Location] | None = None
    ) -> int:
        """Move subscribers off brokers that are not up, if a broker is and the wait is over; return their number.

        Subscribers of a broker in `reasons`, or of a draining one, do not wait: their broker does not come back.
        """
        up = self._brokers.up()
        if not up:
            self._settle_from = None
            self._return_unread()
            return 0
        count = 0
        reasons = reasons or {}
        for owner in self._unsettled():
            if self._may_come_back(owner) and owner not in reasons:
                continue
            broker = self._brokers.get(owner)
            near = (places or {}).get(owner, UNKNOWN) if broker is None else broker.place
            moves = []
            for name, place in self.store.locations(owner):
                chosen = self._choose(up, place if place.known else near)
                moves.append(SubscriberMove(name, owner, chosen.name))
            reason: Reason = "draining" if broker is not None and broker.state == "draining" else "dead"
            self._move(moves, reasons.get(owner, reason))
            count += len(moves)
        return count

    def _unsettled(self) -> list[str]:
        """Return the brokers that are not up."""
        down = [name for name, one in self._brokers.items() if one.state != "up" and one.assigned]
        return [*down, *self._orphans]

    def _may_come_back(self, owner: str) -> bool:
        """Return whether a dead broker still has time to come back."""
        if owner in self._brokers and self._brokers[owner].state == "draining":
            return False
        return self._settle_from is None or self._now < self._settle_from

    def _return_unread(self) -> None:
        """Return subscribers that a dead broker has never read to their last broker, while no broker is up."""
        for owner in self._unsettled():
            if owner not in self._brokers or self._brokers[owner].state == "dead":
                moves = [SubscriberMove(name, owner, last) for name, last in self.store.unread(owner).items()]
                self._move(moves, "dead")

    def _move(self, moves: Sequence[SubscriberMove], reason: Reason, takes: bool = False) -> None:
        if not moves:
            return
        self._handovers.add(self.store.move(moves, self._brokers.keys(), takes), self._now)
        for owner, count in Counter(move.old for move in moves).items():
            self._count(owner, -count)
        for owner, count in Counter(move.new for move in moves).items():
            self._count(owner, count)
        self._on_moved(reason, len(moves))

    def _count(self, owner: str, more: int) -> None:
        if owner in self._brokers:
            self._brokers[owner].assigned += more
        else:
            self._orphans[owner] += more
            self._orphans += Counter()  # without those that are zero

    def _choose(self, up: Sequence[BrokerState], place: Location, policy: str | None = None) -> BrokerState:
        chosen = STRATEGIES[policy or self._policy](up, place, self._context)
        chosen.expected_arrivals += 1
        return chosen

    # Time

    def _renew_lease(self, broker: BrokerState, now: float) -> None:
        broker.last_heard = now
        self._advance_clock(now)
        if self._settle_from is None and broker.state == "up":
            self._settle_from = now + self.lease_s

    def _advance_clock(self, now: float) -> None:
        self._now = max(self._now, now)
        self._handovers.release(self._now)
