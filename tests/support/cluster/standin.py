"""A cluster in memory with the validator, catalog and page store of the platform, and its API on a socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import httpx
import uvicorn
from msgspec import Raw

from newsstand.auth.api_tokens import ApiToken, ApiTokens
from newsstand.cluster.app_folder import read_app
from newsstand.cluster.catalog import Catalog
from newsstand.cluster.ingest.publications import PublicationAudit
from newsstand.cluster.ingest.validator import RecordFormat, RecordValidator
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.pages.origin import Origin
from newsstand.cluster.pages.store import PageStore
from newsstand.cluster.results.model import SuspendedStreamInfo
from newsstand.cluster.server import create_api
from newsstand.cluster.service import DataCluster, RunningExecutionInfo
from newsstand.cluster.stages import DeliveryReports
from newsstand.cluster.subscriptions import SubscriptionRequest
from newsstand.errors import NotFound, ResultsExpired
from newsstand.http.app import Api
from newsstand.http.server import wall_clock_ms
from newsstand.model import (
    BackendSubscription,
    Broker,
    ChannelDefinition,
    Dataset,
    JsonObject,
    Values,
    parse_values,
    subscription_id,
)
from newsstand.wire.cluster import Receipt, StreamPage, StreamRange, StreamResult
from support.cluster.queries import EMERGENCIES

APP = f"""{EMERGENCIES}
[cluster]
max_body_bytes = 100000
max_subscriptions_body_bytes = "64 MiB"
body_timeout = "500ms"
"""


class ApiClient:
    """A client that uses the token of a name and checks the status of the answer."""

    def __init__(self, url: str, made: Mapping[str, tuple[str, ApiToken]]) -> None:
        self.client = httpx.Client(base_url=url, timeout=10, trust_env=False)
        self._made = made

    def __call__(self, who: str, method: str, path: str, status: int = 200, **more: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._made[who][0]}", **more.pop("headers", {})}  # type: ignore[dict-item]
        response = self.client.request(method, path, headers=headers, **more)  # type: ignore[arg-type]
        assert response.status_code == status, (response.status_code, response.text)
        return response

    def metric(self, name: str, who: str = "admin") -> float:
        lines = self(who, "GET", "/metrics").text.splitlines()
        return float(next(line.split()[1] for line in lines if line.split()[0] == f"newsstand_{name}"))


class StandIn:
    """All services of a cluster in one object, without Spark. `failing` is raised by the next publish calls."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.publications = self.definitions = self.subscriptions = self
        (folder / "newsstand.toml").write_text(APP + more)
        self.app = read_app(folder)
        self.catalog = Catalog(self.app, folder / "data" / "catalog.json")
        self.metrics = Metrics()
        self.pages = PageStore(folder / "data" / "pages")
        self.published: dict[str, list[bytes]] = {}
        self.keys: dict[tuple[str | None, str], Receipt] = {}
        """The answers to each publisher, by idempotency key."""
        self.subscribed: dict[str, BackendSubscription] = {}
        self.registered: dict[str, Broker] = {}
        self.now = 0.0
        """The clock of leases and periods."""
        self.origin = Origin(
            self.app,
            folder / "data",
            self.pages,
            self.registered.get,
            self.metrics,
            wall_clock_ms,
            lambda: self.now,
        )
        self.failing: list[Exception] = []
        self.lacking: list[str] = []
        self.troubles: list[str] = []
        """The components that are degraded."""
        self.running: list[RunningExecutionInfo] = []
        self.earliest = 1
        self.reports = DeliveryReports(None, wall_clock_ms)

    def publish(
        self,
        dataset: str,
        body: bytes,
        format: RecordFormat,
        key: str | None,
        publisher: str | None = None,
        received: tuple[float, int] | None = None,
    ) -> Receipt:
        if self.failing:
            raise self.failing.pop(0)
        if key is not None and (known := self.keys.get((publisher, key))) is not None:
            return Receipt(known.accepted, known.first, known.last, known.rejected, repeated=True)
        records = RecordValidator(self.catalog.dataset(dataset)).validate(body, format)
        lines = self.published.setdefault(dataset, [])
        first = len(lines) + 1
        lines += records.lines
        added = bool(records.lines)
        receipt = Receipt(
            len(records.lines), first if added else None, len(lines) if added else None, records.rejected
        )
        self.metrics.published(dataset, receipt.accepted, len(receipt.rejected))
        if key is not None:
            self.keys[publisher, key] = receipt
        return receipt

    def put_dataset(self, dataset: Dataset, *, only_new: bool = False) -> Dataset | None:
        return self.catalog.put_dataset(dataset, only_new=only_new)

    def drop_dataset(self, name: str) -> object:
        return self.catalog.drop_dataset(name)

    def put_channel(self, channel: ChannelDefinition, *, only_new: bool = False) -> ChannelDefinition | None:
        return self.catalog.put_channel(channel, only_new=only_new)

    def warnings(self, channel: ChannelDefinition) -> list[str]:
        return [f"channels.{channel.name}.parameters.k: fails"] if "RLIKE" in channel.query else []

    def drop_channel(self, name: str) -> object:
        return self.catalog.drop_channel(name)

    def channel_status(self, name: str) -> JsonObject:
        return {"position": 0, "lag": len(self.published.get(self.catalog.channel(name).new, []))}

    def suspensions(self, name: str) -> list[SuspendedStreamInfo]:
        return [SuspendedStreamInfo(7, ("abc",), self.catalog.channel(name).name, 70, 5, 2)]

    def resume(self, name: str) -> int:
        return len(self.suspensions(name))

    def explain(self, name: str) -> JsonObject:
        return {"channel": self.catalog.channel(name).name}

    def try_channel(
        self, channel: ChannelDefinition, values: Sequence[Values], after: int, until: int | None
    ) -> JsonObject:
        return {"channel": channel.name, "values": list(values), "after": after, "until": until}

    def register_broker(self, name: str, callback: str, signing: str | None = None) -> Broker:
        is_new = name not in self.registered
        self.registered[name] = Broker(name, callback, "a secret")
        return Broker(name, callback, "a secret" if is_new else "")

    def remove_broker(self, name: str) -> object:
        self.broker_status(name)
        self.origin.remove_cache(name)
        return self.registered.pop(name)

    def brokers(self) -> list[Broker]:
        return list(self.registered.values())

    def broker_status(self, name: str) -> JsonObject:
        if name not in self.registered:
            raise NotFound(f"no broker '{name}'")
        return {"pending": 0, "away": False}

    def subscribe(self, broker: str, wanted: Sequence[SubscriptionRequest]) -> list[BackendSubscription]:
        self.broker_status(broker)
        made = []
        for name, given, frontends in wanted:
            values = parse_values(self.catalog.channel(name), given)
            made.append(
                BackendSubscription(subscription_id(name, values, broker), name, values, broker, 1, frontends)
            )
        self.subscribed |= {one.id: one for one in made}
        return made

    def unsubscribe(self, broker: str, ids: Sequence[str]) -> int:
        return sum(self.subscribed.pop(one, None) is not None for one in ids)

    def get(self, subscription: str) -> BackendSubscription:
        if subscription not in self.subscribed:
            raise NotFound(f"no subscription '{subscription}'")
        return self.subscribed[subscription]

    def of_broker(self, broker: str, after: str, limit: int) -> list[BackendSubscription]:
        self.broker_status(broker)
        ids = sorted(one.id for one in self.subscribed.values() if one.broker == broker and one.id > after)
        return [self.subscribed[one] for one in ids[:limit]]

    def read(self, subscription: str, after: int, until: int | None, limit: int) -> list[StreamResult]:
        if after + 1 < self.earliest:
            raise ResultsExpired(self.earliest)
        last = min(3, 3 if until is None else until)
        return [StreamResult(n, 1000 + n, Raw(b'{"id":"e%d"}' % n), n, None) for n in range(after + 1, last + 1)][
            :limit
        ]

    def read_many(self, broker: str, asked: Sequence[StreamRange]) -> list[StreamPage[StreamResult]]:
        if broker not in self.registered:
            raise NotFound(f"no broker '{broker}'")
        return [
            StreamPage(
                name := one.subscription,
                self.read(name, one.after, one.until, one.limit),
                3,
                self.earliest,
            )
            for one in asked
            if one.subscription in self.subscribed
        ]

    def extent(self, subscription: str) -> tuple[int, int]:
        return self.earliest, 3

    def audit(self, dataset: str, seq: int) -> PublicationAudit:
        if seq > len(self.published.get(dataset, [])):
            raise NotFound(f"dataset '{dataset}': no publication {seq}")
        return PublicationAudit({"seq": seq})

    def executions(self) -> list[RunningExecutionInfo]:
        return self.running

    def degraded(self) -> list[str]:
        return self.troubles

    def ready(self) -> list[str]:
        return self.lacking


@contextmanager
def serving(cluster: StandIn, tokens: Mapping[str, ApiToken]) -> Iterator[str]:
    """Serve the API of a cluster for the length of a `with` block; yield its URL."""
    with listening(
        create_api(cast("DataCluster", cluster), ApiTokens(tokens.values()), cluster.app.cluster)
    ) as url:
        yield url


@contextmanager
def listening(api: Api) -> Iterator[str]:
    """Serve an API on a socket for the length of a `with` block; yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = uvicorn.Server(uvicorn.Config(api, log_config=None, access_log=False, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
