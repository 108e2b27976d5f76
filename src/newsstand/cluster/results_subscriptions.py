"""Streams and the subscriptions that share them, in the SQL that SQLite and PostgreSQL share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any

from newsstand.cluster.results import Standing
from newsstand.cluster.results_tables import CHUNK, SqlStore, Transaction
from newsstand.cluster.subscription_ids import canonical_texts, subscription_ids
from newsstand.errors import NotFound
from newsstand.model import Subscription, Values

_SUBSCRIPTIONS = (
    "SELECT u.id, s.channel, s.vals, u.broker, u.stream, u.frontends FROM subscriptions u JOIN streams s "
    "ON s.id = u.stream"
)
"""A query of whole subscriptions, to be continued."""


NAMED = 500
"""Subscriptions that are named in one query."""


class SubscriptionsInSql(SqlStore):
    """Who subscribes to what."""

    def subscribe_all(self, broker: str, wanted: Mapping[str, Mapping[Values, int]]) -> list[Subscription]:
        asked: list[tuple[object, ...]] = []
        made: list[str] = []
        for channel, counts in wanted.items():
            texts = canonical_texts(counts)
            names = subscription_ids(channel, texts, broker)
            made += names
            asked += [
                (name, channel, text, blake2b(text.encode(), digest_size=16).digest(), frontends)
                for name, text, frontends in zip(names, texts, counts.values(), strict=True)
            ]
        with self._writing() as transaction:
            self._require(transaction, "broker", broker)
            for channel in sorted(wanted):
                self._require(transaction, "channel", channel)
            transaction.ask(asked)
            # In order, so that two calls that make the same streams wait for each other and not both.
            transaction.run(
                "INSERT INTO streams (channel, digest, vals) SELECT channel, digest, vals FROM asked WHERE true "
                "ORDER BY channel, digest ON CONFLICT (channel, digest) DO NOTHING"
            )
            streams = dict(
                transaction.rows(
                    "INSERT INTO subscriptions (id, stream, broker, frontends) "
                    "SELECT a.id, s.id, cast(:broker AS text), a.number FROM asked a JOIN streams s "
                    "ON s.channel = a.channel AND s.digest = a.digest WHERE true ORDER BY a.id "
                    "ON CONFLICT (id) DO UPDATE SET frontends = excluded.frontends RETURNING id, stream",
                    broker=broker,
                )
            )
        each = ((channel, values, number) for channel, of in wanted.items() for values, number in of.items())
        return [
            Subscription(name, channel, values, broker, streams[name], frontends)
            for name, (channel, values, frontends) in zip(made, each, strict=True)
        ]

    def _require(self, transaction: Transaction, table: str, name: str) -> None:
        """Refuse what is not known; what is stays until the end of the transaction."""
        kept = self._kept(f"{table}s")
        if not transaction.rows(f"SELECT 1 FROM {table}s WHERE name = :name{kept}", name=name):
            raise NotFound(f"no {table} '{name}' is known; create it before you subscribe")

    def unsubscribe(self, broker: str, subscriptions: Sequence[str]) -> list[Subscription]:
        with self._writing() as transaction:
            transaction.ask((name, None, None, None, None) for name in dict.fromkeys(subscriptions))
            return self._drop(transaction, "u.broker = :broker AND u.id IN (SELECT id FROM asked)", broker=broker)

    def _drop(self, transaction: Transaction, which: str, **given: object) -> list[Subscription]:
        query = f"{_SUBSCRIPTIONS} WHERE {which} ORDER BY u.id{self._lock('u')}"
        dropped = [_subscription(row) for row in transaction.rows(query, **given)]
        transaction.run(f"DELETE FROM subscriptions AS u WHERE {which}", **given)
        # Values that nobody subscribes to any more are tried again if somebody does.
        transaction.run(
            "DELETE FROM suspensions WHERE NOT EXISTS "
            "(SELECT 1 FROM subscriptions u WHERE u.stream = suspensions.stream)"
        )
        return dropped

    def subscription(self, subscription: str) -> Subscription | None:
        with self._reading() as transaction:
            found = transaction.rows(f"{_SUBSCRIPTIONS} WHERE u.id = :id", id=subscription)
        return _subscription(found[0]) if found else None

    def standings(self, broker: str, subscriptions: Sequence[str]) -> dict[str, Standing]:
        found: dict[str, Standing] = {}
        with self._reading() as transaction:
            for first in range(0, len(subscriptions), NAMED):
                names = {f"id{number}": one for number, one in enumerate(subscriptions[first : first + NAMED])}
                rows = transaction.rows(
                    "SELECT u.id, s.id, s.floor + 1, s.head FROM subscriptions u "
                    "JOIN streams s ON s.id = u.stream "
                    f"WHERE u.broker = :broker AND u.id IN ({', '.join(f':{name}' for name in names)})",
                    broker=broker,
                    **names,
                )
                found.update((name, Standing(*standing)) for name, *standing in rows)
        return found

    def subscriptions(
        self, broker: str | None = None, channel: str | None = None, after: str = "", limit: int | None = None
    ) -> Iterator[Subscription]:
        which = "".join(
            f" AND {column} = :{column.partition('.')[2]}"
            for column, name in (("u.broker", broker), ("s.channel", channel))
            if name
        )
        query = f"{_SUBSCRIPTIONS} WHERE u.id > :after{which} ORDER BY u.id LIMIT :limit"
        while limit is None or limit > 0:
            size = CHUNK if limit is None else min(CHUNK, limit)
            with self._reading() as transaction:
                rows = transaction.rows(query, after=after, broker=broker, channel=channel, limit=size)
            yield from map(_subscription, rows)
            if len(rows) < size:
                return
            after = rows[-1][0]
            limit = None if limit is None else limit - size

    def active_streams(self, channel: str, among: Sequence[int] | None = None) -> Iterator[tuple[int, Values]]:
        wanted = (
            "s.channel = :channel AND EXISTS (SELECT 1 FROM subscriptions u WHERE u.stream = s.id) "
            "AND NOT EXISTS (SELECT 1 FROM suspensions x WHERE x.stream = s.id)"
        )
        query = f"SELECT s.id, s.vals FROM streams s WHERE {wanted}"
        if among is not None:
            each = iter(sorted(set(among)))
            while chunk := list(islice(each, CHUNK)):
                with self._reading() as transaction:
                    transaction.ask((None, None, None, None, stream) for stream in chunk)
                    rows = transaction.rows(
                        f"{query} AND s.id IN (SELECT number FROM asked) ORDER BY s.id", channel=channel
                    )
                yield from ((stream, tuple(json.loads(text))) for stream, text in rows)
            return
        after = 0
        while True:
            with self._reading() as transaction:
                rows = transaction.rows(
                    f"{query} AND s.id > :after ORDER BY s.id LIMIT :limit",
                    channel=channel,
                    after=after,
                    limit=CHUNK,
                )
            yield from ((stream, tuple(json.loads(text))) for stream, text in rows)
            if len(rows) < CHUNK:
                return
            after = rows[-1][0]

    def count_subscriptions(self, channel: str) -> tuple[int, int]:
        with self._reading() as transaction:
            ((subscriptions, streams),) = transaction.rows(
                "SELECT coalesce(sum(many), 0), count(*) FROM (SELECT count(*) AS many FROM streams s "
                "JOIN subscriptions u ON u.stream = s.id WHERE s.channel = :channel GROUP BY s.id) AS each",
                channel=channel,
            )
        return int(subscriptions), streams


def _subscription(row: tuple[Any, ...]) -> Subscription:
    """The subscription that a row of _SUBSCRIPTIONS says."""
    name, channel, text, broker, stream, frontends = row
    return Subscription(name, channel, tuple(json.loads(text)), broker, stream, frontends)
