"""The subscriber store: group commits, changes queued for the coordinator, state after a restart."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from newsstand.auth.tokens import ChannelScope
from newsstand.broker.sessions.state import Adopt, Change, Forget, apply, frontend_id
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.errors import BadInput, NoRoom
from newsstand.sqlite.group_commit import GroupCommit
from newsstand.wire.subscribers import (
    VERSIONS_PER_EPOCH,
    Ack,
    AddSubscription,
    EndSession,
    RemoveSubscription,
    SessionChange,
    SessionRecord,
    SubscriberRecord,
    SubscriptionRecord,
)

ALLOW = [ChannelScope("reports_*", {"kind": ["fire", 7, True, 1.5]})]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SubscriberStore]:
    made = SubscriberStore(tmp_path / "broker.sqlite", replicate=True)
    yield made
    made.close()


NAMES = st.sampled_from(["ann", "bob"])
SIDS = st.sampled_from(["s1", "s2"])
KEYS = st.sampled_from(["k1", "k2"])
SCALARS = (
    st.text(max_size=5)
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.lists(SCALARS, max_size=3)
SESSIONS = st.builds(SessionRecord, st.integers(1, 9), st.integers(0, 2**50), st.sampled_from([None, [], ALLOW]))
VERSIONS = st.integers(0, 2)
HELD = st.builds(SubscriptionRecord, st.just("near"), VALUES, st.integers(0, 99))
RECORDS = st.builds(
    SubscriberRecord,
    NAMES,
    st.sampled_from(["hash 1", "hash 2"]),
    st.dictionaries(SIDS, SESSIONS),
    st.dictionaries(KEYS, HELD),
)
CHANGES = st.one_of(
    st.builds(Adopt, RECORDS),
    st.builds(Forget, NAMES),
    st.builds(SessionChange, NAMES, SIDS, st.integers(1, 9), st.just(5), st.sampled_from([None, ALLOW])),
    st.builds(EndSession, NAMES, SIDS),
    st.builds(AddSubscription, NAMES, KEYS, st.just("near"), VALUES, st.integers(0, 99), VERSIONS),
    st.builds(RemoveSubscription, NAMES, KEYS, VERSIONS),
    st.builds(Ack, NAMES, KEYS, st.integers(0, 99), VERSIONS),
)


@settings(max_examples=examples(60))
@given(batches=st.lists(st.lists(CHANGES, max_size=8), max_size=5))
def test_loaded_records_equal_those_in_memory(
    batches: list[list[Change]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("store") / "broker.sqlite"
    store = SubscriberStore(file, replicate=True)
    memory: dict[str, SubscriberRecord] = {}
    for batch in batches:
        store.write(batch)
        for change in batch:
            apply(memory, change)
    store.close()
    again = SubscriberStore(file, replicate=True)
    assert again.load() == memory
    again.close()


def test_unsent_changes_are_ordered_and_acks_are_coalesced(store: SubscriberStore) -> None:
    store.write([Adopt(SubscriberRecord("ann", "h")), AddSubscription("ann", "k", "near", ["fire"], 0)])
    store.write([Ack("ann", "k", 1), Ack("ann", "k", 2)])
    store.write([SessionChange("ann", "s", 1, 5, ALLOW)])
    store.write([Ack("ann", "k", 3)])
    upto, changes = store.unsent(100)
    assert changes == [
        AddSubscription("ann", "k", "near", ["fire"], 0),
        SessionChange("ann", "s", 1, 5, ALLOW),
        Ack("ann", "k", 3),
    ]
    store.write([Ack("ann", "k", 4)])  # while the others are on their way
    store.mark_sent(upto)
    assert store.unsent(100)[1] == [Ack("ann", "k", 4)]


def test_lower_ack_and_repeated_subscription_change_nothing(store: SubscriberStore) -> None:
    changes: list[Change] = [
        Adopt(SubscriberRecord("ann", "h")),
        AddSubscription("ann", "k", "near", [], 0, 5),
        Ack("ann", "k", 7, 5),
        Ack("ann", "k", 3, 5),
        Ack("ann", "k", 9, 4),
        AddSubscription("ann", "k", "near", [], 0, 5),
    ]
    store.write(changes)
    memory: dict[str, SubscriberRecord] = {}
    for change in changes:
        apply(memory, change)
    assert store.load()["ann"].subscriptions["k"].acked == memory["ann"].subscriptions["k"].acked == 7
    assert Ack("ann", "k", 7, 5) in store.unsent(9)[1]
    assert Ack("ann", "k", 3, 5) not in store.unsent(9)[1]


def test_older_removal_removes_nothing_newer(store: SubscriberStore) -> None:
    changes: list[Change] = [
        Adopt(SubscriberRecord("ann", "h")),
        AddSubscription("ann", "k", "near", [], 0, 5),
        RemoveSubscription("ann", "k", 4),
    ]
    store.write(changes)
    memory: dict[str, SubscriberRecord] = {}
    for change in changes:
        apply(memory, change)
    assert store.load()["ann"].subscriptions.keys() == memory["ann"].subscriptions.keys() == {"k"}


def test_versions_of_a_subscription_increase() -> None:
    record = SubscriberRecord("ann", "h", epoch=3)
    first, second = record.next_version(), record.next_version()
    assert 3 * VERSIONS_PER_EPOCH <= first < second < 4 * VERSIONS_PER_EPOCH
    record.epoch = 4
    assert record.next_version() >= 4 * VERSIONS_PER_EPOCH
    assert (
        SubscriberRecord("ann", "h", clock=5 * VERSIONS_PER_EPOCH, epoch=4).next_version() > 5 * VERSIONS_PER_EPOCH
    )


def test_unsent_changes_are_read_in_batches(store: SubscriberStore) -> None:
    store.write([RemoveSubscription("ann", str(n)) for n in range(5)])
    upto, changes = store.unsent(2)
    assert [change.id for change in changes] == ["0", "1"]  # type: ignore[union-attr]
    store.mark_sent(upto)
    assert [change.id for change in store.unsent(9)[1]] == ["2", "3", "4"]  # type: ignore[union-attr]
    store.mark_sent(store.unsent(9)[0])
    assert store.unsent(9) == (0, [])


def test_standalone_store_queues_no_changes(tmp_path: Path) -> None:
    store = SubscriberStore(tmp_path / "b.sqlite", replicate=False)
    store.write([Adopt(SubscriberRecord("ann", "h")), Ack("ann", "k", 1)])
    assert store.unsent(9) == (0, [])
    store.close()


def test_metadata_survives_a_restart(tmp_path: Path) -> None:
    store = SubscriberStore(tmp_path / "b.sqlite", replicate=False)
    assert store.get_meta("secret") is None
    store.set_meta("secret", "one")
    store.set_meta("secret", "two")
    store.close()
    again = SubscriberStore(tmp_path / "b.sqlite", replicate=False)
    assert again.get_meta("secret") == "two"
    again.close()


def test_full_disk_changes_nothing(tmp_path: Path) -> None:
    store = SubscriberStore(tmp_path / "b.sqlite", replicate=True)
    store.write([Adopt(SubscriberRecord("ann", "h"))])
    store.close()
    store = SubscriberStore(tmp_path / "b.sqlite", replicate=True, pragmas={"max_page_count": 1})
    many: list[Change] = [AddSubscription("ann", f"k{n}", "near", ["x" * 1000], 0) for n in range(100)]
    with pytest.raises(NoRoom):
        store.write(many)
    assert store.load() == {"ann": SubscriberRecord("ann", "h")}
    store.close()
    store = SubscriberStore(tmp_path / "b.sqlite", replicate=True)
    store.write(many)
    assert len(store.load()["ann"].subscriptions) == 100
    store.close()


def test_store_error_is_one_line_when_the_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "b.sqlite").write_bytes(b"not a database, but long enough to look at" * 50)
    with pytest.raises(BadInput, match=r"b\.sqlite: not a database of subscribers"):
        SubscriberStore(tmp_path / "b.sqlite", replicate=False)


@given(names=st.tuples(st.text(max_size=5), st.text(max_size=5)), values=st.tuples(VALUES, VALUES))
def test_ids_are_equal_for_equal_subscriptions_only(
    names: tuple[str, str], values: tuple[list[object], list[object]]
) -> None:
    one, other = (frontend_id(name, "near", given) for name, given in zip(names, values, strict=True))  # type: ignore[arg-type]
    same = names[0] == names[1] and repr(values[0]) == repr(values[1])
    if same:
        assert one == other
    elif names[0] != names[1]:
        assert one != other


# The journal


class SlowStore:
    """Writes when it is let."""

    def __init__(self) -> None:
        self.written: list[list[Change]] = []
        self.let = threading.Semaphore(0)
        self.fault: Exception | None = None

    def write(self, changes: Sequence[Change]) -> None:
        assert self.let.acquire(timeout=10)
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        self.written.append(list(changes))


def ack(position: int) -> Ack:
    return Ack("ann", "k", position)


async def asking(journal: GroupCommit[Change], *positions: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(journal.write(ack(position))) for position in positions]
    await asyncio.sleep(0.02)
    return tasks


def test_writes_during_a_transaction_share_the_next() -> None:
    async def run() -> None:
        store = SlowStore()
        journal = GroupCommit(store.write)  # type: ignore[arg-type]
        first = await asking(journal, 1)
        rest = await asking(journal, 2, 3, 4)
        store.let.release()
        await asyncio.wait_for(first[0], 5)
        assert not any(task.done() for task in rest)
        store.let.release()
        await asyncio.wait_for(asyncio.gather(*rest), 5)
        assert store.written == [[ack(1)], [ack(2), ack(3), ack(4)]]
        await journal.drained()

    asyncio.run(run())


def test_commit_error_reaches_only_the_callers_of_its_batch() -> None:
    async def run() -> None:
        store = SlowStore()
        journal = GroupCommit(store.write)  # type: ignore[arg-type]
        store.fault = NoRoom("the disk is full")
        first = await asking(journal, 1)
        rest = await asking(journal, 2, 3)
        store.let.release(3)
        received = await asyncio.gather(*first, *rest, return_exceptions=True)
        assert [type(one) for one in received] == [NoRoom, type(None), type(None)]
        store.fault = sqlite3.OperationalError("disk I/O error")
        with pytest.raises(sqlite3.OperationalError):
            await journal.write(ack(4))

    asyncio.run(run())


def test_cancelled_write_affects_no_other() -> None:
    async def run() -> None:
        store = SlowStore()
        journal = GroupCommit(store.write)  # type: ignore[arg-type]
        one, other = await asking(journal, 1, 2)
        one.cancel()
        store.let.release(2)
        await asyncio.wait_for(other, 5)
        assert store.written == [[ack(1), ack(2)]]

    asyncio.run(run())
