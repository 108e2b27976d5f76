"""Datasets and channels: made, changed and dropped while the cluster runs; where they stand, what they cost."""

from __future__ import annotations

import time
from collections.abc import Sequence

from newsstand.cluster.body import parse_body
from newsstand.cluster.cluster_parts import ClusterParts
from newsstand.cluster.dry_run import Recorded, dry_run, explanation
from newsstand.cluster.facade import Facts
from newsstand.cluster.matching import check_body
from newsstand.cluster.value_risks import warnings_of
from newsstand.model import Channel, Dataset, Values


class Definitions(ClusterParts):
    """What is matched with what."""

    def datasets(self) -> list[Dataset]:
        """All datasets by name."""
        return [one for _, one in sorted(self.catalog.datasets().items())]

    def dataset(self, name: str) -> Dataset:
        """One dataset; raise NotFound."""
        return self.catalog.dataset(name)

    def put_dataset(self, dataset: Dataset, *, only_new: bool = False) -> Dataset | None:
        """Add a dataset, or change one; channels that read it see its new fields at their next execution."""
        with self._changing:
            before = self.catalog.put_dataset(dataset, only_new=only_new)
            self._tables.forget_dataset(dataset.name)
            for channel in self.catalog.channels().values():
                running = self._engine.running(channel.name)
                if running is not None and dataset.name in running.datasets:
                    self._run(channel)
            return before

    def drop_dataset(self, name: str) -> None:
        """Drop a dataset that no channel reads. What was published to it stays in the log."""
        with self._changing:
            self.catalog.drop_dataset(name)
            self._doors.pop(name, None)
            self._tables.forget_dataset(name)
            self._keyed.forget(name)
            self.metrics.forget_dataset(name)

    def channels(self) -> list[Channel]:
        """All channels by name."""
        return [one for _, one in sorted(self.catalog.channels().items())]

    def channel(self, name: str) -> Channel:
        """One channel; raise NotFound."""
        return self.catalog.channel(name)

    def put_channel(self, channel: Channel, *, only_new: bool = False) -> Channel | None:
        """Add a channel, or change one, if Spark can analyse its query. It begins with what is published next."""
        while True:
            # Spark takes seconds, for which nobody is to wait; whether what it saw still holds is looked at below.
            datasets = self.catalog.datasets()
            body = parse_body(channel, datasets)
            read = {name: datasets[name] for name in {channel.new, *body.stored}}
            check_body(self._spark, body, datasets)
            with self._changing:
                now = self.catalog.datasets()
                if {name: now.get(name) for name in read} == read:
                    before = self.catalog.put_channel(channel, only_new=only_new)
                    self._run(channel)
                    return before

    def warnings(self, channel: Channel) -> list[str]:
        """The parameters of a channel that have values on which its query fails."""
        datasets = self.catalog.datasets()
        return warnings_of(self._spark, parse_body(channel, datasets), datasets)

    def drop_channel(self, name: str) -> None:
        """Drop a channel with its subscriptions and results."""
        with self._changing:
            channel = self.catalog.channel(name)
            self._engine.leave(name)
            self._tables.forget_channel(name)
            try:
                # The catalog last: a channel that is half dropped is still there, and can be dropped again.
                self._results.forget(name)
                self.catalog.drop_channel(name)
            except Exception:
                self._run(channel)
                raise
            self.metrics.forget_channel(name)
            self._counts.pop(name, None)

    def channel_status(self, name: str) -> Facts:
        """Where a channel stands."""
        channel = self.catalog.channel(name)
        running = self._engine.running(name)
        position = self._results.position(name) or 0
        subscriptions, streams = self._results.count_subscriptions(name)
        failure = running.failure if running else None
        began = running.began if running else None
        return {
            "position": position,
            "lag": max(0, self._log.head(channel.new) - position),
            "subscriptions": subscriptions,
            "streams": streams,
            "suspended": len(self._results.suspensions(name)),
            "last_seconds": round(running.seconds, 4) if running else None,
            "executing_seconds": None if began is None else round(time.monotonic() - began, 4),
            "failing": failure
            and {"error": failure.error, "since_ms": failure.since_ms, "attempts": failure.attempts},
        }

    def suspensions(self, name: str) -> list[Facts]:
        """The streams that executions of a channel leave out, and why."""
        self.catalog.channel(name)
        return [
            {
                "number": one.stream,
                "values": list(one.values),
                "error": one.error,
                "since_ms": one.since_ms,
                "after": one.after,
                "subscriptions": one.subscriptions,
            }
            for one in self._results.suspensions(name)
        ]

    def resume(self, name: str) -> int:
        """Execute the suspended streams of a channel again, from the next publications on; say how many."""
        with self._changing:
            channel = self.catalog.channel(name)
            resumed = self._results.resume(name, self._now_ms())
            if resumed:
                self._tables.unsubscribed(channel, resumed)
                self.notifier.wake()
        return len(resumed)

    def explain(self, name: str) -> Facts:
        """What a channel costs, what it shares with others, and what it would make of recent publications."""
        channel = self.catalog.channel(name)
        datasets = self.catalog.datasets()
        subscriptions, streams = self._results.count_subscriptions(name)
        facts: Facts = {
            "channel": name,
            "subscriptions": subscriptions,
            "streams": streams,
            "runs_with": self._engine.companions(name),
            "last_seconds": self.channel_status(name)["last_seconds"],
        }
        recorded = Recorded(self._spark, self._log, self._tables.stored, datasets)
        return facts | explanation(recorded, channel, self._tables.values(channel).frame())

    def try_channel(self, channel: Channel, values: Sequence[Values], after: int, until: int | None) -> Facts:
        """What a channel would have produced for these values over recorded publications; nothing is stored."""
        recorded = Recorded(self._spark, self._log, self._tables.stored, self.catalog.datasets())
        return dry_run(recorded, channel, values, after, until)
