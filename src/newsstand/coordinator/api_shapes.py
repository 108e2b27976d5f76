"""The shapes of requests and answers of the coordinator's API, as they are read and as they are described."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import Path, Query
from pydantic import BaseModel, Field

from newsstand.coordinator.handing_over import MOST_TOLD
from newsstand.coordinator.records import DEFAULT_CAPACITY, KINDS, Id, Name
from newsstand.serving.described import schema_of

MOST_NAMES = MOST_TOLD
"""Names in one lookup."""

BrokerName = Annotated[str, Path(pattern=r"^[a-z][a-z0-9_-]{0,62}$", examples=["north"])]
Latitude = Annotated[float, msgspec.Meta(ge=-90, le=90)]
Longitude = Annotated[float, msgspec.Meta(ge=-180, le=180)]
Node = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
QueryLatitude = Annotated[float | None, Query(ge=-90, le=90, allow_inf_nan=False)]
QueryLongitude = Annotated[float | None, Query(ge=-180, le=180, allow_inf_nan=False)]
QueryNode = Annotated[str | None, Query(min_length=1, max_length=64)]
QueryPolicy = Literal["nearest", "hops", "miles", "random", "least-loaded"] | None


class Registration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a broker is, and how many connections it is good for."""

    url: Annotated[str, msgspec.Meta(max_length=2048)]
    lat: Latitude | None = None
    lon: Longitude | None = None
    node: Node | None = None
    capacity: Annotated[float, msgspec.Meta(ge=1, le=1e12)] = DEFAULT_CAPACITY
    store: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None
    """The store of the coordinator that it belongs to, if it knows one."""
    instance: Annotated[str, msgspec.Meta(max_length=128)] = ""
    """The process: the identity of its data folder, the number of its start, and chance, with dots."""


class Heartbeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a broker is, and what it has done of what it was told."""

    connections: Count
    subscribers: Count
    adopted: dict[Name, Count] = {}
    """The subscribers that it has looked up and follows, each with the number of the handover in that answer."""
    forgot: dict[Name, Count] = {}
    """Those in `moved` that it has forgotten, each with its number."""
    stored: list[str] = []
    """The topics that it keeps whole; a broker that knows nothing of the overlay does not say."""


class Assignment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which brokers are to keep each topic."""

    assignment: dict[Annotated[str, msgspec.Meta(min_length=1, max_length=256)], list[Name]]


class NewSubscriber(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A subscriber that registered at a broker."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.@-]{1,64}$")]
    hash: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    broker: Name
    client: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The address from which it registered; registrations by operators have none."""


class NewHash(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The hash of another password."""

    hash: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    epoch: int
    """The epoch of the record that the broker has: an operator may have reset the password since."""


class Lookup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Subscribers that a broker wants to know, or to have."""

    broker: Name
    names: Annotated[list[Name], msgspec.Meta(max_length=MOST_NAMES)]
    take: bool = False
    sessions: dict[Name, list[Id]] = {}
    """Who is taken only if one of these sessions of its has not ended; others are taken anyway."""


class Epochs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Subscribers, and the epochs of the records that a broker has of them."""

    epochs: Annotated[dict[Name, Count], msgspec.Meta(max_length=MOST_NAMES)]


class StaleShape(BaseModel):
    """Which records are out of date."""

    stale: list[str]


class AddressShape(BaseModel):
    """A broker to go to."""

    name: str
    url: str


class StorageShape(BaseModel):
    """The topics that a broker has to keep."""

    version: int
    topics: list[str]


class OpportunisticShape(BaseModel):
    """How a broker caches messages of topics that have no storage."""

    policy: str = Field(description="caching, request and priority, such as sel-sub-prt")
    slots: int = Field(description="messages that it caches at most; 0 for none")


class OverlayToldShape(BaseModel):
    """What a broker is told of the overlay."""

    version: int = Field(description="of the tree; it rises with every change")
    links: list[AddressShape] = Field(description="its neighbours in the tree")
    storage: StorageShape
    opportunistic: OpportunisticShape


class SharedKeysShape(BaseModel):
    """The keys that all brokers share, in hexadecimal."""

    subscribers: str = Field(description="signs tokens of subscribers")
    overlay: str = Field(description="opens links between brokers")
    copies: str = Field(description="signs tickets for pages of other brokers")
    metrics: str = Field(description="signs tokens with the scope `metrics`")


class RegisteredShape(BaseModel):
    """What a broker needs to know once it is registered."""

    lease_s: float
    heartbeat_s: float
    homes: list[str] = Field(description="the subscribers whose home it is")
    held: list[str] = Field(
        description="subscribers that have left it, and whose streams it follows until they are in `moved`; "
        "all others it must forget"
    )
    serial: int = Field(description="of the last move: who has a record of a later epoch has come since")
    state: Literal["up", "draining"]
    store: str = Field(description="the identity of the coordinator's store; another one does not know the homes")
    keys: SharedKeysShape
    overlay: OverlayToldShape


class ToldShape(BaseModel):
    """What a broker has to do."""

    lease_s: float
    state: Literal["up", "draining"]
    adopt: list[str] = Field(description="subscribers whose home it has become")
    moved: dict[str, int] = Field(
        description="subscribers whose home it is no longer, and the numbers of their moves: a record of a later "
        "epoch is of one that has come back"
    )
    overlay: OverlayToldShape


class BrokerShape(BaseModel):
    """A broker as the coordinator knows it."""

    name: str
    url: str
    lat: float | None
    lon: float | None
    node: str | None
    capacity: float
    state: Literal["up", "draining", "dead"]
    connections: int
    subscribers: int = Field(description="as the broker told last")
    homes: int = Field(description="subscribers whose home it is")
    load: float = Field(description="connections, and those about to come, as a share of the capacity")
    lease_s: float = Field(description="how long it may yet be silent; 0 if it is dead")


class BrokersShape(BaseModel):
    """Brokers; `next` is the `after` of the next page, null at the end."""

    brokers: list[BrokerShape]
    next: str | None


class LeftShape(BaseModel):
    """What became of the subscribers of a broker that left."""

    name: str
    moved: int


class StateShape(BaseModel):
    """The state of a broker after maintenance was switched on or off, and how many subscribers were moved."""

    state: Literal["up", "draining", "dead"]
    moved: int


class StoragesShape(BaseModel):
    """The storages of a topic."""

    wanted: list[str]
    complete: list[str] = Field(description="those that keep it whole")
    leaving: list[str] = Field(description="those that keep it until it has moved")


class OverlayShape(BaseModel):
    """The tree of the brokers, and which of them keep which topics."""

    version: int
    links: list[tuple[str, str]]
    brokers: list[str]
    storages: dict[str, StoragesShape]
    settled: bool = Field(description="whether every topic is where it is wanted, and nowhere else")


class ChosenShape(BaseModel):
    """The broker for whoever asks; `sticky` if it was its home before."""

    broker: AddressShape
    sticky: bool


class NameShape(BaseModel):
    """A subscriber that was changed."""

    name: str


class AddedShape(NameShape):
    """A subscriber that was added."""

    epoch: int = Field(description="since when the broker is its home; rises with every move")


class AccountShape(BaseModel):
    """A subscriber as operators see it."""

    name: str
    broker: str = Field(description="its home")
    subscriptions: int
    sessions: int
    state: Literal["active", "disabled"]
    created: int | None = Field(description="in Unix seconds; null if it is not known")


class AccountsShape(BaseModel):
    """A page of subscribers."""

    subscribers: list[AccountShape]
    next: str | None = Field(description="give it as `after` to go on; null if this is the last page")


class RecordsShape(BaseModel):
    """Subscribers by name; those that do not exist are not in it."""

    subscribers: dict[str, dict[str, Any]]
    elsewhere: list[str] = Field(description="subscribers that the broker asked to take, and must not keep")
    handovers: dict[str, int] = Field(description="what the broker confirms in `adopted` when it follows them")


class AppliedShape(BaseModel):
    """What became of changes."""

    applied: int
    moved: list[str] = Field(description="subscribers whose home is another broker by now: forget them")
    late: list[str] = Field(description="subscribers whose changes came from a broker that is not their home")
    serial: int = Field(description="of this call: who has a record of a later epoch has come back since")


def body_of(*shapes: type[msgspec.Struct], array: bool = False) -> dict[str, Any]:
    """A body of one of these shapes, or an array of them, for /openapi.json."""
    described = [schema_of(shape) for shape in shapes]
    schema: dict[str, Any] = described[0] if len(described) == 1 else {"anyOf": described}
    if array:
        schema = {"type": "array", "items": schema}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


CHANGES_BODY = body_of(*KINDS, array=True)
