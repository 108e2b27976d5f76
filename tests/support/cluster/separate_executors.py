"""A data cluster on some Spark master, in its own process: it publishes, matches and prints the results.

`python tests/support/cluster/separate_executors.py MASTER FOLDER [POSTGRES]`; nothing takes the
short way for what is small: executors read the log and hand over, or write, the results.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from newsstand.cluster.app_folder import read_app
from newsstand.cluster.log.files.log import FileLog, FileLogLimits
from newsstand.cluster.results.database_postgres import PostgresResultDatabase
from newsstand.cluster.results.database_sqlite import SqliteResultDatabase
from newsstand.cluster.results.stores import ResultStores
from newsstand.cluster.service import DataCluster
from newsstand.spark import open_session
from newsstand.spark.internals import executor_infos
from newsstand.spark.session import cluster_settings

APP = """
[datasets.reports]
fields = { id = "string", kind = "string", lat = "double", lon = "double" }

[datasets.shelters]
key = "name"
fields = { name = "string", lat = "double", lon = "double" }

[channels.of_kind]
parameters = { kind = "string" }
query = "SELECT r.id FROM reports r WHERE r.kind = :kind"

[channels.near]
period = "300ms"
parameters = { lat = "double", lon = "double" }
query = '''
SELECT r.id, s.name FROM reports r JOIN shelters s ON distance_km(r.lat, r.lon, s.lat, s.lon) < 3
WHERE distance_km(r.lat, r.lon, :lat, :lon) < 2
'''
"""

SHELTERS = [
    {"name": "school", "lat": 1.0, "lon": 1.0},
    {"name": "gym", "lat": 1.0, "lon": 1.0},
    {"name": "school", "lat": 50.0, "lon": 1.0},
]
REPORTS = [
    {"id": f"e{number}", "kind": f"kind{number % 7}", "lat": 1.0, "lon": 1.0 + number % 3 / 2}
    for number in range(600)
]
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main(master: str, folder: Path, postgres: str | None) -> None:
    (folder / "newsstand.toml").write_text(APP)
    app = read_app(folder)
    app.data.mkdir()
    conf = [f"spark.executor.extraJavaOptions={QUICK}", "spark.driver.memory=1g"]
    with open_session(master, conf, brief=True, kind=cluster_settings({})) as spark:
        log = FileLog(app.data / "log", FileLogLimits(driver_bytes=0))
        results: ResultStores = ResultStores(SqliteResultDatabase(app.data / "results.sqlite"), few=0)
        if postgres is not None:
            results = ResultStores(PostgresResultDatabase(postgres, "on_a_cluster"), few=0)
        cluster = DataCluster(app, spark, log, results, app.data, lambda: time.time_ns() // 1_000_000)
        cluster.start()
        streams = played(cluster)
        hosts = [info.host() for info in executor_infos(spark.sparkContext)]
        cluster.stop()
        results.close()
        log.close()
    print(json.dumps({"streams": streams, "hosts": hosts}))


def played(cluster: DataCluster) -> list[list[object]]:
    """Return the results of a few streams after two batches with a pause between."""
    cluster.subscriptions.register_broker("edge", "http://127.0.0.1:9/")
    wanted = [("of_kind", [f"kind{number}"], 1) for number in range(7)] + [("near", [1.0, 1.0], 1)]
    subscriptions = cluster.subscriptions.subscribe("edge", wanted)
    cluster.publications.publish("shelters", json.dumps(SHELTERS).encode(), "json", None)
    for part in (REPORTS[:400], REPORTS[400:]):
        cluster.publications.publish("reports", json.dumps(part).encode(), "json", None)
        deadline = time.monotonic() + 120
        while any(cluster.definitions.channel_status(name)["lag"] for name in ("of_kind", "near")):
            failing = [cluster.definitions.channel_status(name)["failing"] for name in ("of_kind", "near")]
            assert time.monotonic() < deadline, failing
            time.sleep(0.05)
    return [
        [json.loads(bytes(one.payload)) for one in cluster.subscriptions.read(made.id, 0, None, 1000)]
        for made in subscriptions
    ]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
