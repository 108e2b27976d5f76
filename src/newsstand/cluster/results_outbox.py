"""Brokers and their outboxes, in the SQL that SQLite and PostgreSQL share."""

from __future__ import annotations

from collections.abc import Iterator

from newsstand.cluster.results import Delivery, Moved, WantedPage
from newsstand.cluster.results_subscriptions import SubscriptionsInSql
from newsstand.cluster.results_tables import CHUNK
from newsstand.model import Broker, Subscription

_DELIVERIES = "SELECT id, broker, execution, channel, at_ms, attempts, told_ms FROM deliveries"


class OutboxInSql(SubscriptionsInSql):
    """Whom to tell of what."""

    def register(self, broker: Broker) -> None:
        with self._writing() as transaction:
            transaction.run(
                "INSERT INTO brokers (name, callback, secret) VALUES (:name, :callback, :secret) "
                "ON CONFLICT (name) DO UPDATE SET callback = excluded.callback, secret = excluded.secret",
                name=broker.name,
                callback=broker.callback,
                secret=broker.secret,
            )

    def brokers(self) -> list[Broker]:
        with self._reading() as transaction:
            found = transaction.rows("SELECT name, callback, secret FROM brokers ORDER BY name")
        return [Broker(*row) for row in found]

    def broker(self, name: str) -> Broker | None:
        with self._reading() as transaction:
            found = transaction.rows("SELECT name, callback, secret FROM brokers WHERE name = :name", name=name)
        return Broker(*found[0]) if found else None

    def dismiss(self, broker: str) -> list[Subscription]:
        with self._writing() as transaction:
            transaction.rows(f"SELECT 1 FROM brokers WHERE name = :name{self._going('brokers')}", name=broker)
            transaction.run("DELETE FROM deliveries WHERE broker = :name", name=broker)
            dropped = self._drop(transaction, "u.broker = :broker", broker=broker)
            transaction.run("DELETE FROM brokers WHERE name = :name", name=broker)
        return dropped

    def due(self, broker: str, limit: int = 1) -> list[Delivery]:
        with self._reading() as transaction:
            found = transaction.rows(
                f"{_DELIVERIES} WHERE broker = :broker AND told_ms IS NULL ORDER BY id LIMIT :limit",
                broker=broker,
                limit=limit,
            )
        return [Delivery(*row) for row in found]

    def moved(self, delivery: Delivery) -> Iterator[Moved]:
        if delivery.execution is not None:
            return self._moved_by(delivery)
        return self._summary(delivery.broker) if delivery.channel is None else iter(())

    def _summary(self, broker: str) -> Iterator[Moved]:
        after = ""
        while True:
            with self._reading() as transaction:
                found = transaction.rows(
                    "SELECT u.id, s.floor + 1, s.head FROM subscriptions u JOIN streams s ON s.id = u.stream "
                    "WHERE u.broker = :broker AND u.id > :after AND s.head > 0 ORDER BY u.id LIMIT :limit",
                    broker=broker,
                    after=after,
                    limit=CHUNK,
                )
            yield from (Moved(*row) for row in found)
            if len(found) < CHUNK:
                return
            after = found[-1][0]

    def _moved_by(self, delivery: Delivery) -> Iterator[Moved]:
        with self._reading() as transaction:
            rows = transaction.rows(
                "SELECT first_row, last_row FROM executions WHERE number = :number", number=delivery.execution
            )
        first, last = rows[0] if rows else (1, 0)
        pending: Moved | None = None
        # Ids lie in the order of streams: a stream that a slice ends in goes on at the start of the next.
        for start in range(first, last + 1, CHUNK):
            with self._reading() as transaction:
                found = transaction.rows(
                    "SELECT u.id, min(r.position), max(r.position) FROM results r JOIN subscriptions u "
                    "ON u.stream = r.stream AND u.broker = :broker WHERE r.id BETWEEN :first AND :last "
                    "GROUP BY u.id, r.stream ORDER BY r.stream",
                    broker=delivery.broker,
                    first=start,
                    last=min(last, start + CHUNK - 1),
                )
            for name, lowest, highest in found:
                if pending is not None and pending.subscription == name:
                    pending = Moved(name, pending.first, highest)
                    continue
                if pending is not None:
                    yield pending
                pending = Moved(name, lowest, highest)
        if pending is not None:
            yield pending

    def wanted_pages(self, delivery: Delivery) -> Iterator[WantedPage]:
        with self._reading() as transaction:
            found = transaction.rows(
                "SELECT p.page_id, max(p.size), sum(u.frontends) FROM (SELECT r.page_id, r.stream, "
                "max(coalesce(r.page_size, 0)) AS size FROM executions e JOIN results r ON r.id BETWEEN "
                "e.first_row AND e.last_row WHERE e.number = :number AND r.page_id IS NOT NULL "
                "GROUP BY r.page_id, r.stream) AS p "
                "JOIN subscriptions u ON u.stream = p.stream AND u.broker = :broker "
                "GROUP BY p.page_id ORDER BY p.page_id",
                number=delivery.execution or 0,
                broker=delivery.broker,
            )
        # PostgreSQL adds up bigints to a decimal.
        yield from (WantedPage(page, size, int(subscriptions)) for page, size, subscriptions in found)

    def attempted(self, delivery: int) -> None:
        with self._writing() as transaction:
            transaction.run("UPDATE deliveries SET attempts = attempts + 1 WHERE id = :id", id=delivery)

    def told(self, delivery: int, now_ms: int) -> None:
        with self._writing() as transaction:
            transaction.run(
                "UPDATE deliveries SET told_ms = :now_ms WHERE id = :id AND told_ms IS NULL",
                id=delivery,
                now_ms=now_ms,
            )

    def away(self, broker: str) -> bool:
        with self._reading() as transaction:
            return transaction.rows("SELECT away FROM brokers WHERE name = :name", name=broker) == [(1,)]

    def mark_away(self, broker: str) -> None:
        with self._writing() as transaction:
            transaction.run("UPDATE brokers SET away = 1 WHERE name = :name", name=broker)
            transaction.run("DELETE FROM deliveries WHERE broker = :name AND told_ms IS NULL", name=broker)

    def mark_back(self, broker: str, now_ms: int) -> None:
        with self._writing() as transaction:
            if transaction.run("UPDATE brokers SET away = 0 WHERE name = :name AND away = 1", name=broker):
                transaction.run(
                    "INSERT INTO deliveries (broker, at_ms) VALUES (:name, :now_ms)", name=broker, now_ms=now_ms
                )

    def deliveries(self, execution: int) -> list[Delivery]:
        with self._reading() as transaction:
            found = transaction.rows(f"{_DELIVERIES} WHERE execution = :number ORDER BY id", number=execution)
        return [Delivery(*row) for row in found]
