"""The app folder: what `newsstand.toml` declares, read and checked as a whole.

    [datasets.NAME]   the shapes of records (see `records`)
    [channels.NAME]   queries over datasets (see `body`)
    [defaults]        what a channel has if it does not say otherwise: retention, delivery
    [[tokens]]        name, sha256, scopes (see `tokens`)
    [cluster]         where the cluster listens, keeps its data, and its limits: `ClusterOptions`
    [push]            whether pages are pushed towards demand, and how: `PushOptions`
    [spark]           settings of Spark (see `newsstand.spark.session`)
    [coordinator], [[brokers]]    what `newsstand up` starts beside the cluster (see `newsstand.platform.declared`)
    [limits]                      what subscribers may have at most (the same)
    [storages]                    which brokers keep the past of which topics (the same)
    [topics."PATTERN"], [groups]  who may publish to topics and read them (the same)
    [pages]                       which servers brokers may fetch pages from (the same)

All mistakes are found in one pass; each is one line that names the file and the place in it.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TypeGuard
from urllib.parse import urlsplit

from newsstand.cluster.body import datasets_read, parse_channel
from newsstand.cluster.channels import require_defaults
from newsstand.cluster.push_settings import PUSH_KEYS, Keys, PushOptions, push_options
from newsstand.cluster.records import parse_dataset
from newsstand.cluster.tokens import Token
from newsstand.cluster.units import boolean, byte_count, duration_s, some_text, whole_number
from newsstand.errors import BadApp, BadInput
from newsstand.model import Channel, Dataset
from newsstand.serving.client_address import proxies_of
from newsstand.serving.http_protocol import HttpLimits
from newsstand.serving.process import Tls
from newsstand.serving.settings import read_toml

FILE = "newsstand.toml"
ADDRESS = "address"
"""The file in the data folder that says where the cluster listens, for commands on the same machine."""

TABLES = (
    *("datasets", "channels", "defaults", "tokens", "cluster", "push", "spark"),
    *("coordinator", "brokers", "limits", "storages", "topics", "groups", "pages"),
)
"""What may stand in it; of the last seven `newsstand up` knows more."""
MIB = 2**20


class BadAppFile(BadApp):
    """newsstand.toml has mistakes, one line each; the message is the first and how many more there are."""

    def __init__(self, mistakes: list[str]) -> None:
        more = len(mistakes) - 1
        super().__init__(mistakes[0] + (f" (and {more} more: `newsstand check` tells all)" if more else ""))
        self.mistakes = mistakes


@dataclass(frozen=True)
class KafkaLog:
    """The ingest log in Kafka: its servers, and what the topics' names begin with."""

    servers: str
    prefix: str = "newsstand."


@dataclass(frozen=True)
class ClusterOptions:
    """The table `[cluster]`."""

    host: str = "127.0.0.1"
    port: int = 8780
    data: Path = Path("data")
    """The folder of the log, the results, the pages and the catalog; relative to the app folder."""
    results: str = field(default="sqlite", repr=False)
    """`sqlite`, or the URL of a PostgreSQL database, which may hold a password."""
    log: KafkaLog | None = None
    """Where the ingest log is, if not in files."""
    max_body_bytes: int = 16 * MIB
    max_subscriptions_body_bytes: int = 256 * MIB
    max_page_bytes: int = MIB
    keep_pages_s: float | None = None
    """How long a page is kept after it was last published; for ever if None."""
    max_lag: int = 1_000_000
    """Publications that a channel may be behind before publishers are told to wait."""
    max_batch: int = 100_000
    """Publications that one execution takes at most."""
    execution_timeout_s: float = 300.0
    """How long one execution may take before its Spark jobs are cancelled."""
    away_after_s: float = 300.0
    """How long a broker may fail to answer before it is marked away."""
    body_timeout_s: float = 30.0
    """How long the next piece of a request's body may take to come."""
    max_connections: int = HttpLimits.connections
    """Connections of all clients."""
    max_connections_per_address: int = HttpLimits.connections_per_address
    """Connections of one client address; a reverse proxy counts as one client."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of reverse proxies whose `X-Forwarded-For` names the client."""
    open_metrics: bool = False
    """Whether /metrics needs no token."""
    secret_file: Path | None = None
    """The platform's secret, by which brokers and operators are known; relative to the app folder."""
    certificate: Path | None = None
    """For TLS, in PEM; this and the next two are relative to the app folder."""
    key: Path | None = None
    authority: Path | None = None
    """Certificates to trust in brokers, if not the system's."""

    @property
    def http_limits(self) -> HttpLimits:
        """What its HTTP server accepts."""
        return HttpLimits(
            connections=self.max_connections, connections_per_address=self.max_connections_per_address
        )


@dataclass(frozen=True)
class App:
    """An app folder that was read and found to be right, as far as that can be known without Spark."""

    folder: Path
    datasets: dict[str, Dataset]
    channels: dict[str, Channel]
    defaults: dict[str, object]
    tokens: tuple[Token, ...]
    cluster: ClusterOptions
    spark: dict[str, str]
    push: PushOptions

    @property
    def file(self) -> Path:
        return self.folder / FILE

    @property
    def data(self) -> Path:
        """The data folder: as configured, taken from the app folder on."""
        return self.folder / self.cluster.data

    @property
    def tls(self) -> Tls | None:
        """The cluster's certificate, if it has one."""
        if self.cluster.certificate is None or self.cluster.key is None:
            return None
        return Tls(self.folder / self.cluster.certificate, self.folder / self.cluster.key)


def read_app(folder: Path, environment: Mapping[str, str] | None = None) -> App:
    """Read `newsstand.toml` of a folder; raise BadAppFile with every mistake in it.

    In the environment `port` of the table `cluster` is NEWSSTAND_CLUSTER_PORT, which is stronger than the file.
    """
    path = folder / FILE
    if not folder.is_dir():
        raise BadApp(f"{folder}: no such folder")
    if not path.is_file():
        raise BadApp(f"{folder}: has no {FILE}")
    try:
        document = read_toml(path)
    except BadInput as error:
        raise BadApp(str(error)) from error
    return _Reading(path, environment or {}).app(document)


class _Reading:
    """One pass over a file, which goes on after a mistake."""

    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        self.path = path
        self.environment = environment
        self.mistakes: list[str] = []

    def app(self, document: Mapping[str, object]) -> App:
        self.refuse_unknown(document, TABLES, "")
        datasets: dict[str, Dataset] = {}
        for name, table in self.tables(document, "datasets"):
            with self.noting():
                datasets[name] = parse_dataset(name, table)
        defaults = self.table(document, "defaults")
        self.refuse_unknown(defaults, ("retention", "delivery"), "defaults.")
        try:
            require_defaults(defaults)
        except BadInput as error:
            self.note(str(error))
            defaults = {}  # what is wrong with them is not told again by every channel
        channels: dict[str, Channel] = {}
        broken = set(self.table(document, "datasets")) - set(datasets)
        for name, table in self.tables(document, "channels"):
            with self.noting():
                # What is wrong with a dataset is not told again by every channel that reads it.
                query = table.get("query")
                if broken and isinstance(query, str) and broken & datasets_read(query, f"channels.{name}.query"):
                    continue
                channels[name] = parse_channel(name, table, datasets, defaults)
        app = App(
            self.path.parent,
            datasets,
            channels,
            dict(defaults),
            tuple(self.tokens(document.get("tokens", []))),
            self.cluster(self.table(document, "cluster")),
            self.spark(self.table(document, "spark")),
            self.push(document),
        )
        if self.mistakes:
            raise BadAppFile(self.mistakes)
        return app

    def tokens(self, listed: object) -> Iterator[Token]:
        if not isinstance(listed, list):
            self.note("tokens: must be written as [[tokens]]")
            return
        names: set[str] = set()
        for number, table in enumerate(listed, start=1):
            place = f"tokens, number {number}"
            if not isinstance(table, dict):
                self.note(f"{place}: must be written as [[tokens]]")
                continue
            self.refuse_unknown(table, ("name", "sha256", "scopes"), f"{place}: ")
            name, digest, scopes = table.get("name"), table.get("sha256"), table.get("scopes")
            if not isinstance(name, str) or not isinstance(digest, str) or not _is_texts(scopes):
                self.note(f"{place}: needs name and sha256, each a string, and scopes, a list of strings")
            elif name in names:
                self.note(f"{place}: the name '{name}' is taken")
            else:
                names.add(name)
                with self.noting(f"{place}: "):
                    yield Token(name, digest.lower(), frozenset(scopes))

    def cluster(self, table: Mapping[str, object]) -> ClusterOptions:
        given = self.values(table, "cluster", CLUSTER_KEYS)
        for key, (name, read) in CLUSTER_KEYS.items():
            variable = f"NEWSSTAND_CLUSTER_{key}".upper()
            if variable in self.environment:
                with self.noting(f"{variable}: "):
                    given[name] = read(_plain(self.environment[variable]))
        if ("certificate" in given) != ("key" in given):
            self.note("cluster: certificate and key: give both or neither")
        return ClusterOptions(**given)  # type: ignore[arg-type]

    def push(self, document: Mapping[str, object]) -> PushOptions:
        table = self.table(document, "push")
        given = self.values(table, "push", PUSH_KEYS)
        if ("lat" in table) != ("lon" in table):
            self.note("push: lat and lon: give both or neither")
        coordinator = document.get("coordinator")
        return push_options(given, coordinator.get("links") if isinstance(coordinator, dict) else None)

    def values(self, table: Mapping[str, object], name: str, known: Keys) -> dict[str, object]:
        """What a table gives, by the names of the options."""
        self.refuse_unknown(table, tuple(known), f"{name}.")
        given: dict[str, object] = {}
        for key, value in table.items():
            if key in known:
                option, read = known[key]
                with self.noting(f"{name}.{key}: "):
                    given[option] = read(value)
        return given

    def spark(self, table: Mapping[str, object]) -> dict[str, str]:
        for key, value in table.items():
            if not key.startswith("spark.") or isinstance(value, dict | list):
                self.note(f'[spark] {key}: a setting is written as "spark.some.key" = value, in quotes')
        return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in table.items()}

    def tables(self, document: Mapping[str, object], kind: str) -> Iterator[tuple[str, Mapping[str, object]]]:
        for name, table in self.table(document, kind).items():
            if isinstance(table, dict):
                yield name, table
            else:
                self.note(f"{kind}.{name}: must be a table, written as [{kind}.{name}]")

    def table(self, document: Mapping[str, object], name: str) -> Mapping[str, object]:
        table = document.get(name, {})
        if isinstance(table, dict):
            return table
        self.note(f"{name}: must be a table, written as [{name}]")
        return {}

    def refuse_unknown(self, table: Mapping[str, object], known: Collection[str], place: str) -> None:
        for key in table:
            if key not in known:
                self.note(f"{place}{key}: {unknown(key, known)}")

    @contextmanager
    def noting(self, place: str = "") -> Iterator[None]:
        try:
            yield
        except BadInput as error:
            self.note(f"{place}{error}")

    def note(self, mistake: str) -> None:
        line = f"{self.path}: {mistake}"
        if line not in self.mistakes:
            self.mistakes.append(line)


def unknown(word: str, known: Collection[str]) -> str:
    """What to say of an unknown word: the known one that it resembles, or all of them."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"is not known; did you mean '{close[0]}'?" if close else f"is not known; known: {', '.join(known)}"


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _plain(text: str) -> object:
    """What a text of the environment would be in TOML."""
    return int(text) if text.isdecimal() else {"true": True, "false": False}.get(text, text)


def _file(value: object) -> Path:
    return Path(some_text(value))


def _port(value: object) -> int:
    return whole_number(value, 0, 65535)


def _count(value: object) -> int:
    return whole_number(value, 1, 2**53)


def _results(value: object) -> str:
    if value != "sqlite" and urlsplit(some_text(value)).scheme not in ("postgresql", "postgres"):
        raise BadApp('must be "sqlite" or the URL of a database, "postgresql://user@host/name"')
    return some_text(value)


def _log(value: object) -> KafkaLog | None:
    if value == "files":
        return None
    if not isinstance(value, dict) or not value.keys() <= {"kafka", "prefix"} or "kafka" not in value:
        raise BadApp('must be "files" or {kafka = "host:9092", prefix = "newsstand."}')
    return KafkaLog(some_text(value["kafka"]), some_text(value.get("prefix", KafkaLog.prefix)))


CLUSTER_KEYS: Keys = {
    "host": ("host", some_text),
    "port": ("port", _port),
    "data": ("data", _file),
    "results": ("results", _results),
    "log": ("log", _log),
    "max_body_bytes": ("max_body_bytes", byte_count),
    "max_subscriptions_body_bytes": ("max_subscriptions_body_bytes", byte_count),
    "max_page_bytes": ("max_page_bytes", byte_count),
    "keep_pages": ("keep_pages_s", duration_s),
    "max_lag": ("max_lag", _count),
    "max_batch": ("max_batch", _count),
    "execution_timeout": ("execution_timeout_s", duration_s),
    "away_after": ("away_after_s", duration_s),
    "body_timeout": ("body_timeout_s", duration_s),
    "max_connections": ("max_connections", _count),
    "max_connections_per_address": ("max_connections_per_address", _count),
    "trusted_proxies": ("trusted_proxies", proxies_of),
    "open_metrics": ("open_metrics", boolean),
    "secret_file": ("secret_file", _file),
    "certificate": ("certificate", _file),
    "key": ("key", _file),
    "authority": ("authority", _file),
}
"""The keys of `[cluster]`: the option that each one sets, and how it is read."""

assert {name for name, _ in CLUSTER_KEYS.values()} == {one.name for one in fields(ClusterOptions)}
