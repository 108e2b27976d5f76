"""The coordinator's API under requests that nobody would think of: it never breaks, and answers as described."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import httpx
import pytest
import schemathesis
from coordinator_api import BROKERS, serving
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

EXAMPLES = 5
"""Requests of each operation and mode."""

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    """The API of a coordinator, described by itself."""
    with serving(tmp_path_factory.mktemp("fuzzed"), lease_s=600.0) as served:
        headers = {"Authorization": f"Bearer {BROKERS}"}
        httpx.put(f"{served.url}/brokers/always-there", json={"url": "http://127.0.0.1:9"}, headers=headers)
        schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")

        @schema.hook
        def map_path_parameters(
            _: schemathesis.HookContext, drawn: dict[str, object] | None
        ) -> dict[str, object] | None:
            """Half of the requests are for the same broker."""
            if drawn is None or zlib.crc32(repr(drawn).encode()) % 2:
                return drawn
            return dict.fromkeys(drawn, "north")

        yield schema


@pytest.mark.parametrize("mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE])
def test_every_answer_is_one_that_the_description_tells(
    api: schemathesis.BaseSchema, mode: schemathesis.GenerationMode
) -> None:
    """With requests as the description wants them, and with others."""
    tried = []
    for found in api.get_all_operations():
        operation = found.ok()
        if mode.is_negative and not (operation.body or list(operation.iter_parameters())):
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
            case.headers.pop("Authorization", None)
            token = {} if case.operation.path == "/broker" else {"Authorization": f"Bearer {BROKERS}"}
            case.call_and_validate(headers=token, checks=CHECKS)

        ask()
    assert len(set(tried)) > 8
    assert api["/readyz"]["GET"].Case().call().status_code == 200, "it is well afterwards"
