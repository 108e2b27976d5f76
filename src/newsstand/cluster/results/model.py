"""The tables of results, the database that has them, and the arguments and results of its stores.

Statements keep to what SQLite and PostgreSQL share: named parameters `:name`, ON CONFLICT, RETURNING, window
functions, UPDATE … FROM. A `ResultDatabase` manages connections and staging of rows.

Rows of `results` have ids in the order of (execution, stream, position), and an execution has the range of its
ids: its streams, the brokers to notify and the rows to remove by age are found by the primary key, without another
index. A notification leaves out results that retention has removed meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Protocol, runtime_checkable

import msgspec
import pyarrow as pa

from newsstand.errors import NewsstandError
from newsstand.model import Values
from newsstand.sqlite.database import Pool
from newsstand.wire.cluster import AttachedPage, StreamResult, StreamSuspension

MATCH_SCHEMA = pa.schema(
    [
        ("stream", pa.int64()),
        ("publication", pa.int64()),
        ("page_id", pa.string()),
        ("page_size", pa.int64()),
        ("ordinal", pa.int64()),
        ("payload", pa.string()),
    ]
)
"""The columns of an execution's matches, one row per result. Within a stream, results are numbered by
(publication, ordinal, payload); unknown publications (null) come last."""

BatchTask = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Work on one partition of the matches."""


@runtime_checkable
class DistributedMatches(Protocol):
    """Matches in partitions on several machines; iterating streams them in bounded memory."""

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def collect(self) -> pa.Table | None:
        """Return all rows at once, or None if they are too many for this process."""

    def map_partitions(self, task: BatchTask, schema: str) -> list[dict[str, object]]:
        """Run `task` on every partition, on its machine; return the rows, with columns `schema`, that it yields.

        A repeated attempt of a partition runs the task again; only the rows of one attempt are returned.
        """


Matches = Iterable[pa.RecordBatch] | DistributedMatches
"""Record batches in MATCH_SCHEMA; a store asks DistributedMatches to load in parallel where it can."""


@dataclass(frozen=True)
class Execution:
    """One execution of a channel over the publications after < seq <= through of its new dataset."""

    channel: str
    dataset: str
    after: int
    through: int
    at_ms: int


@dataclass(frozen=True)
class ExecutionOutcome:
    """The effect of storing an execution."""

    execution: int
    """The number of the execution, the same for every attempt."""
    results: int
    streams: int
    repeated: bool = False
    """Whether an earlier attempt has stored it already."""


@dataclass(frozen=True)
class ExecutionRecord:
    """A stored execution."""

    number: int
    dataset: str
    after: int
    through: int
    at_ms: int
    results: int


@dataclass(frozen=True)
class StreamAdvance:
    """A subscription with new results: the first and the newest position that an outbox entry announces."""

    subscription: str
    first: int
    position: int


@dataclass(frozen=True)
class AnnouncedResult:
    """A result that an outbox entry announces, with the subscription and its number of frontends."""

    subscription: str
    frontends: int
    position: int
    page: AttachedPage | None
    result: StreamResult | None
    """None if its payload is too large to be carried."""


@dataclass(frozen=True)
class OutboxEntry:
    """One notification in a broker's outbox.

    `execution` is None for the summary after a broker returns, and, with a `channel`, for a change of suspensions.
    """

    id: int
    broker: str
    execution: int | None
    channel: str | None
    at_ms: int
    attempts: int
    answered_ms: int | None = None
    """When the broker answered; None before that."""


class SuspendedStreamInfo(msgspec.Struct, frozen=True):
    """A stream that executions leave out, because an expression of the query fails on its values."""

    stream: int = msgspec.field(name="number")
    values: Values
    error: str
    since_ms: int
    after: Annotated[int, msgspec.Meta(description="the last publication that it was executed on")]
    subscriptions: int


@dataclass(frozen=True)
class StreamExtent:
    """The positions of a stream's earliest remaining result and of its newest; (1, 0) without results."""

    stream: int
    earliest: int
    head: int
    suspended: StreamSuspension | None = None


class TooManyResults(NewsstandError):
    """An execution has more results than the settings allow."""


def require_at_most(most: int | None, results: int) -> None:
    """Raise TooManyResults if an execution has more results than that."""
    if most is not None and results > most:
        raise TooManyResults(
            f"the execution has more than {most:,} results; make the query more selective, or raise "
            "execution_results of [cluster]"
        )


def unknown_streams(count: int, channel: str) -> ValueError:
    """Return the error for results of streams that a channel does not have."""
    return ValueError(f"{count} results belong to streams that channel '{channel}' does not have")


def load_few(matches: Matches, few: int, expect_few: bool) -> tuple[pa.Table | None, Iterator[pa.RecordBatch]]:
    """Return all matches as a table if they are few, or else an iterator over them."""
    if isinstance(matches, DistributedMatches):
        return matches.collect() if expect_few else None, iter(matches)
    loaded: list[pa.RecordBatch] = []
    batches, rows = iter(matches), 0
    for batch in batches:
        loaded.append(batch)
        rows += batch.num_rows
        if rows > few:
            return None, chain(loaded, batches)
    return pa.Table.from_batches(loaded, MATCH_SCHEMA), iter(())


CHUNK = 10_000
"""Rows that are held in memory at once."""

FEW = 200_000
"""An execution with this many expected results is loaded in one piece."""

_TABLES = """
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
    channel {text}, at_ms bigint NOT NULL, attempts bigint NOT NULL DEFAULT 0, answered_ms bigint);
CREATE INDEX deliveries_due ON deliveries (broker, id) WHERE answered_ms IS NULL;
CREATE INDEX deliveries_answered ON deliveries (answered_ms) WHERE answered_ms IS NOT NULL;
CREATE INDEX deliveries_of_execution ON deliveries (execution);
CREATE TABLE suspensions (stream bigint PRIMARY KEY, error {text} NOT NULL, definition {text} NOT NULL,
    since_ms bigint NOT NULL, begins_after bigint NOT NULL);
INSERT INTO counters VALUES ('results', 0);"""
MIGRATIONS = (_TABLES,)
"""Numbered from 1; their placeholders are column types and table options.

`streams.floor` is the last position that retention removed; `channels.aged` the last execution that age removed.
Values are found by a digest because they may be longer than an index takes. Streams and subscriptions arrive by
the hundred thousand: subscribing locks their channels and broker once, and no foreign key is checked per row."""


def migrations(types: Mapping[str, str]) -> list[str]:
    """Return MIGRATIONS with the column types and table options of a database system."""
    return [migration.format(**types) for migration in MIGRATIONS]


class Transaction(ABC):
    """An open transaction of one connection. Rows have no static type."""

    locks: Mapping[str, str] = {}
    """Suffixes of SELECT: `change` rows exclusively, `keep` them from removal, `remove` them. `read` has none."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, statement: str, **given: object) -> int:
        """Execute a statement and return the number of rows that it changed."""
        return int(self._execute(statement, given).rowcount)

    def rows(self, statement: str, **given: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query or of a statement with RETURNING."""
        return list(self._execute(statement, given).fetchall())

    def many(self, statement: str, given: Iterable[Mapping[str, object] | tuple[object, ...]]) -> None:
        """Execute one statement for each of the parameters."""
        self._connection.cursor().executemany(self._in_dialect(statement), given)

    @abstractmethod
    def load(self, rows: Iterable[tuple[object, ...]]) -> None:
        """Replace the rows of the temporary table `requested (id, channel, vals, digest, number)`."""

    def lock(self, table: str, purpose: str = "change") -> str:
        """Return the suffix of a SELECT that locks rows of `table`."""
        return self.locks.get(purpose, "").format(table)

    def lock_row(
        self, table: str, name: str, purpose: str = "change", columns: str = "1"
    ) -> list[tuple[Any, ...]]:
        """Lock the channel or broker of a name until the transaction ends; return columns of its row, if any."""
        return self.rows(f"SELECT {columns} FROM {table} WHERE name = :name{self.lock(table, purpose)}", name=name)

    def _execute(self, statement: str, given: Mapping[str, object]) -> Any:
        return self._connection.execute(self._in_dialect(statement), given)

    def _in_dialect(self, statement: str) -> str | bytes:
        return statement


@dataclass(frozen=True)
class StagedRows:
    """Rows that are not numbered yet: a relation with the columns of MATCH_SCHEMA, and its parameters."""

    rows: int
    relation: str
    parameters: Mapping[str, object]
    number: Callable[[Transaction, str, int, int], int] | None = None
    """Inserts rows that are in memory: takes the channel, the id before the first, and the time; returns the
    number of streams."""


class ResultDatabase(ABC):
    """A database system for the result stores. Methods may be called from several threads."""

    def __init__(self, pool: Pool[Any]) -> None:
        self._pool = pool

    @abstractmethod
    def reading(self) -> AbstractContextManager[Transaction]:
        """Begin a short read."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction that is committed at the end of the block, or leaves nothing."""

    @abstractmethod
    def staging(self, matches: Matches, few: int, expect_few: bool) -> AbstractContextManager[StagedRows]:
        """Load matches for the transactions of this thread in the block, in one piece if they are few."""

    @abstractmethod
    def check(self) -> None:
        """Raise an error if the database cannot be read or written."""

    def reserve_ids(self, transaction: Transaction, count: int) -> int:
        """Reserve `count` ids of results for good and return the id before the first."""
        ((last,),) = transaction.rows(
            "UPDATE counters SET value = value + :count WHERE name = 'results' RETURNING value", count=count
        )
        return int(last) - count

    def query(self, statement: str, **given: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query in a short read of its own."""
        with self.reading() as transaction:
            return transaction.rows(statement, **given)

    def scan(self, statement: str, **given: object) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query by their first column, CHUNK at a time.

        The query has the conditions `> :after ORDER BY … LIMIT :limit` for this column; `after` is given.
        """
        while True:
            rows = self.query(statement, limit=CHUNK, **given)
            yield from rows
            if len(rows) < CHUNK:
                return
            given["after"] = rows[-1][0]

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()
