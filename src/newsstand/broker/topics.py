"""A broker in the overlay: topics that clients publish to and subscribe to, and whose past some brokers keep."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from newsstand.broker.overlay_links import Links
from newsstand.broker.overlay_told import Opportunistic, OverlayTold, ToKeep
from newsstand.broker.storage_sqlite import SqliteStorage
from newsstand.broker.topic_caches import cache_as_told
from newsstand.broker.topic_keeping import Keeping
from newsstand.broker.topic_ledger import Ledger
from newsstand.broker.topic_messages import Listener, Published, checked_body, written
from newsstand.broker.topic_metrics import TopicMetrics
from newsstand.broker.topic_outbox import MOST, Outbox
from newsstand.broker.topic_past import PAST, Page, Past
from newsstand.broker.topic_searches import Searches
from newsstand.broker.topic_storages import Elsewhere, StoredTopics
from newsstand.errors import BadMessage
from newsstand.model import OPPORTUNISTIC_BYTES, is_topic
from newsstand.overlay.filters import Filter
from newsstand.overlay.messages import (
    Advertise,
    CacheRequest,
    Message,
    Name,
    Position,
    Publication,
    PublicationId,
    Stored,
)
from newsstand.overlay.node import beyond
from newsstand.overlay.open_requests import Answer
from newsstand.overlay.opportunistic import CachingBroker
from newsstand.overlay.outcomes import Changed, Deliver, Kept, Located, Out, Receipt, Send, Serve
from newsstand.overlay.value_sets import Value

logger = logging.getLogger(__name__)
TICK_S = 0.25
UNHEARD_S = 3600.0
"""A topic whose storages were not heard of for so long counts as one without."""
HANDED_OVER_S = 10.0
REMEMBERED = 2 * MOST
"""How many publications are known when they come again, as all of an outbox may when the tree is mended."""
RESERVED = 1 << 20
"""How many numbers are noted on disk before they are used."""
_RESERVE = "INSERT OR REPLACE INTO numbers VALUES ('reserved', ?)"


class Topics:
    """The overlay's broker with its links, its file and its clock; used from the event loop's thread."""

    def __init__(
        self,
        name: str,
        folder: Path,
        key: str | None,
        metrics: TopicMetrics,
        tls: ssl.SSLContext | None,
        now_ms: Callable[[], int],
        *,
        elsewhere: Elsewhere,
        asked: Callable[[str, int], None],
        most: int,
        cache_bytes: int = OPPORTUNISTIC_BYTES,
    ) -> None:
        """`elsewhere`: those of some topics that others have to keep; `asked` hears of requests and hops."""
        self._metrics = metrics
        self._now_ms = now_ms
        self._asked = asked
        self._outs: deque[Out] = deque()
        self._doing = False
        self._ledger = Ledger(folder / "topics.sqlite")
        self._outbox = Outbox(self._ledger, time.monotonic())
        self._storage = SqliteStorage(self._ledger, most)
        self._was_able = True
        self._node = CachingBroker(
            name,
            self._storage,
            first_number=self._first_number(),
            remembered=REMEMBERED,
            cache_bytes=cache_bytes,
        )
        self._storages = StoredTopics(self._ledger, elsewhere, self._keeps)
        self.links = Links(name, key, tls, up=self._linked, down=self._unlinked, received=self._received)
        self._past = Past(self._node, self._do, self.has_storage, self._lost)
        self._searches = Searches(self._node, self._do, self.links.waiting)
        self._keeping = Keeping(
            self._node,
            self._storage,
            self._ledger,
            self._past,
            self._do,
            is_linked=lambda: self.links.is_told and not self.links.missing,
            elsewhere=lambda topic: self._is_elsewhere(elsewhere, topic),
            late=lambda publication: self._do(
                self._node.send(publication, attempt=self._attempt(publication), late=True)
            ),
            hand_over=self._hand_over,
            handed_over=self._handed_over,
            stored_nowhere=self._stored_nowhere,
        )
        self._serving: set[asyncio.Task[None]] = set()
        self._written: tuple[PublicationId, bytes] | None = None
        metrics.gauges(
            links=lambda: len(self.links),
            kept=lambda: self._keeping.topics,
            outbox=lambda: len(self._outbox),
            dropped=self._node.dropped.total,
        )
        metrics.caches(self._node)

    # What the coordinator says.

    def told(self, overlay: OverlayTold) -> None:
        """Whom to link to, what to keep, and how to cache what is not kept."""
        self.links.told(overlay.version, overlay.links)
        self._keeping.told(topic for topic in overlay.storage.topics if is_topic(topic))
        cache_as_told(self._node, overlay.opportunistic)

    def alone(self, topics: Iterable[str], opportunistic: Opportunistic | None = None) -> None:
        """There is no coordinator: no links, these topics are kept, and others cached."""
        self.told(OverlayTold(0, [], ToKeep(0, sorted(topics)), opportunistic or Opportunistic()))

    @property
    def whole(self) -> list[str]:
        """The topics of which this broker has everything."""
        return self._keeping.whole

    # What clients do.

    async def publish(
        self, topic: str, attributes: Mapping[str, Value], body: bytes, author: str = ""
    ) -> Published:
        """Send a publication to who wants it; with a storage it is on disk before this returns. `body` is JSON."""
        stored = self.has_storage(topic)
        if stored:
            if self._ledger.fault is not None:
                raise self._ledger.fault
            self._outbox.require_room()
        publication = self._node.compose(
            topic, attributes, checked_body(body), at_ms=self._now_ms(), author=author
        )
        if stored:
            self._outbox.add(publication, time.monotonic())
        self._do(self._node.send(publication, receipt=stored))
        self._metrics.published(stored)
        if stored:
            await self._ledger.written()
        return Published(publication.id, stored)

    def subscribe(self, listener: Listener, wanted: Filter) -> None:
        """A client wants what matches, from now on."""
        self._do(self._node.subscribe(listener, wanted))

    def unsubscribe(self, listener: Listener, wanted: Filter) -> None:
        """A client no longer wants it."""
        self._do(self._node.unsubscribe(listener, wanted))

    def gone(self, listener: Listener) -> None:
        """A client has gone."""
        self._do(self._node.client_gone(listener))

    async def past(self, wanted: Filter, after: Position | None, limit: int, by: Hashable = PAST) -> Page:
        """What is stored, or else cached, and matches, in order, after a place; `by` is who asks."""
        if after is None:
            for topic in self._node.advertisements.topics_of(wanted):
                row = self._node.advertisements.nearest(topic)
                if row is not None:
                    self._asked(topic, row.distance)
        page = await self._past.page(wanted, after, limit, by)
        self._metrics.answered(len(page.publications))
        return page

    def has_storage(self, topic: str) -> bool:
        """Whether a topic has a storage, even if none can be reached at the moment."""
        if self._node.advertisements.nearest(topic) is not None:
            self._storages.hear([topic])
            return True
        if self._storages.unheard_s(topic) > UNHEARD_S and not self._keeping.is_leaving(topic):
            self._stored_nowhere(topic)
        return topic in self._storages

    async def _lost(self, topics: Iterable[str]) -> set[str]:
        """Those of some topics that ought to have a storage, and have none that is known."""
        unknown = {topic for topic in topics if self._node.advertisements.nearest(topic) is None}
        lost = await self._storages.lost(unknown)
        waited_for = self._outbox.topics
        for topic in unknown - lost:
            if topic not in waited_for and not self._keeping.is_leaving(topic):
                self._storages.forget(topic)
        return lost

    def _keeps(self, topic: str) -> bool:
        return self._keeping.keeps(topic)

    async def _is_elsewhere(self, elsewhere: Elsewhere, topic: str) -> bool:
        return topic in await elsewhere([topic])

    # From start to end.

    def take_up(self) -> None:
        """Go on with the topics of before a restart."""
        self._keeping.take_up()

    async def run(self) -> None:
        """Work until cancelled."""
        keeping = asyncio.create_task(self._keeping.run())
        try:
            while True:
                await asyncio.sleep(TICK_S)
                try:
                    self._tick()
                except Exception:  # the next may go well
                    logger.exception("links and publications were not seen to")
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    def _tick(self) -> None:
        self.links.tick()
        self._reserve()
        self._give_up_unheard()
        self._look_after_storage()
        self._searches.tick()
        self._past.caches.tick()
        for one in self._outbox.due(time.monotonic(), self._now_ms()):
            self._do(self._node.send(one.publication, attempt=one.attempt, receipt=True, late=one.late))

    async def close(self) -> None:
        """End all links, and write what is to be written."""
        self._searches.close()
        await self.links.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._ledger.drained()
        self._ledger.close()

    def _first_number(self) -> int:
        """Higher than all of before: by the clock, or by what was reserved if the clock was set back."""
        rows = self._ledger.read("SELECT number FROM numbers WHERE what = 'reserved'")
        reserved = rows[0][0] if rows else 0
        assert isinstance(reserved, int)
        first = max(self._now_ms() * 1000, reserved)
        self._ledger.write_now(_RESERVE, first + RESERVED)
        self._reserved = first + RESERVED
        return first

    def _reserve(self) -> None:
        """Keep ahead of the numbers that are used."""
        if self._node.next_number > self._reserved - RESERVED // 2:
            self._reserved += RESERVED
            self._ledger.write(_RESERVE, self._reserved)

    def _look_after_storage(self) -> None:
        """A storage that is able again has missed something."""
        was_able, self._was_able = self._was_able, self._storage.is_able
        if self._was_able and not was_able:
            self._keeping.changed()

    def _give_up_unheard(self) -> None:
        """Nothing waits for ever for storages that nobody hears of."""
        for topic in self._outbox.topics:
            if topic not in self._storages:
                self._storages.hear([topic])
            self.has_storage(topic)

    def _stored_nowhere(self, topic: str) -> None:
        """A topic has no storages any more: nobody will take what waits for them."""
        self._storages.forget(topic)
        given_up = self._outbox.give_up(topic)
        if given_up:
            logger.warning("%s has no storage any more: %d publications were given up", topic, given_up)
            self._metrics.given_up(given_up)

    # What the overlay does.

    def _do(self, outs: Sequence[Out]) -> None:
        """Do what is to be done, after all that was to be done before, also if that has brought this about."""
        self._outs.extend(outs)
        if self._doing:
            return
        self._doing = True
        try:
            while self._outs:
                self._do_one(self._outs.popleft())
        finally:
            self._doing = False

    def _do_one(self, out: Out) -> None:
        match out:
            case Send(neighbour, Stored() as stored):
                self._ledger.then(partial(self._send, neighbour, stored))
            case Send(neighbour, message):
                self._send(neighbour, message)
            case Deliver(client, publication):
                client.deliver(publication, self._json(publication))  # type: ignore[attr-defined]
                self._metrics.delivered()
            case Kept():
                self._metrics.kept()
            case Receipt(key):
                self._outbox.received(key)
            case Answer():
                self._past.answered(out)
            case Serve():
                task = asyncio.create_task(self._serve(out))
                self._serving.add(task)
                task.add_done_callback(self._serving.discard)
            case Located():
                self._keeping.located(out)
            case Changed():
                self._changed()

    def _send(self, neighbour: Name, message: Message) -> None:
        self._metrics.sent()
        self.links.send(str(neighbour), message)

    def _received(self, neighbour: str, messages: Sequence[Message]) -> None:
        self._metrics.received(len(messages))
        for message in messages:
            try:
                if isinstance(message, CacheRequest):
                    self._searches.ask(neighbour, message)
                    continue
                if isinstance(message, Advertise):
                    self._storages.hear(message.topics)
                self._do(self._node.receive(neighbour, message))
            except BadMessage as error:
                logger.warning("a message of %s was dropped: %s", neighbour, error)
            except Exception:  # those after it are as good as before
                logger.exception("a message of %s was dropped", neighbour)

    def _linked(self, neighbour: str) -> None:
        self._do(self._node.link_up(neighbour))
        self._do(self._node.mended())
        self._changed()

    def _unlinked(self, neighbour: str) -> None:
        self._searches.lost(neighbour)
        self._do(self._node.link_down(neighbour))

    def _changed(self) -> None:
        self._outbox.hurry(time.monotonic())
        self._keeping.changed()

    async def _serve(self, serve: Serve) -> None:
        asked = serve.request
        try:
            found = await asyncio.to_thread(
                self._storage.matching, asked.filter, asked.topics, asked.after, beyond(asked)
            )
        except Exception:
            logger.exception("a request could not be answered")
            self._do(self._node.cannot_answer(asked))
        else:
            self._do(self._node.answer(asked, found))

    def _attempt(self, publication: Publication) -> int:
        return max(1, self._now_ms() - publication.at_ms)

    def _hand_over(self, publication: Publication) -> None:
        self._outbox.add(publication, time.monotonic(), late=True)
        attempt = self._attempt(publication)
        self._do(self._node.send(publication, attempt=attempt, receipt=True, late=True))

    async def _handed_over(self, publications: Iterable[Publication]) -> bool:
        """Whether others have all of these, after a while."""
        keys = {one.id for one in publications}
        until = time.monotonic() + HANDED_OVER_S
        while keys := {key for key in keys if key in self._outbox}:
            if time.monotonic() > until:
                return False
            await asyncio.sleep(TICK_S)
        return True

    def _json(self, publication: Publication) -> bytes:
        """As JSON, once for all who get it."""
        if self._written is None or self._written[0] != publication.id:
            self._written = publication.id, written(publication)
        return self._written[1]
