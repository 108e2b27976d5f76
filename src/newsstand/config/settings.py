"""Settings of a server: a table of a TOML file, then the environment, then options; the later source wins."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import msgspec

from newsstand.config.files import read_toml
from newsstand.config.types import (
    Count,
    Port,
    Proxies,
    Text,
    is_hidden,
    read_value,
    require_together,
    unknown_name,
)
from newsstand.errors import BadInput, BadOption, LimitReached

S = TypeVar("S", bound="Settings")
TABLES = ("broker", "coordinator")
"""The tables that a server's own TOML file may hold."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """A table of settings, whose `repr` shows no secrets."""

    def __repr__(self) -> str:
        shown = (one for one in msgspec.structs.fields(type(self)) if not is_hidden(one.type))
        return f"{type(self).__name__}({', '.join(f'{one.name}={getattr(self, one.name)!r}' for one in shown)})"


def read_settings(
    shape: type[S], table: str, file: Path | None, environment: Mapping[str, str], options: Mapping[str, object]
) -> S:
    """Read settings from a file, the environment and options; raise BadInput for the first mistake.

    In the environment `port` of the table `broker` is NEWSSTAND_BROKER_PORT. Paths in the file are relative to
    its folder. An option that is None is not given.
    """
    reader = SettingsReader(shape, table)
    if file is not None:
        reader.add_table(_table(file, table), f"{file}: {table}.", file.parent)
    reader.add_environment(environment)
    reader.add_options(options)
    settings = reader.finish()
    if settings is None:
        raise BadOption(reader.mistakes[0])
    return settings


class SettingsReader(Generic[S]):
    """Reads one table of settings from several sources, the weakest first, and collects the mistakes."""

    def __init__(self, shape: type[S], table: str) -> None:
        """`table` names the settings in the environment and in mistakes."""
        self.mistakes: list[str] = []
        self._shape, self._table = shape, table
        self._fields = {one.encode_name: one for one in msgspec.structs.fields(shape)}
        self._values: dict[str, object] = {}
        self._places: dict[str, str] = {}

    def add_table(
        self,
        table: Mapping[str, object],
        prefix: str,
        folder: Path | None = None,
        reserved: Mapping[str, str] | None = None,
    ) -> None:
        """Add a table of a file; `reserved` are keys that it may not have, and why.

        Paths are relative to `folder`; without one they stay as they are.
        """
        known = [key for key in self._fields if key not in (reserved or {})]
        given = {}
        for key, value in table.items():
            if key in known:
                given[key] = (f"{prefix}{key}", value)
            else:
                self.mistakes.append(f"{prefix}{key}: {(reserved or {}).get(key) or unknown_name(key, known)}")
        self._add(given, folder)

    def add_environment(self, environment: Mapping[str, str], folder: Path | None = None) -> None:
        """Add the variables NEWSSTAND_TABLE_KEY."""
        variables = {key: f"NEWSSTAND_{self._table}_{key}".upper() for key in self._fields}
        known = {key: (name, environment[name]) for key, name in variables.items() if name in environment}
        # Digits are what they would be in TOML.
        self._add(
            {key: (name, int(one) if one.isdecimal() else one) for key, (name, one) in known.items()}, folder
        )

    def add_options(self, options: Mapping[str, object]) -> None:
        """Add options of a command."""
        given = {key: value for key, value in options.items() if value is not None}
        self._add({key: (f"--{key.replace('_', '-')}", value) for key, value in given.items()})

    def finish(self, **decided: object) -> S | None:
        """Return the settings, with the fields that are `decided` otherwise; None if there are mistakes."""
        values = self._values | decided
        missing = [key for key, one in self._fields.items() if one.required and one.name not in values]
        if missing and not self.mistakes:
            names = ", ".join(f"--{key.replace('_', '-')}" for key in missing)
            self.mistakes.append(
                f"{self._table}: missing {names}; give them as options, in --config or in the environment"
            )
        if self.mistakes:
            return None
        try:
            return self._shape(**values)
        except BadInput as error:
            key, _, rest = str(error).partition(": ")
            place = self._places.get(key)
            self.mistakes.append(f"{place}: {rest}" if place else f"{self._table}: {error}")
            return None

    def _add(self, given: Mapping[str, tuple[str, object]], folder: Path | None = None) -> None:
        for key in given:
            for other in _alternatives(key):  # `secret` replaces `secret_file` of a weaker source, and vice versa
                if other not in given:
                    self._values.pop(other, None)
        for key, (place, value) in given.items():
            one = self._fields[key]
            try:
                found = read_value(place, value, one.type)
            except BadInput as error:
                self.mistakes.append(str(error))
                continue
            self._values[one.name] = folder / found if folder is not None and isinstance(found, Path) else found
            self._places[one.name] = place


def _alternatives(key: str) -> Iterator[str]:
    yield key.removesuffix("_file") if key.endswith("_file") else f"{key}_file"


def _table(file: Path, table: str) -> Mapping[str, object]:
    document = read_toml(file)
    for name in document:
        if name not in TABLES:
            raise BadInput(f"{file}: {name}: is not known; everything belongs into the table [{table}]")
    found = document.get(table)
    if not isinstance(found, dict):
        raise BadInput(f"{file}: there is no table [{table}]")
    return found


@dataclass(frozen=True)
class HttpLimits:
    """The limits of an HTTP server."""

    head_bytes: int = 32 * 1024
    headers: int = 100
    head_s: float = 10.0
    """The time for a whole head, and for the rest of a body that is not read."""
    pipelined: int = 16
    """Requests that wait on one connection."""
    connections: int = 10_000
    connections_per_address: int = 1_000


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Raise BadOption unless a server's PEM files, if it has any, exist and belong together."""
    if certificate is None or key is None:
        return
    for file in (certificate, key):
        if not file.is_file():
            raise BadOption(f"{file}: no such file")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError is one, too
        raise BadOption(f"{certificate}: not a PEM certificate with the key {key} ({error})") from error


class ServerSettings(Settings, frozen=True, kw_only=True):
    """The settings that every server has."""

    host: Text = "127.0.0.1"
    port: Port = 0
    max_connections: Count = HttpLimits.connections
    """Connections of all clients, WebSockets included."""
    max_connections_per_address: Count = HttpLimits.connections_per_address
    """Connections of one client address; a reverse proxy counts as one client."""
    trusted_proxies: Proxies = ()
    """Addresses and networks of reverse proxies whose `X-Forwarded-For` names the client."""
    open_metrics: bool = False
    """Whether /metrics needs no token."""
    certificate: Path | None = None
    """For TLS, in PEM."""
    key: Path | None = None

    def __post_init__(self) -> None:
        require_together(self, "certificate", "key")

    @property
    def http_limits(self) -> HttpLimits:
        """The limits of the HTTP server."""
        return HttpLimits(
            connections=self.max_connections, connections_per_address=self.max_connections_per_address
        )


MOST_SESSIONS = 100
"""Sessions of one subscriber that a coordinator keeps."""
Limit = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
Sessions = Annotated[int, msgspec.Meta(ge=1, le=MOST_SESSIONS)]


class SubscriberLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `limits` of coordinator and brokers: totals, one rate, and sizes in bytes."""

    accounts: Limit = 1_000_000
    """Subscribers of the platform, counted by the coordinator, or by a broker without one."""
    registrations_per_hour: Limit = 1_000
    """Registrations from one client address."""
    sessions: Sessions = MOST_SESSIONS
    """Sessions of one subscriber; the one that ends first makes room for a new one."""
    subscriptions: Limit = 1_000
    """Subscriptions of one subscriber to channels."""
    sockets: Limit = 100
    """WebSockets of one subscriber."""
    filters: Limit = 1_000
    """Subscriptions of one subscriber to topics, over all its WebSockets."""
    value_bytes: Limit = 4_096
    """One value of a subscription, as JSON in UTF-8."""
    values_bytes: Limit = 16_384
    """All values of a subscription, as JSON in UTF-8."""

    def require(self, name: str, held: int, what: str) -> None:
        """Raise LimitReached if the limit of a name is reached; `what` describes the counted things."""
        most: int = getattr(self, name)
        if held >= most:
            raise LimitReached(f"limits.{name} allows {most} {what}, and there is no room for another")
