"""A model of subscribers' state over brokers, a coordinator and clients, with crashes, pauses and lost messages.

Real parts: the coordinator's API and store, and each broker's store, journal, `SubscriberDirectory`,
`CoordinatorClient` and `ChangeSender`. The clock and the network are the test's. After every step all earlier
responses must hold; at the end everything restarts, and the coordinator and the brokers must agree with the
clients.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeVar, cast

import httpx
import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from newsstand.auth.credentials import broker_credential
from newsstand.auth.signing import key
from newsstand.auth.tokens import BadToken, SubscriberTokens
from newsstand.broker.coordinator_client.client import CoordinatorClient
from newsstand.broker.coordinator_client.heartbeat import Heartbeat
from newsstand.broker.sessions.accounts import AccountService
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.broker.sessions.subscribers import SubscriberDirectory, durability
from newsstand.coordinator.api.context import Authenticator, CoordinatorContext
from newsstand.coordinator.coordinator import Coordinator
from newsstand.coordinator.metrics import Metrics
from newsstand.coordinator.registry import LeaseLimits, SelectionContext
from newsstand.coordinator.server import create_api
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.errors import NewsstandError
from newsstand.geo.location import LinkGraph
from newsstand.http.client import HttpClient, HttpResponse, RequestError
from newsstand.sqlite.group_commit import GroupCommit
from newsstand.wire.coordination import RegisterBroker
from newsstand.wire.subscribers import SubscriberRecord

SECRET = "a secret of at least thirty-two characters"
PASSWORD = "a password of the model"
LEASE_S = 3.0
BROKERS = ("a", "b", "c")
SUBSCRIBERS = ("ann",)
KEYS = ("x", "y")
Link = Literal["up", "cut", "deaf", "late"]
T = TypeVar("T")


a_broker = st.sampled_from("aabbc")
"""The fewer there are, the more often they get into each other's way."""
SUBJECTS = {
    "at": a_broker,
    "name": st.sampled_from(SUBSCRIBERS),
    "one": st.sampled_from(KEYS),
}


class PlainPasswords:
    """Passwords that cost no time."""

    async def hash(self, password: str) -> str:
        return password

    async def verify(self, hash: str | None, password: str, require: object = None) -> bool:
        return hash == password


class Network:
    """The HTTP client of one broker.

    `cut` loses requests, `deaf` loses responses, and `late` delays requests, so that nobody waits for a response.
    """

    def __init__(self, world: World, token: str) -> None:
        self._world = world
        self._token = token
        self.link: Link = "up"

    async def request(
        self, method: str, path: str, *, json: object, headers: dict[str, str], timeout_s: float
    ) -> HttpResponse:
        url = f"http://coordinator{path}"
        content = None if json is None else msgspec.json.encode(json)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **headers}
        request = httpx.Request(method, url, content=content, headers=headers)
        if self.link == "cut" or self._world.api is None:
            raise RequestError(url, "request lost")
        if self.link == "late":
            self._world.delayed.append(request)
            raise RequestError(url, "time-out")
        response = await self._world.ask_coordinator(request)
        if self.link == "deaf":
            raise RequestError(url, "response lost")
        return HttpResponse(url, response.status_code, response.headers, await response.aread())


class Current:
    """The coordinator that runs: it gets the requests to this one."""

    coordinator: Coordinator
    now: Callable[[], float]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.coordinator, name)


CURRENT: Any = Current()


def _now() -> float:
    return float(CURRENT.now())


@functools.cache
def served() -> Any:
    """Return the coordinator's API, which is made once: that takes longer than all that a world does with it."""
    keys = Authenticator(SECRET)
    context = CoordinatorContext(
        authenticate=keys.caller, coordinator=CURRENT, keys=keys, metrics=Metrics(), clock=_now, check=lambda: None
    )
    return create_api(context)


class Node:
    """A broker process over its data folder."""

    numbers = itertools.count()

    def __init__(self, name: str, folder: Path, world: World) -> None:
        self.name = name
        self.network = Network(world, broker_credential(SECRET, name))
        self.is_paused = False
        self.store = SubscriberStore(folder / f"{name}.sqlite", replicate=True, pragmas={"synchronous": "OFF"})
        journal = GroupCommit(lambda changes: self.store.write(changes))  # noqa: PLW0108  tests replace it
        client = CoordinatorClient(cast(HttpClient, self.network), name, f"{name}.{next(self.numbers)}.x")

        def connect(members: SubscriberDirectory) -> Heartbeat:
            return Heartbeat(
                client,
                RegisterBroker(f"http://{name}:1"),
                self.store,
                lambda: (0, len(members.records)),
                members,
                clock=lambda: world.now,
            )

        tokens, now_ms = SubscriberTokens(key(SECRET, "subscribers")), lambda: int(world.now * 1000)
        self.members = SubscriberDirectory(
            self.store.load(),
            journal,
            tokens,
            now_ms,
            lambda: self.store.unsent(2**31)[1],
            connect=connect,
        )
        self.accounts = AccountService(
            self.members,
            tokens,
            PlainPasswords(),  # type: ignore[arg-type]
            lambda count: f"s{next(self.numbers)}",
            now_ms,
        )
        assert self.members.coordinator is not None
        self.coordinator = self.members.coordinator

    async def beat(self) -> None:
        with suppress(NewsstandError):
            await self.coordinator.beat()

    def kill(self) -> None:
        self.store.close()


@dataclass
class ExpectedSubscription:
    """What a client may believe of one subscription: whether it is there, and what was acknowledged at least."""

    there: set[bool] = field(default_factory=lambda: {False})
    pending: tuple[str, int] | None = None
    """The broker, and the epoch of its record, that has answered a change which the coordinator may not have."""
    is_stored: bool = True
    """Whether the coordinator has what was answered of `there`."""
    acked: int = 0
    stored: int = 0
    """The highest position whose acknowledgement the coordinator has."""
    highest: int = 0

    def changed(self, there: bool, position: int, is_durable: bool, node: Node, record: SubscriberRecord) -> None:
        """A change was answered by the broker that is the subscriber's home, or that says: replicated."""
        self.there = {there}
        self.is_stored = is_durable
        self.pending = None if is_durable else (node.name, record.epoch)
        self.acked = position
        self.stored = position if is_durable else 0

    def may_have_changed(self, there: bool) -> None:
        """A change was not answered, or by a broker that is not the home and cannot know."""
        self.there |= {there}
        self.is_stored, self.pending = False, None
        self.acked = self.stored = 0

    def acknowledged(self, position: int, is_durable: bool, node: Node, record: SubscriberRecord) -> None:
        """An acknowledgement was answered; it is for the subscription that this broker knows."""
        if self.there == {True} and (self.is_stored or self.pending == (node.name, record.epoch)):
            self.acked = max(self.acked, position)
            if is_durable:
                self.is_stored, self.pending = True, None
                self.stored = self.acked

    def arrived(self) -> None:
        """The coordinator has got what was pending."""
        self.is_stored, self.pending, self.stored = True, None, self.acked


@dataclass
class Login:
    """A session that a client has begun."""

    name: str
    refresh: str
    is_certain: bool
    """Whether the coordinator has it, and no client has ended it."""


class World(RuleBasedStateMachine):
    """Three brokers, a coordinator, a subscriber with two subscriptions."""

    def __init__(self) -> None:
        super().__init__()
        logging.getLogger("newsstand").setLevel(logging.CRITICAL)
        self.folder = tempfile.TemporaryDirectory()
        self.stored_at = Path(self.folder.name) / "coordinator.sqlite"
        self.loop = asyncio.new_event_loop()
        self.now = 100.0
        self.api: Any = None
        self.nodes: dict[str, Node] = {}
        self.expected = {(name, one): ExpectedSubscription() for name in SUBSCRIBERS for one in KEYS}
        self.begun: dict[str, Login] = {}
        """Sessions by their access tokens."""
        self.ended: dict[str, bool] = {}
        """Access tokens, and whether the coordinator knows that their sessions are over."""
        self.positions = itertools.count(1)
        self.delayed: list[httpx.Request] = []

    async def ask_coordinator(self, request: httpx.Request) -> httpx.Response:
        answer = await httpx.ASGITransport(self.api).handle_async_request(request)
        await answer.aread()
        return answer

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def whole() -> T:
            try:
                return await asyncio.wait_for(work, 60)
            finally:
                others = asyncio.all_tasks() - {asyncio.current_task()}
                await asyncio.gather(*others, return_exceptions=True)

        return self.loop.run_until_complete(whole())

    def teardown(self) -> None:
        try:
            if self.nodes:
                self.heal()
        finally:
            for node in self.nodes.values():
                node.kill()
            if self.api is not None:
                self.store.close()
            self.loop.close()
            self.folder.cleanup()
            logging.getLogger("newsstand").setLevel(logging.NOTSET)

    # Processes and the network.

    @initialize()
    def begin(self) -> None:
        self.start_coordinator()
        for name in BROKERS:
            self.start(name)
        for name in SUBSCRIBERS:
            self.run(self.nodes["a"].accounts.register(name, PASSWORD))

    def start_coordinator(self) -> None:
        self.store = CoordinatorStore(self.stored_at, pragmas={"synchronous": "OFF"})
        around = SelectionContext(Random(1), LinkGraph())
        self.coordinator = Coordinator(self.store, around, self.now, leases=LeaseLimits(LEASE_S))
        CURRENT.coordinator, CURRENT.now = self.coordinator, lambda: self.now
        self.api = served()

    def start(self, name: str) -> None:
        self.nodes[name] = node = Node(name, Path(self.folder.name), self)
        self.run(node.beat())

    @rule(name=a_broker)
    def kill_broker(self, name: str) -> None:
        if name in self.nodes:
            self.nodes.pop(name).kill()

    @rule(name=a_broker)
    def start_broker(self, name: str) -> None:
        if name not in self.nodes:
            self.start(name)

    @rule(name=a_broker, paused=st.booleans())
    def pause(self, name: str, paused: bool) -> None:
        if name in self.nodes:
            self.nodes[name].is_paused = paused

    @rule(name=a_broker, link=st.sampled_from(["up", "up", "cut", "deaf", "late"]))
    def connect(self, name: str, link: Link) -> None:
        if name in self.nodes:
            self.nodes[name].network.link = link

    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """Deliver a delayed request, in any order; no caller waits for its response."""
        if self.delayed and self.api is not None:
            which = data.draw(st.integers(0, len(self.delayed) - 1))
            self.run(self.ask_coordinator(self.delayed.pop(which)))

    @rule()
    def kill_coordinator(self) -> None:
        if self.api is not None:
            self.api = None
            self.store.close()

    @rule()
    def restart_coordinator(self) -> None:
        if self.api is None:
            self.start_coordinator()

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0]), beats=st.booleans())
    def pass_time(self, seconds: float, beats: bool) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 0.5
            if beats:
                for node in self.nodes.values():
                    if not node.is_paused:
                        self.run(node.beat())
            if self.api is not None:
                self.coordinator.tick(self.now)

    @rule(name=a_broker)
    def beat(self, name: str) -> None:
        if name in self.nodes and not self.nodes[name].is_paused:
            self.run(self.nodes[name].beat())

    # Clients.

    def serving(self, name: str) -> Node | None:
        node = self.nodes.get(name)
        return None if node is None or node.is_paused else node

    def owns(self, node: Node, record: SubscriberRecord) -> bool:
        """Whether a broker is the home of a subscriber, whatever it believes."""
        owner = (node.name, record.epoch)
        if self.api is not None:
            return self.store.owners([record.name]).get(record.name) == owner
        store = CoordinatorStore(self.stored_at, pragmas={"synchronous": "OFF"})
        try:
            return store.owners([record.name]).get(record.name) == owner
        finally:
            store.close()

    def do(self, at: str, name: str, one: str, what: str) -> None:
        """A client does something at a broker, and believes the answer."""
        node = self.serving(at)
        if node is None:
            return
        expected = self.expected[name, one]
        position = next(self.positions)

        async def ask() -> tuple[bool, SubscriberRecord, bool] | None:
            """Answer whether anything was changed, in which record, and whether the coordinator has it."""
            durability.set("broker")
            record = await node.members.find(name, fresh=what == "subscribe")
            if record is None:
                return None
            is_there = one in record.subscriptions
            if what == "subscribe":
                await node.members.subscribe(name, one, "near", [], position)
                return not is_there, record, durability.get() == "replicated"
            if not is_there:
                return False, record, False
            if what == "unsubscribe":
                await node.members.unsubscribe(name, one)
            else:
                await node.members.acknowledge(name, {one: position})
            return True, record, durability.get() == "replicated"

        there = what != "unsubscribe"
        try:
            answer = self.run(ask())
        except NewsstandError:
            expected.highest = max(expected.highest, position)
            if what != "ack":
                expected.may_have_changed(there)
            return
        if answer is None:
            return
        changed, record, is_durable = answer
        expected.highest = max(expected.highest, position)
        if not changed:
            if what == "subscribe" and node.coordinator.client.is_up and expected.is_stored:
                assert True in expected.there, "a subscription that was dropped is there"
            return
        if not is_durable and not self.owns(node, record):
            if what != "ack":
                expected.may_have_changed(there)
        elif what == "ack":
            expected.acknowledged(position, is_durable, node, record)
        else:
            expected.changed(there, position, is_durable, node, record)
        if is_durable:
            self.check_stored(name, one)

    def check_stored(self, name: str, one: str) -> None:
        """What was answered as replicated is in the coordinator's store at once."""
        expected = self.expected[name, one]
        node = self.nodes.get(expected.pending[0]) if expected.pending else None
        if node is not None and not node.store.unsent(1)[1]:
            expected.arrived()
        if not expected.is_stored:
            return
        found = self.store.records([name])[name].subscriptions
        assert (one in found) in expected.there, (name, one)
        if one in found and expected.there == {True}:
            assert found[one].acked >= expected.stored, (name, one)

    @rule(at=a_broker, name=st.sampled_from(SUBSCRIBERS))
    def look(self, at: str, name: str) -> None:
        """A client lists its subscriptions: a broker that can ask the coordinator shows what was answered."""
        node = self.serving(at)
        if node is None:
            return
        try:
            record = self.run(node.members.find(name, fresh=True))
        except NewsstandError:
            return
        assert record is not None
        if not node.coordinator.client.is_up:
            return
        for one in KEYS:
            expected = self.expected[name, one]
            if expected.is_stored:
                assert (one in record.subscriptions) in expected.there, (name, one)
                if expected.there == {True}:
                    assert record.subscriptions[one].acked >= expected.stored, (name, one)

    @rule(**SUBJECTS)
    def subscribe(self, at: str, name: str, one: str) -> None:
        self.do(at, name, one, "subscribe")

    @rule(**SUBJECTS)
    def unsubscribe(self, at: str, name: str, one: str) -> None:
        self.do(at, name, one, "unsubscribe")

    @rule(**SUBJECTS)
    def acknowledge(self, at: str, name: str, one: str) -> None:
        self.do(at, name, one, "ack")

    @rule(at=a_broker, name=st.sampled_from(SUBSCRIBERS))
    def log_in(self, at: str, name: str) -> None:
        node = self.serving(at)
        if node is None:
            return

        async def ask() -> tuple[str, str, bool]:
            durability.set("broker")
            pair = await node.accounts.login(name, PASSWORD, None)
            return pair.access, pair.refresh, durability.get() == "replicated"

        with suppress(NewsstandError):
            access, refresh, is_durable = self.run(ask())
            self.begun[access] = Login(name, refresh, is_durable)

    @rule(at=a_broker, data=st.data())
    def log_out(self, at: str, data: st.DataObject) -> None:
        node = self.serving(at)
        if node is None or not self.begun:
            return
        access = data.draw(st.sampled_from(sorted(self.begun)))

        async def ask() -> tuple[bool, bool]:
            durability.set("broker")
            member = await node.members.authenticate(access)
            await node.accounts.end_sessions(member.name, [member.claims.session])
            return durability.get() == "replicated", self.owns(node, member.record)

        login = self.begun[access]
        try:
            is_durable, is_certain = self.run(ask())
        except BadToken:
            assert not (login.is_certain and node.coordinator.client.is_up), "a session that began is not known"
            return
        except NewsstandError:
            login.is_certain = False
            return
        del self.begun[access]
        if is_durable or is_certain:
            self.ended[access] = is_durable

    @rule(at=a_broker, data=st.data())
    def use_a_session(self, at: str, data: st.DataObject) -> None:
        node = self.serving(at)
        tokens = [*sorted(self.begun), *sorted(self.ended)]
        if node is None or not tokens:
            return
        access = data.draw(st.sampled_from(tokens))
        try:
            self.run(node.members.authenticate(access, fresh=True))
        except BadToken:
            login = self.begun.get(access)
            assert login is None or not (login.is_certain and node.coordinator.client.is_up), (
                "a session that began is gone"
            )
        except NewsstandError:
            pass
        else:
            assert not (self.ended.get(access) and node.coordinator.client.is_up), (
                "a session that was ended is back"
            )

    @invariant()
    def replicated_changes_are_kept(self) -> None:
        if self.api is not None and self.nodes:
            for name, one in self.expected:
                self.check_stored(name, one)

    # The end.

    def heal(self) -> None:
        """Start everything, and let it talk until nothing is left to say."""
        if self.api is None:
            self.start_coordinator()
        for name in BROKERS:
            if name not in self.nodes:
                self.start(name)
            self.nodes[name].network.link = "up"
            self.nodes[name].is_paused = False
        for _ in range(80):
            self.now += 1.0
            for node in self.nodes.values():
                self.run(node.beat())
                self.run(node.coordinator.changes.flush())
            self.coordinator.tick(self.now)
            if self.is_quiet():
                break
        else:
            raise AssertionError("the brokers and the coordinator do not come to an end")
        for name in SUBSCRIBERS:
            self.check_converged(name)
        for access, is_certain in [(one, True) for one in self.begun] + [(one, False) for one in self.ended]:
            self.check_session(access, is_certain and self.begun[access].is_certain, access in self.ended)

    def is_quiet(self) -> bool:
        """Whether no message is left to send."""
        ((handovers,),) = self.store._connection.execute("SELECT count(*) FROM handovers")
        return not handovers and not any(node.store.unsent(1)[1] for node in self.nodes.values())

    def check_converged(self, name: str) -> None:
        """All that was answered is there in the end, and the coordinator and the brokers agree on it."""
        found = self.store.records([name])[name].subscriptions
        for one in KEYS:
            expected = self.expected[name, one]
            assert (one in found) in expected.there, (name, one)
            if one in found and expected.there == {True}:
                assert expected.acked <= found[one].acked <= expected.highest, (name, one)
        owner, epoch = self.store.owners([name])[name]
        for node in self.nodes.values():
            record = node.members.records.get(name)
            assert (record is not None) == (node.name == owner), (name, node.name)
            if record is not None:
                assert record.epoch == epoch
                assert {k: (v.acked, v.version) for k, v in record.subscriptions.items()} == {
                    k: (v.acked, v.version) for k, v in found.items()
                }
                loaded = node.store.load()[name]
                assert (loaded.subscriptions, loaded.sessions) == (record.subscriptions, record.sessions)
                assert loaded.epoch == record.epoch

    def check_session(self, access: str, is_certain: bool, has_ended: bool) -> None:
        for node in self.nodes.values():
            try:
                self.run(node.members.authenticate(access, fresh=True))
            except BadToken:
                assert not is_certain, "a session that began is gone"
            else:
                assert not has_ended, "a session that was ended is back"
