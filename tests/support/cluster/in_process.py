"""A data cluster in the process of the test, whose appends a test can delay."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from newsstand.cluster.app_folder import App, read_app
from newsstand.cluster.log.contract import AppendResult
from newsstand.cluster.log.files.log import FileLog
from newsstand.cluster.query.parser import parse_channel
from newsstand.cluster.results.stores import open_results
from newsstand.cluster.service import ClusterLimits, DataCluster
from newsstand.model import BackendSubscription
from support.waiting import eventually

NOWHERE = "http://127.0.0.1:9/"


Record = dict[str, object]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class HeldLog(FileLog):
    """A log whose appends wait while `held` is set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.free = threading.Event()
        self.free.set()
        self.entered = threading.Event()

    def append(
        self,
        dataset: str,
        lines: Sequence[bytes],
        at_ms: int,
        key: str | None = None,
        publisher: str | None = None,
    ) -> AppendResult:
        self.entered.set()
        assert self.free.wait(30)
        return super().append(dataset, lines, at_ms, key, publisher)


class ClusterUnderTest:
    """A running cluster, with shortcuts for tests."""

    def __init__(self, app: App, spark: SparkSession, limits: ClusterLimits) -> None:
        app.data.mkdir(exist_ok=True)
        self.log = HeldLog(app.data / "log")
        self.stores = open_results(app.cluster.results, app.data)
        self.cluster = DataCluster(app, spark, self.log, self.stores, app.data, now_ms, limits)

    def publish(self, *records: Record, dataset: str = "reports") -> int:
        """Publish records; return the number of the last one."""
        receipt = self.cluster.publications.publish(dataset, json.dumps(records).encode(), "json", None)
        assert receipt.rejected == []
        assert receipt.last is not None
        return receipt.last

    def settle(self) -> None:
        """Wait until every channel that does not fail has seen all publications."""

        def settled() -> bool:
            states = [
                self.cluster.definitions.channel_status(one.name)
                for one in self.cluster.catalog.channels().values()
            ]
            return all(state["lag"] == 0 or state["failing"] for state in states)

        eventually(settled)

    def subscribe(
        self, channel: str, *kinds: str, broker: str = "north", frontends: int = 1
    ) -> list[BackendSubscription]:
        if broker not in {one.name for one in self.cluster.subscriptions.brokers()}:
            self.cluster.subscriptions.register_broker(broker, NOWHERE)
        return self.cluster.subscriptions.subscribe(
            broker, [(channel, {"kind": kind}, frontends) for kind in kinds]
        )

    def payloads(self, subscription: BackendSubscription) -> list[Record]:
        self.settle()
        found = self.cluster.subscriptions.read(subscription.id, 0, None, 1000)
        assert [one.position for one in found] == list(range(1, len(found) + 1))
        return [json.loads(bytes(one.payload)) for one in found]

    def define(self, name: str, **table: object) -> None:
        datasets = self.cluster.catalog.datasets()
        self.cluster.definitions.put_channel(
            parse_channel(name, {"parameters": {"kind": "string"}, **table}, datasets, {})
        )

    def state(self, seq: int, channel: str) -> Record:
        listed = self.cluster.publications.audit("reports", seq).facts["channels"]
        assert isinstance(listed, list)
        (state,) = [one for one in listed if one["channel"] == channel]
        return dict(state)


@contextmanager
def opened(
    folder: Path,
    text: str,
    spark: SparkSession,
    limits: ClusterLimits = ClusterLimits(),  # noqa: B008  it is frozen
    warm_up_s: float = 0.0,
) -> Iterator[ClusterUnderTest]:
    (folder / "newsstand.toml").write_text(text)
    one = ClusterUnderTest(read_app(folder), spark, limits)
    one.cluster.start(warm_up_s)
    try:
        yield one
    finally:
        one.cluster.stop()
        one.stores.close()
        one.log.close()
