"""What a platform's secret makes: the credential of each broker, the keys that brokers share, tokens of operators.

Coordinator and data cluster know the secret. A broker knows its credential, which is derived from the secret and
its name, and the keys that the coordinator gives it. Nobody derives one from another: all are HMAC-SHA256 under
different labels.

Who verifies a token with a secret key can make such tokens. So operators have one token for coordinator and
cluster, and one for each broker, under a key that follows from the broker's credential.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import jwt
import msgspec

from newsstand.errors import BadOption
from newsstand.signing import key

Scope = Literal["operator", "metrics"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
LONGEST_DAYS = 3650

_CREDENTIAL = re.compile(r"newsstand\.broker\.([a-z][a-z0-9_-]{0,62})\.[0-9a-f]{64}")
_OPERATOR = "newsstand.operator."
"""What tokens of operators begin with, so that people and scanners of repositories recognize one."""
_NAME = re.compile(r"[\w.@-]{1,63}")
_ISSUER = "newsstand"
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
    """The keys that all brokers of a platform need to do their work."""

    subscribers: str
    """Signs the tokens of subscribers, so that one is good at whichever broker its subscriber moves to."""
    overlay: str
    """Opens the links between brokers."""
    copies: str
    """Signs tickets for pages that another broker has."""
    metrics: str
    """Signs the tokens of those who read metrics."""

    @classmethod
    def of(cls, secret: str) -> SharedKeys:
        """Derive the keys from a platform's secret."""
        return cls(*(key(secret, label) for label in cls.__struct_fields__))


@dataclass(frozen=True)
class Operator:
    """Who holds a token of an operator, and what it is good for."""

    name: str
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """Whether the holder may do this; an operator may do everything."""
        return scope in self.scopes or "operator" in self.scopes


class BadOperatorToken(Exception):
    """A token of an operator that is not good any more; the message says why."""


def operator_token(
    secret: str, name: str, scopes: Collection[str], *, now_s: float, days: float, broker: str | None = None
) -> str:
    """Make a token for coordinator and cluster, or for one broker; with the scope `metrics` alone, for all."""
    if _NAME.fullmatch(name) is None:
        raise BadOption(f"--name {name}: 1 to 63 letters, digits or any of _ . @ -")
    for scope in scopes:
        if scope not in SCOPES:
            raise BadOption(f"--scope {scope}: is none of {', '.join(SCOPES)}")
    if not scopes:
        raise BadOption(f"--scope: is missing; one of {', '.join(SCOPES)}")
    if not 0 < days <= LONGEST_DAYS:
        raise BadOption(f"--days {days:g}: must be above 0, and at most {LONGEST_DAYS}")
    if set(scopes) == {"metrics"}:
        signing = key(secret, "metrics")
    else:
        signing = key(secret if broker is None else broker_credential(secret, broker), "operators")
    claims = {
        "iss": _ISSUER,
        "use": _USE,
        "sub": name,
        "scope": sorted(set(scopes)),
        "iat": int(now_s),
        "exp": int(now_s + days * 86_400),
    }
    return _OPERATOR + jwt.encode(claims, signing, "HS256")


class _Claims(msgspec.Struct):
    sub: str
    scope: list[Scope]
    exp: int
    use: Literal["operator"]


class Operators:
    """Reads tokens of operators where they are presented."""

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
        """Return whose token this is, None if it is no operator's; raise BadOperatorToken if it has expired."""
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


def _read(token: str, signing: str) -> _Claims | None:
    try:
        # Expiry is compared with the caller's clock.
        claims = jwt.decode(
            token,
            signing,
            algorithms=["HS256"],
            issuer=_ISSUER,
            options={"require": ["sub", "exp"], "verify_exp": False, "verify_iat": False},
        )
        return msgspec.convert(claims, _Claims)
    except (jwt.PyJWTError, msgspec.ValidationError, ValueError):
        return None
