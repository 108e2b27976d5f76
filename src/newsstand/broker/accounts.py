"""Who a subscriber is: passwords, sessions and the tokens that prove them.

A login begins a *session*. Its access token is short-lived and is checked without asking anybody but the record of
the subscriber: a session that was ended has none of its tokens accepted. Its refresh token is good once; one that
is used again was stolen, or its answer was lost, so the session ends.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import jwt
import msgspec
from argon2.exceptions import InvalidHashError, VerificationError

from newsstand.broker.records import Allowed, Session
from newsstand.errors import BadInput, Busy, NewsstandError
from newsstand.serving.passwords import check_password, password_hasher

ACCESS_S = 15 * 60
SESSION_S = 30 * 24 * 3600
NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
LARGEST_KEPT = 2000
"""Characters of a token that is remembered once it was read; one with many limits is read again each time."""
_ISSUER = "newsstand"
P = ParamSpec("P")
T = TypeVar("T")


class BadLogin(BadInput):
    """The name or the password is not good."""


class NoKeys(NewsstandError):
    """A broker that the coordinator has never accepted has no keys."""

    def __init__(self) -> None:
        super().__init__("this broker waits for the coordinator, which gives it its keys")


class Disabled(NewsstandError):
    """An operator has disabled the account."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the account '{name}' is disabled: ask the operator of the platform")


class BadToken(Exception):
    """A token that is not accepted; the message says why."""


@dataclass(frozen=True)
class Claims:
    """What an access token says."""

    subscriber: str
    session: str
    expires_s: int
    allow: tuple[Allowed, ...] | None = None


def check_name_and_password(name: str, password: str) -> None:
    """Whether somebody can be registered so."""
    if NAME.fullmatch(name) is None:
        raise BadInput("name: 1 to 64 letters, digits or any of _ . @ -")
    check_password(password)


class Passwords:
    """Argon2id, which is slow on purpose: so many at a time, and a queue that does not grow for ever."""

    def __init__(self, at_once: int = 2, queue: int = 256) -> None:
        self._hasher = password_hasher()
        self._turn = asyncio.Semaphore(at_once)
        self._waiting = 0
        self._queue = queue
        self._nobody = self._hasher.hash("nobody has this password")

    async def hash(self, password: str) -> str:
        """What is kept of a password."""
        return await self._slowly(lambda: None, self._hasher.hash, password)

    async def verify(self, kept: str | None, password: str, require: Callable[[], None] = lambda: None) -> bool:
        """Whether it is the password; for a subscriber that is not known it takes as long, and is False.

        `require` raises if the password is not to be looked at any more when its turn has come.
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


class _Said(msgspec.Struct):
    """The claims of a token of ours, of either kind."""

    sub: str
    sid: str
    exp: int
    allow: list[Allowed] | None = None
    gen: int = 0
    use: str = "access"


class Tokens:
    """Makes and reads the tokens of a platform; all its brokers have the same key."""

    def __init__(self, key: str | None) -> None:
        """Without a key there are no tokens, until `use`."""
        self._key = key
        self._read: dict[str, Claims] = {}

    def use(self, key: str) -> None:
        """Make and read tokens under this key from now on."""
        if key != self._key:
            self._key = key
            self._read.clear()

    def access(self, name: str, sid: str, allow: list[Allowed] | None, now_s: int) -> str:
        """An access token."""
        claims: dict[str, object] = {
            "sub": name,
            "sid": sid,
            "iat": now_s,
            "exp": now_s + ACCESS_S,
            "iss": _ISSUER,
        }
        if allow is not None:
            claims["allow"] = msgspec.to_builtins(allow)
        return jwt.encode(claims, self._signing, "HS256")

    def refresh(self, name: str, sid: str, session: Session, now_s: int) -> str:
        """A refresh token."""
        claims = {
            "sub": name,
            "sid": sid,
            "gen": session.generation,
            "iat": now_s,
            "exp": session.expires // 1000,
            "iss": _ISSUER,
            "use": "refresh",
        }
        return jwt.encode(claims, self._signing, "HS256")

    def read(self, token: str, now_s: float) -> Claims:
        """What an access token says, if it is one of ours and has not expired. Reading it again is cheap."""
        claims = self._read.get(token)
        if claims is None:
            said = self._decode(token)
            if said.use != "access":
                raise BadToken("this is a refresh token, good for POST /refresh only")
            limits = None if said.allow is None else tuple(said.allow)
            claims = Claims(said.sub, said.sid, said.exp, limits)
            if len(self._read) >= 100_000:
                self._read.clear()
            if len(token) <= LARGEST_KEPT:
                self._read[token] = claims
        if claims.expires_s <= now_s:
            self._read.pop(token, None)
            raise BadToken("the token has expired: POST /refresh gives a new one")
        return claims

    def read_refresh(self, token: str, now_s: float) -> tuple[str, str, int]:
        """Subscriber, session and generation of a refresh token."""
        said = self._decode(token)
        if said.use != "refresh":
            raise BadToken("this is not a refresh token")
        if said.exp <= now_s:
            raise BadToken("the session has expired: log in")
        return said.sub, said.sid, said.gen

    @property
    def _signing(self) -> str:
        if not self._key:
            raise NoKeys
        return self._key

    def _decode(self, token: str) -> _Said:
        # Expiry is compared with the caller's `now`, not with a clock of the library's.
        try:
            claims = jwt.decode(
                token, self._signing, ["HS256"], issuer=_ISSUER, options={"verify_exp": False, "verify_iat": False}
            )
            return msgspec.convert(claims, _Said)
        except (jwt.PyJWTError, msgspec.ValidationError, ValueError, RecursionError):  # older PyJWT lets it pass
            raise BadToken("the token is not one of this platform's") from None
