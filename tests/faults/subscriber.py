"""A subscriber without the SDK: it sends one request at a time over HTTP or WebSocket and records all answers.

It follows three rules, so that its journal determines the right answers. It repeats a subscription or its end
until that is answered. It does not change again what a request without an answer may still change, because the
broker may have been paused with the request. It uses another broker only while the coordinator answers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from faults.connection import LOST, TIMEOUT_S, Connection, Session
from faults.interests import ALL, key_of
from faults.journal import Journal, now
from faults.schedule import BROKERS

PASSWORD = "correct horse battery"
MOST_HELD = 6
SINCE: list[str | int] = ["now", "now", "now", "earliest", 0]
STEPS = {"": 50, "subscribe": 8, "unsubscribe": 5, "read": 8, "list": 4, "end": 1, "probe": 1}
"""The steps besides reading notified results, with their relative frequencies."""


@dataclass
class HeldSubscription:
    """A subscription, as the subscriber knows it."""

    id: str
    acked: int
    received: int


@dataclass
class Pending:
    """A request for a subscription, or for its end, without an answer yet."""

    op: str
    key: str
    since: str | int = "now"


class Subscriber:
    """A subscriber that visits brokers until `leaving` is set, and then receives the rest."""

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
        self._interests = interests
        self._to = Connection(http, urls, journal, rng.choice(BROKERS))
        self._registered = False
        self._sessions = 0
        self._ended: list[Session] = []
        self._pending: Pending | None = None
        self.held: dict[str, HeldSubscription] = {}
        self._kept: set[str] = set()
        """Subscriptions that may not have reached the coordinator yet: they are not ended."""
        self._spent: set[str] = set()
        """Subscriptions whose end may not have reached the coordinator yet: they are not created again."""
        self.leaving = asyncio.Event()
        self.goal: dict[str, int] = {}

    async def run(self) -> None:
        while not self.leaving.is_set():
            await self._visit()
            await self._to.close()
            await asyncio.sleep(self._rng.choice([0.0, 0.2, 1.0]) * self._rng.random())

    async def settle(self) -> bool:
        """Finish the pending request and receive all results; return whether this succeeded. All processes run."""
        if not await self._enter() or not await self._finish_pending():
            return False
        for key in list(self.held):
            await self._read(key, 1000)
            await self._acknowledge(key, self.held[key].received)
        status, listed = await self._list()
        complete = all(one.received == one.acked == self.goal[key] for key, one in self.held.items())
        return status == 200 and complete and listed == {key: one.received for key, one in self.held.items()}

    async def finish(self) -> None:
        """Record the final list of subscriptions, and use the tokens of ended sessions."""
        await self._enter()
        await self._list(final=True)
        await self._probe_ended(len(self._ended))
        await self._to.close()

    # A visit to a broker

    async def _visit(self) -> None:
        if not await self._enter() or not await self._finish_pending():
            await asyncio.sleep(self._rng.uniform(0.1, 0.6))
            return
        for _ in range(self._rng.randint(5, 60)):
            if self.leaving.is_set() or self._to.session is None or not await self._listen():
                return
            if not await self._step():
                return

    async def _enter(self) -> bool:
        """Choose a broker, log in if there is no session, and connect."""
        await self._to.close()
        if not await self._choose_broker():
            return False
        if not self._registered:
            status, _ = await self._to.call("register", "POST", "/subscribers", self._who)
            self._registered = status in (201, 409)
            if not self._registered:
                return False
        return (self._to.session is not None or await self._login()) and await self._to.open()

    @property
    def _who(self) -> dict[str, str]:
        return {"name": self.name, "password": PASSWORD}

    async def _choose_broker(self) -> bool:
        """Choose the broker of the coordinator, or sometimes another; without the coordinator keep the broker."""
        sent = now()
        try:
            url = f"{self._to.urls['coordinator']}/broker"
            async with self._to.http.get(
                url, headers=self._to.bearer(), timeout=aiohttp.ClientTimeout(total=4)
            ) as answer:
                if answer.status != 200:
                    return False
                name = (await answer.json())["broker"]["name"]
        except LOST:
            return True
        self._to.broker = self._rng.choice(BROKERS) if self._rng.random() < 0.15 else name
        self._to.journal.write(op="choose", sent=sent, got=now(), broker=self._to.broker)
        return True

    async def _login(self) -> bool:
        status, data = await self._to.call("login", "POST", "/login", self._who, session=self._sessions + 1)
        if status != 200:
            return False
        self._sessions += 1
        self._to.session = Session(self._sessions, data["access"], data["refresh"])
        return True

    async def _finish_pending(self) -> bool:
        """Repeat the pending request; return whether it was answered."""
        if self._pending is None:
            return True
        if self._pending.op == "subscribe":
            return await self._subscribe(self._pending.key, self._pending.since)
        return await self._unsubscribe(self._pending.key)

    # Steps

    async def _step(self) -> bool:
        """Do one step; return whether to continue the visit."""
        assert self._to.socket is not None
        while self._to.socket.dirty:
            key = self._to.socket.dirty.pop()
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
        """Receive messages for a moment; return whether the WebSocket is still open."""
        await self._to.receive(self._rng.uniform(0.1, 0.8))
        return self._to.socket is not None and self._to.socket.closed is None

    async def _subscribe_something(self) -> bool:
        ready = [key for key in self._interests if key not in self.held and key not in self._spent]
        if not ready or len(self.held) >= MOST_HELD:
            return True
        return await self._subscribe(self._rng.choice(ready), self._rng.choice(SINCE))

    async def _subscribe(self, key: str, since: str | int) -> bool:
        interest = ALL[key]
        body = {"channel": interest.channel, "values": dict(interest.values), "since": since}
        self._pending = Pending("subscribe", key, since)
        status, data = await self._to.call("subscribe", "POST", "/subscriptions", body, key=key, since=since)
        if status not in (200, 201):
            if status is None and data.get("why") == "timeout":
                self._kept.add(key)
            return False
        self._pending = None
        if data["durability"] != "replicated":
            self._kept.add(key)
        self._to.streams[data["stream"]] = key
        self.held[key] = HeldSubscription(data["id"], data["position"], data["position"])
        return True

    async def _unsubscribe(self, key: str) -> bool:
        self._pending = Pending("unsubscribe", key)
        status, data = await self._to.call("unsubscribe", "DELETE", f"/subscriptions/{self.held[key].id}", key=key)
        if status not in (204, 404):
            if status is None and data.get("why") == "timeout":
                self._spent.add(key)
            return False
        self._pending = None
        del self.held[key]
        if data.get("durability") != "replicated":
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
        status, data = await self._to.call("read", "GET", path, key=key, after=after)
        if status == 200 and data["results"]:
            last = data["results"][-1]["position"]
            held.received = max(held.received, last)
            if self._to.socket is not None and last < data["head"]:
                self._to.socket.dirty.add(key)
        return status in (200, 404)  # 404: only a broker that is away may have it

    async def _acknowledge(self, key: str, position: int) -> bool:
        held = self.held[key]
        if position <= held.acked:
            return True
        if self._rng.random() < 0.6:
            path = f"/subscriptions/{held.id}/ack"
            status, data = await self._to.call(
                "ack", "POST", path, {"position": position}, key=key, position=position
            )
            if status is None and data.get("why") == "timeout":
                self._spent.add(key)
        else:
            status = await self._acknowledge_by_socket(key, position)
        if status == 200:
            held.acked = position
        return status in (200, 404, 422)

    async def _acknowledge_by_socket(self, key: str, position: int) -> int | None:
        socket = self._to.socket
        if socket is None or socket.closed is not None:
            return None
        sent, data = now(), None
        try:
            await socket.connection.send_json({"ack": {self.held[key].id: position}})
            data = await self._to.receive(TIMEOUT_S, "acked")
        except LOST:
            socket.closed = 1006
        status = None if data is None else 200
        answered = None if data is None else data["acked"][self.held[key].id]
        if data is None:
            self._spent.add(key)
        self._to.journal.write(
            op="ack", sent=sent, got=now(), broker=self._to.broker, key=key, position=position, status=status,
            answered=answered, way="socket", session=self._to.number, code=socket.closed,
        )  # fmt: skip
        return status

    async def _list(self, *, final: bool = False) -> tuple[int | None, dict[str, int]]:
        status, data = await self._to.call("list", "GET", "/subscriptions", final=final)
        if status != 200:
            return status, {}
        listed = {key_of(one["channel"], one["values"]): one for one in data["subscriptions"]}
        for key, one in listed.items():
            self._to.streams[one["stream"]] = key
        return status, {key: int(one["position"]) for key, one in listed.items()}

    async def _end_session(self) -> bool:
        assert self._to.session is not None
        session = self._to.session
        status, _ = await self._to.call("logout", "POST", "/logout")
        if status == 204:
            self._ended.append(session)
        self._to.session = None
        return False

    async def _probe_ended(self, count: int) -> None:
        """Send requests with the tokens of ended sessions."""
        for session in self._rng.sample(self._ended, min(count, len(self._ended))):
            await self._to.call("probe", "GET", "/subscriptions", as_session=session)
