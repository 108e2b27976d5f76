"""Time limits of bodies, with streams that a test controls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from fastapi import Request

from newsstand.serving.bodies import Bodies
from newsstand.serving.refusals import Refused


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

    with pytest.raises(Refused) as refused:
        asyncio.run(read())
    return refused.value.status


def test_a_burst_buys_no_time() -> None:
    assert status_of(Bodies(patience_s=0.2), StreamedRequest(b"x" * 1_000_000, b"")) == 408


def test_a_body_that_trickles_is_not_waited_for() -> None:
    assert status_of(Bodies(patience_s=0.2), StreamedRequest(b"x" * 1_000_000, b"x")) == 408


def test_a_body_that_does_not_end_is_not_waited_for() -> None:
    assert status_of(Bodies(patience_s=0.2, longest_s=0.5), StreamedRequest(b"x", b"x" * 1000)) == 408
