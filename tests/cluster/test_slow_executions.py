"""An execution that takes too long is cancelled, and the other channels go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from test_data_cluster import eventually, opened

# Ten billion pairs, in many small steps that Spark can cancel.
APP = """
[datasets.reports]
fields = { id = "string", kind = "string" }

[channels.slow]
parameters = { kind = "string" }
query = '''
SELECT r.id, count(*) AS pairs FROM reports r JOIN explode(sequence(1, 100000)) AS a(x)
JOIN explode(sequence(1, 100000)) AS b(y) WHERE r.kind = :kind AND pow(a.x, b.y) + length(r.id) <> 3 GROUP BY r.id
'''

[channels.of_kind]
parameters = { kind = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"

[cluster]
execution_timeout = "TIMEOUT"
"""


@pytest.mark.timeout(120)
def test_an_execution_past_its_limit_is_cancelled_and_others_go_on(spark: SparkSession, tmp_path: Path) -> None:
    with opened(tmp_path, APP.replace("TIMEOUT", "2s"), spark) as here:
        here.subscribe("slow", "flood")
        (other,) = here.subscribe("of_kind", "flood")
        here.publish({"id": "a", "kind": "flood"})
        eventually(lambda: here.cluster.channel_status("slow")["failing"] is not None)
        failing = here.cluster.channel_status("slow")["failing"]
        assert isinstance(failing, dict)
        assert failing["error"].startswith("TimeoutError: the execution was cancelled after 2 s")
        eventually(lambda: len(here.cluster.results(other.id, 0, None, 10)) == 1)
        here.cluster.drop_channel("slow")


@pytest.mark.timeout(120)
def test_a_channel_that_is_dropped_does_not_wait_for_its_execution(spark: SparkSession, tmp_path: Path) -> None:
    with opened(tmp_path, APP.replace("TIMEOUT", "1h"), spark) as here:
        here.subscribe("slow", "flood")
        (other,) = here.subscribe("of_kind", "flood")
        here.publish({"id": "a", "kind": "flood"})
        eventually(lambda: here.cluster.channel_status("slow")["executing_seconds"] is not None)
        here.cluster.drop_channel("slow")
        eventually(lambda: len(here.cluster.results(other.id, 0, None, 10)) == 1)
