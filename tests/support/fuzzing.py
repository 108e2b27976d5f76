"""Fuzzing of an HTTP API: it never fails, and its responses conform to /openapi.json."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

MODES = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
"""Valid and invalid requests."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def load_schema(url: str, known: Callable[[str, object], object]) -> schemathesis.BaseSchema:
    """Load the schema of an API; half of the requests have path parameters `known(name, drawn)`."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")

    @schema.hook
    def map_path_parameters(
        _: schemathesis.HookContext, drawn: dict[str, object] | None
    ) -> dict[str, object] | None:
        if drawn is None or zlib.crc32(repr(drawn).encode()) % 2:
            return drawn
        return {name: known(name, value) for name, value in drawn.items()}

    return schema


def fuzz(
    api: schemathesis.BaseSchema,
    mode: schemathesis.GenerationMode,
    headers: Callable[[schemathesis.Case], Mapping[str, str]],
    *,
    examples: int,
    more_than: int = 8,
    without: frozenset[str] = frozenset(),
) -> None:
    """Send requests to more than `more_than` operations, except for the paths `without`; then check readiness."""
    operations = []
    for found in api.get_all_operations():
        operation = found.ok()
        cannot_be_invalid = mode.is_negative and not (operation.body or list(operation.iter_parameters()))
        if operation.path in without or cannot_be_invalid:
            continue

        @settings(
            max_examples=examples,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case: schemathesis.Case) -> None:
            operations.append(f"{case.operation.method} {case.operation.path}")
            case.call_and_validate(headers=dict(headers(case)), checks=CHECKS)

        send()
    assert len(set(operations)) > more_than
    assert api["/readyz"]["GET"].Case().call().status_code == 200, "the server is ready afterwards"
