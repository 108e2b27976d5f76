"""What a platform consists of: the commands of its parts, their addresses, and what each is told."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from newsstand.cluster.app_folder import FILE, App
from newsstand.cluster.tokens import admin_token, admin_token_path
from newsstand.errors import BadOption
from newsstand.platform.declared import Declared, Table
from newsstand.platform.folder import PlatformFolder, write_private
from newsstand.platform.storages import Storages, require_brokers

NEWSSTAND = (sys.executable, "-m", "newsstand.cli.main")
BASE_PORT = 8770
"""The coordinator's port; the cluster's is 10 more, the first broker's 20 more."""

PATHS = ("data", "certificate", "key", "authority")
"""Settings that are paths, taken from the app folder on."""


@dataclass(frozen=True)
class Part:
    """One process of a platform."""

    name: str
    command: tuple[str, ...]
    url: str
    """Where it answers on this machine; it is ready when `/readyz` says so."""
    patience_s: float = 15.0
    """How long it may take to stop before it is killed."""
    certificate: Path | None = None
    """The file of its certificate, if it speaks TLS."""


@dataclass(frozen=True)
class Ports:
    """Where parts listen if the app does not say; 0 takes a free port."""

    base: int | None = None
    cluster: int | None = None
    coordinator: int | None = None

    def of(self, own: int | None, declared: object, offset: int) -> int:
        """A part's port: its own option, else the base with the offset, else what the app says, else the usual."""
        if own is not None:
            return own
        if self.base is not None:
            return self.base + offset if self.base else 0
        return declared if isinstance(declared, int) else BASE_PORT + offset


@dataclass(frozen=True)
class Platform:
    """All that runs, in the order in which it starts: each stage when the one before it is ready."""

    app: Path
    folder: PlatformFolder
    cluster: Part
    coordinator: Part
    brokers: tuple[Part, ...]
    names: tuple[str, ...]
    """The brokers' names."""
    listening: tuple[tuple[str, str, int], ...]
    """Part, host and port of each."""
    settings: Mapping[Path, str] = field(repr=False)
    """Files to write before anything starts."""
    admin_token: Path | None = None
    """The cluster's token for everything, if the app declares no tokens."""
    storages: Storages = field(default_factory=dict)
    """The brokers that keep each topic at first."""
    usual_data: Path = Path("data")
    """The data folder that the app says, where commands look for the platform."""

    @property
    def stages(self) -> list[list[Part]]:
        return [[self.cluster], [self.coordinator], list(self.brokers)]

    def prepare(self) -> None:
        """Refuse used ports; write secret, tokens and settings. The folder is locked."""
        for part, host, port in self.listening:
            refuse_used(part, host, port, "--base-port")
        self.folder.prepare(self.names)
        if self.admin_token is not None:
            # Made before the cluster is up, so that commands that wait for the cluster have their token.
            admin_token(self.folder.path, secrets.token_bytes(32))
        for file, text in self.settings.items():
            try:
                write_private(file, text)
            except OSError as error:
                raise BadOption(f"{file}: cannot be written ({error.strerror})") from error

    def addresses(self) -> dict[str, object]:
        """Where everything is, for programs."""
        return {
            "app": str(self.app),
            "data": str(self.folder.path),
            "secret_file": str(self.folder.secret_file),
            "cluster": {"url": self.cluster.url, "token_file": self.admin_token and str(self.admin_token)},
            "coordinator": {"url": self.coordinator.url},
            "brokers": [
                {"name": name, "url": part.url, "token_file": str(self.folder.token_file(name))}
                for name, part in zip(self.names, self.brokers, strict=True)
            ],
        }

    def rows(self) -> list[tuple[str, str, str]]:
        """The same for people: part, address, its token or secret."""
        token = "tokens of newsstand.toml" if self.admin_token is None else str(self.admin_token)
        return [
            ("cluster", self.cluster.url, token),
            ("coordinator", self.coordinator.url, str(self.folder.secret_file)),
            *(
                (part.name, part.url, str(self.folder.token_file(name)))
                for name, part in zip(self.names, self.brokers, strict=True)
            ),
        ]


def plan(
    app: App,
    declared: Declared,
    *,
    data: Path | None = None,
    host: str | None = None,
    ports: Ports = Ports(),  # noqa: B008  it is frozen
    brokers: int | None = None,
    spark: Sequence[str] = (),
    cluster_command: Sequence[str] | None = None,
) -> Platform:
    """The platform of an app. `cluster_command` stands for `newsstand cluster`; `{port}` in it is the port."""
    folder = PlatformFolder((data or app.data).absolute())
    listening: list[tuple[str, str, int]] = []

    def take(part: str, of_table: object, port: int) -> tuple[str, int]:
        bound = host or (of_table if isinstance(of_table, str) else "127.0.0.1")
        port = port or free_port(bound, {taken for _, _, taken in listening})
        clash = next((other for other, _, taken in listening if taken == port), None)
        if clash is not None:
            raise BadOption(f"{part}: port {port} is the port of {clash}")
        if port > 65535:
            raise BadOption(f"{part}: port {port} is above 65535")
        listening.append((part, bound, port))
        return bound, port

    cluster_host, cluster_port = take("cluster", app.cluster.host, ports.of(ports.cluster, app.cluster.port, 10))
    cluster_url = reached("http" if app.tls is None else "https", cluster_host, cluster_port)
    if cluster_command is None:
        where = ("--data", str(folder.path), "--host", cluster_host, "--port", "{port}")
        cluster_command = (*NEWSSTAND, "cluster", str(app.folder.absolute()), *where, *spark)
    told = tuple(word.replace("{port}", str(cluster_port)) for word in cluster_command)
    certificate = None if app.tls is None else app.tls.certificate
    cluster = Part("cluster", told, cluster_url, patience_s=30, certificate=certificate)

    table = absolute(declared.coordinator, app.folder)
    taken_host, port = take("coordinator", table.get("host"), ports.of(ports.coordinator, table.get("port"), 0))
    limits: Table = {"limits": declared.limits} if declared.limits else {}
    table = {"data": folder.coordinator, **limits} | table
    table |= {"host": taken_host, "port": port, "secret_file": folder.secret_file}
    file = folder.coordinator / "coordinator.toml"
    settings = {file: toml_table("coordinator", table)}
    coordinator_url = reached("https" if "certificate" in table else "http", taken_host, port)
    coordinator = Part(
        "coordinator",
        (*NEWSSTAND, "coordinator", "--config", str(file)),
        coordinator_url,
        certificate=certificate_of(table),
    )

    parts: list[Part] = []
    tables = broker_tables(declared.brokers, brokers)
    for number, declared_table in enumerate(tables):
        name = str(declared_table["name"])
        table = absolute(declared_table, app.folder)
        label = f"broker {name}"
        taken_host, port = take(label, table.get("host"), ports.of(None, table.get("port"), 20 + number))
        url = reached("https" if "certificate" in table else "http", taken_host, port)
        if declared.pages_allow:
            table = {"pages_allow": declared.pages_allow} | table
        table = {"data": folder.broker(name), **limits, **everywhere(taken_host, port, url)} | table
        table |= {
            "host": taken_host,
            "port": port,
            "cluster": cluster_url,
            "token_file": folder.token_file(name),
            "coordinator": coordinator_url,
        }
        if declared.topics:
            table["topics"] = declared.topics
        file = folder.broker(name) / "broker.toml"
        settings[file] = toml_table("broker", table)
        command = (*NEWSSTAND, "broker", "--config", str(file))
        parts.append(Part(label, command, url, certificate=certificate_of(table)))
    names = tuple(str(one["name"]) for one in tables)
    require_brokers(app.folder / FILE, declared.storages, names)
    return Platform(
        app.folder,
        folder,
        cluster,
        coordinator,
        tuple(parts),
        names,
        tuple(listening),
        settings,
        None if app.tokens else admin_token_path(folder.path),
        declared.storages,
        app.data.absolute(),
    )


def broker_tables(declared: Sequence[Table], count: int | None) -> list[Table]:
    """As many brokers as asked for: those declared first, then more of the usual kind."""
    wanted = count or len(declared) or 1
    tables = list(declared[:wanted])
    taken = {table["name"] for table in tables}
    number = 1
    while len(tables) < wanted:
        name = "edge" if number == 1 else f"edge{number}"
        if name not in taken:
            tables.append({"name": name})
        number += 1
    return tables


def absolute(table: Mapping[str, object], folder: Path) -> Table:
    """A table whose paths do not depend on where it stands."""
    return {
        key: str(folder.absolute() / value) if key in PATHS and isinstance(value, str) else value
        for key, value in table.items()
    }


def certificate_of(table: Mapping[str, object]) -> Path | None:
    """Return the file of a part's certificate, if it has one."""
    return Path(str(table["certificate"])) if "certificate" in table else None


def everywhere(host: str, port: int, url: str) -> Table:
    """Where a broker that listens on every address is reached: by name from outside, and from this machine."""
    if host not in ("0.0.0.0", "::"):
        return {}
    scheme = url.partition(":")[0]
    return {"url": f"{scheme}://{socket.gethostname()}:{port}", "callback": url}


def reached(scheme: str, host: str, port: int) -> str:
    """The address of a part from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def free_port(host: str, but: Iterable[int] = ()) -> int:
    """A port that nobody has at this moment."""
    while True:
        with bound_to("a part", host, 0) as held:
            port = int(held.getsockname()[1])
        if port not in but:
            return port


def refuse_used(part: str, host: str, port: int, option: str) -> None:
    """Raise BadOption, which names the option to take another port with, if somebody listens there."""
    try:
        bound_to(part, host, port).close()
    except BadOption as error:
        raise BadOption(f"{error}; take another with {option}") from error


def bound_to(part: str, host: str, port: int) -> socket.socket:
    """A socket that was bound to an address for a moment."""
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((host, port))
    except OSError as error:
        held.close()
        raise BadOption(f"{part}: cannot listen on {host} port {port}: {error.strerror}") from error
    return held


def toml_table(name: str, table: Mapping[str, object]) -> str:
    """A table of plain values as TOML, whose strings, numbers and arrays are written as those of JSON."""
    written = (f"{key} = {toml_value(value)}" for key, value in table.items())
    return f"# Written by `newsstand up` at every start.\n[{name}]\n" + "".join(f"{line}\n" for line in written)


def toml_value(value: object) -> str:
    """A plain value as TOML; a table as an inline table."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml_value(one)}" for key, one in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False, default=str)


def environment() -> dict[str, str]:
    """What parts inherit: all but settings of brokers and coordinators, which stand in the app's tables."""
    single = ("NEWSSTAND_BROKER_", "NEWSSTAND_COORDINATOR_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(single)}
    return kept | {"PYTHONUNBUFFERED": "1"}
