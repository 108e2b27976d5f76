"""The coordinator's HTTP API, as a broker calls it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from newsstand.broker.sessions.state import Change
from newsstand.errors import Busy, LimitReached, NewsstandError, NotFound
from newsstand.http.client import HttpClient, HttpResponse, RequestError
from newsstand.model import INSTANCE_HEADER
from newsstand.wire.coordination import (
    MOST_NAMES,
    AddedSubscriber,
    ChangesResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveResponse,
    LookupResponse,
    OverlayInfo,
    RegisterBroker,
    RegisteredBroker,
    StaleResponse,
)
from newsstand.wire.subscribers import SubscriberRecord

T = TypeVar("T")


class CoordinatorUnavailable(NewsstandError):
    """The coordinator does not respond, or its response is unexpected."""

    http_status = 503


class IncarnationSuperseded(CoordinatorUnavailable):
    """Another process has taken over this broker: this one must stop to serve."""


class CredentialRejected(CoordinatorUnavailable):
    """The coordinator does not accept this broker's credential."""


class NotRegistered(CoordinatorUnavailable):
    """The coordinator does not know this broker: it has to register first."""


class DuplicateBroker(CoordinatorUnavailable):
    """Another process of this name holds a lease of `lease_s`."""

    def __init__(self, error: str, lease_s: float) -> None:
        super().__init__(error)
        self.lease_s = lease_s


class NameTaken(NewsstandError):
    """A subscriber of that name exists already."""

    http_status = 409

    def __init__(self, name: str) -> None:
        super().__init__(f"the name '{name}' is taken")


class AccountChanged(NewsstandError):
    """An account was changed while another change of it was under way."""

    http_status = 409

    def __init__(self, name: str) -> None:
        super().__init__(f"the account '{name}' was changed meanwhile, and the password was not; try again")


class ErrorResponse(msgspec.Struct):
    """The body of an error of the coordinator or the data cluster."""

    error: str = ""
    reason: str = ""
    lease_s: float = 0.0
    earliest: int = 0

    @classmethod
    def of(cls, response: HttpResponse) -> ErrorResponse:
        """Return the body of a response; without fields if it is malformed."""
        try:
            return response.decode(cls)
        except RequestError:
            return cls()


class CoordinatorClient:
    """One call per method; a call raises CoordinatorUnavailable without a usable response."""

    def __init__(self, http: HttpClient, broker: str, instance: str = "") -> None:
        """`http` has the coordinator's URL as its base and the broker's credential among its headers."""
        self._http = http
        self._broker = broker
        self._path = f"/brokers/{broker}"
        self._instance = instance
        self.is_up = False
        """Whether the last heartbeat, or a later check of records, succeeded."""
        self.is_registered = False
        """Whether the coordinator that this broker belongs to has accepted it since it started."""

    async def register(self, endpoint: RegisterBroker, store: str | None) -> RegisteredBroker:
        """Register the broker at the coordinator with the store that it belongs to, if it knows one."""
        self.is_registered = False
        body = msgspec.structs.replace(endpoint, store=store, instance=self._instance)
        response = await self._send("PUT", self._path, body)
        problem = ErrorResponse.of(response)
        if response.status == 409 and problem.reason == "duplicate":
            raise DuplicateBroker(problem.error, problem.lease_s)
        if response.status == 409:
            raise CoordinatorUnavailable(
                "the coordinator has another store than the one that knows this broker's subscribers: "
                "give it back its store, or start this broker with a new data folder"
            )
        if response.status in (401, 403):
            raise CredentialRejected(f"the coordinator does not accept the broker: {problem.error}")
        return _accepted(response, RegisteredBroker)

    async def heartbeat(self, state: HeartbeatRequest) -> HeartbeatResponse:
        """Renew the lease; confirm handovers and report topics that are stored completely."""
        return await self._call(HeartbeatResponse, "POST", f"{self._path}/heartbeat", state, 3)

    async def send_changes(self, changes: Sequence[Change]) -> ChangesResponse:
        """Replicate changes, in order."""
        if not self.is_registered:
            raise CoordinatorUnavailable("the broker is not registered yet")
        return await self._call(ChangesResponse, "POST", f"{self._path}/changes", changes, 30)

    async def stale_records(self, epochs: Mapping[str, int], timeout_s: float) -> set[str]:
        """Return those subscribers whose records of these epochs are out of date."""
        stale: set[str] = set()
        left = list(epochs.items())
        while left:
            body = {"epochs": dict(left[:MOST_NAMES])}
            response = await self._call(StaleResponse, "POST", f"{self._path}/stale", body, timeout_s)
            stale.update(response.stale)
            left = left[MOST_NAMES:]
        return stale

    async def leave(self) -> int:
        """Withdraw the broker; return how many of its subscribers were moved."""
        return (await self._call(LeaveResponse, "DELETE", self._path)).moved

    async def lookup(self, names: Sequence[str]) -> dict[str, SubscriberRecord]:
        """Return the records of subscribers that exist, whatever their brokers."""
        return (await self.find(names, take=False)).subscribers

    async def find(
        self, names: Sequence[str], take: bool, sessions: Mapping[str, Collection[str]] | None = None
    ) -> LookupResponse:
        """Look subscribers up; with `take`, move them to this broker if one of their `sessions` is active."""
        found = LookupResponse({}, [], {})
        for first in range(0, len(names), MOST_NAMES):
            some_names = names[first : first + MOST_NAMES]
            body = {"broker": self._broker, "names": some_names, "take": take}
            if sessions:
                body["sessions"] = {name: sessions[name] for name in some_names if name in sessions}
            some = await self._call(LookupResponse, "POST", "/subscribers/lookup", body, 30)
            found.subscribers |= some.subscribers
            found.elsewhere += some.elsewhere
            found.handovers |= some.handovers
        return found

    async def register_subscriber(self, name: str, hash: str, address: str = "") -> int:
        """Register a subscriber and return its epoch; raise NameTaken.

        Raise LimitReached if there are too many subscribers, Busy if too many come from the client's address.
        """
        body = {"name": name, "hash": hash, "broker": self._broker, "client": address}
        response = await self._send("POST", "/subscribers", body)
        problem = ErrorResponse.of(response)
        if response.status == 429:
            raise Busy(problem.error, float(response.headers.get("Retry-After", "1")))
        if response.status == 409 and problem.reason == "limit":
            raise LimitReached(problem.error)
        if response.status == 409 and not problem.reason:
            raise NameTaken(name)
        return _accepted(response, AddedSubscriber).epoch

    async def set_password(self, name: str, hash: str, epoch: int) -> None:
        """Replace the hash of a subscriber's password; raise NotFound.

        Raise AccountChanged if the coordinator's record of the subscriber is of another epoch.
        """
        await self._change_account("PUT", name, {"hash": hash, "epoch": epoch})

    async def delete_subscriber(self, name: str) -> None:
        """Delete a subscriber with its sessions and subscriptions; raise NotFound."""
        await self._change_account("DELETE", name)

    async def topics_of_others(self, topics: Collection[str]) -> set[str]:
        """Return those topics that other brokers have to store."""
        storages = (await self._call(OverlayInfo, "GET", "/overlay")).storages
        return {
            topic
            for topic in topics
            if topic in storages and any(name != self._broker for name in storages[topic].wanted)
        }

    async def _change_account(self, method: str, name: str, body: object = None) -> None:
        response = await self._send(method, f"/subscribers/{name}", body)
        if response.status == 404:
            raise NotFound(f"there is no subscriber '{name}'")
        if response.status == 409 and not ErrorResponse.of(response).reason:
            raise AccountChanged(name)
        if not response.is_success:
            raise _error_of(response)

    async def _call(self, type: type[T], method: str, path: str, body: object = None, timeout_s: float = 10) -> T:
        return _accepted(await self._send(method, path, body, timeout_s), type)

    async def _send(self, method: str, path: str, body: object = None, timeout_s: float = 10) -> HttpResponse:
        headers = {INSTANCE_HEADER: self._instance}
        try:
            return await self._http.request(method, path, json=body, headers=headers, timeout_s=timeout_s)
        except RequestError as error:
            raise CoordinatorUnavailable(f"the coordinator does not respond: {error.reason}") from error


def _accepted(response: HttpResponse, type: type[T]) -> T:
    if not response.is_success:
        raise _error_of(response)
    try:
        return response.decode(type)
    except RequestError as error:
        raise CoordinatorUnavailable(f"the coordinator's response is malformed: {error.reason}") from error


def _error_of(response: HttpResponse) -> CoordinatorUnavailable:
    problem = ErrorResponse.of(response)
    if response.status == 409 and problem.reason == "duplicate":
        return IncarnationSuperseded(problem.error)
    if response.status == 404:
        return NotRegistered(problem.error or "the coordinator does not know this broker")
    return CoordinatorUnavailable(f"the coordinator responds {response.status}: {response.error_text[:200]}")
