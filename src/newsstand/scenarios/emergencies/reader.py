"""A subscriber of the experiment: logs in, is told of results, reads and acknowledges them, logs out."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from newsstand.errors import NewsstandError
from newsstand.scenarios.emergencies.city import Merged, Wanted
from newsstand.scenarios.emergencies.lean_http import Lines, NoAnswer

LIMIT = 100
"""Results in one read."""

ACKED_S = 10.0
"""How long an acknowledgement may take."""


class Found(msgspec.Struct):
    """A result, without what is in it."""

    position: int
    at_ms: int
    origin: str
    latency_ms: float


class _Delivery(msgspec.Struct):
    results: list[Found]
    head: int
    next: int | None


class _Frontend(msgspec.Struct):
    id: str
    channel: str
    values: dict[str, str | int | float]
    stream: str
    position: int


class _Frontends(msgspec.Struct):
    subscriptions: list[_Frontend]
    next: str | None = None


class _Told(msgspec.Struct):
    stream: str | None = None
    ready: bool = False
    acked: dict[str, int] | None = None


_told, _delivery = msgspec.json.Decoder(_Told), msgspec.json.Decoder(_Delivery)


@dataclass
class Noted:
    """What the subscribers of one broker saw, from when `counting` is set; times in milliseconds."""

    counting: bool = False
    online: list[float] = field(default_factory=list)
    """For each result that was made while its reader was online: from the read to its answer."""
    late: list[float] = field(default_factory=list)
    """For each that was made before its reader logged in."""
    waits: float = 0.0
    """The sum of what readers waited in the broker for the cluster."""
    hits_online: int = 0
    hits_late: int = 0
    delivered: list[float] = field(default_factory=list)
    """For readers who were online: from the making of a result to its receipt."""
    troubles: int = 0
    last_trouble: str = ""

    def came(self, found: Found, since_ms: float, milliseconds: float, now_ms: float) -> None:
        """A result has been read."""
        if not self.counting:
            return
        hit = found.origin == "cache"
        self.waits += found.latency_ms
        if found.at_ms < since_ms:
            self.late.append(milliseconds)
            self.hits_late += hit
        else:
            self.online.append(milliseconds)
            self.hits_online += hit
            self.delivered.append(now_ms - found.at_ms)

    def trouble(self, error: BaseException) -> None:
        """Something went wrong; the subscriber goes on."""
        self.troubles += 1
        self.last_trouble = f"{type(error).__name__}: {error}"


@dataclass
class _Followed:
    id: str
    wanted: Merged
    done: int


class Reader:
    """One subscriber at one broker."""

    def __init__(
        self, name: str, url: str, token: str, lines: Lines, noted: Noted, draw: random.Random, hurry_s: float
    ) -> None:
        """`hurry_s`: how long it takes at most until what was told of is read."""
        self.name = name
        self._url = url
        self._token = token
        self._lines = lines
        self._noted = noted
        self._draw = draw
        self._hurry_s = hurry_s
        self._streams: dict[str, _Followed] = {}
        self._due: set[str] = set()
        self._wake = asyncio.Event()
        self._acked = asyncio.Event()
        self._leaving = False
        self._session: asyncio.Task[None] | None = None

    async def learn(self) -> int:
        """Ask for the own subscriptions; how many there are."""
        query = ""
        while True:
            answer = msgspec.json.decode(await self._ask("GET", f"/subscriptions{query}"), type=_Frontends)
            for one in answer.subscriptions:
                self._follow(one)
            if answer.next is None:
                break
            query = f"?after={answer.next}"
        return len(self._streams)

    def login(self) -> None:
        """Be online from now on."""
        if self._session is None:
            self._leaving = False
            self._session = asyncio.create_task(self._be_online())

    async def logout(self) -> None:
        """Finish what is being read, and go."""
        if self._session is not None:
            self._leaving = True
            self._wake.set()
            await asyncio.gather(self._session, return_exceptions=True)
            self._session = None

    async def subscribe(self, wanted: Wanted) -> None:
        """Subscribe, from now on."""
        channel, values = wanted
        answer = await self._ask("POST", "/subscriptions", {"channel": channel, "values": values})
        self._follow(msgspec.json.decode(answer, type=_Frontend))

    async def unsubscribe(self, wanted: Wanted) -> None:
        """Give a subscription up."""
        key = (wanted[0], tuple(wanted[1].items()))
        for stream, followed in list(self._streams.items()):
            if followed.wanted == key:
                del self._streams[stream]
                await self._ask("DELETE", f"/subscriptions/{followed.id}")

    def abandon(self) -> None:
        """End at once."""
        if self._session is not None:
            self._session.cancel()

    async def _be_online(self) -> None:
        while not self._leaving:
            try:
                async with self._opening() as socket:
                    since_ms = time.time() * 1000
                    listening = asyncio.create_task(self._listen(socket))
                    try:
                        await self._read_all(socket, listening, since_ms)
                    finally:
                        listening.cancel()
                        await asyncio.gather(listening, return_exceptions=True)
            except (OSError, InvalidHandshake, ConnectionClosed, TimeoutError, NewsstandError) as error:
                self._noted.trouble(error)
                await asyncio.sleep(0.5)

    def _opening(self) -> connect:
        return connect(
            f"ws{self._url.removeprefix('http')}/notifications",
            additional_headers={"Authorization": f"Bearer {self._token}"},
            compression=None,
            ping_interval=None,
            open_timeout=60,
            close_timeout=2,
            proxy=None,
        )

    async def _listen(self, socket: ClientConnection) -> None:
        try:
            async for message in socket:
                told = _told.decode(message)
                if told.stream is not None:
                    self._due.add(told.stream)
                    self._wake.set()
                elif told.acked is not None:
                    self._acked.set()
        finally:
            self._wake.set()

    async def _read_all(self, socket: ClientConnection, listening: asyncio.Task[None], since_ms: float) -> None:
        while True:
            await self._wake.wait()
            if listening.done():
                listening.result()
                raise NoAnswer("the broker closed the connection")
            if not self._leaving and self._due:
                await asyncio.sleep(self._draw.uniform(0, self._hurry_s))
            self._wake.clear()
            due, self._due = self._due, set()
            if self._leaving:
                return  # what was not read waits for the next login
            positions = {}
            for stream in due:
                followed = self._streams.get(stream)
                if followed is not None and await self._read(followed, since_ms):
                    positions[followed.id] = followed.done
            followed_ids = {one.id for one in self._streams.values()}
            positions = {key: done for key, done in positions.items() if key in followed_ids}
            if positions:
                self._acked.clear()
                await socket.send(msgspec.json.encode({"ack": positions}), text=True)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._acked.wait(), ACKED_S)
            if self._leaving:
                return

    async def _read(self, followed: _Followed, since_ms: float) -> bool:
        """Whether there was anything to read."""
        found = False
        while True:
            path = f"/subscriptions/{followed.id}/results?after={followed.done}&limit={LIMIT}"
            answer = await self._lines.ask("GET", path, self._token)
            if answer.status == 404:  # given up meanwhile
                return False
            if answer.status != 200:
                raise NoAnswer(f"{path}: {answer.status} {answer.body[:200]!r}")
            now_ms = time.time() * 1000
            delivery = _delivery.decode(answer.body)
            for one in delivery.results:
                self._noted.came(one, since_ms, answer.seconds * 1000, now_ms)
                followed.done, found = one.position, True
            if delivery.next is None:
                return found

    async def _ask(self, method: str, path: str, body: object = None) -> bytes:
        answer = await self._lines.ask(method, path, self._token, body)
        if answer.status >= 300:
            raise NoAnswer(f"{method} {path}: {answer.status} {answer.body[:200]!r}")
        return answer.body

    def _follow(self, one: _Frontend) -> None:
        wanted = (one.channel, tuple(one.values.items()))
        self._streams[one.stream] = _Followed(one.id, wanted, one.position)
