"""Spark sessions with defaults that suit one machine, all of them overridable.

A setting is looked for, from weak to strong: the defaults below, those of the caller's kind of work, the table
`[spark]` of the TOML file named by NEWSSTAND_CONFIG (`newsstand.toml` in the working directory if that is unset),
the variable NEWSSTAND_SPARK_CONF (`key=value` pairs separated by commas), and what the caller passes (`--conf`,
`--master`).
The master alone may also stand in NEWSSTAND_MASTER.
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
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from newsstand.errors import BadInput, BadOption
from newsstand.spark.java import java_home


def cache_folder() -> Path:
    """Where Newsstand keeps what it can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "newsstand"


BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that starts fast and never optimizes much: right for minutes, wrong for hours."""


def defaults(memory_mib: int, *, brief: bool = False) -> dict[str, str]:
    """Settings that pay on a single machine and hurt nobody on a cluster."""
    log4j = files("newsstand.spark") / "log4j2.properties"
    return {
        "spark.master": "local[*]",
        "spark.driver.memory": f"{max(1024, min(8192, memory_mib // 4))}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log4j} {BRIEF if brief else ''}",
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
    """All settings of a session, the caller's strongest; `kind` has those that suit this kind of work."""
    chosen = defaults(_memory_mib(), brief=brief)
    chosen.update(kind or {})
    chosen.update(_configured())
    chosen.update(_pairs(os.environ.get("NEWSSTAND_SPARK_CONF", "").split(","), "NEWSSTAND_SPARK_CONF"))
    if from_environment := os.environ.get("NEWSSTAND_MASTER"):
        chosen["spark.master"] = from_environment
    chosen.update(_pairs(conf, "--conf"))
    if master:
        chosen["spark.master"] = master
    here = chosen["spark.master"].startswith("local") or "127.0.0.1" in chosen["spark.master"]
    if here:
        # Large results are fetched from the driver's own block manager: where it binds is where it is.
        chosen.setdefault("spark.driver.host", "127.0.0.1")
        chosen.setdefault("spark.driver.bindAddress", "127.0.0.1")
        chosen.setdefault("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1)))
    places = re.match(r"local\[(\d+)", chosen["spark.master"])
    if places and int(places[1]) > (cores := os.cpu_count() or 1):
        # A stage is not cut into more tasks than there are cores: the other places are for other jobs.
        chosen.setdefault("spark.default.parallelism", str(cores))
    if chosen["spark.master"].startswith("local"):
        # Other users of the machine reach the ports of driver and executors on the loopback address, too.
        chosen.setdefault("spark.authenticate", "true")
    if chosen["spark.master"].startswith("local-cluster") and chosen["spark.authenticate"] == "true":
        # In other local modes Spark makes a secret itself.
        chosen.setdefault("spark.authenticate.secret", secrets.token_hex(32))
    return chosen


@contextmanager
def open_session(
    master: str | None = None,
    conf: Sequence[str] = (),
    app: str = "newsstand",
    *,
    brief: bool = False,
    kind: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A session for the length of a `with` block; `brief` if little work awaits it."""
    spark = start({"spark.app.name": app, **settings(master, conf, brief=brief, kind=kind)})
    try:
        yield spark
    finally:
        with suppress(ConnectionError, Py4JError):  # a JVM that is gone needs no stopping
            spark.stop()


def start(chosen: Mapping[str, str]) -> SparkSession:
    """Start a session with exactly these settings."""
    _require_master(chosen["spark.master"])
    os.environ["JAVA_HOME"] = str(java_home(cache_folder()))
    if chosen["spark.master"].startswith("local-cluster"):
        # Its workers are in this process and its executors beside it; they would listen on the network otherwise.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    logging.getLogger().addFilter(_is_news)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # They write the whole traceback of an error in a query to standard error, beside its being raised.
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    builder = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        with _interrupted_afterwards():
            spark = builder.getOrCreate()
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadInput(f"cannot start Spark on master '{chosen.get('spark.master')}': {first}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupted)
    return spark


_ADDRESS = r"(?:\[[^\]]+\]|[^\s/:,\[]+):\d+"
_MASTER = re.compile(
    r"local(\[(\*|\d+)(, *\d+)?\])?|local-cluster\[ *\d+ *, *\d+ *, *\d+ *\]|yarn|k8s://\S+|"
    rf"spark://(?P<addresses>{_ADDRESS}(,{_ADDRESS})*)"
)


def _require_master(master: str) -> None:
    """Tell at once what Spark would tell in many lines, or after a minute of knocking."""
    known = _MASTER.fullmatch(master)
    if known is None:
        forms = "local[*], local-cluster[2,1,1024], spark://host:7077, yarn or k8s://…"
        raise BadOption(f"master '{master}' is none of {forms}")
    refusals = []
    for address in known["addresses"].split(",") if known["addresses"] else []:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
            return
        except (OSError, OverflowError) as error:
            refusals.append(f"{address} does not answer ({getattr(error, 'strerror', None) or error})")
    if refusals:
        raise BadOption(f"cannot start Spark on master '{master}': {'; '.join(refusals)}")


@contextmanager
def _interrupted_afterwards() -> Iterator[None]:
    """Ctrl-C waits until Spark has started, which otherwise would leave its JVM behind; a second one does not."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[bool] = []

    def remember(*_: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(True)

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def _is_news(record: logging.LogRecord) -> bool:
    """Py4J logs the traceback of a call that Ctrl-C cuts off, to the root logger and beside raising it."""
    return not str(record.msg).endswith("while sending command.")


def _interrupted(*_: object) -> None:
    """Ctrl-C is an ordinary KeyboardInterrupt: Spark's own handler calls the JVM in the middle of a call."""
    raise KeyboardInterrupt


def _configured() -> dict[str, str]:
    named = os.environ.get("NEWSSTAND_CONFIG")
    path = Path(named or "newsstand.toml")
    if not path.exists():
        if named:
            raise BadInput(f"NEWSSTAND_CONFIG: no file {path}")
        return {}
    try:
        table = tomllib.loads(path.read_text()).get("spark", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise BadInput(f"{path}: {error}") from error
    settings = table if isinstance(table, dict) else {"spark": table}
    for key, value in settings.items():
        if not key.startswith("spark.") or isinstance(value, dict | list):
            raise BadInput(f'{path}: [spark] {key}: a setting is written as "spark.some.key" = value, in quotes')
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()}


def _pairs(texts: Sequence[str], place: str) -> dict[str, str]:
    pairs = {}
    for text in filter(None, (text.strip() for text in texts)):
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise BadOption(f"{place}: '{text}' is not of the form spark.some.key=value")
        pairs[key] = value
    return pairs


def _memory_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
