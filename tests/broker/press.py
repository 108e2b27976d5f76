"""A data cluster whose results are made by hand: real API, real store, real webhooks, and no Spark.

Run as a process it has one route more than a cluster: `POST /press` with a list of
{"channel", "values", "payload", "page"?} makes one execution a channel out of them.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import uvicorn
from fastapi import FastAPI, Request

from newsstand.cluster.api import create_api
from newsstand.cluster.app_folder import read_app
from newsstand.cluster.catalog import Catalog
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.notify import Notifier
from newsstand.cluster.origin import Origin
from newsstand.cluster.pages import PageStore, StoredPage
from newsstand.cluster.results import Execution
from newsstand.cluster.results_sqlite import SqliteResults
from newsstand.cluster.subscribers import Subscribers
from newsstand.cluster.tokens import Token, Tokens, digest_of, platform_secret
from newsstand.errors import NotFound
from newsstand.model import Scalar
from newsstand.serving.process import wall_clock_ms
from newsstand.values import parse_values

APP = """
[datasets.reports]
fields = {id = "string", kind = "string"}

[channels.of_kind]
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"
parameters = {kind = "string"}

[channels.near]
query = "SELECT r.id FROM reports r WHERE r.kind = :kind AND :lat < 90"
parameters = {kind = "string", lat = "double"}

[channels.pushed]
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"
parameters = {kind = "string"}
delivery = "push"
"""
SECRET = "a secret of this platform, long enough"
ADMIN = "newsstand_" + "a" * 64
PUBLISHER = "newsstand_" + "b" * 64
COLUMNS = pa.schema(
    [
        ("stream", pa.int64()),
        ("publication", pa.int64()),
        ("page_id", pa.string()),
        ("page_size", pa.int64()),
        ("ordinal", pa.int64()),
        ("payload", pa.string()),
    ]
)


class _Matched:
    """What an execution has matched, as much of a DataFrame as the store asks for."""

    def __init__(self, rows: list[dict[str, object]]) -> None:
        self._rows = rows

    def toArrow(self) -> pa.Table:  # noqa: N802  as Spark calls it
        return pa.Table.from_pylist(self._rows, COLUMNS)


class _NoTables:
    """Without Spark there is nothing to keep up to date."""

    def subscribed(self, *_: object) -> None: ...
    def unsubscribed(self, *_: object) -> None: ...


class Press(Subscribers):
    """All of a data cluster that brokers see; `print` stands for publishing and matching."""

    def __init__(self, folder: Path) -> None:
        self.url = ""
        """Where it is served, while it is."""
        folder.mkdir(parents=True, exist_ok=True)
        app_file = folder / "newsstand.toml"
        if not app_file.exists():
            app_file.write_text(APP)
        self.app = read_app(folder)
        data = folder / "data"
        data.mkdir(exist_ok=True)
        self.catalog = Catalog(self.app, data / "catalog.json")
        self.metrics = Metrics()
        self.pages = PageStore(data / "pages", self.app.cluster.max_page_bytes)
        self._results = SqliteResults(data / "results.sqlite")
        self.origin = Origin(self.app, data, self.pages, self._results.broker, self.metrics, wall_clock_ms)
        self._tables = _NoTables()
        self._changing = threading.RLock()
        for name in self.catalog.channels():
            self._results.begin(name, 0)
        self.notifier = Notifier(
            self._results,
            wall_clock_ms,
            is_push=lambda name: self.catalog.channel(name).push,
            away_after_s=self.app.cluster.away_after_s,
            told=self.metrics.delivered,
        )
        tokens = (("admin", ADMIN, "admin"), ("gate", PUBLISHER, "publish:*"))
        known = [Token(name, digest_of(text), frozenset([scope])) for name, text, scope in tokens]
        self.tokens = Tokens(known, platform_secret(folder, None, data) or SECRET)

    def print(self, items: Sequence[Mapping[str, object]]) -> int:
        """Results for whoever subscribes to these values; one execution for each channel. How many were stored."""
        stored = 0
        with self._changing:
            by_channel: dict[str, list[Mapping[str, object]]] = {}
            for item in items:
                by_channel.setdefault(str(item["channel"]), []).append(item)
            for name, some in by_channel.items():
                channel = self.catalog.channel(name)
                streams = {one.values: one.stream for one in self._results.subscriptions(channel=name)}
                after = self._results.position(name) or 0
                rows = []
                for number, item in enumerate(some, 1):
                    values: Sequence[Scalar] = item["values"]  # type: ignore[assignment]
                    stream = streams.get(parse_values(channel, values))
                    if stream is not None:
                        page = item.get("page")
                        rows.append(
                            {
                                "stream": stream,
                                "publication": after + number,
                                "page_id": page,
                                "page_size": None if page is None else self.page(str(page)).size,
                                "ordinal": 0,
                                "payload": json.dumps(item["payload"]),
                            }
                        )
                execution = Execution(name, channel.new, after, after + len(some), time.time_ns() // 1_000_000)
                stored += self._results.store(execution, _Matched(rows)).results  # type: ignore[arg-type]
        self.notifier.wake()
        return stored

    def keep_page(self, content: bytes, type: str = "text/plain") -> str:
        return self.pages.keep(content, type).id

    def page(self, page: str) -> StoredPage:
        found = self.pages.find(page)
        if found is None:
            raise NotFound(f"no page '{page}'")
        return found

    def channels(self) -> list[object]:
        return list(self.catalog.channels().values())

    def channel(self, name: str) -> object:
        return self.catalog.channel(name)

    def channel_status(self, name: str) -> dict[str, object]:
        return {}

    def degraded(self) -> list[str]:
        return []

    def ready(self) -> list[str]:
        return []

    def api(self) -> FastAPI:
        """The cluster's own API, and `/press`."""
        api = create_api(self, self.tokens, self.app.cluster)  # type: ignore[arg-type]

        @api.post("/press")
        async def press(request: Request) -> dict[str, int]:
            return {"stored": self.print(await request.json())}

        @api.post("/press/page")
        async def page(request: Request) -> dict[str, str]:
            return {"page": self.keep_page(await request.body())}

        return api

    @contextmanager
    def serving(self, port: int = 0):  # type: ignore[no-untyped-def]
        """Its API on a real socket, in a thread; gives the address."""
        config = uvicorn.Config(self.api(), port=port, log_level="error", ws="none", access_log=False)
        server = uvicorn.Server(config)
        socket = config.bind_socket()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
        thread.start()
        self.notifier.start()
        self.origin.start()
        self.url = f"http://127.0.0.1:{socket.getsockname()[1]}"
        try:
            yield self.url
        finally:
            self.notifier.stop()
            self.origin.stop()
            server.should_exit = True
            thread.join(10)
            socket.close()


if __name__ == "__main__":
    with Press(Path(sys.argv[1])).serving(int(sys.argv[2])) as url:
        print(url, flush=True)
        threading.Event().wait()
