"""What the coordinator tells a broker of the overlay: its neighbours in the tree, and the topics that it keeps."""

from __future__ import annotations

from typing import Protocol

import msgspec

from newsstand.model import OpportunisticPolicy


class Neighbour(msgspec.Struct, frozen=True):
    """A broker to be linked to, and where it is reached."""

    name: str
    url: str


class ToKeep(msgspec.Struct, frozen=True):
    """The topics that a broker has to keep."""

    version: int = 0
    topics: list[str] = []


class Opportunistic(msgspec.Struct, frozen=True):
    """How messages of topics without storages are cached: by which policy, and how many."""

    policy: str = str(OpportunisticPolicy())
    slots: int = 0


class OverlayTold(msgspec.Struct, frozen=True):
    """The tree as one broker sees it; `version` rises with every change of it."""

    version: int = 0
    links: list[Neighbour] = []
    storage: ToKeep = msgspec.field(default_factory=ToKeep)
    opportunistic: Opportunistic = msgspec.field(default_factory=Opportunistic)
    """A coordinator of before there were caches does not say: nothing is cached then, and no neighbour asked."""


class Overlay(Protocol):
    """The broker in the overlay, as the coordinator sees it."""

    @property
    def whole(self) -> list[str]:
        """The topics that it keeps whole."""
        ...

    def told(self, overlay: OverlayTold) -> None:
        """What the coordinator says."""
        ...


class Storages(msgspec.Struct, frozen=True):
    """The brokers that a topic is wanted at."""

    wanted: list[str] = []


class Placement(msgspec.Struct, frozen=True):
    """Where all topics are wanted."""

    storages: dict[str, Storages] = {}
