"""Class-data archives: the classes of Spark as a JVM has them in memory, which it maps instead of parsing.

CACHE/classes-PLACE-STATE-SIZE.jsa   an archive; `.aot`, an ahead-of-time cache, for Java 25 and later
CACHE/classes-PLACE-STATE.failed     why the last attempt to create it failed; empty while one is under way
CACHE/classes.lock                   held while an archive is created
CACHE/classes.new/                   what is being created

PLACE stands for the paths of Java and Spark, STATE for the content of Java and of the class path. The JVM checks
both again when it opens an archive, and starts without one that does not fit. It dies of one that is too short:
therefore SIZE, in bytes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from newsstand.errors import BadOption
from newsstand.spark.java import Java

log = logging.getLogger(__name__)

VARIABLE = "NEWSSTAND_CLASS_ARCHIVE"
"""Its values: `auto`, or `use` to create none in the background, or `off`."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
RETRY_S = 24 * 3600
"""Seconds after a failure until the creation is tried again in the background."""
UNUSED_S = 30 * 24 * 3600
"""Seconds after which an archive that no session has used is removed."""
_FIRST_JAVA_WITH_CACHE = 25
_FOLDERS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
"""Variables whose folders Spark adds to the class path."""


@dataclass(frozen=True)
class ClassArchive:
    """The archive for a runtime and the installed Spark, which may not exist yet."""

    base: Path
    """Its path without the size."""

    @property
    def file(self) -> Path | None:
        """The complete archive, if it exists."""
        for file in self.base.parent.glob(f"{self.base.stem}-*{self.base.suffix}"):
            with suppress(OSError):  # it has just been removed
                if file == self.file_of_size(file.stat().st_size):
                    return file
        return None

    def file_of_size(self, size: int) -> Path:
        """Return the path of an archive of a size in bytes."""
        return self.base.with_stem(f"{self.base.stem}-{size}")

    @property
    def failure(self) -> Path:
        """The file that exists if the last attempt to create the archive has failed, or has not ended."""
        return self.base.with_suffix(".failed")

    def use_options(self, file: Path) -> str:
        """Return the options of a JVM that uses the archive, and prints nothing if it cannot."""
        return self._options("AOTCache" if self._is_cache else "SharedArchiveFile", file)

    def create_options(self, file: Path) -> str:
        """Return the options of a JVM that writes the classes that it has loaded to a file when it ends."""
        return self._options("AOTCacheOutput" if self._is_cache else "ArchiveClassesAtExit", file)

    @property
    def _is_cache(self) -> bool:
        return self.base.suffix == ".aot"

    def _options(self, name: str, file: Path) -> str:
        return f'"-XX:{name}={file}" -Xlog:cds*=off' + " -Xlog:aot*=off" * self._is_cache

    def failed_recently(self) -> bool:
        """Return whether the last attempt has failed, or has not ended."""
        with suppress(OSError):
            return time.time() - self.failure.stat().st_mtime < RETRY_S
        return False

    def remove_others(self) -> None:
        """Remove earlier archives of the same Java and Spark, and those that are not used any more."""
        place = self.base.name.rpartition("-")[0]
        for other in self.base.parent.glob("classes-*.*"):
            with suppress(OSError):
                is_replaced = other.name.startswith(f"{place}-") and other != self.file
                if is_replaced or time.time() - other.stat().st_mtime > UNUSED_S:
                    other.unlink()


def class_archive(java: Java, cache: Path) -> ClassArchive | None:
    """Return the archive for a runtime; None if there cannot be one."""
    spark = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    place = hashlib.sha256(f"{java.program}\n{spark}".encode())
    try:
        classes = java.classes.stat()
        # The JVM takes the files of a folder in the same order as this call.
        with os.scandir(spark / "jars") as jars:
            found = [(jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars]
    except OSError:  # a program that chooses a runtime, or a Spark of unknown layout
        return None
    folders = [os.environ.get(name) for name in _FOLDERS]
    state = hashlib.sha256(repr((classes.st_size, classes.st_mtime_ns, folders, found)).encode())
    kind = "aot" if java.version >= _FIRST_JAVA_WITH_CACHE else "jsa"
    base = cache / f"classes-{place.hexdigest()[:12]}-{state.hexdigest()[:12]}.{kind}"
    return None if set('":\\') & set(str(base)) else ClassArchive(base)


def with_class_archive(chosen: Mapping[str, str], archive: ClassArchive | None) -> dict[str, str]:
    """Return settings of a session that uses an archive, if it exists and the settings name no other."""
    own = chosen.get(JAVA_OPTIONS, "")
    if archive is None or _wish() == "off" or any(word in own for word in ("Archive", "-Xshare", "AOT")):
        return dict(chosen)
    if (file := archive.file) is None:
        return dict(chosen)
    with suppress(OSError):  # the folder is not ours
        os.utime(file)  # it is in use
    # The last option counts: those of the user.
    return {**chosen, JAVA_OPTIONS: f"{archive.use_options(file)} {own}".strip()}


def create_in_background(archive: ClassArchive | None) -> None:
    """Start a process that creates a missing archive, and outlives this one by about a minute."""
    if archive is None or _wish() != "auto" or archive.file is not None:
        return
    if archive.failed_recently():
        log.debug("no class archive: the last attempt has failed, see %s", archive.failure)
        return
    try:
        subprocess.Popen(
            [sys.executable, "-m", "newsstand.spark.class_training"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        log.debug("no class archive: %s", error)


def _wish() -> str:
    wish = os.environ.get(VARIABLE) or "auto"
    if wish not in ("auto", "use", "off"):
        raise BadOption(f"{VARIABLE}: expected auto, use or off, got '{wish}'")
    return wish
