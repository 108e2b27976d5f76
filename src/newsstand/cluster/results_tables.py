"""The tables of results in SQL, the same in SQLite and PostgreSQL, and what a sibling adds to them.

Statements keep to what both understand: named parameters `:name`, ON CONFLICT, RETURNING, window functions,
UPDATE … FROM. A sibling says how it connects, how rows come in from Spark, and the few words in which the dialects
differ.

Rows of `results` have ids in the order of (execution, stream, position), and an execution knows the range of its
ids: what it reached, whom it moved and what age removes is found by the primary key, without another index.
What retention has removed is told to nobody any more, so a delivery that waited longer leaves it out.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from newsstand.cluster.results import Results
from newsstand.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VERSION = 3
"""The version of the tables below. A store of the version before is brought up to it, others are refused."""

CHUNK = 10_000
"""Rows that are held in memory at once."""

ARRIVED = "stream, publication, page_id, page_size, ordinal, payload"
"""The columns of MATCHED."""

TABLES = """
CREATE TABLE counters (name {text} PRIMARY KEY, value bigint NOT NULL);
CREATE TABLE channels (name {text} PRIMARY KEY, position bigint NOT NULL, at_ms bigint NOT NULL DEFAULT 0,
    aged bigint NOT NULL DEFAULT 0);
CREATE TABLE brokers (name {text} PRIMARY KEY, callback {text} NOT NULL, secret {text} NOT NULL,
    away bigint NOT NULL DEFAULT 0);
CREATE TABLE streams (id {serial}, channel {text} NOT NULL, digest {bytes} NOT NULL,
    vals {text} NOT NULL, head bigint NOT NULL DEFAULT 0, floor bigint NOT NULL DEFAULT 0,
    UNIQUE (channel, digest));
CREATE INDEX streams_of_channel ON streams (channel, id);
CREATE TABLE subscriptions (id {text} PRIMARY KEY, stream bigint NOT NULL, broker {text} NOT NULL,
    frontends bigint NOT NULL){keyed};
CREATE INDEX subscriptions_of_stream ON subscriptions (stream, broker);
CREATE INDEX subscriptions_of_broker ON subscriptions (broker, id);
CREATE TABLE executions (number {serial}, channel {text} NOT NULL REFERENCES channels (name),
    dataset {text} NOT NULL, begins_after bigint NOT NULL, through bigint NOT NULL, at_ms bigint NOT NULL,
    results bigint NOT NULL, streams bigint NOT NULL, first_row bigint NOT NULL, last_row bigint NOT NULL);
CREATE INDEX executions_of_channel ON executions (channel, number);
CREATE INDEX executions_by_publication ON executions (channel, through);
CREATE INDEX executions_by_time ON executions (channel, at_ms, number);
CREATE TABLE results (id {rowid}, stream bigint NOT NULL, position bigint NOT NULL, at_ms bigint NOT NULL,
    publication bigint, page_id {text}, page_size bigint, payload {text} NOT NULL);
CREATE UNIQUE INDEX results_of_stream ON results (stream, position);
CREATE TABLE deliveries (id {serial}, broker {text} NOT NULL REFERENCES brokers (name), execution bigint,
    channel {text}, at_ms bigint NOT NULL, attempts bigint NOT NULL DEFAULT 0, told_ms bigint);
CREATE INDEX deliveries_due ON deliveries (broker, id) WHERE told_ms IS NULL;
CREATE INDEX deliveries_told ON deliveries (told_ms) WHERE told_ms IS NOT NULL;
CREATE INDEX deliveries_of_execution ON deliveries (execution);
INSERT INTO counters VALUES ('results', 0)"""
"""`streams.floor` is the last position that retention removed; `channels.aged` the last execution that age
removed. Values are found by a digest because they may be longer than an index takes. Streams and subscriptions
come by the hundred thousand: who adds them keeps their channels and broker from going, once for all of them, and
no reference is looked up for each."""

SUSPENSIONS = """
CREATE TABLE suspensions (stream bigint PRIMARY KEY, error {text} NOT NULL, definition {text} NOT NULL,
    since_ms bigint NOT NULL, begins_after bigint NOT NULL)"""
"""What version 3 added."""


class Transaction(Protocol):
    """What a sibling's transaction does. Rows are as the database gives them, hence without a static type."""

    def run(self, statement: str, **given: object) -> int:
        """Execute a statement; say how many rows it touched."""

    def rows(self, statement: str, **given: object) -> list[tuple[Any, ...]]:
        """Execute a query or a statement with RETURNING; its rows."""

    def many(self, statement: str, given: Iterable[Mapping[str, object] | tuple[object, ...]]) -> None:
        """Execute one statement for each of these."""

    def ask(self, rows: Iterable[tuple[object, ...]]) -> None:
        """Fill the temporary table `asked (id, channel, vals, digest, number)`, which is empty otherwise."""


@dataclass(frozen=True)
class Staged:
    """Rows that wait to be numbered: how many, where (a relation with the columns ARRIVED), its parameters."""

    rows: int
    relation: str
    given: Mapping[str, object]
    table: pa.Table | None = None
    """The rows themselves, if they are few and at hand."""


def create(transaction: Transaction, words: Mapping[str, str], place: str) -> None:
    """Make the tables where there are none; refuse those of another version, naming the `place`."""
    transaction.run("CREATE TABLE IF NOT EXISTS newsstand_schema (version bigint NOT NULL)")
    found = transaction.rows("SELECT version FROM newsstand_schema")
    if not found:
        for statement in (*TABLES.split(";"), SUSPENSIONS):
            transaction.run(statement.format(**words))
        transaction.run("INSERT INTO newsstand_schema VALUES (:version)", version=VERSION)
    elif found[0][0] == VERSION - 1:
        transaction.run(SUSPENSIONS.format(**words))
        transaction.run("UPDATE newsstand_schema SET version = :version", version=VERSION)
    elif found[0][0] != VERSION:
        raise BadInput(
            f"{place}: its results are of schema version {found[0][0]} and this Newsstand reads {VERSION}; "
            "use the Newsstand that wrote them, or another place"
        )


class SqlStore(Results):
    """What the two siblings say for themselves: connections, locks, bulk loading."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[Transaction]:
        """A short look at the tables."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Transaction]:
        """A transaction that is committed at the end of the block, or leaves nothing."""

    @abstractmethod
    def _lock(self, table: str) -> str:
        """What follows a SELECT that keeps others from changing the rows of `table` that it reads."""

    @abstractmethod
    def _kept(self, table: str) -> str:
        """What follows a SELECT that keeps the rows of `table` that it reads from going; they may still change."""

    @abstractmethod
    def _going(self, table: str) -> str:
        """What follows a SELECT of rows of `table` that are to be dropped: it waits for those who keep them."""

    @abstractmethod
    def _staging(self, matched: DataFrame | None, few: bool) -> AbstractContextManager[Staged]:
        """Bring rows near; transactions of this thread inside the block see them. `few` if few are expected."""

    @abstractmethod
    def _ids(self, transaction: Transaction, count: int) -> int:
        """Set `count` ids of results aside, for good; return the one before the first."""
