from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from zlib import crc32

import hypothesis
import pytest
from pyspark.sql import SparkSession
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from newsstand.spark.class_archive import JAVA_OPTIONS
from newsstand.spark.session import settings, start

# Bare asserts there show their operands, as those of test modules do.
pytest.register_assert_rewrite("support")

from support.profiles import LIGHT  # noqa: E402  it is rewritten, too

# Tests use the archive of Spark's classes that the set-up has created, and create none beside other tests.
os.environ.setdefault("NEWSSTAND_CLASS_ARCHIVE", "use")
# Few tests publish so much that the warm-up of a data cluster saves time.
os.environ.setdefault("NEWSSTAND_CLUSTER_WARM_UP", "0s")

# Servers run for seconds here: their JVM starts as fast as that of a command.
os.environ.setdefault("NEWSSTAND_SPARK_CONF", f"{JAVA_OPTIONS}={settings(brief=True)[JAVA_OPTIONS]}")

# Each worker loads all test modules, and each command the package: without bytecode they compile them again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Collection only allocates: what it makes is not garbage, and later collections need not look at it.
gc.disable()

hypothesis.settings.load_profile(LIGHT)


def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.getoption("dist", "no") != "no":  # this process distributes tests, and collects none
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unit", action="store_true", help="run only tests that start neither Spark nor a process")
    group = parser.getgroup("faults", "the long test of faults, tests/faults")
    group.addoption("--seeds", default="1-5", help="seeds of the schedules: 3 or 1-5")
    group.addoption("--kills", type=int, default=40, help="processes killed per seed, at least")
    group.addoption("--pauses", type=int, default=20, help="processes paused per seed, at least")


class FileScheduling(LoadFileScheduling):
    """The scheduler of `make test`: two workers take all tests that use `spark`, the others whole files."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        uses_spark = SPARK_ID in nodeid.partition("[")[2].rstrip("]").split("-")
        return f"{SPARK_ID} {crc32(file.encode()) % 2}" if uses_spark else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling:
    return FileScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put tests that use Spark or wait for processes first, so that no worker is left with them at the end."""
    items.sort(key=_turn)
    if config.getoption("--unit"):
        others = [item for item in items if _turn(item) != UNIT]
        config.hook.pytest_deselected(items=others)
        items[:] = items[len(others) :]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _no_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `--unit`, a test that starts a process all the same is skipped: it needs the mark `processes`."""
    with pytest.MonkeyPatch.context() as patch:
        if request.config.getoption("--unit"):
            patch.setattr(subprocess.Popen, "__init__", _skip_process)
        yield


def _skip_process(_: object, command: object, *__: object, **___: object) -> None:
    pytest.skip(f"not a unit test, to be marked `processes`: it starts {command}")


SPARK, PROCESSES, UNIT = 0, 1, 2


def _turn(item: pytest.Item) -> int:
    """Return whether a test uses Spark, starts processes by its mark, its module or a fixture, or neither."""
    if "spark" in getattr(item, "fixturenames", ()):
        return SPARK
    if item.get_closest_marker("processes"):
        return PROCESSES
    if not isinstance(item, pytest.Function):
        return UNIT
    fixtures = [one.func.__module__ for defs in item._fixtureinfo.name2fixturedefs.values() for one in defs]
    modules = {item.module.__name__, *(name for name in fixtures if name in sys.modules)} - {__name__}
    return PROCESSES if any(_starts_processes(name) for name in modules) else UNIT


@cache
def _starts_processes(name: str) -> bool:
    """Return whether a module uses `subprocess`, itself or through what it imports from `support`."""
    names = vars(sys.modules[name])
    origins = {str(getattr(value, "__module__", None)) for value in names.values()} - {name}
    return "subprocess" in names or any(
        _starts_processes(origin) for origin in origins if origin.startswith("support.")
    )


SPARK_ID = "on Spark"
"""The part of the identifier of a test that tells the scheduler that the test uses Spark."""


@pytest.fixture(scope="session", params=[SPARK_ID])
def spark() -> Iterator[SparkSession]:
    """One small session for all tests, quick to start."""
    # As a data cluster has it: tasks of cancelled executions are stopped, and that must not end Spark.
    survive = "spark.executor.killOnFatalError.depth=0"
    conf = [
        "spark.sql.shuffle.partitions=2",
        "spark.driver.memory=3g",
        "spark.sql.ui.retainedExecutions=1",
        survive,
    ]
    session = start(settings(master="local[2]", conf=conf, brief=True))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def lent(spark: SparkSession) -> Callable[[], AbstractContextManager[None]]:
    """Commands given in this process get a session of their own beside `spark`, and leave Spark running."""

    @contextmanager
    def lend() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SparkSession, "stop", lambda _: None)
            patch.setattr(SparkSession, "_instantiatedSession", spark.newSession())
            yield

    return lend
