"""Data of the coordinator: brokers, the overlay tree, storages of topics, and moves of subscribers."""

from __future__ import annotations

from dataclasses import dataclass

from newsstand.errors import NewsstandError
from newsstand.geo.location import UNKNOWN, Location
from newsstand.wire.coordination import DEFAULT_CAPACITY


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A registered broker and its state."""

    name: str
    url: str
    place: Location = UNKNOWN
    capacity: float = DEFAULT_CAPACITY
    draining: bool = False
    dead: bool = False
    instance: str = ""
    """The process: the identity of its data folder, a dot, and a number of its own."""


Link = tuple[str, str]
"""Two linked brokers, in the order of their names."""


@dataclass(frozen=True, slots=True)
class OverlayTree:
    """The links of the overlay; the version rises with every change that brokers receive."""

    version: int = 0
    links: frozenset[Link] = frozenset()


@dataclass(frozen=True, slots=True)
class StorageSet:
    """The brokers that have to store a topic: assigned ones, and those that store it until it has moved."""

    wanted: frozenset[str]
    leaving: frozenset[str] = frozenset()

    @property
    def keeping(self) -> frozenset[str]:
        return self.wanted | self.leaving


@dataclass(frozen=True, slots=True)
class SubscriberMove:
    """A move of a subscriber to a new broker."""

    name: str
    old: str
    new: str


class SubscriberExists(NewsstandError):
    """A subscriber of that name exists already."""

    http_status = 409


class StaleAccount(NewsstandError):
    """A broker changes an account of which it has an outdated record."""

    http_status = 409


class WrongBroker(NewsstandError):
    """A broker acts for a subscriber of another broker."""

    http_status = 403
