"""The processes of a platform: commands, addresses, and the settings that each one reads."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from newsstand.auth.api_tokens import admin_token, admin_token_path
from newsstand.cluster.app_folder import FILE, App
from newsstand.config.files import toml_table, write_atomically
from newsstand.errors import BadOption
from newsstand.http.server import listening
from newsstand.platform.data_folder import PlatformFolder
from newsstand.platform.tables import PlatformTables, Storages, Table, absolute, require_brokers

NEWSSTAND = (sys.executable, "-m", "newsstand.cli.main")
BASE_PORT = 8770
"""The coordinator's port; the cluster's is 10 more, the first broker's 20 more."""


@dataclass(frozen=True)
class ProcessSpec:
    """One process of a platform."""

    name: str
    command: tuple[str, ...]
    url: str
    """Its address on this machine; it is ready when `/readyz` reports so."""
    patience_s: float = 15.0
    """The time that it has to stop before it is killed."""
    certificate: Path | None = None
    """The file of its certificate, if it speaks TLS."""


@dataclass(frozen=True)
class Ports:
    """The ports of processes that the app does not set; 0 takes a free port."""

    base: int | None = None
    cluster: int | None = None
    coordinator: int | None = None

    def of(self, own: int | None, declared: object, offset: int) -> int:
        """Return the port of the option, else base plus offset, else the app's port, else the default."""
        if own is not None:
            return own
        if self.base is not None:
            return self.base + offset if self.base else 0
        return declared if isinstance(declared, int) else BASE_PORT + offset


@dataclass(frozen=True)
class ListenAddress:
    """The address that a process of a platform listens on."""

    name: str
    """The name of the process."""
    host: str
    port: int
    option: str
    """The option of `newsstand up` that sets another port."""


@dataclass(frozen=True)
class Platform:
    """The processes of an app, their addresses and settings."""

    app: Path
    folder: PlatformFolder
    cluster: ProcessSpec
    coordinator: ProcessSpec | None
    """None if brokers have no coordinator."""
    brokers: tuple[ProcessSpec, ...]
    names: tuple[str, ...]
    """The brokers' names."""
    listening: tuple[ListenAddress, ...]
    settings: Mapping[Path, str] = field(repr=False)
    """Files to write before anything starts."""
    admin_token: Path | None = None
    """The file of the cluster's unrestricted token, if the app declares no tokens."""
    storages: Storages = field(default_factory=dict)
    """The first assignment of topics to storages."""
    usual_data: Path = Path("data")
    """The data folder of the app, where commands look for the platform."""

    @property
    def stages(self) -> list[list[ProcessSpec]]:
        """The processes in the order of their start: a stage starts when the one before it is ready."""
        coordinator = [] if self.coordinator is None else [[self.coordinator]]
        return [[self.cluster], *coordinator, list(self.brokers)]

    @property
    def coordinator_url(self) -> str:
        """The URL of the coordinator, which the platform must have."""
        assert self.coordinator is not None
        return self.coordinator.url

    def reject_used_ports(self) -> None:
        """Raise BadOption if a port is in use."""
        for one in self.listening:
            reject_used(one.name, one.host, one.port, one.option)

    def prepare(self) -> None:
        """Write the secret, tokens and settings. The caller holds the lock of the folder."""
        self.folder.prepare(self.names)
        if self.admin_token is not None:
            # Commands that wait for the cluster need their token before it runs.
            admin_token(self.folder.path, secrets.token_bytes(32))
        for file, text in self.settings.items():
            try:
                write_atomically(file, text.encode())
            except OSError as error:
                raise BadOption(f"{file}: cannot be written ({error.strerror})") from error

    def addresses(self) -> dict[str, object]:
        """Return the addresses and files of the platform as a JSON object."""
        return {
            "app": str(self.app),
            "data": str(self.folder.path),
            "secret_file": str(self.folder.secret_file),
            "cluster": {"url": self.cluster.url, "token_file": self.admin_token and str(self.admin_token)},
            "coordinator": self.coordinator and {"url": self.coordinator.url},
            "brokers": [
                {"name": name, "url": part.url, "token_file": str(self.folder.token_file(name))}
                for name, part in zip(self.names, self.brokers, strict=True)
            ],
        }

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the rows of a table: process, address, file of its token or secret."""
        token = "tokens of newsstand.toml" if self.admin_token is None else str(self.admin_token)
        secret = str(self.folder.secret_file)
        return [
            ("cluster", self.cluster.url, token),
            *([("coordinator", self.coordinator.url, secret)] if self.coordinator is not None else []),
            *(
                (part.name, part.url, str(self.folder.token_file(name)))
                for name, part in zip(self.names, self.brokers, strict=True)
            ),
        ]


def plan(
    app: App,
    tables: PlatformTables,
    *,
    data: Path | None = None,
    host: str | None = None,
    ports: Ports = Ports(),  # noqa: B008  it is frozen
    brokers: int | None = None,
    spark: Sequence[str] = (),
    cluster_command: Sequence[str] | None = None,
    with_coordinator: bool = True,
) -> Platform:
    """Plan the platform of an app. `cluster_command` replaces `newsstand cluster`; `{port}` in it is the port.

    Without a coordinator each broker has the platform's secret, and keeps its subscribers.
    """
    folder = PlatformFolder((data or app.data).absolute())
    addresses = _Addresses(host)
    settings: dict[Path, str] = {}

    wanted = ports.of(ports.cluster, app.cluster.port, 10)
    option = "--base-port" if ports.cluster is None else "--cluster-port"
    cluster_host, port = addresses.take("cluster", app.cluster.host, wanted, option)
    if cluster_command is None:
        where = ("--data", str(folder.path), "--host", cluster_host, "--port", "{port}")
        cluster_command = (*NEWSSTAND, "cluster", str(app.folder.absolute()), *where, *spark)
    cluster = ProcessSpec(
        "cluster",
        tuple(word.replace("{port}", str(port)) for word in cluster_command),
        reachable_url("http" if app.cluster.certificate is None else "https", cluster_host, port),
        patience_s=30,
        certificate=app.cluster.certificate,
    )

    def server(
        command: str, label: str, own: Path, table: Table, secrets: Table, wanted: int, option: str = "--base-port"
    ) -> ProcessSpec:
        """Plan a coordinator or a broker, which reads its settings from a file that this plan holds."""
        bound, port = addresses.take(label, table.get("host"), wanted, option)
        url = reachable_url("https" if "certificate" in table else "http", bound, port)
        public = public_urls(bound, port, url) if command == "broker" else {}
        limits: Table = {"limits": tables.limits} if tables.limits else {}
        table = {"data": own, **limits, **public} | table | {"host": bound, "port": port} | secrets
        file = own / f"{command}.toml"
        settings[file] = f"# Written by `newsstand up` at every start.\n{toml_table(command, table)}"
        certificate = Path(str(table["certificate"])) if "certificate" in table else None
        return ProcessSpec(label, (*NEWSSTAND, command, "--config", str(file)), url, certificate=certificate)

    coordinator = None
    if with_coordinator:
        table = absolute(tables.coordinator, app.folder)
        wanted = ports.of(ports.coordinator, table.get("port"), 0)
        secret: Table = {"secret_file": folder.secret_file}
        option = "--base-port" if ports.coordinator is None else "--coordinator-port"
        coordinator = server("coordinator", "coordinator", folder.coordinator, table, secret, wanted, option)

    declared = broker_tables(tables.brokers, brokers)
    names = tuple(str(one["name"]) for one in declared)
    require_brokers(app.folder / FILE, tables.storages, names)
    specs: list[ProcessSpec] = []
    for number, (name, one) in enumerate(zip(names, declared, strict=True)):
        table = absolute(one, app.folder)
        if tables.pages_allow:
            table = {"pages_allow": tables.pages_allow} | table
        known: Table = {"cluster": cluster.url, "token_file": folder.token_file(name)}
        known |= {"secret_file": folder.secret_file} if coordinator is None else {"coordinator": coordinator.url}
        known |= {"topics": tables.topics} if tables.topics else {}
        wanted = ports.of(None, table.get("port"), 20 + number)
        specs.append(server("broker", f"broker {name}", folder.broker(name), table, known, wanted))
    return Platform(
        app.folder,
        folder,
        cluster,
        coordinator,
        tuple(specs),
        names,
        tuple(addresses.taken),
        settings,
        None if app.tokens else admin_token_path(folder.path),
        tables.storages,
        app.data.absolute(),
    )


class _Addresses:
    """The addresses that the processes of a platform listen on, each with a port of its own."""

    def __init__(self, host: str | None) -> None:
        self.taken: list[ListenAddress] = []
        self._host = host

    def take(self, name: str, of_table: object, port: int, option: str) -> tuple[str, int]:
        """Take an address; port 0 takes a free one. Raise BadOption if the port cannot be had."""
        bound = self._host or (of_table if isinstance(of_table, str) else "127.0.0.1")
        port = port or free_port(bound, {taken.port for taken in self.taken})
        clash = next((taken.name for taken in self.taken if taken.port == port), None)
        if clash is not None:
            raise BadOption(f"{name}: port {port} is the port of {clash}")
        if port > 65535:
            raise BadOption(f"{name}: port {port} is above 65535")
        self.taken.append(ListenAddress(name, bound, port, option))
        return bound, port


def broker_tables(declared: Sequence[Table], count: int | None) -> list[Table]:
    """Return the tables of `count` brokers: the declared ones, then more with default settings."""
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


def public_urls(host: str, port: int, url: str) -> Table:
    """Return the public URL and the callback of a broker that listens on every address."""
    if host not in ("0.0.0.0", "::"):
        return {}
    scheme = url.partition(":")[0]
    return {"url": f"{scheme}://{socket.gethostname()}:{port}", "callback": url}


def reachable_url(scheme: str, host: str, port: int) -> str:
    """Return the URL of a process from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def free_port(host: str, but: Iterable[int] = ()) -> int:
    """Return a port that is free now."""
    while True:
        with listening(host, 0) as held:
            port = int(held.getsockname()[1])
        if port not in but:
            return port


def reject_used(component: str, host: str, port: int, option: str) -> None:
    """Raise BadOption if the port is in use; the error names the option that sets another port."""
    try:
        with listening(host, port):
            pass
    except BadOption as error:
        raise BadOption(f"{component}: {error}; take another with {option}") from error


def environment() -> dict[str, str]:
    """Return the environment of the processes, without settings of brokers and coordinators: the app has those."""
    single = ("NEWSSTAND_BROKER_", "NEWSSTAND_COORDINATOR_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(single)}
    return kept | {"PYTHONUNBUFFERED": "1"}
