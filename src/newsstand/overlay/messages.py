"""What brokers say to each other (Sourlas et al. 2011, sections 3 and 4).

>>> storm = Publication("b1", 7, "storms", {"severity": 4}, b"Take shelter.", at_ms=1000)
>>> decode(encode(Publish(storm))) == Publish(storm)
True
>>> decode(encode(Subscribe(Filter.parse("severity>3"))))
Subscribe(filter=Filter('severity > 3'))

A message on the wire is a MessagePack array that begins with its name; a filter is its text. New fields go to
the end and have defaults, so that brokers of two versions understand each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from newsstand.errors import BadFilter, BadMessage
from newsstand.model import is_topic
from newsstand.overlay.filter_expressions import TOPIC
from newsstand.overlay.filters import Filter
from newsstand.overlay.value_sets import Value

MOST_HOPS = 64
"""How long a path may be. Nothing goes further, whatever the tables say."""
MOST_TOPICS = 512
"""How many topics one message may name."""

Moment = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Milliseconds."""
BrokerName = Annotated[str, Meta(min_length=1, max_length=128)]
Name = BrokerName | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A broker's: all of one network are texts, or all are numbers."""
Topic = Annotated[str, Meta(min_length=1, max_length=256)]
Topics = Annotated[tuple[Topic, ...], Meta(min_length=1, max_length=MOST_TOPICS)]
Path = Annotated[tuple[Name, ...], Meta(max_length=MOST_HOPS)]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Hop = tuple[Name, Number]
"""A broker on the way to a storage, and the number that it has given to its next link, or to its own storage."""
Way = Annotated[tuple[Hop, ...], Meta(min_length=1, max_length=MOST_HOPS)]
Broken = Annotated[tuple[Hop, ...], Meta(max_length=MOST_TOPICS)]
AttributeName = Annotated[str, Meta(min_length=1, max_length=128)]

PublicationId = tuple[Name, int]
Position = tuple[Moment, Name, Number]
"""A place in the order of publications: time, origin, number. It means the same at every storage."""


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
    """A message that somebody publishes: its topic and attributes are what filters see."""

    origin: Name
    """The broker where it was published, and …"""
    number: Number
    """… which of its publications this is: together they identify it."""
    topic: Topic
    attributes: Mapping[AttributeName, Value] = {}
    body: bytes = b""
    at_ms: Moment = 0
    author: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The subscriber who published it, as the broker of origin knows it."""

    def __post_init__(self) -> None:
        if not is_topic(self.topic):
            raise ValueError(f"{self.topic!r} cannot be a topic")
        for name, value in self.attributes.items():
            if name == TOPIC or not _is_text(name, 1, 128):
                raise ValueError(f"{name!r} cannot be the name of an attribute")
            if not _is_value(value):
                raise ValueError(f"attribute {name}: {value!r} is not a text, a number or a boolean")

    @property
    def id(self) -> PublicationId:
        return self.origin, self.number

    @property
    def position(self) -> Position:
        return self.at_ms, self.origin, self.number


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=str.lower):
    """Tagged by its name."""


class Subscribe(_Message, frozen=True, array_like=True):
    """The sender wants what matches."""

    filter: Filter


class Unsubscribe(_Message, frozen=True, array_like=True):
    """The sender no longer wants what matches, as far as no other of its filters does."""

    filter: Filter


class Publish(_Message, frozen=True, array_like=True):
    """A publication on its way to those who subscribed."""

    publication: Publication
    hops: Annotated[int, Meta(ge=0, le=MOST_HOPS)] = 0
    """How many links it has crossed."""
    attempt: Number = 0
    """Higher each time it is sent again: a broker forwards each attempt once, and delivers only the first."""
    path: Path | None = None
    """The brokers that it has passed, the publisher's first, if its publisher wants a receipt."""
    late: bool = False
    """Whether it is for storages alone, since one has it that others may lack."""


class Stored(_Message, frozen=True, array_like=True):
    """A storage has a publication for good."""

    origin: Name
    number: Number
    path: Path
    """Brokers that it has yet to reach, the next one first, back to the publisher's."""


class Advertise(_Message, frozen=True, array_like=True):
    """The sender knows a way to a storage of these topics.

    The way begins with the sender and ends with the storage's broker, so its length is the distance in hops from
    the receiver.
    """

    topics: Topics
    way: Way
    broken: Broken = ()
    """Why the sender's former way is none any more: no way with one of these hops is."""


class Unadvertise(_Message, frozen=True, array_like=True):
    """The sender knows no way to a storage of these topics that the receiver could use."""

    topics: Topics
    broken: Broken = ()


class Request(_Message, frozen=True, array_like=True):
    """Somebody wants what is stored of these topics and matches the filter."""

    number: Number
    """With the path's first broker, where it was asked, it identifies the request."""
    filter: Filter
    topics: Topics
    path: Path
    """The brokers that it has passed, the asker's first (source routing)."""
    after: Position | None = None
    """Only what comes after this place."""
    limit: Number = 0
    """At most so many from each storage; 0 for all."""
    to: Path = ()
    """If it is for a particular storage: brokers that it has yet to reach, the next one first."""


State = Literal["part", "end", "more", "nowhere"]
"""More comes; that was all; that was as much as was asked for; there is no storage where there should be."""


class Response(_Message, frozen=True, array_like=True):
    """What a storage has for a request, or a part of it."""

    number: Number
    """The request's."""
    topics: Topics
    """Which of the request's topics it is about."""
    path: Path
    """Brokers that it has yet to reach, the next one first (source routing)."""
    state: State
    publications: tuple[Publication, ...] = ()
    count: Number = 0
    """How many publications there have been about these topics, with these."""


class Seek(_Message, frozen=True, array_like=True):
    """Somebody wants to know all storages of these topics; it goes to every broker."""

    number: Number
    """With the path's first broker, it identifies the search."""
    topics: Topics
    path: Path
    """The brokers that it has passed, the asker's first."""


class Found(_Message, frozen=True, array_like=True):
    """A broker keeps topics that somebody seeks."""

    number: Number
    topics: Topics
    way: Path
    """The brokers from the asker, without it, to the storage's."""
    path: Path
    """Brokers that it has yet to reach, the next one first."""


class Mended(_Message, frozen=True, array_like=True):
    """A link has begun somewhere: what was published before may have been missed. It goes to every broker."""

    path: Path
    """The brokers that it has passed."""


class CacheRequest(_Message, frozen=True, array_like=True):
    """Somebody wants what caches have and matches; each broker answers for itself and for those beyond it."""

    number: Number
    """With the path's first broker, where it was asked, it identifies the request."""
    filter: Filter
    path: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MOST_HOPS)]
    """The brokers that it has passed, the asker's first."""
    flooded: bool = False
    """Whether it goes to every broker, and all answer; else those do that have a client who wants the same."""
    after: Position | None = None
    """Only what comes after this place."""


class CacheResponse(_Message, frozen=True, array_like=True):
    """What caches have for a request, at the sender and beyond it, or a part of that."""

    origin: Name
    """The broker where the request was asked, and …"""
    number: Number
    """… its number."""
    publications: tuple[Publication, ...] = ()
    last: bool = True
    """Whether no more comes from the sender."""
    whole: bool = True
    """Whether nothing lacks of this, as far as the sender knows: it fits, and all beyond have answered."""


Message = (
    Subscribe
    | Unsubscribe
    | Publish
    | Stored
    | Advertise
    | Unadvertise
    | Request
    | Response
    | Seek
    | Found
    | Mended
    | CacheRequest
    | CacheResponse
)


def _written(value: object) -> str:
    if isinstance(value, Filter):
        return value.text
    raise NotImplementedError(f"{type(value).__name__} is not part of a message")


def _read(kind: type, value: object) -> Filter:
    if kind is Filter and isinstance(value, str):
        return Filter.parse(value)
    raise NotImplementedError(f"{kind.__name__} is not part of a message")


_encoder = msgspec.msgpack.Encoder(enc_hook=_written)
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message, dec_hook=_read)
_batch_decoder: msgspec.msgpack.Decoder[list[Message]] = msgspec.msgpack.Decoder(list[Message], dec_hook=_read)


T = TypeVar("T")


def encode(message: Message) -> bytes:
    """A message as bytes."""
    return _encoded(message)


def encode_batch(messages: Sequence[Message]) -> bytes:
    """Several messages as bytes, in order."""
    return batch_of([encode(message) for message in messages])


def batch_of(encoded: Sequence[bytes]) -> bytes:
    """The same of messages that are bytes already."""
    return _encoder.encode([msgspec.Raw(one) for one in encoded])


def decode(data: bytes) -> Message:
    """The message that bytes carry; BadMessage tells what is wrong with it."""
    return _decoded(_decoder, data)


def decode_batch(data: bytes) -> list[Message]:
    """The messages that bytes carry; BadMessage tells what is wrong with one of them."""
    return _decoded(_batch_decoder, data)


def _encoded(what: object) -> bytes:
    try:
        return _encoder.encode(what)
    except (UnicodeEncodeError, OverflowError) as bad:
        raise BadMessage(f"{type(what).__name__} cannot be written: {bad}") from None


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, BadFilter, UnicodeDecodeError, NotImplementedError) as bad:
        raise BadMessage(f"not a message of the overlay: {bad}") from None
