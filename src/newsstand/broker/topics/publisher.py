"""Publications of this broker, and of topics that it hands over, until a storage confirms them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from newsstand.broker.metrics import TopicMetrics
from newsstand.broker.topics.database import TopicDatabase, decode_publication, encode_publication
from newsstand.concurrency.pacing import Backoff
from newsstand.errors import BadMessage, Busy
from newsstand.overlay.broker.caching import CachingBroker
from newsstand.overlay.broker.effects import Effect
from newsstand.overlay.filters.value_sets import Value
from newsstand.overlay.messages import Publication, PublicationId

logger = logging.getLogger(__name__)
RESERVED = 1 << 20
"""Numbers that are reserved on disk before they are used."""
_ENCLOSING_DEPTH = 100
"""Levels that messages may add around a body: it must be valid JSON at this depth, too."""
_RESERVE = "INSERT OR REPLACE INTO counters VALUES ('reserved', ?)"


@dataclass(frozen=True, slots=True)
class TopicPublisherLimits:
    """Limits of publications without receipts."""

    pending: int = 100_000
    """Publications that may wait for receipts."""
    first_s: float = 3.0
    longest_s: float = 60.0
    """A publication is sent again after `first_s`, then after twice that … up to `longest_s`."""
    resent: int = 500
    """Publications that are sent again in one round."""
    handover_s: float = 10.0
    """How long the receipts of a handed-over topic may take."""
    poll_s: float = 0.25
    """The interval at which these receipts are looked for."""


class PublishResult(NamedTuple):
    """The id of a publication, and whether it is stored until a storage confirms it."""

    id: PublicationId
    stored: bool


@dataclass(slots=True)
class PendingPublication:
    """A publication without a receipt."""

    publication: Publication
    late: bool
    """Whether it is sent to storages alone (`Publish.late`)."""
    due: float
    """When it is sent again."""
    failures: int = 0
    attempt: int = 0
    """The number of the last attempt (`Publish.attempt`)."""


class Outbox:
    """Publications without receipts, on disk before a publisher is answered; times are monotonic seconds."""

    def __init__(
        self,
        database: TopicDatabase,
        now: float,
        limits: TopicPublisherLimits = TopicPublisherLimits(),  # noqa: B008  it is frozen
    ) -> None:
        """Load what is pending since the last run, due at once."""
        self._database = database
        self._limits = limits
        self._waits = Backoff(limits.first_s, limits.longest_s)
        self._pending: dict[PublicationId, PendingPublication] = {}
        self._topics: Counter[str] = Counter()
        for encoded, late in database.read("SELECT publication, late FROM outbox ORDER BY number"):
            self._insert(PendingPublication(decode_publication(encoded), bool(late), now))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, key: PublicationId) -> bool:
        return key in self._pending

    @property
    def topics(self) -> list[str]:
        return list(self._topics)

    def require_room(self) -> None:
        """Raise Busy if there is no room for one more."""
        if len(self._pending) >= self._limits.pending:
            raise Busy("too many publications wait for their storages; try again later", 5.0)

    def add(self, publication: Publication, now: float, late: bool = False) -> None:
        """Add a publication that is sent for the first time."""
        if publication.id in self._pending:
            return
        self._insert(PendingPublication(publication, late, now + self._waits.ceiling_s(0)))
        row = (publication.origin, publication.number, late, encode_publication(publication))
        self._database.write("INSERT OR REPLACE INTO outbox VALUES (?, ?, ?, ?)", *row)

    def confirm(self, key: PublicationId) -> None:
        """Remove a publication that a storage has."""
        pending = self._pending.pop(key, None)
        if pending is None:
            return
        self._database.write("DELETE FROM outbox WHERE origin = ? AND number = ?", *key)
        topic = pending.publication.topic
        self._topics[topic] -= 1
        if not self._topics[topic]:
            del self._topics[topic]

    def drop(self, topic: str) -> int:
        """Remove the publications of a topic that no storage will confirm; return how many."""
        keys = [key for key, one in self._pending.items() if one.publication.topic == topic]
        for key in keys:
            self.confirm(key)
        return len(keys)

    def hurry(self, now: float) -> None:
        """Make everything due, after a change of the tree in which messages may have been lost."""
        for one in self._pending.values():
            one.due, one.failures = min(one.due, now), 0

    def due(self, now: float, now_ms: int) -> list[PendingPublication]:
        """Return what is to be sent again, each with an attempt above all earlier ones."""
        found = []
        for one in self._pending.values():
            if one.due <= now:
                one.due, one.failures = now + self._waits.ceiling_s(one.failures), one.failures + 1
                # By the clock, so that it keeps rising after a restart.
                one.attempt = max(one.attempt + 1, now_ms - one.publication.at_ms)
                found.append(one)
                if len(found) == self._limits.resent:
                    break
        return found

    def _insert(self, pending: PendingPublication) -> None:
        self._pending[pending.publication.id] = pending
        self._topics[pending.publication.topic] += 1


class NumberReservation:
    """Numbers of publications and requests, reserved on disk so that none is used twice."""

    def __init__(self, database: TopicDatabase, now_ms: int) -> None:
        rows = database.read("SELECT value FROM counters WHERE name = 'reserved'")
        reserved = rows[0][0] if rows else 0
        assert isinstance(reserved, int)
        self.first = max(now_ms * 1000, reserved)
        """Above all earlier numbers: by the clock, or by the reservation if the clock was set back."""
        self._database = database
        self._reserved = self.first + RESERVED
        database.write_now(_RESERVE, self._reserved)

    def extend(self, next_number: int) -> None:
        if next_number > self._reserved - RESERVED // 2:
            self._reserved += RESERVED
            self._database.write(_RESERVE, self._reserved)


@dataclass(eq=False, repr=False)
class TopicPublisher:
    """Sends publications, and sends them again until they are confirmed."""

    node: CachingBroker
    database: TopicDatabase
    perform: Callable[[Sequence[Effect]], None]
    now_ms: Callable[[], int]
    metrics: TopicMetrics
    limits: TopicPublisherLimits = TopicPublisherLimits()

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.database, time.monotonic(), self.limits)
        self._commits = self.database.commits

    async def publish(
        self, topic: str, attributes: Mapping[str, Value], body: bytes, author: str, stored: bool
    ) -> PublishResult:
        """Send a publication; if it is to be stored, it is on disk before this returns. `body` is JSON."""
        if stored:
            if self._commits.fault is not None:
                raise self._commits.fault
            self.outbox.require_room()
        body = validate_body(body)
        publication = self.node.compose(topic, attributes, body, at_ms=self.now_ms(), author=author)
        if stored:
            self.outbox.add(publication, time.monotonic())
        self.perform(self.node.send(publication, receipt=stored))
        self.metrics.published[stored].inc()
        if stored:
            await self._commits.flushed()
        return PublishResult(publication.id, stored)

    def resend_due(self) -> None:
        """Send again what was not confirmed in time."""
        for one in self.outbox.due(time.monotonic(), self.now_ms()):
            self.perform(self.node.send(one.publication, attempt=one.attempt, receipt=True, late=one.late))

    def send_late(self, publication: Publication, receipt: bool = False) -> None:
        """Send a publication to storages alone, since one has it that others may lack."""
        attempt = max(1, self.now_ms() - publication.at_ms)
        self.perform(self.node.send(publication, attempt=attempt, receipt=receipt, late=True))

    def hand_over(self, publication: Publication) -> None:
        """Send a publication to storages until one confirms it."""
        self.outbox.add(publication, time.monotonic(), late=True)
        self.send_late(publication, receipt=True)

    async def wait_for_receipts(self, publications: Iterable[Publication]) -> bool:
        """Wait until other storages have all of these; return False if that takes too long."""
        keys = {one.id for one in publications}
        until = time.monotonic() + self.limits.handover_s
        while keys := {key for key in keys if key in self.outbox}:
            if time.monotonic() > until:
                return False
            await asyncio.sleep(self.limits.poll_s)
        return True

    def drop(self, topic: str) -> None:
        """Drop the pending publications of a topic that has no storage any more."""
        dropped = self.outbox.drop(topic)
        if dropped:
            logger.warning("topic %s has no storage any more: %d publications dropped", topic, dropped)
            self.metrics.abandoned.inc(dropped)


def validate_body(text: bytes) -> bytes:
    """Return a body that every client can parse as JSON; raise BadMessage."""
    try:
        text.decode()
        if text:
            msgspec.json.decode(text)
            msgspec.json.decode(b"[" * _ENCLOSING_DEPTH + text + b"]" * _ENCLOSING_DEPTH)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadMessage(f"body: {error}") from None
    except RecursionError:
        raise BadMessage("body: nested too deep") from None
    return text
