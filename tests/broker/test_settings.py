"""Errors in a broker's settings name their source."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from newsstand.broker.settings import BrokerSettings
from newsstand.config.settings import read_settings
from newsstand.config.types import read_value
from newsstand.errors import BadInput, BadOption

NEEDED = 'name = "edge"\ncluster = "http://127.0.0.1:9"\ndata = "data"\n'


@pytest.mark.parametrize(
    ("line", "received"),
    [
        ('opportunistic_policy = "lru"', "opportunistic_policy: lru: must be sel or all"),
        ('results_policy = "best"', "results_policy: unknown policy 'best' of result caches"),
        ('storages = [""]', "storages: '' is not a valid topic"),
        ("opportunistic_bytes = 99999999999999999999", "opportunistic_bytes: "),
        (
            "results_budget = 1125899906842625",
            "results_budget: must be a whole number of bytes, at most 1048576 GiB",
        ),
    ],
)
def test_error_names_the_file_and_the_key(line: str, received: str, tmp_path: Path) -> None:
    file = tmp_path / "b.toml"
    file.write_text(f"[broker]\n{NEEDED}{line}\n")
    with pytest.raises(BadOption) as mistake:
        read_settings(BrokerSettings, "broker", file, {}, {})
    assert str(mistake.value).startswith(f"{file}: broker.{received}")


def test_error_names_the_source_of_the_effective_setting(tmp_path: Path) -> None:
    file = tmp_path / "b.toml"
    file.write_text(f'[broker]\n{NEEDED}results_policy = "lru"\n')
    with pytest.raises(BadOption, match=r"^NEWSSTAND_BROKER_RESULTS_POLICY: unknown policy 'best'"):
        read_settings(BrokerSettings, "broker", file, {"NEWSSTAND_BROKER_RESULTS_POLICY": "best"}, {})
    with pytest.raises(BadOption, match=r"^--opportunistic-policy: lru: must be sel or all"):
        read_settings(BrokerSettings, "broker", file, {}, {"opportunistic_policy": "lru"})


@pytest.mark.parametrize("key", ["opportunistic_bytes", "results_budget", "pages_capacity", "largest_page"])
def test_size_rejected_when_too_large(key: str) -> None:
    (kind,) = (one.type for one in msgspec.structs.fields(BrokerSettings) if one.name == key)
    assert read_value(key, 2**50, kind) == 2**50
    assert read_value(key, "64 MiB", kind) == 2**26
    with pytest.raises(BadInput, match=f"^{key}: must be a whole number of bytes"):
        read_value(key, 99999999999999999999, kind)
