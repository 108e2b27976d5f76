"""Creation of a class-data archive: a session that does a little of everything, and archives what it has loaded.

`python -m newsstand.spark.class_training` creates the archive of this machine, unless it exists.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from newsstand.errors import NewsstandError, first_line_of
from newsstand.spark.class_archive import JAVA_OPTIONS, ClassArchive, class_archive
from newsstand.spark.internals import end_jvm
from newsstand.spark.java import cache_folder, find_java
from newsstand.spark.session import settings, start

LONGEST_S = 600
"""Seconds after which an attempt is given up."""


def main() -> int:
    """Create the archive of this machine, at the lowest priority; return 1 if there is none afterwards."""
    os.nice(19)
    try:
        archive = class_archive(find_java(), cache_folder())
        if archive is None:
            raise NewsstandError('Java or Spark has no known layout, or a path has one of the characters " : \\')
        create(archive, train)
    except (NewsstandError, OSError) as error:
        print(f"newsstand: no class archive: {first_line_of(error)}", file=sys.stderr)
        return 1
    print(archive.file)
    return 0


def create(archive: ClassArchive, train: Callable[[str, Path], None]) -> None:
    """Create an archive by `train(options, folder)`, unless it exists or another process creates one."""
    cache = archive.base.parent
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "classes.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NewsstandError("another process creates one") from None
        if archive.file is not None:
            return
        archive.failure.write_text("")  # whatever ends this process, it is not tried again soon
        folder = cache / "classes.new"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir()
            fresh = folder / archive.base.name
            with _at_most(LONGEST_S):
                train(archive.create_options(fresh), folder)
            fresh.replace(archive.file_of_size(_synced_size(fresh)))
        except Exception as error:
            archive.failure.write_text(f"{first_line_of(error)}\n")
            raise NewsstandError(first_line_of(error)) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        archive.failure.unlink(missing_ok=True)
        archive.remove_others()


def train(options: str, folder: Path) -> None:
    """Run a session with the given options of its JVM, and wait until the JVM has ended."""
    for name in ("NEWSSTAND_CONFIG", "NEWSSTAND_SPARK_CONF", "NEWSSTAND_MASTER"):
        os.environ.pop(name, None)
    os.chdir(folder)
    chosen = settings("local[2]", ["spark.driver.memory=1g", f"spark.local.dir={folder}"], brief=True)
    chosen[JAVA_OPTIONS] += f" {options}"
    with _silent():
        try:
            spark = start(chosen)
            work(spark, folder)
            spark.stop()
            end_jvm()
        except BaseException:
            end_jvm(kill=True)
            raise


def work(spark: SparkSession, folder: Path) -> None:
    """Use what commands and data clusters use: files, Arrow, SQL, joins, shuffles, Python and streams."""
    rows = pa.table({"key": list(range(100)) * 2, "text": ["a", "b"] * 100, "value": [0.5] * 200})
    frame = spark.createDataFrame(rows)
    for kind in ("csv", "parquet", "json"):
        frame.write.format(kind).save(f"{folder}/{kind}")
        spark.read.schema(frame.schema).format(kind).load(f"{folder}/{kind}").count()
    spark.read.csv(f"{folder}/csv", inferSchema=True).collect()
    frame.createOrReplaceTempView("events")
    frame.select("key").distinct().cache().createOrReplaceTempView("wanted")
    spark.sql(
        "SELECT text, count(*), sum(value), max(struct(key, value)) FROM events WHERE key > 3 "
        "GROUP BY text ORDER BY 2"
    ).toArrow()
    spark.sql(
        "SELECT /*+ BROADCAST(e) */ w.key, to_json(struct(e.*)) FROM wanted w JOIN events e ON e.key = w.key "
        "WHERE e.text LIKE 'a%' AND timestamp_millis(e.key) < current_timestamp()"
    ).toArrow()
    spark.sql(
        "SELECT w.key, r.* FROM wanted w, "
        "LATERAL (SELECT e.value, row_number() OVER (ORDER BY e.text) FROM events e WHERE e.key = w.key) r"
    ).collect()
    spark.sql("EXPLAIN EXTENDED SELECT * FROM events LEFT ANTI JOIN wanted USING (key)").collect()
    sorted_rows = frame.repartition(2, "key").sortWithinPartitions("key", "text")
    sorted_rows.mapInArrow(_same, frame.schema).groupBy().agg(f.sum("value"), f.first("text")).collect()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise NewsstandError(f"not created within {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _silent() -> Iterator[None]:
    """Discard what this process and its children print: a JVM reports every class that it cannot archive."""
    kept = [os.dup(number) for number in (1, 2)]
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in (1, 2):
            os.dup2(nothing, number)
        yield
    finally:
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
        for descriptor in (nothing, *kept):
            os.close(descriptor)


def _synced_size(file: Path) -> int:
    """Write a file to the disk, so that a crash of the machine does not damage it, and return its size."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        raise NewsstandError("this Java writes none") from None
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
