"""Removal of old results, executions and deliveries, in slices between which executions go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from newsstand.cluster.results.model import CHUNK, ResultDatabase
from newsstand.model import Retention


@dataclass(frozen=True)
class CleanupLimits:
    """Limits of the removal: ages besides retention, and rows of one call."""

    deliveries_ms: int = 86_400_000
    """The age at which an answered delivery is removed."""
    executions_ms: int = 7 * 86_400_000
    """The age at which an execution without remaining results is removed."""
    slice_rows: int = CHUNK
    max_slices: int = 100
    """Slices of one call, a million results by default; the rest is left for the next calls."""


OLD_EXECUTIONS = """
SELECT e.number, e.last_row,
    coalesce((SELECT min(id) FROM results WHERE id BETWEEN e.first_row AND e.last_row), e.last_row + 1)
FROM channels c JOIN executions e ON e.channel = c.name AND e.number > c.aged
WHERE c.name = :name AND e.at_ms < :limit_ms
    AND e.at_ms >= coalesce((SELECT a.at_ms FROM executions a WHERE a.number = c.aged), 0)
ORDER BY e.at_ms, e.number LIMIT :limit
"""
"""Times of a channel's executions rise with their numbers, so an index by time finds the old ones alone."""
_DROP_EXECUTIONS = """
DELETE FROM executions AS e WHERE e.channel = :channel
    AND (e.at_ms, e.number) > (:after_ms, :after) AND (e.at_ms, e.number) <= (:last_ms, :last)
    AND NOT EXISTS (SELECT 1 FROM results r WHERE r.id BETWEEN e.first_row AND e.last_row)
    AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.execution = e.number AND d.answered_ms IS NULL)
"""
_RAISE_FLOORS = """
UPDATE streams SET floor = removed.last FROM (SELECT stream, max(position) AS last
    FROM results WHERE id BETWEEN :first AND :last GROUP BY stream) AS removed
WHERE streams.id = removed.stream AND floor < removed.last
"""


class ResultCleaner:
    """Removes results by age and by count, and the records of deliveries and executions."""

    def __init__(self, database: ResultDatabase, limits: CleanupLimits = CleanupLimits()) -> None:  # noqa: B008
        self._database = database
        self._limits = limits
        self._examined: dict[str, tuple[int, int]] = {}
        """The (time, number) of the last execution of each channel that was examined for removal."""

    def apply_retention(self, channel: str, retention: Retention, now_ms: int) -> int:
        """Remove results beyond a channel's retention, and old executions; return the number of results.

        A large surplus takes several calls, so that each of them ends soon.
        """
        removed = 0
        if retention.age_s is not None:
            removed += self._drop_old(channel, now_ms - int(retention.age_s * 1000))
        if retention.count is not None:
            removed += self._drop_surplus(channel, retention.count)
        self._drop_executions(channel, now_ms - self._limits.executions_ms)
        return removed

    def purge_deliveries(self, now_ms: int) -> int:
        """Remove deliveries that were answered long ago; return their number. Many take several calls."""
        statement = (
            "DELETE FROM deliveries WHERE id IN "
            "(SELECT id FROM deliveries WHERE answered_ms < :limit_ms LIMIT :limit)"
        )
        limit_ms = now_ms - self._limits.deliveries_ms
        removed = 0
        for _ in range(self._limits.max_slices):
            with self._database.writing() as transaction:
                dropped = transaction.run(statement, limit_ms=limit_ms, limit=self._limits.slice_rows)
            removed += dropped
            if dropped < self._limits.slice_rows:
                break
        return removed

    def _drop_old(self, channel: str, limit_ms: int) -> int:
        removed = 0
        for _ in range(self._limits.max_slices):
            pieces = list(self._old_rows(channel, limit_ms))
            if not pieces:
                break
            with self._database.writing() as transaction:
                # So that an execution and this slice never wait for each other's streams.
                transaction.lock_row("channels", channel)
                for number, first, last, is_complete in pieces:
                    rows = {"first": first, "last": last}
                    transaction.run(_RAISE_FLOORS, **rows)
                    removed += transaction.run("DELETE FROM results WHERE id BETWEEN :first AND :last", **rows)
                    if is_complete:
                        statement = "UPDATE channels SET aged = :number WHERE name = :name AND aged < :number"
                        transaction.run(statement, number=number, name=channel)
        return removed

    def _old_rows(self, channel: str, limit_ms: int) -> Iterator[tuple[int, int, int, bool]]:
        """Return the next slice: (execution, first id, last id, whether nothing of it remains afterwards).

        Oldest first, and ids lie in the order of (stream, position): the rest of a stream has no holes.
        """
        found = self._database.query(
            OLD_EXECUTIONS, name=channel, limit_ms=limit_ms, limit=self._limits.slice_rows
        )
        room = self._limits.slice_rows
        for number, last, first in found:
            if room == 0:
                return
            taken = min(room, last - first + 1)
            room -= taken
            yield number, first, first + taken - 1, first + taken > last

    def _drop_surplus(self, channel: str, count: int) -> int:
        statement = (
            "SELECT id, floor, head - :count FROM streams WHERE channel = :channel AND id > :after "
            "AND head - floor > :count ORDER BY id LIMIT :limit"
        )
        removed = after = 0
        for _ in range(self._limits.max_slices):
            room = self._limits.slice_rows
            found = self._database.query(statement, channel=channel, count=count, after=after, limit=room)
            if not found:
                break
            slice_of = []
            for stream, floor, until in found:
                if room == 0:
                    break
                taken = min(room, until - floor)
                room -= taken
                slice_of.append({"stream": stream, "floor": floor, "until": floor + taken})
                # A stream with more than a slice of surplus is taken up again.
                after = stream if floor + taken == until else stream - 1
            with self._database.writing() as transaction:
                transaction.lock_row("channels", channel)
                transaction.many(
                    "DELETE FROM results WHERE stream = :stream AND position > :floor AND position <= :until",
                    slice_of,
                )
                transaction.many(
                    "UPDATE streams SET floor = :until WHERE id = :stream AND floor = :floor", slice_of
                )
            removed += self._limits.slice_rows - room
        return removed

    def _drop_executions(self, channel: str, limit_ms: int) -> None:
        """Remove old executions without results, from where the last call ended."""
        after = {"after_ms": -1, "after": 0}
        if channel in self._examined:
            after["after_ms"], after["after"] = self._examined[channel]
        statement = (
            "SELECT at_ms, number FROM executions WHERE channel = :channel AND at_ms < :limit_ms "
            "AND (at_ms, number) > (:after_ms, :after) ORDER BY at_ms, number LIMIT :limit"
        )
        most = self._limits.slice_rows
        found = self._database.query(statement, channel=channel, limit_ms=limit_ms, limit=most, **after)
        if len(found) < most:
            self._examined.pop(channel, None)  # the next call begins at the first again
        else:
            self._examined[channel] = found[-1]
        if found:
            last_ms, last = found[-1]
            with self._database.writing() as transaction:
                transaction.run(_DROP_EXECUTIONS, channel=channel, last_ms=last_ms, last=last, **after)
