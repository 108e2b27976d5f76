"""Recipes of the cookbook run, and the reference matches the code."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker.press import Press
from support.broker.process import start_broker, start_coordinator, wait_ready
from support.cluster.standin import StandIn, serving

from newsstand import client
from newsstand.auth.api_tokens import ApiToken, digest_of

DOCS = Path(__file__).parents[2] / "docs"
COOKBOOK = (DOCS / "how-to" / "client-cookbook.md").read_text()
REFERENCE = (DOCS / "reference" / "client.md").read_text()
RECIPES = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", COOKBOOK, re.M | re.S))
TOKEN = "newsstand_" + "b" * 64
PRINTED = {
    "Print results as they come": "2 {'id': 'r2'}",
    "Without asyncio": "2 {'id': 'r2'}",
    "Follow several subscriptions": "fire r2",
    "Acknowledge when the work is done": "stored 3",
    "Continue after results were removed": "{'id': 'r2'}",
    "Keep the session instead of the password": "3 channels, without a password",
    "Hand out a limited session": "no channel 'of_kind' with these values",
    "Fetch the page of a result": "text/plain",
    "Publish, and see what was rejected": "record 1: field 'kind': is missing",
    "Change time-outs": "given up after 0.5 s",
    "Run thousands of clients in one process": "5 subscribed",
}


@pytest.fixture(scope="module")
def coordinator(press: Press, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    coordinator = start_coordinator(tmp_path_factory.mktemp("coordinator"))
    more = ("--coordinator", coordinator.url)
    broker = start_broker(tmp_path_factory.mktemp("edge"), press.url, "edge", 0, *more)
    try:
        wait_ready(broker.url)
        time.sleep(0.5)
        yield coordinator.url
    finally:
        broker.kill()
        coordinator.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cluster")
    cluster = StandIn(folder)
    dataset = cluster.catalog.dataset("emergencies")
    cluster.put_dataset(dataclasses.replace(dataset, name="reports"))
    with serving(cluster, {"gate": ApiToken("gate", digest_of(TOKEN), frozenset(["publish:reports"]))}) as url:
        yield url


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_prints_expected_output(
    recipe: str, press: Press, coordinator: str, cluster: str, tmp_path: Path
) -> None:
    """A recipe that does not end by itself is ended with Ctrl-C once it has printed what it should."""
    head = f"COORDINATOR = {coordinator!r}\nCLUSTER = {cluster!r}\nTOKEN = {TOKEN!r}\n"
    (tmp_path / "recipe.py").write_text(head + RECIPES[recipe])
    with (tmp_path / "printed").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-u", "recipe.py"], cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT
        )
    page = press.keep_page(b"a page of news")
    until = time.monotonic() + 30
    number = 0
    while PRINTED[recipe] not in (printed := (tmp_path / "printed").read_text()):
        assert time.monotonic() < until, printed
        if process.poll() is None and "for result in" in RECIPES[recipe]:
            number += 1
            payload = {"id": f"r{2 if number > 1 else 1}"}
            press.print([{"channel": "of_kind", "values": ["fire"], "payload": payload, "page": page}])
        elif process.poll() is not None:
            printed = (tmp_path / "printed").read_text()
            assert PRINTED[recipe] in printed, printed
        time.sleep(0.3)
    if process.poll() is None and "for result in" in RECIPES[recipe]:
        os.kill(process.pid, signal.SIGINT)
    process.wait(20)
    printed = (tmp_path / "printed").read_text()
    assert "Traceback" not in printed or "KeyboardInterrupt" in printed


def test_recipes_are_all_run() -> None:
    assert set(RECIPES) == set(PRINTED)
    assert COOKBOOK.count("```python") == len(RECIPES) + 1


def plain(signature: inspect.Signature, name: str) -> str:
    """Return a signature without types and without `self`."""
    parameters = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in signature.parameters.values()
        if one.name != "self"
    ]
    return f"{name}{inspect.Signature(parameters)}"


@pytest.mark.parametrize("kind", [client.Client, client.Publisher, client.Topics])
def test_signatures_match_the_reference(kind: type) -> None:
    shown = {" ".join(one.split()) for one in re.findall(r"```python signature\n(.*?)```", REFERENCE, re.S)}
    if kind is not client.Topics:  # which clients make
        assert plain(inspect.signature(kind), kind.__name__) in shown
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            assert f"| `{plain(inspect.signature(method), name)}` |" in REFERENCE
    for name, _ in inspect.getmembers(kind, lambda one: isinstance(one, property)):
        assert f"`client.{name}`" in REFERENCE


def test_exports_are_in_the_reference() -> None:
    for name in client.__all__:
        assert re.search(rf"`{name}\b", REFERENCE), name
        fields = getattr(getattr(client, name), "__struct_fields__", None)
        if fields is not None:
            assert f"| `{name}` | {', '.join(f'`{field}`' for field in fields)} |" in REFERENCE
    for field in dataclasses.fields(client.Pace):
        assert f"| `{field.name}` | {field.default} |" in REFERENCE
