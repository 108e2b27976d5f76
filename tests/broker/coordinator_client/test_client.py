"""Calls of the coordinator's API."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from support.event_loops import run

from newsstand.broker.coordinator_client.client import CoordinatorClient
from newsstand.http.client import HttpClient, HttpResponse
from newsstand.wire.coordination import MOST_NAMES, StaleRequest, StaleResponse


class StaleRecords:
    """The HTTP client of a coordinator for which every tenth record is stale."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def request(self, method: str, path: str, *, json: object, **_: Any) -> HttpResponse:
        assert (method, path) == ("POST", "/brokers/edge/stale")
        request = msgspec.json.decode(msgspec.json.encode(json), type=StaleRequest)
        self.sizes.append(len(request.epochs))
        stale = [name for name, epoch in request.epochs.items() if epoch % 10 == 0]
        return HttpResponse(path, 200, {}, msgspec.json.encode(StaleResponse(stale)))


def test_stale_records_checked_in_calls_of_the_size_that_the_coordinator_accepts() -> None:
    async def story() -> None:
        http = StaleRecords()
        client = CoordinatorClient(cast(HttpClient, http), "edge")
        epochs = {f"s{number}": number for number in range(2 * MOST_NAMES + 1)}
        assert await client.stale_records(epochs, 2.0) == {name for name, n in epochs.items() if n % 10 == 0}
        assert http.sizes == [MOST_NAMES, MOST_NAMES, 1]

    run(story)
