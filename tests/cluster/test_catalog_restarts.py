"""Random changes of datasets and channels over HTTP: a restart changes nothing of the catalog."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import httpx
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from standin import StandIn

from newsstand.cluster.api import create_api
from newsstand.cluster.app_folder import read_app
from newsstand.cluster.catalog import Catalog
from newsstand.cluster.tokens import Tokens, new_token

SECRET, ADMIN = new_token("admin", ["admin"], bytes(32))
NAMES = st.sampled_from(["emergencies", "shelters", "floods", "alarms"])
CHANNELS = st.sampled_from(["by_kind", "near", "all_of_them"])
TYPES = st.sampled_from(["string", "integer?", "double?", "string?"])
FIELDS = st.dictionaries(st.sampled_from(["id", "kind", "name", "a", "z"]), TYPES, min_size=1)
PARAMETERS = st.dictionaries(
    st.sampled_from(["lat", "lon", "km", "kind", "a"]), st.sampled_from(["string", "double", "integer"])
)


class Restarts(RuleBasedStateMachine):
    """A catalog that is changed by whoever calls the API, and read again from its file."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.start(StandIn(Path(self.folder.name)))

    def start(self, cluster: StandIn) -> None:
        self.cluster = cluster
        self.api = create_api(cluster, Tokens([ADMIN]), cluster.app.cluster)

    def call(self, method: str, path: str, table: dict[str, object] | None = None) -> int:
        """Call the API; return the status of its answer."""

        async def answered() -> int:
            headers = {"Authorization": f"Bearer {SECRET}"}
            transport = httpx.ASGITransport(self.api)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://cluster", headers=headers
            ) as client:
                return (await client.request(method, path, json=table)).status_code

        return asyncio.run(answered())

    def teardown(self) -> None:
        self.folder.cleanup()

    def put(self, path: str, table: dict[str, object]) -> None:
        assert self.call("PUT", path, table) in (200, 201, 409, 422)

    @rule(name=NAMES, fields=FIELDS)
    def put_dataset(self, name: str, fields: dict[str, str]) -> None:
        self.put(f"/datasets/{name}", {"fields": fields})

    @rule(name=NAMES)
    def drop_dataset(self, name: str) -> None:
        assert self.call("DELETE", f"/datasets/{name}") in (200, 404, 409)

    @rule(name=CHANNELS, parameters=PARAMETERS, new=NAMES)
    def put_channel(self, name: str, parameters: dict[str, str], new: str) -> None:
        used = "".join(f" AND :{one} IS NOT NULL" for one in parameters)
        query = f"SELECT 1 AS one FROM {new} e WHERE true{used}"
        self.put(f"/channels/{name}", {"query": query, "new": new, "parameters": parameters})

    @rule(name=CHANNELS)
    def drop_channel(self, name: str) -> None:
        assert self.call("DELETE", f"/channels/{name}") in (200, 404)

    @rule()
    def restart(self) -> None:
        self.start(StandIn(Path(self.folder.name)))

    @invariant()
    def the_file_says_what_holds(self) -> None:
        folder = Path(self.folder.name)
        again = Catalog(read_app(folder), folder / "data" / "catalog.json", read_only=True)
        assert again.datasets() == self.cluster.catalog.datasets()
        assert again.channels() == self.cluster.catalog.channels()
        assert again.superseded == []


TestRestarts = Restarts.TestCase
TestRestarts.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
