"""Effects of the overlay broker, to be performed by its caller."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from newsstand.overlay.messages import Message, Name, Path, Publication, PublicationId, StorageRequest

Client = Hashable


class Send(NamedTuple):
    """Send a message to a neighbour."""

    neighbour: Name
    message: Message


class Deliver(NamedTuple):
    """Deliver a publication to a client."""

    client: Client
    publication: Publication


class StoreEvent(NamedTuple):
    """The storage has stored a new publication."""

    publication: Publication


class Confirmation(NamedTuple):
    """A storage has confirmed a publication of this broker."""

    id: PublicationId


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """An answer to a request of a client, or a part of it."""

    client: Client
    number: int
    """Of the request."""
    publications: tuple[Publication, ...] = ()
    finished: bool = False
    """Whether this is the last of its answers."""
    unavailable: tuple[str, ...] = ()
    """In the last answer: topics whose history is incomplete; a new request may succeed."""
    more: tuple[str, ...] = ()
    """In the last answer: topics with more publications than the limit."""
    complete: bool = True
    """In the last answer from caches: whether all have answered with all that they have."""


class Serve(NamedTuple):
    """Answer a request from the storage, see `OverlayBroker.answer`."""

    request: StorageRequest


class SeekResult(NamedTuple):
    """A reply to a search: a broker that stores topics."""

    number: int
    """Of the search."""
    topics: tuple[str, ...]
    route: Path
    """The brokers on the route to it, without this one."""


class TreeChange(NamedTuple):
    """A link has begun somewhere in the tree; publications may have been lost before."""


Effect = Send | Deliver | StoreEvent | RequestAnswer | Confirmation | Serve | SeekResult | TreeChange
