"""The process of a data cluster: Spark, the log, the results and the HTTP API, from start to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import uvicorn

from newsstand.cluster.api import create_api
from newsstand.cluster.app_folder import ADDRESS, App
from newsstand.cluster.catalog import Catalog
from newsstand.cluster.data_cluster import DataCluster
from newsstand.cluster.log import Log
from newsstand.cluster.log_files import FileLog
from newsstand.cluster.log_positions import require_positions
from newsstand.cluster.pages import write_whole
from newsstand.cluster.results import Results
from newsstand.cluster.results_sqlite import SqliteResults
from newsstand.cluster.spark_settings import cluster_settings
from newsstand.cluster.tokens import load_tokens
from newsstand.errors import BadOption, NewsstandError
from newsstand.serving.client_address import proxy_options
from newsstand.serving.http_protocol import limited_http
from newsstand.serving.process import (
    BACKLOG,
    listening,
    make_private,
    terminated_like_interrupted,
    url_of,
    wall_clock_ms,
)
from newsstand.spark import open_session


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
    """Run a data cluster until SIGTERM or Ctrl-C; then answer what was begun and stop."""
    folder = (data or app.data).absolute()
    with ExitStack() as stack:
        stack.enter_context(terminated_like_interrupted())
        where = (host or app.cluster.host, app.cluster.port if port is None else port)
        bound = stack.enter_context(listening(*where))
        if app.tls is not None:
            app.tls.check()
        cluster = stack.enter_context(open_cluster(app, folder, master, conf))
        tokens = load_tokens(app, folder, say)
        stack.enter_context(_running(cluster))
        api = create_api(cluster, tokens, app.cluster)
        server = uvicorn.Server(
            uvicorn.Config(
                api,
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=10,
                lifespan="on",
                ssl_certfile=app.tls.certificate if app.tls else None,
                ssl_keyfile=app.tls.key if app.tls else None,
                backlog=BACKLOG,
                http=limited_http(app.cluster.http_limits),
                ws="none",
                **proxy_options(app.cluster.trusted_proxies),
            )
        )
        url = url_of(bound, app.tls)
        write_whole(folder / ADDRESS, f"{url}\n".encode())
        stack.callback((folder / ADDRESS).unlink, missing_ok=True)
        bound.listen(BACKLOG)  # who reads the address may connect at once
        say(f"newsstand: data cluster of {app.folder} on {url}")
        threading.Thread(target=_stop_without_spark, args=(cluster, server), daemon=True).start()
        with suppress(KeyboardInterrupt):  # uvicorn raises the signal that it stopped for once more
            server.run(sockets=[bound])
        if cluster.spark_stopped.is_set():
            raise NewsstandError("Spark has stopped; nothing that was accepted is lost: start the cluster again")


@contextmanager
def open_cluster(
    app: App, folder: Path, master: str | None = None, conf: Sequence[str] = ()
) -> Iterator[DataCluster]:
    """A data cluster over a data folder, not yet started, for the length of a `with` block."""
    try:
        make_private(folder)
    except OSError as error:
        raise BadOption(f"data folder {folder}: cannot be made ({error.strerror})") from error
    with ExitStack() as stack:
        log = open_log(app, folder)
        stack.callback(log.close)
        log.verify()
        results = open_results(app, folder)
        stack.callback(results.close)
        channels = Catalog(app, folder / "catalog.json", read_only=True).channels()
        require_positions(log, folder, results, {name: channel.new for name, channel in channels.items()})
        spark = stack.enter_context(
            open_session(master, conf, f"newsstand {app.folder.name}", kind=cluster_settings(app.spark))
        )
        yield DataCluster(app, spark, log, results, folder, wall_clock_ms)


def open_log(app: App, folder: Path) -> Log:
    """The ingest log that an app is configured to have."""
    if app.cluster.log is None:
        return FileLog(folder / "log")
    from newsstand.cluster.log_kafka import KafkaLog

    return KafkaLog(app.cluster.log.servers, app.cluster.log.prefix)


def open_results(app: App, folder: Path) -> Results:
    """The result store that an app is configured to have."""
    if app.cluster.results == "sqlite":
        return SqliteResults(folder / "results.sqlite")
    from newsstand.cluster.results_postgres import PostgresResults

    return PostgresResults(app.cluster.results)


def _stop_without_spark(cluster: DataCluster, server: uvicorn.Server) -> None:
    """A cluster that cannot execute anything ends, so that whoever watches over it starts it again."""
    cluster.spark_stopped.wait()
    server.should_exit = True


@contextmanager
def _running(cluster: DataCluster) -> Iterator[None]:
    cluster.start()
    try:
        yield
    finally:
        cluster.stop()
