"""Connections to a database that several threads share, each for as long as it needs one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from newsstand.errors import BadInput

MOST_IDLE = 8
"""Connections that are kept open while nobody needs them."""


class Closable(Protocol):
    """Any connection."""

    def close(self) -> object: ...


Connection = TypeVar("Connection", bound=Closable)


class Pool(Generic[Connection]):
    """As many connections as are needed at once, made by `connect`; one that is not `alive` is not used again."""

    def __init__(
        self, place: str, connect: Callable[[], Connection], alive: Callable[[Connection], bool] = lambda one: True
    ) -> None:
        self._place = place
        self._connect = connect
        self._alive = alive
        self._idle: list[Connection] = []
        self._closed = False
        self._lock = threading.Lock()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for the length of a `with` block, for nobody else."""
        connection = self._take()
        try:
            yield connection
        finally:
            with self._lock:
                keep = not self._closed and len(self._idle) < MOST_IDLE
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()

    def close(self) -> None:
        """Close those that are idle now, and the others when they are given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> Connection:
        while True:
            with self._lock:
                if self._closed:
                    raise BadInput(f"{self._place}: the store of results is closed")
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect()
            if self._alive(connection):
                return connection
            connection.close()
