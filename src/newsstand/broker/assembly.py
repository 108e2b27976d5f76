"""The composition of a broker from its components."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from newsstand.auth.credentials import Operators, SharedKeys, broker_credential, named_in, webhook_key
from newsstand.auth.passwords import Passwords
from newsstand.auth.signing import key
from newsstand.auth.tokens import SubscriberTokens
from newsstand.broker.api.context import BrokerContext
from newsstand.broker.cluster_client.client import BrokerTokenRejected, ClusterClient, ClusterUnavailable
from newsstand.broker.cluster_client.webhook import Webhook
from newsstand.broker.coordinator_client.change_sender import CoordinatorLimits
from newsstand.broker.coordinator_client.client import CoordinatorClient, CredentialRejected, IncarnationSuperseded
from newsstand.broker.coordinator_client.heartbeat import Heartbeat
from newsstand.broker.event_log import EventLog
from newsstand.broker.metrics import Metrics, TopicMetrics
from newsstand.broker.pages.assembly import PageComponents
from newsstand.broker.results.presence import Presence
from newsstand.broker.results.service import ResultService
from newsstand.broker.sessions.accounts import AccountService
from newsstand.broker.sessions.store import SubscriberStore
from newsstand.broker.sessions.subscribers import SubscriberDirectory
from newsstand.broker.settings import BrokerSettings
from newsstand.broker.topics.service import TopicLimits, TopicService
from newsstand.caching import AdaptiveCaches
from newsstand.concurrency.pacing import Backoff
from newsstand.config.types import read_secret, read_token
from newsstand.errors import BadOption, NewsstandError, NotFound
from newsstand.http.client import HttpClient, trust
from newsstand.http.server import wall_clock_ms
from newsstand.model import INSTANCE_HEADER
from newsstand.sqlite.group_commit import GroupCommit
from newsstand.wire.notifications import CloseCode

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BrokerLimits:
    """The intervals of a broker, and the limits of its components."""

    read_within_ms: int = 1000
    """The time after which online subscribers have read a new result."""
    tick_s: float = 0.25
    check_in_s: float = 3.0
    """The interval of checks at the cluster that this process still is the broker."""
    superseded: int = 4
    """Attempts to register, at an interval of `superseded_s`, while another process of the name is registered."""
    superseded_s: float = 5.0
    coordinator: CoordinatorLimits = field(default_factory=CoordinatorLimits)
    topics: TopicLimits = field(default_factory=TopicLimits)


class BrokerAssembly:
    """The connected components of a broker, and its background tasks."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: SubscriberStore,
        url: str,
        limits: BrokerLimits = BrokerLimits(),  # noqa: B008  it is frozen
    ) -> None:
        self._limits = limits
        self._settings = settings
        self._store = store
        self.fault: NewsstandError | None = None
        """The error that stops the broker."""
        callback = settings.callback or url
        self._callback = f"{callback.rstrip('/')}/notifications"
        self._credential = credential = _token(settings)
        keys = _keys(settings, store)
        instance = _instance(store)
        tls = trust(settings.authority)
        bearer = {"Authorization": f"Bearer {credential}"}
        cluster_http = HttpClient(settings.cluster, headers={**bearer, INSTANCE_HEADER: instance}, tls=tls)
        self.webhook = Webhook(settings.name, callback)
        self.metrics = Metrics()
        self._tokens = tokens = SubscriberTokens(keys.subscribers if keys else None)
        self._operators = _operators(settings, store, keys)
        log = EventLog(
            settings.data / "access" if settings.access_log else None,
            wall_clock_ms(),
            keep_bytes=settings.access_log_bytes,
            keep_ms=settings.access_log_days * 24 * 3_600_000,
        )
        self.presence = Presence(log, wall_clock_ms, stuck_after_ms=settings.stuck_after_s * 1000)
        self._http_clients = [cluster_http]
        client: CoordinatorClient | None = None
        if settings.coordinator is not None:
            self._http_clients.append(HttpClient(settings.coordinator, headers=bearer, tls=tls))
            client = CoordinatorClient(self._http_clients[-1], settings.name, instance)

        async def topics_of_others(topics: Collection[str]) -> set[str]:
            return set() if client is None else await client.topics_of_others(topics)

        self.topics = TopicService(
            settings.name,
            settings.data,
            keys.overlay if keys else None,
            TopicMetrics(self.metrics),
            tls,
            wall_clock_ms,
            find_assigned=topics_of_others,
            on_request=lambda topic, hops: log.topic_read(wall_clock_ms(), topic, hops),
            most=settings.storage_most,
            cache_bytes=settings.opportunistic_bytes,
            limits=limits.topics,
        )

        def connect(subscribers: SubscriberDirectory) -> Heartbeat:
            assert client is not None
            return Heartbeat(
                client,
                settings.place(url),
                store,
                lambda: (len(self.presence), len(subscribers.records)),
                subscribers,
                overlay=self.topics,
                set_keys=self._set_keys,
                limits=limits.coordinator,
            )

        self.subscribers = SubscriberDirectory(
            store.load(),
            GroupCommit(store.write),
            tokens,
            wall_clock_ms,
            lambda: store.unsent(2**31)[1],
            settings.limits,
            None if client is None else connect,
        )
        accounts = AccountService(self.subscribers, tokens, Passwords(), secrets.token_urlsafe, wall_clock_ms)
        self.coordinator = self.subscribers.coordinator
        cluster = ClusterClient(cluster_http, settings.name)
        results = AdaptiveCaches[str, bytes](
            settings.results_policy,
            settings.results_budget,
            window_ms=settings.results_window_ms,
            cap_ms=settings.results_cap_ms,
            expiry=settings.results_expiry,
            start_ms=wall_clock_ms(),
            grace_ms=limits.read_within_ms,
            on_removed=lambda removed: self.metrics.count_removed(removed.reason),
        )
        self.page_components = PageComponents(
            settings,
            cluster,
            keys.copies if keys else None,
            url,
            tls,
            self.metrics,
            lambda *offer: log.page_offered(wall_clock_ms(), *offer),
        )
        self.results = ResultService(
            settings.name,
            results,
            self.page_components.match_cache,
            self.subscribers,
            self.presence,
            cluster,
            self.metrics,
            log,
            wall_clock_ms,
            self._register,
            store=store,
        )
        self.context = BrokerContext(
            authenticate=lambda token: self._operators.holder(token, time.time()),
            results=self.results,
            subscribers=self.subscribers,
            accounts=accounts,
            webhook=self.webhook,
            settings=settings,
            topics=self.topics,
            pages=self.page_components.resolver,
        )
        self._gauges()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        for record in self.subscribers.records.values():
            self.results.on_adopted(record)
        self.topics.restore()
        if self.coordinator is None:
            self.topics.configure_standalone(self._settings.storages, self._settings.opportunistic)
        registering = self._unless_rejected(self._join_cluster())
        work = [self._tick(), registering, self.results.sync.run(), self.topics.run()]
        if self._settings.has_push_cache:
            work.append(self.page_components.lease.run())
        if self.coordinator is not None:
            work += [self._unless_rejected(self.coordinator.run()), self.coordinator.changes.run()]
        async with AsyncExitStack() as stack:
            for client in self._http_clients:
                stack.push_async_callback(client.close)
            stack.push_async_callback(self.page_components.close)
            tasks = [asyncio.create_task(one) for one in work]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await self.topics.close()
                await self.results.close()

    def _set_keys(self, keys: SharedKeys) -> None:
        """Replace the keys by those of the coordinator."""
        self._tokens.use(keys.subscribers)
        self.page_components.signed_urls.use(keys.copies)
        self.topics.links.key = keys.overlay
        self._operators.metrics = keys.metrics

    async def leave(self) -> None:
        """Move subscribers to other brokers and close their connections."""
        if isinstance(self.fault, IncarnationSuperseded):
            self.subscribers.shutting_down = True
            self.presence.close_all(CloseCode.SERVICE_RESTART, str(self.fault)[:100])
            return
        try:
            async with asyncio.timeout(1):
                await self.page_components.lease.withdraw()
        except (NewsstandError, TimeoutError) as error:
            logger.warning("could not withdraw the push-cache from the origin: %s", error)
        if self.coordinator is not None:
            try:
                async with asyncio.timeout(3):
                    self.subscribers.shutting_down = True
                    moved = await self.coordinator.leave()
                    if moved >= len(self.subscribers.records):  # the records here become stale
                        await self.subscribers.forget(list(self.subscribers.records))
            except (NewsstandError, TimeoutError) as error:
                logger.warning("could not withdraw from the coordinator: %s", error)
        self.presence.close_all(
            CloseCode.SERVICE_RESTART, "the broker is going down; ask the coordinator for another"
        )

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._limits.tick_s)
            try:
                self.results.tick()
            except Exception:
                logger.exception("periodic task failed")

    async def _unless_rejected(self, work: Awaitable[None]) -> None:
        """Run `work`; stop the broker if the cluster or the coordinator rejects it."""
        try:
            await work
        except (BrokerTokenRejected, CredentialRejected, IncarnationSuperseded) as error:
            self.fault = error

    async def _join_cluster(self) -> None:
        """Register at the cluster, retry until it succeeds, then check in periodically.

        Drop backend subscriptions that have no followers after a while.
        """
        if self.coordinator is not None:
            await self.coordinator.joined.wait()
        backoff, attempts = Backoff(0.2), 0
        while True:
            try:
                await self._register()
                await self.results.channels.get()
                known = [stream async for stream in self.results.cluster.subscriptions()]
                self.results.sync.drop_unused(known)
                self.results.sync.mark_all_dirty()
                break
            except BrokerTokenRejected:
                raise
            except IncarnationSuperseded:
                # The other process may be this broker before it lost its data folder: its registration expires.
                attempts += 1
                if attempts > self._limits.superseded:
                    raise
                await asyncio.sleep(self._limits.superseded_s)
                continue
            except NewsstandError as error:
                logger.warning("not registered at the cluster yet: %s", error)
            except Exception:
                logger.exception("not registered at the cluster yet")
            await backoff.wait()
        while True:
            await asyncio.sleep(self._limits.check_in_s)
            try:
                await self.results.cluster.check_in()
            except ClusterUnavailable:
                self.results.sync.restart_lingering()
            except NotFound:
                continue

    async def _register(self) -> bool:
        """Register at the cluster; return whether the broker is new there."""
        secret = await self.results.cluster.register(self._callback)
        if named_in(self._credential) is not None:
            self.webhook.set_secret(webhook_key(self._credential))
            return False
        stored = await asyncio.to_thread(self._store.get_meta, "webhook secret")
        new = secret is not None
        if secret is None and stored is None:
            # The cluster returns a secret once, and this broker has lost it.
            await self.results.cluster.leave()
            secret = await self.results.cluster.register(self._callback)
            new = True
        if (trusted := secret or stored) is not None:
            self.webhook.set_secret(trusted)
        if secret is not None:
            await asyncio.to_thread(self._store.set_meta, "webhook secret", secret)
        return new

    def _gauges(self) -> None:
        gauge, results = self.metrics.gauge, self.results
        gauge("connections", "WebSockets.", lambda: len(self.presence))
        gauge("subscribers", "Subscribers of this broker.", lambda: len(self.subscribers.records))
        gauge("streams", "Backend subscriptions.", lambda: len(results.core))
        gauge("cached_bytes", "Bytes in the result caches.", lambda: results.core.results.bytes)
        gauge("cached_results", "Results in the caches.", lambda: results.core.results.objects)
        gauge("cluster_up", "1 if the last request to the cluster succeeded.", lambda: results.cluster.is_up)


def _instance(store: SubscriberStore) -> str:
    """Return a unique id of this process: its data folder, the number of its start, and a random part."""
    folder = store.get_meta("folder")
    if folder is None:
        folder = secrets.token_hex(8)
        store.set_meta("folder", folder)
    start = int(store.get_meta("starts") or 0) + 1
    store.set_meta("starts", str(start))
    return f"{folder}.{start}.{secrets.token_hex(8)}"


def _keys(settings: BrokerSettings, store: SubscriberStore) -> SharedKeys | None:
    """Return the keys of the coordinator as stored, or without a coordinator those of the broker's secret."""
    if settings.coordinator is None:
        return SharedKeys.of(_own_secret(settings, store))
    stored = store.get_meta("keys")
    return None if stored is None else msgspec.json.decode(stored, type=SharedKeys)


def _operators(settings: BrokerSettings, store: SubscriberStore, keys: SharedKeys | None) -> Operators:
    """Return the verifier of operators' tokens: for this broker, or without a coordinator for its own secret."""
    metrics = None if keys is None else keys.metrics
    if settings.coordinator is None:
        secret = _own_secret(settings, store)
        own = broker_credential(secret, settings.name)
        return Operators([key(secret, "operators"), key(own, "operators")], metrics)
    return Operators.of_broker(_token(settings), metrics)


def _own_secret(settings: BrokerSettings, store: SubscriberStore) -> str:
    """Return the secret of a broker without a coordinator, a new one if the settings have none."""
    given = read_secret(settings.secret, settings.secret_file)
    if given is not None:
        return given
    stored = store.get_meta("secret")
    if stored is None:
        stored = secrets.token_urlsafe(32)
        store.set_meta("secret", stored)
    return stored


def _token(settings: BrokerSettings) -> str:
    """Return the credential of this broker, or a token of its cluster."""
    if settings.token is not None:
        token = settings.token.strip()
    elif settings.token_file is not None:
        token = read_token(settings.token_file)
    else:
        raise BadOption("a broker needs its credential: --token-file FILE; `newsstand token broker NAME` makes it")
    name = named_in(token)
    if name is None and settings.coordinator is not None:
        raise BadOption(
            "a broker with a coordinator needs its credential as --token-file FILE; "
            "`newsstand token broker NAME` makes it"
        )
    if name not in (None, settings.name):
        raise BadOption(f"the credential is that of broker '{name}', and this is broker '{settings.name}'")
    return token
