"""HTTP calls: one attempt, and attempts until one succeeds."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import httpx
import msgspec

from newsstand.client.errors import Gone, NotThere, Refused, Unreachable
from newsstand.client.pace import Pace, full_jitter

T = TypeVar("T")
AT_ONCE = 16
"""Requests at once over one `httpx.AsyncClient`: its pool slows down with the number of those that wait in it."""
_turns: WeakKeyDictionary[httpx.AsyncClient, asyncio.Semaphore] = WeakKeyDictionary()


class NotNow(Exception):
    """An attempt that may succeed later, not before `after_s`."""

    def __init__(self, reason: str, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.after_s = after_s


class Lost(NotNow):
    """Who was asked is not there, or is the wrong one."""


@cache
def default_tls() -> ssl.SSLContext:
    """One context for all clients of a process: making it takes longer than most calls."""
    return httpx.create_ssl_context()


def new_http(tls: ssl.SSLContext | None = None) -> httpx.AsyncClient:
    """A pool of connections as clients want it; several may share it."""
    # Servers close what was idle for 5 s: to be the first is to be spared a failed request.
    limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE, keepalive_expiry=3.0)
    return httpx.AsyncClient(verify=tls or default_tls(), limits=limits)


class Calls:
    """Makes HTTP requests through a pool that others may use, too."""

    def __init__(self, http: httpx.AsyncClient, pace: Pace, rng: random.Random) -> None:
        self._http = http
        self._pace = pace
        self._rng = rng

    async def once(
        self,
        method: str,
        url: str,
        *,
        token: str | None = None,
        body: object = None,
        content: bytes | None = None,
        params: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """One attempt; raises Lost or NotNow if another may do better."""
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        if body is not None:
            content = msgspec.json.encode(body)
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        turn = _turns.get(self._http)
        if turn is None:
            turn = _turns[self._http] = asyncio.Semaphore(AT_ONCE)
        try:
            async with turn:
                response = await self._http.request(
                    method, url, content=content, params=params, headers=sent, timeout=self._pace.answer_s
                )
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise Lost(f"{url} does not answer ({type(error).__name__})") from error
        if response.status_code == 421:
            raise Lost(f"{url} is the wrong broker")
        if response.status_code == 429 or response.is_server_error:
            raise NotNow(reason_of(response), _retry_after(response))
        return response

    async def patiently(self, attempt: Callable[[], Awaitable[T]], deadline_s: float | None) -> T:
        """The first success; Unreachable if there is none before the deadline."""
        until = None if deadline_s is None else time.monotonic() + deadline_s
        waits = full_jitter(self._pace, self._rng)
        while True:
            try:
                return await attempt()
            except NotNow as error:
                wait = error.after_s + next(waits)
                if until is not None and time.monotonic() + wait > until:
                    raise Unreachable(f"{error}; given up after {deadline_s:g} s") from error
            await asyncio.sleep(wait)


def accepted(response: httpx.Response) -> httpx.Response:
    """The response, if it is a good one; else the error that it tells of."""
    if response.is_success or response.status_code == 304:
        return response
    reason = reason_of(response)
    if response.status_code == 404:
        raise NotThere(reason, 404)
    if response.status_code == 410:
        raise Gone(reason, decoded(response, _Earliest).earliest)
    raise Refused(reason, response.status_code)


def decoded(response: httpx.Response, shape: type[T]) -> T:
    """The JSON of a response."""
    try:
        return msgspec.json.decode(response.content, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"{response.url} answers what is not understood: {error}", response.status_code) from error


class _Problem(msgspec.Struct):
    error: str


class _Earliest(msgspec.Struct):
    earliest: int


def reason_of(response: httpx.Response) -> str:
    """The one line with which an error is explained."""
    try:
        return " ".join(msgspec.json.decode(response.content, type=_Problem).error.split())
    except (msgspec.DecodeError, UnicodeDecodeError):
        return f"{response.url} answers {response.status_code}"


def _retry_after(response: httpx.Response) -> float:
    try:
        return min(60.0, max(0.0, float(response.headers.get("Retry-After", 0))))
    except ValueError:
        return 0.0
