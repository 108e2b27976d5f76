"""Redirects of the origin's: which other brokers have pages that are asked for here (Gwertzman and Seltzer 1995).

A broker is the proxy of its subscribers, so it remembers for them. What it was told holds for those at the same
place only, since from elsewhere the origin may be the nearer one.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from newsstand.errors import NewsstandError
from newsstand.planning.places import Place
from newsstand.planning.push_client import MOST_REDIRECTS, ClientSide, Redirect

MOST_PLACES = 10_000
REST_S = 30.0
"""How long nobody goes to a broker that was not there. By then the origin has noticed, too."""


class Peer(msgspec.Struct, frozen=True):
    """Another broker that has pages of the origin."""

    server: str
    url: str


class RedirectTold(msgspec.Struct, frozen=True):
    """A redirect as the origin tells it: all of its pages that are at that broker."""

    server: str
    url: str
    pages: list[str] = []


class Redirected(NewsstandError):
    """The origin does not answer itself, but says who does."""

    def __init__(self, told: RedirectTold) -> None:
        super().__init__(f"the page is at broker '{told.server}'")
        self.told = told


class RedirectMemory:
    """What was told to those at each place, the newest of it; and which brokers are not there just now."""

    def __init__(self, most_places: int = MOST_PLACES, most: int = MOST_REDIRECTS) -> None:
        self._most_places = most_places
        # To what is remembered a place is what an origin is to a client, and both are numbers there.
        self._side: ClientSide[str] = ClientSide(most)
        self._places: OrderedDict[Place, int] = OrderedDict()
        self._next_place = 0
        self._peers: list[Peer | None] = []
        """Brokers by number; None for one that was lost, which gets another number when it is heard of again."""
        self._numbers: dict[str, int] = {}
        self._rests_until: dict[str, float] = {}

    def learn(self, place: Place, told: RedirectTold) -> Peer:
        """The origin has sent somebody at a place to another broker."""
        peer = Peer(told.server, told.url)
        number = self._numbers.setdefault(told.server, len(self._peers))
        if number == len(self._peers):
            self._peers.append(peer)
        self._peers[number] = peer
        if place not in self._places:
            self._places[place] = self._next_place
            self._next_place += 1
            if len(self._places) > self._most_places:
                self._places.popitem(last=False)
        self._places.move_to_end(place)
        self._side.learn(Redirect(self._places[place], number, tuple(told.pages)))
        return peer

    def peer(self, place: Place, path: str) -> Peer | None:
        """The broker that somebody at a place is to be sent to for a page; None for the origin."""
        at = self._places.get(place)
        number = None if at is None else self._side.server(at, path)
        return None if number is None else self._peers[number]

    def invalid(self, place: Place, path: str, server: str) -> None:
        """That broker does not have the page."""
        at, number = self._places.get(place), self._numbers.get(server)
        if at is not None and number is not None:
            self._side.invalid(at, path, number)

    def lost(self, server: str, now: float) -> None:
        """That broker is not there: nobody goes to it for a while, whatever it was remembered for."""
        number = self._numbers.pop(server, None)
        if number is not None:
            self._peers[number] = None
        self._rests_until[server] = now + REST_S

    def rests(self, server: str, now: float) -> bool:
        """Whether a broker was not there just now."""
        until = self._rests_until.get(server)
        if until is not None and now >= until:
            del self._rests_until[server]
        return until is not None and now < until
