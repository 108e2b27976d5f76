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
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from newsstand.errors import BadFilter, BadMessage
from newsstand.overlay.filter_expressions import TOPIC
from newsstand.overlay.filters import Filter
from newsstand.overlay.value_sets import Value

MOST_HOPS = 64
"""How long a path may be. Nothing goes further, whatever the tables say."""
MOST_TOPICS = 512
"""How many topics one message may name."""

Name = Annotated[str, Meta(min_length=1, max_length=128)] | int
"""A broker's: all of one network are texts, or all are numbers."""
Topic = Annotated[str, Meta(min_length=1, max_length=256)]
Topics = Annotated[tuple[Topic, ...], Meta(min_length=1, max_length=MOST_TOPICS)]
Path = Annotated[tuple[Name, ...], Meta(max_length=MOST_HOPS)]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
AttributeName = Annotated[str, Meta(min_length=1, max_length=128)]

PublicationId = tuple[Name, int]
Position = tuple[int, Name, int]
"""A place in the order of publications: time, origin, number. It means the same at every storage."""


def is_topic(topic: object) -> bool:
    """Whether a topic can have this name."""
    return _is_text(topic, 1, 256)


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
    at_ms: int = 0

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


class Advertise(_Message, frozen=True, array_like=True):
    """The sender knows a way to a storage of these topics.

    The path begins with the sender and ends with the storage's broker, so its length is the distance in hops from
    the receiver.
    """

    topics: Topics
    path: Path


class Unadvertise(_Message, frozen=True, array_like=True):
    """The sender knows no way to a storage of these topics that the receiver could use."""

    topics: Topics


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


Message = Subscribe | Unsubscribe | Publish | Advertise | Unadvertise | Request | Response


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


def encode(message: Message) -> bytes:
    """A message as bytes."""
    try:
        return _encoder.encode(message)
    except (UnicodeEncodeError, OverflowError) as bad:
        raise BadMessage(f"{type(message).__name__} cannot be written: {bad}") from None


def decode(data: bytes) -> Message:
    """The message that bytes carry; BadMessage tells what is wrong with it."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, BadFilter, UnicodeDecodeError, NotImplementedError) as bad:
        raise BadMessage(f"not a message of the overlay: {bad}") from None
