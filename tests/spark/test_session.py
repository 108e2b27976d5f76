"""Sources of Spark settings, and the start of a session."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession
from support.environment import nothing_set  # noqa: F401

from newsstand.errors import BadInput, BadOption, NewsstandError
from newsstand.spark.session import open_session, settings, start

KEY = "spark.sql.shuffle.partitions"


# Settings


def test_settings_override_weaker_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    default = settings()[KEY]
    assert default.isdigit()
    Path("newsstand.toml").write_text(f'[spark]\n"{KEY}" = 11\n')
    assert settings()[KEY] == "11"
    monkeypatch.setenv("NEWSSTAND_SPARK_CONF", f"{KEY}=12")
    assert settings()[KEY] == "12"
    assert settings(conf=[f"{KEY}=13"])[KEY] == "13"
    assert settings(conf=[f"{KEY}=13", f"{KEY}=14"])[KEY] == "14"


def test_master_has_own_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings()["spark.master"] == "local[*]"
    Path("newsstand.toml").write_text('[spark]\n"spark.master" = "local[1]"\n')
    assert settings()["spark.master"] == "local[1]"
    monkeypatch.setenv("NEWSSTAND_SPARK_CONF", "spark.master=local[2]")
    assert settings()["spark.master"] == "local[2]"
    monkeypatch.setenv("NEWSSTAND_MASTER", "local[3]")
    assert settings()["spark.master"] == "local[3]"
    assert settings(conf=["spark.master=local[4]"])["spark.master"] == "local[4]"
    assert settings("local[5]", ["spark.master=local[4]"])["spark.master"] == "local[5]"


def test_configuration_file_named_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("newsstand.toml").write_text(f'[spark]\n"{KEY}" = 11\n')
    Path("other.toml").write_text('[spark]\n"spark.executor.memory" = "4g"\n"spark.ui.enabled" = true\n')
    monkeypatch.setenv("NEWSSTAND_CONFIG", "other.toml")
    chosen = settings()
    assert chosen[KEY] != "11"
    assert (chosen["spark.executor.memory"], chosen["spark.ui.enabled"]) == ("4g", "true")


def test_configuration_without_spark_changes_nothing() -> None:
    default = settings()
    Path("newsstand.toml").write_text('[other]\nkey = "value"\n')
    assert settings() == default


def test_pairs_may_contain_equals_signs_and_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEWSSTAND_SPARK_CONF", " spark.a=1 , spark.b=x=y ,")
    assert {"spark.a": "1", "spark.b": "x=y"}.items() <= settings().items()


def test_local_session_binds_to_loopback() -> None:
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


def test_driver_reachable_from_cluster() -> None:
    chosen = settings("spark://spark.example.org:7077")
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & chosen.keys()
    chosen = settings("spark://spark.example.org:7077", ["spark.driver.bindAddress=0.0.0.0"])
    assert chosen["spark.driver.bindAddress"] == "0.0.0.0"
    chosen = settings("spark://spark.example.org:7077", ["spark.driver.host=10.0.0.1"])
    assert chosen["spark.driver.host"] == "10.0.0.1"


# Invalid settings


def one_line(error: type[NewsstandError], make: Callable[[], object]) -> str:
    with pytest.raises(error) as raised:
        make()
    (line,) = str(raised.value).splitlines()
    return line


@pytest.mark.parametrize("pair", ["nonsense", "master=local", "=x", "spark.master"])
def test_malformed_pair_is_named(monkeypatch: pytest.MonkeyPatch, pair: str) -> None:
    assert one_line(BadOption, lambda: settings(conf=[pair])).startswith(f"--conf: '{pair}' must have the form")
    monkeypatch.setenv("NEWSSTAND_SPARK_CONF", f"spark.a=1,{pair}")
    assert one_line(BadOption, settings).startswith(f"NEWSSTAND_SPARK_CONF: '{pair}' must have the form")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"[spark\n", "newsstand.toml: "),
        (b"\xff\xfe", "newsstand.toml: "),
        (b'spark = "fast"\n', "newsstand.toml: [spark] spark: a setting is written as"),
        (b'[spark]\nmaster = "local"\n', "newsstand.toml: [spark] master: a setting is written as"),
        (b'[spark]\nspark.master = "local"\n', "newsstand.toml: [spark] spark: a setting is written as"),
        (b'[spark]\n"spark.a" = ["b"]\n', "newsstand.toml: [spark] spark.a: a setting is written as"),
    ],
)
def test_unreadable_configuration_is_named(text: bytes, expected: str) -> None:
    Path("newsstand.toml").write_bytes(text)
    assert one_line(BadInput, settings).startswith(expected)


def test_named_configuration_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEWSSTAND_CONFIG", "none.toml")
    assert one_line(BadInput, settings) == "NEWSSTAND_CONFIG: no file none.toml"
    Path("none.toml").mkdir()
    assert one_line(BadInput, settings).startswith("none.toml: ")


@pytest.mark.parametrize(
    "master",
    ["gopher://x", "local[x]", "local[]", "locally", "spark://host", "local-cluster[2]", "mesos://x:5050"],
)
def test_malformed_master_is_named(master: str) -> None:
    line = one_line(BadOption, lambda: start(settings(master)))
    assert line.startswith(f"master '{master}' is none of local[*], ")


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_wait_for_the_start_of_spark(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    done = []

    def interrupted() -> None:
        os.kill(os.getpid(), number)
        done.append("started")

    builder = SimpleNamespace(config=lambda **_: SimpleNamespace(getOrCreate=interrupted))
    monkeypatch.setattr(SparkSession, "builder", builder)
    before = signal.getsignal(number)
    signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            start(settings())
        assert done == ["started"]
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("brief", "error", "creates"), [(True, None, True), (False, None, False), (True, KeyboardInterrupt, False)]
)
def test_only_completed_command_creates_class_archive(
    monkeypatch: pytest.MonkeyPatch, brief: bool, error: type[BaseException] | None, creates: bool
) -> None:
    """A server may stop together with its machine, and Ctrl-C leaves no process behind."""
    calls = []
    monkeypatch.setattr("newsstand.spark.session.start", lambda _: "session")
    monkeypatch.setattr("newsstand.spark.session.stop_session", calls.append)
    monkeypatch.setattr("newsstand.spark.session.create_in_background", lambda _: calls.append("archive"))
    with pytest.raises(error) if error else nullcontext(), open_session(brief=brief):
        if error:
            raise error
    assert calls == (["session", "archive"] if creates else ["session"])


def test_unreachable_master_reported_at_once() -> None:
    line = one_line(BadOption, lambda: start(settings("spark://127.0.0.1:1,localhost:2")))
    assert line.startswith("cannot start Spark on master 'spark://127.0.0.1:1,localhost:2': 127.0.0.1:1 does not")
