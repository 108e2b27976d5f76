"""The data cluster, as a broker sees it: a few calls of its HTTP API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import httpx
import msgspec

from newsstand.broker.broker import Span
from newsstand.broker.change_sender import Superseded
from newsstand.broker.fetches import Fetched
from newsstand.broker.redirects import Redirected, RedirectTold
from newsstand.broker.told import Suspension, fetched
from newsstand.errors import BadInput, BadValues, NewsstandError, NotFound
from newsstand.model import Channel, Parameter, Scalar
from newsstand.serving.near import REDIRECT

LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=50, keepalive_expiry=3.0)
"""Of connections to a server. It closes what was idle for 5 s: to be the first is to be spared a failed read."""
IDENTITY = {"Accept-Encoding": "identity"}
"""Pages are asked for as they are: a small answer that is compressed may be a huge page."""


class Away(NewsstandError):
    """The data cluster does not answer, or not sensibly."""


class TokenRefused(Away):
    """The data cluster does not accept the broker's token."""


class Gone(NewsstandError):
    """Retention has removed what was asked for; `earliest` is the first position that is left."""

    def __init__(self, earliest: int) -> None:
        super().__init__(f"retention has removed the results before {earliest}")
        self.earliest = earliest


class ExternalPage(NewsstandError):
    """The cluster does not hold the page, but knows the URL of the server that does."""

    def __init__(self, url: str) -> None:
        super().__init__("the page is on a server outside the platform")
        self.url = url


@dataclass(frozen=True)
class Wanted:
    """A backend subscription as the cluster is asked for it."""

    channel: str
    values: tuple[Scalar, ...]
    frontends: int


@dataclass(frozen=True)
class Standing:
    """Where a stream begins and ends at the cluster."""

    head: int
    earliest: int
    suspended: Suspension | None = None


class _Slice(msgspec.Struct):
    subscription: str
    results: list[msgspec.Raw]
    head: int
    earliest: int
    suspended: Suspension | None = None


class _Slices(msgspec.Struct):
    streams: list[_Slice]


class _Registered(msgspec.Struct):
    secret: str | None = None


class _Subscribed(msgspec.Struct):
    ids: list[str]


class Announced(msgspec.Struct):
    """What the cluster answers to an announcement: whether it pushes at all, and for how long it believes it."""

    enabled: bool = False
    lease_s: float = 30.0


class _Problem(msgspec.Struct):
    error: str = ""
    earliest: int = 0
    reason: str = ""


class _Channel(msgspec.Struct):
    name: str
    query: str = ""
    new: str = ""
    parameters: dict[str, str] = {}
    period: str | float | None = None
    bind: dict[str, str] = {}


class _Channels(msgspec.Struct):
    channels: list[_Channel]
    next: str | None = None


class _ListedOne(msgspec.Struct):
    id: str


class _Listed(msgspec.Struct):
    subscriptions: list[_ListedOne]
    next: str | None = None


T = TypeVar("T")


def _decoded(answer: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=shape)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Away(f"the data cluster answers what cannot be read: {error}") from error


class Upstream:
    """A broker's connection to its data cluster. Away: it may be asked again later."""

    def __init__(self, http: httpx.AsyncClient, broker: str) -> None:
        """`http` has the cluster's address as its base and the broker's token among its headers."""
        self._http = http
        self._broker = broker
        self.is_up = False

    async def register(self, callback: str) -> str | None:
        """Say where this broker is; its secret if it is new to the cluster."""
        answer = await self._ask("PUT", f"/brokers/{self._broker}", {"callback": callback})
        return _decoded(answer, _Registered).secret

    async def check_in(self) -> None:
        """Say that this process still acts as the broker; raise Superseded if another one does."""
        await self._ask("GET", f"/brokers/{self._broker}")

    async def leave(self) -> None:
        """Drop this broker with its subscriptions."""
        await self._ask("DELETE", f"/brokers/{self._broker}")

    async def channels(self) -> dict[str, Channel]:
        """All channels, with what a subscriber needs to know of them."""
        listed: list[_Channel] = []
        query = ""
        while True:
            answer = _decoded(await self._ask("GET", f"/channels{query}"), _Channels)
            listed += answer.channels
            if not answer.next:
                break
            query = f"?after={answer.next}"
        return {
            one.name: Channel(
                one.name,
                one.query,
                one.new,
                tuple(Parameter(name, kind) for name, kind in one.parameters.items()),
                one.period if isinstance(one.period, float) else None,
                bind=tuple(one.bind.items()),
            )
            for one in listed
        }

    async def subscribe(self, wanted: Sequence[Wanted]) -> list[tuple[str, Standing]]:
        """Make or update backend subscriptions, all or none: their ids, and where their streams stand."""
        body = [{"channel": one.channel, "values": one.values, "frontends": one.frontends} for one in wanted]
        answer = await self._ask("POST", f"/brokers/{self._broker}/subscriptions", body, timeout=60)
        ids = _decoded(answer, _Subscribed).ids
        slices = await self._read_all([{"subscription": one, "limit": 0} for one in ids])
        return [(one.subscription, Standing(one.head, one.earliest, one.suspended)) for one in slices]

    async def drop(self, ids: Sequence[str]) -> None:
        """Drop backend subscriptions."""
        await self._ask("DELETE", f"/brokers/{self._broker}/subscriptions", list(ids), timeout=60)

    async def subscriptions(self) -> AsyncIterator[str]:
        """The ids of all backend subscriptions that the cluster has of this broker."""
        after = ""
        while True:
            query = f"?limit=10000&after={after}" if after else "?limit=10000"
            path = f"/brokers/{self._broker}/subscriptions{query}"
            answer = _decoded(await self._ask("GET", path), _Listed)
            for one in answer.subscriptions:
                yield one.id
            after = answer.next or ""
            if not after:
                return

    async def read(self, spans: Mapping[str, Span]) -> dict[str, list[Fetched] | Exception]:
        """The results of a span of each of these streams, oldest first, in as few calls as they fit in."""
        found: dict[str, list[Fetched] | Exception] = {stream: [] for stream in spans}
        left = dict(spans)
        while left:
            asked = [
                {"subscription": stream, "after": span.after, "until": span.until, "limit": min(10_000, len(span))}
                for stream, span in left.items()
            ]
            slices = await self._read_all(asked)
            progress = False
            known = {one.subscription for one in slices}
            for one in slices:
                span = left[one.subscription]
                results = [fetched(raw) for raw in one.results]
                so_far = found[one.subscription]
                assert isinstance(so_far, list)
                so_far += results
                if not results and one.earliest > span.after + 1 and not so_far:
                    found[one.subscription] = Gone(one.earliest)
                last = results[-1].position if results else span.after
                if last >= min(span.until, one.head) or one.earliest > span.after + 1:
                    del left[one.subscription]
                    progress = True
                elif results:
                    left[one.subscription] = Span(last, span.until)
                    progress = True
            for stream in left.keys() - known:
                del left[stream]
                found[stream] = Away("the data cluster does not know the stream")
            if not progress:
                break
        return found

    async def _read_all(self, asked: Sequence[Mapping[str, object]]) -> list[_Slice]:
        answer = await self._ask("POST", f"/brokers/{self._broker}/results", list(asked), timeout=60)
        return _decoded(answer, _Slices).streams

    @asynccontextmanager
    async def page(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        """A page of the cluster, to be read piece by piece.

        Raise Redirected if the cluster names another broker, ExternalPage if it names another server.
        """
        try:
            async with self._http.stream("GET", f"/{path}", headers={**headers, **IDENTITY}) as response:
                if response.status_code == 307 and REDIRECT in response.headers:
                    raise Redirected(_decoded(await response.aread(), RedirectTold))
                if (elsewhere := response.next_request) is not None:
                    raise ExternalPage(str(elsewhere.url))
                yield response
        except UnicodeError as error:  # httpx decodes the host of a redirect
            raise Away("page: url: its host is not a name") from error
        except httpx.HTTPError as error:
            raise Away(f"the data cluster does not answer ({type(error).__name__})") from error

    async def announce(self, announcement: Mapping[str, object]) -> Announced:
        """Say that this broker keeps copies of pages, where it is and what it has."""
        answer = await self._ask("PUT", f"/brokers/{self._broker}/push-cache", announcement)
        return _decoded(answer, Announced)

    async def withdraw(self) -> None:
        """Say that this broker keeps no copies any more."""
        await self._ask("DELETE", f"/brokers/{self._broker}/push-cache")

    async def _ask(self, method: str, path: str, body: object = None, timeout: float = 10) -> bytes:
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"} if content is not None else None
        try:
            response = await self._http.request(method, path, content=content, headers=headers, timeout=timeout)
        except httpx.HTTPError as error:
            self.is_up = False
            raise Away(f"the data cluster does not answer ({type(error).__name__})") from error
        self.is_up = response.status_code < 500
        if response.is_success:
            return response.content
        raise _fault(response)


def _fault(response: httpx.Response) -> NewsstandError:
    try:
        problem = msgspec.json.decode(response.content, type=_Problem)
    except msgspec.DecodeError:
        problem = _Problem()
    match response.status_code:
        case 404:
            return NotFound(problem.error)
        case 409 if problem.reason == "duplicate":
            return Superseded(problem.error)
        case 410:
            return Gone(problem.earliest)
        case 422:
            return BadValues(problem.error)
        case 401 | 403:
            return TokenRefused(f"the data cluster does not accept the broker's token: {problem.error}")
        case 400 | 413:
            return BadInput(f"the data cluster refuses ({response.status_code}): {problem.error}")
        case _:
            return Away(f"the data cluster answers {response.status_code}: {problem.error}")
