"""Passwords, tokens and scopes of subscribers."""

from __future__ import annotations

import asyncio
import base64
import json

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsstand.auth.passwords import Passwords, check_name_and_password
from newsstand.auth.tokens import (
    ACCESS_S,
    BadToken,
    ChannelScope,
    SubscriberTokens,
    permits,
    permits_channel,
)
from newsstand.errors import BadInput, Busy

KEY = "a key of this platform's, 32 bytes or more"
PASSWORD = "correct horse"
NOW = 1_800_000_000


# Scopes


@pytest.mark.parametrize(
    ("allow", "values", "fits"),
    [
        (None, {"kind": "fire"}, True),
        ([], {"kind": "fire"}, False),
        ([ChannelScope("near")], {"kind": "fire"}, True),
        ([ChannelScope("n*")], {}, True),
        ([ChannelScope("N*")], {}, False),
        ([ChannelScope("far")], {}, False),
        ([ChannelScope("far"), ChannelScope("near")], {}, True),
        ([ChannelScope("near", {"kind": "fire"})], {"kind": "fire", "lat": 1.0}, True),
        ([ChannelScope("near", {"kind": "f*"})], {"kind": "flood"}, True),
        ([ChannelScope("near", {"kind": "f*"})], {"kind": "quake"}, False),
        ([ChannelScope("near", {"kind": ["fire", "q*"]})], {"kind": "quake"}, True),
        ([ChannelScope("near", {"kind": []})], {"kind": "quake"}, False),
        ([ChannelScope("near", {"lat": 1})], {"lat": 1.0}, True),
        ([ChannelScope("near", {"lat": 1})], {"lat": True}, False),
        ([ChannelScope("near", {"lat": "*"})], {"lat": 5}, False),
        ([ChannelScope("near", {"other": "*"})], {"kind": "fire"}, False),
    ],
)
def test_scope_permits_values_that_match_pattern(
    allow: list[ChannelScope] | None, values: dict[str, str | float | bool], fits: bool
) -> None:
    assert permits(allow, "near", values) is fits


@given(st.text(max_size=30), st.text(max_size=30))
def test_pattern_may_be_any_text(pattern: str, value: str) -> None:
    permits([ChannelScope(pattern, {"kind": pattern})], value, {"kind": value})
    assert permits([ChannelScope("*")], value, {})
    assert permits_channel([ChannelScope("*")], value)
    assert not permits_channel([], value)


# SubscriberTokens


def said(**changed: object) -> dict[str, object]:
    return {"sub": "ann", "sid": "s", "iat": NOW, "exp": NOW + 60, "iss": "newsstand"} | changed


def without(claim: str) -> dict[str, object]:
    claims = said()
    del claims[claim]
    return claims


def test_access_token_has_subscriber_expiry_and_scopes() -> None:
    allow = [ChannelScope("near", {"kind": "f*"})]
    claims = SubscriberTokens(KEY).read(SubscriberTokens(KEY).access("ann", "s", allow, NOW), NOW + ACCESS_S - 1)
    assert (claims.subscriber, claims.session, claims.expires_s) == ("ann", "s", NOW + ACCESS_S)
    assert claims.allow == tuple(allow)


def test_access_token_expires_although_cached() -> None:
    tokens = SubscriberTokens(KEY)
    token = tokens.access("ann", "s", None, NOW)
    tokens.read(token, NOW)
    for _ in range(2):
        with pytest.raises(BadToken, match="expired"):
            tokens.read(token, NOW + ACCESS_S)


def unsigned(header: dict[str, object]) -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in (header, said()))
    return f"{'.'.join(parts)}."


def deep() -> str:
    nested = base64.urlsafe_b64encode(b"[" * 30_000).decode().rstrip("=")
    return f"{nested}.e30.e30"


def tampered() -> str:
    head, _, signature = jwt.encode(said(), KEY, "HS256").split(".")
    body = base64.urlsafe_b64encode(json.dumps(said(sub="bob")).encode()).decode().rstrip("=")
    return f"{head}.{body}.{signature}"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "garbage",
        "a.b.c",
        "\u00e9.\u00e9.\u00e9",
        unsigned({"alg": "none", "typ": "JWT"}),
        unsigned({"alg": "HS256", "typ": "JWT"}),
        deep(),
        tampered(),
        jwt.encode(said(), "another platform's key, 32 bytes or more", "HS256"),
        jwt.encode(said(), KEY * 2, "HS512"),
        jwt.encode(said(iss="somebody"), KEY, "HS256"),
        jwt.encode(without("iss"), KEY, "HS256"),
        jwt.encode(without("exp"), KEY, "HS256"),
        jwt.encode(without("sid"), KEY, "HS256"),
        jwt.encode(said(exp="tomorrow"), KEY, "HS256"),
        jwt.encode(said(sid=5), KEY, "HS256"),
        jwt.encode(said(allow="everything"), KEY, "HS256"),
        jwt.encode(said(use="refresh"), KEY, "HS256"),
    ],
)
def test_access_token_rejected_when_invalid(token: str) -> None:
    with pytest.raises(BadToken):
        SubscriberTokens(KEY).read(token, NOW)


def test_refresh_rejects_access_token() -> None:
    with pytest.raises(BadToken, match="not a refresh token"):
        SubscriberTokens(KEY).read_refresh(SubscriberTokens(KEY).access("ann", "s", None, NOW), NOW)


def test_refresh_token_expires_with_its_session() -> None:
    token = SubscriberTokens(KEY).refresh("ann", "s", 3, NOW, NOW - 5)
    assert SubscriberTokens(KEY).read_refresh(token, NOW - 1) == ("ann", "s", 3)
    with pytest.raises(BadToken, match="expired"):
        SubscriberTokens(KEY).read_refresh(token, NOW)


def test_large_tokens_are_not_cached() -> None:
    tokens = SubscriberTokens(KEY)
    large = tokens.access("ann", "s", [ChannelScope("x" * 20_000)], NOW)
    small = tokens.access("ann", "s", None, NOW)
    assert tokens.read(small, NOW) is tokens.read(small, NOW)
    assert tokens.read(large, NOW) is not tokens.read(large, NOW)


# Passwords and names


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "a" * 65, "ann\n"])
def test_name_rejected_when_malformed(name: str) -> None:
    with pytest.raises(BadInput, match="name"):
        check_name_and_password(name, PASSWORD)


@pytest.mark.parametrize("password", ["", "1234567", "x" * 1025])
def test_password_rejected_when_malformed(password: str) -> None:
    with pytest.raises(BadInput, match="password"):
        check_name_and_password("ann.a@example-1_x", password)


def test_passwords_are_hashed_with_argon2id() -> None:
    async def run() -> None:
        passwords = Passwords()
        kept = await passwords.hash(PASSWORD)
        assert kept.startswith("$argon2id$")
        assert await passwords.verify(kept, PASSWORD)
        assert not await passwords.verify(kept, PASSWORD + "!")
        assert not await passwords.verify(None, "nobody has this password")
        assert not await passwords.verify("no hash at all", PASSWORD)

    asyncio.run(run())


def test_logins_rejected_with_retry_when_too_many_are_waiting() -> None:
    async def run() -> None:
        passwords = Passwords(queue=2)
        received = await asyncio.gather(*(passwords.hash(PASSWORD) for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in received] == [str, str, Busy]
        assert await passwords.hash(PASSWORD)

    asyncio.run(run())
