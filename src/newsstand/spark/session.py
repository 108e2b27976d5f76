"""Spark sessions, with defaults for one machine that can all be overridden.

Sources of settings, each overriding the ones before: the defaults below; those of the caller's kind of work; the
table `[spark]` of the TOML file that NEWSSTAND_CONFIG names, by default `newsstand.toml` in the working directory;
the variable NEWSSTAND_SPARK_CONF, `key=value` pairs separated by commas; NEWSSTAND_MASTER, for the master alone;
the options `--conf` and `--master`.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.resources import files

from py4j.protocol import Py4JError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from newsstand.config.spark_settings import environment_settings, setting_pairs
from newsstand.errors import BadInput, BadOption, first_line_of
from newsstand.spark.class_archive import class_archive, create_in_background, with_class_archive
from newsstand.spark.internals import stop_session
from newsstand.spark.java import cache_folder, find_java, wrap_java

_BRIEF = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"
"""Options of a JVM that starts fast and optimizes little: for minutes of work, not for hours."""


def _defaults(brief: bool) -> dict[str, str]:
    """Return settings for a single machine that do no harm on a cluster."""
    log4j = files("newsstand.spark") / "log4j2.properties"
    memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return {
        "spark.master": "local[*]",
        "spark.driver.memory": f"{max(1024, min(8192, memory_mib // 4))}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log4j}{_BRIEF if brief else ''}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.python.daemon.module": "newsstand.spark.daemon",
    }


def settings(
    master: str | None = None,
    conf: Sequence[str] = (),
    *,
    brief: bool = False,
    kind: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return all settings of a session; `kind` has the defaults of the caller's kind of work."""
    chosen = _defaults(brief) | dict(kind or {}) | environment_settings() | setting_pairs(conf, "--conf")
    if master:
        chosen["spark.master"] = master
    master, cores = chosen["spark.master"], os.cpu_count() or 1
    if master.startswith("local") or "127.0.0.1" in master:
        # Large results are fetched from the driver's block manager at its bind address.
        chosen.setdefault("spark.driver.host", "127.0.0.1")
        chosen.setdefault("spark.driver.bindAddress", "127.0.0.1")
        chosen.setdefault("spark.sql.shuffle.partitions", str(2 * cores))
    slots = re.match(r"local\[(\d+)", master)
    if slots and int(slots[1]) > cores:
        # A stage has no more tasks than there are cores: the other slots are for other jobs.
        chosen.setdefault("spark.default.parallelism", str(cores))
    if master.startswith("local") and (brief or kind):
        # For tasks on few rows: by default each aggregate and sort of a task allocates up to 64 MB. A task has at
        # most 8,192 pages.
        chosen.setdefault("spark.buffer.pageSize", "4m")
    if master.startswith("local"):
        # Other users of the machine reach the ports of driver and executors on the loopback address.
        chosen.setdefault("spark.authenticate", "true")
    if master.startswith("local-cluster") and chosen["spark.authenticate"] == "true":
        # In other local modes Spark generates a secret itself.
        chosen.setdefault("spark.authenticate.secret", secrets.token_hex(32))
    return chosen


EXECUTIONS_AT_ONCE = 4
"""Executions that can each use all cores of a machine at the same time."""


def cluster_settings(configured: Mapping[str, str]) -> dict[str, str]:
    """Return settings for a data cluster, which runs many small executions, overridden by those of its app."""
    return {
        # A failed task is retried, as on a real cluster. There are more slots than cores, so that one execution
        # cannot occupy all of them: the operating system shares the cores.
        "spark.master": f"local[{EXECUTIONS_AT_ONCE * (os.cpu_count() or 1)},4]",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.leafNodeDefaultParallelism": "1",  # a few publications are one task
        # Rows in a plan are hashed and compared for each execution; larger relations stay outside the plan.
        "spark.sql.execution.arrow.localRelationThreshold": "256KB",
        "spark.sql.runSQLOnFiles": "false",  # a channel's query reads only datasets
        "spark.scheduler.mode": "FAIR",  # a long execution does not delay a short one
        # An expression that recurses too deeply, such as a regular expression, fails its task, not the process.
        "spark.executor.killOnFatalError.depth": "0",
        **configured,
    }


@contextmanager
def open_session(
    master: str | None = None,
    conf: Sequence[str] = (),
    app: str = "newsstand",
    *,
    brief: bool = False,
    kind: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Open a session for the length of a `with` block; `brief` suits a few minutes of work."""
    spark = start({"spark.app.name": app, **settings(master, conf, brief=brief, kind=kind)})
    try:
        yield spark
    finally:
        with suppress(ConnectionError, Py4JError):  # the JVM has ended already
            stop_session(spark)
    if brief:  # a server may have been stopped together with its machine
        create_in_background(class_archive(find_java(), cache_folder()))


def start(chosen: Mapping[str, str]) -> SparkSession:
    """Start a session with these settings, and the archive of Spark's classes if there is one."""
    master = chosen["spark.master"]
    _require_master(master)
    java, cache = find_java(), cache_folder()
    chosen = with_class_archive(chosen, class_archive(java, cache))
    os.environ["JAVA_HOME"] = str(wrap_java(java, cache))
    if master.startswith("local-cluster"):
        # Its workers and executors run on this machine; by default they would listen on the network.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    logging.getLogger().addFilter(_is_relevant)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # They print the traceback of an error in a query, which is raised as well.
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    # PySpark needs it when the JVM answers for the first time; meanwhile there is time to load it.
    threading.Thread(target=import_module, args=("pyspark.testing.utils",), daemon=True).start()
    try:
        with _interrupt_deferred():
            spark = SparkSession.builder.config(map=dict(chosen)).getOrCreate()
    except Exception as error:
        raise BadInput(f"cannot start Spark on master '{master}': {first_line_of(error)}") from error
    if threading.current_thread() is threading.main_thread():
        # PySpark's own handler would call the JVM within another call.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return spark


_ADDRESS = r"(?:\[[^\]]+\]|[^\s/:,\[]+):\d+"
_MASTER = re.compile(
    r"local(\[(\*|\d+)(, *\d+)?\])?|local-cluster\[ *\d+ *, *\d+ *, *\d+ *\]|yarn|k8s://\S+|"
    rf"spark://(?P<addresses>{_ADDRESS}(,{_ADDRESS})*)"
)


def _require_master(master: str) -> None:
    """Raise BadOption for a malformed or unreachable master, which Spark would report late and in many lines."""
    match = _MASTER.fullmatch(master)
    if match is None:
        forms = "local[*], local-cluster[2,1,1024], spark://host:7077, yarn or k8s://…"
        raise BadOption(f"master '{master}' is none of {forms}")
    failures = []
    for address in match["addresses"].split(",") if match["addresses"] else []:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
            return
        except (OSError, OverflowError) as error:
            failures.append(f"{address} does not answer ({getattr(error, 'strerror', None) or error})")
    if failures:
        raise BadOption(f"cannot start Spark on master '{master}': {'; '.join(failures)}")


@contextmanager
def _interrupt_deferred() -> Iterator[None]:
    """Defer Ctrl-C until Spark has started, so that its JVM is not left running; a second Ctrl-C interrupts.

    SIGTERM is deferred, too, where it has a handler: without one it ends the JVM with this process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupted = False

    def record(*_: object) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True

    numbers = [signal.SIGINT]
    if callable(signal.getsignal(signal.SIGTERM)):
        numbers.append(signal.SIGTERM)
    before = {number: signal.signal(number, record) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if interrupted:
        raise KeyboardInterrupt


def _is_relevant(record: logging.LogRecord) -> bool:
    """Return False for the traceback of a call that Ctrl-C interrupts: Py4J logs it and raises the error."""
    return not str(record.msg).endswith("while sending command.")
