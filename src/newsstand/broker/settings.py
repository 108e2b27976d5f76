"""How a broker is set up: the table [broker] of a TOML file, the environment, options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from newsstand.broker.home import Place
from newsstand.broker.overlay_told import Opportunistic
from newsstand.broker.page_hosts import AllowedHost
from newsstand.broker.topic_rules import TopicRule
from newsstand.caching import RESULT_POLICIES, live_page_policies
from newsstand.errors import BadOption
from newsstand.model import OPPORTUNISTIC_BYTES, OPPORTUNISTIC_SLOTS, OpportunisticPolicy, is_broker_name, is_topic
from newsstand.serving.client_address import require_proxies
from newsstand.serving.http_protocol import HttpLimits
from newsstand.serving.limits import Limits
from newsstand.serving.process import Tls
from newsstand.serving.settings import is_http_url

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
MOST_BYTES = 2**50
"""A pebibyte: more is a slip of the finger."""
Bytes = Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)]
SomeBytes = Annotated[int, msgspec.Meta(ge=1, le=MOST_BYTES)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Node = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All that a broker is told before it begins."""

    name: str
    cluster: str
    """The address of the data cluster."""
    token: str | None = None
    """The credential of this broker, for cluster and coordinator: `newsstand token broker NAME` makes it.

    A broker without a coordinator may have a token of its cluster with the scope broker:NAME.
    """
    token_file: Path | None = None
    data: Path
    host: Text = "127.0.0.1"
    port: Port = 8790
    url: str | None = None
    """Where subscribers reach it, if not where it listens."""
    callback: str | None = None
    """Where the cluster reaches it, if not where it listens."""
    coordinator: str | None = None
    secret: str | None = None
    """The own secret of a broker without a coordinator; it makes one if it is given none."""
    secret_file: Path | None = None
    results_policy: str = "lscz-any"
    results_budget: Bytes = 64 * 1024 * 1024
    results_window_ms: Positive = 300_000
    results_expiry: Literal["cache", "object"] = "cache"
    results_cap_ms: Positive = 3_600_000
    pages_policy: str = "sg2"
    pages_capacity: Bytes = 256 * 1024 * 1024
    pages_push: Literal["needed", "always"] = "needed"
    largest_page: SomeBytes = 64 * 1024 * 1024
    """A page above this is passed on, and never kept."""
    pages_allow: list[str] = []
    """Servers that pages may be fetched from though their addresses are private: HOST, HOST:PORT or networks."""
    push_cache_bytes: Bytes = 64 * 1024 * 1024
    """For copies of popular pages that the origin pushes to brokers near the demand; 0 for none."""
    lat: Annotated[float, msgspec.Meta(ge=-90, le=90)] | None = None
    lon: Annotated[float, msgspec.Meta(ge=-180, le=180)] | None = None
    node: Node | None = None
    capacity: Positive | None = None
    """Connections that it can hold, for the coordinator."""
    registration: bool = True
    """Whether anybody may register as a subscriber."""
    storages: list[str] = []
    """The topics that a broker without a coordinator keeps; one that has it is told."""
    topics: dict[str, TopicRule] = {}
    """Who may publish to which topics and read them, by patterns of topics; open to all if there is no rule."""
    storage_most: Positive = 1_000_000
    """Publications of each topic that are kept; the oldest leave first."""
    opportunistic_policy: str | None = None
    """How a broker without a coordinator caches messages of topics without storages; one that has it is told."""
    opportunistic_slots: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None
    """How many of them, at most; 0 for none."""
    opportunistic_bytes: SomeBytes = OPPORTUNISTIC_BYTES
    """How many bytes of them, with or without a coordinator."""
    access_log: bool = True
    access_log_bytes: SomeBytes = 2 * 1024 * 1024 * 1024
    """Of all tables but the names; the oldest leave first."""
    access_log_days: Positive = 30
    """No row grows older."""
    open_stats: bool = False
    """Whether /stats needs no token."""
    open_metrics: bool = False
    stuck_after_s: Positive = 30
    max_connections: Positive = 50_000
    """Connections of all clients, WebSockets included."""
    max_connections_per_address: Positive = 10_000
    """Connections of one client address; a reverse proxy counts as one client."""
    trusted_proxies: list[str] = []
    """Addresses and networks of reverse proxies whose `X-Forwarded-For` names the client."""
    limits: Limits = Limits()
    """What subscribers may have at most."""
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    """Certificates to trust in cluster and coordinator, if not the system's."""

    def __post_init__(self) -> None:
        if not is_broker_name(self.name):
            raise BadOption(f"name: {self.name!r} must be a lower-case letter, then at most 62 of a-z, 0-9, _ -")
        for kind, name, known in (
            ("result", self.results_policy, list(RESULT_POLICIES)),
            ("page", self.pages_policy, live_page_policies()),
        ):
            if name not in known:
                raise BadOption(
                    f"{kind}s_policy: unknown policy '{name}' of {kind} caches; known: {', '.join(known)}"
                )
        for option, address in (("url", self.url), ("callback", self.callback)):
            if address is not None and not is_http_url(address):
                raise BadOption(
                    f"{option}: {address!r} is no URL; write one such as https://edge.example.org:8790"
                )
        if (self.certificate is None) != (self.key is None):
            raise BadOption("certificate and key: give both or neither")
        if (self.lat is None) != (self.lon is None):
            raise BadOption("lat and lon: give both or neither")
        if self.coordinator is not None and (self.secret is not None or self.secret_file is not None):
            raise BadOption(
                "secret: is for a broker without a coordinator; with one it needs its credential as token_file: "
                "`newsstand token broker NAME` makes it"
            )
        if self.storages and self.coordinator is not None:
            raise BadOption("storages: is for a broker without a coordinator, which says what is kept where")
        for option in ("opportunistic_policy", "opportunistic_slots"):
            if self.coordinator is not None and getattr(self, option) is not None:
                raise BadOption(f"{option}: is for a broker without a coordinator, which says how all cache")
        try:
            OpportunisticPolicy.parse(self.opportunistic.policy)
        except ValueError as error:
            raise BadOption(f"opportunistic_policy: {error}") from None
        for host in self.pages_allow:
            try:
                AllowedHost.parse(host)
            except BadOption as error:
                raise BadOption(f"pages_allow: {error}") from None
        try:
            require_proxies(self.trusted_proxies)
        except BadOption as error:
            raise BadOption(f"trusted_proxies: {error}") from None
        for topic in self.storages:
            if not is_topic(topic):
                raise BadOption(f"storages: {topic!r} cannot be a topic")

    @property
    def tls(self) -> Tls | None:
        """Its certificate, if it has one."""
        if self.certificate is None or self.key is None:
            return None
        return Tls(self.certificate, self.key)

    @property
    def http_limits(self) -> HttpLimits:
        """What its HTTP server accepts."""
        return HttpLimits(
            connections=self.max_connections, connections_per_address=self.max_connections_per_address
        )

    @property
    def opportunistic(self) -> Opportunistic:
        """How it caches if there is no coordinator to tell it."""
        slots = OPPORTUNISTIC_SLOTS if self.opportunistic_slots is None else self.opportunistic_slots
        return Opportunistic(self.opportunistic_policy or str(OpportunisticPolicy()), slots)

    @property
    def keeps_copies(self) -> bool:
        """Whether the origin may push to it: it has room, and says where it is."""
        return self.push_cache_bytes > 0 and (self.lat is not None or self.node is not None)

    def place(self, url: str) -> Place:
        """Where it is, for the coordinator."""
        return Place(self.url or url, self.lat, self.lon, self.node, self.capacity)
