"""How a coordinator is set up: a TOML file, then the environment, then options; the later wins.

    [coordinator]
    port = 8770
    secret_file = "platform.secret"
    policy = "nearest"
    links = [["core", "north"], ["core", "south"]]

In the environment `port` is NEWSSTAND_COORDINATOR_PORT, and so for every key but `links` and `limits`. Paths in
the file are taken from the file's folder on.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from newsstand.coordinator.choosing import WAYS
from newsstand.coordinator.standing import Opportunistic
from newsstand.coordinator.tree import DEFAULT_DEGREE, LEAST_DEGREE
from newsstand.errors import BadInput, BadOption
from newsstand.model import OpportunisticPolicy
from newsstand.serving.client_address import proxies_of
from newsstand.serving.http_protocol import HttpLimits
from newsstand.serving.limits import Limits, read_limits
from newsstand.serving.process import Tls
from newsstand.serving.settings import SHORTEST_SECRET, read_toml

TABLES_ONLY = ("links", "limits")
"""Keys that no text can hold: they come from the file only."""
PREFIX = "NEWSSTAND_COORDINATOR_"


@dataclass(frozen=True)
class Settings:
    """All that a coordinator is told before it begins."""

    secret: str = field(repr=False)
    """The platform's one secret, at least 32 characters."""
    host: str = "127.0.0.1"
    port: int = 8770
    data: Path = Path("coordinator-data")
    """The folder of its store."""
    policy: str = "nearest"
    """How a broker is chosen: one of `choosing.WAYS`."""
    lease_s: float = 3.0
    """How long a broker may be silent before it counts as dead; it is to be heard three times in that time."""
    links: tuple[tuple[str, str], ...] = ()
    """The network, for hops: pairs of nodes."""
    overlay_degree: int = DEFAULT_DEGREE
    """How many neighbours a broker gets in the overlay, at most."""
    opportunistic_policy: str = Opportunistic.policy
    """How brokers cache messages of topics that have no storage: caching, request and priority."""
    opportunistic_slots: int = Opportunistic.slots
    """How many messages a broker caches so, at most; 0 for none."""
    open_metrics: bool = False
    """Whether /metrics needs no token."""
    max_connections: int = HttpLimits.connections
    """Connections of all clients."""
    max_connections_per_address: int = HttpLimits.connections_per_address
    """Connections of one client address; a reverse proxy counts as one client."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of reverse proxies whose `X-Forwarded-For` names the client."""
    limits: Limits = Limits()  # noqa: RUF009  it is frozen
    """What subscribers may have at most."""
    tls: Tls | None = None

    @property
    def http_limits(self) -> HttpLimits:
        """What its HTTP server accepts."""
        return HttpLimits(
            connections=self.max_connections, connections_per_address=self.max_connections_per_address
        )


def read_settings(
    file: Path | None, environment: Mapping[str, str], options: Mapping[str, object | None]
) -> Settings:
    """Put together what the file, the environment and the options say; raise BadInput for the first mistake."""
    given: dict[str, object] = {}
    for source, place, key, value in _given(file, environment, options):
        try:
            given[key] = KEYS[key](value)
        except BadInput as error:
            raise BadInput(f"{place}: {error}") from error
        if isinstance(path := given[key], Path) and source is not None:
            given[key] = source / path
        # A secret of a later source goes before a file of an earlier one, and the other way round.
        if key in ("secret", "secret_file"):
            given.pop("secret_file" if key == "secret" else "secret", None)
    return _settings(given)


def _given(
    file: Path | None, environment: Mapping[str, str], options: Mapping[str, object | None]
) -> Iterator[tuple[Path | None, str, str, object]]:
    """Everything that was given, from the weakest to the strongest: folder, place, key and value."""
    if file is not None:
        for key, value in _table(file).items():
            if key not in KEYS:
                raise BadInput(f"{file}: coordinator.{key}: {_unknown(key)}")
            yield file.parent, f"{file}: coordinator.{key}", key, value
    for name, text in environment.items():
        if name.startswith(PREFIX):
            key = name.removeprefix(PREFIX).lower()
            if key in KEYS and key not in TABLES_ONLY:  # others may have variables with such names, too
                yield None, name, key, text
    for key, value in options.items():
        if value is not None:
            yield None, f"--{key.replace('_', '-')}", key, value


def _table(file: Path) -> Mapping[str, object]:
    document = read_toml(file)
    for name in document:
        if name != "coordinator":
            raise BadInput(f"{file}: {name}: is not known; everything belongs into the table [coordinator]")
    table = document.get("coordinator", {})
    if not isinstance(table, dict):
        raise BadInput(f"{file}: coordinator: must be a table, written as [coordinator]")
    return table


def _settings(given: dict[str, object]) -> Settings:
    if isinstance(file := given.pop("secret_file", None), Path):
        given["secret"] = _secret_in(file)
    if "secret" not in given:
        raise BadOption(
            f"a secret is missing: name a file with --secret-file, or set {PREFIX}SECRET; the cluster has the same"
        )
    certificate, key = given.pop("certificate", None), given.pop("key", None)
    if (certificate is None) != (key is None):
        raise BadOption("certificate and key: give both or neither")
    if isinstance(certificate, Path) and isinstance(key, Path):
        given["tls"] = tls = Tls(certificate, key)
        tls.check()
    known = {one.name for one in fields(Settings)}
    return Settings(**{key: value for key, value in given.items() if key in known})  # type: ignore[arg-type]


def _secret_in(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"{file}: the secret cannot be read ({getattr(error, 'strerror', 'not text')})") from error
    try:
        return _secret(text)
    except BadInput as error:
        raise BadOption(f"{file}: {error}") from error


def _unknown(key: str) -> str:
    close = difflib.get_close_matches(key, KEYS, n=1)
    return f"is not known; did you mean '{close[0]}'?" if close else f"is not known; known: {', '.join(KEYS)}"


def _secret(value: object) -> str:
    if not isinstance(value, str) or len(value) < SHORTEST_SECRET:
        raise BadOption(f"the secret must have at least {SHORTEST_SECRET} characters")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise BadOption("must be a text that is not empty")
    return value


def _path(value: object) -> Path:
    return value if isinstance(value, Path) else Path(_text(value)).expanduser()


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
            raise BadOption(f"must be a whole number from {least} to {most}")
        return number

    return read


def _policy(value: object) -> str:
    if not isinstance(value, str) or value not in WAYS:
        raise BadOption(f"'{value}' is none of {', '.join(sorted(WAYS))}")
    return value


def _opportunistic(value: object) -> str:
    try:
        return str(OpportunisticPolicy.parse(_text(value)))
    except ValueError as error:
        raise BadOption(str(error)) from None


def _lease(value: object) -> float:
    try:
        seconds = (
            float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
        )
    except ValueError:
        seconds = math.nan
    if not 0.2 <= seconds <= 3600:
        raise BadOption("must be a number of seconds from 0.2 to 3600")
    return seconds


def _boolean(value: object) -> bool:
    words = {"true": True, "false": False}
    found = words.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise BadOption("must be true or false")
    return found


def _links(value: object) -> tuple[tuple[str, str], ...]:
    links = []
    for link in value if isinstance(value, list) else [None]:
        if not isinstance(link, list) or len(link) != 2 or not all(isinstance(end, str) and end for end in link):
            raise BadOption('must be a list of pairs of nodes, such as [["core", "north"], ["core", "south"]]')
        links.append((link[0], link[1]))
    return tuple(links)


KEYS: dict[str, Callable[[object], object]] = {
    "secret": _secret,
    "secret_file": _path,
    "host": _text,
    "port": _whole(0, 65535),
    "data": _path,
    "policy": _policy,
    "lease_s": _lease,
    "links": _links,
    "overlay_degree": _whole(LEAST_DEGREE, 1000),
    "opportunistic_policy": _opportunistic,
    "opportunistic_slots": _whole(0, 1_000_000),
    "open_metrics": _boolean,
    "max_connections": _whole(1, 1_000_000),
    "max_connections_per_address": _whole(1, 1_000_000),
    "trusted_proxies": proxies_of,
    "limits": read_limits,
    "certificate": _path,
    "key": _path,
}
"""The keys of `[coordinator]`, and how each one is read."""
