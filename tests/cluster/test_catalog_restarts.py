"""Random changes of datasets and channels over HTTP, and restarts: the cluster has the same catalog after each."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import httpx
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from pyspark.sql import SparkSession
from support.profiles import examples

from newsstand.auth.api_tokens import ApiTokens, new_token
from newsstand.cluster.app_folder import read_app
from newsstand.cluster.log.files.log import FileLog
from newsstand.cluster.results.database_sqlite import SqliteResultDatabase
from newsstand.cluster.results.stores import ResultStores
from newsstand.cluster.server import create_api
from newsstand.cluster.service import DataCluster

APP = """
[datasets.emergencies]
fields = { id = "string", kind = "string" }

[channels.by_kind]
period = "1h"
parameters = { kind = "string" }
query = "SELECT e.id FROM emergencies e WHERE e.kind = :kind"
"""
SECRET, ADMIN = new_token("admin", ["admin"], bytes(32))
NAMES = st.sampled_from(["emergencies", "shelters", "floods", "alarms"])
CHANNELS = st.sampled_from(["by_kind", "near", "all_of_them"])
TYPES = st.sampled_from(["string", "integer?", "double?", "string?"])
FIELDS = st.dictionaries(st.sampled_from(["id", "kind", "name", "a", "z"]), TYPES, min_size=1)
PARAMETER_NAMES = st.sampled_from(["lat", "lon", "km", "kind", "a"])
PARAMETER_TYPES = st.sampled_from(["string", "double", "integer"])
PARAMETERS = st.dictionaries(PARAMETER_NAMES, PARAMETER_TYPES)
UNSORTED = st.dictionaries(PARAMETER_NAMES, PARAMETER_TYPES, min_size=2).filter(lambda one: [*one] != sorted(one))
EXISTING = st.runner().flatmap(lambda one: st.sampled_from(sorted(one.cluster.catalog.datasets()) or ["none"]))


def channel(new: str, parameters: dict[str, str]) -> dict[str, object]:
    """Return the definition of a channel that uses all its parameters."""
    used = "".join(f" AND :{one} IS NOT NULL" for one in parameters)
    query = f"SELECT 1 AS one FROM {new} e WHERE true{used}"
    return {"query": query, "new": new, "parameters": parameters, "period": "1h"}


class Restarts(RuleBasedStateMachine):
    """A cluster without executions that is changed over HTTP and restarted over its data folder."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self.spark = spark
        self.folder = tempfile.TemporaryDirectory()
        (Path(self.folder.name) / "newsstand.toml").write_text(APP)
        self.start()

    def start(self) -> None:
        app = read_app(Path(self.folder.name))
        app.data.mkdir(exist_ok=True)
        self.log = FileLog(app.data / "log")
        self.stores = ResultStores(SqliteResultDatabase(app.data / "results.sqlite"))
        self.cluster = DataCluster(app, self.spark, self.log, self.stores, app.data, lambda: 1000)
        self.cluster.start()
        self.api = create_api(self.cluster, ApiTokens([ADMIN]), app.cluster)

    def stop(self) -> None:
        self.cluster.stop()
        self.stores.close()
        self.log.close()

    def call(self, method: str, path: str, table: dict[str, object] | None = None) -> httpx.Response:
        async def answered() -> httpx.Response:
            headers = {"Authorization": f"Bearer {SECRET}"}
            transport = httpx.ASGITransport(self.api)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://cluster", headers=headers
            ) as client:
                return await client.request(method, path, json=table)

        return asyncio.run(answered())

    def catalog(self) -> list[object]:
        """Return the datasets and channels of the cluster as text, which preserves the order of parameters."""
        datasets = self.call("GET", "/datasets").json()["datasets"]
        channels = self.call("GET", "/channels").json()["channels"]
        for one in channels:
            del one["status"]
        return [[*datasets, *channels], [list(one.get("parameters", {}).items()) for one in channels]]

    def teardown(self) -> None:
        self.stop()
        self.folder.cleanup()

    @rule(name=NAMES, fields=FIELDS)
    def put_dataset(self, name: str, fields: dict[str, str]) -> None:
        assert self.call("PUT", f"/datasets/{name}", {"fields": fields}).status_code in (200, 201, 409, 422)

    @rule(name=NAMES)
    def drop_dataset(self, name: str) -> None:
        assert self.call("DELETE", f"/datasets/{name}").status_code in (200, 404, 409)

    @initialize(parameters=UNSORTED)
    def put_unsorted_channel(self, parameters: dict[str, str]) -> None:
        assert self.call("PUT", "/channels/near", channel("emergencies", parameters)).status_code == 201

    @rule(name=CHANNELS, parameters=PARAMETERS | UNSORTED, new=EXISTING | NAMES)
    def put_channel(self, name: str, parameters: dict[str, str], new: str) -> None:
        answer = self.call("PUT", f"/channels/{name}", channel(new, parameters))
        assert answer.status_code in (200, 201, 409, 422)

    @rule(name=CHANNELS)
    def drop_channel(self, name: str) -> None:
        assert self.call("DELETE", f"/channels/{name}").status_code in (200, 404)

    @rule()
    def restart(self) -> None:
        before = self.catalog()
        self.stop()
        self.start()
        assert self.catalog() == before


def test_catalog_unchanged_by_restarts(spark: SparkSession) -> None:
    how = settings(max_examples=examples(10), stateful_step_count=15)
    run_state_machine_as_test(lambda: Restarts(spark), settings=how)
