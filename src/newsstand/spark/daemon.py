"""The process from which Spark forks its Python workers, with the slow imports already done."""

import numba  # noqa: F401
import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
from pyspark import daemon

if __name__ == "__main__":
    daemon.manager()
