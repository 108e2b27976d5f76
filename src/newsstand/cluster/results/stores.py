"""The stores of results over one database, and batched reads through them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from newsstand.cluster.results.executions import ResultStore
from newsstand.cluster.results.model import FEW, ResultDatabase
from newsstand.cluster.results.outbox import NotificationOutbox
from newsstand.cluster.results.retention import CleanupLimits, ResultCleaner
from newsstand.cluster.results.subscriptions import SubscriptionStore
from newsstand.errors import ResultsExpired
from newsstand.wire.cluster import MOST_RESULTS, StreamPage, StreamRange, StreamResult

MAX_READ_BYTES = 8 * 1024 * 1024
"""Bytes of payloads that one batched read returns."""


class ResultStores:
    """Subscriptions, results, outboxes and retention in one database, for any number of threads."""

    def __init__(
        self,
        database: ResultDatabase,
        few: int = FEW,
        cleanup: CleanupLimits = CleanupLimits(),  # noqa: B008
    ) -> None:
        self.database = database
        self.subscriptions = SubscriptionStore(database)
        self.results = ResultStore(database, few)
        self.outbox = NotificationOutbox(database)
        self.cleaner = ResultCleaner(database, cleanup)

    def read_all(self, broker: str, ranges: Sequence[StreamRange]) -> list[StreamPage[StreamResult]]:
        """Return a page for each range of the broker's own subscriptions, in order; others are left out."""
        extents = self.subscriptions.extents(broker, [one.subscription for one in ranges])
        pages: list[StreamPage[StreamResult]] = []
        count, size = MOST_RESULTS, MAX_READ_BYTES
        for one in ranges:
            extent = extents.get(one.subscription)
            if extent is None:
                continue
            results: list[StreamResult] = []
            if one.limit and count > 0 and size > 0 and extent.head > one.after:
                try:
                    results = self.results.read(extent.stream, one.after, one.until, min(one.limit, count))
                except ResultsExpired:
                    results = []  # the page's `earliest` says so
                count -= len(results)
                size -= sum(len(result.payload) for result in results)
            pages.append(StreamPage(one.subscription, results, extent.head, extent.earliest, extent.suspended))
        return pages

    def check(self) -> None:
        """Raise an error if the database cannot be read or written."""
        self.database.check()

    def close(self) -> None:
        """Close all connections."""
        self.database.close()


def open_results(place: str, folder: Path) -> ResultStores:
    """Open the result stores in a data folder, for `sqlite`, or in the PostgreSQL database at a URL."""
    if place == "sqlite":
        from newsstand.cluster.results.database_sqlite import SqliteResultDatabase

        return ResultStores(SqliteResultDatabase(folder / "results.sqlite"))
    from newsstand.cluster.results.database_postgres import PostgresResultDatabase

    return ResultStores(PostgresResultDatabase(place))
