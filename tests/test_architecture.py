"""The architecture page agrees with the code: its diagram and its walks."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import grimp
import pytest
from import_rules import COMPONENTS, PACKAGE, ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MOST_MODULES = 50
"""Modules that one request may cross before a reader loses the thread."""
MOST_STEPS = 33
"""Steps in one list, for the same reason."""

WAYS = {"over HTTP", "over a WebSocket", "over a link", "through a queue", "by callback"}
"""How a walk gets to a module that no module before it calls."""


class Step(NamedTuple):
    """A module of a walk, the way to it (empty: a call, or the return to a caller), and the names in its text."""

    path: str
    way: str
    names: tuple[str, ...]

    @property
    def module(self) -> str:
        return "newsstand." + self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def walks() -> dict[str, list[Step]]:
    """Return the steps of each walk, in both halves of the first, by the title of its section."""
    sections = re.findall(r"^### (\d\. .*?)\n(.*?)(?=^### |\Z)", PAGE, re.M | re.S)
    return {title: [step for part in halves(text) for step in steps(part)] for title, text in sections}


def halves(text: str) -> list[str]:
    """Return the parts of a walk, each of which numbers its steps from 1."""
    return re.split(r"^#### ", text, flags=re.M)


def steps(text: str) -> Iterator[Step]:
    found = re.findall(r"^(\d+)\. `([\w/]+\.py)`(?:, ([\w ]+))?: (.*?)(?=^\d+\. |\n\n|\Z)", text, re.M | re.S)
    numbered = re.findall(r"^\d+\. ", text, re.M)
    assert [int(number) for number, *_ in found] == list(range(1, len(numbered) + 1)), (
        "a step is not numbered or read"
    )
    for _, path, way, sentence in found:
        yield Step(path, way, tuple(re.findall(r"`([A-Za-z_][\w.]*)`", sentence)))


WALKS = walks()


@cache
def names_in(path: str) -> set[str]:
    """Return the functions, classes and methods that a module defines."""
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
            members = node.body if isinstance(node, ast.ClassDef) else []
            functions = [one for one in members if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            found.update(f"{node.name}.{one.name}" for one in functions)
    return found


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("newsstand", cache_dir=None)


@cache
def imports(module: str) -> set[str]:
    """Return the modules that a module imports, by themselves or from the package that offers them."""
    direct = graph().find_modules_directly_imported_by(module)
    packages = [one for one in direct if graph().find_children(one)]
    return direct.union(*(graph().find_modules_directly_imported_by(one) for one in packages))


def are_connected(one: str, other: str) -> bool:
    """Return whether one of two modules imports the other, or they are the same."""
    return one == other or other in imports(one) or one in imports(other)


def unconnected(walk: list[Step]) -> list[str]:
    """Return the steps without a way that no module since the last such way imports or is imported by."""
    found, stack = [], [walk[0].module]
    for before, step in pairwise(walk):
        if step.way:
            stack = [*stack, step.module] if step.way == "by callback" else [step.module]
        elif not any(are_connected(step.module, module) for module in stack):
            found.append(f"{before.path} -> {step.path}")
        stack.append(step.module)
    return found


def test_page_has_five_walks() -> None:
    assert [title[0] for title in WALKS] == list("12345")
    assert all(len(walk) > 10 for walk in WALKS.values())


@pytest.mark.parametrize("title", WALKS)
def test_walk_names_what_exists(title: str) -> None:
    walk = WALKS[title]
    assert [step.path for step in walk if not (PACKAGE / step.path).exists()] == []
    everywhere = set().union(*(names_in(step.path) for step in walk))
    for step in walk:
        assert names_in(step.path) & set(step.names), f"{step.path}: has none of {step.names}"
        assert set(step.names) <= everywhere, step.path


@pytest.mark.parametrize("title", WALKS)
def test_walk_explains_path_to_each_module(title: str) -> None:
    assert {step.way for step in WALKS[title]} <= WAYS | {""}
    assert not unconnected(WALKS[title])


def test_unconnected_steps_are_found() -> None:
    walk = [Step(path, way, ()) for path, way in (("errors.py", ""), ("cli/main.py", ""), ("wire/cluster.py", ""))]
    assert unconnected(walk) == ["cli/main.py -> wire/cluster.py"]
    assert unconnected([walk[0], Step("caching/slots.py", "", ())]) == ["errors.py -> caching/slots.py"]
    assert not unconnected([walk[0], Step("caching/slots.py", "over HTTP", ())])


def test_publication_crosses_few_modules() -> None:
    first = next(iter(WALKS.values()))
    assert len({step.path for step in first}) <= MOST_MODULES


def test_walks_have_few_steps_in_one_list() -> None:
    assert max(int(number) for number in re.findall(r"^(\d+)\. `", PAGE, re.M)) <= MOST_STEPS


def test_diagram_names_all_components_and_no_other() -> None:
    diagram = PAGE.partition("```text\n")[2].partition("```")[0]
    assert sorted(re.findall(r"\b([a-z_]+)(?:/|\.py\b)", diagram)) == sorted(COMPONENTS)


LIVE = """
async def play():
    content = PageContent(b"x" * 60, "text/html")
    async def fetch(page): return content
    cache = MatchCache("sg2", 100, fetch)
    cache.offer("a", 60, 1)
    await asyncio.sleep(0)
    with recorded():
        cache.offer("b", 60, 9)
    assert "sg2" == cache.policy and cache.bytes == 60
asyncio.run(play())
"""

COMPILED = """
with recorded():
    kernel = compiled(POLICIES["sg2"])
    outcome = np.zeros(2, np.int8)
    kernel(np.array([~0, ~1], np.int32), np.array([60, 60]), np.array([1, 9]), 100, 2.0, outcome)
assert list(outcome) == [STORED, STORED]
"""

RECORDER = """
import asyncio, sys
from contextlib import contextmanager
import numpy as np
from newsstand.broker.pages.content import PageContent
from newsstand.broker.pages.match_cache import MatchCache
from newsstand.caching import POLICIES
from newsstand.caching.kernels.pages import STORED
from newsstand.caching.kernels.pages.compiled import compiled

def note(frame, event, _):
    path = frame.f_code.co_filename
    if event == "call" and "/newsstand/" in path:
        print(path.rpartition("/newsstand/")[2])

@contextmanager
def recorded():
    sys.setprofile(note)
    yield
    sys.setprofile(None)
"""


@pytest.mark.parametrize("play", [LIVE, COMPILED], ids=["live", "compiled"])
def test_eviction_enters_modules_in_order(play: str) -> None:
    walk = next(steps for title, steps in WALKS.items() if title.startswith("3. An eviction"))
    middle = next(i for i, step in enumerate(walk) if step.path.startswith("caching/kernels/"))
    listed = [step.path for step in (walk[:middle] if play == LIVE else walk[middle:])]
    ran = subprocess.run(
        [sys.executable, "-c", RECORDER + play],
        capture_output=True,
        text=True,
        check=True,
        env={"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(PACKAGE.parent)},
    )
    entered = iter(ran.stdout.splitlines())
    assert [path for path in listed if path not in entered] == []
