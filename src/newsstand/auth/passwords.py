"""Passwords: what they may be, and how they are hashed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from newsstand.errors import BadInput, Busy
from newsstand.model import is_subscriber_name

P = ParamSpec("P")
T = TypeVar("T")

SHORTEST, LONGEST = 8, 1024
"""Characters of a password."""


class BadLogin(BadInput):
    """The name or the password is wrong."""

    http_status = 401


def check_password(password: str) -> None:
    """Raise BadInput unless a text can be a password."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise BadInput(f"password: {SHORTEST} to {LONGEST} characters")


def check_name_and_password(name: str, password: str) -> None:
    """Raise BadInput unless a subscriber can register with a name and a password."""
    if not is_subscriber_name(name):
        raise BadInput("name: 1 to 64 letters, digits or any of _ . @ -")
    check_password(password)


def password_hasher() -> PasswordHasher:
    """Return the hasher of brokers and coordinator: Argon2id, which is slow on purpose."""
    return PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


class Passwords:
    """Hashes and verifies passwords, a few at a time, with a bounded queue."""

    def __init__(self, at_once: int = 2, queue: int = 256) -> None:
        self._hasher = password_hasher()
        self._turn = asyncio.Semaphore(at_once)
        self._waiting = 0
        self._queue = queue
        self._nobody = self._hasher.hash("nobody has this password")

    async def hash(self, password: str) -> str:
        """Return the hash of a password."""
        return await self._slowly(lambda: None, self._hasher.hash, password)

    async def verify(self, kept: str | None, password: str, require: Callable[[], None] = lambda: None) -> bool:
        """Return whether a hash is that of the password; without a hash it takes as long and returns False.

        `require` raises if the password is not to be verified any more when its turn comes.
        """

        def verified() -> bool:
            try:
                return self._hasher.verify(self._nobody if kept is None else kept, password)
            except (VerificationError, InvalidHashError):
                return False

        return await self._slowly(require, verified) and kept is not None

    async def _slowly(
        self, require: Callable[[], None], function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if self._waiting >= self._queue:
            raise Busy("too many logins at once; try again in a moment")
        self._waiting += 1
        try:
            async with self._turn:
                require()
                return await asyncio.to_thread(function, *args, **kwargs)
        finally:
            self._waiting -= 1
