"""Publications: validated, made durable in the log, and audited afterwards; with the pages that they carry.

The audit of a publication reports which channels evaluated it, which streams and brokers it reached, when each
stage ended, and what the brokers report.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from newsstand.cluster.catalog import Catalog
from newsstand.cluster.ingest.validator import RecordFormat, RecordValidator
from newsstand.cluster.log.contract import Log, LostRange
from newsstand.cluster.matching.scheduler import Scheduler
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.pages.store import PageStore
from newsstand.cluster.results.stores import ResultStores
from newsstand.cluster.stages import DeliveryReports
from newsstand.errors import Busy, NotFound
from newsstand.model import Broker, ChannelDefinition, JsonObject
from newsstand.wire.cluster import Receipt
from newsstand.wire.notifications import MOST_DELIVERIES, DeliveryReport, StreamDelivery, StreamPosition

MAX_STREAMS = 1000
"""Streams that an audit lists; it counts all of them."""


class _AuditedLine(msgspec.Struct):
    page: dict[str, object] | None = msgspec.field(default=None, name="_page")


@dataclass(frozen=True)
class _ChannelAudit:
    """The state of a publication in one channel, the facts about each broker in it, and where results went."""

    facts: JsonObject
    brokers: Sequence[JsonObject] = ()
    deliveries: Sequence[tuple[int, int, str, str]] = ()
    """Stream, position, subscription and broker of each result."""
    queued_ms: int | None = None
    """When the execution on the publication began, if it is known."""


@dataclass(frozen=True)
class PublicationAudit:
    """What the cluster knows of a publication, and what its brokers are asked for."""

    facts: JsonObject
    asked: Mapping[Broker, Sequence[StreamPosition]] = field(default_factory=dict)
    channels: Sequence[_ChannelAudit] = ()

    def add_reports(self, reports: Mapping[str, DeliveryReport | str]) -> JsonObject:
        """Return the facts, with what each broker reports, or why it does not, by its name."""
        for channel in self.channels:
            for facts in channel.brokers:
                broker = str(facts["broker"])
                facts.update(_reported(channel, broker, reports.get(broker)))
        return self.facts


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
    reports: DeliveryReports

    def __post_init__(self) -> None:
        self._validator = lru_cache(maxsize=1024)(lambda dataset: RecordValidator(dataset, self.pages.max_bytes))
        self._bytes_in_flight = 0
        self._lock = threading.Lock()

    def publish(
        self,
        dataset: str,
        body: bytes,
        format: RecordFormat,
        key: str | None,
        publisher: str | None = None,
        received: tuple[float, int] | None = None,
    ) -> Receipt:
        """Validate the records of a body and append the valid ones; they are durable when this returns.

        `key` is an idempotency key of this publisher; `received` is when the request arrived, a result of
        `StageTimes.now`.
        """
        received = received or self.metrics.stages.now()
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
            self.metrics.stages.appended(dataset, appended.first, appended.last, received)
            self.metrics.published(dataset, len(records.lines), len(records.rejected))
        accepted = appended.last - appended.first + 1
        return Receipt(accepted, appended.first, appended.last, records.rejected, appended.repeated)

    def audit(self, dataset: str, seq: int) -> PublicationAudit:
        """Return when a publication was accepted, and its state in each channel that reads its dataset.

        Of a publication that the log has lost, only executions before the loss have seen it. Raise NotFound if it
        was never accepted.
        """
        entry = next(self.log.read(self.catalog.dataset(dataset).name, seq - 1, seq), None)
        lost = self.log.lost_range(dataset, seq) if entry is None else None
        audits = [self._state_in(one, seq) for one in self.catalog.channels().values() if one.new == dataset]
        asked = self._asked_of_brokers(audits)
        channels = [one.facts for one in audits]
        if entry is not None:
            page = msgspec.json.decode(entry.line, type=_AuditedLine).page
            accepted: JsonObject = {"publication": seq, "accepted_at_ms": entry.at_ms, "page": page}
            stages = self._stages_of(dataset, seq, [one.queued_ms for one in audits])
            return PublicationAudit(accepted | {"stages": stages, "channels": channels}, asked, audits)
        if lost is None:
            raise NotFound(f"dataset '{dataset}': no publication {seq}; the newest is {self.log.head(dataset)}")
        facts: JsonObject = {
            "publication": seq,
            "lost": {"first": lost.first, "last": lost.last, "at_ms": lost.at_ms, "why": lost.why},
            "channels": [_unless_lost(state, lost) for state in channels],
        }
        return PublicationAudit(facts, asked, audits)

    def _stages_of(self, dataset: str, seq: int, queued: Sequence[int | None]) -> JsonObject:
        """Return when a publication was received and durable; `queued` is when executions on it began."""
        times = self.metrics.stages.of_publication(dataset, seq)
        if times is None:
            return {"received": None, "durable": None}
        # An execution may begin before the publisher's thread has noticed that the record is durable.
        durable = min([times.durable_ms, *(one for one in queued if one is not None)])
        return {"received": times.received_ms, "durable": durable}

    def _state_in(self, channel: ChannelDefinition, seq: int) -> _ChannelAudit:
        """Return the state of a publication in one channel."""
        facts: JsonObject = {"channel": channel.name}
        results, running = self.stores.results, self.scheduler.running(channel.name)
        executed = results.executions(channel.name, limit=1, publication=seq)
        if not executed:
            position = results.position(channel.name)
            if position is not None and seq <= position:
                return _ChannelAudit(facts | {"state": "published before the channel began"})
            if running is not None and (failure := running.failure) is not None:
                failing = {"state": "failing", "error": failure.error, "since_ms": failure.since_ms}
                return _ChannelAudit(facts | failing)
            return _ChannelAudit(facts | {"state": "waiting", "behind": seq - (position or 0)})
        execution = executed[0]
        reached = results.reached(execution.number, seq)
        ended = self.metrics.stages.of_execution(execution.number)
        brokers: list[JsonObject] = [
            {"broker": one.broker, "attempts": one.attempts, "answered_at_ms": one.answered_ms}
            for one in self.stores.outbox.entries(execution.number)
        ]
        evaluated = facts | {
            "state": "evaluated",
            "execution": execution.number,
            "at_ms": execution.at_ms,
            "results_of_execution": execution.results,
            "reached": len(reached),
            "streams": [{"stream": stream, "position": position} for stream, position in reached[:MAX_STREAMS]],
            "stages": {
                "queued": ended.get("queued"),
                "planned": ended.get("planned"),
                "executed": ended.get("executed"),
                "stored": execution.at_ms,
            },
            "brokers": brokers,
        }
        deliveries = results.deliveries(execution.number, seq, MAX_STREAMS)
        return _ChannelAudit(evaluated, brokers, deliveries, ended.get("queued"))

    def _asked_of_brokers(self, audits: Sequence[_ChannelAudit]) -> dict[Broker, list[StreamPosition]]:
        """Return the positions that a publication reached, by the notified broker of each."""
        asked: dict[str, dict[StreamPosition, None]] = {}
        for audit in audits:
            notified = {str(one["broker"]) for one in audit.brokers}
            for _, position, subscription, broker in audit.deliveries:
                if broker in notified and len(asked.setdefault(broker, {})) < MOST_DELIVERIES:
                    asked[broker][StreamPosition(subscription, position)] = None
        known = {name: self.stores.outbox.broker(name) for name in asked}
        return {one: list(asked[name]) for name, one in known.items() if one is not None}

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


def _reported(audit: _ChannelAudit, broker: str, report: DeliveryReport | str | None) -> JsonObject:
    """Return what a broker reports of the results of one channel: `unknown` counts what it does not know."""
    asked = [(stream, position, name) for stream, position, name, other in audit.deliveries if other == broker]
    if not isinstance(report, DeliveryReport):
        return {"deliveries": [], "unknown": len(asked), "error": report}
    known = {(one.subscription, one.position): one for one in report.streams}
    deliveries = [
        _delivery(stream, known[name, position]) for stream, position, name in asked if (name, position) in known
    ]
    return {"deliveries": deliveries, "unknown": len(asked) - len(deliveries), "error": None}


def _delivery(stream: int, one: StreamDelivery) -> JsonObject:
    return {
        "stream": stream,
        "position": one.position,
        "notified": one.notified_ms,
        "pulled": one.pulled_ms,
        "signalled": one.signalled_ms,
        "connections": one.connections,
        "read": one.read_ms,
        "acknowledged": one.first_acknowledged_ms,
        "last_acknowledged": one.last_acknowledged_ms,
        "subscribers": one.acknowledged,
    }


def _unless_lost(facts: JsonObject, lost: LostRange) -> JsonObject:
    at_ms = facts.get("at_ms")
    seen = isinstance(at_ms, int) and at_ms <= lost.at_ms
    before = facts["state"] == "published before the channel began"
    return facts if seen or before else {"channel": facts["channel"], "state": "lost"}
