"""A subscriber without the SDK: bare HTTP and WebSocket, one step after the other, all answers in a journal.

It keeps three rules, so that its journal says what has to be. It repeats a subscription or its end until that is
answered. It leaves alone what a request without an answer may still change: the broker may have been paused with
the request in hand. It goes to another broker than before only while the coordinator answers.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from faults.interests import ALL, key_of
from faults.journal import Journal, now
from faults.schedule import BROKERS

PASSWORD = "correct horse battery"
TIMEOUT_S = 8.0
MOST_HELD = 6
LOST = (aiohttp.ClientError, OSError, TimeoutError)
STEPS = {"": 50, "subscribe": 8, "unsubscribe": 5, "read": 8, "list": 4, "end": 1, "probe": 1}
"""What a subscriber does beside reading what it is told of, in proportion."""
Answer = tuple[int | None, dict[str, Any]]


@dataclass
class Held:
    """A subscription, as the subscriber believes it to be."""

    id: str
    acked: int
    received: int


@dataclass
class Session:
    """A login."""

    number: int
    access: str
    refresh: str


@dataclass
class Pending:
    """A subscription, or the end of one, that was not answered yet."""

    op: str
    key: str
    since: str | int = "now"


@dataclass
class _Socket:
    connection: aiohttp.ClientWebSocketResponse
    opened: float
    closed: int | None = None
    dirty: set[str] = field(default_factory=set)


class Subscriber:
    """Comes and goes until `leaving` is set, then waits until it has everything."""

    def __init__(
        self,
        name: str,
        rng: random.Random,
        http: aiohttp.ClientSession,
        urls: Mapping[str, str],
        journal: Journal,
        interests: list[str],
    ) -> None:
        self.name = name
        self._rng = rng
        self._http = http
        self._urls = urls
        self._journal = journal
        self._interests = interests
        self._broker = rng.choice(BROKERS)
        self._registered = False
        self._session: Session | None = None
        self._sessions = 0
        self._ended: list[Session] = []
        self._socket: _Socket | None = None
        self._streams: dict[str, str] = {}
        self._pending: Pending | None = None
        self.held: dict[str, Held] = {}
        self._kept: set[str] = set()
        """Subscriptions that may not have reached the coordinator yet: they are not ended any more."""
        self._spent: set[str] = set()
        """Subscriptions whose end may not have reached the coordinator yet: they are not made again."""
        self.leaving = asyncio.Event()
        self.goal: dict[str, int] = {}

    async def run(self) -> None:
        while not self.leaving.is_set():
            await self._visit()
            await self._close()
            await asyncio.sleep(self._rng.choice([0.0, 0.2, 1.0]) * self._rng.random())

    async def settle(self) -> bool:
        """Finish what is pending and receive everything; return whether that came about. All processes run."""
        if not await self._enter() or not await self._finish_pending():
            return False
        for key in list(self.held):
            await self._read(key, 1000)
            await self._acknowledge(key, self.held[key].received)
        status, listed = await self._list()
        complete = all(one.received == one.acked == self.goal[key] for key, one in self.held.items())
        return status == 200 and complete and listed == {key: one.received for key, one in self.held.items()}

    async def finish(self) -> None:
        """Write down how everything stands in the end."""
        await self._enter()
        await self._list(final=True)
        await self._probe_ended(len(self._ended))
        await self._close()

    # One visit to one broker.

    async def _visit(self) -> None:
        if not await self._enter() or not await self._finish_pending():
            await asyncio.sleep(self._rng.uniform(0.1, 0.6))
            return
        for _ in range(self._rng.randint(5, 60)):
            if self.leaving.is_set() or self._session is None or not await self._listen():
                return
            if not await self._step():
                return

    async def _enter(self) -> bool:
        """Go to a broker, log in if there is no session, and connect."""
        await self._close()
        if not await self._choose_broker():
            return False
        if not self._registered:
            status, _ = await self._call("register", "POST", "/subscribers", self._who)
            self._registered = status in (201, 409)
            if not self._registered:
                return False
        return (self._session is not None or await self._login()) and await self._connect()

    @property
    def _who(self) -> dict[str, str]:
        return {"name": self.name, "password": PASSWORD}

    async def _choose_broker(self) -> bool:
        """The one that the coordinator says, or sometimes another; without the coordinator the same as before."""
        sent = now()
        try:
            url = f"{self._urls['coordinator']}/broker"
            async with self._http.get(
                url, headers=self._bearer(), timeout=aiohttp.ClientTimeout(total=4)
            ) as answer:
                if answer.status != 200:
                    return False
                name = (await answer.json())["broker"]["name"]
        except LOST:
            return True
        self._broker = self._rng.choice(BROKERS) if self._rng.random() < 0.15 else name
        self._journal.write(op="choose", sent=sent, got=now(), broker=self._broker)
        return True

    async def _login(self) -> bool:
        status, told = await self._call("login", "POST", "/login", self._who, session=self._sessions + 1)
        if status != 200:
            return False
        self._sessions += 1
        self._session = Session(self._sessions, told["access"], told["refresh"])
        return True

    async def _connect(self) -> bool:
        sent, url = now(), f"{self._urls[self._broker]}/notifications".replace("http", "ws", 1)
        why = ""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                connection = await self._http.ws_connect(url, headers=self._bearer())
        except LOST as error:
            why = type(error).__name__
        else:
            self._socket = _Socket(connection, sent)
        self._journal.write(op="open", sent=sent, got=now(), broker=self._broker, why=why, session=self._number)
        return not why

    async def _close(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            try:
                async with asyncio.timeout(1):
                    await socket.connection.close()
            except LOST:
                pass

    async def _finish_pending(self) -> bool:
        """Repeat what was not answered; return whether nothing is pending."""
        if self._pending is None:
            return True
        if self._pending.op == "subscribe":
            return await self._subscribe(self._pending.key, self._pending.since)
        return await self._unsubscribe(self._pending.key)

    # Steps.

    async def _step(self) -> bool:
        """Do one thing; return whether to stay."""
        assert self._socket is not None
        while self._socket.dirty:
            key = self._socket.dirty.pop()
            if key in self.held and not await self._read_and_acknowledge(key):
                return False
        match self._rng.choices(list(STEPS), list(STEPS.values()))[0]:
            case "subscribe":
                return await self._subscribe_something()
            case "unsubscribe":
                ready = sorted(self.held.keys() - self._kept)
                return not ready or len(self.held) < 2 or await self._unsubscribe(self._rng.choice(ready))
            case "read":
                return not self.held or await self._read_and_acknowledge(self._rng.choice(sorted(self.held)))
            case "list":
                return (await self._list())[0] == 200
            case "end":
                return await self._end_session()
            case "probe":
                await self._probe_ended(1)
        return True

    async def _listen(self) -> bool:
        """Take what comes over the WebSocket for a moment; return whether it is still open."""
        await self._receive(self._rng.uniform(0.1, 0.8))
        return self._socket is not None and self._socket.closed is None

    async def _receive(self, seconds: float, wanted: str = "") -> dict[str, Any] | None:
        """Take messages until one has a field, or for so long; that one."""
        socket = self._socket
        assert socket is not None
        until = now() + seconds
        while socket.closed is None and (left := until - now()) > 0:
            try:
                message = await socket.connection.receive(timeout=left)
            except TimeoutError:
                break
            if message.type is not aiohttp.WSMsgType.TEXT:
                socket.closed = socket.connection.close_code or 1006
                self._journal.write(op="closed", at=now(), broker=self._broker, code=socket.closed)
                break
            told = json.loads(message.data)
            if "stream" in told:
                key = self._streams.get(told["stream"], told["stream"])
                self._journal.write(
                    op="told",
                    at=now(),
                    opened=socket.opened,
                    broker=self._broker,
                    key=key,
                    position=told["position"],
                )
                socket.dirty.add(key)
            if wanted and wanted in told:
                return dict(told)
        return None

    async def _subscribe_something(self) -> bool:
        ready = [key for key in self._interests if key not in self.held and key not in self._spent]
        if not ready or len(self.held) >= MOST_HELD:
            return True
        return await self._subscribe(
            self._rng.choice(ready), self._rng.choice(["now", "now", "now", "earliest", 0])
        )

    async def _subscribe(self, key: str, since: str | int) -> bool:
        interest = ALL[key]
        body = {"channel": interest.channel, "values": dict(interest.values), "since": since}
        self._pending = Pending("subscribe", key, since)
        status, told = await self._call("subscribe", "POST", "/subscriptions", body, key=key, since=since)
        if status not in (200, 201):
            if status is None and told.get("why") == "timeout":
                self._kept.add(key)
            return False
        self._pending = None
        if told["durability"] != "replicated":
            self._kept.add(key)
        self._streams[told["stream"]] = key
        self.held[key] = Held(told["id"], told["position"], told["position"])
        return True

    async def _unsubscribe(self, key: str) -> bool:
        self._pending = Pending("unsubscribe", key)
        status, told = await self._call("unsubscribe", "DELETE", f"/subscriptions/{self.held[key].id}", key=key)
        if status not in (204, 404):
            if status is None and told.get("why") == "timeout":
                self._spent.add(key)
            return False
        self._pending = None
        del self.held[key]
        if told.get("durability") != "replicated":
            self._spent.add(key)
        return True

    async def _read_and_acknowledge(self, key: str) -> bool:
        held = self.held[key]
        if not await self._read(key, self._rng.choice([1, 5, 100, 1000])):
            return False
        if held.received > held.acked and self._rng.random() < 0.6:
            return await self._acknowledge(key, self._rng.randint(held.acked + 1, held.received))
        return True

    async def _read(self, key: str, limit: int) -> bool:
        held = self.held[key]
        path = f"/subscriptions/{held.id}/results?limit={limit}"
        after = held.received if self._rng.random() < 0.5 else None
        if after is not None:
            path += f"&after={after}"
        status, told = await self._call("read", "GET", path, key=key, after=after)
        if status == 200 and told["results"]:
            last = told["results"][-1]["position"]
            held.received = max(held.received, last)
            if self._socket is not None and last < told["head"]:
                self._socket.dirty.add(key)
        return status in (200, 404)  # 404: a change that is not replicated may be away with its broker

    async def _acknowledge(self, key: str, position: int) -> bool:
        held = self.held[key]
        if position <= held.acked:
            return True
        if self._rng.random() < 0.6:
            path = f"/subscriptions/{held.id}/ack"
            status, told = await self._call(
                "ack", "POST", path, {"position": position}, key=key, position=position
            )
            if status is None and told.get("why") == "timeout":
                self._spent.add(key)
        else:
            status = await self._acknowledge_by_socket(key, position)
        if status == 200:
            held.acked = position
        return status in (200, 404, 422)

    async def _acknowledge_by_socket(self, key: str, position: int) -> int | None:
        socket = self._socket
        if socket is None or socket.closed is not None:
            return None
        sent, told = now(), None
        try:
            await socket.connection.send_json({"ack": {self.held[key].id: position}})
            told = await self._receive(TIMEOUT_S, "acked")
        except LOST:
            socket.closed = 1006
        status = None if told is None else 200
        answered = None if told is None else told["acked"][self.held[key].id]
        if told is None:
            self._spent.add(key)
        self._journal.write(
            op="ack", sent=sent, got=now(), broker=self._broker, key=key, position=position, status=status,
            answered=answered, way="socket", session=self._number, code=socket.closed,
        )  # fmt: skip
        return status

    async def _list(self, *, final: bool = False) -> tuple[int | None, dict[str, int]]:
        status, told = await self._call("list", "GET", "/subscriptions", final=final)
        if status != 200:
            return status, {}
        listed = {key_of(one["channel"], one["values"]): one for one in told["subscriptions"]}
        for key, one in listed.items():
            self._streams[one["stream"]] = key
        return status, {key: int(one["position"]) for key, one in listed.items()}

    async def _end_session(self) -> bool:
        assert self._session is not None
        session = self._session
        status, _ = await self._call("logout", "POST", "/logout")
        if status == 204:
            self._ended.append(session)
        self._session = None
        return False

    async def _probe_ended(self, count: int) -> None:
        """Ask with the tokens of sessions that have ended."""
        for session in self._rng.sample(self._ended, min(count, len(self._ended))):
            await self._call("probe", "GET", "/subscriptions", as_session=session)

    # Calls.

    @property
    def _number(self) -> int | None:
        return None if self._session is None else self._session.number

    def _bearer(self, session: Session | None = None) -> dict[str, str]:
        session = session or self._session
        return {} if session is None else {"Authorization": f"Bearer {session.access}"}

    async def _call(
        self,
        op: str,
        method: str,
        path: str,
        body: object = None,
        as_session: Session | None = None,
        **note: object,
    ) -> Answer:
        """Ask the broker; the status is None if there is no answer, and `why` says what came instead."""
        sent, status, told, why, durability = now(), None, {}, "", None
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            async with self._http.request(
                method,
                self._urls[self._broker] + path,
                json=body,
                headers=self._bearer(as_session),
                timeout=timeout,
            ) as answer:
                text = await answer.text()
                status, durability = answer.status, answer.headers.get("Newsstand-Durability")
                told = json.loads(text) if text else {}
        except TimeoutError:
            why, status = "timeout", None
        except LOST as error:
            why, status = type(error).__name__, None
        note = {"session": as_session.number if as_session else self._number, **note}
        self._journal.write(
            op=op, sent=sent, got=now(), broker=self._broker, status=status, why=why, durability=durability,
            **note, **_facts(op, status, told),
        )  # fmt: skip
        if status == 401 and as_session is None:
            self._session = None
        return status, {"why": why, "durability": durability, **told}


def _facts(op: str, status: int | None, told: Mapping[str, Any]) -> dict[str, object]:
    """What an answer says, as the journal has it."""
    if status is None or status >= 300:
        return {"error": told.get("error", "")} if told else {}
    match op:
        case "subscribe":
            return {"position": told["position"], "head": told["head"]}
        case "ack":
            return {"answered": told["position"]}
        case "read":
            results = [[one["position"], one["payload"]["id"]] for one in told["results"]]
            return {"results": results, "head": told["head"]}
        case "list":
            found = {
                key_of(one["channel"], one["values"]): [one["position"], one["head"]]
                for one in told["subscriptions"]
            }
            return {"found": found}
    return {}
