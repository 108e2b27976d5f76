"""Who a subscriber is: passwords, tokens, sessions, limits."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsstand.broker.accounts import (
    ACCESS_S,
    SESSION_S,
    BadLogin,
    BadToken,
    Passwords,
    Tokens,
    check_name_and_password,
)
from newsstand.broker.home import AccountChanged, Taken
from newsstand.broker.journal import Journal
from newsstand.broker.members import Elsewhere, Members
from newsstand.broker.permits import permits, permits_channel
from newsstand.broker.records import Allowed, Change, Record, Session, SessionChange
from newsstand.broker.store_sqlite import SqliteStore
from newsstand.errors import BadInput, BadOption, Busy
from newsstand.serving.limits import MOST_SESSIONS

KEY = "a key of this platform's, 32 bytes or more"
PASSWORD = "correct horse"
NOW = 1_800_000_000


# Limits


@pytest.mark.parametrize(
    ("allow", "values", "fits"),
    [
        (None, {"kind": "fire"}, True),
        ([], {"kind": "fire"}, False),
        ([Allowed("near")], {"kind": "fire"}, True),
        ([Allowed("n*")], {}, True),
        ([Allowed("N*")], {}, False),
        ([Allowed("far")], {}, False),
        ([Allowed("far"), Allowed("near")], {}, True),
        ([Allowed("near", {"kind": "fire"})], {"kind": "fire", "lat": 1.0}, True),
        ([Allowed("near", {"kind": "f*"})], {"kind": "flood"}, True),
        ([Allowed("near", {"kind": "f*"})], {"kind": "quake"}, False),
        ([Allowed("near", {"kind": ["fire", "q*"]})], {"kind": "quake"}, True),
        ([Allowed("near", {"kind": []})], {"kind": "quake"}, False),
        ([Allowed("near", {"lat": 1})], {"lat": 1.0}, True),
        ([Allowed("near", {"lat": 1})], {"lat": True}, False),
        ([Allowed("near", {"lat": "*"})], {"lat": 5}, False),
        ([Allowed("near", {"other": "*"})], {"kind": "fire"}, False),
    ],
)
def test_a_token_is_good_for_what_fits_one_of_its_patterns(
    allow: list[Allowed] | None, values: dict[str, str | float | bool], fits: bool
) -> None:
    assert permits(allow, "near", values) is fits


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_text_can_be_a_pattern(pattern: str, value: str) -> None:
    permits([Allowed(pattern, {"kind": pattern})], value, {"kind": value})
    assert permits([Allowed("*")], value, {})
    assert permits_channel([Allowed("*")], value)
    assert not permits_channel([], value)


# Tokens


def said(**changed: object) -> dict[str, object]:
    return {"sub": "ann", "sid": "s", "iat": NOW, "exp": NOW + 60, "iss": "newsstand"} | changed


def without(claim: str) -> dict[str, object]:
    claims = said()
    del claims[claim]
    return claims


def test_an_access_token_says_who_until_when_and_what_for() -> None:
    allow = [Allowed("near", {"kind": "f*"})]
    claims = Tokens(KEY).read(Tokens(KEY).access("ann", "s", allow, NOW), NOW + ACCESS_S - 1)
    assert (claims.subscriber, claims.session, claims.expires_s) == ("ann", "s", NOW + ACCESS_S)
    assert claims.allow == tuple(allow)


def test_it_expires_also_if_it_was_read_before() -> None:
    tokens = Tokens(KEY)
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
def test_a_token_that_is_not_an_access_token_of_ours_is_refused(token: str) -> None:
    with pytest.raises(BadToken):
        Tokens(KEY).read(token, NOW)


def test_an_access_token_does_not_refresh() -> None:
    with pytest.raises(BadToken, match="not a refresh token"):
        Tokens(KEY).read_refresh(Tokens(KEY).access("ann", "s", None, NOW), NOW)


def test_a_refresh_token_ends_with_its_session() -> None:
    token = Tokens(KEY).refresh("ann", "s", Session(3, NOW * 1000), NOW - 5)
    assert Tokens(KEY).read_refresh(token, NOW - 1) == ("ann", "s", 3)
    with pytest.raises(BadToken, match="expired"):
        Tokens(KEY).read_refresh(token, NOW)


def test_large_tokens_are_not_kept() -> None:
    tokens = Tokens(KEY)
    large = tokens.access("ann", "s", [Allowed("x" * 20_000)], NOW)
    tokens.read(large, NOW)
    tokens.read(tokens.access("ann", "s", None, NOW), NOW)
    assert all(len(token) < 10_000 for token in tokens._read)


# Passwords and names


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "a" * 65, "ann\n"])
def test_a_name_that_cannot_be(name: str) -> None:
    with pytest.raises(BadInput, match="name"):
        check_name_and_password(name, PASSWORD)


@pytest.mark.parametrize("password", ["", "1234567", "x" * 1025])
def test_a_password_that_cannot_be(password: str) -> None:
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


def test_too_many_at_once_are_told_to_come_again() -> None:
    async def run() -> None:
        passwords = Passwords(queue=2)
        told = await asyncio.gather(*(passwords.hash(PASSWORD) for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in told] == [str, str, Busy]
        assert await passwords.hash(PASSWORD)

    asyncio.run(run())


# Members


class Setting:
    """Members over a real store, with a clock by hand."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = NOW * 1000
        self.file = folder / "broker.sqlite"
        self.store = SqliteStore(self.file, tell=False)
        numbers = itertools.count(1)
        self.members = Members(
            self.store.load(),
            Journal(self.store),
            Tokens(KEY),
            Passwords(),
            lambda size: f"random-{next(numbers)}",
            lambda: self.now_ms,
        )


def test_a_session_from_login_to_logout(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        members = at.members
        await members.register("ann", PASSWORD)
        for name, password in (("ann", "wrong password"), ("bob", PASSWORD)):
            with pytest.raises(BadLogin, match="the name or the password is wrong"):
                await members.login(name, password, None)
        pair = await members.login("ann", PASSWORD, [Allowed("near")])
        assert (pair.subscriber, pair.expires_in) == ("ann", ACCESS_S)
        member = await members.admit(pair.access)
        assert (member.name, member.claims.allow) == ("ann", (Allowed("near"),))
        at.now_ms += ACCESS_S * 1000
        with pytest.raises(BadToken, match="expired"):
            await members.admit(pair.access)
        newer = await members.refresh(pair.refresh)
        member = await members.admit(newer.access)
        assert member.claims.allow == (Allowed("near"),), "a refreshed token has the limits of its session"
        await members.end("ann", [member.claims.session])
        with pytest.raises(BadToken, match="ended"):
            await members.admit(newer.access)
        with pytest.raises(BadToken, match="ended"):
            await members.refresh(newer.refresh)
        at.store.close()

    asyncio.run(run())


def test_a_refresh_token_that_is_used_again_ends_its_session(tmp_path: Path) -> None:
    async def run() -> None:
        members = Setting(tmp_path).members
        await members.register("ann", PASSWORD)
        first = await members.login("ann", PASSWORD, None)
        other = await members.login("ann", PASSWORD, None)
        second = await members.refresh(first.refresh)
        with pytest.raises(BadToken, match="used before"):
            await members.refresh(first.refresh)
        with pytest.raises(BadToken, match="ended"):
            await members.admit(second.access)
        await members.admit(other.access)

    asyncio.run(run())


def test_of_two_who_use_a_refresh_token_at_once_only_one_gets_new_ones(tmp_path: Path) -> None:
    async def run() -> None:
        members = Setting(tmp_path).members
        await members.register("ann", PASSWORD)
        pair = await members.login("ann", PASSWORD, None)
        told = await asyncio.gather(*(members.refresh(pair.refresh) for _ in range(3)), return_exceptions=True)
        assert sum(isinstance(one, BadToken) for one in told) >= 2
        with pytest.raises(BadToken, match="ended"):
            await members.admit(pair.access)

    asyncio.run(run())


def test_of_two_who_register_a_name_at_once_one_has_it(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        words = [f"{PASSWORD} {n}" for n in range(4)]
        told = await asyncio.gather(*(at.members.register("ann", word) for word in words), return_exceptions=True)
        assert sorted(type(one).__name__ for one in told) == ["NoneType", "Taken", "Taken", "Taken"]
        assert at.store.load()["ann"].hash == at.members.records["ann"].hash
        await at.members.login("ann", words[told.index(None)], None)
        with pytest.raises(Taken):
            await at.members.register("ann", PASSWORD)

    asyncio.run(run())


def test_a_subscriber_who_is_moved_away_while_it_logs_in_is_not_an_accident(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        await at.members.register("ann", PASSWORD)
        login = asyncio.create_task(at.members.login("ann", PASSWORD, None))
        await asyncio.sleep(0)
        await at.members.forget(["ann"])
        with pytest.raises(Elsewhere):
            await login
        at.store.close()
        again = SqliteStore(at.file, tell=False)
        assert again.load() == {}
        again.close()

    asyncio.run(run())


def test_a_subscriber_has_so_many_sessions_and_no_more(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        members = at.members
        await members.register("ann", PASSWORD)
        first = await members.login("ann", PASSWORD, None)
        later = at.now_ms + SESSION_S * 1000 + 1
        await members.change(*(SessionChange("ann", f"x{n}", 1, later + n) for n in range(MOST_SESSIONS - 1)))
        await members.login("ann", PASSWORD, None)
        assert len(members.records["ann"].sessions) == MOST_SESSIONS
        with pytest.raises(BadToken, match="ended"):
            await members.admit(first.access)
        at.now_ms = later + MOST_SESSIONS
        await members.login("ann", PASSWORD, None)
        assert len(members.records["ann"].sessions) == 1, "those that have expired are let go"

    asyncio.run(run())


def test_who_comes_and_goes_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, ...]] = []

    class Witness:
        def came(self, record: Record) -> None:
            told.append(("came", record.name))

        def caught_up(self, record: Record, changes: object) -> None:
            told.append(("caught up", record.name))

        def went(self, record: Record) -> None:
            told.append(("went", record.name))

        def ended(self, name: str, sid: str) -> None:
            told.append(("ended", name, sid))

    async def run() -> None:
        members = Setting(tmp_path).members
        members.comings = Witness()
        await members.adopt([Record("ann", "h", {"s": Session(1, 5)}), Record("bob", "h")])
        await members.adopt([Record("ann", "another", {"s": Session(2, 5)})])
        await members.end("ann", ["s"])
        await members.only(["bob", "cleo"])
        assert list(members.records) == ["bob"]
        came = [("came", "ann"), ("came", "bob"), ("caught up", "ann")]
        assert told == [*came, ("ended", "ann", "s"), ("went", "ann")]

    asyncio.run(run())


class OtherHome:
    """A coordinator that knows one subscriber, who is at home elsewhere."""

    lease = 0

    def __init__(self, record: Record) -> None:
        self.record = record
        self.taken: list[str] = []
        self.members: Members | None = None
        self.changes = self

    async def settled(self) -> None: ...

    async def is_stale(self, name: str, epoch: int) -> bool | None:
        return False

    async def lookup(self, names: list[str]) -> dict[str, Record]:
        return {self.record.name: self.record} if self.record.name in names else {}

    async def take(self, name: str, session: str | None = None) -> bool:
        if session is not None and session not in self.record.sessions:
            return False
        self.taken.append(name)
        if name != self.record.name:
            return False
        assert self.members is not None
        await self.members.adopt([self.record])
        return True

    async def replicate(self) -> bool:
        return True


def test_a_wrong_password_moves_nobody(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        home = OtherHome(Record("victim", await Passwords().hash(PASSWORD)))
        at.members.home = home  # type: ignore[assignment]
        home.members = at.members
        with pytest.raises(BadLogin):
            await at.members.login("victim", "a wrong password", None)
        assert home.taken == []
        await at.members.login("victim", PASSWORD, None)
        assert home.taken == ["victim"]

    asyncio.run(run())


def test_a_refresh_beside_a_logout_does_not_keep_the_session(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        await at.members.register("ann", PASSWORD)
        pair = await at.members.login("ann", PASSWORD, None)
        sid = next(iter(at.members.records["ann"].sessions))
        ending = asyncio.create_task(at.members.end("ann", [sid]))
        await asyncio.sleep(0)
        with pytest.raises(BadToken, match="ended"):
            await at.members.refresh(pair.refresh)
        await ending
        assert at.members.records["ann"].sessions == {}

    asyncio.run(run())


def test_a_refresh_token_that_a_dead_broker_gave_out_is_good(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        await at.members.register("ann", PASSWORD)
        pair = await at.members.login("ann", PASSWORD, None)
        newer = await at.members.refresh(pair.refresh)
        sid = next(iter(at.members.records["ann"].sessions))
        older = at.members.records["ann"].sessions[sid]
        at.members.records["ann"].sessions[sid] = Session(1, older.expires)  # what the coordinator had heard of
        assert (await at.members.refresh(newer.refresh)).access
        assert at.members.records["ann"].sessions[sid].generation == 3

    asyncio.run(run())


def test_a_store_is_its_owners_and_one_brokers(tmp_path: Path) -> None:
    at = Setting(tmp_path)
    assert [file.name for file in tmp_path.iterdir() if file.stat().st_mode & 0o077] == []
    with pytest.raises(BadOption, match="cannot be opened"):
        SqliteStore(at.file, tell=False)


def test_a_token_that_is_too_deep_for_the_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(*_: object, **__: object) -> None:
        raise RecursionError

    monkeypatch.setattr("jwt.decode", decode)
    with pytest.raises(BadToken):
        Tokens(KEY).read("W1tb", NOW)


def test_a_login_with_a_password_that_changes_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        await at.members.register("ann", PASSWORD)
        verify = Passwords.verify

        async def slow(*given: Any) -> bool:
            is_right = await verify(*given)
            await at.members.set_password("ann", "another password")
            return is_right

        with monkeypatch.context() as patch:
            patch.setattr(Passwords, "verify", slow)
            with pytest.raises(BadLogin):
                await at.members.login("ann", PASSWORD, None)
        assert at.members.records["ann"].sessions == {}
        await at.members.login("ann", "another password", None)
        at.store.close()

    asyncio.run(run())


@pytest.mark.parametrize("disables_first", [True, False])
def test_a_password_and_a_disabled_account_do_not_undo_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disables_first: bool
) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        await at.members.register("ann", PASSWORD)

        async def hashed(*_: object) -> str:
            return "another hash"

        monkeypatch.setattr(Passwords, "hash", hashed)
        changes = [at.members.set_disabled("ann", True), at.members.set_password("ann", "another password")]
        await asyncio.gather(*(changes if disables_first else reversed(changes)))
        record = at.members.records["ann"]
        assert (record.hash, record.disabled) == ("another hash", True)
        at.store.close()

    asyncio.run(run())


def test_a_login_that_waits_for_the_coordinator_does_not_outlive_a_new_password(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        await at.members.register("ann", PASSWORD)
        waits, goes_on, change = asyncio.Event(), asyncio.Event(), at.members.change

        async def slow(*changes: Change) -> None:
            if any(isinstance(one, SessionChange) for one in changes):
                waits.set()
                await goes_on.wait()
            await change(*changes)

        at.members.change = slow  # type: ignore[method-assign]
        login = asyncio.create_task(at.members.login("ann", PASSWORD, None))
        await waits.wait()
        changing = asyncio.create_task(at.members.set_password("ann", "another password"))
        await asyncio.wait([changing], timeout=0.5)  # time enough for a change that does not wait for the login
        goes_on.set()
        await asyncio.gather(login, changing, return_exceptions=True)
        assert at.members.records["ann"].sessions == {}
        at.store.close()

    asyncio.run(run())


@pytest.mark.parametrize("is_reset_while", ["verify", "hash"])
def test_a_change_of_ones_password_does_not_undo_a_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_reset_while: str
) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        await at.members.register("ann", PASSWORD)
        ann = await at.members.admit((await at.members.login("ann", PASSWORD, None)).access)
        original = getattr(Passwords, is_reset_while)

        async def slow(*given: Any) -> Any:
            result = await original(*given)
            monkeypatch.undo()
            await at.members.set_password("ann", "the operator's")
            return result

        monkeypatch.setattr(Passwords, is_reset_while, slow)
        with pytest.raises(AccountChanged, match="try again"):
            await at.members.change_password(ann, PASSWORD, "another password")
        await at.members.login("ann", "the operator's", None)
        at.store.close()

    asyncio.run(run())
