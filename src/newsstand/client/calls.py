"""HTTP calls: one attempt, and attempts until one succeeds."""

from __future__ import annotations

import asyncio
import io
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

import aiohttp
import msgspec

from newsstand.client.errors import Gone, Misused, NotThere, Refused, Unreachable
from newsstand.client.pace import Pace, full_jitter
from newsstand.client.proxies import proxy_for

T = TypeVar("T")
AT_ONCE = 16
"""Requests at once over one pool, and so the connections that it keeps beside those of WebSockets."""
_turns: WeakKeyDictionary[aiohttp.ClientSession, asyncio.Semaphore] = WeakKeyDictionary()
SMALL, SLOW = 1 << 16, 1 << 16
"""Bytes that a line takes at once, and in a second if it is slow."""


class NotNow(Exception):
    """An attempt that may succeed later, not before `after_s`."""

    def __init__(self, reason: str, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.after_s = after_s


class Lost(NotNow):
    """Who was asked is not there, or is the wrong one; `gone` if nobody could be connected to."""

    def __init__(self, reason: str, *, gone: bool = False) -> None:
        super().__init__(reason)
        self.gone = gone


class Answer(NamedTuple):
    """A response that was read to its end; `url` is what was asked, without the query."""

    url: str
    status: int
    headers: Mapping[str, str]
    content: bytes


def new_http(tls: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
    """A pool of connections as clients want it, for the event loop that runs; several may share it."""
    # Servers close what was idle for 5 s: to be the first is to be spared a failed request. No limit, since
    # WebSockets would count; requests take turns.
    connector = aiohttp.TCPConnector(ssl=tls or True, limit=0, keepalive_timeout=3.0)
    cookies = aiohttp.DummyCookieJar()
    return aiohttp.ClientSession(connector=connector, cookie_jar=cookies, timeout=aiohttp.ClientTimeout())


class Calls:
    """Makes HTTP requests through a pool that others may use, too, or through one of its own."""

    def __init__(
        self, http: aiohttp.ClientSession | None, tls: ssl.SSLContext | None, pace: Pace, rng: random.Random
    ) -> None:
        self._http = http
        self._own = http is None
        self._tls = tls
        self._pace = pace
        self._rng = rng
        self._patience = aiohttp.ClientTimeout(connect=pace.answer_s, sock_read=pace.answer_s)

    @property
    def http(self) -> aiohttp.ClientSession:
        """The pool; one of its own is made when it is needed, for the event loop that runs then."""
        if self._http is None:
            self._http = new_http(self._tls)
        return self._http

    async def close(self) -> None:
        """Close the connections, if nobody else has them."""
        if self._own and self._http is not None:
            await self._http.close()

    async def once(
        self,
        method: str,
        url: str,
        *,
        token: str | None = None,
        body: object = None,
        content: bytes | None = None,
        params: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        answer_s: float | None = None,
    ) -> Answer:
        """One attempt, with its own patience or that of all; raises Lost or NotNow if another may do better."""
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        if body is not None:
            content = msgspec.json.encode(body)
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        http = self.http
        if http.closed:
            raise Misused("the client is closed")
        turn = _turns.get(http)
        if turn is None:
            turn = _turns[http] = asyncio.Semaphore(AT_ONCE)
        try:
            async with (
                turn,
                http.request(
                    method,
                    f"{url}?{urlencode(params)}" if params else url,
                    data=io.BytesIO(content) if content is not None and len(content) > SMALL else content,
                    headers=sent,
                    allow_redirects=False,
                    proxy=proxy_for(url),
                    timeout=self._patience_for(content, answer_s),
                ) as response,
            ):
                answer = Answer(url, response.status, response.headers, await response.read())
        except (aiohttp.ClientError, TimeoutError) as error:
            gone = isinstance(error, aiohttp.ClientConnectorError)
            raise Lost(f"{url} does not answer ({type(error).__name__})", gone=gone) from error
        if answer.status == 421:
            raise Lost(f"{url} is the wrong broker")
        if answer.status == 429 or answer.status >= 500:
            raise NotNow(reason_of(answer), _retry_after(answer))
        return answer

    def _patience_for(self, content: bytes | None, answer_s: float | None) -> aiohttp.ClientTimeout:
        """aiohttp waits for ever while it sends, so what a line may not take at once has a limit for all of it."""
        if answer_s is not None:
            return aiohttp.ClientTimeout(connect=answer_s, sock_read=answer_s)
        if content is None or len(content) <= SMALL:
            return self._patience
        longest = self._pace.answer_s + len(content) / SLOW
        return aiohttp.ClientTimeout(total=longest, connect=self._pace.answer_s, sock_read=self._pace.answer_s)

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


def accepted(answer: Answer) -> Answer:
    """The answer, if it is a good one; else the error that it tells of."""
    if 200 <= answer.status < 300 or answer.status == 304:
        return answer
    reason = reason_of(answer)
    if answer.status == 404:
        raise NotThere(reason, 404)
    if answer.status == 410:
        raise Gone(reason, decoded(answer, _Earliest).earliest)
    raise Refused(reason, answer.status)


def decoded(answer: Answer, shape: type[T]) -> T:
    """The JSON of an answer."""
    try:
        return msgspec.json.decode(answer.content, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"{answer.url} answers what is not understood: {error}", answer.status) from error


class _Problem(msgspec.Struct):
    error: str


class _Earliest(msgspec.Struct):
    earliest: int


def reason_of(answer: Answer) -> str:
    """The one line with which an error is explained."""
    try:
        return " ".join(msgspec.json.decode(answer.content, type=_Problem).error.split())
    except (msgspec.DecodeError, UnicodeDecodeError):
        return f"{answer.url} answers {answer.status}"


def _retry_after(answer: Answer) -> float:
    try:
        return min(60.0, max(0.0, float(answer.headers.get("Retry-After", 0))))
    except ValueError:
        return 0.0
