"""Channels' positions, their executions, and reading of results.

A stream is what equal (channel, values) share; its results are numbered 1, 2, 3 … without holes, in the order of
their publications, with times that never go back. One transaction stores an execution and the channel's new
position in its dataset: a second attempt changes nothing, and after a crash it is either stored or not. In the
same transaction, every broker with a subscription to an advanced stream gets one entry in its outbox.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

import msgspec

from newsstand.cluster.results.model import (
    FEW,
    Execution,
    ExecutionOutcome,
    ExecutionRecord,
    Matches,
    ResultDatabase,
    StagedRows,
    Transaction,
    require_at_most,
    unknown_streams,
)
from newsstand.errors import ResultsExpired
from newsstand.wire.cluster import AttachedPage, StreamResult

_NUMBER = """
INSERT INTO results (id, stream, position, at_ms, publication, page_id, page_size, payload)
SELECT :before + row_number() OVER (ORDER BY numbered.stream, numbered.number), numbered.stream,
    streams.head + numbered.number, :at_ms, publication, page_id, page_size, payload
FROM (SELECT staged.*, row_number() OVER
        (PARTITION BY stream ORDER BY publication NULLS LAST, ordinal NULLS LAST, payload) AS number
    FROM {staged} AS staged) AS numbered
JOIN streams ON streams.id = numbered.stream AND streams.channel = :channel
ORDER BY numbered.stream, numbered.number
"""


class ResultStore:
    """Results and the executions that made them. Methods may be called from several threads."""

    def __init__(self, database: ResultDatabase, few: int = FEW) -> None:
        """`few`: an execution with at most this many expected results is loaded in one piece."""
        self._database = database
        self._few = few

    # Channels' positions and executions

    def position(self, channel: str) -> int | None:
        """Return the last publication that a channel was executed on; None for an unknown channel."""
        found = self._database.query("SELECT position FROM channels WHERE name = :name", name=channel)
        return found[0][0] if found else None

    def channels(self) -> list[str]:
        """Return the names of all known channels."""
        return [name for (name,) in self._database.query("SELECT name FROM channels ORDER BY name")]

    def add_channel(self, channel: str, position: int) -> None:
        """Add a channel whose first execution begins after `position`; no effect on a known one."""
        with self._database.writing() as transaction:
            statement = (
                "INSERT INTO channels (name, position) VALUES (:name, :position) ON CONFLICT (name) DO NOTHING"
            )
            transaction.run(statement, name=channel, position=position)

    def drop_channel(self, channel: str) -> None:
        """Remove a channel with its streams, subscriptions, results and executions."""
        with self._database.writing() as transaction:
            transaction.lock_row("channels", channel, "remove")
            transaction.run(
                "DELETE FROM deliveries WHERE execution IN (SELECT number FROM executions WHERE channel = :name)",
                name=channel,
            )
            for table in ("subscriptions", "results", "suspensions"):
                which = "stream IN (SELECT id FROM streams WHERE channel = :name)"
                transaction.run(f"DELETE FROM {table} WHERE {which}", name=channel)
            for table in ("streams", "executions"):
                transaction.run(f"DELETE FROM {table} WHERE channel = :name", name=channel)
            transaction.run("DELETE FROM channels WHERE name = :name", name=channel)

    def store(
        self,
        execution: Execution,
        matches: Matches = (),
        now_ms: Callable[[], int] | None = None,
        most: int | None = None,
    ) -> ExecutionOutcome:
        """Store an execution exactly once: results, heads of streams, the channel's position, outboxes.

        With `now_ms` its time is that at which all matches are loaded, and not `at_ms` of the execution.
        Of more matches than `most`, none is stored: raise TooManyResults.
        If the channel's position is at or past `through` already, nothing changes. If it is not at `after`, raise
        ValueError.
        """
        with self._database.reading() as transaction:
            if earlier := self._find_earlier(transaction, execution, "read"):
                return earlier
            expect_few = self._expected(transaction, execution) <= self._few
        with self._database.staging(matches, self._few, expect_few) as staged:
            require_at_most(most, staged.rows)
            with self._database.writing() as transaction:
                if earlier := self._find_earlier(transaction, execution, "change"):
                    return earlier
                at_ms = execution.at_ms if now_ms is None else now_ms()
                return self._store(transaction, replace(execution, at_ms=at_ms), staged)

    def _find_earlier(
        self, transaction: Transaction, execution: Execution, purpose: str
    ) -> ExecutionOutcome | None:
        found = transaction.lock_row("channels", execution.channel, purpose, "position")
        position = found[0][0] if found else None
        if position is not None and position >= execution.through:
            statement = (
                "SELECT number, results, streams FROM executions WHERE channel = :channel AND through >= :through "
                "ORDER BY through LIMIT 1"
            )
            earlier = transaction.rows(statement, channel=execution.channel, through=execution.through)
            number, results, streams = earlier[0] if earlier else (0, 0, 0)
            return ExecutionOutcome(number, results, streams, repeated=True)
        if position != execution.after:
            at = "not known" if position is None else f"at publication {position}"
            raise ValueError(f"channel '{execution.channel}' is {at}, not at publication {execution.after}")
        return None

    def _expected(self, transaction: Transaction, execution: Execution) -> float:
        """Estimate the results of an execution from recent ones; at least one for each publication."""
        recent = transaction.rows(
            "SELECT results, through - begins_after FROM executions WHERE channel = :channel "
            "ORDER BY number DESC LIMIT 10",
            channel=execution.channel,
        )
        each = max((results / publications for results, publications in recent), default=0.0)
        return max(1.0, each) * (execution.through - execution.after)

    def _store(self, transaction: Transaction, execution: Execution, staged: StagedRows) -> ExecutionOutcome:
        channel = execution.channel
        ((last_ms,),) = transaction.rows("SELECT at_ms FROM channels WHERE name = :name", name=channel)
        at_ms = max(execution.at_ms, last_ms)
        before = self._database.reserve_ids(transaction, staged.rows) if staged.rows else 0
        rows = {"first": before + 1, "last": before + staged.rows}
        streams = self._number(transaction, channel, staged, before, at_ms) if staged.rows else 0
        record = {**asdict(execution), "at_ms": at_ms, "results": staged.rows, "streams": streams, **rows}
        ((number,),) = transaction.rows(
            "INSERT INTO executions (channel, dataset, begins_after, through, at_ms, results, streams, first_row, "
            "last_row) VALUES (:channel, :dataset, :after, :through, :at_ms, :results, :streams, :first, :last) "
            "RETURNING number",
            **record,
        )
        statement = "UPDATE channels SET position = :through, at_ms = :at_ms WHERE name = :name"
        transaction.run(statement, through=execution.through, at_ms=at_ms, name=channel)
        if staged.rows:
            # A broker's row stays locked until the commit: the ids of its outbox rise in the order in which its
            # notifier reads them, so the broker recognises a replay by one number.
            subscribers = transaction.rows(
                "SELECT name, away FROM brokers WHERE EXISTS (SELECT 1 FROM results r JOIN subscriptions u "
                "ON u.stream = r.stream AND u.broker = name WHERE r.id BETWEEN :first AND :last) "
                f"ORDER BY name{transaction.lock('brokers')}",
                **rows,
            )
            transaction.many(
                "INSERT INTO deliveries (broker, execution, channel, at_ms) "
                "VALUES (:broker, :execution, :channel, :at_ms)",
                [
                    {"broker": name, "execution": number, "channel": channel, "at_ms": at_ms}
                    for name, away in subscribers
                    if not away
                ],
            )
        return ExecutionOutcome(number, staged.rows, streams)

    def _number(self, transaction: Transaction, channel: str, staged: StagedRows, before: int, at_ms: int) -> int:
        """Insert staged rows, numbered in their streams, with ids after `before`; return the number of streams."""
        if staged.number is not None:
            return staged.number(transaction, channel, before, at_ms)
        statement = _NUMBER.format(staged=staged.relation)
        inserted = transaction.run(statement, before=before, at_ms=at_ms, channel=channel, **staged.parameters)
        if inserted != staged.rows:
            raise unknown_streams(staged.rows - inserted, channel)
        statement = (
            "UPDATE streams SET head = advanced.last FROM (SELECT stream, max(position) AS last FROM results "
            "WHERE id BETWEEN :first AND :last GROUP BY stream) AS advanced WHERE streams.id = advanced.stream"
        )
        return transaction.run(statement, first=before + 1, last=before + staged.rows)

    def executions(
        self, channel: str, after: int = 0, limit: int = 100, publication: int | None = None
    ) -> list[ExecutionRecord]:
        """Return a channel's stored executions by number; with `publication`, only the one that evaluated it."""
        which = "" if publication is None else "AND begins_after < :publication AND through >= :publication"
        statement = (
            "SELECT number, dataset, begins_after, through, at_ms, results FROM executions "
            f"WHERE channel = :channel AND number > :after {which} ORDER BY number LIMIT :limit"
        )
        given = {"channel": channel, "after": after, "publication": publication, "limit": limit}
        return [ExecutionRecord(*row) for row in self._database.query(statement, **given)]

    def reached(self, execution: int, publication: int) -> list[tuple[int, int]]:
        """Return the (stream, position) pairs that a publication reached in an execution."""
        statement = (
            "SELECT r.stream, r.position FROM executions e JOIN results r ON r.id BETWEEN e.first_row AND "
            "e.last_row WHERE e.number = :number AND r.publication = :publication ORDER BY r.id"
        )
        found = self._database.query(statement, number=execution, publication=publication)
        return [(stream, position) for stream, position in found]

    def deliveries(self, execution: int, publication: int, limit: int) -> list[tuple[int, int, str, str]]:
        """Return where a publication went in an execution: stream, position, subscription and broker."""
        statement = (
            "SELECT r.stream, r.position, u.id, u.broker FROM executions e JOIN results r ON r.id BETWEEN "
            "e.first_row AND e.last_row JOIN subscriptions u ON u.stream = r.stream "
            "WHERE e.number = :number AND r.publication = :publication ORDER BY r.id, u.broker LIMIT :limit"
        )
        found = self._database.query(statement, number=execution, publication=publication, limit=limit)
        return [(stream, position, name, broker) for stream, position, name, broker in found]

    # Reading

    def read(self, stream: int, after: int = 0, until: int | None = None, limit: int = 1000) -> list[StreamResult]:
        """Return results with after < position <= until, oldest first; `after` past the head gives none.

        Raise ResultsExpired if retention has removed the first one of them.
        """
        if limit <= 0 or (until is not None and until <= after):
            return []
        statement = (
            "SELECT position, at_ms, payload, publication, page_id, page_size FROM results "
            "WHERE stream = :stream AND position > :after "
            f"{'' if until is None else 'AND position <= :until '}ORDER BY position LIMIT :limit"
        )
        found = self._database.query(statement, stream=stream, after=after, until=until, limit=limit)
        # Results first, the floor afterwards: a removal in between does no harm.
        if not found or found[0][0] != after + 1:
            earliest, _ = self.extent(stream)
            if earliest > after + 1:
                raise ResultsExpired(earliest)
            return []
        return [
            StreamResult(
                position,
                at_ms,
                msgspec.Raw(payload.encode()),
                publication,
                None if page is None else AttachedPage(page, size or 0),
            )
            for position, at_ms, payload, publication, page, size in found
        ]

    def extent(self, stream: int) -> tuple[int, int]:
        """Return the positions of a stream's earliest remaining result and its newest; (1, 0) without results."""
        found = self._database.query("SELECT floor + 1, head FROM streams WHERE id = :id", id=stream)
        return (found[0][0], found[0][1]) if found else (1, 0)
