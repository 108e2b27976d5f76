"""The broker under requests that nobody would think of: it never breaks, and answers as /openapi.json says."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import closing

import pytest
import schemathesis
from broker_process import SECRET
from hypothesis import HealthCheck, given, settings
from press import Press
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from test_broker_live import login, subscribe, until_head

from newsstand.signing import key

EXAMPLES = 8
"""Requests of each operation, mode and caller."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
ENDS = {"/logout", "/sessions"}
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
    schema = schemathesis.openapi.from_url(f"{broker_url}/openapi.json")

    @schema.hook
    def map_path_parameters(
        _: schemathesis.HookContext, drawn: dict[str, object] | None
    ) -> dict[str, object] | None:
        """Half of the requests are for what exists."""
        if drawn is None or zlib.crc32(repr(drawn).encode()) % 2:
            return drawn
        return {name: subscriber[1].get(name, value) for name, value in drawn.items()}

    return schema


@pytest.mark.parametrize("mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE])
@pytest.mark.parametrize("caller", ["subscriber", "operator"])
def test_every_answer_is_one_that_the_description_tells(
    api: schemathesis.BaseSchema,
    subscriber: tuple[str, dict[str, str]],
    caller: str,
    mode: schemathesis.GenerationMode,
) -> None:
    token = subscriber[0] if caller == "subscriber" else key(SECRET, "admin")
    tried = []
    for found in api.get_all_operations():
        operation = found.ok()
        ends = operation.path in ENDS and caller == "subscriber"
        if ends or (mode.is_negative and not (operation.body or list(operation.iter_parameters()))):
            continue

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case) -> None:
            tried.append(f"{case.operation.method} {case.operation.path}")
            case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, checks=CHECKS)

        ask()
    assert len(set(tried)) > 8
    assert api["/readyz"]["GET"].Case().call().status_code == 200, "it is well afterwards"
