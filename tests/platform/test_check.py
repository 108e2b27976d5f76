"""`newsstand check` rejects with the same line what `newsstand up` rejects before it starts a process."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection
from itertools import product
from pathlib import Path

import pytest
from support.settings_keys import BROKER_KEYS, COORDINATOR_KEYS, keys_of

from newsstand.broker.settings import BrokerSettings
from newsstand.cli.main import run
from newsstand.cluster.app_folder import ClusterSettings
from newsstand.config.files import toml_value
from newsstand.config.settings import read_settings
from newsstand.coordinator.server import read_coordinator_settings
from newsstand.errors import BadInput
from newsstand.platform import processes as parts
from newsstand.platform.processes import plan
from newsstand.platform.supervisor import CannotStart, Supervisor
from newsstand.platform.tables import check_app

VALUES: tuple[object, ...] = (
    *(0, 1, -1, 8790, 2**70, 0.5, -91.0, True, False, "", "x", "lru", "sg2", "8790", "10s", "http://a:1", "a\nb"),
    *([], ["x"], ["10.0.0.0/8"], [["a", "b"]], {}, {"x": 1}, "none.pem", "FIFO/LRU/any", "always", "object"),
)
CASES = [
    "[coordinator]\nport = 8780",
    "[storages]\nnews = ['nobody']",
    "[storages]\n'' = ['edge']",
    "storages = 1",
    "[cluster]\ncertificate = 'none.pem'\nkey = 'none.pem'",
    "[cluster]\nauthority = 'none.pem'",
    "[coordinator]\ncertificate = 'newsstand.toml'\nkey = 'newsstand.toml'",
    "[[brokers]]\ncertificate = 'none.pem'\nkey = 'none.pem'",
    "[[brokers]]\nauthority = 'newsstand.toml'",
    "[[brokers]]\nurl = 'edge'",
    "[[brokers]]\ncallback = 'ftp://edge'",
    "[[brokers]]\nport = 8770",
    "[[brokers]]\npages_policy = 'x'",
    "[[brokers]]\nresults_policy = 'x'",
    "[push]\nthreshold = 'x'",
    "[topics.news]\npublish = ['@nobody']",
    "[groups]\nstaff = 1",
    "[[tokens]]\nname = 'x'",
    "nonsense = 1",
    "[datasets.d]",
    "[defaults]\ndelivery = 'post'",
    "[defaults]\nretention = {age = 'long'}",
    "[cluster]\nport = -1\n[coordinator]\nport = -1\n[[brokers]]\nport = -1",
]


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command complains of, up to where `up` would start processes; "" if it complains of nothing."""

    async def start(_: Supervisor) -> bool:
        raise CannotStart("started")

    monkeypatch.setattr(Supervisor, "start", start)
    monkeypatch.setattr(parts, "reject_used", lambda *_: None)  # the app is no worse for a port that is in use

    def output(command: str, folder: Path) -> str:
        code = run([command, str(folder)])
        said = capsys.readouterr().err.splitlines()
        if code == 0 or said[-1] == "newsstand: started":
            return ""
        assert code == 2
        return next(line for line in said if line.startswith("newsstand: "))

    return output


def same(output: Callable[..., str], folder: Path, text: str) -> str:
    """Require that both commands say the same of an app, but for how many more mistakes there are."""
    (folder / "newsstand.toml").write_text(text)
    rejected = output("up", folder)
    assert output("check", folder) == rejected.partition(" (and ")[0], text
    return rejected


@pytest.mark.parametrize("text", CASES)
def test_check_rejects_what_up_rejects(text: str, tmp_path: Path, outcome: Callable[..., str]) -> None:
    assert same(outcome, tmp_path, text)


def test_check_rejects_same_environment_as_up(
    tmp_path: Path, outcome: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWSSTAND_CLUSTER_PORT", "many")
    assert "NEWSSTAND_CLUSTER_PORT" in same(outcome, tmp_path, "")


@pytest.mark.parametrize(
    ("table", "keys"),
    [("[cluster]", keys_of(ClusterSettings)), ("[coordinator]", COORDINATOR_KEYS), ("[[brokers]]", BROKER_KEYS)],
)
def test_settings_accepted_by_check_are_accepted_by_parts(
    table: str, keys: Collection[str], tmp_path: Path
) -> None:
    """The settings that `up` writes are read by coordinator and broker as at their start."""
    rejected = accepted = 0
    for key, value in product(keys, VALUES):
        (tmp_path / "newsstand.toml").write_text(f"{table}\n{key} = {toml_value(value)}\n")
        try:
            platform = plan(*check_app(tmp_path, {}))
        except BadInput:
            rejected += 1
            continue
        accepted += 1
        if not platform.folder.secret_file.exists():
            platform.folder.prepare(platform.names)
        for file, text in platform.settings.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            if file.name == "broker.toml":
                read_settings(BrokerSettings, "broker", file, {}, {})
            else:
                read_coordinator_settings(file, {}, {})
    assert rejected > 100
    assert accepted > 20


def test_certificate_rejected_without_its_own_key(tmp_path: Path, outcome: Callable[..., str]) -> None:
    for name in ("a", "b"):
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x"]
        files = ["-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.pem"]
        subprocess.run([*made, *files], check=True, capture_output=True)
    for table in ("[cluster]", "[coordinator]", "[[brokers]]"):
        assert not same(outcome, tmp_path, f"{table}\ncertificate = 'a.pem'\nkey = 'a.key'")
        output = same(outcome, tmp_path, f"{table}\ncertificate = 'a.pem'\nkey = 'b.key'")
        assert f"{tmp_path}/newsstand.toml: " in output
        assert "certificate and key: " in output
