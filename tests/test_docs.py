"""The documentation agrees with the project: output of commands, links, complete lists."""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import msgspec
import pytest
from support.environment import without_settings
from support.live_page import COMMAND, follow, joined, lines_not_printed
from support.settings_keys import BROKER_KEYS, keys_of

from newsstand import errors
from newsstand.auth.api_tokens import ApiTokens
from newsstand.caching import POLICIES
from newsstand.caching.pages.chen2003 import sr
from newsstand.cli.main import run
from newsstand.cluster.app_folder import ClusterSettings
from newsstand.cluster.metrics import Metrics
from newsstand.cluster.query.dialect import REJECTED
from newsstand.cluster.server import create_api
from newsstand.cluster.service import DataCluster
from newsstand.wire.notifications import Notification, PageOffer, StreamDelivery, StreamProgress, SuspendedStream

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parent.parent
FIRST = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("README.md"))
DOCUMENTS = list(
    dict.fromkeys([*FIRST, *sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *EXAMPLES])
)
LIVE = [page for page in DOCUMENTS if re.search(r"^```\w+ server$", page.read_text(), re.M)]
"""Pages that start servers: each is followed by itself, from top to bottom."""

REFERENCE = ROOT / "docs" / "reference"
FOLDER = "/home/me/newsstand"
"""Where the reader's copy lies, as far as the pages are concerned."""

HOSTS = {"keepachangelog.com", "semver.org", "example.org", "spark.example.org"}
"""The only hosts that the pages name."""


@dataclass(frozen=True)
class ShownCommand:
    """A command on a page, and the output that the page shows for it."""

    page: str
    words: tuple[str, ...]
    output: tuple[str, ...]
    runs: bool

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"

    @property
    def is_newsstand(self) -> bool:
        return self.words[0].endswith("newsstand")


def shown_commands(document: Path) -> Iterator[ShownCommand]:
    for kind, info, body in COMMAND.findall(document.read_text()):
        marks = info.split()
        lines = joined(body)
        starts = [i for i, line in enumerate(lines) if kind == "sh" or line.startswith("$ ")]
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            words = shlex.split(lines[start].removeprefix("$ "), comments=True)
            if words:
                page = str(document.relative_to(ROOT))
                runs = "no-run" not in marks and document not in LIVE
                yield ShownCommand(page, tuple(words), tuple(lines[start + 1 : end]), runs)


SHOWN = [shown for document in DOCUMENTS for shown in shown_commands(document)]
RUN = [shown for shown in SHOWN if shown.is_newsstand and shown.runs]


def _is_shown(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and item.originalname == "test_command_prints_what_its_page_shows"


@pytest.fixture(scope="module")
def outputs(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> dict[tuple[str, ...], tuple[int, list[str]]]:
    """Every distinct command that is tested, run once in the order of the pages, in one folder and one process."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "examples", folder / "examples")
    for document in DOCUMENTS:
        for name, text in re.findall(r"^```python (\S+)\n(.*?)^```$", document.read_text(), re.M | re.S):
            (folder / name).write_text(text)
    wanted = {str(item.callspec.params["shown"]) for item in request.session.items if _is_shown(item)}
    commands = list(dict.fromkeys(shown.words for shown in RUN if str(shown) in wanted))
    return dict(zip(commands, run_in(folder, commands), strict=True))


def run_in(folder: Path, commands: list[tuple[str, ...]]) -> list[tuple[int, list[str]]]:
    outcomes = folder.with_suffix(".json")
    subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / "lab" / "batch.py", outcomes, "--together"],
        input=json.dumps([words[1:] for words in commands]),
        cwd=folder,
        env=without_settings() | {"COLUMNS": "100"},
        text=True,
        check=True,
    )
    return [
        (outcome["code"], outcome["out"].replace(str(folder), FOLDER).splitlines())
        for outcome in json.loads(outcomes.read_text())
    ]


@pytest.mark.parametrize(
    "shown",
    [shown if shown.page == "README.md" else pytest.param(shown, marks=pytest.mark.slow) for shown in RUN],
    ids=str,
)
def test_command_prints_what_its_page_shows(
    shown: ShownCommand, outputs: dict[tuple[str, ...], tuple[int, list[str]]]
) -> None:
    code, printed = outputs[shown.words]
    fails = any(line.startswith("newsstand: ") for line in shown.output)
    assert code == (2 if fails else 0), printed
    assert not lines_not_printed(shown.output, printed), printed


@pytest.mark.slow
def test_make_compare_prints_what_readme_shows(tmp_path: Path) -> None:
    (shown,) = [shown for shown in SHOWN if shown.words == ("make", "compare") and shown.output]
    ((code, printed),) = run_in(tmp_path, [("newsstand", "compare", "--out", "compare-out")])
    assert code == 0
    assert not lines_not_printed(shown.output, printed), printed


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow) for page in LIVE],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_page_with_servers_can_be_followed_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    follow(page.read_text(), tmp_path)


def test_wrong_page_is_detected(tmp_path: Path) -> None:
    follow("```console\n$ echo a 7 b\na … b\n```\n", tmp_path)
    with pytest.raises(AssertionError, match="echo 1"):
        follow("```console\n$ echo 1\n2\n```\n", tmp_path)
    with pytest.raises(AssertionError, match="false"):
        follow("```sh\nfalse\n```\n", tmp_path)
    with pytest.raises(AssertionError, match="echo started"):
        follow("```console server\n$ echo started\nready\n```\n", tmp_path)


ONLY_SHOWN = [shown for shown in SHOWN if shown.is_newsstand and not shown.runs and "|" not in shown.words]


@pytest.mark.parametrize("shown", ONLY_SHOWN, ids=str)
def test_command_only_shown_has_valid_options(shown: ShownCommand, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*shown.words[1:], "--help"]) == 0
    assert "Usage: newsstand" in capsys.readouterr().out


def test_make_targets_named_by_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.M))
    named = {word for shown in SHOWN if shown.words[0] == "make" for word in shown.words[1:]}
    for document in DOCUMENTS:
        for words in re.findall(r"`make ([a-z -]+)`", document.read_text()):
            named.update(words.split())
    assert named <= targets
    assert {"demo", "test"} <= named


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_have_targets(document: Path) -> None:
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(document)):
        target, _, anchor = link.partition("#")
        file = (document.parent / target).resolve() if target else document
        if re.match(r"https?://", link):
            continue
        if not file.exists() or (anchor and anchor not in anchors(file)):
            lost.append(link)
    assert not lost


def without_code(document: Path) -> str:
    return re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.M | re.S)


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", without_code(document), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_names_only_agreed_hosts(document: Path) -> None:
    text = document.read_text()
    named = {host for host in re.findall(r"https?://([^/\s)`\"']+)", text) if not host.startswith("127.0.0.1")}
    named |= set(re.findall(r"\b(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev)\b", text))
    assert named <= HOSTS


def test_lock_names_no_address() -> None:
    assert "://" not in (ROOT / "requirements.lock").read_text()


def test_command_reference_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))["page"]()
    written = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert written == made, "run `python docs/make_reference.py`"


def test_readme_shows_policy_as_it_is() -> None:
    assert inspect.getsource(sr) in (ROOT / "README.md").read_text()


def test_tutorial_shows_example_as_it_is() -> None:
    example = (ROOT / "examples" / "my_policy.py").read_text()
    code = example[example.index("import math") :]
    assert code in (ROOT / "docs" / "tutorials" / "your-own-policy.md").read_text()


@pytest.mark.parametrize(
    "document", [page for page in DOCUMENTS if ">>> " in page.read_text()], ids=lambda path: path.name
)
def test_python_session_of_page_is_real(document: Path) -> None:
    subprocess.run([sys.executable, "-m", "doctest", document], cwd=ROOT, check=True)


def targets() -> list[str]:
    rows = re.findall(
        r"^\|[^|\n]+\|[^|\n]+\| `(newsstand[\w.]*|examples/[^`]*)` \|$",
        (ROOT / "docs" / "concepts.md").read_text(),
        re.M,
    )
    return list(dict.fromkeys(rows))


@pytest.mark.parametrize("target", targets())
def test_concept_has_its_target(target: str) -> None:
    if "/" in target:
        assert (ROOT / target).exists()
        return
    owner, _, name = target.rpartition(".")
    if name not in getattr(pkgutil.resolve_name(owner), "__dataclass_fields__", {}):
        pkgutil.resolve_name(target)


def test_concepts_have_targets() -> None:
    head = "| term | meaning | code |"
    table = (ROOT / "docs" / "concepts.md").read_text().partition(head)[2]
    rows = [line for line in table.splitlines() if line.startswith("|") and not line.startswith(("|---", head))]
    assert len(rows) > 80
    assert all(re.search(r"\| (`newsstand[\w.]*`|`examples/[^`]*`) \|$", row) for row in rows)


@pytest.mark.parametrize("name", POLICIES)
def test_policies_all_have_rows_in_reference(name: str) -> None:
    assert re.search(rf"^\| `{name}` \|", (ROOT / "docs" / "reference" / "policies.md").read_text(), re.M)


def test_readme_numbers_policies() -> None:
    numbers = re.findall(r"(\d+) (?:page )?policies", (ROOT / "README.md").read_text())
    assert numbers == [str(len(POLICIES))] * 2


def test_example_log_agrees_with_its_script(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "make_access_log.py", tmp_path)
    subprocess.run([sys.executable, tmp_path / "make_access_log.py"], check=True)
    assert (tmp_path / "access.log").read_bytes() == (ROOT / "examples" / "access.log").read_bytes()


def test_routes_are_all_in_http_reference() -> None:
    api = create_api(cast("DataCluster", Mock(metrics=Metrics())), ApiTokens([]), ClusterSettings())
    routes = {f"{method.upper()} {path}" for path, known in api.openapi()["paths"].items() for method in known}
    assert routes == set(re.findall(r"^### `([A-Z]+ /\S*)`$", (REFERENCE / "http-api.md").read_text(), re.M))


@pytest.mark.parametrize("shape", [Notification, StreamProgress, PageOffer, SuspendedStream])
def test_notification_fields_are_all_in_reference(shape: type[msgspec.Struct]) -> None:
    section = (REFERENCE / "http-api.md").read_text().partition("\n## Webhooks\n")[2].partition("\n### ")[0]
    rows = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    assert [name for name in shape.__struct_fields__ if f"`{name}`" not in rows and f".{name}`" not in rows] == []


@pytest.mark.parametrize("name", StreamDelivery.__struct_fields__)
def test_delivery_report_fields_are_all_in_example(name: str) -> None:
    section = (
        (REFERENCE / "broker-api.md").read_text().partition("\n### `POST /deliveries`\n")[2].partition("\n### ")[0]
    )
    assert f'"{name}": ' in section


@pytest.mark.parametrize("key", keys_of(ClusterSettings))
def test_cluster_keys_all_have_rows(key: str) -> None:
    assert re.search(rf"^\| `{key}` \|", (REFERENCE / "app-folder.md").read_text(), re.M)


@pytest.mark.parametrize("key", BROKER_KEYS)
def test_broker_keys_are_all_named(key: str) -> None:
    table = (REFERENCE / "app-folder.md").read_text().partition("## `[[brokers]]`")[2].partition("\n## ")[0]
    assert re.search(rf"^\|[^|]*`{key}`[^|]*\|", table, re.M)


@pytest.mark.parametrize("name", REJECTED)
def test_rejected_functions_are_all_named(name: str) -> None:
    assert f"`{name}`" in (REFERENCE / "channel-queries.md").read_text()


def test_metrics_all_have_rows() -> None:
    page = (ROOT / "docs" / "how-to" / "run-a-data-cluster.md").read_text()
    for family in Metrics().registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        assert re.search(rf"^\| `{family.name}{suffix}` \|", page, re.M), family.name


def test_error_classes_are_all_named() -> None:
    page = (REFERENCE / "errors.md").read_text()
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        assert kind.__module__ != errors.__name__ or f"`{name}`" in page, name


def test_packages_installed_by_make_are_pinned() -> None:
    locked = re.findall(r"^(\S+==\S+) ", (ROOT / "requirements.lock").read_text(), re.M)
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert built
    assert set(built) <= set(locked)
    tools = re.findall(r"^(\S+)==\S+ ", (ROOT / "bootstrap.lock").read_text(), re.M)
    assert {"pip", "setuptools", "uv", "wheel"} <= set(tools)
    installs = re.findall(r"^\t@\$\(PIP\) (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert len(installs) >= 3
    assert all("--require-hashes" in one or one == "--no-deps --no-build-isolation -e ." for one in installs)
    assert not re.search(r"pip install (?!-q --disable-pip-version-check$)", (ROOT / "Makefile").read_text(), re.M)
