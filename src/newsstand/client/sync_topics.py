"""`Topics` without `async` and `await`; see there."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from newsstand.client.nouns import Message, Published
from newsstand.client.past import Past
from newsstand.client.topics import Topics
from newsstand.model import Scalar

T = TypeVar("T")


class Waits(Protocol):
    """Waits for work in an event loop of another thread."""

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T: ...


class SyncPast(Iterator[Message]):
    """`Past` without `async` and `await`; see there."""

    def __init__(self, thread: Waits, inner: Past) -> None:
        self._thread = thread
        self._inner = inner

    def __next__(self) -> Message:
        async def following() -> Message | None:
            return await anext(self._inner, None)

        message = self._thread.wait_for(following())
        if message is None:
            raise StopIteration
        return message

    @property
    def cached(self) -> set[str]:
        return self._inner.cached

    @property
    def whole(self) -> bool:
        return self._inner.whole


class SyncTopics:
    """The topics of a platform, for one subscriber."""

    def __init__(self, thread: Waits, make: Callable[[], Topics]) -> None:
        self._thread = thread

        async def made() -> Topics:
            return make()

        self._inner = thread.wait_for(made())

    def __enter__(self) -> Self:
        self._thread.wait_for(self._inner.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._thread.wait_for(self._inner.close())

    @property
    def interruptions(self) -> int:
        return self._inner.interruptions

    def subscribe(self, wanted: str) -> int:
        return self._thread.wait_for(self._inner.subscribe(wanted))

    def unsubscribe(self, number: int) -> None:
        self._thread.wait_for(self._inner.unsubscribe(number))

    def publish(self, topic: str, attributes: Mapping[str, Scalar] | None = None, body: Any = None) -> Published:
        return self._thread.wait_for(self._inner.publish(topic, attributes, body))

    def past(self, wanted: str) -> SyncPast:
        return SyncPast(self._thread, self._inner.past(wanted))

    def __iter__(self) -> Iterator[Message]:
        messages = aiter(self._inner)

        async def following() -> Message:
            return await anext(messages)

        while True:
            yield self._thread.wait_for(following())
