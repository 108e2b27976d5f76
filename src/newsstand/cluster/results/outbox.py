"""Brokers, and the notifications that they have not answered yet."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from newsstand.cluster.results.model import CHUNK, AnnouncedResult, OutboxEntry, ResultDatabase, StreamAdvance
from newsstand.cluster.results.subscriptions import drop_subscriptions
from newsstand.model import BackendSubscription, Broker
from newsstand.wire.cluster import AttachedPage, StreamResult
from newsstand.wire.notifications import PageOffer

_ENTRIES = "SELECT id, broker, execution, channel, at_ms, attempts, answered_ms FROM deliveries"


_ADVANCES = """
SELECT u.id, min(r.position), max(r.position) FROM results r
JOIN subscriptions u ON u.stream = r.stream AND u.broker = :broker
WHERE r.id BETWEEN :first AND :last GROUP BY u.id, r.stream ORDER BY r.stream
"""
# SQLite keeps the order of a CROSS JOIN: by the execution's rows, not by the broker's subscriptions.
_RESULTS = """
SELECT u.id, u.frontends, r.position, r.at_ms, r.publication, r.page_id, coalesce(r.page_size, 0),
    CASE WHEN length(r.payload) <= :most_bytes THEN r.payload END
FROM executions e CROSS JOIN results r CROSS JOIN subscriptions u
WHERE e.number = :number AND r.id BETWEEN e.first_row AND e.last_row AND u.stream = r.stream AND u.broker = :broker
ORDER BY r.id LIMIT :limit
"""
_MATCHED_PAGES = """
SELECT p.page_id, max(p.size), sum(u.frontends)
FROM (SELECT r.page_id, r.stream, max(coalesce(r.page_size, 0)) AS size
    FROM executions e JOIN results r ON r.id BETWEEN e.first_row AND e.last_row
    WHERE e.number = :number AND r.page_id IS NOT NULL GROUP BY r.page_id, r.stream) AS p
JOIN subscriptions u ON u.stream = p.stream AND u.broker = :broker GROUP BY p.page_id ORDER BY p.page_id
"""


class NotificationOutbox:
    """Registered brokers, and one ordered queue of notifications for each: the table `deliveries`."""

    def __init__(self, database: ResultDatabase) -> None:
        self._database = database
        self.changes = 0
        """The number of changes to the list of brokers, by this object."""

    def put_broker(self, broker: Broker) -> None:
        """Add or change a broker."""
        with self._database.writing() as transaction:
            transaction.run(
                "INSERT INTO brokers (name, callback, secret) VALUES (:name, :callback, :secret) "
                "ON CONFLICT (name) DO UPDATE SET callback = excluded.callback, secret = excluded.secret",
                name=broker.name,
                callback=broker.callback,
                secret=broker.secret,
            )
        self.changes += 1

    def brokers(self) -> list[Broker]:
        """Return all brokers by name."""
        found = self._database.query("SELECT name, callback, secret FROM brokers ORDER BY name")
        return [Broker(*row) for row in found]

    def broker(self, name: str) -> Broker | None:
        """Return one broker by its name."""
        found = self._database.query("SELECT name, callback, secret FROM brokers WHERE name = :name", name=name)
        return Broker(*found[0]) if found else None

    def remove_broker(self, broker: str) -> list[BackendSubscription]:
        """Remove a broker with its subscriptions and outbox; return the subscriptions."""
        with self._database.writing() as transaction:
            transaction.lock_row("brokers", broker, "remove")
            transaction.run("DELETE FROM deliveries WHERE broker = :name", name=broker)
            dropped = drop_subscriptions(transaction, "u.broker = :broker", broker=broker)
            transaction.run("DELETE FROM brokers WHERE name = :name", name=broker)
        self.changes += 1
        return dropped

    def due(self, broker: str, limit: int = 1) -> list[OutboxEntry]:
        """Return the oldest unanswered entries of a broker, in order."""
        statement = f"{_ENTRIES} WHERE broker = :broker AND answered_ms IS NULL ORDER BY id LIMIT :limit"
        return [OutboxEntry(*row) for row in self._database.query(statement, broker=broker, limit=limit)]

    def results(self, entry: OutboxEntry, limit: int, most_bytes: int) -> list[AnnouncedResult]:
        """Return the first results that an entry announces, by stream and position; none for a summary.

        The result is left out if its payload is larger than `most_bytes`.
        """
        found = self._database.query(
            _RESULTS, number=entry.execution or 0, broker=entry.broker, limit=limit, most_bytes=most_bytes
        )
        announced = []
        for name, frontends, position, at_ms, publication, page_id, size, payload in found:
            page = None if page_id is None else AttachedPage(page_id, size)
            result = (
                None
                if payload is None
                else StreamResult(position, at_ms, msgspec.Raw(payload.encode()), publication, page)
            )
            announced.append(AnnouncedResult(name, frontends, position, page, result))
        return announced

    def advances(self, entry: OutboxEntry) -> Iterator[StreamAdvance]:
        """Return how far an entry advances each subscription of its broker.

        For a summary: all of its subscriptions whose streams have results, with their heads.
        """
        if entry.execution is not None:
            return self._execution_advances(entry)
        return self._summary(entry.broker) if entry.channel is None else iter(())

    def _summary(self, broker: str) -> Iterator[StreamAdvance]:
        statement = (
            "SELECT u.id, s.floor + 1, s.head FROM subscriptions u JOIN streams s ON s.id = u.stream "
            "WHERE u.broker = :broker AND u.id > :after AND s.head > 0 ORDER BY u.id LIMIT :limit"
        )
        return (StreamAdvance(*row) for row in self._database.scan(statement, broker=broker, after=""))

    def _execution_advances(self, entry: OutboxEntry) -> Iterator[StreamAdvance]:
        statement = "SELECT first_row, last_row FROM executions WHERE number = :number"
        rows = self._database.query(statement, number=entry.execution)
        first, last = rows[0] if rows else (1, 0)
        pending: StreamAdvance | None = None
        # Ids lie in the order of streams: a stream that ends one slice may begin the next.
        for start in range(first, last + 1, CHUNK):
            found = self._database.query(
                _ADVANCES, broker=entry.broker, first=start, last=min(last, start + CHUNK - 1)
            )
            for name, lowest, highest in found:
                if pending is not None and pending.subscription == name:
                    pending = StreamAdvance(name, pending.first, highest)
                    continue
                if pending is not None:
                    yield pending
                pending = StreamAdvance(name, lowest, highest)
        if pending is not None:
            yield pending

    def matched_pages(self, entry: OutboxEntry) -> list[PageOffer]:
        """Return the pages that the entry's execution matched for its broker; none for a summary."""
        found = self._database.query(_MATCHED_PAGES, number=entry.execution or 0, broker=entry.broker)
        # The sum of bigints is a decimal in PostgreSQL.
        return [PageOffer(page, size, int(subscriptions)) for page, size, subscriptions in found]

    def count_attempt(self, entry: int) -> None:
        """Count an attempt without an answer."""
        with self._database.writing() as transaction:
            transaction.run("UPDATE deliveries SET attempts = attempts + 1 WHERE id = :id", id=entry)

    def mark_answered(self, entry: int, now_ms: int) -> None:
        """Record the broker's answer to an entry."""
        with self._database.writing() as transaction:
            statement = "UPDATE deliveries SET answered_ms = :now_ms WHERE id = :id AND answered_ms IS NULL"
            transaction.run(statement, id=entry, now_ms=now_ms)

    def is_away(self, broker: str) -> bool:
        """Return whether a broker is marked away."""
        return self._database.query("SELECT away FROM brokers WHERE name = :name", name=broker) == [(1,)]

    def mark_away(self, broker: str) -> None:
        """Mark a broker away: empty its outbox, and add nothing to it until the broker returns."""
        with self._database.writing() as transaction:
            transaction.run("UPDATE brokers SET away = 1 WHERE name = :name", name=broker)
            transaction.run("DELETE FROM deliveries WHERE broker = :name AND answered_ms IS NULL", name=broker)

    def mark_back(self, broker: str, now_ms: int) -> None:
        """End an absence: the broker's outbox gets one entry, the summary."""
        with self._database.writing() as transaction:
            if transaction.run("UPDATE brokers SET away = 0 WHERE name = :name AND away = 1", name=broker):
                statement = "INSERT INTO deliveries (broker, at_ms) VALUES (:name, :now_ms)"
                transaction.run(statement, name=broker, now_ms=now_ms)

    def entries(self, execution: int) -> list[OutboxEntry]:
        """Return all entries of an execution, answered or not; answered ones are removed after a day."""
        found = self._database.query(f"{_ENTRIES} WHERE execution = :number ORDER BY id", number=execution)
        return [OutboxEntry(*row) for row in found]
