"""The coordinator's API under requests that nobody would think of: it never breaks, and answers as described."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import httpx
import pytest
import schemathesis
from coordinating import SECRET
from coordinator_api import OPERATOR, serving
from fuzzing import MODES, described, try_all

from newsstand.serving.credentials import broker_credential

OPERATORS = {
    "/overlay/storages",
    "/subscribers/{name}/disabled",
    "/subscribers/{name}/password",
}
EXAMPLES = 5
"""Requests of each operation and mode."""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    """The API of a coordinator, described by itself; half of the requests are for the same broker."""
    with serving(tmp_path_factory.mktemp("fuzzed"), lease_s=600.0) as served:
        headers = {"Authorization": f"Bearer {broker_credential(SECRET, 'always-there')}"}
        httpx.put(f"{served.url}/brokers/always-there", json={"url": "http://127.0.0.1:9"}, headers=headers)
        yield described(served.url, lambda name, drawn: "north")


def headers_of(case: schemathesis.Case) -> Mapping[str, str]:
    case.headers.pop("Authorization", None)
    token = OPERATOR if case.operation.path in OPERATORS else broker_credential(SECRET, "north")
    return {} if case.operation.path == "/broker" else {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("mode", MODES)
def test_every_answer_is_one_that_the_description_tells(
    api: schemathesis.BaseSchema, mode: schemathesis.GenerationMode
) -> None:
    """With requests as the description wants them, and with others."""
    try_all(api, mode, headers_of, examples=EXAMPLES)
