"""The coordinator without sockets and clocks: registrations, leases, homes, moves and maintenance.

Every subscriber has one *home*, the broker that keeps its state. A home that is not up loses its subscribers to
those that are, by the policy, all in one transaction. While no broker is up, homes stay as they are, and for one
lease after the first is up again, so that a platform that is started finds everybody where they were. Leases are
by the time that calls bring, `now`, in seconds from anywhere that only rises; everything else is in the store
before a call returns, so a coordinator that is started again over the same store knows what it knew.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from newsstand.coordinator.choosing import WAYS, Surroundings
from newsstand.coordinator.handing_over import HELD_S, HandingOver
from newsstand.coordinator.overlay import Overlay
from newsstand.coordinator.records import Account, Applied, BrokerRecord, Change, Move
from newsstand.coordinator.standing import (
    Brokers,
    Chosen,
    Found,
    Opportunistic,
    Reason,
    Registered,
    Report,
    Standing,
    State,
    Told,
)
from newsstand.coordinator.store import NotHome, OutOfDate, Store
from newsstand.coordinator.tree import DEFAULT_DEGREE
from newsstand.errors import Duplicate, NotFound
from newsstand.model import is_earlier_start, is_same_folder
from newsstand.planning.places import NOWHERE, Place
from newsstand.serving.limits import Limits

logger = logging.getLogger(__name__)

FORGOTTEN_AFTER_S = 86_400.0
"""How long a dead broker that is nobody's home is remembered."""


class Coordinator:
    """The coordinator over a store. Calls are made one after the other; the caller sees to that."""

    def __init__(
        self,
        store: Store,
        around: Surroundings,
        now: float,
        *,
        policy: str = "nearest",
        lease_s: float = 3.0,
        held_s: float = HELD_S,
        overlay_degree: int = DEFAULT_DEGREE,
        opportunistic: Opportunistic = Opportunistic(),  # noqa: B008  it is frozen
        limits: Limits = Limits(),  # noqa: B008  it is frozen
        moved: Callable[[Reason, int], None] = lambda reason, count: None,
    ) -> None:
        self._store = store
        self.identity = store.identity
        self._around = around
        self._policy = policy
        self.lease_s = lease_s
        self._tell_moved = moved
        self.limits = limits
        self._brokers = Brokers((one.name, Standing(one, now)) for one in store.brokers())
        self._orphans: Counter[str] = Counter()
        """Subscribers whose home is a broker that left while no other was up."""
        self._ticked = self._now = now
        self._settle_from: float | None = None
        """When those whose home is gone may be moved: one lease after the first broker is heard of."""
        self._handing = HandingOver(store, now, held_s)
        self.overlay = Overlay(store, around.network, overlay_degree, self._brokers, opportunistic)
        for home, count in store.count_homes().items():
            self._count(home, count)

    # Brokers

    def register(self, broker: BrokerRecord, now: float) -> Registered:
        """A broker is there, anew or still.

        Raise Duplicate while a process with another data folder has the name and a lease: the first one keeps
        the name. A process with the same folder is the broker started again, and takes the name over at once.
        """
        known = self._brokers.get(broker.name)
        if known is not None and known.state != "dead":
            record = known.record
            if is_earlier_start(broker.instance, record.instance):
                raise Duplicate(
                    f"broker '{broker.name}' was started again: this process has to stop", self.lease_s
                )
            if not is_same_folder(record.instance, broker.instance):
                raise Duplicate(
                    f"a broker named '{broker.name}' runs at {record.url}: give each broker a name of its own",
                    self.lease_s,
                )
        draining = known is not None and known.record.draining
        record = replace(broker, draining=draining, dead=False)
        self.overlay.registers(record)
        if known is None or known.record != record:
            self._store.keep_broker(record)
        if known is None:
            known = self._brokers[broker.name] = Standing(record, now, homes=self._orphans.pop(broker.name, 0))
        known.record = record
        self._hear(known, now)
        self.overlay.mend()
        self._settle()
        homes = self._store.homes(broker.name)
        held = self._store.held(broker.name, self._handing.released)
        return Registered(known.state, homes, held, self._store.newest())

    def require_instance(self, name: str, instance: str) -> None:
        """Raise Duplicate if a broker's name belongs to another process by now."""
        known = self._brokers.get(name)
        if known is not None and known.record.instance != instance:
            raise Duplicate(
                f"another process has registered as broker '{name}', at {known.record.url}: this one has to stop",
                self.lease_s,
            )

    def heartbeat(self, name: str, report: Report, now: float) -> Told:
        """A broker is alive: what it has to do, until it confirms; NotFound if it has to register first."""
        broker = self._brokers.alive(name)
        self._hear(broker, now)
        broker.connections, broker.subscribers = report.connections, report.subscribers
        broker.coming //= 2
        self._handing.confirm(broker, "adopt", report.adopted)
        self._handing.confirm(broker, "moved", report.forgot)
        adopt, moved = self._handing.tell_adopt(broker), self._handing.tell_moved(broker)
        return Told(broker.state, adopt, moved, self.overlay.report(name, report.stored))

    def leave(self, name: str) -> int:
        """A broker goes for good; how many subscribers were moved."""
        broker = self._brokers.known(name)
        self._store.drop_broker(name)
        del self._brokers[name]
        self._count(name, broker.homes)
        self.overlay.mend()
        return self._settle({name: "left"}, {name: broker.place})

    def drain(self, name: str) -> tuple[State, int]:
        """A broker gets no new subscribers, and those it has are moved; its state, and how many were moved."""
        return self._set_draining(name, True)

    def resume(self, name: str) -> tuple[State, int]:
        """The end of `drain`: the broker gets subscribers again."""
        return self._set_draining(name, False)

    def brokers(self) -> list[Standing]:
        """Every broker that is known, by name."""
        return [self._brokers[name] for name in sorted(self._brokers)]

    def tick(self, now: float) -> int:
        """Notice who is dead, and move subscribers off homes that are not up; how many were moved.

        To be called several times in a lease. If it was not, it is the coordinator that was away, and could hear
        nobody: then everybody gets one lease more.
        """
        was_away = now - self._ticked > self.lease_s / 2
        self._ticked = now
        self._pass(now)
        if was_away:
            self._settle_from = None
        for broker in list(self._brokers.values()):
            if broker.record.dead:
                if not broker.homes and now - broker.heard > FORGOTTEN_AFTER_S:
                    self._store.drop_broker(broker.name)
                    del self._brokers[broker.name]
            elif was_away:
                broker.heard = now
            elif now - broker.heard > self.lease_s:
                record = replace(broker.record, dead=True)
                self._store.keep_broker(record)
                self._brokers[broker.name] = Standing(record, now, homes=broker.homes)
                told = {"broker": broker.name, "silent_s": round(now - broker.heard, 1), "homes": broker.homes}
                logger.warning("a broker is dead", extra={"told": told})
        self.overlay.mend()
        return self._settle()

    @property
    def homeless(self) -> int:
        """Subscribers whose home is not up, because no broker is, or was a lease ago."""
        return self._orphans.total() + sum(one.homes for one in self._brokers.values() if one.state != "up")

    @property
    def subscribers(self) -> int:
        """All subscribers."""
        return self._orphans.total() + sum(one.homes for one in self._brokers.values())

    # Subscribers

    def broker_for(self, subscriber: str | None, place: Place, policy: str | None = None) -> Chosen | None:
        """The home of a subscriber, if it is up, and else the broker that the policy chooses and that becomes it.

        Somebody who is not known gets what the policy chooses; nobody gets anything while no broker is up.
        """
        found = self._store.home(subscriber) if subscriber is not None else None
        if subscriber is not None and found is not None:
            if place.known and place != found[1]:
                self._store.keep_place(subscriber, place)
            home = self._brokers.get(found[0])
            if home is not None and home.state == "up":
                return Chosen(home.record, True)
            place = place if place.known else self._place(found[1], home)
        up = self._brokers.up()
        if not up:
            return None
        chosen = self._choose(up, place, policy)
        chosen.coming += 1
        if subscriber is not None and found is not None:
            self._move([Move(subscriber, found[0], chosen.name)], "asked")
        return Chosen(chosen.record, False)

    def add_subscriber(self, name: str, hash_: str, broker: str) -> int:
        """A new subscriber, at home where it registered: its epoch; raise Taken, or LimitReached."""
        self._brokers.known(broker)
        if self._store.home(name) is None:
            self.limits.require("accounts", self.subscribers, "accounts")
        if self._store.add_subscriber(name, hash_, broker):
            self._count(broker, 1)
        return self._store.owners([name])[name][1]

    def set_hash(self, name: str, hash_: str, epoch: int) -> None:
        """A subscriber has another password; NotFound, or OutOfDate if its home has a record of another epoch."""
        self._require_subscriber(name)
        if not self._store.set_hash(name, hash_, epoch):
            raise OutOfDate(f"the account '{name}' was changed since epoch {epoch}; read its record again")

    def accounts(self, after: str, limit: int) -> list[Account]:
        """Accounts in the order of their names, after a name."""
        return self._store.accounts(after, limit)

    def account(self, name: str) -> Account:
        """One account; NotFound."""
        account = self._store.account(name)
        if account is None:
            raise NotFound(f"there is no subscriber '{name}'")
        return account

    def set_disabled(self, name: str, disabled: bool) -> Account:
        """Disable or enable an account; its home learns of it with its next heartbeat. NotFound."""
        if self.account(name).state != ("disabled" if disabled else "active"):
            self._store.change_account(name, disabled=disabled)
        return self.account(name)

    def reset_password(self, name: str, hash_: str) -> None:
        """Give a subscriber another password and end its sessions; NotFound."""
        self._require_subscriber(name)
        self._store.change_account(name, hash_=hash_)

    def is_disabled(self, name: str) -> bool:
        """Whether an operator has disabled the account of that name."""
        return self._store.is_disabled(name)

    def delete_subscriber(self, name: str) -> None:
        """A subscriber goes for good; NotFound."""
        self._require_subscriber(name)
        home = self._store.delete_subscriber(name)
        if home is not None:
            self._count(home, -1)

    def require_home(self, broker: str, name: str) -> None:
        """Raise NotFound if there is no such subscriber, NotHome if a broker is not its home."""
        home = self._store.home(name)
        if home is None:
            raise NotFound(f"there is no subscriber '{name}'")
        if home[0] != broker:
            raise NotHome(f"broker '{broker}' is not the home of subscriber '{name}'")

    def _require_subscriber(self, name: str) -> None:
        if self._store.home(name) is None:
            raise NotFound(f"there is no subscriber '{name}'")

    def is_revoked(self, subscriber: str, session: str) -> bool:
        """Whether a session was ended before its time: its tokens are good for nothing."""
        return self._store.has_ended(subscriber, session)

    def lookup(
        self,
        broker: str,
        names: Collection[str],
        take: bool,
        sessions: Mapping[str, Collection[str]] = {},
    ) -> Found:
        """The records of subscribers, those that exist; with `take` their home becomes the broker that asks.

        A broker that drains takes nobody, and reads only those that are its own. Without `take` nothing changes.
        Who is in `sessions` is passed over unless one of these sessions is known: a token that was revoked moves
        nobody.
        """
        if not take:
            self._brokers.known(broker)
            return Found(self._store.records(names))
        asking = self._brokers.alive(broker)
        if sessions:
            names = self._with_session(names, sessions)
        homes = self._store.homes_of(names)
        elsewhere = [name for name, home in homes.items() if home != broker]
        if asking.state == "up":
            self._move([Move(name, homes[name], broker) for name in elsewhere], "took", takes=True)
            asking.took.update(elsewhere)
            elsewhere = []
        own = homes.keys() - set(elsewhere)
        handovers = self._handing.read(asking, own)
        return Found(self._store.records(own), elsewhere, handovers)

    def stale(self, broker: str, epochs: Mapping[str, int]) -> list[str]:
        """Return those of some subscribers whose home is another broker, or was in between."""
        self._brokers.alive(broker)
        owners = self._store.owners(epochs.keys())
        return [name for name, epoch in epochs.items() if owners.get(name) != (broker, epoch)]

    def _with_session(self, names: Collection[str], sessions: Mapping[str, Collection[str]]) -> list[str]:
        records = self._store.records([name for name in names if name in sessions])
        known = {name: record["sessions"] for name, record in records.items()}
        return [
            name
            for name in names
            if name not in sessions or any(sid in known.get(name, {}) for sid in sessions[name])  # type: ignore[operator]
        ]

    def change(self, broker: str, changes: Sequence[Change]) -> Applied:
        """Changes that a broker tells of its subscribers; see `Store.apply`."""
        self._brokers.known(broker)
        return self._store.apply(broker, changes, self._handing.released)

    # Homes

    def _settle(
        self, reasons: Mapping[str, Reason] | None = None, places: Mapping[str, Place] | None = None
    ) -> int:
        """Move every subscriber whose home is not up, if any broker is and it is time; how many.

        Those with a home in `reasons`, or with one that drains, do not wait: their home is not coming back.
        """
        up = self._brokers.up()
        if not up:
            self._settle_from = None
            self._give_back()
            return 0
        count = 0
        reasons = reasons or {}
        for home in self._unsettled():
            if self._may_come_back(home) and home not in reasons:
                continue
            broker = self._brokers.get(home)
            near = (places or {}).get(home, NOWHERE) if broker is None else broker.place
            moves = []
            for name, place in self._store.places(home):
                chosen = self._choose(up, place if place.known else near)
                chosen.coming += 1
                moves.append(Move(name, home, chosen.name))
            reason: Reason = "draining" if broker is not None and broker.state == "draining" else "dead"
            self._move(moves, reasons.get(home, reason))
            count += len(moves)
        return count

    def _unsettled(self) -> list[str]:
        """Homes that are not up."""
        homes = [name for name, one in self._brokers.items() if one.state != "up" and one.homes]
        return [*homes, *self._orphans]

    def _may_come_back(self, home: str) -> bool:
        """Whether a home that is gone is given time yet."""
        if home in self._brokers and self._brokers[home].state == "draining":
            return False
        return self._settle_from is None or self._now < self._settle_from

    def _give_back(self) -> None:
        """Nobody is up: those whom a broker got, but never read before it was gone, go back to their last home."""
        for home in self._unsettled():
            if home not in self._brokers or self._brokers[home].state == "dead":
                moves = [Move(name, home, last) for name, last in self._store.unread(home).items()]
                self._move(moves, "dead")

    def _move(self, moves: Sequence[Move], reason: Reason, takes: bool = False) -> None:
        if not moves:
            return
        self._handing.began(self._store.move(moves, self._brokers.keys(), takes), self._now)
        for home, count in Counter(move.old for move in moves).items():
            self._count(home, -count)
        for home, count in Counter(move.new for move in moves).items():
            self._count(home, count)
        self._tell_moved(reason, len(moves))

    def _count(self, home: str, more: int) -> None:
        if home in self._brokers:
            self._brokers[home].homes += more
        else:
            self._orphans[home] += more
            self._orphans += Counter()  # without those that are zero

    def _choose(self, up: Sequence[Standing], place: Place, policy: str | None = None) -> Standing:
        chosen = WAYS[policy or self._policy](up, place, self._around)
        return self._brokers[chosen.name]

    def _place(self, asked: Place, home: Standing | None) -> Place:
        return asked if asked.known or home is None else home.place

    def _set_draining(self, name: str, draining: bool) -> tuple[State, int]:
        broker = self._brokers.known(name)
        record = replace(broker.record, draining=draining)
        if record != broker.record:
            self._store.keep_broker(record)
            broker.record = record
        moved = self._settle()
        return broker.state, moved

    # Time

    def _hear(self, broker: Standing, now: float) -> None:
        broker.heard = now
        self._pass(now)
        if self._settle_from is None and broker.state == "up":
            self._settle_from = now + self.lease_s

    def _pass(self, now: float) -> None:
        self._now = max(self._now, now)
        self._handing.wait(self._now)
