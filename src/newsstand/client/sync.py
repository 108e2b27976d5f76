"""The same client for programs without asyncio: the asynchronous one runs in a thread of its own."""

from __future__ import annotations

import asyncio
import random
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypedDict, TypeVar, Unpack, overload

from newsstand.client.client import Client, Since
from newsstand.client.nouns import Channel, NamedPage, Page, Receipt, Result, Subscription, Tokens
from newsstand.client.pace import Pace
from newsstand.client.publisher import Publisher
from newsstand.client.reading import WhenGone
from newsstand.client.sync_topics import SyncTopics
from newsstand.model import Scalar

T = TypeVar("T")
Inner = TypeVar("Inner", Client, Publisher)


class Options(TypedDict, total=False):
    """The options of `Client`, all but `http`, which belongs to one event loop."""

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


class _Thread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="newsstand-client", daemon=True)
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome of work in the loop; Ctrl-C cancels it, and waits until it has let go of everything."""
        over = threading.Event()
        begun: list[asyncio.Task[T]] = []

        def begin() -> None:
            begun.append(self._loop.create_task(work))
            begun[0].add_done_callback(lambda _: over.set())

        def cancel() -> None:
            begun[0].cancel()

        self._loop.call_soon_threadsafe(begin)
        try:
            over.wait()
        except BaseException:
            self._loop.call_soon_threadsafe(cancel)
            over.wait()
            raise
        return begun[0].result()

    def stop(self) -> None:
        """End the thread, and those that looked up addresses for it."""
        if self._thread.is_alive():
            self.wait_for(self._loop.shutdown_asyncgens())
            self.wait_for(self._loop.shutdown_default_executor())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _made(make: Callable[[], T]) -> T:
    return make()


async def _outcome(work: Awaitable[T]) -> T:
    return await work


class _InThread(Generic[Inner]):
    """A client or a publisher that lives in a thread of its own until it is closed."""

    def __init__(self, make: Callable[[], Inner]) -> None:
        self._thread = _Thread()
        try:
            self._inner: Inner = self._thread.wait_for(_made(make))
        except BaseException:
            self._thread.stop()
            raise

    def __enter__(self) -> Self:
        try:
            self._thread.wait_for(self._inner.__aenter__())
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        try:
            self._thread.wait_for(self._inner.close())
        finally:
            self._thread.stop()


class SyncClient(_InThread[Client]):
    """`Client` without `async` and `await`; see there."""

    def __init__(
        self,
        coordinator: str | None = None,
        name: str | None = None,
        password: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(lambda: Client(coordinator, name, password, **options))

    @property
    def tokens(self) -> Tokens | None:
        return self._inner.tokens

    @property
    def connected(self) -> bool:
        return self._inner.connected

    def logout(self) -> None:
        self._thread.wait_for(self._inner.logout())

    def change_password(self, current: str, password: str) -> None:
        self._thread.wait_for(self._inner.change_password(current, password))

    def delete_account(self) -> None:
        self._thread.wait_for(self._inner.delete_account())

    def channels(self) -> list[Channel]:
        return self._thread.wait_for(self._inner.channels())

    def subscribe(self, channel: str, /, *values: Scalar, since: Since = "now", **named: Scalar) -> Subscription:
        return self._thread.wait_for(self._inner.subscribe(channel, *values, since=since, **named))

    def subscriptions(self) -> list[Subscription]:
        return self._thread.wait_for(self._inner.subscriptions())

    def unsubscribe(self, subscription: Subscription) -> None:
        self._thread.wait_for(self._inner.unsubscribe(subscription))

    def results(
        self, *subscriptions: Subscription, acknowledge: bool = True, gone: WhenGone = "raise"
    ) -> Iterator[Result]:
        results = self._inner.results(*subscriptions, acknowledge=acknowledge, gone=gone)
        try:
            while True:
                try:
                    result = self._thread.wait_for(_outcome(anext(results)))
                except StopAsyncIteration:
                    return
                yield result
        finally:
            self._thread.wait_for(_outcome(results.aclose()))

    def acknowledge(self, result: Result) -> None:
        self._thread.wait_for(self._inner.acknowledge(result))

    def topics(self) -> SyncTopics:
        return SyncTopics(self._thread, self._inner.topics)

    @overload
    def page(self, page: str) -> Page: ...
    @overload
    def page(self, page: str, *, etag: str) -> Page | None: ...
    def page(self, page: str, *, etag: str | None = None) -> Page | None:
        if etag is None:
            return self._thread.wait_for(self._inner.page(page))
        return self._thread.wait_for(self._inner.page(page, etag=etag))

    @overload
    def named_page(self, name: str) -> Page: ...
    @overload
    def named_page(self, name: str, *, etag: str) -> Page | None: ...
    def named_page(self, name: str, *, etag: str | None = None) -> Page | None:
        if etag is None:
            return self._thread.wait_for(self._inner.named_page(name))
        return self._thread.wait_for(self._inner.named_page(name, etag=etag))


class SyncPublisher(_InThread[Publisher]):
    """`Publisher` without `async` and `await`; see there."""

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

    def publish(
        self,
        dataset: str,
        records: Mapping[str, object] | Iterable[Mapping[str, object]],
        *,
        key: str | None = None,
    ) -> Receipt:
        return self._thread.wait_for(self._inner.publish(dataset, records, key=key))

    def put_page(self, name: str, content: bytes, type: str = "application/octet-stream") -> NamedPage:
        return self._thread.wait_for(self._inner.put_page(name, content, type))

    def drop_page(self, name: str) -> None:
        self._thread.wait_for(self._inner.drop_page(name))
