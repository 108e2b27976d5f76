"""The directory of subscribers: sessions, accounts, and moves between brokers."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from newsstand.auth.passwords import BadLogin, Passwords
from newsstand.auth.tokens import (
    ACCESS_S,
    SESSION_S,
    BadToken,
    ChannelScope,
    SubscriberTokens,
)
from newsstand.broker.coordinator_client.client import AccountChanged, NameTaken
from newsstand.broker.sessions.accounts import AccountService
from newsstand.broker.sessions.state import Change
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.broker.sessions.subscribers import SubscriberDirectory, SubscriberListener, SubscriberMoved
from newsstand.config.settings import MOST_SESSIONS
from newsstand.errors import BadInput
from newsstand.sqlite.group_commit import GroupCommit
from newsstand.wire.subscribers import (
    AddSubscription,
    EndSession,
    RemoveSubscription,
    SessionChange,
    SessionRecord,
    SubscriberRecord,
    SubscriptionRecord,
)

KEY = "a key of this platform's, 32 bytes or more"
PASSWORD = "correct horse"
NOW = 1_800_000_000


class Setting:
    """A directory over a real store and its accounts, with a clock by hand."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = NOW * 1000
        self.file = folder / "broker.sqlite"
        self.store = SubscriberStore(self.file, replicate=False)
        numbers = itertools.count(1)
        tokens, now_ms = SubscriberTokens(KEY), lambda: self.now_ms
        self.members = SubscriberDirectory(self.store.load(), GroupCommit(self.store.write), tokens, now_ms)
        self.accounts = AccountService(
            self.members, tokens, Passwords(), lambda size: f"random-{next(numbers)}", now_ms
        )


def test_session_from_login_to_logout(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        members, accounts = at.members, at.accounts
        await accounts.register("ann", PASSWORD)
        for name, password in (("ann", "wrong password"), ("bob", PASSWORD)):
            with pytest.raises(BadLogin, match="the name or the password is wrong"):
                await accounts.login(name, password, None)
        pair = await accounts.login("ann", PASSWORD, [ChannelScope("near")])
        assert (pair.subscriber, pair.expires_in) == ("ann", ACCESS_S)
        member = await members.authenticate(pair.access)
        assert (member.name, member.claims.allow) == ("ann", (ChannelScope("near"),))
        at.now_ms += ACCESS_S * 1000
        with pytest.raises(BadToken, match="expired"):
            await members.authenticate(pair.access)
        newer = await accounts.refresh(pair.refresh)
        member = await members.authenticate(newer.access)
        assert member.claims.allow == (ChannelScope("near"),), "a refreshed token has the limits of its session"
        await accounts.end_sessions("ann", [member.claims.session])
        with pytest.raises(BadToken, match="ended"):
            await members.authenticate(newer.access)
        with pytest.raises(BadToken, match="ended"):
            await accounts.refresh(newer.refresh)
        at.store.close()

    asyncio.run(run())


def test_reused_refresh_token_ends_its_session(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        members, accounts = at.members, at.accounts
        await accounts.register("ann", PASSWORD)
        first = await accounts.login("ann", PASSWORD, None)
        other = await accounts.login("ann", PASSWORD, None)
        second = await accounts.refresh(first.refresh)
        with pytest.raises(BadToken, match="used before"):
            await accounts.refresh(first.refresh)
        with pytest.raises(BadToken, match="ended"):
            await members.authenticate(second.access)
        await members.authenticate(other.access)

    asyncio.run(run())


def test_concurrent_refreshes_succeed_once(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        members, accounts = at.members, at.accounts
        await accounts.register("ann", PASSWORD)
        pair = await accounts.login("ann", PASSWORD, None)
        received = await asyncio.gather(
            *(accounts.refresh(pair.refresh) for _ in range(3)), return_exceptions=True
        )
        assert sum(isinstance(one, BadToken) for one in received) >= 2
        with pytest.raises(BadToken, match="ended"):
            await members.authenticate(pair.access)

    asyncio.run(run())


def test_concurrent_registrations_of_a_name_succeed_once(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        words = [f"{PASSWORD} {n}" for n in range(4)]
        received = await asyncio.gather(
            *(at.accounts.register("ann", word) for word in words), return_exceptions=True
        )
        assert sorted(type(one).__name__ for one in received) == [
            "NameTaken",
            "NameTaken",
            "NameTaken",
            "NoneType",
        ]
        assert at.store.load()["ann"].hash == at.members.records["ann"].hash
        await at.accounts.login("ann", words[received.index(None)], None)
        with pytest.raises(NameTaken):
            await at.accounts.register("ann", PASSWORD)

    asyncio.run(run())


def test_login_fails_with_retry_when_the_subscriber_moves(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        await at.accounts.register("ann", PASSWORD)
        login = asyncio.create_task(at.accounts.login("ann", PASSWORD, None))
        await asyncio.sleep(0)
        await at.members.forget(["ann"])
        with pytest.raises(SubscriberMoved):
            await login
        at.store.close()
        again = SubscriberStore(at.file, replicate=False)
        assert again.load() == {}
        again.close()

    asyncio.run(run())


def test_sessions_of_a_subscriber_are_limited(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        members, accounts = at.members, at.accounts
        await accounts.register("ann", PASSWORD)
        first = await accounts.login("ann", PASSWORD, None)
        later = at.now_ms + SESSION_S * 1000 + 1
        await members.change(*(SessionChange("ann", f"x{n}", 1, later + n) for n in range(MOST_SESSIONS - 1)))
        await accounts.login("ann", PASSWORD, None)
        assert len(members.records["ann"].sessions) == MOST_SESSIONS
        with pytest.raises(BadToken, match="ended"):
            await members.authenticate(first.access)
        at.now_ms = later + MOST_SESSIONS
        await accounts.login("ann", PASSWORD, None)
        assert len(members.records["ann"].sessions) == 1, "those that have expired are let go"

    asyncio.run(run())


def test_listener_called_when_subscribers_move_or_log_out(tmp_path: Path) -> None:
    events: list[tuple[str, ...]] = []

    class Listener(SubscriberListener):
        def on_adopted(self, record: SubscriberRecord) -> None:
            events.append(("adopted", record.name))

        def on_synced(self, record: SubscriberRecord, changes: object) -> None:
            events.append(("synced", record.name))

        def on_released(self, record: SubscriberRecord) -> None:
            events.append(("released", record.name))

        def on_session_ended(self, session: str) -> None:
            events.append(("ended", session))

    async def run() -> None:
        at = Setting(tmp_path)
        members, accounts = at.members, at.accounts
        members.listeners.append(Listener())
        await members.adopt(
            [SubscriberRecord("ann", "h", {"s": SessionRecord(1, 5)}), SubscriberRecord("bob", "h")]
        )
        await members.adopt([SubscriberRecord("ann", "another", {"s": SessionRecord(2, 5)})])
        await accounts.end_sessions("ann", ["s"])
        await members.retain_only(["bob", "cleo"])
        assert list(members.records) == ["bob"]
        adopted = [("adopted", "ann"), ("adopted", "bob"), ("synced", "ann")]
        assert events == [*adopted, ("ended", "s"), ("released", "ann")]

    asyncio.run(run())


class OtherBroker:
    """A coordinator that knows one subscriber, who is at home elsewhere."""

    lease: int | None = 0

    def __init__(self, record: SubscriberRecord) -> None:
        self.record = record
        self.taken: list[str] = []
        self.members: SubscriberDirectory | None = None
        self.changes = self.client = self

    async def settled(self) -> None: ...

    async def is_stale(self, name: str, epoch: int) -> bool | None:
        return False

    async def lookup(self, names: list[str]) -> dict[str, SubscriberRecord]:
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


def test_token_of_an_ended_session_moves_no_subscriber(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        kept = SessionRecord(1, (NOW + 1000) * 1000)
        other_broker = OtherBroker(SubscriberRecord("victim", "", sessions={"kept": kept}))
        at.members.coordinator = other_broker  # type: ignore[assignment]
        other_broker.members = at.members
        tokens = SubscriberTokens(KEY)
        with pytest.raises(BadToken, match="the session has ended"):
            await at.members.authenticate(tokens.access("victim", "ended", None, NOW))
        with pytest.raises(BadToken, match="the session has ended"):
            await at.accounts.refresh(
                tokens.refresh("victim", "ended", kept.generation, kept.expires // 1000, NOW)
            )
        assert other_broker.taken == []
        assert (await at.members.authenticate(tokens.access("victim", "kept", None, NOW))).name == "victim"
        assert other_broker.taken == ["victim"]

    asyncio.run(run())


def test_wrong_password_moves_no_subscriber(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        other_broker = OtherBroker(SubscriberRecord("victim", await Passwords().hash(PASSWORD)))
        at.members.coordinator = other_broker  # type: ignore[assignment]
        other_broker.members = at.members
        with pytest.raises(BadLogin):
            await at.accounts.login("victim", "a wrong password", None)
        assert other_broker.taken == []
        await at.accounts.login("victim", PASSWORD, None)
        assert other_broker.taken == ["victim"]

    asyncio.run(run())


def test_refresh_during_a_logout_does_not_keep_the_session(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        await at.accounts.register("ann", PASSWORD)
        pair = await at.accounts.login("ann", PASSWORD, None)
        sid = next(iter(at.members.records["ann"].sessions))
        ending = asyncio.create_task(at.accounts.end_sessions("ann", [sid]))
        await asyncio.sleep(0)
        with pytest.raises(BadToken, match="ended"):
            await at.accounts.refresh(pair.refresh)
        await ending
        assert at.members.records["ann"].sessions == {}

    asyncio.run(run())


def test_refresh_token_of_a_dead_broker_accepted(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        await at.accounts.register("ann", PASSWORD)
        pair = await at.accounts.login("ann", PASSWORD, None)
        newer = await at.accounts.refresh(pair.refresh)
        sid = next(iter(at.members.records["ann"].sessions))
        older = at.members.records["ann"].sessions[sid]
        at.members.records["ann"].sessions[sid] = SessionRecord(
            1, older.expires
        )  # what the coordinator had heard of
        assert (await at.accounts.refresh(newer.refresh)).access
        assert at.members.records["ann"].sessions[sid].generation == 3

    asyncio.run(run())


def test_store_is_private_and_of_one_broker(tmp_path: Path) -> None:
    at = Setting(tmp_path)
    assert [file.name for file in tmp_path.iterdir() if file.stat().st_mode & 0o077] == []
    with pytest.raises(BadInput, match="used by another process"):
        SubscriberStore(at.file, replicate=False)


def test_token_rejected_when_nested_too_deeply(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(*_: object, **__: object) -> None:
        raise RecursionError

    monkeypatch.setattr("jwt.decode", decode)
    with pytest.raises(BadToken):
        SubscriberTokens(KEY).read("W1tb", NOW)


def test_login_rejected_when_the_password_changes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        await at.accounts.register("ann", PASSWORD)
        verify = Passwords.verify

        async def slow(*given: Any) -> bool:
            is_right = await verify(*given)
            await at.accounts.set_password("ann", "another password")
            return is_right

        with monkeypatch.context() as patch:
            patch.setattr(Passwords, "verify", slow)
            with pytest.raises(BadLogin):
                await at.accounts.login("ann", PASSWORD, None)
        assert at.members.records["ann"].sessions == {}
        await at.accounts.login("ann", "another password", None)
        at.store.close()

    asyncio.run(run())


@pytest.mark.parametrize("disables_first", [True, False])
def test_concurrent_password_change_and_disabling_both_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disables_first: bool
) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        await at.accounts.register("ann", PASSWORD)

        async def hashed(*_: object) -> str:
            return "another hash"

        monkeypatch.setattr(Passwords, "hash", hashed)
        changes = [at.accounts.set_disabled("ann", True), at.accounts.set_password("ann", "another password")]
        await asyncio.gather(*(changes if disables_first else reversed(changes)))
        record = at.members.records["ann"]
        assert (record.hash, record.disabled) == ("another hash", True)
        at.store.close()

    asyncio.run(run())


def test_login_waiting_for_the_coordinator_ends_with_a_new_password(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        await at.accounts.register("ann", PASSWORD)
        waits, goes_on, change = asyncio.Event(), asyncio.Event(), at.members.change

        async def slow(*changes: Change) -> None:
            if any(isinstance(one, SessionChange) for one in changes):
                waits.set()
                await goes_on.wait()
            await change(*changes)

        at.members.change = slow  # type: ignore[method-assign]
        login = asyncio.create_task(at.accounts.login("ann", PASSWORD, None))
        await waits.wait()
        changing = asyncio.create_task(at.accounts.set_password("ann", "another password"))
        await asyncio.wait([changing], timeout=0.5)  # time enough for a change that does not wait for the login
        goes_on.set()
        await asyncio.gather(login, changing, return_exceptions=True)
        assert at.members.records["ann"].sessions == {}
        at.store.close()

    asyncio.run(run())


@pytest.mark.parametrize("is_reset_while", ["verify", "hash"])
def test_password_change_does_not_undo_a_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_reset_while: str
) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        await at.accounts.register("ann", PASSWORD)
        ann = await at.members.authenticate((await at.accounts.login("ann", PASSWORD, None)).access)
        original = getattr(Passwords, is_reset_while)

        async def slow(*given: Any) -> Any:
            result = await original(*given)
            monkeypatch.undo()
            await at.accounts.set_password("ann", "the operator's")
            return result

        monkeypatch.setattr(Passwords, is_reset_while, slow)
        with pytest.raises(AccountChanged, match="try again"):
            await at.accounts.change_password(ann, PASSWORD, "another password")
        await at.accounts.login("ann", "the operator's", None)
        at.store.close()

    asyncio.run(run())


@pytest.mark.parametrize("first", ["goes", "comes"])
def test_subscriber_that_returns_during_its_release_stays(tmp_path: Path, first: str) -> None:
    """Move 4 took ann away, and move 5 brings her back before the broker has written that she left."""

    async def run() -> None:
        at = Setting(tmp_path)
        session = {"s1": SessionRecord(1, (NOW + 9) * 1000, None)}
        await at.members.adopt([SubscriberRecord("ann", "hash", dict(session), epoch=3)])
        goes = at.members.retain_only([], serial=4)
        comes = at.members.adopt([SubscriberRecord("ann", "hash", dict(session), epoch=5)])
        await asyncio.gather(*((goes, comes) if first == "goes" else (comes, goes)))
        for records in (at.members.records, at.store.load()):
            assert records["ann"].epoch == 5
            assert records["ann"].sessions.keys() == {"s1"}
        at.store.close()

    asyncio.run(run())


def test_returned_subscriber_is_not_fenced_by_an_earlier_move(tmp_path: Path) -> None:
    async def run() -> None:
        at = Setting(tmp_path)
        await at.members.adopt([SubscriberRecord("ann", "hash", epoch=5)])
        at.members.fence({"ann": 4})
        await at.members.subscribe("ann", "x", "near", [], 0)
        at.members.fence({"ann": 5})
        with pytest.raises(SubscriberMoved):
            await at.members.subscribe("ann", "y", "near", [], 0)
        at.store.close()

    asyncio.run(run())


def members_with(at: Setting, unsent: list[Change]) -> SubscriberDirectory:
    """Members of whose changes the coordinator has not heard of some."""
    return SubscriberDirectory(
        at.members.records,
        GroupCommit(at.store.write),
        SubscriberTokens(KEY),
        lambda: at.now_ms,
        lambda: unsent,
    )


def test_unsent_changes_are_not_undone_by_the_coordinators_record(tmp_path: Path) -> None:
    """Ann has done this here while the coordinator's record was on its way."""

    async def run() -> None:
        at = Setting(tmp_path)
        unsent: list[Change] = []
        members = members_with(at, unsent)
        kept = SessionRecord(1, (NOW + 9) * 1000)
        dropped = SubscriptionRecord("near", [], 0, 4)
        await members.adopt([SubscriberRecord("ann", "hash", {}, {"old": dropped}, epoch=3)])
        unsent += [
            RemoveSubscription("ann", "old", 5),
            AddSubscription("ann", "new", "near", [], 0, 6),
            SessionChange("ann", "s", kept.generation, kept.expires),
            EndSession("ann", "out"),
        ]
        await members.change(*unsent)
        await members.adopt([SubscriberRecord("ann", "hash", {"out": kept}, {"old": dropped}, epoch=4)])
        for records in (members.records, at.store.load()):
            assert records["ann"].epoch == 4
            assert records["ann"].subscriptions.keys() == {"new"}
            assert records["ann"].sessions == {"s": kept}
        at.store.close()

    asyncio.run(run())


def test_session_of_a_deleted_account_is_invalid_for_its_successor(tmp_path: Path) -> None:
    """The account was deleted and registered again while the coordinator had not heard of the session."""

    async def run() -> None:
        at = Setting(tmp_path)
        begun = SessionChange("ann", "s", 1, (NOW + 9) * 1000)
        members = members_with(at, [begun])
        await members.adopt([SubscriberRecord("ann", "hash", epoch=3, born=3)])
        await members.change(begun)
        await members.adopt([SubscriberRecord("ann", "hash of somebody else", epoch=5, born=5)])
        for records in (members.records, at.store.load()):
            assert (records["ann"].born, records["ann"].sessions) == (5, {})
        at.store.close()

    asyncio.run(run())
