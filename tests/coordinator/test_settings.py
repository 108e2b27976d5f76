"""Settings of a coordinator from a file, the environment and options, and their rejection in one line."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.coordinator.coordinators import SECRET

from newsstand.cli.main import run
from newsstand.coordinator.server import CoordinatorSettings, read_coordinator_settings
from newsstand.coordinator.store.sqlite import CoordinatorStore
from newsstand.errors import BadInput

FILE = f"""
[coordinator]
secret = "{SECRET}"
port = 9001
data = "kept"
policy = "random"
lease_s = 5
links = [["core", "north"], ["core", "south"]]
overlay_degree = 3
opportunistic_policy = "sel-fld-prt"
opportunistic_slots = 50
"""


def test_options_override_environment_and_environment_overrides_file(tmp_path: Path) -> None:
    file = tmp_path / "coordinator.toml"
    file.write_text(FILE)
    assert read_coordinator_settings(file, {}, {}) == CoordinatorSettings(
        secret=SECRET,
        port=9001,
        data=tmp_path / "kept",
        policy="random",
        lease_s=5.0,
        links=(("core", "north"), ("core", "south")),
        overlay_degree=3,
        opportunistic_policy="sel-fld-prt",
        opportunistic_slots=50,
    )
    environment = {
        "NEWSSTAND_COORDINATOR_PORT": "9002",
        "NEWSSTAND_COORDINATOR_LEASE_S": "1.5",
        "NEWSSTAND_COORDINATOR_OPEN_METRICS": "true",
        "NEWSSTAND_COORDINATOR_SERVICE_HOST": "somebody else's",
    }
    found = read_coordinator_settings(file, environment, {"port": 9003, "host": None})
    assert (found.port, found.lease_s, found.open_metrics) == (9003, 1.5, True)


def test_secret_of_stronger_source_wins_in_any_form(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{'x' * 40}\n")
    file = tmp_path / "coordinator.toml"
    file.write_text(FILE)
    assert read_coordinator_settings(file, {}, {"secret_file": tmp_path / "secret"}).secret == "x" * 40
    file.write_text('[coordinator]\nsecret_file = "secret"\n')
    assert read_coordinator_settings(file, {}, {}).secret == "x" * 40
    assert read_coordinator_settings(file, {"NEWSSTAND_COORDINATOR_SECRET": SECRET}, {}).secret == SECRET


def test_secret_is_never_shown() -> None:
    assert SECRET not in repr(CoordinatorSettings(secret=SECRET))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('secret = "short"', "coordinator.secret: a secret must have at least 32 characters"),
        ("", "missing secret"),
        ("prot = 1", "coordinator.prot: is not known; did you mean 'port'?"),
        ("port = 65536", "coordinator.port: must be a whole number from 0 to 65535"),
        ('policy = "best"', "coordinator.policy: 'best' is none of hops, least-loaded, miles, nearest, random"),
        ("lease_s = 0", "coordinator.lease_s: must be a number from 0.2 to 3600"),
        ('links = [["a"]]', "coordinator.links: must be a list of pairs"),
        ("overlay_degree = 1", "coordinator.overlay_degree: must be a whole number from 2 to 1000"),
        ("opportunistic_slots = -1", "coordinator.opportunistic_slots: must be a whole number from 0 to 1000000"),
        (
            'opportunistic_policy = "sel-prt"',
            "coordinator.opportunistic_policy: sel-prt: must be sel or all, sub or fld, prt or nop",
        ),
        ("host = 7", "coordinator.host: must be a string that is not empty"),
        ('open_metrics = "maybe"', "coordinator.open_metrics: must be true or false"),
        ('secret_file = "nowhere"', "nowhere: cannot be read"),
        (f'secret = "{SECRET}"\ncertificate = "c.pem"', "certificate and key: give both or neither"),
        (f'secret = "{SECRET}"\ncertificate = "c.pem"\nkey = "k.pem"', "c.pem: no such file"),
        ("[other]", "other: is not known"),
        ("port = ", "is not TOML"),
    ],
)
def test_mistake_is_reported_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "coordinator.toml"
    file.write_text(f"[coordinator]\n{text}\n")
    with pytest.raises(BadInput) as raised:
        read_coordinator_settings(file, {}, {})
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--config", "nowhere.toml"], "nowhere.toml: cannot be read"),
        (["--secret-file", "nowhere"], "nowhere: cannot be read"),
        (["--policy", "best"], "--policy: 'best' is none of"),
        (["--lease-s", "0"], "--lease-s: must be"),
        ([], "missing secret"),
    ],
)
def test_command_rejects_bad_input_with_exit_code_2(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NEWSSTAND_COORDINATOR_SECRET", raising=False)
    assert run(["coordinator", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("newsstand: ")
    assert said in line


def test_store_rejected_when_invalid_or_in_use(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello, this is no database at all" * 100)
    with pytest.raises(BadInput, match="not a database of the coordinator"):
        CoordinatorStore(tmp_path / "text")
    store = CoordinatorStore(tmp_path / "store")
    with pytest.raises(BadInput, match="used by another process"):
        CoordinatorStore(tmp_path / "store")
    store.close()
    with closing(sqlite3.connect(tmp_path / "store")) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(BadInput, match="has schema version 99"):
        CoordinatorStore(tmp_path / "store")
    with pytest.raises(BadInput, match="its folder must exist"):
        CoordinatorStore(tmp_path / "no" / "store")
    assert (tmp_path / "store").stat().st_mode & 0o077 == 0, "for nobody else to read"
