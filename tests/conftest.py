from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from pyspark.sql import SparkSession

from newsstand.spark.session import settings, start


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
