"""Messages between brokers of the overlay (Sourlas et al. 2011, sections 3 and 4).

>>> storm = Publication("b1", 7, "storms", {"severity": 4}, b"Take shelter.", at_ms=1000)
>>> decode_batch(batch_of([encode(Publish(storm)), encode(Subscribe(Filter.parse("severity>3")))]))[1]
Subscribe(filter=Filter('severity > 3'))

A message is encoded as a MessagePack array that begins with its name, a filter as its text. New fields go to the
end and have defaults, so that brokers of two versions understand each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from newsstand.errors import BadFilter, BadMessage
from newsstand.model import is_topic
from newsstand.overlay.filters.expressions import TOPIC
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.filters.value_sets import Value

MOST_HOPS = 64
"""The longest path of a message."""
MOST_TOPICS = 512
"""Topics that one message may name."""
ENOUGH_BYTES = 512 * 1024
"""Bytes of the bodies in one response."""

Moment = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Milliseconds."""
BrokerName = Annotated[str, Meta(min_length=1, max_length=128)]
Name = BrokerName | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Of a broker: all of one network are texts, or all are numbers."""
Topic = Annotated[str, Meta(min_length=1, max_length=256)]
Topics = Annotated[tuple[Topic, ...], Meta(min_length=1, max_length=MOST_TOPICS)]
Path = Annotated[tuple[Name, ...], Meta(max_length=MOST_HOPS)]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Hop = tuple[Name, Number]
"""A broker on the route to a storage, and the number of its next link, or of its own storage."""
Route = Annotated[tuple[Hop, ...], Meta(min_length=1, max_length=MOST_HOPS)]
Broken = Annotated[tuple[Hop, ...], Meta(max_length=MOST_TOPICS)]
AttributeName = Annotated[str, Meta(min_length=1, max_length=128)]

PublicationId = tuple[Name, int]
MessagePosition = tuple[Moment, Name, Number]
"""The order of publications, the same at every storage: time, origin, number."""


def _is_text(value: object, least: int = 0, most: int | None = None) -> bool:
    if not isinstance(value, str) or len(value) < least or (most is not None and len(value) > most):
        return False
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_value(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return _is_text(value)


class Publication(msgspec.Struct, frozen=True, array_like=True):
    """A message of a topic; filters see its topic and attributes."""

    origin: Name
    """The broker where it was published."""
    number: Number
    """Of the publication at its origin: both together identify it."""
    topic: Topic
    attributes: Mapping[AttributeName, Value] = {}
    body: bytes = b""
    at_ms: Moment = 0
    author: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The subscriber who published it, authenticated at the origin."""

    def __post_init__(self) -> None:
        if not is_topic(self.topic):
            raise ValueError(f"{self.topic!r} is not a valid topic")
        for name, value in self.attributes.items():
            if name == TOPIC or not _is_text(name, 1, 128):
                raise ValueError(f"{name!r} cannot be the name of an attribute")
            if not _is_value(value):
                raise ValueError(f"attribute {name}: {value!r} is not a text, a number or a boolean")

    @property
    def id(self) -> PublicationId:
        return self.origin, self.number

    @property
    def position(self) -> MessagePosition:
        return self.at_ms, self.origin, self.number


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=str.lower):
    """A message, tagged by its name."""


class Subscribe(_Message, frozen=True, array_like=True):
    """A subscription of the sender to what matches."""

    filter: Filter


class Unsubscribe(_Message, frozen=True, array_like=True):
    """The end of a subscription of the sender."""

    filter: Filter


class Publish(_Message, frozen=True, array_like=True):
    """A publication on its way to subscribers."""

    publication: Publication
    hops: Annotated[int, Meta(ge=0, le=MOST_HOPS)] = 0
    """Links that it has crossed."""
    attempt: Number = 0
    """Rises with each repetition: a broker forwards each attempt once, and delivers only the first."""
    path: Path | None = None
    """The brokers that it has passed, the origin first, if its publisher requires a receipt."""
    late: bool = False
    """Whether it is for storages alone: one has it that others may lack."""


class StorageReceipt(_Message, frozen=True, array_like=True, tag="receipt"):
    """The confirmation that a storage has a publication."""

    origin: Name
    number: Number
    path: Path
    """Brokers that it has yet to reach, the next one first, back to the origin."""


class Advertise(_Message, frozen=True, array_like=True):
    """A route from the sender to a storage of these topics.

    It begins with the sender and ends with the broker of the storage, so its length is the distance in hops from
    the receiver.
    """

    topics: Topics
    route: Route
    broken: Broken = ()
    """Hops that no longer exist, so that the sender's earlier route ended."""


class Unadvertise(_Message, frozen=True, array_like=True):
    """The sender has no route to a storage of these topics that the receiver could use."""

    topics: Topics
    broken: Broken = ()


class StorageRequest(_Message, frozen=True, array_like=True, tag="request"):
    """A request for stored publications of these topics that match the filter."""

    number: Number
    """Identifies the request, together with the first broker of the path."""
    filter: Filter
    topics: Topics
    path: Path
    """The brokers that it has passed, its origin first (source routing)."""
    after: MessagePosition | None = None
    """Only publications after this position."""
    limit: Number = 0
    """Publications from each storage at most; 0 for all."""
    to: Path = ()
    """For a request to one storage: brokers that it has yet to reach, the next one first."""


State = Literal["part", "end", "more", "nowhere"]
"""More follows; complete; cut off at the limit; no storage found."""


class StorageResponse(_Message, frozen=True, array_like=True, tag="response"):
    """The answer of a storage to a request, or a part of it."""

    number: Number
    """Of the request."""
    topics: Topics
    """The topics of the request that it answers."""
    path: Path
    """Brokers that it has yet to reach, the next one first (source routing)."""
    state: State
    publications: tuple[Publication, ...] = ()
    count: Number = 0
    """Publications about these topics so far, including these."""


class Seek(_Message, frozen=True, array_like=True):
    """A search for all storages of these topics; it goes to every broker."""

    number: Number
    """Identifies the search, together with the first broker of the path."""
    topics: Topics
    path: Path
    """The brokers that it has passed, its origin first."""


class SeekReply(_Message, frozen=True, array_like=True):
    """A reply to a search, from a broker that stores topics."""

    number: Number
    topics: Topics
    route: Path
    """The brokers from the origin of the search, without it, to the storage."""
    path: Path
    """Brokers that it has yet to reach, the next one first."""


class LinkChange(_Message, frozen=True, array_like=True):
    """A link has begun somewhere, so earlier publications may have been lost; it goes to every broker."""

    path: Path
    """The brokers that it has passed."""


class CacheRequest(_Message, frozen=True, array_like=True):
    """A request for cached publications; each broker answers for itself and for those beyond it."""

    number: Number
    """Identifies the request, together with the first broker of the path."""
    filter: Filter
    path: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MOST_HOPS)]
    """The brokers that it has passed, its origin first."""
    flooded: bool = False
    """Whether it goes to every broker; otherwise to those with a client that subscribes to the same."""
    after: MessagePosition | None = None
    """Only publications after this position."""


class CacheResponse(_Message, frozen=True, array_like=True):
    """The answer of caches at the sender and beyond it, or a part of it."""

    origin: Name
    """The broker where the request began."""
    number: Number
    """Of the request at its origin."""
    publications: tuple[Publication, ...] = ()
    last: bool = True
    """Whether the sender has no more."""
    complete: bool = True
    """Whether nothing was cut off, and all brokers beyond have answered."""


Message = (
    Subscribe
    | Unsubscribe
    | Publish
    | StorageReceipt
    | Advertise
    | Unadvertise
    | StorageRequest
    | StorageResponse
    | Seek
    | SeekReply
    | LinkChange
    | CacheRequest
    | CacheResponse
)


def _written(value: object) -> str:
    if isinstance(value, Filter):
        return value.text
    raise NotImplementedError(f"{type(value).__name__} cannot be part of a message")


def _read(kind: type, value: object) -> Filter:
    if kind is Filter and isinstance(value, str):
        return Filter.parse(value)
    raise NotImplementedError(f"{kind.__name__} cannot be part of a message")


_encoder = msgspec.msgpack.Encoder(enc_hook=_written)
_decoder: msgspec.msgpack.Decoder[list[Message]] = msgspec.msgpack.Decoder(list[Message], dec_hook=_read)


def batches(publications: Sequence[Publication], most: int) -> Iterator[tuple[Publication, ...]]:
    """Split publications into batches of at most `most`, fewer if bodies are long; yield () for none."""
    batch: list[Publication] = []
    size = 0
    for one in publications:
        if batch and (len(batch) == most or size + len(one.body) > ENOUGH_BYTES):
            yield tuple(batch)
            batch, size = [], 0
        batch.append(one)
        size += len(one.body)
    yield tuple(batch)


def encode(message: Message) -> bytes:
    """Return a message as bytes; raise BadMessage."""
    try:
        return _encoder.encode(message)
    except (UnicodeEncodeError, OverflowError) as bad:
        raise BadMessage(f"{type(message).__name__} cannot be written: {bad}") from None


def batch_of(encoded: Sequence[bytes]) -> bytes:
    """Return encoded messages as one batch."""
    return _encoder.encode([msgspec.Raw(one) for one in encoded])


def decode_batch(data: bytes) -> list[Message]:
    """Return the messages of a batch; raise BadMessage if one is invalid."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, BadFilter, UnicodeDecodeError, NotImplementedError, RecursionError) as bad:
        raise BadMessage(f"not a message of the overlay: {bad}") from None
