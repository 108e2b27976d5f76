"""Time limits of bodies, with streams that a test controls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.requests import Request

from newsstand.http.bodies import Bodies
from newsstand.http.errors import HttpError


class StreamedRequest(Request):
    def __init__(self, first: bytes, then: bytes) -> None:
        super().__init__({"type": "http", "headers": []})
        self._first = first
        self._then = then

    async def stream(self) -> AsyncGenerator[bytes, None]:
        yield self._first
        while True:
            await asyncio.sleep(0.01 if self._then else 3600)
            yield self._then


def status_of(bodies: Bodies, request: Request) -> int:
    async def read() -> None:
        async with asyncio.timeout(30), bodies.read(request, 2**40):
            pass

    with pytest.raises(HttpError) as rejected:
        asyncio.run(read())
    return rejected.value.status


def test_time_limit_not_extended_by_burst() -> None:
    assert status_of(Bodies(patience_s=0.2), StreamedRequest(b"x" * 1_000_000, b"")) == 408


def test_body_rejected_when_it_trickles() -> None:
    assert status_of(Bodies(patience_s=0.2), StreamedRequest(b"x" * 1_000_000, b"x")) == 408


def test_body_rejected_when_it_does_not_end() -> None:
    assert status_of(Bodies(patience_s=0.2, longest_s=0.5), StreamedRequest(b"x", b"x" * 1000)) == 408
