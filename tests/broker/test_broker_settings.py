"""Mistakes in a broker's settings are told with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from newsstand.broker.settings import BrokerSettings
from newsstand.errors import BadInput, BadOption
from newsstand.platform.declared import BROKER_TYPES
from newsstand.serving.settings import read_settings, read_value

NEEDED = 'name = "edge"\ncluster = "http://127.0.0.1:9"\ndata = "data"\n'


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('opportunistic_policy = "lru"', "opportunistic_policy: lru: must be sel or all"),
        ('results_policy = "best"', "results_policy: unknown policy 'best' of result caches"),
        ('storages = [""]', "storages: '' cannot be a topic"),
        ("opportunistic_bytes = 99999999999999999999", "opportunistic_bytes: "),
        (
            "results_budget = 1125899906842625",
            "results_budget: must be a whole number of at most 112589990",
        ),
    ],
)
def test_a_mistake_names_the_file_and_the_key(line: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "b.toml"
    file.write_text(f"[broker]\n{NEEDED}{line}\n")
    with pytest.raises(BadOption) as mistake:
        read_settings(BrokerSettings, "broker", file, {}, {})
    assert str(mistake.value).startswith(f"{file}: broker.{told}")


def test_a_mistake_is_told_of_what_won(tmp_path: Path) -> None:
    file = tmp_path / "b.toml"
    file.write_text(f'[broker]\n{NEEDED}results_policy = "lru"\n')
    with pytest.raises(BadOption, match=r"^NEWSSTAND_BROKER_RESULTS_POLICY: unknown policy 'best'"):
        read_settings(BrokerSettings, "broker", file, {"NEWSSTAND_BROKER_RESULTS_POLICY": "best"}, {})
    with pytest.raises(BadOption, match=r"^--opportunistic-policy: lru: must be sel or all"):
        read_settings(BrokerSettings, "broker", file, {}, {"opportunistic_policy": "lru"})


@pytest.mark.parametrize("key", ["opportunistic_bytes", "results_budget", "pages_capacity", "largest_page"])
def test_a_size_that_no_machine_has_is_refused(key: str) -> None:
    assert read_value(2**50, BROKER_TYPES[key]) == 2**50
    with pytest.raises(BadInput):
        read_value(99999999999999999999, BROKER_TYPES[key])
