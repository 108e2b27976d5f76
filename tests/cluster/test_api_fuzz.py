"""The API under requests that nobody would think of: it never breaks, and answers as /openapi.json says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from fuzzing import MODES, described, try_all
from standin import StandIn, serving

from newsstand.cluster.tokens import new_token

TEXT, TOKEN = new_token("all", ["admin"], bytes(32))
EXAMPLES = 8
"""Requests of each operation and mode."""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    """The API of a stand-in with something in it, described by itself."""
    cluster = StandIn(tmp_path_factory.mktemp("fuzzed"), "[push]\nenabled = true\n")
    cluster.register_broker("north", "http://127.0.0.1:9/")
    (made,) = cluster.subscribe("north", [("by_kind", ["flood"], 1)])
    page = cluster.pages.keep(b"Hello", "text/plain")
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
        yield described(url, known.get)


@pytest.mark.parametrize("mode", MODES)
def test_every_answer_is_one_that_the_description_tells(
    api: schemathesis.BaseSchema, mode: schemathesis.GenerationMode
) -> None:
    """With requests as the description wants them, and with others."""
    try_all(api, mode, lambda _: {"Authorization": f"Bearer {TEXT}"}, examples=EXAMPLES, more_than=15)
