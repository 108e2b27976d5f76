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
from typing import cast

import pyarrow as pa
import uvicorn
from pyspark.sql import SparkSession
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from newsstand.auth.api_tokens import ApiToken, ApiTokens, digest_of, platform_secret
from newsstand.cluster.app_folder import read_app
from newsstand.cluster.log.files.log import FileLog
from newsstand.cluster.results.database_sqlite import SqliteResultDatabase
from newsstand.cluster.results.model import MATCH_SCHEMA, Execution
from newsstand.cluster.results.stores import ResultStores
from newsstand.cluster.server import create_api
from newsstand.cluster.service import DataCluster
from newsstand.http.app import Api
from newsstand.http.server import wall_clock_ms
from newsstand.model import Scalar, parse_values

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


class Press:
    """A data cluster without Spark; `print` stands for publishing and matching."""

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
        self.stores = ResultStores(SqliteResultDatabase(data / "results.sqlite"))
        log, no_spark = FileLog(data / "log", read_only=True), cast("SparkSession", None)
        self.cluster = DataCluster(self.app, no_spark, log, self.stores, data, wall_clock_ms)
        self.origin = self.cluster.origin
        self._printing = threading.Lock()
        for name in self.cluster.catalog.channels():
            self.stores.results.add_channel(name, 0)
        tokens = (("admin", ADMIN, "admin"), ("gate", PUBLISHER, "publish:*"))
        known = [ApiToken(name, digest_of(text), frozenset([scope])) for name, text, scope in tokens]
        self.tokens = ApiTokens(known, platform_secret(folder, None, data) or SECRET)

    def print(self, items: Sequence[Mapping[str, object]]) -> int:
        """Store results for subscribers of these values, in one execution per channel; return their number."""
        stored = 0
        with self._printing:
            by_channel: dict[str, list[Mapping[str, object]]] = {}
            for item in items:
                by_channel.setdefault(str(item["channel"]), []).append(item)
            for name, some in by_channel.items():
                channel = self.cluster.catalog.channel(name)
                streams = {one.values: one.stream for one in self.stores.subscriptions.scan(channel=name)}
                after = self.stores.results.position(name) or 0
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
                                "page_size": None if page is None else self.cluster.pages.get(str(page)).size,
                                "ordinal": 0,
                                "payload": json.dumps(item["payload"]),
                            }
                        )
                execution = Execution(name, channel.new, after, after + len(some), time.time_ns() // 1_000_000)
                batches = pa.Table.from_pylist(rows, MATCH_SCHEMA).to_batches()
                stored += self.stores.results.store(execution, batches).results
        self.cluster.notifier.wake()
        return stored

    def keep_page(self, content: bytes, type: str = "text/plain") -> str:
        return self.cluster.pages.put(content, type).id

    def api(self) -> Api:
        """The cluster's own API, and `/press`."""
        api = create_api(self.cluster, self.tokens, self.app.cluster)

        async def press(request: Request) -> JSONResponse:
            return JSONResponse({"stored": self.print(await request.json())})

        async def page(request: Request) -> JSONResponse:
            return JSONResponse({"page": self.keep_page(await request.body())})

        api.routes.append(Route("/press", press, methods=["POST"]))
        api.routes.append(Route("/press/page", page, methods=["POST"]))
        return api

    @contextmanager
    def serving(self, port: int = 0):  # type: ignore[no-untyped-def]
        """Its API on a real socket, in a thread; gives the address."""
        config = uvicorn.Config(self.api(), port=port, log_level="error", ws="none", access_log=False)
        server = uvicorn.Server(config)
        socket = config.bind_socket()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
        thread.start()
        self.cluster.notifier.start()
        self.origin.start()
        self.url = f"http://127.0.0.1:{socket.getsockname()[1]}"
        try:
            yield self.url
        finally:
            self.cluster.notifier.stop()
            self.origin.stop()
            server.should_exit = True
            thread.join(10)
            socket.close()


if __name__ == "__main__":
    with Press(Path(sys.argv[1])).serving(int(sys.argv[2])) as url:
        print(url, flush=True)
        threading.Event().wait()
