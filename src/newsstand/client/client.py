"""The client of a subscriber, for asyncio."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Self, TypeVar, overload

import aiohttp
import msgspec

from newsstand.client.http import (
    ApiResponse,
    HttpCalls,
    Pace,
    ServerUnavailable,
    TransientError,
    accepted,
    decoded,
)
from newsstand.client.iteration import OnRemoved, ResultBatch, ResultIteration
from newsstand.client.models import (
    Channel,
    ClientError,
    Page,
    ResourceNotFound,
    Result,
    SessionEnded,
    Subscription,
    Tokens,
    UsageError,
)
from newsstand.client.notifications import Cursor, Notifications
from newsstand.client.pages import Pages
from newsstand.client.session import BrokerLocator, Session
from newsstand.client.topics import Topics
from newsstand.model import Scalar

Since = Literal["now", "earliest"] | int


class Client:
    """One subscriber, connected to its broker.

    Results are delivered at least once, in order for each subscription, also when connections are lost. A call is
    retried until its deadline if a broker is busy or unavailable; the coordinator replaces a broker that fails.
    """

    def __init__(
        self,
        coordinator: str | None = None,
        name: str | None = None,
        password: str | None = None,
        *,
        broker: str | None = None,
        tokens: Tokens | None = None,
        register: bool = False,
        allow: Sequence[Mapping[str, object]] | None = None,
        on_tokens: Callable[[Tokens], None] | None = None,
        near: tuple[float, float] | None = None,
        node: str | None = None,
        http: aiohttp.ClientSession | None = None,
        tls: ssl.SSLContext | None = None,
        pace: Pace | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Give a `coordinator`, a `broker` or both; a name and a password, stored `tokens`, or both.

        `register` creates the account if there is none of that name. `allow` restricts this session to channels
        and values; rules for all subscribers are set by the operator. `on_tokens` is called with each new pair of
        tokens. `near` (latitude, longitude) and `node` are the location of the client, to select a broker and
        to find pages. Many clients of one process should share one `http`, made by `new_http()`.
        """
        if coordinator is None and broker is None:
            raise UsageError("Client: give the address of a coordinator or of a broker")
        if tokens is None and (name is None or password is None):
            raise UsageError("Client: give a name and a password, or tokens")
        self._pace = pace or Pace()
        self._calls = HttpCalls(http, tls, self._pace, rng or random.Random())
        self._session = Session(
            self._calls,
            BrokerLocator(self._calls, coordinator, broker, near, node),
            name if name is not None or tokens is None else tokens.subscriber,
            password,
            tokens,
            register=register,
            allow=allow,
            on_tokens=on_tokens,
        )
        self._notifications = Notifications(self._session, self.subscriptions)
        self._done: dict[str, int] = {}
        """The last position of each subscription that ended iterations have processed."""
        self._iterations: set[ResultIteration] = set()
        self._topics: list[Topics] = []
        self._pages = Pages(self._calls, self._request, near, node)
        self._closed = False

    async def __aenter__(self) -> Self:
        try:
            await self._session.connect(self._pace.deadline_s)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Acknowledge processed results, end all iterations and close the connections. The session stays valid."""
        if self._closed:
            return
        for reading in self._iterations:
            reading.closed = True
        try:
            await self._flush(list(self._notifications.cursors.values()))
        finally:
            self._closed = True
            await asyncio.gather(*(one.close() for one in self._topics))
            try:
                await self._notifications.close()
                await self._session.close(self._pace.flush_s)
            finally:
                await self._calls.close()

    @property
    def tokens(self) -> Tokens | None:
        """The tokens of the session, to be stored for a later client; None before the first login."""
        return self._session.tokens

    @property
    def connected(self) -> bool:
        """Whether the client is connected for notifications; it connects while results are iterated over."""
        return self._notifications.ready.is_set()

    async def logout(self) -> None:
        """End the session and revoke its tokens."""
        await self._request("POST", "/logout")

    async def change_password(self, current: str, password: str) -> None:
        """Change the subscriber's password; its other sessions end."""
        body = {"current": current, "password": password}
        await self._request("PUT", f"/subscribers/{await self._name()}/password", body=body)
        self._session.password_changed(password)

    async def delete_account(self) -> None:
        """Delete the subscriber with all its subscriptions."""
        await self._request("DELETE", f"/subscribers/{await self._name()}")

    async def _name(self) -> str:
        await self._session.connect(self._pace.deadline_s)
        assert self._session.tokens is not None
        return self._session.tokens.subscriber

    async def channels(self) -> list[Channel]:
        """List the channels."""
        return [one async for _, page in self._all_pages("/channels", _ChannelsResponse) for one in page.channels]

    async def subscribe(
        self, channel: str, /, *values: Scalar, since: Since = "now", **named: Scalar
    ) -> Subscription:
        """Subscribe to a channel, with values in the order of its parameters or by name.

        `since`: results from now on, from the earliest stored one, or after a position. An existing subscription
        does not change.
        """
        if values and named:
            raise UsageError("give all values by name, or all in the order of the parameters")
        body = {"channel": channel, "values": list(values) if values else named, "since": since}
        return self._subscription(await self._request("POST", "/subscriptions", body=body))

    async def subscriptions(self) -> list[Subscription]:
        """List the subscriptions of the subscriber."""
        return [
            msgspec.structs.replace(one, broker=_broker_of(response))
            async for response, page in self._all_pages("/subscriptions", _SubscriptionsResponse)
            for one in page.subscriptions
        ]

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Delete a subscription with its pending results."""
        with suppress(ResourceNotFound):  # the response to an earlier attempt was lost
            await self._request("DELETE", f"/subscriptions/{subscription.id}")

    async def results(
        self, *subscriptions: Subscription, acknowledge: bool = True, on_removed: OnRemoved = "raise"
    ) -> AsyncGenerator[Result, None]:
        """Iterate over the results of one or several subscriptions as they arrive, without end.

        A result is acknowledged when the next one is requested; with `acknowledge=False`, by `acknowledge()` only.
        If retention has removed results before they were read, `ResultsRemoved` is raised; with
        `on_removed="skip"` the iteration continues with the remaining ones, and the next result has the number
        `missed`. An older iteration over one of the subscriptions ends: its next step raises `UsageError`.
        """
        if self._closed:
            raise UsageError("the client is closed")
        if not subscriptions:
            raise UsageError("results: give at least one subscription")
        keys = {one.id for one in subscriptions}
        for older in list(self._iterations):  # a loop that was left by `break` may still exist
            if any(cursor.subscription.id in keys for cursor in older.cursors):
                older.supersede()
                self._leave(older)
        wake = asyncio.Event()
        cursors = [Cursor(one, max(one.position, self._done.get(one.id, 0)), wake) for one in subscriptions]
        reading = ResultIteration(
            cursors,
            wake,
            self._notifications,
            self._fetch,
            self._subscribe_again,
            self._calls,
            acknowledge,
            on_removed,
        )
        self._iterations.add(reading)
        for cursor in cursors:
            self._notifications.follow(cursor)
        try:
            async for result in reading.results():
                yield result
        finally:
            self._leave(reading)
            if not self._closed:
                await self._flush(cursors)

    async def acknowledge(self, result: Result) -> None:
        """Acknowledge a result and all before it in its subscription; durable when it returns."""
        cursor = self._notifications.cursors.get(result.subscription)
        if cursor is not None:
            cursor.done = max(cursor.done, result.position)
        await self._acknowledge(result.subscription, result.position, self._pace.deadline_s)
        self._done[result.subscription] = max(result.position, self._done.get(result.subscription, 0))

    def topics(self) -> Topics:
        """Return the topics, which use their own connection; use them with `async with`."""
        made = Topics(self._session, self._request)
        self._topics.append(made)
        return made

    @overload
    async def page(self, page: str) -> Page: ...
    @overload
    async def page(self, page: str, *, etag: str) -> Page | None: ...
    async def page(self, page: str, *, etag: str | None = None) -> Page | None:
        """Return a page; None if `etag` is still its entity tag."""
        return await self._pages.get(f"pages/{page}", page, etag)

    @overload
    async def named_page(self, name: str) -> Page: ...
    @overload
    async def named_page(self, name: str, *, etag: str) -> Page | None: ...
    async def named_page(self, name: str, *, etag: str | None = None) -> Page | None:
        """Return the current page of a name; None if `etag` is still its entity tag."""
        return await self._pages.get(f"named/{name}", name, etag)

    async def _all_pages(self, path: str, shape: type[P]) -> AsyncGenerator[tuple[ApiResponse, P], None]:
        after: str | None = None
        while True:
            response = await self._request("GET", path, params=None if after is None else {"after": after})
            page = decoded(response, shape)
            yield response, page
            if (after := page.next) is None:
                return

    async def _request(
        self,
        method: str,
        path: str,
        *,
        follow_redirects: bool = False,
        deadline_s: float | None = -1.0,
        **more: Any,
    ) -> ApiResponse:
        """Return the response of the broker within a time; None for no limit, `Pace.deadline_s` by default."""
        if self._closed:
            raise UsageError("the client is closed")
        rejected = 0

        async def attempt() -> ApiResponse:
            nonlocal rejected
            url, token = await self._session.broker_and_token()
            try:
                response = await self._calls.once(method, url + path, token=token, **more)
            except ServerUnavailable as error:
                self._session.locator.discard(url, is_down=error.is_down)
                raise
            if response.status == 401:
                rejected += 1
                if rejected > 3:
                    raise SessionEnded("brokers reject new tokens, too: check that all have the same secret")
                self._session.token_rejected(token)
                raise TransientError("the broker rejects the token")
            if follow_redirects and response.status == 307 and response.headers.get("newsstand-redirect"):
                return response
            return accepted(response)

        patience_s = self._pace.deadline_s if deadline_s == -1.0 else deadline_s
        return await self._calls.with_retries(attempt, patience_s)

    async def _fetch(self, subscription: str, after: int) -> ResultBatch:
        query = {"after": after, "limit": self._pace.limit}
        path = f"/subscriptions/{subscription}/results"
        response = await self._request("GET", path, params=query, deadline_s=None)
        return msgspec.structs.replace(decoded(response, ResultBatch), read_ms=response.seconds * 1000)

    async def _subscribe_again(self, lost: Subscription, position: int) -> Subscription:
        body = {"channel": lost.channel, "values": lost.values, "since": position}
        return self._subscription(await self._request("POST", "/subscriptions", body=body, deadline_s=None))

    async def _acknowledge(self, subscription: str, position: int, deadline_s: float) -> None:
        path = f"/subscriptions/{subscription}/ack"
        await self._request("POST", path, body={"position": position}, deadline_s=deadline_s)

    async def _flush(self, cursors: Sequence[Cursor]) -> None:
        """Send the last acknowledgements. Results whose acknowledgement fails are delivered again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pace.flush_s):
                await asyncio.gather(*(self._flush_one(one) for one in cursors if one.done > one.acked))

    async def _flush_one(self, cursor: Cursor) -> None:
        done = cursor.done
        with suppress(ClientError):
            await self._acknowledge(cursor.subscription.id, done, self._pace.flush_s)
            cursor.acked = max(cursor.acked, done)

    def _subscription(self, response: ApiResponse) -> Subscription:
        return msgspec.structs.replace(decoded(response, Subscription), broker=_broker_of(response))

    def _leave(self, reading: ResultIteration) -> None:
        self._iterations.discard(reading)
        for cursor in reading.cursors:
            key = cursor.subscription.id
            self._done[key] = max(cursor.done, self._done.get(key, 0))
            self._notifications.unfollow(cursor)


class _ListResponse(msgspec.Struct, kw_only=True):
    next: str | None = None


class _ChannelsResponse(_ListResponse):
    channels: list[Channel]


class _SubscriptionsResponse(_ListResponse):
    subscriptions: list[Subscription]


P = TypeVar("P", bound=_ListResponse)


def _broker_of(response: ApiResponse) -> str:
    """Return the address of the broker that sent a response."""
    return response.url.partition("/subscriptions")[0]
