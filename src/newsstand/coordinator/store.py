"""The contract of the coordinator's durable store.

When a method that changes something returns, the change is on the disk, whole; when it raises, nothing is changed.
Brokers are told of moves by *handovers*: for each broker the names that it has to `adopt` and those that have
`moved` away from it, kept until the broker confirms them. Each has a serial number, so that the confirmation of an
earlier handover of the same name confirms nothing. A subscriber that has moved is *held* by its old home until the
new one has confirmed the adoption: otherwise nobody would follow its streams in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol

from newsstand.coordinator.records import Account, Applied, BrokerRecord, Change, Move, Record, Storages, Tree
from newsstand.errors import NewsstandError
from newsstand.planning.places import Place

Kind = Literal["adopt", "moved"]


class Taken(NewsstandError):
    """A subscriber of that name exists."""


class OutOfDate(NewsstandError):
    """A broker changes an account whose newest record it does not have."""


class NotHome(NewsstandError):
    """A broker acts for a subscriber that is at home elsewhere."""


class Store(Protocol):
    """Brokers and their overlay, subscribers, their homes, and handovers."""

    identity: str
    """Made with the store: by this brokers know whether it is still the one that they told everything."""

    def brokers(self) -> list[BrokerRecord]:
        """Every broker that is known."""
        ...

    def keep_broker(self, broker: BrokerRecord) -> None:
        """Add a broker, or replace what is known of it."""
        ...

    def drop_broker(self, name: str) -> None:
        """Forget a broker; the homes of its subscribers stay until they are moved."""
        ...

    def tree(self) -> Tree:
        """The tree that was kept last; one without links, of version 0, if none was."""
        ...

    def keep_tree(self, tree: Tree) -> None:
        """Put a tree in the place of the last."""
        ...

    def storages(self) -> tuple[int, dict[str, Storages]]:
        """The version of the placement, 0 if there was none, and the storages of every topic that has any."""
        ...

    def keep_storages(self, version: int, changes: Mapping[str, Storages]) -> None:
        """Replace the storages of some topics; one that has none any more is forgotten."""
        ...

    def count_homes(self) -> dict[str, int]:
        """How many subscribers have their home at each broker that has any."""
        ...

    def homes(self, broker: str) -> list[str]:
        """The names of the subscribers whose home a broker is, in order."""
        ...

    def places(self, broker: str) -> list[tuple[str, Place]]:
        """The same with the places that they asked from last, in order."""
        ...

    def home(self, subscriber: str) -> tuple[str, Place] | None:
        """The home of a subscriber and the place that it asked from last; None if nobody has that name."""
        ...

    def owners(self, names: Collection[str]) -> dict[str, tuple[str, int]]:
        """The home of each of some subscribers, those that exist, and since which epoch it is that."""
        ...

    def homes_of(self, names: Collection[str]) -> dict[str, str]:
        """The home of each of some subscribers, those that exist."""
        ...

    def keep_place(self, subscriber: str, place: Place) -> None:
        """Remember where a subscriber asked from."""
        ...

    def add_subscriber(self, name: str, hash_: str, home: str) -> bool:
        """Add a subscriber; whether it was added now. The same one again is no harm; raise Taken for another."""
        ...

    def records(self, names: Collection[str]) -> dict[str, Record]:
        """Subscribers as brokers are told of them, those that exist."""
        ...

    def accounts(self, after: str, limit: int) -> list[Account]:
        """Accounts in the order of their names, after a name."""
        ...

    def account(self, name: str) -> Account | None:
        """One account; None if nobody has that name."""
        ...

    def is_disabled(self, name: str) -> bool:
        """Whether an account is disabled."""
        ...

    def change_account(self, name: str, *, disabled: bool | None = None, hash_: str | None = None) -> None:
        """Disable or enable an account; with a hash, replace the password and end all sessions.

        The account gets a new epoch: the record of its home is out of date, and the home is to adopt it again.
        """
        ...

    def set_hash(self, name: str, hash_: str, epoch: int) -> bool:
        """Replace the hash of a subscriber's password; False if its record is of another epoch."""
        ...

    def delete_subscriber(self, name: str) -> str | None:
        """Delete a subscriber with all that is its own; its home, None if nobody has that name."""
        ...

    def has_ended(self, subscriber: str, session: str) -> bool:
        """Whether a session was ended before it expired."""
        ...

    def reads(self, broker: str, names: Collection[str]) -> dict[str, int]:
        """A broker reads records of its own; the serial numbers of those among them that it is to adopt."""
        ...

    def unread(self, broker: str) -> dict[str, str]:
        """Subscribers whose home a broker is and that it never read, with the broker that kept them last."""
        ...

    def move(self, moves: Sequence[Move], told: Collection[str], takes: bool) -> int:
        """Give subscribers new homes; the serial number of the handovers. Old homes in `told` are told.

        New homes have to confirm; one that `takes` reads the records at once.
        """
        ...

    def newest(self) -> int:
        """The serial number of the newest handover."""
        ...

    def handovers(self, broker: str, kind: Kind, most: int, released: int | None = None) -> dict[str, int]:
        """What a broker is to be told, oldest first: names with serial numbers.

        With `released`, moves with a higher number than that are left out as long as they are held.
        """
        ...

    def held(self, broker: str, released: int) -> list[str]:
        """Subscribers that have left a broker, and that no other broker has confirmed; `released` as above."""
        ...

    def confirm(self, broker: str, kind: Kind, serials: Mapping[str, int]) -> None:
        """A broker has done what it was told; where the serial number is another one by now, it has not."""
        ...

    def apply(self, broker: str, changes: Sequence[Change], released: int) -> Applied:
        """Apply a broker's changes, in order; `released` as in `handovers`.

        A subscriber that has left the broker is still its own until the new home has read the record. After that
        a change comes *late*: it was made and answered before the broker heard of the move, so what can be
        applied is, and the present home is to adopt the subscriber again, to catch up.
        """
        ...

    def check(self) -> None:
        """Raise if the store does not answer."""
        ...

    def close(self) -> None:
        """Nothing is asked of it any more."""
        ...
