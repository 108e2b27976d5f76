"""Requests of brokers to the coordinator, and its responses, with their part of the overlay."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from newsstand.auth.credentials import SharedKeys
from newsstand.config.types import Latitude, Longitude
from newsstand.model import OpportunisticPolicy
from newsstand.wire.subscribers import Count, Id, Name, SubscriberRecord

BrokerPhase = Literal["up", "draining", "dead"]
DEFAULT_CAPACITY = 10_000
"""Connections that a broker can serve, unless it registers another number."""
MOST_NAMES = 5_000
"""Names in one lookup, and of each kind in the response to one heartbeat."""
Node = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class RegisterBroker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The URL, location and capacity of a broker."""

    url: Annotated[str, msgspec.Meta(max_length=2048)]
    lat: Latitude | None = None
    lon: Longitude | None = None
    node: Node | None = None
    capacity: Annotated[float, msgspec.Meta(ge=1, le=1e12)] = DEFAULT_CAPACITY
    store: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None
    """The store of the coordinator that it belongs to, if it knows one."""
    instance: Annotated[str, msgspec.Meta(max_length=128)] = ""
    """The process: the identity of its data folder, the number of its start, and chance, with dots."""


class RegisteredBroker(msgspec.Struct):
    """The response to the registration of a broker."""

    lease_s: float
    heartbeat_s: float
    subscribers: Annotated[list[str], Meta(description="its subscribers")]
    held: Annotated[
        list[str],
        Meta(description="subscribers that have left it; it follows their streams until they are in `moved`"),
    ]
    serial: Annotated[
        int,
        Meta(description="of the last move: a record of a later epoch is of a subscriber that moved after it"),
    ]
    state: BrokerPhase
    store: Annotated[
        str, Meta(description="the identity of the coordinator's store: another store has other assignments")
    ]
    overlay: OverlayDuties
    keys: SharedKeys | None = None


class HeartbeatRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a broker, and the handovers that it confirms."""

    connections: Count
    subscribers: Count
    adopted: dict[Name, Count] = {}
    """Subscribers that it has looked up and follows, with the handovers of that response."""
    forgot: dict[Name, Count] = {}
    """Subscribers in `moved` that it has forgotten, with their numbers."""
    stored: list[str] = []
    """The topics that it stores completely."""


class HeartbeatResponse(msgspec.Struct):
    """The response to a heartbeat."""

    lease_s: float
    state: BrokerPhase
    adopt: Annotated[list[str], Meta(description="subscribers that are assigned to it now")]
    moved: Annotated[
        dict[str, int],
        Meta(description="subscribers that have left the broker, with the numbers of their moves"),
    ]
    overlay: OverlayDuties


class LeaveResponse(msgspec.Struct):
    """The number of subscribers that were moved from a broker that left."""

    name: str
    moved: int


class LookupRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Subscribers that a broker looks up, or takes over."""

    broker: Name
    names: Annotated[list[Name], msgspec.Meta(max_length=MOST_NAMES)]
    take: bool = False
    sessions: dict[Name, list[Id]] = {}
    """Sessions of subscribers that are taken only if one of them has not ended; others are taken anyway."""


class LookupResponse(msgspec.Struct):
    """Subscribers by name; those that do not exist are not in it."""

    subscribers: dict[str, SubscriberRecord]
    elsewhere: Annotated[
        list[str], Meta(description="subscribers that the broker asked to take, and must not retain")
    ]
    handovers: Annotated[
        dict[str, int], Meta(description="what the broker confirms in `adopted` when it follows them")
    ]


class StaleRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Subscribers, and the epochs of the records that a broker has of them."""

    epochs: Annotated[dict[Name, Count], msgspec.Meta(max_length=MOST_NAMES)]


class StaleResponse(msgspec.Struct):
    """Which records are out of date."""

    stale: list[str]


class NewSubscriber(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A subscriber that registered at a broker."""

    name: Name
    hash: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    broker: Name
    client: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The address from which it registered; registrations by operators have none."""


class NewHash(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hash of another password."""

    hash: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    epoch: int
    """The epoch of the record that the broker has: an operator may have reset the password since."""


class AddedSubscriber(msgspec.Struct):
    """A subscriber that was added."""

    name: str
    epoch: Annotated[int, Meta(description="of its assignment to the broker; rises with every move")]


class ChangesResponse(msgspec.Struct):
    """The effect of changes: the number of applied ones, and subscribers that other brokers have."""

    applied: int
    moved: Annotated[list[str], Meta(description="subscribers that another broker has by now: forget them")]
    late: Annotated[
        list[str],
        Meta(
            description="subscribers of other brokers: their changes were applied as far as they undo nothing "
            "newer, and the broker must not confirm them to its clients"
        ),
    ]
    serial: Annotated[
        int,
        Meta(description="of this call: a listed subscriber with a record of a later epoch has come back since"),
    ]


class Neighbour(msgspec.Struct, frozen=True):
    """A neighbour in the tree of brokers, and its URL."""

    name: str
    url: str


class StorageDuties(msgspec.Struct, frozen=True):
    """The topics that a broker has to store."""

    version: int = 0
    topics: list[str] = []


class OpportunisticCaching(msgspec.Struct, frozen=True):
    """How a broker caches messages of topics without storages."""

    policy: Annotated[str, Meta(description="caching, request and priority, such as sel-sub-prt")] = str(
        OpportunisticPolicy()
    )
    slots: Annotated[int, Meta(description="messages that it caches at most; 0 for none")] = 0


class OverlayDuties(msgspec.Struct, frozen=True):
    """The part of the overlay that concerns one broker."""

    version: Annotated[int, Meta(description="of the tree; it rises with every change")] = 0
    links: Annotated[list[Neighbour], Meta(description="its neighbours in the tree")] = []
    storage: StorageDuties = msgspec.field(default_factory=StorageDuties)
    opportunistic: OpportunisticCaching = msgspec.field(default_factory=OpportunisticCaching)
    """Without it, from an older coordinator, a broker caches nothing and queries no neighbour."""


class TopicStorages(msgspec.Struct, frozen=True):
    """The storages of a topic."""

    wanted: list[str]
    complete: Annotated[list[str], Meta(description="those that store its whole history")]
    leaving: Annotated[list[str], Meta(description="those that store it until it has moved")]


class OverlayInfo(msgspec.Struct, frozen=True):
    """The tree of brokers, and the storages of topics."""

    version: int
    links: list[tuple[str, str]]
    brokers: list[str]
    storages: dict[str, TopicStorages]
    placement: Annotated[str, Meta(description="the version of the wanted storages, for `If-Match`")]
    settled: Annotated[bool, Meta(description="whether every topic is where it is wanted, and nowhere else")]
