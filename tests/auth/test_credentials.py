"""Credentials and tokens from a platform's secret: each is valid only for its purpose."""

from __future__ import annotations

import jwt
import pytest

from newsstand.auth.credentials import (
    BadOperatorToken,
    Operator,
    Operators,
    SharedKeys,
    broker_credential,
    broker_of,
    named_in,
    operator_token,
    webhook_key,
)
from newsstand.auth.signing import key
from newsstand.errors import BadOption

SECRET = "a secret of at least thirty-two characters"
OTHER = "another secret of more than thirty-two letters"
NOW = 1_000_000.0


def token(*scopes: str, broker: str | None = None, secret: str = SECRET, days: float = 1) -> str:
    return operator_token(secret, "ann", scopes or ("operator",), now_s=NOW, days=days, broker=broker)


def test_credential_is_valid_only_for_its_broker_and_secret() -> None:
    north = broker_credential(SECRET, "north")
    assert north == broker_credential(SECRET, "north")
    assert (named_in(north), broker_of(SECRET, north)) == ("north", "north")
    renamed = north.replace("north", "south")
    for wrong in (renamed, north[:-1], north + "0", broker_credential(OTHER, "north"), "", "ä", SECRET):
        assert broker_of(SECRET, wrong) is None


def test_keys_are_distinct_and_do_not_contain_secret() -> None:
    shared = SharedKeys.of(SECRET)
    north, south = (broker_credential(SECRET, name) for name in ("north", "south"))
    made = [
        *(getattr(shared, label) for label in shared.__struct_fields__),
        *(north, south, webhook_key(north), webhook_key(south)),
        *(key(one, "operators") for one in (SECRET, north, south)),
    ]
    assert len(set(made)) == len(made)
    assert not any(SECRET in one for one in made)


def test_operator_token_is_valid_only_at_its_platform_or_broker() -> None:
    metrics = SharedKeys.of(SECRET).metrics
    platform = Operators.of_platform(SECRET)
    north, south = (Operators.of_broker(broker_credential(SECRET, name), metrics) for name in ("north", "south"))
    ann = Operator("ann", frozenset(["operator"]))
    assert [one.holder(token(), NOW) for one in (platform, north, south)] == [ann, None, None]
    assert [one.holder(token(broker="north"), NOW) for one in (platform, north, south)] == [None, ann, None]
    scraper = Operator("ann", frozenset(["metrics"]))
    assert [one.holder(token("metrics"), NOW) for one in (platform, north, south)] == [scraper] * 3
    assert not scraper.may("operator")
    assert ann.may("metrics")


def test_metrics_token_makes_no_operator() -> None:
    """A broker knows the key of metrics, and so does a broker that somebody has taken over."""
    metrics = SharedKeys.of(SECRET).metrics
    claims = {"iss": "newsstand", "use": "operator", "sub": "eve", "scope": ["operator"], "iat": 0, "exp": NOW * 2}
    forged = "newsstand.operator." + jwt.encode(claims, metrics, "HS256")
    assert Operators.of_platform(SECRET).holder(forged, NOW) is None
    for signing in (SharedKeys.of(SECRET).subscribers, key(broker_credential(SECRET, "north"), "operators")):
        forged = "newsstand.operator." + jwt.encode(claims, signing, "HS256")
        assert Operators.of_platform(SECRET).holder(forged, NOW) is None


def test_token_expires() -> None:
    platform = Operators.of_platform(SECRET)
    assert platform.holder(token(days=1), NOW + 86_399) is not None
    with pytest.raises(BadOperatorToken, match="the token of operator 'ann' has expired"):
        platform.holder(token(days=1), NOW + 86_400)
    assert Operators.of_platform(OTHER).holder(token(), NOW) is None, "another secret ends all tokens"


@pytest.mark.parametrize("forged", ["", "newsstand.operator.", "newsstand.operator.a.b.c", "x", "ä"])
def test_malformed_token_has_no_holder(forged: str) -> None:
    assert Operators.of_platform(SECRET).holder(forged, NOW) is None


@pytest.mark.parametrize(
    ("name", "scopes", "days", "complaint"),
    [
        ("", ["operator"], 1, "name "),
        ("an n", ["operator"], 1, "name an n"),
        ("ann", ["root"], 1, "scope root: must be one of operator, metrics"),
        ("ann", [], 1, "scope: missing; give one of"),
        ("ann", ["metrics"], 0, "days 0"),
        ("ann", ["metrics"], 10_000, "days 10000"),
    ],
)
def test_invalid_token_is_not_created(name: str, scopes: list[str], days: float, complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint):
        operator_token(SECRET, name, scopes, now_s=NOW, days=days)
