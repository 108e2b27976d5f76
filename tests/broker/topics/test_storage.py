"""The storage and the outbox in the database of topics."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.broker.lone_topics import unwritable
from support.profiles import examples

from newsstand.broker.topics.database import SqliteStorage, TopicDatabase
from newsstand.broker.topics.publisher import Outbox
from newsstand.errors import BadInput, NoRoom
from newsstand.overlay.broker.storage import MemoryStorage
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.messages import (
    Publication,
)

EVERYTHING = Filter.parse("true")
TOPICS = ("fires", "storms")
FILTERS = [EVERYTHING, Filter.parse("severity > 2"), Filter.parse("topic = 'fires' and severity < 3")]


def publication(number: int, topic: str = "storms", at_ms: int = 0, origin: str = "b1") -> Publication:
    return Publication(origin, number, topic, {"severity": number % 5}, b"{}", at_ms)


def with_database(path: Path, story: Callable[[TopicDatabase], Awaitable[None]]) -> None:
    async def run() -> None:
        database = TopicDatabase(path / "topics.sqlite")
        try:
            await story(database)
            await database.commits.drained()
        finally:
            database.close()

    asyncio.run(run())


# The storage

PUBLICATIONS = st.builds(
    publication,
    st.integers(1, 6),
    st.sampled_from(TOPICS),
    st.integers(0, 3),
    st.sampled_from(["b1", "b2", "ü"]),
)
POSITIONS = st.none() | st.tuples(st.integers(0, 3), st.sampled_from(["b1", "b2", "c"]), st.integers(0, 6))
SEARCHES = st.tuples(st.sampled_from(FILTERS), st.sets(st.sampled_from(TOPICS)), POSITIONS, st.integers(0, 3))
DEEDS = st.one_of(
    st.tuples(st.just("keep"), PUBLICATIONS),
    st.tuples(st.just("forget"), st.sampled_from(TOPICS)),
    st.tuples(st.just("write"), st.none()),
    st.tuples(st.just("find"), SEARCHES),
)


def first_of_each(deeds: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """Keep the first publication of each id."""
    known: dict[object, Publication] = {}
    return [
        (what, known.setdefault(item.id, item)) if isinstance(item, Publication) else (what, item)
        for what, item in deeds
    ]


@given(st.lists(DEEDS, max_size=30).map(first_of_each))
@settings(max_examples=examples(150))
def test_sqlite_storage_equals_memory_storage(deeds: list[tuple[str, object]]) -> None:
    memory = MemoryStorage()

    async def story(database: TopicDatabase) -> None:
        storage = SqliteStorage(database, most=1000)
        for what, item in deeds:
            match what, item:
                case "keep", Publication() as one:
                    assert storage.keep(one) >= memory.keep(one)
                case "forget", str(topic):
                    storage.forget(topic)
                    memory.forget(topic)
                case "find", (wanted, topics, after, limit):
                    found = await asyncio.to_thread(storage.matching, wanted, topics, after, limit)
                    assert list(found) == list(memory.matching(wanted, topics, after, limit))
                case _:
                    await database.commits.flushed()

    async def again(database: TopicDatabase) -> None:
        assert list(SqliteStorage(database, 1000).matching(EVERYTHING, TOPICS)) == list(
            memory.matching(EVERYTHING, TOPICS)
        )

    with tempfile.TemporaryDirectory() as folder:
        with_database(Path(folder), story)
        with_database(Path(folder), again)


def test_sqlite_storage_trims_oldest_of_a_topic(tmp_path: Path) -> None:

    async def story(database: TopicDatabase) -> None:
        storage = SqliteStorage(database, most=4, trim_every=10)
        storage.keep(publication(99, "fires"))
        for number in range(1, 21):
            storage.keep(publication(number, at_ms=number))
        await database.commits.flushed()
        assert [one.number for one in storage.matching(EVERYTHING, ("storms",))] == [17, 18, 19, 20]
        assert len(storage.matching(EVERYTHING, ("fires",))) == 1

    with_database(tmp_path, story)


def test_database_retries_failed_writes(tmp_path: Path) -> None:
    async def story(database: TopicDatabase) -> None:
        database.commits.retry_s = 0.01
        storage = SqliteStorage(database, 1000)
        with unwritable(tmp_path):
            storage.keep(publication(1))
            done: list[str] = []
            database.commits.after_commit(lambda: done.append("done"))
            with pytest.raises(NoRoom, match="topics cannot be written"):
                await database.commits.flushed()
            assert database.commits.fault is not None
            assert done == []
            assert len(storage.matching(EVERYTHING, TOPICS)) == 1
        await database.commits.flushed()
        assert (database.commits.fault, done) == (None, ["done"])
        assert database.read("SELECT count(*) FROM publications") == [(1,)]

    with_database(tmp_path, story)


def test_database_rejects_a_foreign_file(tmp_path: Path) -> None:
    (tmp_path / "topics.sqlite").write_bytes(b"not a database, and long enough to be looked at" * 50)
    with pytest.raises(BadInput, match=r"topics\.sqlite: not a database of topics"):
        TopicDatabase(tmp_path / "topics.sqlite")


def test_outbox_resends_until_receipt_and_after_restart(tmp_path: Path) -> None:
    async def story(database: TopicDatabase) -> None:
        outbox = Outbox(database, 0.0)
        for number in (1, 2, 3):
            outbox.add(publication(number, at_ms=1000), 0.0, late=number == 3)
        assert outbox.due(3.0 - 0.1, 5000) == []
        assert [one.attempt for one in outbox.due(3.0, 1000)] == [1, 1, 1]
        assert outbox.due(3.0 + 1, 1000) == [], "it waits twice as long"
        outbox.confirm(("b1", 1))
        outbox.confirm(("b9", 1))
        outbox.hurry(3.0 + 1)
        due = outbox.due(3.0 + 1, 1500)
        assert [(one.publication.number, one.attempt) for one in due] == [(2, 500), (3, 500)]

    async def again(database: TopicDatabase) -> None:
        outbox = Outbox(database, 70.0)
        due = outbox.due(70.0, 9000)
        assert [(one.publication, one.late, one.attempt) for one in due] == [
            (publication(2, at_ms=1000), False, 8000),
            (publication(3, at_ms=1000), True, 8000),
        ]

    with_database(tmp_path, story)
    with_database(tmp_path, again)
