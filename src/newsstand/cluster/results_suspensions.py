"""Streams that executions leave out, in the SQL that SQLite and PostgreSQL share."""

from __future__ import annotations

import json
from collections.abc import Sequence

from newsstand.cluster.results import Suspended, Suspension
from newsstand.cluster.results_outbox import OutboxInSql
from newsstand.cluster.results_tables import Transaction


class SuspensionsInSql(OutboxInSql):
    """Whose values an execution fails on."""

    def suspend(self, channel: str, stream: int, error: str, definition: str, now_ms: int) -> None:
        with self._writing() as transaction:
            added = transaction.run(
                "INSERT INTO suspensions (stream, error, definition, since_ms, begins_after) "
                "SELECT s.id, cast(:error AS text), cast(:definition AS text), cast(:now_ms AS bigint), "
                "c.position FROM streams s JOIN channels c ON c.name = s.channel "
                "WHERE s.id = :stream AND s.channel = :channel "
                "AND EXISTS (SELECT 1 FROM subscriptions u WHERE u.stream = s.id) ON CONFLICT (stream) DO NOTHING",
                stream=stream,
                channel=channel,
                error=error,
                definition=definition,
                now_ms=now_ms,
            )
            if added:
                self._tell(transaction, channel, [stream], now_ms)

    def resume(self, channel: str, now_ms: int, besides: str | None = None) -> list[int]:
        which = "" if besides is None else " AND definition <> :besides"
        with self._writing() as transaction:
            found = transaction.rows(
                "DELETE FROM suspensions WHERE stream IN (SELECT id FROM streams WHERE channel = :channel)"
                f"{which} RETURNING stream",
                channel=channel,
                besides=besides,
            )
            resumed = sorted(stream for (stream,) in found)
            if resumed:
                self._tell(transaction, channel, resumed, now_ms)
        return resumed

    def suspensions(self, channel: str) -> list[Suspension]:
        with self._reading() as transaction:
            found = transaction.rows(
                "SELECT x.stream, s.vals, x.error, x.since_ms, x.begins_after, "
                "(SELECT count(*) FROM subscriptions u WHERE u.stream = s.id) "
                "FROM suspensions x JOIN streams s ON s.id = x.stream "
                "WHERE s.channel = :channel ORDER BY x.stream",
                channel=channel,
            )
        return [Suspension(stream, tuple(json.loads(text)), *more) for stream, text, *more in found]

    def suspended(
        self, broker: str, channel: str | None = None, subscriptions: Sequence[str] | None = None
    ) -> list[Suspended]:
        which = "" if channel is None else " AND s.channel = :channel"
        with self._reading() as transaction:
            found = transaction.rows(
                "SELECT u.id, x.error, x.since_ms FROM suspensions x JOIN streams s ON s.id = x.stream "
                "JOIN subscriptions u ON u.stream = x.stream AND u.broker = :broker "
                f"WHERE true{which} ORDER BY u.id",
                broker=broker,
                channel=channel,
            )
        wanted = None if subscriptions is None else set(subscriptions)
        return [Suspended(*row) for row in found if wanted is None or row[0] in wanted]

    def _tell(self, transaction: Transaction, channel: str, streams: Sequence[int], now_ms: int) -> None:
        """Add an entry to the outbox of each broker that subscribes to one of the streams."""
        names: set[str] = set()
        for stream in streams:
            found = transaction.rows(
                "SELECT DISTINCT broker FROM subscriptions WHERE stream = :stream", stream=stream
            )
            names.update(name for (name,) in found)
        for name in sorted(names):
            # As with executions: a broker's row is locked, so that the ids of its outbox rise as they are seen.
            rows = transaction.rows(
                f"SELECT away FROM brokers WHERE name = :name{self._lock('brokers')}", name=name
            )
            if rows == [(0,)]:
                transaction.run(
                    "INSERT INTO deliveries (broker, channel, at_ms) VALUES (:broker, :channel, :at_ms)",
                    broker=name,
                    channel=channel,
                    at_ms=now_ms,
                )
