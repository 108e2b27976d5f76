"""What is not kept any more, removed in slices between which executions go on; for SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

from newsstand.cluster.results_tables import CHUNK, SqlStore, Transaction
from newsstand.model import Retention

KEEP_DELIVERIES_MS = 86_400_000
"""How long a delivery that was answered is kept: a day."""

KEEP_EXECUTIONS_MS = 7 * 86_400_000
"""How long an execution without results that are left is kept: a week."""


class RetentionInSql(SqlStore):
    """Retention by age and by count."""

    def retain(self, channel: str, retention: Retention, now_ms: int) -> int:
        removed = 0
        if retention.age_s is not None:
            removed += self._drop_old(channel, now_ms - int(retention.age_s * 1000))
        if retention.count is not None:
            removed += self._drop_surplus(channel, retention.count)
        self._drop_records(channel, now_ms)
        return removed

    def _locked(self, transaction: Transaction, channel: str) -> None:
        """Executions of the channel wait for this slice, so that the two never wait for each other's streams."""
        transaction.rows(f"SELECT 1 FROM channels WHERE name = :name{self._lock('channels')}", name=channel)

    def _drop_old(self, channel: str, limit_ms: int) -> int:
        removed = 0
        while pieces := list(self._old_rows(channel, limit_ms)):
            with self._writing() as transaction:
                self._locked(transaction, channel)
                for number, first, last, whole in pieces:
                    transaction.run(
                        "UPDATE streams SET floor = gone.last FROM (SELECT stream, max(position) AS last "
                        "FROM results WHERE id BETWEEN :first AND :last GROUP BY stream) AS gone "
                        "WHERE streams.id = gone.stream AND floor < gone.last",
                        first=first,
                        last=last,
                    )
                    removed += transaction.run(
                        "DELETE FROM results WHERE id BETWEEN :first AND :last", first=first, last=last
                    )
                    if whole:
                        transaction.run(
                            "UPDATE channels SET aged = :number WHERE name = :name AND aged < :number",
                            number=number,
                            name=channel,
                        )
        return removed

    def _old_rows(self, channel: str, limit_ms: int) -> Iterator[tuple[int, int, int, bool]]:
        """The next slice: (execution, first id, last id, whether nothing of the execution remains after it).

        Oldest first, and ids lie in the order of (stream, position): what remains of a stream has no holes.
        """
        with self._reading() as transaction:
            found = transaction.rows(
                "SELECT e.number, coalesce((SELECT min(id) FROM results WHERE id BETWEEN e.first_row AND "
                "e.last_row), e.last_row + 1), e.last_row FROM channels c JOIN executions e ON e.channel = c.name "
                "AND e.number > c.aged WHERE c.name = :name AND e.at_ms < :limit_ms "
                "ORDER BY e.number LIMIT :limit",
                name=channel,
                limit_ms=limit_ms,
                limit=CHUNK,
            )
        room = CHUNK
        for number, first, last in found:
            if room == 0:
                return
            taken = min(room, last - first + 1)
            room -= taken
            yield number, first, first + taken - 1, first + taken > last

    def _drop_surplus(self, channel: str, count: int) -> int:
        removed = 0
        after = 0
        while True:
            with self._reading() as transaction:
                found = transaction.rows(
                    "SELECT id, floor, head - :count FROM streams WHERE channel = :channel AND id > :after "
                    "AND head - floor > :count ORDER BY id LIMIT :limit",
                    channel=channel,
                    count=count,
                    after=after,
                    limit=CHUNK,
                )
            if not found:
                return removed
            room = CHUNK
            slice_of = []
            for stream, floor, until in found:
                if room == 0:
                    break
                taken = min(room, until - floor)
                room -= taken
                slice_of.append({"stream": stream, "floor": floor, "until": floor + taken})
                # A stream with more than a slice of surplus is taken up again.
                after = stream if floor + taken == until else stream - 1
            with self._writing() as transaction:
                self._locked(transaction, channel)
                transaction.many(
                    "DELETE FROM results WHERE stream = :stream AND position > :floor AND position <= :until",
                    slice_of,
                )
                transaction.many(
                    "UPDATE streams SET floor = :until WHERE id = :stream AND floor = :floor", slice_of
                )
            removed += CHUNK - room

    def _drop_records(self, channel: str, now_ms: int) -> None:
        """Answered deliveries and executions that nobody asks for any more."""
        told = (
            "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries WHERE told_ms < :limit_ms LIMIT :limit)"
        )
        empty = (
            "DELETE FROM executions WHERE number IN (SELECT e.number FROM executions e WHERE e.channel = :channel "
            "AND e.at_ms < :limit_ms AND NOT EXISTS (SELECT 1 FROM results r WHERE r.id BETWEEN e.first_row AND "
            "e.last_row) AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.execution = e.number "
            "AND d.told_ms IS NULL) ORDER BY e.number LIMIT :limit)"
        )
        for statement, keep_ms in ((told, KEEP_DELIVERIES_MS), (empty, KEEP_EXECUTIONS_MS)):
            dropped = CHUNK
            while dropped == CHUNK:
                with self._writing() as transaction:
                    dropped = transaction.run(statement, channel=channel, limit_ms=now_ms - keep_ms, limit=CHUNK)
