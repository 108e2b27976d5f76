"""The coordinator, as a broker sees it: where subscribers are at home. A broker goes on without it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import httpx
import msgspec

from newsstand.broker.change_sender import REPLICATION_S, Applied, ChangeSender, NoCoordinator, Superseded
from newsstand.broker.overlay_told import Overlay, OverlayTold, Placement
from newsstand.broker.records import Change, Record
from newsstand.broker.store import Store
from newsstand.errors import Busy, LimitReached, NewsstandError, NotFound
from newsstand.model import INSTANCE_HEADER
from newsstand.serving.credentials import SharedKeys

logger = logging.getLogger(__name__)
TOGETHER_S = 0.01
AT_ONCE = 5000
"""Subscribers in one lookup."""
DUPLICATE_LEASES = 2
"""Leases for which a broker waits for a process of the same name to be gone, before it gives up."""


class CredentialRefused(NoCoordinator):
    """The coordinator does not accept this broker's credential."""


class AnotherStore(NoCoordinator):
    """The coordinator is not the one that knows who is at home here: to obey it would be to forget everybody."""


class Unregistered(NoCoordinator):
    """The coordinator does not count on this broker: it has to register first."""


class Taken(NewsstandError):
    """A subscriber of that name is registered already."""


class AccountChanged(NewsstandError):
    """An account was changed while another change of it was under way."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the account '{name}' was changed meanwhile, and the password was not; try again")


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
    held: list[str] = []
    serial: int = 0
    lease_s: float = 0.0
    state: str = "up"
    store: str = ""
    overlay: OverlayTold | None = None
    keys: SharedKeys | None = None


class _Beat(msgspec.Struct):
    state: str = "up"
    adopt: list[str] = []
    moved: dict[str, int] = {}
    overlay: OverlayTold | None = None


class _Found(msgspec.Struct):
    subscribers: dict[str, Record]
    elsewhere: list[str] = []
    handovers: dict[str, int] = {}


class _Left(msgspec.Struct):
    moved: int = 0


class _Stale(msgspec.Struct):
    stale: list[str]


class _Added(msgspec.Struct):
    epoch: int = 0


class _Problem(msgspec.Struct):
    error: str = ""
    reason: str = ""
    lease_s: float = 0.0


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
        left: Callable[[Mapping[str, int]], Awaitable[None]],
        only: Callable[[Sequence[str], Sequence[str], int], Awaitable[list[str]]],
        fence: Callable[[Mapping[str, int]], None],
        use: Callable[[SharedKeys], None] = lambda keys: None,
        instance: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tell the broker what the coordinator says.

        `adopt`: these records are the coordinator's; `left`: these subscribers are followed by other brokers;
        `fence`: these have another home; `only`: nobody but those at home here, and those held for others, has
        a record here, and it returns whose records have to be brought. All go with the serial number of the
        move: a record of a later epoch is of a subscriber that has come back. `use`: these are the keys of all
        brokers.
        """
        self._http = http
        self._broker = broker
        self._place = place
        self._store = store
        self._load = load
        self._adopt = adopt
        self._only = only
        self._left = left
        self._use = use
        self._clock = clock
        self.changes = ChangeSender(store, self._send, fence=fence, left=left)
        self._instance = instance
        self._asked: dict[str, asyncio.Future[bool]] = {}
        self._proofs: dict[str, set[str | None]] = {}
        """The sessions by whose tokens subscribers are asked for; None for one that is taken anyway."""
        self._checked: dict[str, tuple[int, asyncio.Future[bool | None]]] = {}
        self._checking: asyncio.Task[None] | None = None
        self._bringing: asyncio.Task[None] | None = None
        self._taking: set[asyncio.Task[None]] = set()
        self._adopted: dict[str, int] = {}
        self._forgot: dict[str, int] = {}
        """What the next heartbeat confirms: subscribers, and the numbers of their handovers."""
        self._leaving = False
        self._registered = False
        """By the coordinator that this broker belongs to, since it started."""
        self._registration: _Registered | None = None
        self._duplicate_since: float | None = None
        self._lease_until = -1.0
        self._lease_s = 0.0
        self._lapses = 0
        self._has_lapsed = True
        self.joined = asyncio.Event()
        """The coordinator has accepted this broker, or does not answer: the broker may serve."""
        self.is_up = False
        """Whether the coordinator answered last; it stays so during a heartbeat, or nothing would be checked."""
        self.overlay: Overlay | None = None

    # Leases.

    async def settled(self) -> None:
        """Wait until the coordinator has accepted this broker or is known to be away, but not for long."""
        if not self.joined.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(REPLICATION_S):
                    await self.joined.wait()

    @property
    def lease(self) -> int:
        """Count the times that the coordinator may have given this broker up: after each, records may be old."""
        if self._clock() > self._lease_until and not self._has_lapsed:
            self._has_lapsed = True
            self._lapses += 1
        return self._lapses

    def _renew(self, sent: float) -> None:
        """Begin a lease at the time when the heartbeat was sent: the coordinator's ends later."""
        if sent > self._lease_until and not self._has_lapsed:
            self._lapses += 1
        self._has_lapsed = False
        self._lease_until = sent + self._lease_s

    async def is_stale(self, name: str, epoch: int) -> bool | None:
        """Ask whether a subscriber was at home elsewhere since the epoch of its record; None if nobody answers.

        Callers share calls: all that wait while one is under way go with the next.
        """
        if not self.is_up:
            return None
        asked = self._checked.get(name)
        if asked is None or asked[0] != epoch:
            asked = self._checked[name] = epoch, asyncio.get_running_loop().create_future()
        if self._checking is None:
            self._checking = asyncio.create_task(self._check())
        return await asyncio.shield(asked[1])

    async def _check(self) -> None:
        try:
            while self._checked:
                asked, self._checked = self._checked, {}
                stale: set[str] | None = None
                try:
                    epochs = {name: epoch for name, (epoch, _) in asked.items()}
                    response = await self._ask(
                        "POST", f"/brokers/{self._broker}/stale", {"epochs": epochs}, timeout=REPLICATION_S
                    )
                    stale = set(_decoded(response, _Stale).stale)
                except Unregistered:
                    stale = set(asked)
                except NewsstandError as error:
                    logger.warning("records are not checked: %s", error)
                    self.is_up = False
                except Exception:
                    logger.exception("records are not checked")
                for name, (_, waiting) in asked.items():
                    if not waiting.done():
                        waiting.set_result(None if stale is None else name in stale)
        finally:
            self._checking = None

    # Subscribers.

    async def register_subscriber(self, name: str, hash: str, address: str = "") -> int:
        """Take a name for a new subscriber, and return its epoch; Taken if somebody has it.

        Raise LimitReached if there are too many subscribers, Busy if too many come from the client's address.
        """
        body = {"name": name, "hash": hash, "broker": self._broker, "client": address}
        response = await self._request("POST", "/subscribers", body)
        if response.status_code == 429:
            raise Busy(_problem(response).error, float(response.headers.get("Retry-After", "1")))
        if response.status_code == 409 and _problem(response).reason == "limit":
            raise LimitReached(_problem(response).error)
        if response.status_code == 409 and not _problem(response).reason:
            raise Taken(f"the name '{name}' is taken")
        return _decoded(_accepted(response), _Added).epoch

    async def set_password(self, name: str, hash: str, epoch: int) -> None:
        """Replace the hash of a subscriber's password; raise NotFound.

        Raise AccountChanged if the coordinator's record of the subscriber is of another epoch.
        """
        await self._change_account("PUT", name, {"hash": hash, "epoch": epoch})

    async def delete_subscriber(self, name: str) -> None:
        """Delete a subscriber with its sessions and subscriptions; raise NotFound."""
        await self._change_account("DELETE", name)

    async def _change_account(self, method: str, name: str, body: object = None) -> None:
        response = await self._request(method, f"/subscribers/{name}", body)
        if response.status_code == 404:
            raise NotFound(f"there is no subscriber '{name}'")
        if response.status_code == 409 and not _problem(response).reason:
            raise AccountChanged(name)
        _accepted(response)

    async def take(self, name: str, session: str | None = None) -> bool:
        """Let a subscriber be at home here, and have its record adopted; return whether there is one.

        There is none, too, if a session is given that has ended: then the subscriber stays where it is.
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

    async def _take(self) -> None:
        asked, self._asked = self._asked, {}
        proofs, self._proofs = self._proofs, {}
        sessions = {
            name: [one for one in some if one is not None] for name, some in proofs.items() if None not in some
        }
        try:
            async with self.changes.exchange:
                await self.changes.flush_locked()
                found = await self._lookup(list(asked), take=True, sessions=sessions)
                await self._adopt(list(found.subscribers.values()))
                self._adopted |= found.handovers
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
                waiting.set_result(name in found.subscribers)

    async def lookup(self, names: Sequence[str]) -> dict[str, Record]:
        """Return what is known of subscribers that exist, wherever they are at home."""
        return (await self._lookup(names, take=False)).subscribers

    async def _lookup(
        self, names: Sequence[str], take: bool, sessions: Mapping[str, Sequence[str]] | None = None
    ) -> _Found:
        found = _Found({})
        for first in range(0, len(names), AT_ONCE):
            some_names = names[first : first + AT_ONCE]
            body = {"broker": self._broker, "names": some_names, "take": take}
            if sessions:
                body["sessions"] = {name: sessions[name] for name in some_names if name in sessions}
            some = _decoded(await self._ask("POST", "/subscribers/lookup", body, timeout=30), _Found)
            found.subscribers |= some.subscribers
            found.elsewhere += some.elsewhere
            found.handovers |= some.handovers
        return found

    # Heartbeats.

    async def run(self) -> None:
        """Register, and say again and again that the broker lives, until cancelled.

        Raises CredentialRefused if it was never accepted, and Superseded if another process is this broker.
        """
        accepted, complaint = False, ""
        while not self._leaving:
            try:
                await self.beat()
                accepted, complaint = True, ""
            except Superseded:
                raise
            except NewsstandError as error:
                if isinstance(error, CredentialRefused) and not accepted:
                    raise
                if str(error) != complaint:
                    complaint = str(error)
                    logger.warning("%s; the broker goes on without it", error)
            except Exception:  # whatever it was, the broker must go on saying that it lives
                logger.exception("a heartbeat failed")
            await asyncio.sleep(1.0 if self._registration is None else self._registration.heartbeat_s)

    async def beat(self) -> None:
        """Say that the broker lives, after registering if it has to, and do what the coordinator answers."""
        try:
            try:
                sent, beat = await self._beat()
            except Unregistered:
                self._registration = None
                sent, beat = await self._beat()
        except BaseException:
            self.is_up = False
            raise
        finally:
            if self._duplicate_since is None:
                self.joined.set()
            self.changes.tried()
        self._renew(sent)
        self.is_up = True
        if beat.moved:
            await self._left(beat.moved)
        self._forgot = beat.moved
        self._bring_in(beat.adopt)
        self._tell(beat.overlay)

    async def _beat(self) -> tuple[float, _Beat]:
        if self._registration is None:
            self._registration = await self._register()
        adopted = dict(self._adopted)
        stored = [] if self.overlay is None else self.overlay.whole
        report = {"adopted": adopted, "forgot": self._forgot, "stored": stored}
        body = {**msgspec.to_builtins(self._load()), **report}
        sent = self._clock()
        response = await self._ask("POST", f"/brokers/{self._broker}/heartbeat", body, timeout=3)
        beat = _decoded(response, _Beat)
        self._adopted = dict(self._adopted.items() - adopted.items())
        return sent, beat

    async def _register(self) -> _Registered:
        self._registered = False
        place = {name: value for name, value in vars(self._place).items() if value is not None}
        known = await asyncio.to_thread(self._store.recall, "coordinator")
        if known:
            place["store"] = known
        place["instance"] = self._instance
        response = await self._request("PUT", f"/brokers/{self._broker}", place)
        if response.status_code == 409 and _problem(response).reason == "duplicate":
            self._wait_for_the_other(_problem(response))
        self._duplicate_since = None
        if response.status_code == 409:
            raise AnotherStore(
                "the coordinator has another store than the one that knows this broker's subscribers: "
                "give it back its store, or start this broker with a new data folder"
            )
        if response.status_code in (401, 403):
            raise CredentialRefused(f"the coordinator does not accept the broker: {_problem(response).error}")
        registered = _decoded(_accepted(response), _Registered)
        await asyncio.to_thread(self._know, registered.store)
        if registered.keys is not None:
            await asyncio.to_thread(self._store.remember, "keys", msgspec.json.encode(registered.keys).decode())
            self._use(registered.keys)
        self._registered = True
        self._lease_s = registered.lease_s
        # The coordinator learns what was answered here before it says what it knows: otherwise a change that it
        # has not heard of looks like one that another broker has undone.
        await self.changes.flush()
        self._bring_in(await self._only(registered.homes, registered.held, registered.serial))
        self._tell(registered.overlay)
        logger.info("registered at the coordinator")
        return registered

    def _wait_for_the_other(self, problem: _Problem) -> None:
        """Raise: this broker is not accepted while another process has its name and a lease.

        That may be this broker before it lost its data folder, so it gets the time to be counted as dead.
        """
        now = self._clock()
        if self._duplicate_since is None:
            self._duplicate_since = now
        was_registered = self._lease_s > 0
        if was_registered or now - self._duplicate_since > DUPLICATE_LEASES * problem.lease_s:
            raise Superseded(problem.error)
        raise NoCoordinator(problem.error)

    def _know(self, store: str) -> None:
        """Remember the coordinator by its store, to go to no other one."""
        if store and not self._store.recall("coordinator"):
            self._store.remember("coordinator", store)

    def _tell(self, overlay: OverlayTold | None) -> None:
        if overlay is not None and self.overlay is not None:
            self.overlay.told(overlay)

    def _bring_in(self, names: list[str]) -> None:
        """Have subscribers brought here, beside the heartbeats, but for those who have come since."""
        waiting = [name for name in names if name not in self._adopted]
        if waiting and (self._bringing is None or self._bringing.done()):
            self._bringing = asyncio.create_task(self._bring(waiting))

    async def _bring(self, names: list[str]) -> None:
        try:
            async with self.changes.exchange:
                await self.changes.flush_locked()
                found = await self._lookup(names, take=True)
                await self._adopt(list(found.subscribers.values()))
                self._adopted |= found.handovers
        except NewsstandError as error:
            logger.warning("subscribers could not be brought here: %s", error)
        except Exception:
            logger.exception("subscribers could not be brought here")

    async def wanted_elsewhere(self, topics: Collection[str]) -> set[str]:
        """Those of some topics that other brokers have to keep."""
        storages = _decoded(await self._ask("GET", "/overlay"), Placement).storages
        return {
            topic
            for topic in topics
            if topic in storages and any(name != self._broker for name in storages[topic].wanted)
        }

    async def leave(self) -> int:
        """The broker goes for good or for a while: its subscribers move to others. How many have moved."""
        self._leaving = True  # a heartbeat now would register it again
        await self.changes.flush()
        return _decoded(await self._ask("DELETE", f"/brokers/{self._broker}"), _Left).moved

    # Calls.

    async def _send(self, changes: Sequence[Change]) -> Applied:
        if not self._registered:
            raise NoCoordinator("the broker is not registered yet")
        response = await self._ask("POST", f"/brokers/{self._broker}/changes", changes, timeout=30)
        return _decoded(response, Applied)

    async def _ask(self, method: str, path: str, body: object = None, timeout: float = 10) -> bytes:
        return _accepted(await self._request(method, path, body, timeout))

    async def _request(self, method: str, path: str, body: object = None, timeout: float = 10) -> httpx.Response:
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json", INSTANCE_HEADER: self._instance}
        try:
            return await self._http.request(method, path, content=content, headers=headers, timeout=timeout)
        except httpx.HTTPError as error:
            raise NoCoordinator(f"the coordinator does not answer ({type(error).__name__})") from error


def _problem(response: httpx.Response) -> _Problem:
    try:
        return msgspec.json.decode(response.content, type=_Problem)
    except msgspec.DecodeError:
        return _Problem()


def _accepted(response: httpx.Response) -> bytes:
    """Return the body of an answer; raise what an error stands for."""
    if response.is_success:
        return response.content
    problem = _problem(response)
    if response.status_code == 409 and problem.reason == "duplicate":
        raise Superseded(problem.error)
    if response.status_code == 404:
        raise Unregistered(problem.error or "the coordinator does not know this broker")
    raise NoCoordinator(f"the coordinator answers {response.status_code}: {response.text[:200]}")


T = TypeVar("T")


def _decoded(answer: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=shape)
    except msgspec.DecodeError as error:
        raise NoCoordinator(f"the coordinator answers what cannot be read: {error}") from error
