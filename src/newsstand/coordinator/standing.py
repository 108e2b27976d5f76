"""How a broker stands with the coordinator, and what the two tell each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from newsstand.coordinator.records import BrokerRecord, Record
from newsstand.errors import NotFound
from newsstand.model import OPPORTUNISTIC_SLOTS, OpportunisticPolicy
from newsstand.planning.places import Place

State = Literal["up", "draining", "dead"]
Reason = Literal["dead", "draining", "left", "took", "asked"]
"""Why a subscriber got a new home."""


@dataclass
class Standing:
    """A broker that is known, and what it told of itself. It is a candidate of `choosing`."""

    record: BrokerRecord
    heard: float
    homes: int = 0
    connections: int = 0
    subscribers: int = 0
    coming: int = 0
    """Those sent to it of late, who may not be among its connections yet: half of them fewer at each heartbeat."""
    took: set[str] = field(default_factory=set)
    """Those whom it took since its last heartbeat: it knows, and gets the time to confirm."""

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def place(self) -> Place:
        return self.record.place

    @property
    def state(self) -> State:
        return "dead" if self.record.dead else "draining" if self.record.draining else "up"

    @property
    def load(self) -> tuple[float, float]:
        capacity = self.record.capacity
        return ((self.connections + self.coming) / capacity, self.homes / capacity)


class Brokers(dict[str, Standing]):
    """Every broker that is known, by name."""

    def known(self, name: str) -> Standing:
        """A broker; NotFound if there is none of that name."""
        if name not in self:
            raise NotFound(f"no broker '{name}' is registered")
        return self[name]

    def alive(self, name: str) -> Standing:
        """A broker that has a lease; NotFound if it has to register first."""
        broker = self.known(name)
        if broker.state == "dead":
            raise NotFound(f"broker '{name}' was not heard of for a lease and counts as dead: register again")
        return broker

    def up(self) -> list[Standing]:
        """Those that subscribers can be sent to."""
        return [one for one in self.values() if one.state == "up"]

    def living(self) -> dict[str, Place]:
        """Those that are up or in maintenance, and where they are."""
        return {name: one.place for name, one in self.items() if one.state != "dead"}


@dataclass(frozen=True)
class Registered:
    """What a broker is told when it registers: its state, and the subscribers whose home it is, all of them.

    Those in `held` have left it, and no other broker follows their streams yet: it goes on following them.
    """

    state: State
    homes: list[str]
    held: list[str]
    serial: int
    """Of the last move: a record of a later epoch is of a subscriber that came after this was answered."""


@dataclass(frozen=True)
class Report:
    """What a broker tells with a heartbeat: whom it has adopted and forgotten, by the numbers of the handovers."""

    connections: int
    subscribers: int
    adopted: Mapping[str, int] = field(default_factory=dict)
    forgot: Mapping[str, int] = field(default_factory=dict)
    stored: Sequence[str] = ()
    """The topics that it keeps whole."""


@dataclass(frozen=True)
class Address:
    """A broker, and where it is reached."""

    name: str
    url: str


@dataclass(frozen=True)
class StorageTold:
    """The topics that a broker has to keep."""

    version: int
    topics: list[str]


@dataclass(frozen=True)
class Opportunistic:
    """How all brokers cache what passes: by an opportunistic policy, in so many slots; without any they do not."""

    policy: str = str(OpportunisticPolicy())
    slots: int = OPPORTUNISTIC_SLOTS


@dataclass(frozen=True)
class OverlayTold:
    """What a broker is told of the overlay: its neighbours in the tree, its topics, and how it caches."""

    version: int
    links: list[Address]
    storage: StorageTold
    opportunistic: Opportunistic


@dataclass(frozen=True)
class Told:
    """What a broker is told with the answer to a heartbeat."""

    state: State
    adopt: list[str]
    moved: dict[str, int]
    overlay: OverlayTold


@dataclass(frozen=True)
class Found:
    """What a broker that looked subscribers up is told; `elsewhere` are those it wanted to have and cannot.

    `handovers` are the numbers by which the broker confirms what it has read here, and nothing newer.
    """

    records: Mapping[str, Record]
    elsewhere: list[str] = field(default_factory=list)
    handovers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Chosen:
    """The broker for a subscriber; `sticky` if it was its home before."""

    broker: BrokerRecord
    sticky: bool
