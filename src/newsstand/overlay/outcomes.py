"""What is to be done after something has happened at a broker of the overlay."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from newsstand.overlay.messages import Message, Name, Path, Publication, PublicationId, Request
from newsstand.overlay.open_requests import Answer

Client = Hashable


class Send(NamedTuple):
    """A message is to be sent to a neighbour."""

    neighbour: Name
    message: Message


class Deliver(NamedTuple):
    """A publication is to be delivered to a client."""

    client: Client
    publication: Publication


class Kept(NamedTuple):
    """The storage has kept a publication that it did not have."""

    publication: Publication


class Receipt(NamedTuple):
    """A storage has a publication of this broker's for good."""

    id: PublicationId


class Serve(NamedTuple):
    """A request is to be answered from the storage, see `OverlayBroker.answer`."""

    request: Request


class Located(NamedTuple):
    """A broker was found that keeps topics."""

    number: int
    """The search's."""
    topics: tuple[str, ...]
    way: Path
    """The brokers to it, without this one."""


class Changed(NamedTuple):
    """A link has begun somewhere in the tree, so that publications may have been missed."""


Out = Send | Deliver | Kept | Answer | Receipt | Serve | Located | Changed
