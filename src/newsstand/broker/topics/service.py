"""The topics of a broker: what clients publish, subscribe to and read of the past."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from newsstand.broker.links.connection import PeerConnectionLimits
from newsstand.broker.links.peers import PeerLinks
from newsstand.broker.metrics import TopicMetrics
from newsstand.broker.topics.database import SqliteStorage, TopicDatabase
from newsstand.broker.topics.history import (
    HISTORY_CLIENT,
    CacheReadLimits,
    HistoryPage,
    HistoryReader,
    PeerQueries,
    PeerQueryLimits,
    StorageReadLimits,
)
from newsstand.broker.topics.publisher import (
    NumberReservation,
    PublishResult,
    TopicPublisher,
    TopicPublisherLimits,
)
from newsstand.broker.topics.replicas import (
    FindAssigned,
    KnownStorageLimits,
    KnownStorages,
    TopicReplicaLimits,
    TopicReplicas,
)
from newsstand.errors import BadMessage
from newsstand.model import OPPORTUNISTIC_BYTES, OpportunisticPolicy, is_topic
from newsstand.overlay.broker.broker import read_limit
from newsstand.overlay.broker.caching import CachingBroker
from newsstand.overlay.broker.effects import (
    Confirmation,
    Deliver,
    Effect,
    RequestAnswer,
    SeekResult,
    Send,
    Serve,
    StoreEvent,
    TreeChange,
)
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.filters.value_sets import Value
from newsstand.overlay.messages import (
    Advertise,
    CacheRequest,
    Message,
    MessagePosition,
    Name,
    Publication,
    PublicationId,
    StorageReceipt,
)
from newsstand.wire.coordination import OpportunisticCaching, OverlayDuties, StorageDuties

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TopicLimits:
    """The limits of a broker's topics, by component."""

    tick_s: float = 0.25
    publisher: TopicPublisherLimits = field(default_factory=TopicPublisherLimits)
    storage_reads: StorageReadLimits = field(default_factory=StorageReadLimits)
    cache_reads: CacheReadLimits = field(default_factory=CacheReadLimits)
    peer_queries: PeerQueryLimits = field(default_factory=PeerQueryLimits)
    storages: KnownStorageLimits = field(default_factory=KnownStorageLimits)
    replicas: TopicReplicaLimits = field(default_factory=TopicReplicaLimits)
    links: PeerConnectionLimits = field(default_factory=PeerConnectionLimits)

    @property
    def remembered(self) -> int:
        """Publications that are recognized when they return, as all of an outbox may after a repair."""
        return 2 * self.publisher.pending


class TopicListener(Protocol):
    """A client that subscribes."""

    def __hash__(self) -> int: ...

    def deliver(self, publication: Publication, encoded: bytes) -> None:
        """Deliver a publication; `encoded` is the same as JSON."""
        ...


class TopicService:
    """The overlay broker with its links, its file and its clock; used from the event loop's thread."""

    def __init__(
        self,
        name: str,
        folder: Path,
        key: str | None,
        metrics: TopicMetrics,
        tls: ssl.SSLContext | None,
        now_ms: Callable[[], int],
        *,
        find_assigned: FindAssigned,
        on_request: Callable[[str, int], None],
        most: int,
        cache_bytes: int = OPPORTUNISTIC_BYTES,
        limits: TopicLimits = TopicLimits(),  # noqa: B008  it is frozen
    ) -> None:
        """`find_assigned` asks the coordinator for topics of other brokers; `on_request` logs a topic and hops."""
        self._metrics = metrics
        self._on_request = on_request
        self._tick_s = limits.tick_s
        self._effects: deque[Effect] = deque()
        self._is_performing = False
        self.database = TopicDatabase(folder / "topics.sqlite")
        self._numbers = NumberReservation(self.database, now_ms())
        self.storage = SqliteStorage(self.database, most)
        self._was_writable = True
        self.node = CachingBroker(
            name,
            self.storage,
            first_number=self._numbers.first,
            remembered=limits.remembered,
            cache_bytes=cache_bytes,
        )
        self.publisher = TopicPublisher(self.node, self.database, self._perform, now_ms, metrics, limits.publisher)
        self.storages = KnownStorages(
            self.database,
            find_assigned,
            is_reachable=self.node.advertisements.__contains__,
            is_stored_here=self._is_stored_here,
            is_pending=lambda topic: topic in self.publisher.outbox.topics,
            limits=limits.storages,
        )
        self.links = PeerLinks(
            name, key, tls, up=self.link_up, down=self.link_down, received=self.receive, limits=limits.links
        )
        self.reader = HistoryReader(
            self.node,
            self._perform,
            self.has_storage,
            self.storages.find_unreachable,
            limits.storage_reads,
            limits.cache_reads,
        )
        self.peer_queries = PeerQueries(self.node, self._perform, self.links.unsent_bytes, limits.peer_queries)
        self.replicas = TopicReplicas(
            self.node,
            self.storage,
            self.database,
            self.reader,
            self.publisher,
            self._perform,
            are_links_up=lambda: self.links.is_configured and not self.links.missing,
            is_assigned_elsewhere=self._is_assigned_elsewhere,
            on_unstored=self._drop_storages,
            limits=limits.replicas,
        )
        self._serving: set[asyncio.Task[None]] = set()
        self._encoded: tuple[PublicationId, bytes] | None = None
        metrics.gauges(
            links=lambda: len(self.links),
            topics=lambda: self.replicas.topics,
            outbox=lambda: len(self.publisher.outbox),
            dropped=self.node.dropped.total,
        )
        metrics.cache_of(self.node)

    # Configuration

    def configure(self, overlay: OverlayDuties) -> None:
        """Apply what the coordinator has decided: links, topics to store, and how to cache the others."""
        self.links.set_neighbours(overlay.version, overlay.links)
        self.replicas.configure(topic for topic in overlay.storage.topics if is_topic(topic))
        self._configure_cache(overlay.opportunistic)

    def configure_standalone(
        self, topics: Iterable[str], opportunistic: OpportunisticCaching | None = None
    ) -> None:
        """Work without a coordinator: no links; store these topics and cache others."""
        storage = StorageDuties(0, sorted(topics))
        self.configure(OverlayDuties(0, [], storage, opportunistic or OpportunisticCaching()))

    def _configure_cache(self, config: OpportunisticCaching) -> None:
        """Cache by a policy in its slots; cache nothing by a policy that only a later version knows."""
        try:
            policy, slots = OpportunisticPolicy.parse(config.policy), max(0, config.slots)
        except ValueError as error:
            policy, slots = self.node.policy, 0
            if self.node.cache.slots:
                logger.warning("messages of topics without storages are no longer cached: %s", error)
        if (policy, slots) != (self.node.policy, self.node.cache.slots):
            self.node.configure_cache(policy, slots)

    @property
    def complete_topics(self) -> list[str]:
        """Topics whose complete history this broker stores."""
        return self.replicas.complete

    # Clients

    async def publish(
        self, topic: str, attributes: Mapping[str, Value], body: bytes, author: str = ""
    ) -> PublishResult:
        """Publish; if the topic has a storage, the publication is on disk before this returns."""
        return await self.publisher.publish(topic, attributes, body, author, self.has_storage(topic))

    def subscribe(self, listener: TopicListener, wanted: Filter) -> None:
        self._perform(self.node.subscribe(listener, wanted))

    def unsubscribe(self, listener: TopicListener, wanted: Filter) -> None:
        self._perform(self.node.unsubscribe(listener, wanted))

    def remove_listener(self, listener: TopicListener) -> None:
        self._perform(self.node.remove_client(listener))

    async def history(
        self, wanted: Filter, after: MessagePosition | None, limit: int, client: Hashable = HISTORY_CLIENT
    ) -> HistoryPage:
        """Return a page of what is stored, or else cached, and matches, after a position."""
        if after is None:
            for topic in self.node.advertisements.topics_of(wanted):
                route = self.node.advertisements.nearest(topic)
                if route is not None:
                    self._on_request(topic, route.distance)
        page = await self.reader.page(wanted, after, limit, client)
        self._metrics.history.inc(len(page.publications))
        return page

    def has_storage(self, topic: str) -> bool:
        """Return whether a topic has a storage, reachable or not."""
        if topic in self.node.advertisements:
            self.storages.add([topic])
            return True
        if self.storages.is_outdated(topic) and not self.replicas.is_draining(topic):
            self._drop_storages(topic)
        return topic in self.storages

    def _is_stored_here(self, topic: str) -> bool:
        return self.replicas.stores(topic)

    async def _is_assigned_elsewhere(self, topic: str) -> bool:
        return topic in await self.storages.find_assigned([topic])

    def _drop_storages(self, topic: str) -> None:
        """Record that a topic has no storages any more, so that no publication waits for them."""
        self.storages.forget(topic)
        self.publisher.drop(topic)

    # From start to stop

    def restore(self) -> None:
        """Continue with the topics stored before a restart."""
        self.replicas.restore()

    async def run(self) -> None:
        replicating = asyncio.create_task(self.replicas.run())
        try:
            while True:
                await asyncio.sleep(self._tick_s)
                try:
                    self._tick()
                except Exception:  # the next may succeed
                    logger.exception("periodic task of topics failed")
        finally:
            replicating.cancel()
            await asyncio.gather(replicating, return_exceptions=True)

    def _tick(self) -> None:
        self._numbers.extend(self.node.next_number)
        for topic in self.publisher.outbox.topics:
            if topic not in self.storages:
                self.storages.add([topic])
            self.has_storage(topic)
        was_writable, self._was_writable = self._was_writable, self.storage.is_writable
        if self._was_writable and not was_writable:  # the storage has missed something
            self.replicas.compare_again()
        self.peer_queries.tick()
        self.reader.caches.tick()
        self.publisher.resend_due()

    async def close(self) -> None:
        """End all links, and write what is pending."""
        self.peer_queries.close()
        await self.links.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self.database.commits.drained()
        self.database.close()

    # Links

    def link_up(self, neighbour: str) -> None:
        self._perform(self.node.link_up(neighbour))
        self._perform(self.node.announce_link())
        self._repair()

    def link_down(self, neighbour: str) -> None:
        self.peer_queries.remove_neighbour(neighbour)
        self._perform(self.node.link_down(neighbour))

    def receive(self, neighbour: str, messages: Sequence[Message]) -> None:
        self._metrics.received.inc(len(messages))
        for message in messages:
            try:
                if isinstance(message, CacheRequest):
                    self.peer_queries.add(neighbour, message)
                    continue
                if isinstance(message, Advertise):
                    self.storages.add(message.topics)
                self._perform(self.node.receive(neighbour, message))
            except BadMessage as error:
                logger.warning("message of %s dropped: %s", neighbour, error)
            except Exception:  # those after it are valid
                logger.exception("message of %s dropped", neighbour)

    def _repair(self) -> None:
        """Make up for messages that a change of the tree may have lost."""
        self.publisher.outbox.hurry(time.monotonic())
        self.replicas.compare_again()

    # Effects

    def _perform(self, effects: Sequence[Effect]) -> None:
        """Perform effects after all earlier ones, also if one of these has caused them."""
        self._effects.extend(effects)
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while self._effects:
                self._perform_one(self._effects.popleft())
        finally:
            self._is_performing = False

    def _perform_one(self, effect: Effect) -> None:
        match effect:
            case Send(neighbour, StorageReceipt() as receipt):
                self.database.commits.after_commit(partial(self._send, neighbour, receipt))
            case Send(neighbour, message):
                self._send(neighbour, message)
            case Deliver(client, publication):
                client.deliver(publication, self._encode(publication))  # type: ignore[attr-defined]
                self._metrics.delivered.inc()
            case StoreEvent():
                self._metrics.stored.inc()
            case Confirmation(key):
                self.publisher.outbox.confirm(key)
            case RequestAnswer():
                self.reader.receive(effect)
            case Serve():
                task = asyncio.create_task(self._serve(effect))
                self._serving.add(task)
                task.add_done_callback(self._serving.discard)
            case SeekResult():
                self.replicas.receive(effect)
            case TreeChange():
                self._repair()

    def _send(self, neighbour: Name, message: Message) -> None:
        self._metrics.sent.inc()
        self.links.send(str(neighbour), message)

    async def _serve(self, serve: Serve) -> None:
        request = serve.request
        try:
            found = await asyncio.to_thread(
                self.storage.matching, request.filter, request.topics, request.after, read_limit(request)
            )
        except Exception:
            logger.exception("storage request failed")
            self._perform(self.node.fail_request(request))
        else:
            self._perform(self.node.answer(request, found))

    def _encode(self, publication: Publication) -> bytes:
        """Return a publication as JSON, encoded once for all listeners."""
        if self._encoded is None or self._encoded[0] != publication.id:
            self._encoded = publication.id, message_json(publication)
        return self._encoded[1]


def message_json(publication: Publication) -> bytes:
    """Return a publication as clients see it."""
    return msgspec.json.encode(
        {
            "id": publication.id,
            "topic": publication.topic,
            "attributes": publication.attributes,
            "at_ms": publication.at_ms,
            "author": publication.author,
            "body": msgspec.Raw(publication.body or b"null"),
        }
    )
