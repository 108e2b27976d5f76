"""The app folder: reading and checking of `newsstand.toml`.

It is a component of the cluster, not of `config`, because it parses datasets, queries and tokens of the cluster.

    [datasets.NAME]   fields of records (see `newsstand.cluster.ingest.schema`)
    [channels.NAME]   queries over datasets (see `newsstand.cluster.query.parser`)
    [defaults]        defaults of channels: retention, delivery
    [[tokens]]        name, sha256, scopes (see `newsstand.auth.api_tokens`)
    [cluster]         address, data folder and limits of the cluster: `ClusterSettings`
    [push]            push-caching of pages: `PushCachingSettings`
    [spark]           settings of Spark (see `newsstand.spark.session`)
    [coordinator], [[brokers]]    processes that `newsstand up` starts (see `newsstand.platform.tables`)
    [limits]                      limits of subscribers (the same)
    [storages]                    brokers that store topics (the same)
    [topics."PATTERN"], [groups]  permissions to publish to topics and to read them (the same)
    [pages]                       servers from which brokers may fetch pages (the same)

One pass finds all mistakes; each is one line that names the file and the place in it.

The keys of `[push]` are the terms of Gwertzman and Seltzer (1995); see `newsstand.push_caching.origin`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from newsstand.auth.api_tokens import ApiToken
from newsstand.cluster.ingest.schema import parse_dataset
from newsstand.cluster.query.parser import datasets_read, parse_channel, require_defaults
from newsstand.config.files import read_toml
from newsstand.config.settings import ServerSettings, Settings, SettingsReader
from newsstand.config.types import (
    Conversion,
    Count,
    Duration,
    DurationOrZero,
    Latitude,
    Links,
    Longitude,
    SecretMark,
    Size,
    Text,
    one_of,
    read_value,
    require_together,
    unknown_name,
)
from newsstand.errors import BadApp, BadInput, BadOption
from newsstand.geo.location import Location
from newsstand.model import ChannelDefinition, Dataset
from newsstand.push_caching.origin import DECAY, PERIOD_S, PushOriginSettings
from newsstand.push_caching.sites import LIVE_STRATEGIES

MIB = 2**20


class KafkaLogSettings(msgspec.Struct, frozen=True):
    """The ingest log in Kafka: its servers, and the prefix of the topics' names."""

    servers: str
    prefix: str = "newsstand."


def _results(value: object) -> str:
    if isinstance(value, str) and (value == "sqlite" or urlsplit(value).scheme in ("postgresql", "postgres")):
        return value
    raise BadOption('must be "sqlite" or the URL of a database, "postgresql://user@host/name"')


def _log(value: object) -> KafkaLogSettings | None:
    if value == "files":
        return None
    if not isinstance(value, dict) or not value.keys() <= {"kafka", "prefix"} or "kafka" not in value:
        raise BadOption('must be "files" or {kafka = "host:9092", prefix = "newsstand."}')
    if not all(isinstance(one, str) and one for one in value.values()):
        raise BadOption("must be a string that is not empty")
    return KafkaLogSettings(value["kafka"], value.get("prefix", "newsstand."))


def _decay(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadOption("must be a number from 0 to 1")
    if value == 1:
        raise BadOption("must be below 1")
    return float(value)


class ClusterSettings(ServerSettings, frozen=True, kw_only=True):
    """The table `[cluster]`; its paths are relative to the app folder."""

    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8780
    data: Path = Path("data")
    """The folder of the log, the results, the pages and the catalog."""
    results: Annotated[str, Conversion(_results), SecretMark()] = "sqlite"
    """`sqlite`, or the URL of a PostgreSQL database, which may hold a password."""
    log: Annotated[KafkaLogSettings | None, Conversion(_log)] = None
    """The ingest log in Kafka; None keeps it in files."""
    max_body_bytes: Size = 16 * MIB
    max_subscriptions_body_bytes: Size = 256 * MIB
    max_page_bytes: Size = MIB
    keep_pages_s: Duration | None = msgspec.field(default=None, name="keep_pages")
    """The age since its last publication at which a page is removed; None keeps all pages."""
    max_lag: Count = 1_000_000
    """Publications that a channel may be behind before publishers have to wait."""
    max_batch: Count = 100_000
    """Publications that one execution takes at most."""
    execution_timeout_s: Duration = msgspec.field(default=300.0, name="execution_timeout")
    """How long one execution may take before its Spark jobs are cancelled."""
    execution_results: Annotated[int, msgspec.Meta(ge=1, le=2_000_000_000)] = 10_000_000
    """Results that one execution may have before it fails; Spark's limit has 32 bits."""
    warm_up_s: DurationOrZero = msgspec.field(default=5.0, name="warm_up")
    """How long channels are executed on samples before the cluster is ready; 0 starts without."""
    away_after_s: Duration = msgspec.field(default=300.0, name="away_after")
    """How long a broker may fail to answer before it is marked away."""
    body_timeout_s: Duration = msgspec.field(default=30.0, name="body_timeout")
    """How long the server waits for the next piece of a request's body."""
    secret_file: Path | None = None
    """The platform's secret, which authenticates brokers and operators."""
    authority: Path | None = None
    """Certificates to trust in brokers, in place of the system's."""


class PushCachingSettings(Settings, frozen=True, kw_only=True):
    """The table `[push]`: whether the cluster pushes pages towards demand, and how."""

    enabled: bool = False
    threshold: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = PushOriginSettings.threshold
    """push-threshold: the cluster pushes while its load is higher."""
    pages: Annotated[int, msgspec.Meta(ge=1, le=1000)] = PushOriginSettings.pages_to_push
    """pages-to-push: pages in one push."""
    period_s: Duration = msgspec.field(default=PERIOD_S, name="period")
    decay: Annotated[float, Conversion(_decay)] = DECAY
    servers: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    """server-number: push to this many brokers at most; to all if None."""
    caching: Annotated[str, one_of(LIVE_STRATEGIES)] = "nearest"
    """caching-strategy: the metric that selects the brokers to push to."""
    lookup: Annotated[str, one_of(LIVE_STRATEGIES)] = "nearest"
    """lookup-strategy: the metric that selects the broker to redirect to."""
    lat: Latitude | None = None
    """The location of the cluster."""
    lon: Longitude | None = None
    node: Text | None = None
    links: Links = ()
    """The network, for hops."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    """For `random`."""

    def __post_init__(self) -> None:
        require_together(self, "lat", "lon")

    @property
    def location(self) -> Location:
        """The location of the cluster."""
        return Location(self.lat, self.lon, self.node)


FILE = "newsstand.toml"
ADDRESS = "address"
"""The file in the data folder with the URL of the running cluster, for commands on the same machine."""

TABLES = (
    *("datasets", "channels", "defaults", "tokens", "cluster", "push", "spark"),
    *("coordinator", "brokers", "limits", "storages", "topics", "groups", "pages"),
)
"""The tables of the file; `newsstand.platform.tables` reads the last seven."""
S = TypeVar("S", bound=Settings)


class BadAppFile(BadApp):
    """newsstand.toml has mistakes, one line each; the message is the first one and the number of others."""

    def __init__(self, mistakes: list[str]) -> None:
        more = len(mistakes) - 1
        super().__init__(mistakes[0] + (f" (and {more} more: `newsstand check` lists all)" if more else ""))
        self.mistakes = mistakes


@dataclass(frozen=True)
class App:
    """An app folder whose file is valid, as far as that can be checked without Spark."""

    folder: Path
    datasets: dict[str, Dataset]
    channels: dict[str, ChannelDefinition]
    defaults: dict[str, object]
    tokens: tuple[ApiToken, ...]
    cluster: ClusterSettings
    spark: dict[str, str]
    push: PushCachingSettings

    @property
    def file(self) -> Path:
        return self.folder / FILE

    @property
    def data(self) -> Path:
        """The configured data folder."""
        return self.folder / self.cluster.data

    def with_data(self, data: Path) -> App:
        """Return the app with another data folder."""
        return replace(self, cluster=msgspec.structs.replace(self.cluster, data=data))


def read_app(folder: Path, environment: Mapping[str, str] | None = None) -> App:
    """Read `newsstand.toml` of a folder; raise BadAppFile with every mistake in it.

    A variable such as NEWSSTAND_CLUSTER_PORT, for `port` of the table `cluster`, overrides the file.
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
    return _AppReader(path, environment or {}).app(document)


class _TokenTable(msgspec.Struct):
    name: str
    sha256: str
    scopes: list[str]


class _AppReader:
    """A reader of the file that continues after a mistake."""

    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        self.path = path
        self.environment = environment
        self.mistakes: list[str] = []

    def app(self, document: Mapping[str, object]) -> App:
        self.check_keys(document, TABLES, "")
        datasets: dict[str, Dataset] = {}
        for name, table in self.tables(document, "datasets"):
            with self.collecting():
                datasets[name] = parse_dataset(name, table)
        defaults = self.table(document, "defaults")
        self.check_keys(defaults, ("retention", "delivery"), "defaults.")
        try:
            require_defaults(defaults)
        except BadInput as error:
            self.report(str(error))
            defaults = {}  # reported once, not by every channel
        channels: dict[str, ChannelDefinition] = {}
        broken = set(self.table(document, "datasets")) - set(datasets)
        for name, table in self.tables(document, "channels"):
            with self.collecting():
                # A broken dataset is reported once, not by every channel that reads it.
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
            self.settings(ClusterSettings, "cluster", self.table(document, "cluster"), self.environment),
            self.spark(self.table(document, "spark")),
            self.push(document),
        )
        if self.mistakes:
            raise BadAppFile(self.mistakes)
        return app

    def tokens(self, listed: object) -> Iterator[ApiToken]:
        if not isinstance(listed, list):
            self.report("tokens: must be written as [[tokens]]")
            return
        names: set[str] = set()
        for number, table in enumerate(listed, start=1):
            place = f"tokens, number {number}"
            if not isinstance(table, dict):
                self.report(f"{place}: must be written as [[tokens]]")
                continue
            with self.collecting():
                given = cast("_TokenTable", read_value(place, table, _TokenTable))
                if given.name in names:
                    raise BadApp(f"{place}: the name '{given.name}' is used twice")
                names.add(given.name)
                with self.collecting(f"{place}: "):
                    yield ApiToken(given.name, given.sha256.lower(), frozenset(given.scopes))

    def push(self, document: Mapping[str, object]) -> PushCachingSettings:
        """Read `[push]`; without links of its own it takes those of `[coordinator]`."""
        table = self.table(document, "push")
        coordinator = document.get("coordinator")
        if "links" not in table and isinstance(coordinator, dict) and "links" in coordinator:
            with suppress(BadInput):  # a mistake in them is reported with the coordinator's table
                read_value("", coordinator["links"], Links)
                table = {**table, "links": coordinator["links"]}
        return self.settings(PushCachingSettings, "push", table)

    def settings(
        self, shape: type[S], name: str, table: Mapping[str, object], environment: Mapping[str, str] | None = None
    ) -> S:
        reader = SettingsReader(shape, name)
        folder = self.path.parent.absolute()
        reader.add_table(table, f"{name}.", folder)
        reader.add_environment(environment or {}, folder)
        found = reader.finish()
        for mistake in reader.mistakes:
            self.report(mistake)
        return found or shape()

    def spark(self, table: Mapping[str, object]) -> dict[str, str]:
        for key, value in table.items():
            if not key.startswith("spark.") or isinstance(value, dict | list):
                self.report(f'[spark] {key}: a setting is written as "spark.some.key" = value, in quotes')
        return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in table.items()}

    def tables(self, document: Mapping[str, object], kind: str) -> Iterator[tuple[str, Mapping[str, object]]]:
        for name, table in self.table(document, kind).items():
            if isinstance(table, dict):
                yield name, table
            else:
                self.report(f"{kind}.{name}: must be a table, written as [{kind}.{name}]")

    def table(self, document: Mapping[str, object], name: str) -> Mapping[str, object]:
        table = document.get(name, {})
        if isinstance(table, dict):
            return table
        self.report(f"{name}: must be a table, written as [{name}]")
        return {}

    def check_keys(self, table: Mapping[str, object], known: Collection[str], place: str) -> None:
        for key in table:
            if key not in known:
                self.report(f"{place}{key}: {unknown_name(key, known)}")

    @contextmanager
    def collecting(self, place: str = "") -> Iterator[None]:
        try:
            yield
        except BadInput as error:
            self.report(f"{place}{error}")

    def report(self, mistake: str) -> None:
        line = f"{self.path}: {mistake}"
        if line not in self.mistakes:
            self.mistakes.append(line)
