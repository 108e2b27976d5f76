"""Messages of topics as clients write and read them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from newsstand.errors import BadMessage
from newsstand.overlay.messages import Publication, PublicationId

_DEEPER = 100
"""Whoever reads a message finds its body deeper, and must be able to."""


class Listener(Protocol):
    """A client that subscribes."""

    def __hash__(self) -> int: ...

    def deliver(self, publication: Publication, written: bytes) -> None:
        """A publication for it, and the same as JSON."""
        ...


class Published(NamedTuple):
    """What became of a publication; `stored`: whether it will be at a storage, whatever happens."""

    id: PublicationId
    stored: bool


def checked_body(text: bytes) -> bytes:
    """JSON that everybody can read; BadMessage if it is not."""
    try:
        text.decode()
        if text:
            msgspec.json.decode(text)
            msgspec.json.decode(b"[" * _DEEPER + text + b"]" * _DEEPER)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadMessage(f"body: {error}") from None
    except RecursionError:
        raise BadMessage("body: is nested too deep") from None
    return text


def written(publication: Publication) -> bytes:
    """A publication as clients see it."""
    return msgspec.json.encode(
        {
            "id": publication.id,
            "topic": publication.topic,
            "attributes": publication.attributes,
            "at_ms": publication.at_ms,
            "author": publication.author,
            "body": msgspec.Raw(publication.body or b"null"),
        }
    )
