"""Redirects of the origin's: which other brokers have pages that are asked for here (Gwertzman and Seltzer 1995).

A broker is the proxy of its subscribers, so it remembers for them. What it was told holds for those at the same
place only, since from elsewhere the origin may be the nearer one.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from newsstand.errors import NewsstandError
from newsstand.planning.places import Place
from newsstand.planning.push_client import ClientSide, Redirect

ORIGIN = 0
MOST_PLACES = 1000
MOST_AT_A_PLACE = 5000


class Peer(msgspec.Struct, frozen=True):
    """Another broker that has pages of the origin."""

    server: str
    url: str


class Told(Peer, frozen=True):
    """A redirect as the origin tells it: all of its pages that are at that broker."""

    pages: list[str] = []


class Redirected(NewsstandError):
    """The origin does not answer itself, but says who does."""

    def __init__(self, told: Told) -> None:
        super().__init__(f"the page is at broker '{told.server}'")
        self.told = told


class RedirectMemory:
    """What was told to those at each place; the places not heard of for longest are forgotten."""

    def __init__(self, most_places: int = MOST_PLACES) -> None:
        self._most_places = most_places
        self._places: OrderedDict[Place, ClientSide[str]] = OrderedDict()
        self._peers: dict[str, tuple[int, Peer]] = {}
        self._by_number: list[str] = [""]

    def learn(self, place: Place, told: Told) -> None:
        """The origin has sent somebody at a place to another broker."""
        known = self._peers.get(told.server)
        number = len(self._by_number) if known is None else known[0]
        if known is None:
            self._by_number.append(told.server)
        self._peers[told.server] = number, Peer(told.server, told.url)
        side = self._places.setdefault(place, ClientSide(MOST_AT_A_PLACE))
        self._places.move_to_end(place)
        side.learn(Redirect(ORIGIN, number, tuple(told.pages)))
        if len(self._places) > self._most_places:
            self._places.popitem(last=False)

    def peer(self, place: Place, path: str) -> Peer | None:
        """The broker that somebody at a place is to be sent to for a page; None for the origin."""
        side = self._places.get(place)
        number = None if side is None else side.server(ORIGIN, path)
        if number is None:
            return None
        self._places.move_to_end(place)
        return self._peers[self._by_number[number]][1]

    def invalid(self, place: Place, path: str, server: str) -> None:
        """That broker did not have the page, or is not there."""
        side, known = self._places.get(place), self._peers.get(server)
        if side is not None and known is not None:
            side.invalid(ORIGIN, path, known[0])
