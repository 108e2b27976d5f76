"""An API under requests that nobody would think of: it never breaks, and answers as /openapi.json says."""

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
"""Requests as the description wants them, and others."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def described(url: str, known: Callable[[str, object], object]) -> schemathesis.BaseSchema:
    """The API at an address, described by itself; half of the requests are for what is `known(name, drawn)`."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")

    @schema.hook
    def map_path_parameters(
        _: schemathesis.HookContext, drawn: dict[str, object] | None
    ) -> dict[str, object] | None:
        if drawn is None or zlib.crc32(repr(drawn).encode()) % 2:
            return drawn
        return {name: known(name, value) for name, value in drawn.items()}

    return schema


def try_all(
    api: schemathesis.BaseSchema,
    mode: schemathesis.GenerationMode,
    headers: Callable[[schemathesis.Case], Mapping[str, str]],
    *,
    examples: int,
    more_than: int = 8,
    without: frozenset[str] = frozenset(),
) -> None:
    """So many requests of each of `more_than` operations, but for the paths `without`; then it is still well."""
    tried = []
    for found in api.get_all_operations():
        operation = found.ok()
        nothing_to_spoil = mode.is_negative and not (operation.body or list(operation.iter_parameters()))
        if operation.path in without or nothing_to_spoil:
            continue

        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case) -> None:
            tried.append(f"{case.operation.method} {case.operation.path}")
            case.call_and_validate(headers=dict(headers(case)), checks=CHECKS)

        ask()
    assert len(set(tried)) > more_than
    assert api["/readyz"]["GET"].Case().call().status_code == 200, "it is well afterwards"
