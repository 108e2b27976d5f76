"""The client for programs without asyncio: the asynchronous client runs in its own thread."""

from __future__ import annotations

import random
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypedDict, TypeVar, Unpack, overload

from newsstand.client.client import Client
from newsstand.client.http import Pace
from newsstand.client.iteration import OnRemoved
from newsstand.client.models import Message, Page, Result, Subscription, Tokens
from newsstand.client.publisher import Publisher
from newsstand.client.topics import MessageHistory, Topics
from newsstand.concurrency.background_loop import BackgroundLoop

T = TypeVar("T")
P = ParamSpec("P")
Inner = TypeVar("Inner", Client, Publisher, Topics)


class ClientOptions(TypedDict, total=False):
    """The options of `Client` without `http`, which belongs to one event loop."""

    broker: str | None
    tokens: Tokens | None
    register: bool
    allow: Sequence[Mapping[str, object]] | None
    on_tokens: Callable[[Tokens], None] | None
    near: tuple[float, float] | None
    node: str | None
    tls: ssl.SSLContext | None
    pace: Pace | None
    rng: random.Random | None


async def _made(make: Callable[[], T]) -> T:
    return make()


async def _outcome(work: Awaitable[T]) -> T:
    return await work


class _BlockingFacade(Generic[Inner]):
    """An asynchronous object that runs in an event loop in another thread until it is closed."""

    def __init__(self, make: Callable[[], Inner], loop: BackgroundLoop | None = None) -> None:
        """Make the object in this loop, or in its own one, which ends with the object."""
        self._loop = loop or BackgroundLoop("newsstand-client")
        self._owns_loop = loop is None
        try:
            self._inner: Inner = self._loop.run(_made(make))
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Self:
        try:
            self._loop.run(self._inner.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        try:
            self._loop.run(self._inner.close())
        finally:
            self._end()

    def _end(self) -> None:
        if self._owns_loop:
            self._loop.stop()


def _blocking(
    method: Callable[Concatenate[Inner, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_BlockingFacade[Inner], P], T]:
    """Return the method of a facade that runs a coroutine method of the asynchronous object."""

    @wraps(method)
    def run(facade: _BlockingFacade[Inner], /, *values: P.args, **named: P.kwargs) -> T:
        return facade._loop.run(method(facade._inner, *values, **named))

    return run


class SyncClient(_BlockingFacade[Client]):
    """`Client` without `async` and `await`."""

    def __init__(
        self,
        coordinator: str | None = None,
        name: str | None = None,
        password: str | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(lambda: Client(coordinator, name, password, **options))

    @property
    def tokens(self) -> Tokens | None:
        return self._inner.tokens

    @property
    def connected(self) -> bool:
        return self._inner.connected

    logout = _blocking(Client.logout)
    change_password = _blocking(Client.change_password)
    delete_account = _blocking(Client.delete_account)
    channels = _blocking(Client.channels)
    subscribe = _blocking(Client.subscribe)
    subscriptions = _blocking(Client.subscriptions)
    unsubscribe = _blocking(Client.unsubscribe)
    acknowledge = _blocking(Client.acknowledge)

    def results(
        self, *subscriptions: Subscription, acknowledge: bool = True, on_removed: OnRemoved = "raise"
    ) -> Iterator[Result]:
        results = self._inner.results(*subscriptions, acknowledge=acknowledge, on_removed=on_removed)
        try:
            while True:
                try:
                    result = self._loop.run(_outcome(anext(results)))
                except StopAsyncIteration:
                    return
                yield result
        finally:
            self._loop.run(_outcome(results.aclose()))

    def topics(self) -> SyncTopics:
        return SyncTopics(self._inner.topics, self._loop)

    @overload
    def page(self, page: str) -> Page: ...
    @overload
    def page(self, page: str, *, etag: str) -> Page | None: ...
    def page(self, page: str, *, etag: str | None = None) -> Page | None:
        if etag is None:
            return self._loop.run(self._inner.page(page))
        return self._loop.run(self._inner.page(page, etag=etag))

    @overload
    def named_page(self, name: str) -> Page: ...
    @overload
    def named_page(self, name: str, *, etag: str) -> Page | None: ...
    def named_page(self, name: str, *, etag: str | None = None) -> Page | None:
        if etag is None:
            return self._loop.run(self._inner.named_page(name))
        return self._loop.run(self._inner.named_page(name, etag=etag))


class SyncPublisher(_BlockingFacade[Publisher]):
    """`Publisher` without `async` and `await`."""

    def __init__(
        self,
        cluster: str,
        token: str,
        *,
        tls: ssl.SSLContext | None = None,
        pace: Pace | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(lambda: Publisher(cluster, token, tls=tls, pace=pace, rng=rng))

    publish = _blocking(Publisher.publish)
    put_page = _blocking(Publisher.put_page)
    drop_page = _blocking(Publisher.drop_page)


class SyncMessageHistory(Iterator[Message]):
    """`MessageHistory` without `async` and `await`."""

    def __init__(self, loop: BackgroundLoop, inner: MessageHistory) -> None:
        self._loop = loop
        self._inner = inner

    def __next__(self) -> Message:
        async def following() -> Message | None:
            return await anext(self._inner, None)

        message = self._loop.run(following())
        if message is None:
            raise StopIteration
        return message

    @property
    def from_cache(self) -> set[str]:
        return self._inner.from_cache

    @property
    def complete(self) -> bool:
        return self._inner.complete


class SyncTopics(_BlockingFacade[Topics]):
    """`Topics` without `async` and `await`."""

    @property
    def interruptions(self) -> int:
        return self._inner.interruptions

    subscribe = _blocking(Topics.subscribe)
    unsubscribe = _blocking(Topics.unsubscribe)
    publish = _blocking(Topics.publish)

    def history(self, filter: str) -> SyncMessageHistory:
        return SyncMessageHistory(self._loop, self._inner.history(filter))

    def __iter__(self) -> Iterator[Message]:
        messages = aiter(self._inner)
        while True:
            yield self._loop.run(_outcome(anext(messages)))
