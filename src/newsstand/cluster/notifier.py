"""Notifications of brokers: signed requests, in order for each broker, repeated until they are answered.

Notifications wait in the outbox of the store, so a restart loses none. If its answer was lost, a broker receives
one twice and recognizes it by the number of the delivery. One task serves one broker, so one that hangs delays no
other. A broker that does not answer for a long time is marked away; it gets one summary when it answers again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypedDict

import msgspec

from newsstand.auth.signing import HEADER, Recipient, sign
from newsstand.cluster.results.model import AnnouncedResult, OutboxEntry
from newsstand.cluster.results.stores import ResultStores
from newsstand.concurrency.background_loop import BackgroundTask
from newsstand.concurrency.pacing import Backoff
from newsstand.http.client import HttpClient, RequestError, ResponseTooLarge, raw_path, read_bounded, trust
from newsstand.model import Broker, DeliveryMode
from newsstand.wire.cluster import StreamResult
from newsstand.wire.notifications import PING, Notification, PageOffer, StreamProgress

logger = logging.getLogger(__name__)


class OutboxStatus(TypedDict):
    """The state of a broker's outbox; `pending` counts up to `NotifierLimits.counted`."""

    pending: int
    attempts: int
    away: bool
    last_answered_ms: int | None
    last_error: str | None


@dataclass
class _BrokerTask:
    """A broker, the task that notifies it, and what they share with others."""

    broker: Broker
    due: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the outbox may have new entries."""
    registered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the broker has registered, which ends a back-off."""
    task: asyncio.Task[None] = field(init=False)
    is_present: bool = False
    """Whether the broker is known not to be away: only its own task marks it away."""
    has_more: bool = True
    """Whether the outbox may have entries, also without `due`."""
    answered: tuple[int, int] | None = None
    """The entry that the broker has answered last, and when, until this is stored."""
    failures: int = 0
    failing_since: float = 0.0
    last_answered_ms: int | None = None
    last_error: str | None = None


class _PreparedNotification(NamedTuple):
    """The oldest entry of an outbox and its body; `is_last` if there was no other entry."""

    entry: OutboxEntry
    body: bytes
    is_last: bool


def signature_headers(broker: Broker, url: str, body: bytes, timestamp: int, delivery_id: int) -> dict[str, str]:
    """Return the headers of a signed JSON request to a broker."""
    signature = sign(broker.secret, Recipient(broker.name, raw_path(url)), body, timestamp, delivery_id)
    return {"Content-Type": "application/json", HEADER: signature}


@dataclass(frozen=True)
class NotifierLimits:
    """Time-outs, pauses between attempts, and the sizes of notifications and responses."""

    timeout_s: float = 10.0
    bytes_per_s: int = 1 << 20
    """The rate at which a broker is expected to read; a large notification gets more time."""
    response_bytes: int = 4096
    """Bytes of a response that are read; the connection of a longer one is not used again."""
    first_pause_s: float = 0.2
    longest_pause_s: float = 30.0
    away_after_s: float = 300.0
    """How long a broker may fail to answer before it is marked away."""
    small_results: int = 100
    """All results of a notification are carried if they are at most this number ..."""
    small_bytes: int = 64 << 10
    """... and their payloads have together at most this size (`delivery = "auto"`)."""
    push_results: int = 1000
    """At most this number of results is carried in a notification, the first ones ..."""
    push_bytes: int = 4 << 20
    """... with payloads of at most this size together (`delivery = "push"`)."""
    counted: int = 1000
    """The number of notifications up to which `status` counts."""


class Notifier(BackgroundTask):
    """The sender of the entries in brokers' outboxes, in a thread of its own. Any thread may call its methods.

    When it stops, a request that is being sent is cancelled and will be repeated.
    """

    def __init__(
        self,
        stores: ResultStores,
        now_ms: Callable[[], int],
        limits: NotifierLimits = NotifierLimits(),  # noqa: B008
        *,
        jitter: Callable[[], float] = random.random,
        delivery: Callable[[str], DeliveryMode] = lambda channel: "auto",
        on_delivery: Callable[[str, bool], None] = lambda broker, answered: None,
        authority: Path | None = None,
    ) -> None:
        """`delivery` returns the mode of a channel; `on_delivery` gets a broker, and whether it has answered.

        `jitter` returns numbers from 0 to 1; `authority` is a file of certificates to trust in brokers.
        """
        super().__init__("notifier", self.run)
        self._stores = stores
        self._now_ms = now_ms
        self._limits = limits
        self._backoff = Backoff(limits.first_pause_s, limits.longest_pause_s, jitter)
        self._delivery = delivery
        self._on_delivery = on_delivery
        self._tls = trust(authority)
        self._tasks: dict[str, _BrokerTask] = {}
        self._known_changes = -1
        """The changes to the list of brokers that are reflected in the tasks."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None

    def wake(self) -> None:
        """Read the outboxes again, after an execution was stored or the brokers changed."""
        self._call_soon(lambda: self._changed.set() if self._changed is not None else None)

    def broker_registered(self, broker: str) -> None:
        """End the absence and the back-off of a broker that has registered."""
        self._stores.outbox.mark_back(broker, self._now_ms())

        def hurry() -> None:
            if (task := self._tasks.get(broker)) is not None:
                task.registered.set()

        self._call_soon(hurry)
        self.wake()

    def status(self, broker: str) -> OutboxStatus:
        """Return the status of one broker."""
        due = self._stores.outbox.due(broker, self._limits.counted)
        task = self._tasks.get(broker)
        return {
            "pending": len(due),
            "attempts": due[0].attempts if due else 0,
            "away": self._stores.outbox.is_away(broker),
            "last_answered_ms": task.last_answered_ms if task else None,
            "last_error": task.last_error if task else None,
        }

    def _call_soon(self, act: Callable[[], object]) -> None:
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # the loop has stopped; its next run reads the outboxes first
                loop.call_soon_threadsafe(act)

    # Inside the loop

    async def run(self) -> None:
        """Notify all brokers until cancelled."""
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._known_changes = -1
        # A broker takes one connection at a time; without a limit, many that hang take none from the others.
        async with HttpClient(tls=self._tls, connections=0) as http:
            try:
                while True:
                    self._changed.clear()
                    try:
                        await self._update_tasks(http)
                    except Exception as error:
                        logger.error("notifier: cannot read the list of brokers: %s", error)
                        await asyncio.sleep(self._limits.first_pause_s)
                        continue
                    await self._changed.wait()
            finally:
                self._loop = None
                running = [one.task for one in self._tasks.values()]
                self._tasks.clear()
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    async def _update_tasks(self, http: HttpClient) -> None:
        """Start a task for each new broker, cancel those of removed ones, and let all read their outboxes."""
        changes = self._stores.outbox.changes
        if changes == self._known_changes and not any(known.task.done() for known in self._tasks.values()):
            for known in self._tasks.values():
                known.due.set()
            return
        brokers = {broker.name: broker for broker in await asyncio.to_thread(self._stores.outbox.brokers)}
        for name in self._tasks.keys() - brokers.keys():
            self._tasks.pop(name).task.cancel()
        for name, broker in brokers.items():
            if (one := self._tasks.get(name)) is None or one.task.done():
                one = self._tasks[name] = _BrokerTask(broker)
                one.task = asyncio.create_task(self._notify(http, one), name=f"notify {name}")
                one.task.add_done_callback(self._ended)
            one.broker = broker
            one.due.set()
        self._known_changes = changes

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Start the task of a broker again after a pause if it was not cancelled here."""
        if self._loop is None or all(one.task is not task for one in self._tasks.values()):
            return
        reason = "it was cancelled" if task.cancelled() else repr(task.exception())
        logger.error("%s: the task ended (%s); it is started again", task.get_name(), reason)
        self._loop.call_later(self._limits.longest_pause_s, self.wake)

    async def _notify(self, http: HttpClient, one: _BrokerTask) -> None:
        while True:
            try:
                one.has_more = one.has_more or one.due.is_set()
                one.due.clear()
                prepared = await asyncio.to_thread(self._prepare, one)
                if not one.is_present:
                    await self._probe(http, one)
                elif prepared is not None:
                    await self._deliver(http, one, prepared)
                else:
                    await one.due.wait()
            except Exception as error:
                one.last_error = f"{type(error).__name__}: {error}"
                logger.error("notifying broker '%s' failed: %s", one.broker.name, one.last_error)
                await self._back_off(one)

    def _prepare(self, one: _BrokerTask) -> _PreparedNotification | None:
        """Store the last answer; return the oldest entry of the outbox with its body, if any. Runs in a thread."""
        outbox, name = self._stores.outbox, one.broker.name
        if one.answered is not None:
            outbox.mark_answered(*one.answered)
            one.answered = None
        one.is_present = one.is_present or not outbox.is_away(name)
        if not (one.is_present and one.has_more):
            return None
        due = outbox.due(name, 2)
        if not due:
            one.has_more = False
            return None
        delivery: DeliveryMode = "pull" if due[0].channel is None else self._delivery(due[0].channel)
        body = notification_body(self._stores, due[0], delivery, self._limits)
        return _PreparedNotification(due[0], body, is_last=len(due) == 1)

    async def _deliver(self, http: HttpClient, one: _BrokerTask, prepared: _PreparedNotification) -> None:
        entry, body, is_last = prepared
        answered = await self._post(http, one, body, entry.id)
        self._on_delivery(one.broker.name, answered)
        if answered:
            one.last_answered_ms = self._now_ms()
            one.answered, one.has_more = (entry.id, one.last_answered_ms), not is_last
            one.failures = 0
            return
        await asyncio.to_thread(self._stores.outbox.count_attempt, entry.id)
        now = asyncio.get_running_loop().time()
        if one.failures == 0:
            one.failing_since = now
        if now - one.failing_since >= self._limits.away_after_s:
            logger.warning("broker '%s' is away: %s", one.broker.name, one.last_error)
            one.is_present = False
            await asyncio.to_thread(self._stores.outbox.mark_away, one.broker.name)
        await self._back_off(one)

    async def _probe(self, http: HttpClient, one: _BrokerTask) -> None:
        if await self._post(http, one, PING, 0):
            await asyncio.to_thread(self._stores.outbox.mark_back, one.broker.name, self._now_ms())
            one.failures = 0
        else:
            await self._back_off(one)

    async def _back_off(self, one: _BrokerTask) -> None:
        """Wait before the next attempt, or until the broker registers again."""
        if one.failures == 0:
            one.failing_since = asyncio.get_running_loop().time()
        one.failures += 1
        with suppress(TimeoutError):
            async with asyncio.timeout(self._backoff.wait_s(one.failures - 1)):
                await one.registered.wait()
                one.failures = 0
        one.registered.clear()

    async def _post(self, http: HttpClient, one: _BrokerTask, body: bytes, delivery_id: int) -> bool:
        """Return whether the broker answered with 2xx in time. Redirects are not followed."""
        url = one.broker.callback
        try:
            headers = signature_headers(one.broker, url, body, self._now_ms() // 1000, delivery_id)
            timeout_s = self._limits.timeout_s + len(body) / self._limits.bytes_per_s
            async with http.stream("POST", url, content=body, headers=headers, timeout_s=timeout_s) as response:
                with suppress(ResponseTooLarge):
                    await read_bounded(response, self._limits.response_bytes)
        except RequestError as error:
            one.last_error = error.reason
            return False
        one.last_error = None if response.ok and response.status < 300 else f"status {response.status}"
        return one.last_error is None


def notification_body(
    stores: ResultStores, entry: OutboxEntry, delivery: DeliveryMode = "pull", limits: NotifierLimits | None = None
) -> bytes:
    """Return the body of a notification with the results that `delivery` carries within the limits.

    Results that are left out are announced by the positions of their streams; the broker pulls them.
    """
    limits = limits or NotifierLimits()
    most, most_bytes = {
        "auto": (limits.small_results, limits.small_bytes),
        "pull": (0, 0),
        "push": (limits.push_results, limits.push_bytes),
    }[delivery]
    has_results = entry.execution is not None and most > 0
    found = stores.outbox.results(entry, most + 1, most_bytes) if has_results else []
    is_complete = has_results and len(found) <= most
    carried = _carried(found[:most], most_bytes)
    if delivery == "auto" and not (is_complete and sum(map(len, carried.values())) == len(found)):
        carried = {}  # a part would not save the pull
    if is_complete:
        positions = {one.subscription: one.position for one in found}
        pages = _matched_pages(found)
    else:
        positions = {one.subscription: one.position for one in stores.outbox.advances(entry)}
        pages = stores.outbox.matched_pages(entry)
    notification = Notification[StreamResult](
        entry.id,
        entry.execution,
        entry.channel,
        entry.at_ms,
        "push" if carried else "pull",
        [StreamProgress(name, position, carried.get(name, [])) for name, position in positions.items()],
        pages,
        summary=entry.execution is None and entry.channel is None,
    )
    if entry.execution is None:
        # The complete list: all other subscriptions are not suspended.
        notification.suspended = stores.subscriptions.suspended(entry.broker, entry.channel)
    return msgspec.json.encode(notification)


def _carried(found: Iterable[AnnouncedResult], most_bytes: int) -> dict[str, list[StreamResult]]:
    """Return the first results whose payloads have together at most `most_bytes`, by subscription."""
    carried: dict[str, list[StreamResult]] = {}
    for one in found:
        most_bytes -= 0 if one.result is None else len(one.result.payload)
        if one.result is None or most_bytes < 0:
            break
        carried.setdefault(one.subscription, []).append(one.result)
    return carried


def _matched_pages(found: Sequence[AnnouncedResult]) -> list[PageOffer]:
    """Return the pages of all results of an entry, with the frontends of their streams."""
    sizes: dict[str, int] = {}
    frontends: dict[str, dict[str, int]] = {}
    for one in found:
        if one.page is not None:
            sizes[one.page.id] = max(sizes.get(one.page.id, 0), one.page.size)
            frontends.setdefault(one.page.id, {})[one.subscription] = one.frontends
    return [PageOffer(page, sizes[page], sum(frontends[page].values())) for page in sorted(sizes)]
