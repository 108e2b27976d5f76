"""The server of a data cluster: its HTTP API, described at /openapi.json, and its process from start to stop."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import anyio
import uvicorn
from starlette.requests import Request

from newsstand.auth.api_tokens import ApiTokens, load_tokens, platform_secret
from newsstand.cluster.api.brokers import broker_routes, push_cache_routes, subscription_routes
from newsstand.cluster.api.context import ClusterContext
from newsstand.cluster.api.definitions import channel_routes, dataset_routes
from newsstand.cluster.api.pages import named_routes, page_routes
from newsstand.cluster.api.publications import publish_routes, result_routes
from newsstand.cluster.app_folder import ADDRESS, App, ClusterSettings
from newsstand.cluster.catalog import Catalog
from newsstand.cluster.log.maintenance import require_positions
from newsstand.cluster.offline import open_log
from newsstand.cluster.results.stores import open_results
from newsstand.cluster.service import DataCluster
from newsstand.config.files import write_atomically
from newsstand.config.settings import check_certificate
from newsstand.errors import NewsstandError
from newsstand.http.app import Api, Readiness, health_routes, in_thread
from newsstand.http.bodies import Bodies
from newsstand.http.protocol import server_config
from newsstand.http.server import (
    BACKLOG,
    listening,
    make_private,
    terminated_like_interrupted,
    url_of,
    wall_clock_ms,
)
from newsstand.spark import open_session
from newsstand.spark.session import cluster_settings


def create_api(cluster: DataCluster, tokens: ApiTokens, options: ClusterSettings) -> Api:
    """Return the API of a cluster, to be served by uvicorn."""
    bodies = Bodies(options.body_timeout_s)
    context = ClusterContext(
        authenticate=tokens.holder, bodies=bodies, cluster=cluster, tokens=tokens, options=options
    )
    checks, scrapes = anyio.CapacityLimiter(2), anyio.CapacityLimiter(1)  # answered however busy the rest is

    async def ready() -> Readiness:
        lacking = await in_thread(checks, cluster.ready)
        return Readiness(lacking, () if lacking else await in_thread(checks, cluster.degraded))

    async def metrics(request: Request) -> bytes:
        if not options.open_metrics:
            context.admit(request, ("metrics", None))
        return await in_thread(scrapes, cluster.metrics.text)

    groups = (
        *(publish_routes, dataset_routes, channel_routes, broker_routes, subscription_routes),
        *(result_routes, page_routes, named_routes, push_cache_routes),
    )
    routes = [*(group(context) for group in groups), health_routes(ready, metrics)]
    summary = "Datasets, channels, brokers' subscriptions, results and pages."
    return Api("Newsstand data cluster", summary, routes, cluster.metrics.requests)


def serve(
    app: App,
    *,
    data: Path | None = None,
    host: str | None = None,
    port: int | None = None,
    master: str | None = None,
    conf: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> None:
    """Run a data cluster until SIGTERM or Ctrl-C; then finish the requests in progress and stop."""
    folder = (data or app.data).absolute()
    with ExitStack() as stack:
        stack.enter_context(terminated_like_interrupted())
        bound = stack.enter_context(
            listening(host or app.cluster.host, app.cluster.port if port is None else port)
        )
        check_certificate(app.cluster.certificate, app.cluster.key)
        cluster = stack.enter_context(open_cluster(app, folder, master, conf))
        tokens = load_tokens(app.tokens, platform_secret(app.folder, app.cluster.secret_file, folder), folder, say)
        # A thread that has an answer of Spark waits for Python's lock at most this long, and not 5 ms each time.
        sys.setswitchinterval(0.001)
        cluster.start(app.cluster.warm_up_s)
        stack.callback(cluster.stop)
        server = uvicorn.Server(server_config(create_api(cluster, tokens, app.cluster), app.cluster))
        url = url_of(bound, app.cluster.certificate)
        write_atomically(folder / ADDRESS, f"{url}\n".encode())
        stack.callback((folder / ADDRESS).unlink, missing_ok=True)
        bound.listen(BACKLOG)  # readers of the address may connect immediately
        say(f"newsstand: data cluster of {app.folder} on {url}")
        threading.Thread(target=_stop_without_spark, args=(cluster, server), daemon=True).start()
        with suppress(KeyboardInterrupt):  # uvicorn raises the signal that stopped it again
            server.run(sockets=[bound])
        if cluster.spark_stopped.is_set():
            raise NewsstandError("Spark has stopped; accepted publications are safe: start the cluster again")


@contextmanager
def open_cluster(
    app: App, folder: Path, master: str | None = None, conf: Sequence[str] = ()
) -> Iterator[DataCluster]:
    """Open the data cluster of a data folder, not yet started, for the length of a `with` block."""
    make_private(folder)
    with ExitStack() as stack:
        log = open_log(app, folder)
        stack.callback(log.close)
        log.verify()
        results = open_results(app.cluster.results, folder)
        stack.callback(results.close)
        channels = Catalog(app, folder / "catalog.json", read_only=True).channels()
        require_positions(log, folder, results, {name: channel.new for name, channel in channels.items()})
        spark = stack.enter_context(
            open_session(master, conf, f"newsstand {app.folder.name}", kind=cluster_settings(app.spark))
        )
        yield DataCluster(app, spark, log, results, folder, wall_clock_ms)


def _stop_without_spark(cluster: DataCluster, server: uvicorn.Server) -> None:
    """Stop the server when Spark has stopped, so that a supervisor starts the process again."""
    cluster.spark_stopped.wait()
    server.should_exit = True
