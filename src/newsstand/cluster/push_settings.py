"""The table `[push]` of newsstand.toml: whether the cluster pushes pages towards demand, and how.

The names are those of Gwertzman and Seltzer (1995); see `newsstand.planning.push_origin`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields

from newsstand.cluster.units import boolean, duration_s, number, some_text, whole_number
from newsstand.errors import BadApp
from newsstand.planning.places import Place
from newsstand.planning.push_load import DECAY, PERIOD_S
from newsstand.planning.push_origin import PushSettings
from newsstand.planning.push_places import LIVE_STRATEGIES

Links = tuple[tuple[str, str], ...]
Keys = Mapping[str, tuple[str, Callable[[object], object]]]
"""The keys of a table: the option that each one sets, and how it is read."""


@dataclass(frozen=True)
class PushOptions:
    """The table `[push]`."""

    enabled: bool = False
    threshold: float = PushSettings.threshold
    """push-threshold: the cluster pushes when its load is above."""
    pages: int = PushSettings.pages_to_push
    """pages-to-push: how many at a time."""
    period_s: float = PERIOD_S
    decay: float = DECAY
    servers: int | None = None
    """server-number: push only to the first so many brokers; to all if None."""
    caching: str = "nearest"
    """caching-strategy: what is near when it is decided where to push to."""
    lookup: str = "nearest"
    """lookup-strategy: what is near when it is decided whether to redirect."""
    lat: float | None = None
    """Where the cluster is."""
    lon: float | None = None
    node: str | None = None
    links: Links = ()
    """The network, for hops: pairs of nodes."""
    seed: int = 0
    """For `random`."""

    @property
    def place(self) -> Place:
        """Where the cluster is."""
        return Place(self.lat, self.lon, self.node)


def push_options(given: Mapping[str, object], links: object = None) -> PushOptions:
    """The options that were given; `links` serve if there are none among them."""
    if "links" not in given and links is not None:
        with suppress(BadApp):  # told where they are read for those that they are meant for
            given = {**given, "links": _links(links)}
    return PushOptions(**given)  # type: ignore[arg-type]


def _decay(value: object) -> float:
    decay = number(value, 0, 1)
    if decay == 1:
        raise BadApp("must be below 1")
    return decay


def _strategy(value: object) -> str:
    if value not in LIVE_STRATEGIES:
        raise BadApp(f"'{value}' is none of {', '.join(LIVE_STRATEGIES)}")
    return str(value)


def _links(value: object) -> Links:
    links = []
    for link in value if isinstance(value, list) else [None]:
        if not isinstance(link, list) or len(link) != 2 or not all(isinstance(end, str) and end for end in link):
            raise BadApp('must be a list of pairs of nodes, such as [["core", "north"], ["core", "south"]]')
        links.append((link[0], link[1]))
    return tuple(links)


PUSH_KEYS: Keys = {
    "enabled": ("enabled", boolean),
    "threshold": ("threshold", lambda value: number(value, 0, 1e12)),
    "pages": ("pages", lambda value: whole_number(value, 1, 1000)),
    "period": ("period_s", duration_s),
    "decay": ("decay", _decay),
    "servers": ("servers", lambda value: whole_number(value, 1, 1_000_000)),
    "caching": ("caching", _strategy),
    "lookup": ("lookup", _strategy),
    "lat": ("lat", lambda value: number(value, -90, 90)),
    "lon": ("lon", lambda value: number(value, -180, 180)),
    "node": ("node", some_text),
    "links": ("links", _links),
    "seed": ("seed", lambda value: whole_number(value, 0, 2**53)),
}
"""The keys of `[push]`."""

assert {name for name, _ in PUSH_KEYS.values()} == {one.name for one in fields(PushOptions)}
