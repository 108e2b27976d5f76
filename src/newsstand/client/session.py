"""A subscriber's connection: its broker, its session, and the WebSockets that are reopened whenever they close.

A session logs in, renews its tokens before they expire, and logs in again if it has a password.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import aiohttp
import msgspec

from newsstand.client.http import (
    ApiResponse,
    HttpCalls,
    ServerUnavailable,
    TransientError,
    accepted,
    decoded,
    proxy_for,
    reason_of,
)
from newsstand.client.models import ClientError, SessionEnded, Tokens, WrongPassword
from newsstand.concurrency.coalescing import SingleFlight
from newsstand.wire.notifications import CloseCode

logger = logging.getLogger("newsstand.client")
REDIRECTING = (CloseCode.UNAUTHORIZED, CloseCode.MOVED, CloseCode.SERVICE_RESTART)
"""Close codes after which the client looks for its broker again instead of reconnecting to the same one."""


class _BrokerAddress(msgspec.Struct):
    url: str


class _BrokerChoice(msgspec.Struct):
    broker: _BrokerAddress


class BrokerLocator:
    """The broker of a subscriber: the one that the coordinator names, until it is discarded; or a fixed one."""

    def __init__(
        self,
        calls: HttpCalls,
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
        self._requesting = asyncio.Lock()
        self._now = now
        self._down = ""
        self._avoid_until = 0.0
        self._query: dict[str, object] = {}
        if near is not None:
            self._query |= {"lat": near[0], "lon": near[1]}
        if node is not None:
            self._query["node"] = node

    async def url(self, token: str | None) -> str:
        """Return the address of the broker; with a token, even an expired one, of the subscriber's own broker."""
        if self._url is not None:
            return self._url
        async with self._requesting:
            if self._url is None:
                self._url = self._last = await self._request(token)
        return self._url

    def discard(self, url: str, *, is_down: bool = False) -> None:
        """Ask the coordinator again after a broker failed or sent the client away.

        `is_down`: the broker refused the connection.
        """
        if url == self._url and self._coordinator is not None:
            self._url = None
            self._down, self._avoid_until = (
                (url, self._now() + self._calls.pace.failover_s) if is_down else ("", 0.0)
            )

    async def _request(self, token: str | None) -> str:
        url = f"{self._coordinator}/broker"
        try:
            answer = await self._calls.once("GET", url, token=token, params=self._query)
            if answer.status == 401:  # a token of another platform: it cannot help here
                answer = await self._calls.once("GET", url, params=self._query)
        except ServerUnavailable:
            if self._last is None:
                raise
            return self._last  # brokers go on without a coordinator
        broker = decoded(accepted(answer), _BrokerChoice).broker.url.rstrip("/")
        wait_s = self._avoid_until - self._now()
        if broker == self._down and wait_s > 0:
            raise TransientError(f"{broker}: connection refused; waiting for another broker", wait_s)
        return broker


@dataclass(eq=False, repr=False)
class Session:
    """The valid tokens of a subscriber; `on_tokens` is called with each new pair."""

    calls: HttpCalls
    locator: BrokerLocator
    name: str | None
    password: str | None
    tokens: Tokens | None
    register: bool
    allow: Sequence[Mapping[str, object]] | None
    on_tokens: Callable[[Tokens], None] | None
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._renewal = SingleFlight[None, None]()
        self._renew_at = 0.0
        if self.tokens is not None:
            self._use(self.tokens)

    @property
    def seconds_left(self) -> float:
        """Seconds until the token is renewed."""
        return self._renew_at - self.now()

    async def connect(self, deadline_s: float | None) -> tuple[str, str]:
        """Return the address of the broker and a valid token, in as many attempts as the deadline allows."""
        return await self.calls.with_retries(self.broker_and_token, deadline_s)

    async def broker_and_token(self) -> tuple[str, str]:
        """Return the address of the broker and a valid token, in one attempt."""
        url = await self.locator.url(None if self.tokens is None else self.tokens.access)
        if self.tokens is None or self.seconds_left <= 0:
            # It continues if the callers are cancelled: the response must not be lost.
            await self._renewal.run(None, lambda: self._renew(url))
        assert self.tokens is not None
        return url, self.tokens.access

    def token_rejected(self, token: str) -> None:
        """Renew a token that a broker rejected."""
        if self.tokens is not None and self.tokens.access == token:
            self._renew_at = 0.0

    def password_changed(self, password: str) -> None:
        """Log in with another password from now on."""
        if self.password is not None:
            self.password = password

    async def close(self, within_s: float) -> None:
        """Wait for a renewal, because its refresh token is used up; cancel a login."""
        task = self._renewal.task(None)
        if task is None:
            return
        if self.tokens is not None:
            await asyncio.wait([task], timeout=within_s)
        task.cancel()
        await asyncio.wait([task])

    async def _renew(self, url: str) -> None:
        if self.tokens is not None:
            response = await self._once(url, "/refresh", {"refresh": self.tokens.refresh})
            if response.status != 401:
                return self._store(response)
            if self.password is None:
                raise SessionEnded(f"{reason_of(response)}; log in again, or give the client a password")
        await self._login(url)
        return None

    async def _login(self, url: str) -> None:
        credentials = {"name": self.name, "password": self.password}
        if self.register:
            response = await self._once(url, "/subscribers", credentials)
            if response.status != 409:  # the name is taken: by this subscriber, if the password is right
                accepted(response)
            self.register = False
        limits = {} if self.allow is None else {"allow": self.allow}
        response = await self._once(url, "/login", {**credentials, **limits})
        if response.status == 401:
            raise WrongPassword(reason_of(response))
        self._store(response)

    async def _once(self, url: str, path: str, body: object) -> ApiResponse:
        try:
            return await self.calls.once("POST", url + path, body=body)
        except ServerUnavailable as error:
            self.locator.discard(url, is_down=error.is_down)
            raise

    def _store(self, response: ApiResponse) -> None:
        tokens = decoded(accepted(response), Tokens)
        self._use(msgspec.structs.replace(tokens, expires_at=self.now() + tokens.expires_in))
        if self.on_tokens is not None and self.tokens is not None:
            self.on_tokens(self.tokens)

    def _use(self, tokens: Tokens) -> None:
        # Renew after 80 to 90 % of the lifetime, so that clients that began together do not renew together.
        early = tokens.expires_in * self.calls.rng.uniform(0.1, 0.2)
        self.tokens = tokens
        self._renew_at = tokens.expires_at - early


class SocketClosed(Exception):
    """The end of a WebSocket; `code` is the close code of the broker, if it sent one."""

    def __init__(self, end: aiohttp.WSMessage) -> None:
        super().__init__(f"{end.type.name} {end.data}")
        self.code = end.data if end.type is aiohttp.WSMsgType.CLOSE else None


class BrokerSocket(ABC):
    """A WebSocket to the subscriber's broker, opened again whenever it closes; `failure` is why it stopped."""

    path: ClassVar[str]
    renews: ClassVar[bool]
    """Whether the client opens another one before the token expires; else the broker closes this one then."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._calls = session.calls
        self._pace = session.calls.pace
        self._backoff = session.calls.backoff()
        self._running: asyncio.Task[None] | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._url = ""
        self.query = ""
        """What follows the path in the address."""
        self.failure: ClientError | None = None
        self.ready = asyncio.Event()
        """Set while the broker has reported that it is ready."""

    def _start(self) -> None:
        self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._stay_connected()
        except Exception as error:  # raised by calls and iterations
            self.failure = error if isinstance(error, ClientError) else ClientError(f"{self.path}: {error!r}")
        finally:
            self._on_end()

    async def _stay_connected(self) -> None:
        session = self._session
        while True:
            url, token = await session.connect(None)
            try:
                async with asyncio.timeout(self._pace.answer_s):
                    socket = await self._open(url, token)
                async with socket:
                    self._socket, self._url = socket, url
                    with suppress(TimeoutError):
                        async with asyncio.timeout(max(1.0, session.seconds_left) if self.renews else None):
                            await self._listen(socket)
                continue  # with a new token
            except SocketClosed as end:
                logger.info("the connection to %s/%s was closed: %s", url, self.path, end)
                if end.code == CloseCode.UNAUTHORIZED:
                    session.token_rejected(token)
                if end.code in REDIRECTING or not self.ready.is_set():
                    session.locator.discard(url)
            except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
                logger.info("no connection to %s/%s: %s", url, self.path, error)
                session.locator.discard(url, is_down=isinstance(error, aiohttp.ClientConnectorError))
            finally:
                self._on_lost()
                self._socket, self._url = None, ""
                self.ready.clear()
            await self._backoff.wait()

    async def _open(self, url: str, token: str) -> aiohttp.ClientWebSocketResponse:
        return await self._calls.http.ws_connect(
            f"{url}/{self.path}{self.query}",
            headers={"Authorization": f"Bearer {token}"},
            ssl=self._calls.tls or True,
            proxy=proxy_for(url),
            timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
            heartbeat=self._pace.heartbeat_s,
            max_msg_size=1 << 20,
        )

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            message = await socket.receive()
            if message.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                raise SocketClosed(message)
            await self._on_frame(socket, message.data)

    @abstractmethod
    async def _on_frame(self, socket: aiohttp.ClientWebSocketResponse, frame: str | bytes) -> None:
        """Handle a frame."""

    @abstractmethod
    def _on_lost(self) -> None:
        """Handle the end of a connection; another one may follow."""

    @abstractmethod
    def _on_end(self) -> None:
        """Handle the end of all connections, by `close` or because of `failure`."""
