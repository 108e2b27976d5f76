"""The process from which Spark forks its Python workers, with the slow imports already done."""

import socket

import numba  # noqa: F401
import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
from pyspark import daemon

spark_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run Spark's own worker; end silently if the JVM disconnects, as it does when a job is cancelled."""
    try:
        return int(spark_worker(sock, authenticated) or 0)
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
