"""The process of a broker, from start to stop."""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress

import httpx
import msgspec
import uvicorn

from newsstand.broker.access_log import AccessLog
from newsstand.broker.accounts import Passwords, Tokens
from newsstand.broker.api import create_api, create_app
from newsstand.broker.change_sender import Superseded
from newsstand.broker.desk import Desk
from newsstand.broker.edge import Edge
from newsstand.broker.home import DUPLICATE_LEASES, CredentialRefused, Home, Load
from newsstand.broker.journal import Journal
from newsstand.broker.members import Members
from newsstand.broker.metrics import Metrics
from newsstand.broker.page_parts import PageParts
from newsstand.broker.settings import BrokerSettings
from newsstand.broker.socket_connection import Connection
from newsstand.broker.socket_frames import GOING_DOWN
from newsstand.broker.sockets import Hub
from newsstand.broker.store import Store
from newsstand.broker.store_sqlite import SqliteStore
from newsstand.broker.topic_metrics import TopicMetrics
from newsstand.broker.topics import Topics
from newsstand.broker.upstream import LIMITS, Away, TokenRefused, Upstream
from newsstand.broker.webhook import Webhook
from newsstand.caching import AdaptiveCaches
from newsstand.errors import BadOption, NewsstandError, NotFound
from newsstand.model import INSTANCE_HEADER
from newsstand.serving.client_address import proxy_options
from newsstand.serving.credentials import (
    Operators,
    SharedKeys,
    broker_credential,
    named_in,
    webhook_key,
)
from newsstand.serving.http_protocol import limited_http
from newsstand.serving.process import (
    BACKLOG,
    listening,
    make_private,
    terminated_like_interrupted,
    url_of,
    wall_clock_ms,
)
from newsstand.serving.settings import secret_of, token_in
from newsstand.signing import key

logger = logging.getLogger(__name__)
READ_WITHIN_MS = 1000
"""Whoever is online has read a new result after so long."""
TICK_S = 0.25
CHECK_IN_S = 3.0
"""Seconds from one call to the cluster to the next by which it knows that this process is the broker."""


def serve(settings: BrokerSettings, say: Callable[[str], None] = print) -> None:
    """Run a broker until SIGTERM or Ctrl-C; then let its subscribers go to others and stop."""
    try:
        make_private(settings.data)
    except OSError as error:
        raise BadOption(f"data folder {settings.data}: cannot be made ({error.strerror})") from error
    with ExitStack() as stack:
        stack.enter_context(terminated_like_interrupted())
        bound = stack.enter_context(listening(settings.host, settings.port))
        store = SqliteStore(settings.data / "broker.sqlite", tell=settings.coordinator is not None)
        stack.callback(store.close)
        if settings.tls is not None:
            settings.tls.check()
        url = url_of(bound, settings.tls)
        parts = Parts(settings, store, url)
        api = create_api(parts.desk)
        api.router.lifespan_context = lambda _: parts.running()
        config = uvicorn.Config(
            create_app(parts.desk, api),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
            lifespan="on",
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
            backlog=BACKLOG,
            http=limited_http(settings.http_limits),
            ws=Connection,
            ws_ping_interval=None,
            **proxy_options(settings.trusted_proxies),
        )
        bound.listen(BACKLOG)  # who reads the address may connect at once
        say(f"newsstand: broker {settings.name} on {url}")
        with suppress(KeyboardInterrupt):  # uvicorn raises the signal that it stopped for once more
            Server(config, parts).run(sockets=[bound])
        if parts.fault is not None:
            raise BadOption(str(parts.fault)) from parts.fault


class Server(uvicorn.Server):
    """Lets subscribers go before it stops."""

    def __init__(self, config: uvicorn.Config, parts: Parts) -> None:
        super().__init__(config)
        self._parts = parts
        parts.give_up = self.give_up

    def give_up(self) -> None:
        """Begin to stop."""
        self.should_exit = True

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Tell the coordinator and the connections, then stop."""
        await self._parts.leave()
        await super().shutdown(sockets)  # type: ignore[arg-type]


class Parts:
    """A broker put together."""

    def __init__(self, settings: BrokerSettings, store: Store, url: str) -> None:
        self._settings = settings
        self._store = store
        self.fault: NewsstandError | None = None
        """Why the broker cannot do its work at all."""
        self.give_up: Callable[[], None] = lambda: None
        callback = settings.callback or url
        self._callback = f"{callback.rstrip('/')}/told"
        self._credential = credential = _token(settings)
        keys = _keys(settings, store)
        instance = _instance(store)
        verify: ssl.SSLContext | bool = True
        if settings.authority is not None:
            verify = ssl.create_default_context(cafile=str(settings.authority))
        self._cluster_http = httpx.AsyncClient(
            base_url=settings.cluster,
            headers={"Authorization": f"Bearer {credential}", INSTANCE_HEADER: instance},
            verify=verify,
            limits=LIMITS,
        )
        self.webhook = Webhook(settings.name, callback)
        self.metrics = Metrics()
        journal = Journal(store)
        self._tokens = tokens = Tokens(keys.subscribers if keys else None)
        self._operators = _operators(settings, store, keys)
        self.members = Members(
            store.load(),
            journal,
            tokens,
            Passwords(),
            secrets.token_urlsafe,
            wall_clock_ms,
            lambda: store.unsent(2**31)[1],
            settings.limits,
        )
        upstream = Upstream(self._cluster_http, settings.name)
        results = AdaptiveCaches[str, bytes](
            settings.results_policy,
            settings.results_budget,
            window_ms=settings.results_window_ms,
            cap_ms=settings.results_cap_ms,
            expiry=settings.results_expiry,
            start_ms=wall_clock_ms(),
            grace_ms=READ_WITHIN_MS,
            on_removed=lambda removed: self.metrics.left(removed.reason),
        )
        self.page_parts = PageParts(settings, upstream, keys.copies if keys else None, url, verify, self.metrics)
        log = AccessLog(
            settings.data / "access" if settings.access_log else None,
            wall_clock_ms(),
            keep_bytes=settings.access_log_bytes,
            keep_ms=settings.access_log_days * 24 * 3_600_000,
        )
        self.edge = Edge(
            settings.name,
            results,
            self.page_parts.shelf,
            self.members,
            Hub(stuck_after_ms=settings.stuck_after_s * 1000),
            upstream,
            self.metrics,
            log,
            wall_clock_ms,
            self._register,
            store=store,
        )
        self.members.comings = self.edge
        self.home: Home | None = None
        self._home_http: httpx.AsyncClient | None = None
        if settings.coordinator is not None:
            self._home_http = httpx.AsyncClient(
                base_url=settings.coordinator,
                headers={"Authorization": f"Bearer {credential}"},
                verify=verify,
            )
            self.home = self.members.home = Home(
                self._home_http,
                settings.name,
                settings.place(url),
                store,
                lambda: Load(self.edge.connections, len(self.members.records)),
                adopt=self.members.adopt,
                left=self.members.left,
                only=self.members.only,
                fence=self.members.fence,
                use=self._use,
                instance=instance,
            )
        self.topics = Topics(
            settings.name,
            settings.data,
            keys.overlay if keys else None,
            TopicMetrics(self.metrics),
            verify if isinstance(verify, ssl.SSLContext) else None,
            wall_clock_ms,
            elsewhere=self._wanted_elsewhere,
            asked=lambda topic, hops: log.past(wall_clock_ms(), topic, hops),
            most=settings.storage_most,
            cache_bytes=settings.opportunistic_bytes,
        )
        if self.home is not None:
            self.home.overlay = self.topics
        self.desk = Desk(
            self.edge,
            self.members,
            self.webhook,
            settings,
            self._operators,
            self.topics,
            self.page_parts.pages,
        )
        self._gauges()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All that goes on beside requests."""
        for record in self.members.records.values():
            self.edge.came(record)
        self.topics.take_up()
        if self.home is None:
            self.topics.alone(self._settings.storages, self._settings.opportunistic)
        registering = self._unless_refused(self._join_cluster())
        work = [self._tick(), registering, self.edge.backends.run(), self.topics.run()]
        if self._settings.keeps_copies:
            work.append(self.page_parts.announcer.run())
        if self.home is not None:
            work += [self._unless_refused(self.home.run()), self.home.changes.run()]
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._cluster_http.aclose)
            stack.push_async_callback(self.page_parts.http.aclose)
            stack.push_async_callback(self.page_parts.fetcher.aclose)
            if self._home_http is not None:
                stack.push_async_callback(self._home_http.aclose)
            tasks = [asyncio.create_task(one) for one in work]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await self.topics.close()
                await self.edge.close()

    def _use(self, keys: SharedKeys) -> None:
        """The coordinator has given these keys."""
        self._tokens.use(keys.subscribers)
        self.page_parts.tickets.use(keys.copies)
        self.topics.links.key = keys.overlay
        self._operators.metrics = keys.metrics

    async def leave(self) -> None:
        """Let subscribers go to other brokers; say why if this process is not the broker any more."""
        if isinstance(self.fault, Superseded):
            self.members.leaving = True
            for hub in (self.edge.hub, self.edge.topic_hub):
                hub.close(GOING_DOWN, str(self.fault)[:100])
            return
        await self._withdraw_copies()
        if self.home is not None:
            try:
                async with asyncio.timeout(3):
                    self.members.leaving = True
                    moved = await self.home.leave()
                    if moved >= len(self.members.records):  # what is known here grows old from now on
                        await self.members.forget(list(self.members.records))
            except (NewsstandError, TimeoutError) as error:
                logger.warning("the coordinator was not told that this broker goes: %s", error)
        for hub in (self.edge.hub, self.edge.topic_hub):
            hub.close(GOING_DOWN, "the broker is going down; ask the coordinator for another")

    async def _wanted_elsewhere(self, topics: Collection[str]) -> set[str]:
        return set() if self.home is None else await self.home.wanted_elsewhere(topics)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                self.edge.tick()
            except Exception:
                logger.exception("what is due from time to time was not done")

    async def _withdraw_copies(self) -> None:
        try:
            async with asyncio.timeout(1):
                await self.page_parts.announcer.withdraw()
        except (NewsstandError, TimeoutError) as error:
            logger.warning("the origin was not told that this broker goes: %s", error)

    async def _unless_refused(self, work: Awaitable[None]) -> None:
        """Do work until cluster or coordinator say that this broker is none of theirs."""
        try:
            await work
        except (TokenRefused, CredentialRefused, Superseded) as error:
            self.fault = error
            self.give_up()

    async def _join_cluster(self) -> None:
        """Register at the cluster, however long that takes, and go on saying that this process is the broker.

        What the cluster has of this broker's that nobody follows is dropped after a while.
        """
        if self.home is not None:
            await self.home.joined.wait()
        pause, attempts = 0.2, 0
        while True:
            try:
                await self._register()
                await self.edge.channels.get()
                known = [stream async for stream in self.edge.upstream.subscriptions()]
                self.edge.backends.linger(known)
                self.edge.backends.mark_all()
                break
            except TokenRefused:
                raise
            except Superseded:
                # It may be this broker before it lost its data folder: the cluster gives it up after a while.
                attempts += 1
                if attempts > DUPLICATE_LEASES * 2:
                    raise
                pause = 5.0
            except NewsstandError as error:
                logger.warning("not registered at the cluster yet: %s", error)
            except Exception:
                logger.exception("not registered at the cluster yet")
            await asyncio.sleep(pause)
            pause = min(5.0, pause * 2)
        while True:
            await asyncio.sleep(CHECK_IN_S)
            try:
                await self.edge.upstream.check_in()
            except Away:
                self.edge.backends.cluster_is_away()
            except NotFound:
                continue

    async def _register(self) -> bool:
        """Say where this broker is; whether the cluster did not know it."""
        secret = await self.edge.upstream.register(self._callback)
        if named_in(self._credential) is not None:
            self.webhook.trust(webhook_key(self._credential))
            return False
        kept = await asyncio.to_thread(self._store.recall, "webhook secret")
        new = secret is not None
        if secret is None and kept is None:
            # The cluster tells a secret once, and this broker has lost it.
            await self.edge.upstream.leave()
            secret = await self.edge.upstream.register(self._callback)
            new = True
        if (trusted := secret or kept) is not None:
            self.webhook.trust(trusted)
        if secret is not None:
            await asyncio.to_thread(self._store.remember, "webhook secret", secret)
        return new

    def _gauges(self) -> None:
        edge, members = self.edge, self.members
        for name, words, value in (
            ("connections", "WebSockets.", lambda: edge.connections),
            ("subscribers", "Subscribers at home here.", lambda: len(members.records)),
            ("streams", "Backend subscriptions.", lambda: len(edge.core)),
            ("cached_bytes", "Bytes of the result caches.", lambda: edge.core.results.bytes),
            ("cached_results", "Results in the caches.", lambda: edge.core.results.objects),
            ("cluster_up", "1 if the cluster answered last.", lambda: float(edge.upstream.is_up)),
        ):
            self.metrics.gauge(name, words, value)


def _instance(store: Store) -> str:
    """Return what tells this process from all others: identity of its data folder, number of its start, chance."""
    folder = store.recall("folder")
    if folder is None:
        folder = secrets.token_hex(8)
        store.remember("folder", folder)
    start = int(store.recall("starts") or 0) + 1
    store.remember("starts", str(start))
    return f"{folder}.{start}.{secrets.token_hex(8)}"


def _keys(settings: BrokerSettings, store: Store) -> SharedKeys | None:
    """Return the keys of all brokers as the coordinator gave them last, or those of a broker's own secret."""
    if settings.coordinator is None:
        return SharedKeys.of(_own_secret(settings, store))
    kept = store.recall("keys")
    return None if kept is None else msgspec.json.decode(kept, type=SharedKeys)


def _operators(settings: BrokerSettings, store: Store, keys: SharedKeys | None) -> Operators:
    """Return who reads tokens of operators: those for this broker, and if it stands alone, for its own secret."""
    metrics = None if keys is None else keys.metrics
    if settings.coordinator is None:
        secret = _own_secret(settings, store)
        own = broker_credential(secret, settings.name)
        return Operators([key(secret, "operators"), key(own, "operators")], metrics)
    return Operators.of_broker(_token(settings), metrics)


def _own_secret(settings: BrokerSettings, store: Store) -> str:
    """Return the secret of a broker that stands alone; it makes one if it was given none."""
    given = secret_of(settings.secret, settings.secret_file)
    if given is not None:
        return given
    kept = store.recall("secret")
    if kept is None:
        kept = secrets.token_urlsafe(32)
        store.remember("secret", kept)
    return kept


def _token(settings: BrokerSettings) -> str:
    """Return the credential of this broker, or a token of its cluster."""
    if settings.token is not None:
        token = settings.token.strip()
    elif settings.token_file is not None:
        token = token_in(settings.token_file)
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
