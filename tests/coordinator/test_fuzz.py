"""Fuzzing of the HTTP API of the coordinator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import httpx
import pytest
import schemathesis
from support.coordinator.api import OPERATOR, serving
from support.coordinator.coordinators import SECRET
from support.fuzzing import MODES, fuzz, load_schema

from newsstand.auth.credentials import broker_credential

OPERATORS = {
    "/overlay/storages",
    "/subscribers/{name}/disabled",
    "/subscribers/{name}/password",
}
EXAMPLES = 5
"""Requests of each operation and mode."""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    """The schema of a coordinator; half of the requests are for the same broker."""
    with serving(tmp_path_factory.mktemp("fuzzed"), lease_s=600.0) as served:
        headers = {"Authorization": f"Bearer {broker_credential(SECRET, 'always-there')}"}
        httpx.put(
            f"{served.url}/brokers/always-there", json={"url": "http://127.0.0.1:9"}, headers=headers, verify=False
        )
        yield load_schema(served.url, lambda name, drawn: "north")


def headers_of(case: schemathesis.Case) -> Mapping[str, str]:
    case.headers.pop("Authorization", None)
    token = OPERATOR if case.operation.path in OPERATORS else broker_credential(SECRET, "north")
    return {} if case.operation.path == "/broker" else {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("mode", MODES)
def test_answers_all_agree_with_description(
    api: schemathesis.BaseSchema, mode: schemathesis.GenerationMode
) -> None:
    """With requests as the description wants them, and with others."""
    fuzz(api, mode, headers_of, examples=EXAMPLES)
