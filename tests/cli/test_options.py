"""The options that commands share: which engine they choose."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.environment import nothing_set  # noqa: F401

from newsstand.cli.options import SparkOptions
from newsstand.errors import BadInput, BadOption

MASTER = '[spark]\n"spark.master" = "local[2]"\n'
OTHER = '[spark]\n"spark.executor.memory" = "4g"\n'


@pytest.mark.parametrize(
    ("files", "environment", "is_chosen"),
    [
        ({}, {}, False),
        ({"newsstand.toml": MASTER}, {}, True),
        ({"newsstand.toml": OTHER}, {}, False),
        ({"newsstand.toml": "[cluster]\nport = 1\n"}, {}, False),
        ({"other.toml": MASTER}, {}, False),
        ({"other.toml": MASTER}, {"NEWSSTAND_CONFIG": "other.toml"}, True),
        ({"newsstand.toml": MASTER, "other.toml": OTHER}, {"NEWSSTAND_CONFIG": "other.toml"}, False),
        ({}, {"NEWSSTAND_SPARK_CONF": "spark.executor.memory=4g,spark.master=local[2]"}, True),
        ({}, {"NEWSSTAND_SPARK_CONF": "spark.executor.memory=4g"}, False),
        ({}, {"NEWSSTAND_MASTER": "local[2]"}, True),
        ({}, {"NEWSSTAND_MASTER": ""}, False),
    ],
)
def test_auto_chooses_spark_if_a_master_is_configured(
    files: dict[str, str], environment: dict[str, str], is_chosen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        Path(name).write_text(text)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert SparkOptions().is_chosen("auto") is is_chosen
    assert SparkOptions().is_chosen("local") is False
    assert SparkOptions().is_chosen("spark") is True


@pytest.mark.parametrize(
    ("options", "fits", "is_chosen"),
    [
        (SparkOptions(), True, False),
        (SparkOptions(), False, True),
        (SparkOptions(master="local[2]"), True, True),
        (SparkOptions(conf=["spark.executor.memory=4g"]), True, True),
    ],
)
def test_auto_chooses_spark_if_asked_or_needed(options: SparkOptions, fits: bool, is_chosen: bool) -> None:
    assert options.is_chosen("auto", fits=fits) is is_chosen


def test_configuration_is_read_only_where_it_decides() -> None:
    Path("newsstand.toml").write_text('[spark]\nmaster = "local[2]"\n')
    assert SparkOptions().is_chosen("local") is False
    with pytest.raises(BadInput, match=r"newsstand\.toml: \[spark\] master: a setting is written as"):
        SparkOptions().is_chosen("auto")


def test_local_engine_rejects_options_of_spark() -> None:
    with pytest.raises(BadOption, match="--master: --engine local does not use Spark; choose spark or auto"):
        SparkOptions(master="local[2]").is_chosen("local")
