"""Generated requests to a broker: every response is as /openapi.json describes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import schemathesis
from support.broker.calls import login, subscribe, until_head
from support.broker.press import Press
from support.broker.process import as_operator
from support.fuzzing import MODES, fuzz, load_schema

EXAMPLES = 8
"""Requests of each operation, mode and caller."""
ENDS = frozenset(("/logout", "/sessions"))
"""What would end the caller's session."""


@pytest.fixture(scope="module")
def subscriber(press: Press, broker_url: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A subscriber's token, and things that it has."""
    with closing(login(broker_url, "ann")) as ann:
        subscription = subscribe(ann, kind="fuzzed")
        page = press.keep_page(b"Hello")
        press.print([{"channel": "of_kind", "values": ["fuzzed"], "payload": {"id": "r"}, "page": page}])
        until_head(ann, subscription, 1)
        known = {"subscription": str(subscription["id"]), "page": page}
        yield ann.headers["Authorization"].removeprefix("Bearer "), known


@pytest.fixture(scope="module")
def api(broker_url: str, subscriber: tuple[str, dict[str, str]]) -> schemathesis.BaseSchema:
    return load_schema(broker_url, subscriber[1].get)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("caller", ["subscriber", "operator"])
def test_response_matches_openapi_description(
    api: schemathesis.BaseSchema,
    subscriber: tuple[str, dict[str, str]],
    caller: str,
    mode: schemathesis.GenerationMode,
) -> None:
    token = subscriber[0] if caller == "subscriber" else as_operator()
    without = ENDS if caller == "subscriber" else frozenset()
    fuzz(api, mode, lambda _: {"Authorization": f"Bearer {token}"}, examples=EXAMPLES, without=without)
