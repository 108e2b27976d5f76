"""What is not kept any more, removed in slices between which executions go on; for SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

from newsstand.cluster.results_tables import CHUNK, SqlStore, Transaction
from newsstand.model import Retention

KEEP_DELIVERIES_MS = 86_400_000
"""How long a delivery that was answered is kept: a day."""

KEEP_EXECUTIONS_MS = 7 * 86_400_000
"""How long an execution without results that are left is kept: a week."""


MOST_SLICES = 100
"""Slices that one call removes at most: a million results."""

OLD_EXECUTIONS = """
SELECT e.number, e.last_row,
    coalesce((SELECT min(id) FROM results WHERE id BETWEEN e.first_row AND e.last_row), e.last_row + 1)
FROM channels c JOIN executions e ON e.channel = c.name AND e.number > c.aged
WHERE c.name = :name AND e.at_ms < :limit_ms
    AND e.at_ms >= coalesce((SELECT a.at_ms FROM executions a WHERE a.number = c.aged), 0)
ORDER BY e.at_ms, e.number LIMIT :limit
"""
"""Times of a channel's executions rise with their numbers: what is old is found by time, without the rest."""


class RetentionInSql(SqlStore):
    """Retention by age and by count."""

    def __init__(self) -> None:
        self._looked_at: dict[str, tuple[int, int]] = {}
        """The (time, number) of the last execution of each channel that was looked at whether it can go."""

    def retain(self, channel: str, retention: Retention, now_ms: int) -> int:
        removed = 0
        if retention.age_s is not None:
            removed += self._drop_old(channel, now_ms - int(retention.age_s * 1000))
        if retention.count is not None:
            removed += self._drop_surplus(channel, retention.count)
        self._drop_executions(channel, now_ms - KEEP_EXECUTIONS_MS)
        return removed

    def tidy(self, now_ms: int) -> int:
        removed = 0
        for _ in range(MOST_SLICES):
            with self._writing() as transaction:
                dropped = transaction.run(
                    "DELETE FROM deliveries WHERE id IN "
                    "(SELECT id FROM deliveries WHERE told_ms < :limit_ms LIMIT :limit)",
                    limit_ms=now_ms - KEEP_DELIVERIES_MS,
                    limit=CHUNK,
                )
            removed += dropped
            if dropped < CHUNK:
                break
        return removed

    def _locked(self, transaction: Transaction, channel: str) -> None:
        """Executions of the channel wait for this slice, so that the two never wait for each other's streams."""
        transaction.rows(f"SELECT 1 FROM channels WHERE name = :name{self._lock('channels')}", name=channel)

    def _drop_old(self, channel: str, limit_ms: int) -> int:
        removed = 0
        for _ in range(MOST_SLICES):
            pieces = list(self._old_rows(channel, limit_ms))
            if not pieces:
                break
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
            found = transaction.rows(OLD_EXECUTIONS, name=channel, limit_ms=limit_ms, limit=CHUNK)
        room = CHUNK
        for number, last, first in found:
            if room == 0:
                return
            taken = min(room, last - first + 1)
            room -= taken
            yield number, first, first + taken - 1, first + taken > last

    def _drop_surplus(self, channel: str, count: int) -> int:
        removed = 0
        after = 0
        for _ in range(MOST_SLICES):
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
                break
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
        return removed

    def _drop_executions(self, channel: str, limit_ms: int) -> None:
        """Look at some old executions, from where the last call ended, and drop those of which nothing is left."""
        after = {"after_ms": -1, "after": 0}
        if channel in self._looked_at:
            after["after_ms"], after["after"] = self._looked_at[channel]
        with self._reading() as transaction:
            found = transaction.rows(
                "SELECT at_ms, number FROM executions WHERE channel = :channel AND at_ms < :limit_ms "
                "AND (at_ms, number) > (:after_ms, :after) ORDER BY at_ms, number LIMIT :limit",
                channel=channel,
                limit_ms=limit_ms,
                limit=CHUNK,
                **after,
            )
        if len(found) < CHUNK:
            self._looked_at.pop(channel, None)  # the next call begins at the first again
        else:
            self._looked_at[channel] = found[-1]
        if found:
            last_ms, last = found[-1]
            with self._writing() as transaction:
                transaction.run(
                    "DELETE FROM executions AS e WHERE e.channel = :channel "
                    "AND (e.at_ms, e.number) > (:after_ms, :after) AND (e.at_ms, e.number) <= (:last_ms, :last) "
                    "AND NOT EXISTS (SELECT 1 FROM results r WHERE r.id BETWEEN e.first_row AND e.last_row) "
                    "AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.execution = e.number "
                    "AND d.told_ms IS NULL)",
                    channel=channel,
                    last_ms=last_ms,
                    last=last,
                    **after,
                )
