"""Spark settings that the user gives outside the command line, read without loading Spark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from newsstand.config.files import read_toml
from newsstand.errors import BadInput, BadOption

MASTER = "spark.master"


def environment_settings() -> dict[str, str]:
    """Return the settings of the configuration file, NEWSSTAND_SPARK_CONF and NEWSSTAND_MASTER; the last wins."""
    chosen = _configured()
    chosen.update(setting_pairs(os.environ.get("NEWSSTAND_SPARK_CONF", "").split(","), "NEWSSTAND_SPARK_CONF"))
    if master := os.environ.get("NEWSSTAND_MASTER"):
        chosen[MASTER] = master
    return chosen


def _configured() -> dict[str, str]:
    named = os.environ.get("NEWSSTAND_CONFIG")
    path = Path(named or "newsstand.toml")
    if named and not path.exists():
        raise BadInput(f"NEWSSTAND_CONFIG: no file {path}")
    table = read_toml(path).get("spark", {}) if path.exists() else {}
    settings = table if isinstance(table, dict) else {"spark": table}
    for key, value in settings.items():
        if not key.startswith("spark.") or isinstance(value, dict | list):
            raise BadInput(f'{path}: [spark] {key}: a setting is written as "spark.some.key" = value, in quotes')
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()}


def setting_pairs(texts: Sequence[str], place: str) -> dict[str, str]:
    """Return the settings in texts of the form key=value, given at a place that errors name."""
    pairs = {}
    for text in filter(None, (text.strip() for text in texts)):
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise BadOption(f"{place}: '{text}' must have the form spark.some.key=value")
        pairs[key] = value
    return pairs
