"""The process from which Spark forks its Python workers, with the slow imports already done."""

import socket

import numba  # noqa: F401
import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
from pyspark import daemon

work = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Work as Spark's own worker does, but in silence if the JVM hangs up, as it does when a job is stopped."""
    try:
        return int(work(sock, authenticated) or 0)
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
