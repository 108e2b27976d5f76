"""The nouns of the platform, frozen and typed, and the values that subscriptions give for parameters.

A publisher adds *publications* to a *dataset*. A *channel* is a query with parameters over datasets. A broker's
*subscription* is a channel with values for its parameters. Equal (channel, values) share a *stream* of *results*,
numbered 1, 2, 3 … without holes (Uddin & Venkatasubramanian 2018, section III).
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from newsstand.errors import BadValues

JsonObject = dict[str, object]
"""An object that is ready to be encoded as JSON."""

INSTANCE_HEADER = "Newsstand-Instance"
"""Names the process that acts as a broker: the identity of its data folder, a dot, and a number of its own."""

Scalar = str | int | float | bool
"""What a parameter can be given."""

Values = tuple[Scalar, ...]
"""The values of a channel's parameters, in the order in which it declares them."""

_TOPIC = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,256}")
LONGEST_PAGE_NAME = 200
_SUBSCRIBER = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_BROKER = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_PAGE_ID = re.compile(r"[0-9a-f]{32}")
_PAGE_NAME = re.compile(rf"[A-Za-z0-9._~/-]{{1,{LONGEST_PAGE_NAME}}}")

SCALARS = ("string", "integer", "double", "boolean", "timestamp")
"""The types of a field, which may also be `array<…>` of one; a parameter may have any but `timestamp`."""


def is_same_folder(instance: str, other: str) -> bool:
    """Return whether two instances of a broker work on one data folder: the later one is the broker started again.

    >>> is_same_folder("a1.1", "a1.2"), is_same_folder("a1.1", "b2.1")
    (True, False)
    """
    return instance.partition(".")[0] == other.partition(".")[0]


def is_earlier_start(instance: str, other: str) -> bool:
    """Return whether an instance is of an earlier start over the same data folder: its request arrives late.

    >>> is_earlier_start("a1.1.x", "a1.2.y"), is_earlier_start("a1.2.y", "a1.1.x"), is_earlier_start("a1", "b2.2")
    (True, False, False)
    """
    return is_same_folder(instance, other) and _start(instance) < _start(other)


def _start(instance: str) -> int:
    parts = instance.split(".")
    return int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() else 0


def is_topic(name: object) -> bool:
    """Whether a topic can have this name: 1 to 256 characters without control characters."""
    return isinstance(name, str) and _TOPIC.fullmatch(name) is not None


def is_page_name(name: str) -> bool:
    """Whether a page can have this name: up to LONGEST_PAGE_NAME letters, digits and ._~- in segments.

    Segments are separated by slashes; none is empty, `.` or `..`, so that a name stays what it is in an address.
    """
    return _PAGE_NAME.fullmatch(name) is not None and not {"", ".", ".."} & set(name.split("/"))


def page_id(content: bytes) -> str:
    """Return the id of the page with this content."""
    return hashlib.sha256(content).hexdigest()[:32]


def is_broker_name(name: str) -> bool:
    """Whether a broker can have this name: a lower-case letter, then at most 62 of a-z, 0-9, _ and -."""
    return _BROKER.fullmatch(name) is not None


def is_subscriber_name(name: str) -> bool:
    """Return whether a subscriber can have this name."""
    return _SUBSCRIBER.fullmatch(name) is not None


def is_page_path(path: str) -> bool:
    """Whether this is the path of a page: `pages/ID`, which never changes, or `named/NAME`, which may."""
    kind, _, name = path.partition("/")
    return _PAGE_ID.fullmatch(name) is not None if kind == "pages" else kind == "named" and is_page_name(name)


@dataclass(frozen=True)
class Field:
    """One field of a dataset's records."""

    name: str
    type: str
    optional: bool = False


@dataclass(frozen=True)
class Dataset:
    """Records of one shape: publications one after another, or the latest record for each value of `key`."""

    name: str
    fields: tuple[Field, ...]
    key: str | None = None

    @property
    def keyed(self) -> bool:
        return self.key is not None


@dataclass(frozen=True)
class PageMetadata:
    """A page of content that a publication carries, or that its origin keeps at `url`."""

    id: str
    size: int
    type: str = "application/octet-stream"
    url: str | None = None


@dataclass(frozen=True)
class Parameter:
    """One parameter of a channel."""

    name: str
    type: str


@dataclass(frozen=True)
class Retention:
    """How long a channel's results are kept: the newest `count` of each stream, none older than `age_s`."""

    age_s: float | None = None
    count: int | None = None


DeliveryMode = Literal["auto", "pull", "push"]
"""What notifications of brokers carry: positions and all results if they are few and small (auto), positions only
(pull), or positions and as many results as have room (push)."""


@dataclass(frozen=True)
class ChannelDefinition:
    """A query over datasets with `:parameter` markers, executed over and over on what is new in one of them."""

    name: str
    query: str
    new: str
    """The dataset of which an execution sees the publications since the last one."""
    parameters: tuple[Parameter, ...] = ()
    period_s: float | None = None
    """Seconds between executions of a repetitive channel; None if it is continuous."""
    delivery: DeliveryMode = "auto"
    """Whether notifications of brokers carry results."""
    retention: Retention = field(default_factory=Retention)
    bind: tuple[tuple[str, str], ...] = ()
    """Parameters whose value a claim of the subscriber decides, each with the claim: one of `CLAIMS`."""


CLAIMS = ("subscriber",)
"""What a parameter can be bound to: the subscriber's name."""


@dataclass(frozen=True)
class Broker:
    """An edge broker that the cluster notifies at `callback`, in requests signed with `secret`."""

    name: str
    callback: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class BackendSubscription:
    """A broker's subscription: its stream, and how many subscribers of the broker's stand behind it."""

    id: str
    channel: str
    values: Values
    broker: str
    stream: int
    frontends: int = 1


_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_READABLE = json.JSONEncoder(ensure_ascii=False).encode


def canonical(values: Sequence[Scalar]) -> str:
    """One text for equal values."""
    return _COMPACT(list(values))


def subscription_id(channel: str, values: Sequence[Scalar], broker: str) -> str:
    """Return the id of a subscription: a digest of its channel, values and broker."""
    text = _READABLE([channel, canonical(values), broker])
    digest = hashlib.blake2b(text.encode(), digest_size=15).digest()
    return base64.b32encode(digest).decode().lower()


class CachingPolicy(StrEnum):
    """Which brokers cache a publication that crosses them (Sourlas et al. 2011, section 2.3)."""

    SELECTIVE = "sel"
    """Those with a client of their own who wants it."""
    ALL = "all"
    """All of them; publications go everywhere."""


class RequestPolicy(StrEnum):
    """Whom a request for cached publications goes to."""

    SUBSCRIBED = "sub"
    """Where it is wanted: along subscriptions that may match the same."""
    FLOODED = "fld"
    """Every broker."""


class PriorityPolicy(StrEnum):
    """Whether clients change the order of a cache."""

    PRIORITY = "prt"
    """To the top when somebody comes who wants it, to the bottom when the last one has gone."""
    NONE = "nop"
    """First in, first out."""


@dataclass(frozen=True)
class OpportunisticPolicy:
    """How brokers cache what passes: a policy of each kind, written `sel-sub-prt`.

    >>> str(OpportunisticPolicy.parse("all-fld-nop"))
    'all-fld-nop'
    """

    caching: CachingPolicy = CachingPolicy.SELECTIVE
    request: RequestPolicy = RequestPolicy.SUBSCRIBED
    priority: PriorityPolicy = PriorityPolicy.PRIORITY

    @classmethod
    def parse(cls, text: str) -> OpportunisticPolicy:
        """Return the policy of that name; raise ValueError."""
        try:
            caching, request, priority = text.split("-")
            return cls(CachingPolicy(caching), RequestPolicy(request), PriorityPolicy(priority))
        except ValueError:
            raise ValueError(f"{text}: must be sel or all, sub or fld, prt or nop, as in sel-sub-prt") from None

    def __str__(self) -> str:
        return f"{self.caching}-{self.request}-{self.priority}"


OPPORTUNISTIC_SLOTS = 1000
"""Messages that a broker caches by such a policy, unless its settings say otherwise …"""
OPPORTUNISTIC_BYTES = 64 * 1024 * 1024
"""… and the bytes that they may take."""


GivenValues = Mapping[str, Scalar] | Sequence[Scalar]
"""The values of a subscription as a client gives them: by name, or in the order of the parameters."""


def parse_values(channel: ChannelDefinition, given: GivenValues) -> Values:
    """Return the values of a subscription, given by name or in the order of the parameters; raise BadValues."""
    if isinstance(given, Mapping):
        names = [one.name for one in channel.parameters]
        for name in given:
            if name not in names:
                raise BadValues(
                    f"channel '{channel.name}': no parameter '{name}'; it has: {', '.join(names) or 'none'}"
                )
        for name in names:
            if name not in given:
                raise BadValues(f"channel '{channel.name}': parameter '{name}' is missing")
        given = [given[name] for name in names]
    elif isinstance(given, str) or len(given) != len(channel.parameters):
        wanted = len(channel.parameters)
        found = f"the string {given!r:.80}" if isinstance(given, str) else len(given)
        raise BadValues(f"channel '{channel.name}': expected {wanted} values, got {found}")
    return tuple(_value(channel, one, value) for one, value in zip(channel.parameters, given, strict=True))


def _value(channel: ChannelDefinition, parameter: Parameter, value: object) -> Scalar:
    kind = parameter.type
    if kind == "string" and isinstance(value, str) and "\0" not in value and _is_text(value):
        return value
    if kind == "boolean" and isinstance(value, bool):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if kind == "integer" and -(2**63) <= value < 2**63:
            return value
        if kind == "double" and abs(value) <= 2**53:
            return float(value)
    if kind == "double" and isinstance(value, float) and math.isfinite(value):
        return value + 0.0  # -0.0 is 0.0: equal values share one stream
    if kind == "string" and isinstance(value, str) and "\0" in value:
        raise BadValues(f"channel '{channel.name}', parameter '{parameter.name}': a string cannot contain NUL")
    shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:80]}…"
    article = "an" if kind == "integer" else "a"
    raise BadValues(f"channel '{channel.name}', parameter '{parameter.name}': {shown} is not {article} {kind}")


def _is_text(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
