"""What a broker must not lose: written together, told to the coordinator once, there after a restart."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from newsstand.broker.journal import Journal
from newsstand.broker.records import (
    Ack,
    Adopt,
    Allowed,
    Change,
    EndSession,
    Forget,
    Held,
    Record,
    Session,
    SessionChange,
    Subscribe,
    Unsubscribe,
    apply,
    frontend_id,
)
from newsstand.broker.store_sqlite import SqliteStore
from newsstand.errors import BadOption, NoRoom

ALLOW = [Allowed("reports_*", {"kind": ["fire", 7, True, 1.5]})]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "broker.sqlite", tell=True)
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
SESSIONS = st.builds(Session, st.integers(1, 9), st.integers(0, 2**50), st.sampled_from([None, [], ALLOW]))
HELD = st.builds(Held, st.just("near"), VALUES, st.integers(0, 99))
RECORDS = st.builds(
    Record,
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
    st.builds(Subscribe, NAMES, KEYS, st.just("near"), VALUES, st.integers(0, 99)),
    st.builds(Unsubscribe, NAMES, KEYS),
    st.builds(Ack, NAMES, KEYS, st.integers(0, 99)),
)


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.lists(CHANGES, max_size=8), max_size=5))
def test_what_is_loaded_is_what_was_in_memory(
    batches: list[list[Change]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("store") / "broker.sqlite"
    store = SqliteStore(file, tell=True)
    memory: dict[str, Record] = {}
    for batch in batches:
        store.write(batch)
        for change in batch:
            apply(memory, change)
    store.close()
    again = SqliteStore(file, tell=True)
    assert again.load() == memory
    again.close()


def test_changes_wait_for_the_coordinator_in_order_and_of_acks_only_the_last(store: SqliteStore) -> None:
    store.write([Adopt(Record("ann", "h")), Subscribe("ann", "k", "near", ["fire"], 0)])
    store.write([Ack("ann", "k", 1), Ack("ann", "k", 2)])
    store.write([SessionChange("ann", "s", 1, 5, ALLOW)])
    store.write([Ack("ann", "k", 3)])
    upto, changes = store.unsent(100)
    assert changes == [
        Subscribe("ann", "k", "near", ["fire"], 0),
        SessionChange("ann", "s", 1, 5, ALLOW),
        Ack("ann", "k", 3),
    ]
    store.write([Ack("ann", "k", 4)])  # while the others are on their way
    store.sent(upto)
    assert store.unsent(100)[1] == [Ack("ann", "k", 4)]


def test_unsent_changes_come_in_portions(store: SqliteStore) -> None:
    store.write([Unsubscribe("ann", str(n)) for n in range(5)])
    upto, changes = store.unsent(2)
    assert [change.id for change in changes] == ["0", "1"]  # type: ignore[union-attr]
    store.sent(upto)
    assert [change.id for change in store.unsent(9)[1]] == ["2", "3", "4"]  # type: ignore[union-attr]
    store.sent(store.unsent(9)[0])
    assert store.unsent(9) == (0, [])


def test_a_broker_alone_keeps_nothing_for_a_coordinator(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "b.sqlite", tell=False)
    store.write([Adopt(Record("ann", "h")), Ack("ann", "k", 1)])
    assert store.unsent(9) == (0, [])
    store.close()


def test_words_are_remembered(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "b.sqlite", tell=False)
    assert store.recall("secret") is None
    store.remember("secret", "one")
    store.remember("secret", "two")
    store.close()
    again = SqliteStore(tmp_path / "b.sqlite", tell=False)
    assert again.recall("secret") == "two"
    again.close()


def test_a_full_disk_changes_nothing(store: SqliteStore) -> None:
    store.write([Adopt(Record("ann", "h"))])
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    many: list[Change] = [Subscribe("ann", f"k{n}", "near", ["x" * 1000], 0) for n in range(100)]
    with pytest.raises(NoRoom):
        store.write(many)
    assert store.load() == {"ann": Record("ann", "h")}
    store._connection.execute("PRAGMA max_page_count = 1000000")
    store.write(many)
    assert len(store.load()["ann"].subscriptions) == 100


def test_a_file_that_is_no_store_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "b.sqlite").write_bytes(b"not a database, but long enough to look at" * 50)
    with pytest.raises(BadOption, match="cannot be opened"):
        SqliteStore(tmp_path / "b.sqlite", tell=False)


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


async def asking(journal: Journal, *positions: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(journal.write(ack(position))) for position in positions]
    await asyncio.sleep(0.02)
    return tasks


def test_all_who_ask_while_one_transaction_runs_share_the_next() -> None:
    async def run() -> None:
        store = SlowStore()
        journal = Journal(store)  # type: ignore[arg-type]
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


def test_a_fault_is_told_to_all_who_shared_it_and_to_nobody_else() -> None:
    async def run() -> None:
        store = SlowStore()
        journal = Journal(store)  # type: ignore[arg-type]
        store.fault = NoRoom("the disk is full")
        first = await asking(journal, 1)
        rest = await asking(journal, 2, 3)
        store.let.release(3)
        told = await asyncio.gather(*first, *rest, return_exceptions=True)
        assert [type(one) for one in told] == [NoRoom, type(None), type(None)]
        store.fault = sqlite3.OperationalError("disk I/O error")
        with pytest.raises(sqlite3.OperationalError):
            await journal.write(ack(4))

    asyncio.run(run())


def test_one_who_does_not_wait_for_its_answer_harms_nobody() -> None:
    async def run() -> None:
        store = SlowStore()
        journal = Journal(store)  # type: ignore[arg-type]
        one, other = await asking(journal, 1, 2)
        one.cancel()
        store.let.release(2)
        await asyncio.wait_for(other, 5)
        assert store.written == [[ack(1), ack(2)]]

    asyncio.run(run())
