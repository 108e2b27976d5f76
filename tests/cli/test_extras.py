"""The extras of the distribution: a wheel of this tree with the closure of each extra's requirements."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.broker.press import Press
from support.broker.process import Process, broker_secrets, running_broker, wait_ready

from newsstand.cli.main import EXTRAS, app

ROOT = Path(__file__).resolve().parents[2]

SUBSCRIBE = """
import sys
from newsstand.client import SyncClient
with SyncClient(broker=sys.argv[1], name=sys.argv[2], password="a good password", register=True) as client:
    print(client.subscribe("of_kind", kind="flood").channel)
"""


def requirements(wheel: Path, extra: str) -> list[Requirement]:
    """What a wheel requires with one extra, or with none."""
    (found,) = metadata.distributions(path=[str(wheel)])
    return [Requirement(text) for text in found.requires or [] if applies(Requirement(text), extra)]


def applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def closure(wheel: Path, extra: str) -> dict[str, metadata.Distribution]:
    """The distributions of this environment that installing a wheel with an extra would install."""
    known: dict[str, metadata.Distribution] = {}
    done: set[tuple[str, str]] = set()
    todo = [
        (requirement, each) for requirement in requirements(wheel, extra) for each in ("", *requirement.extras)
    ]
    while todo:
        requirement, extra_of = todo.pop()
        name = canonicalize_name(requirement.name)
        if (name, extra_of) in done:
            continue
        done.add((name, extra_of))
        if name == "newsstand":
            needed = requirements(wheel, extra_of)
        else:
            known[name] = metadata.distribution(name)
            needed = [Requirement(text) for text in known[name].requires or []]
            needed = [one for one in needed if applies(one, extra_of)]
        todo += [(one, each) for one in needed for each in ("", *one.extras)]
    return known


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    return made


def installed(folder: Path, wheel: Path, extra: str) -> Path:
    """Make an environment of a wheel, with links to what it requires; return its folder of commands."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    install = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "-q"]
    subprocess.run([*install, "--no-deps", "--no-index", wheel], check=True)
    for distribution in closure(wheel, extra).values():
        for top in {
            file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")
        }:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution.locate_file(top))))
    return folder / "bin"


@pytest.fixture(scope="module")
def client_only(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("client"), wheel, "")


@pytest.fixture(scope="module")
def with_broker(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("broker"), wheel, "broker")


def run_in(commands: Path, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [commands / program, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=commands,
        check=False,
    )


def importable(commands: Path, names: Sequence[str]) -> set[str]:
    code = "import importlib.util, sys; print(*[one for one in sys.argv[1:] if importlib.util.find_spec(one)])"
    return set(run_in(commands, "python", "-c", code, *names).stdout.split())


def test_client_alone_subscribes_at_broker(client_only: Path, press: Press, tmp_path: Path) -> None:
    with running_broker(tmp_path, press.url) as broker:
        ran = run_in(client_only, "python", "-c", SUBSCRIBE, broker, "ann")
    assert (ran.stdout, ran.stderr) == ("of_kind\n", "")
    assert importable(client_only, ["aiohttp", "msgspec", "pyspark", "starlette", "numpy", "jwt"]) == {
        "aiohttp",
        "msgspec",
    }


def test_broker_runs_without_spark(
    with_broker: Path, client_only: Path, press: Press, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    options = ("--name", "edge", "--cluster", press.url, "--data", tmp_path / "edge", "--port", 0)
    broker = Process(with_broker / "newsstand", "broker", *options, env=broker_secrets("edge", is_alone=True))
    try:
        wait_ready(broker.url)
        ran = run_in(client_only, "python", "-c", SUBSCRIBE, broker.url, "bob")
    finally:
        broker.stop()
    assert (ran.stdout, ran.stderr) == ("of_kind\n", "")
    assert importable(with_broker, ["starlette", "pyspark", "numpy", "pyarrow"]) == {"starlette"}


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("broker --name edge --cluster http://127.0.0.1:9 --data edge", "broker"),
        ("token broker edge --secret-file missing", "broker"),
        ("check missing", "cluster"),
        ("publish missing reports -", "cluster"),
        ("simulate missing", "lab"),
        ("reproduce chen2003 --out missing", "all"),
    ],
)
def test_command_names_missing_extra(client_only: Path, command: str, extra: str) -> None:
    ran = run_in(client_only, "newsstand", *command.split())
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith(f"newsstand: {command.split(maxsplit=1)[0]}: needs the package ")
    assert ran.stderr.endswith(f"; run: pip install 'newsstand[{extra}]'\n")
    assert ran.stderr.count("\n") == 1


def test_help_needs_no_extra(client_only: Path) -> None:
    for options in (["--help"], ["--version"], ["broker", "--help"], ["reproduce", "--help"]):
        ran = run_in(client_only, "newsstand", *options)
        assert (ran.returncode, ran.stderr) == (0, ""), options


def test_commands_all_have_extras() -> None:
    groups = [one.name for one in app.registered_groups]
    commands = [one.name for one in app.registered_commands]
    assert sorted(name for names in EXTRAS.values() for name in names) == sorted(map(str, groups + commands))


def test_extras_together_cover_all_imports(wheel: Path) -> None:
    import grimp

    graph = grimp.build_graph("newsstand", include_external_packages=True, cache_dir=None)
    packages = graph.modules - {"newsstand"} - graph.find_descendants("newsstand") - set(sys.stdlib_module_names)
    distributions = metadata.packages_distributions()
    names = {canonicalize_name(distributions[package][0]) for package in packages}
    assert names <= set(closure(wheel, "all"))
