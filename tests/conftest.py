from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import hypothesis
import pytest
from pyspark.sql import SparkSession

from newsstand.spark.session import settings, start

# How long an example takes tells of the machine, not of the code.
hypothesis.settings.register_profile("newsstand", deadline=None)
hypothesis.settings.load_profile("newsstand")

LONGEST = (
    "faults/test_faults_short.py",
    "cli/test_commands.py",
    "cluster/test_faults.py",
    "cluster/test_data_cluster.py",
    "lab/test_bad_input.py",
    "test_docs.py",
    "lab/test_simulate.py",
    "platform/test_up.py",
    "cluster/test_matching.py",
    "workload/test_chen2003.py",
    "workload/test_access_log.py",
    "cluster/test_emergencies.py",
    "lab/test_reproduce.py",
    "workload/test_bad2018.py",
)
"""The files that take longest come first, so that of several processes none is left with one at the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults", "the long test of faults, tests/faults")
    group.addoption("--seeds", default="1-5", help="seeds of the schedules: 3 or 1-5")
    group.addoption("--kills", type=int, default=40, help="processes killed per seed, at least")
    group.addoption("--pauses", type=int, default=20, help="processes paused per seed, at least")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    turn = {Path(__file__).parent / file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: turn.get(item.path, len(turn)))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One small session for all tests, quick to start."""
    conf = ["spark.sql.shuffle.partitions=2", "spark.driver.memory=1g"]
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
