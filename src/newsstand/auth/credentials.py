"""Credentials that follow from a platform's secret: of brokers, of operators, and the keys that brokers share.

Coordinator and data cluster know the secret. A broker knows its credential, which is derived from the secret and
its name, and the keys that the coordinator gives it. Nobody derives one from another: all are HMAC-SHA256 under
different labels.

Who verifies a token with a secret key can make such tokens. So operators have one token for coordinator and
cluster, and one for each broker, under a key that follows from the broker's credential.
"""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import jwt
import msgspec

from newsstand.auth.signing import key
from newsstand.auth.tokens import ISSUER, BadToken, decode
from newsstand.errors import BadOption

Scope = Literal["operator", "metrics"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
LONGEST_DAYS = 3650

_CREDENTIAL = re.compile(r"newsstand\.broker\.([a-z][a-z0-9_-]{0,62})\.[0-9a-f]{64}")
_OPERATOR = "newsstand.operator."
"""The prefix of operators' tokens, by which people and scanners of repositories recognize one."""
_NAME = re.compile(r"[\w.@-]{1,63}")
_USE = "operator"


def broker_credential(secret: str, name: str) -> str:
    """Return the credential that makes a process the broker of a name."""
    return f"newsstand.broker.{name}.{key(secret, f'broker {name}')}"


def named_in(credential: str) -> str | None:
    """Return the name of the broker that a credential claims to be of; None if it is no credential of a broker."""
    found = _CREDENTIAL.fullmatch(credential)
    return None if found is None else found[1]


def broker_of(secret: str, presented: str) -> str | None:
    """Return the broker whose credential was presented; None if it is not one under this secret."""
    name = named_in(presented)
    if name is None or not hmac.compare_digest(broker_credential(secret, name), presented):
        return None
    return name


def webhook_key(credential: str) -> str:
    """Return the key under which the cluster signs what it sends to a broker."""
    return key(credential, "webhook")


class SharedKeys(msgspec.Struct, frozen=True):
    """The keys that all brokers of a platform share."""

    subscribers: str
    """Signs tokens of subscribers, which are valid at every broker."""
    overlay: str
    """Opens the links between brokers."""
    copies: str
    """Signs URLs of pages at other brokers."""
    metrics: str
    """Signs tokens with the scope `metrics` alone."""

    @classmethod
    def of(cls, secret: str) -> SharedKeys:
        """Derive the keys from a platform's secret."""
        return cls(*(key(secret, label) for label in cls.__struct_fields__))


@dataclass(frozen=True)
class Operator:
    """The holder of an operator's token, and its scopes."""

    name: str
    scopes: frozenset[Scope]

    def __str__(self) -> str:
        return f"operator {self.name}"

    def may(self, scope: Scope) -> bool:
        """Return whether the holder may do this; an operator may do everything."""
        return scope in self.scopes or "operator" in self.scopes


class BadOperatorToken(BadToken):
    """An operator's token has expired; the message says so."""


def operator_token(
    secret: str, name: str, scopes: Collection[str], *, now_s: float, days: float, broker: str | None = None
) -> str:
    """Make a token for coordinator and cluster, or for one broker; with the scope `metrics` alone, for all."""
    if _NAME.fullmatch(name) is None:
        raise BadOption("must be 1 to 63 letters, digits or any of _ . @ -", name=name)
    for scope in scopes:
        if scope not in SCOPES:
            raise BadOption(f"must be one of {', '.join(SCOPES)}", scope=scope)
    if not scopes:
        raise BadOption(f"missing; give one of {', '.join(SCOPES)}", scope=None)
    if not 0 < days <= LONGEST_DAYS:
        raise BadOption(f"must be above 0, and at most {LONGEST_DAYS}", days=days)
    if set(scopes) == {"metrics"}:
        signing = key(secret, "metrics")
    else:
        signing = key(secret if broker is None else broker_credential(secret, broker), "operators")
    claims = {
        "iss": ISSUER,
        "use": _USE,
        "sub": name,
        "scope": sorted(set(scopes)),
        "iat": int(now_s),
        "exp": int(now_s + days * 86_400),
    }
    return _OPERATOR + jwt.encode(claims, signing, "HS256")


class _OperatorClaims(msgspec.Struct):
    sub: str
    scope: list[Scope]
    exp: int
    use: Literal["operator"]


class Operators:
    """A reader of operators' tokens."""

    def __init__(self, operators: Sequence[str], metrics: str | None) -> None:
        """`operators` are keys that sign tokens of every scope, `metrics` is one that signs that scope alone."""
        self._keys = tuple(operators)
        self.metrics = metrics

    @classmethod
    def of_platform(cls, secret: str) -> Operators:
        """Read tokens for coordinator and cluster."""
        return cls([key(secret, "operators")], key(secret, "metrics"))

    @classmethod
    def of_broker(cls, credential: str, metrics: str | None) -> Operators:
        """Read tokens for one broker."""
        return cls([key(credential, "operators")], metrics)

    def holder(self, token: str, now_s: float) -> Operator | None:
        """Return the holder of a token, None if it is no operator's; raise BadOperatorToken if it has expired."""
        if not token.startswith(_OPERATOR):
            return None
        token = token.removeprefix(_OPERATOR)
        keys: list[tuple[str, tuple[Scope, ...]]] = [(one, SCOPES) for one in self._keys]
        if self.metrics is not None:
            keys.append((self.metrics, ("metrics",)))
        for signing, scopes in keys:
            claims = _read(token, signing)
            if claims is None or not set(claims.scope) <= set(scopes):
                continue
            if claims.exp <= now_s:
                raise BadOperatorToken(f"the token of operator '{claims.sub}' has expired; make another one")
            return Operator(claims.sub, frozenset(claims.scope))
        return None


Role = Literal["broker", "operator", "metrics"]


@dataclass(frozen=True)
class Caller:
    """A broker or an operator that calls."""

    role: Role
    name: str

    def __str__(self) -> str:
        return f"{'broker' if self.role == 'broker' else 'operator'} {self.name}"


class PlatformCredentials:
    """A reader of all that follows from a platform's secret: credentials of brokers, tokens of operators."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives Unix seconds, for tokens of operators that expire."""
        self._secret = secret
        self._clock = clock
        self._operators = Operators.of_platform(secret)

    def caller(self, token: str) -> Caller | None:
        """Return the broker or operator whose token it is; raise BadOperatorToken if it has expired."""
        if (broker := broker_of(self._secret, token)) is not None:
            return Caller("broker", broker)
        operator = self._operators.holder(token, self._clock())
        if operator is None:
            return None
        return Caller("operator" if operator.may("operator") else "metrics", operator.name)


def _read(token: str, signing: str) -> _OperatorClaims | None:
    try:
        return msgspec.convert(decode(token, signing, ["sub", "exp"]), _OperatorClaims)
    except (jwt.PyJWTError, msgspec.ValidationError, ValueError, RecursionError):
        return None
