"""The API under generated requests: its answers conform to /openapi.json."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from support.cluster.standin import StandIn, serving
from support.fuzzing import MODES, fuzz, load_schema

from newsstand.auth.api_tokens import new_token

TEXT, TOKEN = new_token("all", ["admin"], bytes(32))
EXAMPLES = 8
"""Parametrize a test by mode of generation."""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    """Return the schema of a stand-in with some data."""
    cluster = StandIn(tmp_path_factory.mktemp("fuzzed"), "[push]\nenabled = true\n")
    cluster.register_broker("north", "http://127.0.0.1:9/")
    (made,) = cluster.subscribe("north", [("by_kind", ["flood"], 1)])
    page = cluster.pages.put(b"Hello", "text/plain")
    cluster.origin.named.put("news/today", b"Hello", "text/plain", 1)
    known = {
        "dataset": "emergencies",
        "channel": "by_kind",
        "broker": "north",
        "subscription": made.id,
        "page": page.id,
        "name": "news/today",
    }
    with serving(cluster, {"all": TOKEN}) as url:
        yield load_schema(url, known.get)


@pytest.mark.parametrize("mode", MODES)
def test_responses_conform_to_description(api: schemathesis.BaseSchema, mode: schemathesis.GenerationMode) -> None:
    """Valid and invalid requests."""
    fuzz(api, mode, lambda _: {"Authorization": f"Bearer {TEXT}"}, examples=EXAMPLES, more_than=15)
