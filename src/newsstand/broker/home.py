"""The coordinator, as a broker sees it: where subscribers are at home. A broker goes on without it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import httpx
import msgspec

from newsstand.broker.overlay_told import Overlay, OverlayTold, Placement
from newsstand.broker.records import Record
from newsstand.broker.store import Store
from newsstand.errors import NewsstandError

logger = logging.getLogger(__name__)
TOGETHER_S = 0.01
REPLICATION_S = 2.0
"""How long an answer to a subscriber waits for the coordinator to have the change."""
AT_ONCE = 5000
"""Subscribers in one lookup, changes in one call."""


class NoCoordinator(NewsstandError):
    """The coordinator does not answer."""


class SecretRefused(NoCoordinator):
    """The coordinator has another secret."""


class AnotherStore(NoCoordinator):
    """The coordinator is not the one that knows who is at home here: to obey it would be to forget everybody."""


class Taken(NewsstandError):
    """A subscriber of that name is registered already."""


class Load(msgspec.Struct):
    """How busy a broker is."""

    connections: int
    subscribers: int


@dataclass(frozen=True)
class Place:
    """Where subscribers reach a broker, and where it is."""

    url: str
    lat: float | None = None
    lon: float | None = None
    node: str | None = None
    capacity: int | None = None


class _Registered(msgspec.Struct):
    heartbeat_s: float
    homes: list[str]
    state: str = "up"
    store: str = ""
    overlay: OverlayTold | None = None


class _Beat(msgspec.Struct):
    state: str = "up"
    adopt: list[str] = []
    moved: list[str] = []
    overlay: OverlayTold | None = None


class _Found(msgspec.Struct):
    subscribers: dict[str, Record]
    elsewhere: list[str] = []


class _Left(msgspec.Struct):
    moved: int = 0


class _Applied(msgspec.Struct):
    moved: list[str] = []


class Home:
    """Registers this broker, says that it lives, sends on what changes, and fetches subscribers who come here."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        broker: str,
        place: Place,
        store: Store,
        load: Callable[[], Load],
        *,
        adopt: Callable[[Sequence[Record]], Awaitable[None]],
        forget: Callable[[Sequence[str]], Awaitable[None]],
        only: Callable[[Sequence[str]], Awaitable[list[str]]],
    ) -> None:
        """`only`: nobody but these is at home here; it tells who is to be brought."""
        self._http = http
        self._broker = broker
        self._place = place
        self._store = store
        self._load = load
        self._adopt = adopt
        self._forget = forget
        self._only = only
        self._asked: dict[str, asyncio.Future[Record | None]] = {}
        self._proofs: dict[str, set[str | None]] = {}
        """The sessions by whose tokens subscribers are asked for; None for one that is taken anyway."""
        self._bringing: asyncio.Task[None] | None = None
        self._brought: list[str] = []
        self._taking: set[asyncio.Task[None]] = set()
        self._taken: list[str] = []
        """Who came here without being sent, since the last heartbeat."""
        self._exchange = asyncio.Lock()
        """What is unsent does not change while a record is compared with the coordinator's."""
        self._leaving = False
        self._registered = False
        """By the coordinator that this broker belongs to, since it started."""
        self._changed = asyncio.Event()
        self._changed.set()
        self._behind = True
        """Whether changes wait for the coordinator: then no answer waits for it, until it has caught up."""
        self._waiting: list[asyncio.Future[bool]] = []
        self._replicating: asyncio.Task[None] | None = None
        self.is_up = False
        self.overlay: Overlay | None = None

    async def replicate(self) -> bool:
        """Send the changes that are in the store; whether the coordinator has them.

        Callers share calls: all that wait while one is under way go with the next. While the coordinator is away
        the answer is immediate, and `run_changes` sends the changes later.
        """
        if self._behind:
            self._changed.set()
            return False
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        if self._replicating is None:
            self._replicating = asyncio.create_task(self._replicate())
        return await done

    async def _replicate(self) -> None:
        try:
            while self._waiting:
                together, self._waiting = self._waiting, []
                try:
                    async with asyncio.timeout(REPLICATION_S):
                        await self.flush()
                    succeeded = True
                except (NewsstandError, TimeoutError) as error:
                    logger.warning("changes wait for the coordinator: %s", error or "it takes too long")
                    succeeded = False
                except Exception:
                    logger.exception("changes wait for the coordinator")
                    succeeded = False
                if not succeeded:
                    self._behind = True
                    self._changed.set()
                for done in together:
                    if not done.done():
                        done.set_result(succeeded)
        finally:
            self._replicating = None

    async def register_subscriber(self, name: str, hash: str) -> None:
        """Take a name for a new subscriber; Taken if somebody has it."""
        body = {"name": name, "hash": hash, "broker": self._broker}
        response = await self._ask("POST", "/subscribers", body)
        if response.status_code == 409:
            raise Taken(f"the name '{name}' is taken")
        if not response.is_success:
            raise NoCoordinator(f"the coordinator answers {response.status_code}")

    async def set_password(self, name: str, hash: str) -> None:
        """Replace the hash of a subscriber's password."""
        await self._require("PUT", f"/subscribers/{name}", {"hash": hash})

    async def delete_subscriber(self, name: str) -> None:
        """Delete a subscriber with its sessions and subscriptions."""
        await self._require("DELETE", f"/subscribers/{name}")

    async def _require(self, method: str, path: str, body: object = None) -> None:
        response = await self._ask(method, path, body)
        if not response.is_success and response.status_code != 404:
            raise NoCoordinator(f"the coordinator answers {response.status_code}")

    async def take(self, name: str, session: str | None = None) -> Record | None:
        """Let a subscriber be at home here, and what is known of it; None if there is no such subscriber.

        None, too, if a session is given that has ended: then the subscriber stays where it is.
        """
        self._proofs.setdefault(name, set()).add(session)
        asked = self._asked.get(name)
        if asked is None:
            asked = self._asked[name] = asyncio.get_running_loop().create_future()
            if len(self._asked) == 1:
                asyncio.get_running_loop().call_later(TOGETHER_S, self._start_taking)
        return await asyncio.shield(asked)

    def _start_taking(self) -> None:
        task = asyncio.create_task(self._take())
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    async def lookup(self, names: Sequence[str], *, take: bool = True) -> dict[str, Record]:
        """What is known of subscribers that exist; with `take` they are at home here from now on."""
        return (await self._lookup(names, take)).subscribers

    async def _lookup(
        self, names: Sequence[str], take: bool, sessions: Mapping[str, Sequence[str]] | None = None
    ) -> _Found:
        found = _Found({})
        for first in range(0, len(names), AT_ONCE):
            some_names = names[first : first + AT_ONCE]
            body = {"broker": self._broker, "names": some_names, "take": take}
            if sessions:
                body["sessions"] = {name: sessions[name] for name in some_names if name in sessions}
            response = await self._ask("POST", "/subscribers/lookup", body, timeout=30)
            if not response.is_success:
                raise NoCoordinator(f"the coordinator answers {response.status_code}")
            some = msgspec.json.decode(response.content, type=_Found)
            found.subscribers |= some.subscribers
            found.elsewhere += some.elsewhere
        return found

    def came(self, name: str) -> None:
        """A subscriber who was taken is at home here now; the coordinator hears of it with the next heartbeat."""
        self._taken.append(name)

    async def run(self) -> None:
        """Register, and say again and again that the broker lives, until cancelled.

        Raises SecretRefused if it was never accepted.
        """
        adopted: list[str] = []
        forgot: list[str] = []
        accepted, complaint = False, ""
        registered: _Registered | None = None
        while not self._leaving:
            try:
                if registered is None:
                    registered = await self._register()
                adopted, self._taken = [*adopted, *self._taken], []
                stored = [] if self.overlay is None else self.overlay.whole
                report = {"adopted": adopted, "forgot": forgot, "stored": stored}
                body = {**msgspec.to_builtins(self._load()), **report}
                response = await self._ask("POST", f"/brokers/{self._broker}/heartbeat", body, timeout=3)
                if response.status_code == 404:
                    registered = None
                    continue
                if not response.is_success:
                    raise NoCoordinator(f"the coordinator answers {response.status_code}: {response.text[:200]}")
                self.is_up = accepted = True
                complaint = ""
                beat = msgspec.json.decode(response.content, type=_Beat)
                if beat.moved:
                    await self._forget(beat.moved)
                adopted = self._adopted(beat.adopt)
                forgot = beat.moved
                self._tell(beat.overlay)
            except NewsstandError as error:
                if isinstance(error, SecretRefused) and not accepted:
                    raise
                if str(error) != complaint:
                    complaint = str(error)
                    logger.warning("%s; the broker goes on without it", error)
                self.is_up = False
            except Exception:  # whatever it was, the broker must go on saying that it lives
                logger.exception("a heartbeat failed")
                self.is_up = False
            await asyncio.sleep(registered.heartbeat_s if registered is not None else 1.0)

    async def wanted_elsewhere(self, topics: Collection[str]) -> set[str]:
        """Those of some topics that other brokers have to keep."""
        response = await self._ask("GET", "/overlay")
        if not response.is_success:
            raise NoCoordinator(f"the coordinator answers {response.status_code}")
        storages = msgspec.json.decode(response.content, type=Placement).storages
        return {
            topic
            for topic in topics
            if topic in storages and any(name != self._broker for name in storages[topic].wanted)
        }

    def _tell(self, overlay: OverlayTold | None) -> None:
        if overlay is not None and self.overlay is not None:
            self.overlay.told(overlay)

    def _adopted(self, names: list[str]) -> list[str]:
        """Have subscribers brought here, beside the heartbeats; who has come since they were asked for."""
        done = self._bringing is not None and self._bringing.done()
        come = self._brought if done else []
        if done:
            self._bringing = None
        known = set(come)
        waiting = [name for name in names if name not in known]
        if waiting and self._bringing is None:
            self._bringing = asyncio.create_task(self._bring(waiting))
        return come

    async def _bring(self, names: list[str]) -> None:
        self._brought = []
        try:
            async with self._exchange:
                await self._adopt(list((await self.lookup(names)).values()))
            self._brought = names
        except NewsstandError as error:
            logger.warning("subscribers could not be brought here: %s", error)
        except Exception:
            logger.exception("subscribers could not be brought here")

    async def run_changes(self) -> None:
        """Send on what changes, until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(0.1)
            self._changed.clear()
            try:
                await self.flush()
                self._behind = False
            except NewsstandError:
                self._changed.set()
                await asyncio.sleep(1.0)
            except Exception:
                logger.exception("changes could not be sent to the coordinator")
                self._changed.set()
                await asyncio.sleep(5.0)

    async def flush(self) -> None:
        """Send all changes that the coordinator does not have."""
        if not self._registered:
            raise NoCoordinator("the broker is not registered yet")
        while True:
            async with self._exchange:
                upto, changes = await asyncio.to_thread(self._store.unsent, AT_ONCE)
                if not changes:
                    return
                response = await self._ask("POST", f"/brokers/{self._broker}/changes", changes, timeout=30)
                if not response.is_success:
                    raise NoCoordinator(f"the coordinator answers {response.status_code}: {response.text[:200]}")
                await asyncio.to_thread(self._store.sent, upto)
            moved = msgspec.json.decode(response.content, type=_Applied).moved
            if moved:
                await self._forget(moved)

    async def leave(self) -> int:
        """The broker goes for good or for a while: its subscribers move to others. How many have moved."""
        self._leaving = True  # a heartbeat now would register it again
        await self.flush()
        response = await self._ask("DELETE", f"/brokers/{self._broker}")
        return msgspec.json.decode(response.content, type=_Left).moved if response.is_success else 0

    async def _register(self) -> _Registered:
        self._registered = False
        place = {name: value for name, value in vars(self._place).items() if value is not None}
        known = await asyncio.to_thread(self._store.recall, "coordinator")
        if known:
            place["store"] = known
        response = await self._ask("PUT", f"/brokers/{self._broker}", place)
        if response.status_code == 409:
            raise AnotherStore(
                "the coordinator has another store than the one that knows this broker's subscribers: "
                "give it back its store, or start this broker with a new data folder"
            )
        if response.status_code in (401, 403):
            raise SecretRefused("the coordinator does not accept the broker: it has another secret")
        if not response.is_success:
            raise NoCoordinator(f"the coordinator answers {response.status_code}: {response.text[:200]}")
        registered = msgspec.json.decode(response.content, type=_Registered)
        await asyncio.to_thread(self._know, registered.store)
        self._registered = True
        # The coordinator learns what was answered here before it says what it knows: otherwise a change that it
        # has not heard of looks like one that another broker has undone.
        await self.flush()
        self._adopted(await self._only(registered.homes))
        self._tell(registered.overlay)
        logger.info("registered at the coordinator")
        return registered

    def _know(self, store: str) -> None:
        """Remember the coordinator by its store, to go to no other one."""
        if store and not self._store.recall("coordinator"):
            self._store.remember("coordinator", store)

    async def _take(self) -> None:
        asked, self._asked = self._asked, {}
        proofs, self._proofs = self._proofs, {}
        sessions = {
            name: [one for one in some if one is not None] for name, some in proofs.items() if None not in some
        }
        try:
            found = await self._lookup(list(asked), take=True, sessions=sessions)
        except Exception as error:  # whoever waits has to be told
            fault = error if isinstance(error, NewsstandError) else NoCoordinator("it was not understood")
            for waiting in asked.values():
                waiting.set_exception(fault)
                waiting.exception()
            return
        for name, waiting in asked.items():
            if name in found.elsewhere:
                waiting.set_exception(
                    NoCoordinator("this broker takes nobody now; ask the coordinator for another")
                )
                waiting.exception()
            else:
                waiting.set_result(found.subscribers.get(name))

    async def _ask(self, method: str, path: str, body: object = None, timeout: float = 10) -> httpx.Response:
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"}
        try:
            return await self._http.request(method, path, content=content, headers=headers, timeout=timeout)
        except httpx.HTTPError as error:
            raise NoCoordinator(f"the coordinator does not answer ({type(error).__name__})") from error
