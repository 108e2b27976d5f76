from __future__ import annotations

from collections.abc import Iterator

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
