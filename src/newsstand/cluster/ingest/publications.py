"""Publications: validated, made durable in the log, and audited afterwards; with the pages that they carry.

The audit of a publication reports which channels evaluated it, and which streams and brokers it reached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from newsstand.cluster.catalog import Catalog
from newsstand.cluster.ingest.validator import RecordFormat, RecordValidator
from newsstand.cluster.log.contract import Log, LostRange
from newsstand.cluster.matching.scheduler import Scheduler
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.pages.store import PageStore
from newsstand.cluster.results.stores import ResultStores
from newsstand.errors import Busy, NotFound
from newsstand.model import ChannelDefinition, JsonObject
from newsstand.wire.cluster import Receipt

MAX_STREAMS = 1000
"""Streams that an audit lists; it counts all of them."""


class _AuditedLine(msgspec.Struct):
    page: dict[str, object] | None = msgspec.field(default=None, name="_page")


@dataclass(eq=False)
class Publications:
    """The ingest service. Methods block and may be called from several threads."""

    catalog: Catalog
    log: Log
    stores: ResultStores
    scheduler: Scheduler
    pages: PageStore
    metrics: Metrics
    now_ms: Callable[[], int]
    max_lag: int
    max_bytes_in_flight: int
    """Bytes of bodies that are validated and written at any moment; further publishers have to retry."""

    def __post_init__(self) -> None:
        self._validator = lru_cache(maxsize=1024)(lambda dataset: RecordValidator(dataset, self.pages.max_bytes))
        self._bytes_in_flight = 0
        self._lock = threading.Lock()

    def publish(
        self, dataset: str, body: bytes, format: RecordFormat, key: str | None, publisher: str | None = None
    ) -> Receipt:
        """Validate the records of a body and append the valid ones; they are durable when this returns.

        `key` is an idempotency key of this publisher.
        """
        validator = self._validator(self.catalog.dataset(dataset))
        self._require_keeping_up(dataset)
        with self._counted(len(body)):
            records = validator.validate(body, format)
            for page in records.pages:
                self.pages.store(page)
            if not records.lines:
                self.metrics.published(dataset, 0, len(records.rejected))
                return Receipt(0, None, None, records.rejected)
            appended = self.log.append(dataset, records.lines, self.now_ms(), key, publisher)
        if not appended.repeated:
            self.metrics.published(dataset, len(records.lines), len(records.rejected))
        accepted = appended.last - appended.first + 1
        return Receipt(accepted, appended.first, appended.last, records.rejected, appended.repeated)

    def audit(self, dataset: str, seq: int) -> JsonObject:
        """Return when a publication was accepted, and its state in each channel that reads its dataset.

        Of a publication that the log has lost, only executions before the loss have seen it. Raise NotFound if it
        was never accepted.
        """
        entry = next(self.log.read(self.catalog.dataset(dataset).name, seq - 1, seq), None)
        lost = self.log.lost_range(dataset, seq) if entry is None else None
        channels = [self._state_in(one, seq) for one in self.catalog.channels().values() if one.new == dataset]
        if entry is not None:
            page = msgspec.json.decode(entry.line, type=_AuditedLine).page
            accepted: JsonObject = {"publication": seq, "accepted_at_ms": entry.at_ms, "page": page}
            return accepted | {"channels": channels}
        if lost is None:
            raise NotFound(f"dataset '{dataset}': no publication {seq}; the newest is {self.log.head(dataset)}")
        return {
            "publication": seq,
            "lost": {"first": lost.first, "last": lost.last, "at_ms": lost.at_ms, "why": lost.why},
            "channels": [_unless_lost(state, lost) for state in channels],
        }

    def _state_in(self, channel: ChannelDefinition, seq: int) -> JsonObject:
        """Return the state of a publication in one channel."""
        facts: JsonObject = {"channel": channel.name}
        results, running = self.stores.results, self.scheduler.running(channel.name)
        executed = results.executions(channel.name, limit=1, publication=seq)
        if not executed:
            position = results.position(channel.name)
            if position is not None and seq <= position:
                return facts | {"state": "published before the channel began"}
            if running is not None and (failure := running.failure) is not None:
                return facts | {"state": "failing", "error": failure.error, "since_ms": failure.since_ms}
            return facts | {"state": "waiting", "behind": seq - (position or 0)}
        execution = executed[0]
        reached = results.reached(execution.number, seq)
        return facts | {
            "state": "evaluated",
            "execution": execution.number,
            "at_ms": execution.at_ms,
            "results_of_execution": execution.results,
            "reached": len(reached),
            "streams": [{"stream": stream, "position": position} for stream, position in reached[:MAX_STREAMS]],
            "brokers": [
                {"broker": one.broker, "attempts": one.attempts, "answered_at_ms": one.answered_ms}
                for one in self.stores.outbox.entries(execution.number)
            ],
        }

    def _require_keeping_up(self, dataset: str) -> None:
        """Raise Busy if a channel that does not fail is too far behind the dataset."""
        head = self.log.head(dataset)
        for name, channel in self.catalog.channels().items():
            if channel.new == dataset and head - (self.stores.results.position(name) or 0) > self.max_lag:
                running = self.scheduler.running(name)
                if running is not None and running.failure is None:
                    raise Busy(f"channel '{name}' is more than {self.max_lag} publications behind", 2.0)

    @contextmanager
    def _counted(self, size: int) -> Iterator[None]:
        with self._lock:
            if self._bytes_in_flight and self._bytes_in_flight + size > self.max_bytes_in_flight:
                raise Busy("too many bytes are being published at once", 1.0)
            self._bytes_in_flight += size
        try:
            yield
        finally:
            with self._lock:
                self._bytes_in_flight -= size


def _unless_lost(facts: JsonObject, lost: LostRange) -> JsonObject:
    at_ms = facts.get("at_ms")
    seen = isinstance(at_ms, int) and at_ms <= lost.at_ms
    before = facts["state"] == "published before the channel began"
    return facts if seen or before else {"channel": facts["channel"], "state": "lost"}
