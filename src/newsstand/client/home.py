"""Which broker a client goes to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from newsstand.client.calls import Calls, Lost, NotNow, accepted, decoded

REST_S = 1.5
"""How long a broker that was gone is left alone while the coordinator names it: until that has noticed, too."""


class _Broker(msgspec.Struct):
    url: str


class _Chosen(msgspec.Struct):
    broker: _Broker


class Home:
    """The subscriber's broker: the one that the coordinator names, until it is lost; or always the same one."""

    def __init__(
        self,
        calls: Calls,
        coordinator: str | None,
        broker: str | None,
        near: tuple[float, float] | None,
        node: str | None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._calls = calls
        self._coordinator = None if coordinator is None else coordinator.rstrip("/")
        self._url = None if broker is None else broker.rstrip("/")
        self._last = self._url
        self._asking = asyncio.Lock()
        self._now = now
        self._gone = ""
        self._rests_until = 0.0
        self._query: dict[str, object] = {}
        if near is not None:
            self._query |= {"lat": near[0], "lon": near[1]}
        if node is not None:
            self._query["node"] = node

    async def url(self, token: str | None) -> str:
        """Where to go; with a token, which may have expired, it is the subscriber's own broker."""
        if self._url is not None:
            return self._url
        async with self._asking:
            if self._url is None:
                self._url = self._last = await self._ask(token)
        return self._url

    def lost(self, url: str, *, gone: bool = False) -> None:
        """A broker does not answer, or has sent the client away; `gone` if nobody could be connected to."""
        if url == self._url and self._coordinator is not None:
            self._url = None
            self._gone, self._rests_until = (url, self._now() + REST_S) if gone else ("", 0.0)

    async def _ask(self, token: str | None) -> str:
        where = f"{self._coordinator}/broker"
        try:
            answer = await self._calls.once("GET", where, token=token, params=self._query)
            if answer.status == 401:  # a token of another platform: it cannot help here
                answer = await self._calls.once("GET", where, params=self._query)
        except Lost:
            if self._last is None:
                raise
            return self._last  # brokers go on without a coordinator
        named = decoded(accepted(answer), _Chosen).broker.url.rstrip("/")
        rest_s = self._rests_until - self._now()
        if named == self._gone and rest_s > 0:
            raise NotNow(f"{named} is gone, and the coordinator does not know it yet", rest_s)
        return named
