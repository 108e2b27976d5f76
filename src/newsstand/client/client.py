"""The client of a subscriber, for asyncio."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

import aiohttp
import msgspec

from newsstand.client.calls import Answer, Calls, Lost, NotNow, accepted, decoded
from newsstand.client.cursor import Cursor
from newsstand.client.errors import ClientError, Misused, NotThere, SessionEnded
from newsstand.client.home import Home
from newsstand.client.notifications import Notifications
from newsstand.client.nouns import Channel, Page, Result, Subscription, Tokens
from newsstand.client.pace import Pace
from newsstand.client.pages import Pages
from newsstand.client.reading import Delivery, Reading, WhenGone
from newsstand.client.session import Session
from newsstand.client.topics import Topics
from newsstand.model import Scalar

Since = Literal["now", "earliest"] | int
FLUSH_S = 5.0
"""How long leaving may take to send the last acknowledgements, those of all subscriptions together.

Closing a client gives as long again to a renewal of its tokens that is under way.
"""


class Client:
    """One subscriber, at whichever broker is its own.

    Results come at least once and in order for each subscription, over any loss of connection. A call is repeated
    until its deadline if a broker is busy or away; a coordinator is asked for another broker if one is lost.
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
        """Give a `coordinator`, a `broker` or both; a name and a password, `tokens` that were kept, or both.

        `register` makes the subscriber if there is none of that name. `allow` limits this session to channels and
        values, at the subscriber's own wish: rules for everybody are the operator's. `on_tokens` is called with
        each new pair of tokens. `near` (latitude, longitude) and `node` help the coordinator choose, and say from
        where pages are wanted. Many clients of one process should share one `http`, made by `new_http()`.
        """
        if coordinator is None and broker is None:
            raise Misused("a client needs the address of a coordinator or of a broker")
        if tokens is None and (name is None or password is None):
            raise Misused("a client needs a name and a password, or tokens")
        self._pace = pace or Pace()
        self._rng = rng or random.Random()
        self._calls = Calls(http, tls, self._pace, self._rng)
        self._home = Home(self._calls, coordinator, broker, near, node)
        self._session = Session(
            self._calls,
            self._home,
            name if name is not None or tokens is None else tokens.subscriber,
            password,
            tokens,
            register=register,
            allow=allow,
            kept=on_tokens,
            rng=self._rng,
        )
        self._notifications = Notifications(
            self._calls, self._home, self._session, self._pace, self._rng, tls, self.subscriptions
        )
        self._done: dict[str, int] = {}
        """Up to where each subscription was done with, by iterations that are over."""
        self._readings: set[Reading] = set()
        self._topics: list[Topics] = []
        self._pages = Pages(self._calls, self._ask, near, node)
        self._tls = tls
        self._closed = False

    async def __aenter__(self) -> Self:
        try:
            await self._calls.patiently(self._session.broker_and_token, self._pace.deadline_s)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Acknowledge what was done with, end all iterations and close the connections. The session goes on."""
        if self._closed:
            return
        for reading in self._readings:
            reading.closed = True
        try:
            await self._flush(list(self._notifications.cursors.values()))
        finally:
            self._closed = True
            await asyncio.gather(*(one.close() for one in self._topics))
            try:
                await self._notifications.close()
                await self._session.close(FLUSH_S)
            finally:
                await self._calls.close()

    @property
    def tokens(self) -> Tokens | None:
        """The session's tokens, to be kept for another client; None before the first login."""
        return self._session.tokens

    @property
    def connected(self) -> bool:
        """Whether notifications come in just now; they do while results are iterated over."""
        return self._notifications.connected

    async def logout(self) -> None:
        """End the session: its tokens are not accepted any more."""
        await self._ask("POST", "/logout")

    async def change_password(self, current: str, password: str) -> None:
        """Change the subscriber's password; its other sessions end."""
        body = {"current": current, "password": password}
        await self._ask("PUT", f"/subscribers/{await self._name()}/password", body=body)
        self._session.password_changed(password)

    async def delete_account(self) -> None:
        """Delete the subscriber with all its subscriptions. The client is of no use afterwards."""
        await self._ask("DELETE", f"/subscribers/{await self._name()}")

    async def _name(self) -> str:
        await self._calls.patiently(self._session.broker_and_token, self._pace.deadline_s)
        assert self._session.tokens is not None
        return self._session.tokens.subscriber

    async def channels(self) -> list[Channel]:
        """The channels that can be subscribed to."""
        return [one async for _, page in self._pages_of("/channels", _Channels) for one in page.channels]

    async def subscribe(
        self, channel: str, /, *values: Scalar, since: Since = "now", **named: Scalar
    ) -> Subscription:
        """Subscribe to a channel, with values in the order of its parameters or by name.

        `since`: results from now on, from the earliest that is kept, or after a position. A subscription that is
        there already stays as it is.
        """
        if values and named:
            raise Misused("give all values by name, or all in the order of the parameters")
        body = {"channel": channel, "values": list(values) if values else named, "since": since}
        return self._subscription(await self._ask("POST", "/subscriptions", body=body))

    async def subscriptions(self) -> list[Subscription]:
        """All subscriptions of the subscriber."""
        return [
            msgspec.structs.replace(one, broker=_broker_of(answer))
            async for answer, page in self._pages_of("/subscriptions", _Subscriptions)
            for one in page.subscriptions
        ]

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Drop a subscription, with what is pending."""
        with suppress(NotThere):  # if the answer to an earlier attempt was lost
            await self._ask("DELETE", f"/subscriptions/{subscription.id}")

    async def results(
        self, *subscriptions: Subscription, acknowledge: bool = True, gone: WhenGone = "raise"
    ) -> AsyncGenerator[Result, None]:
        """The results of one or several subscriptions, as they come, for ever.

        A result is acknowledged when the next one is asked for; with `acknowledge=False`, by `acknowledge()` only.
        If retention has removed results before they were read, `Gone` is raised; with `gone="skip"` the iteration
        goes on with what is left, and the next result says how many it `missed`.

        An older iteration over one of the subscriptions is over: `Misused` is raised if it is asked for more.
        """
        self._check(subscriptions)
        self._take_over({one.id for one in subscriptions})
        wake = asyncio.Event()
        cursors = [Cursor(one, max(one.position, self._done.get(one.id, 0)), wake) for one in subscriptions]
        reading = Reading(
            cursors,
            wake,
            self._notifications,
            self._fetch,
            self._subscribe_again,
            self._pace,
            self._rng,
            acknowledge=acknowledge,
            gone=gone,
        )
        self._readings.add(reading)
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
        """Topics to publish to and to subscribe to, over a connection of their own; use it with `async with`."""
        made = Topics(self._calls, self._home, self._session, self._pace, self._rng, self._tls, self._ask)
        self._topics.append(made)
        return made

    @overload
    async def page(self, page: str) -> Page: ...
    @overload
    async def page(self, page: str, *, etag: str) -> Page | None: ...
    async def page(self, page: str, *, etag: str | None = None) -> Page | None:
        """The content of a page; None if it is still the one of `etag`."""
        return await self._pages.get(f"pages/{page}", page, etag)

    @overload
    async def named_page(self, name: str) -> Page: ...
    @overload
    async def named_page(self, name: str, *, etag: str) -> Page | None: ...
    async def named_page(self, name: str, *, etag: str | None = None) -> Page | None:
        """The page that the origin has under a name now; None if it is still the one of `etag`."""
        return await self._pages.get(f"named/{name}", name, etag)

    # Between the parts.

    async def _pages_of(self, path: str, shape: type[P]) -> AsyncGenerator[tuple[Answer, P], None]:
        """All pages of a list."""
        after: str | None = None
        while True:
            answer = await self._ask("GET", path, params=None if after is None else {"after": after})
            page = decoded(answer, shape)
            yield answer, page
            if (after := page.next) is None:
                return

    async def _ask(
        self, method: str, path: str, *, deadline_s: float | None = -1.0, may_be_sent: bool = False, **more: Any
    ) -> Answer:
        if self._closed:
            raise Misused("the client is closed")
        refused = 0

        async def attempt() -> Answer:
            nonlocal refused
            url, token = await self._session.broker_and_token()
            try:
                answer = await self._calls.once(method, url + path, token=token, **more)
            except Lost as error:
                self._home.lost(url, gone=error.gone)
                raise
            if answer.status == 401:
                refused += 1
                if refused > 3:
                    raise SessionEnded("new tokens are not accepted, either: do all brokers have the same secret?")
                self._session.refused(token)
                raise NotNow("the token is not accepted")
            if may_be_sent and answer.status == 307 and answer.headers.get("newsstand-redirect"):
                return answer
            return accepted(answer)

        patience = self._pace.deadline_s if deadline_s == -1.0 else deadline_s
        return await self._calls.patiently(attempt, patience)

    async def _fetch(self, subscription: str, after: int) -> Delivery:
        query = {"after": after, "limit": self._pace.limit}
        path = f"/subscriptions/{subscription}/results"
        return decoded(await self._ask("GET", path, params=query, deadline_s=None), Delivery)

    async def _subscribe_again(self, lost: Subscription, position: int) -> Subscription:
        body = {"channel": lost.channel, "values": lost.values, "since": position}
        return self._subscription(await self._ask("POST", "/subscriptions", body=body, deadline_s=None))

    async def _acknowledge(self, subscription: str, position: int, deadline_s: float) -> None:
        path = f"/subscriptions/{subscription}/ack"
        await self._ask("POST", path, body={"position": position}, deadline_s=deadline_s)

    async def _flush(self, cursors: Sequence[Cursor]) -> None:
        """What cannot be told in time comes again: at least once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await asyncio.gather(*(self._flush_one(one) for one in cursors if one.done > one.acked))

    async def _flush_one(self, cursor: Cursor) -> None:
        done = cursor.done
        with suppress(ClientError):
            await self._acknowledge(cursor.subscription.id, done, FLUSH_S)
            cursor.acked = max(cursor.acked, done)

    def _subscription(self, answer: Answer) -> Subscription:
        return msgspec.structs.replace(decoded(answer, Subscription), broker=_broker_of(answer))

    def _check(self, subscriptions: Sequence[Subscription]) -> None:
        if self._closed:
            raise Misused("the client is closed")
        if not subscriptions:
            raise Misused("there are no subscriptions to iterate over")

    def _take_over(self, keys: set[str]) -> None:
        """Whoever breaks out of a loop and begins another has not given the first one time to end."""
        for reading in list(self._readings):
            if any(cursor.subscription.id in keys for cursor in reading.cursors):
                reading.take_over()
                self._leave(reading)

    def _leave(self, reading: Reading) -> None:
        self._readings.discard(reading)
        for cursor in reading.cursors:
            key = cursor.subscription.id
            self._done[key] = max(cursor.done, self._done.get(key, 0))
            self._notifications.unfollow(cursor)


class _Listed(msgspec.Struct, kw_only=True):
    next: str | None = None


class _Channels(_Listed):
    channels: list[Channel]


class _Subscriptions(_Listed):
    subscriptions: list[Subscription]


P = TypeVar("P", bound=_Listed)


def _broker_of(answer: Answer) -> str:
    """The address under which the broker that answers was asked."""
    return answer.url.partition("/subscriptions")[0]
