"""Channels' positions, executions and reading, in the SQL that SQLite and PostgreSQL share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from newsstand.cluster.results import Execution, ExecutionRecord, Gone, Stored
from newsstand.cluster.results_retention import RetentionInSql
from newsstand.cluster.results_suspensions import SuspensionsInSql
from newsstand.cluster.results_tables import Staged, Transaction
from newsstand.model import Page, Result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NUMBER = """
INSERT INTO results (id, stream, position, at_ms, publication, page_id, page_size, payload)
SELECT :before + row_number() OVER (ORDER BY numbered.stream, numbered.number), numbered.stream,
    streams.head + numbered.number, :at_ms, publication, page_id, page_size, payload
FROM (SELECT arrived.*, row_number() OVER
        (PARTITION BY stream ORDER BY publication NULLS LAST, ordinal NULLS LAST, payload) AS number
    FROM {arrived} AS arrived) AS numbered
JOIN streams ON streams.id = numbered.stream AND streams.channel = :channel
ORDER BY numbered.stream, numbered.number
"""


def strangers(count: int, channel: str) -> ValueError:
    """The error for results of streams that a channel has not."""
    return ValueError(f"{count} results are for streams that channel '{channel}' has not")


class SqlResults(SuspensionsInSql, RetentionInSql):
    """All of the store but connections and bulk loading. Of an execution that brings about `few` results they come
    to the driver in one piece."""

    def __init__(self, few: int) -> None:
        super().__init__()
        self._few = few

    # Channels' positions and executions

    def position(self, channel: str) -> int | None:
        with self._reading() as transaction:
            found = transaction.rows("SELECT position FROM channels WHERE name = :name", name=channel)
        return found[0][0] if found else None

    def channels(self) -> list[str]:
        with self._reading() as transaction:
            return [name for (name,) in transaction.rows("SELECT name FROM channels ORDER BY name")]

    def begin(self, channel: str, position: int) -> None:
        with self._writing() as transaction:
            transaction.run(
                "INSERT INTO channels (name, position) VALUES (:name, :position) ON CONFLICT (name) DO NOTHING",
                name=channel,
                position=position,
            )

    def forget(self, channel: str) -> None:
        with self._writing() as transaction:
            transaction.rows(f"SELECT 1 FROM channels WHERE name = :name{self._going('channels')}", name=channel)
            transaction.run(
                "DELETE FROM deliveries WHERE execution IN (SELECT number FROM executions WHERE channel = :name)",
                name=channel,
            )
            for table in ("subscriptions", "results", "suspensions"):
                transaction.run(
                    f"DELETE FROM {table} WHERE stream IN (SELECT id FROM streams WHERE channel = :name)",
                    name=channel,
                )
            for table in ("streams", "executions"):
                transaction.run(f"DELETE FROM {table} WHERE channel = :name", name=channel)
            transaction.run("DELETE FROM channels WHERE name = :name", name=channel)

    def store(self, execution: Execution, matched: DataFrame | None) -> Stored:
        with self._reading() as transaction:
            if stored := self._stored_before(transaction, execution, ""):
                return stored
            few = self._expected(transaction, execution) <= self._few
        with self._staging(matched, few) as staged, self._writing() as transaction:
            if stored := self._stored_before(transaction, execution, self._lock("channels")):
                return stored
            return self._store(transaction, execution, staged)

    def _stored_before(self, transaction: Transaction, execution: Execution, lock: str) -> Stored | None:
        found = transaction.rows(f"SELECT position FROM channels WHERE name = :name{lock}", name=execution.channel)
        position = found[0][0] if found else None
        if position is not None and position >= execution.through:
            earlier = transaction.rows(
                "SELECT number, results, streams FROM executions WHERE channel = :channel AND through >= :through "
                "ORDER BY through LIMIT 1",
                channel=execution.channel,
                through=execution.through,
            )
            number, results, streams = earlier[0] if earlier else (0, 0, 0)
            return Stored(number, results, streams, repeated=True)
        if position != execution.after:
            at = "not known" if position is None else f"at publication {position}"
            raise ValueError(
                f"channel '{execution.channel}' is {at}: an execution after {execution.after} does not follow"
            )
        return None

    def _expected(self, transaction: Transaction, execution: Execution) -> float:
        """How many results an execution may bring, as its last ones did; at least one for each publication."""
        recent = transaction.rows(
            "SELECT results, through - begins_after FROM executions WHERE channel = :channel "
            "ORDER BY number DESC LIMIT 10",
            channel=execution.channel,
        )
        each = max((results / publications for results, publications in recent), default=0.0)
        return max(1.0, each) * (execution.through - execution.after)

    def _store(self, transaction: Transaction, execution: Execution, staged: Staged) -> Stored:
        channel = execution.channel
        ((last_ms,),) = transaction.rows("SELECT at_ms FROM channels WHERE name = :name", name=channel)
        at_ms = max(execution.at_ms, last_ms)
        before = self._ids(transaction, staged.rows) if staged.rows else 0
        rows = {"first": before + 1, "last": before + staged.rows}
        streams = 0
        if staged.rows:
            streams = self._number(transaction, channel, staged, before, at_ms)
        ((number,),) = transaction.rows(
            "INSERT INTO executions (channel, dataset, begins_after, through, at_ms, results, streams, first_row, "
            "last_row) VALUES (:channel, :dataset, :after, :through, :at_ms, :results, :streams, :first, :last) "
            "RETURNING number",
            channel=channel,
            dataset=execution.dataset,
            after=execution.after,
            through=execution.through,
            at_ms=at_ms,
            results=staged.rows,
            streams=streams,
            **rows,
        )
        transaction.run(
            "UPDATE channels SET position = :through, at_ms = :at_ms WHERE name = :name",
            through=execution.through,
            at_ms=at_ms,
            name=channel,
        )
        if staged.rows:
            # A broker's row stays locked from here until the commit: the ids of its outbox rise in the order in
            # which its notifier sees them, which is what lets the broker tell a replay by one number.
            concerned = transaction.rows(
                "SELECT name, away FROM brokers WHERE EXISTS (SELECT 1 FROM results r JOIN subscriptions u "
                "ON u.stream = r.stream AND u.broker = name WHERE r.id BETWEEN :first AND :last) "
                f"ORDER BY name{self._lock('brokers')}",
                **rows,
            )
            transaction.many(
                "INSERT INTO deliveries (broker, execution, channel, at_ms) "
                "VALUES (:broker, :execution, :channel, :at_ms)",
                [
                    {"broker": name, "execution": number, "channel": channel, "at_ms": at_ms}
                    for name, away in concerned
                    if not away
                ],
            )
        return Stored(number, staged.rows, streams)

    def _number(self, transaction: Transaction, channel: str, staged: Staged, before: int, at_ms: int) -> int:
        """Number what is staged within its streams, with ids after `before`; return how many streams moved."""
        kept = transaction.run(
            _NUMBER.format(arrived=staged.relation), before=before, at_ms=at_ms, channel=channel, **staged.given
        )
        if kept != staged.rows:
            raise strangers(staged.rows - kept, channel)
        return transaction.run(
            "UPDATE streams SET head = moved.last FROM (SELECT stream, max(position) AS last FROM results "
            "WHERE id BETWEEN :first AND :last GROUP BY stream) AS moved WHERE streams.id = moved.stream",
            first=before + 1,
            last=before + staged.rows,
        )

    def executions(
        self, channel: str, after: int = 0, limit: int = 100, publication: int | None = None
    ) -> list[ExecutionRecord]:
        which = "" if publication is None else "AND begins_after < :publication AND through >= :publication"
        with self._reading() as transaction:
            found = transaction.rows(
                "SELECT number, channel, dataset, begins_after, through, at_ms, results, streams FROM executions "
                f"WHERE channel = :channel AND number > :after {which} ORDER BY number LIMIT :limit",
                channel=channel,
                after=after,
                publication=publication,
                limit=limit,
            )
        return [ExecutionRecord(*row) for row in found]

    def reached(self, execution: int, publication: int) -> list[tuple[int, int]]:
        with self._reading() as transaction:
            found = transaction.rows(
                "SELECT r.stream, r.position FROM executions e JOIN results r ON r.id BETWEEN e.first_row AND "
                "e.last_row WHERE e.number = :number AND r.publication = :publication ORDER BY r.id",
                number=execution,
                publication=publication,
            )
        return [(stream, position) for stream, position in found]

    # Reading

    def read(self, stream: int, after: int = 0, until: int | None = None, limit: int = 1000) -> list[Result]:
        if limit <= 0 or (until is not None and until <= after):
            return []
        with self._reading() as transaction:
            found = transaction.rows(
                "SELECT position, at_ms, payload, publication, page_id, page_size FROM results "
                "WHERE stream = :stream AND position > :after "
                f"{'' if until is None else 'AND position <= :until '}ORDER BY position LIMIT :limit",
                stream=stream,
                after=after,
                until=until,
                limit=limit,
            )
        # Results first, the floor afterwards: what retention takes away in between does not matter.
        if not found or found[0][0] != after + 1:
            earliest, _ = self.head(stream)
            if earliest > after + 1:
                raise Gone(earliest)
            return []
        return [
            Result(position, at_ms, payload, publication, None if page is None else Page(page, size or 0))
            for position, at_ms, payload, publication, page, size in found
        ]

    def head(self, stream: int) -> tuple[int, int]:
        with self._reading() as transaction:
            found = transaction.rows("SELECT floor + 1, head FROM streams WHERE id = :id", id=stream)
        return (found[0][0], found[0][1]) if found else (1, 0)

    # Its life

    def check(self) -> None:
        with self._reading() as transaction:
            transaction.rows("SELECT version FROM newsstand_schema")
