"""A cluster in memory with a real door, catalog and page store, and its API on a real socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import uvicorn
from apps import EMERGENCIES

from newsstand.cluster.api import create_api
from newsstand.cluster.app_folder import read_app
from newsstand.cluster.catalog import Catalog
from newsstand.cluster.facade import Facts, Form, Receipt, Wanted
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.origin import Origin
from newsstand.cluster.pages import PageStore, StoredPage
from newsstand.cluster.reading import Asked, Slice
from newsstand.cluster.records import Door
from newsstand.cluster.results import Gone
from newsstand.cluster.tokens import Token, Tokens
from newsstand.errors import NotFound
from newsstand.model import Broker, Channel, Dataset, Result, Subscription, Values, subscription_id
from newsstand.serving.process import wall_clock_ms
from newsstand.values import parse_values

APP = f"""{EMERGENCIES}
[cluster]
max_body_bytes = 100000
max_subscriptions_body_bytes = "64 MiB"
body_timeout = "500ms"
"""


class Asking:
    """Asks a cluster with the token of somebody, and looks at the status of the answer."""

    def __init__(self, url: str, made: Mapping[str, tuple[str, Token]]) -> None:
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
    """Does what the API asks for, without Spark. `failing` is raised by the next publish calls."""

    def __init__(self, folder: Path, more: str = "") -> None:
        (folder / "newsstand.toml").write_text(APP + more)
        self.app = read_app(folder)
        self.catalog = Catalog(self.app, folder / "data" / "catalog.json")
        self.metrics = Metrics()
        self.pages = PageStore(folder / "data" / "pages")
        self.published: dict[str, list[bytes]] = {}
        self.keys: dict[str, Receipt] = {}
        self.subscribed: dict[str, Subscription] = {}
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
        self.earliest = 1

    def publish(
        self, dataset: str, body: bytes, form: Form, key: str | None, publisher: str | None = None
    ) -> Receipt:
        if self.failing:
            raise self.failing.pop(0)
        if key in self.keys:
            known = self.keys[key]
            return Receipt(known.accepted, known.first, known.last, known.refused, repeated=True)
        admitted = Door(self.catalog.dataset(dataset)).admit(body, form)
        lines = self.published.setdefault(dataset, [])
        first = len(lines) + 1
        lines += admitted.lines
        added = bool(admitted.lines)
        receipt = Receipt(
            len(admitted.lines), first if added else None, len(lines) if added else None, admitted.refused
        )
        self.metrics.published(dataset, receipt.accepted, len(receipt.refused))
        if key is not None:
            self.keys[key] = receipt
        return receipt

    def datasets(self) -> list[Dataset]:
        return list(self.catalog.datasets().values())

    def dataset(self, name: str) -> Dataset:
        return self.catalog.dataset(name)

    def put_dataset(self, dataset: Dataset, *, only_new: bool = False) -> Dataset | None:
        return self.catalog.put_dataset(dataset, only_new=only_new)

    def drop_dataset(self, name: str) -> object:
        return self.catalog.drop_dataset(name)

    def channels(self) -> list[Channel]:
        return list(self.catalog.channels().values())

    def channel(self, name: str) -> Channel:
        return self.catalog.channel(name)

    def put_channel(self, channel: Channel, *, only_new: bool = False) -> Channel | None:
        return self.catalog.put_channel(channel, only_new=only_new)

    def warnings(self, channel: Channel) -> list[str]:
        return [f"channels.{channel.name}.parameters.k: fails"] if "RLIKE" in channel.query else []

    def drop_channel(self, name: str) -> object:
        return self.catalog.drop_channel(name)

    def channel_status(self, name: str) -> Facts:
        return {"position": 0, "lag": len(self.published.get(self.channel(name).new, []))}

    def suspensions(self, name: str) -> list[Facts]:
        return [{"number": 7, "values": ["abc"], "error": self.channel(name).name}]

    def resume(self, name: str) -> int:
        return len(self.suspensions(name))

    def explain(self, name: str) -> Facts:
        return {"channel": self.channel(name).name}

    def try_channel(self, channel: Channel, values: Sequence[Values], after: int, until: int | None) -> Facts:
        return {"channel": channel.name, "values": list(values), "after": after, "until": until}

    def register_broker(self, name: str, callback: str, signing: str | None = None) -> Broker:
        is_new = name not in self.registered
        self.registered[name] = Broker(name, callback, "a secret")
        return Broker(name, callback, "a secret" if is_new else "")

    def dismiss_broker(self, name: str) -> object:
        self.broker_status(name)
        self.origin.gone(name)
        return self.registered.pop(name)

    def brokers(self) -> list[Broker]:
        return list(self.registered.values())

    def broker_status(self, name: str) -> Facts:
        if name not in self.registered:
            raise NotFound(f"no broker '{name}'")
        return {"pending": 0, "away": False}

    def subscribe(self, broker: str, wanted: Sequence[Wanted]) -> list[Subscription]:
        self.broker_status(broker)
        made = []
        for name, given, frontends in wanted:
            values = parse_values(self.channel(name), given)
            made.append(Subscription(subscription_id(name, values, broker), name, values, broker, 1, frontends))
        self.subscribed |= {one.id: one for one in made}
        return made

    def unsubscribe(self, broker: str, ids: Sequence[str]) -> int:
        return sum(self.subscribed.pop(one, None) is not None for one in ids)

    def subscription(self, subscription: str) -> Subscription:
        if subscription not in self.subscribed:
            raise NotFound(f"no subscription '{subscription}'")
        return self.subscribed[subscription]

    def subscriptions(self, broker: str, after: str, limit: int) -> list[Subscription]:
        self.broker_status(broker)
        ids = sorted(one.id for one in self.subscribed.values() if one.broker == broker and one.id > after)
        return [self.subscribed[one] for one in ids[:limit]]

    def results(self, subscription: str, after: int, until: int | None, limit: int) -> list[Result]:
        if after + 1 < self.earliest:
            raise Gone(self.earliest)
        last = min(3, 3 if until is None else until)
        return [Result(n, 1000 + n, f'{{"id":"e{n}"}}', n) for n in range(after + 1, last + 1)][:limit]

    def read_all(self, broker: str, asked: Sequence[Asked]) -> list[Slice]:
        if broker not in self.registered:
            raise NotFound(f"no broker '{broker}'")
        return [
            Slice(name := one.subscription, self.results(name, one.after, one.until, one.limit), 3, self.earliest)
            for one in asked
            if one.subscription in self.subscribed
        ]

    def extent(self, subscription: str) -> tuple[int, int]:
        return self.earliest, 3

    def trace(self, dataset: str, seq: int) -> Facts:
        if seq > len(self.published.get(dataset, [])):
            raise NotFound(f"dataset '{dataset}': no publication {seq}")
        return {"seq": seq}

    def page(self, page: str) -> StoredPage:
        found = self.pages.find(page)
        if found is None:
            raise NotFound(f"no page '{page}'")
        return found

    def degraded(self) -> list[str]:
        return []

    def ready(self) -> list[str]:
        return self.lacking


@contextmanager
def serving(cluster: StandIn, tokens: Mapping[str, Token]) -> Iterator[str]:
    """The URL of the cluster's API, for the length of a `with` block."""
    api = create_api(cluster, Tokens(tokens.values()), cluster.app.cluster)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(api, log_config=None, access_log=False, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
