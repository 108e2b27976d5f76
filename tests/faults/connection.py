"""Requests of a subscriber to a broker over plain HTTP and WebSocket; the journal records every answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from faults.interests import key_of
from faults.journal import Journal, now

TIMEOUT_S = 8.0
LOST = (aiohttp.ClientError, OSError, TimeoutError)
Answer = tuple[int | None, dict[str, Any]]


@dataclass
class Session:
    """A login."""

    number: int
    access: str
    refresh: str


@dataclass
class Socket:
    connection: aiohttp.ClientWebSocketResponse
    opened: float
    closed: int | None = None
    dirty: set[str] = field(default_factory=set)


class Connection:
    """The current broker of a subscriber, its session, and its WebSocket if it is connected."""

    def __init__(
        self, http: aiohttp.ClientSession, urls: Mapping[str, str], journal: Journal, broker: str
    ) -> None:
        self.http = http
        self.urls = urls
        self.journal = journal
        self.broker = broker
        self.session: Session | None = None
        self.socket: Socket | None = None
        self.streams: dict[str, str] = {}
        """The key of each stream that a broker has reported."""

    async def open(self) -> bool:
        sent, url = now(), f"{self.urls[self.broker]}/notifications".replace("http", "ws", 1)
        why = ""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                connection = await self.http.ws_connect(url, headers=self.bearer())
        except LOST as error:
            why = type(error).__name__
        else:
            self.socket = Socket(connection, sent)
        self.journal.write(op="open", sent=sent, got=now(), broker=self.broker, why=why, session=self.number)
        return not why

    async def close(self) -> None:
        socket, self.socket = self.socket, None
        if socket is not None:
            try:
                async with asyncio.timeout(1):
                    await socket.connection.close()
            except LOST:
                pass

    async def receive(self, seconds: float, wanted: str = "") -> dict[str, Any] | None:
        """Receive messages for some seconds, or until one has the wanted field; return that one."""
        socket = self.socket
        assert socket is not None
        until = now() + seconds
        while socket.closed is None and (left := until - now()) > 0:
            try:
                message = await socket.connection.receive(timeout=left)
            except TimeoutError:
                break
            if message.type is not aiohttp.WSMsgType.TEXT:
                socket.closed = socket.connection.close_code or 1006
                self.journal.write(op="closed", at=now(), broker=self.broker, code=socket.closed)
                break
            data = json.loads(message.data)
            if "stream" in data:
                key = self.streams.get(data["stream"], data["stream"])
                facts = {"broker": self.broker, "key": key, "position": data["position"]}
                self.journal.write(op="notified", at=now(), opened=socket.opened, **facts)
                socket.dirty.add(key)
            if wanted and wanted in data:
                return dict(data)
        return None

    @property
    def number(self) -> int | None:
        return None if self.session is None else self.session.number

    def bearer(self, session: Session | None = None) -> dict[str, str]:
        session = session or self.session
        return {} if session is None else {"Authorization": f"Bearer {session.access}"}

    async def call(
        self,
        op: str,
        method: str,
        path: str,
        body: object = None,
        as_session: Session | None = None,
        **note: object,
    ) -> Answer:
        """Send a request; without an answer the status is None, and `why` is the reason."""
        sent, status, why, durability = now(), None, "", None
        data: dict[str, Any] = {}
        url, timeout = self.urls[self.broker] + path, aiohttp.ClientTimeout(total=TIMEOUT_S)
        headers = self.bearer(as_session)
        try:
            async with self.http.request(method, url, json=body, headers=headers, timeout=timeout) as answer:
                text = await answer.text()
                status, durability = answer.status, answer.headers.get("Newsstand-Durability")
                data = json.loads(text) if text else {}
        except TimeoutError:
            why, status = "timeout", None
        except LOST as error:
            why, status = type(error).__name__, None
        note = {"session": as_session.number if as_session else self.number, **note}
        self.journal.write(
            op=op, sent=sent, got=now(), broker=self.broker, status=status, why=why, durability=durability,
            **note, **_facts(op, status, data),
        )  # fmt: skip
        if status == 401 and as_session is None:
            self.session = None
        return status, {"why": why, "durability": durability, **data}


def _facts(op: str, status: int | None, data: Mapping[str, Any]) -> dict[str, object]:
    """Return the facts of an answer that the journal records."""
    if status is None or status >= 300:
        return {"error": data.get("error", "")} if data else {}
    match op:
        case "subscribe":
            return {"position": data["position"], "head": data["head"]}
        case "ack":
            return {"answered": data["position"]}
        case "read":
            results = [[one["position"], one["payload"]["id"]] for one in data["results"]]
            return {"results": results, "head": data["head"]}
        case "list":
            found = {
                key_of(one["channel"], one["values"]): [one["position"], one["head"]]
                for one in data["subscriptions"]
            }
            return {"found": found}
    return {}
