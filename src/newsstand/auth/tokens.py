"""Tokens of subscribers: JSON Web Tokens that brokers make and verify, and the scopes that limit them.

A login begins a *session*. Its access token is short-lived; it is verified with the record of the subscriber
alone, so a session that has ended has no valid tokens. Its refresh token is good once: a token that is used again
was stolen, or its response was lost, so the session ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import jwt
import msgspec

from newsstand.errors import NewsstandError, NoKeys
from newsstand.model import Scalar, is_subscriber_name

ACCESS_S = 15 * 60
SESSION_S = 30 * 24 * 3600
LONGEST_CACHED = 2000
"""Characters of a token that is cached once it was read; a longer one, with many scopes, is read each time."""
MOST_CACHED = 100_000
ISSUER = "newsstand"
TIMES = ("verify_exp", "verify_iat")


class BadToken(NewsstandError):
    """A token is not accepted; the message says why."""

    http_status = 401


class ChannelScope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of what a token permits: channels whose name matches a pattern, with values that match patterns."""

    channel: str
    values: dict[str, Scalar | list[Scalar]] = {}


@dataclass(frozen=True)
class Claims:
    """The claims of an access token."""

    subscriber: str
    session: str
    expires_s: int
    allow: tuple[ChannelScope, ...] | None = None


class _Payload(msgspec.Struct):
    """The claims of an access token or a refresh token, as they are encoded."""

    sub: str
    sid: str
    exp: int
    allow: list[ChannelScope] | None = None
    gen: int = 0
    use: str = "access"


class SubscriberTokens:
    """Makes and reads the tokens of a platform; all its brokers have the same key."""

    def __init__(self, key: str | None) -> None:
        """Without a key there are no tokens, until `use`."""
        self._key = key
        self._cached: dict[str, Claims] = {}

    def use(self, key: str) -> None:
        """Make and read tokens under this key from now on."""
        if key != self._key:
            self._key = key
            self._cached.clear()

    def access(
        self, name: str, sid: str, allow: Sequence[ChannelScope] | None, now_s: int, lifetime_s: int = ACCESS_S
    ) -> str:
        """Return an access token."""
        limits = {} if allow is None else {"allow": msgspec.to_builtins(allow)}
        return self._encode({"sub": name, "sid": sid, "iat": now_s, "exp": now_s + lifetime_s, **limits})

    def refresh(self, name: str, sid: str, generation: int, expires_s: int, now_s: int) -> str:
        """Return a refresh token."""
        claims = {"sub": name, "sid": sid, "gen": generation, "iat": now_s, "exp": expires_s}
        return self._encode({**claims, "use": "refresh"})

    def read(self, token: str, now_s: float) -> Claims:
        """Return the claims of an access token; raise BadToken. Reading it again is cheap."""
        claims = self._cached.get(token)
        if claims is None:
            payload = self._decode(token)
            if payload.use != "access":
                raise BadToken("this is a refresh token, good for POST /refresh only")
            allow = None if payload.allow is None else tuple(payload.allow)
            claims = Claims(payload.sub, payload.sid, payload.exp, allow)
            if len(self._cached) >= MOST_CACHED:
                self._cached.clear()
            if len(token) <= LONGEST_CACHED:
                self._cached[token] = claims
        if claims.expires_s <= now_s:
            self._cached.pop(token, None)
            raise BadToken("the token has expired: POST /refresh gives a new one")
        return claims

    def read_refresh(self, token: str, now_s: float) -> tuple[str, str, int]:
        """Return subscriber, session and generation of a refresh token; raise BadToken."""
        payload = self._decode(token)
        if payload.use != "refresh":
            raise BadToken("this is not a refresh token")
        if payload.exp <= now_s:
            raise BadToken("the session has expired: log in")
        return payload.sub, payload.sid, payload.gen

    def identify(self, token: str) -> tuple[str, str] | None:
        """Return subscriber and session of a token, which may have expired; None if it is not the platform's."""
        try:
            claims = decode(token, self._signing, ["sub", "iss"], (*TIMES, "verify_nbf", "verify_aud"))
        except (jwt.PyJWTError, RecursionError):
            return None
        name = claims["sub"]
        return (name, str(claims.get("sid", ""))) if is_subscriber_name(name) else None

    @property
    def _signing(self) -> str:
        if not self._key:
            raise NoKeys
        return self._key

    def _encode(self, claims: Mapping[str, object]) -> str:
        return jwt.encode({**claims, "iss": ISSUER}, self._signing, "HS256")

    def _decode(self, token: str) -> _Payload:
        try:
            return msgspec.convert(decode(token, self._signing), _Payload)
        except (jwt.PyJWTError, msgspec.ValidationError, ValueError, RecursionError):
            raise BadToken("the token is not one of this platform's") from None


def decode(token: str, key: str, require: Sequence[str] = (), unchecked: Sequence[str] = TIMES) -> dict[str, Any]:
    """Return the claims of a token that the platform signed; raise what PyJWT raises, or RecursionError.

    The caller compares times with its own clock.
    """
    options: Any = {"require": list(require), **dict.fromkeys(unchecked, False)}
    claims: dict[str, Any] = jwt.decode(token, key, algorithms=["HS256"], issuer=ISSUER, options=options)
    return claims


def permits(allow: Sequence[ChannelScope] | None, channel: str, values: Mapping[str, Scalar]) -> bool:
    """Return whether a token with these scopes, or without any, permits a subscription.

    >>> fires = [ChannelScope("reports_*", {"kind": ["fire", "flood*"]})]
    >>> permits(fires, "reports_near", {"kind": "flood", "lat": 33.7})
    True
    >>> permits(fires, "reports_near", {"kind": "quake", "lat": 33.7})
    False
    """
    return allow is None or any(_fits(one, channel, values) for one in allow)


def permits_channel(allow: Sequence[ChannelScope] | None, channel: str) -> bool:
    """Return whether a token with these scopes permits some values of a channel."""
    return allow is None or any(fnmatchcase(channel, one.channel) for one in allow)


def _fits(one: ChannelScope, channel: str, values: Mapping[str, Scalar]) -> bool:
    if not fnmatchcase(channel, one.channel):
        return False
    return all(name in values and _matches(wanted, values[name]) for name, wanted in one.values.items())


def _matches(wanted: Scalar | list[Scalar], value: Scalar) -> bool:
    if isinstance(wanted, list):
        return any(_matches(each, value) for each in wanted)
    if isinstance(wanted, str) and isinstance(value, str):
        return fnmatchcase(value, wanted)
    return isinstance(wanted, bool) == isinstance(value, bool) and wanted == value
