"""A room imports only what its row says, and Spark stays where it belongs."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp
import pytest

import newsstand

ROOMS: dict[str, str] = {
    "errors": "",
    "model": "",
    "signing": "errors",
    "values": "errors model",
    "caching": "errors model signing",
    "overlay": "errors model signing caching",
    "planning": "errors model signing overlay",
    "survival": "errors model signing",
    "spark": "errors signing",
    "serving": "errors signing",
    "cluster": "errors model values signing serving spark planning",
    "broker": "errors model values signing serving caching overlay planning",
    "coordinator": "errors model signing serving planning",
    "client": "errors model values signing",
    "workload": "errors model signing spark",
    "lab": "errors model signing caching overlay planning survival spark broker workload",
    "platform": "errors model signing serving cluster broker coordinator",
    "scenarios": "errors model values signing caching client",
    "web": "errors serving",
    "cli": "all",
}
"""What each room may import of the others. A room that is not built yet breaks no rule."""

OWNERS_OF_SPARK = {"spark", "workload", "lab", "cluster"}
SPARK_FOR_ITS_TYPES = {"newsstand.cli.progress"}
"""Modules elsewhere that may name Spark's classes."""

BUILT = sorted(
    path.stem
    for path in Path(newsstand.__file__).parent.iterdir()
    if path.stem != "__init__" and (path.suffix == ".py" or (path / "__init__.py").exists())
)


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("newsstand", include_external_packages=True, cache_dir=None)


def room_of(module: str) -> str:
    return module.split(".")[1]


def modules_of(room: str) -> set[str]:
    return {f"newsstand.{room}"} | graph().find_descendants(f"newsstand.{room}")


def test_every_room_has_its_row() -> None:
    assert set(BUILT) <= set(ROOMS)


@pytest.mark.parametrize("room", BUILT)
def test_a_room_imports_only_what_its_row_says(room: str) -> None:
    allowed = set(ROOMS) if ROOMS[room] == "all" else {room, *ROOMS[room].split()}
    strays = {
        f"{module} imports {imported}"
        for module in modules_of(room)
        for imported in graph().find_modules_directly_imported_by(module)
        if imported.startswith("newsstand.") and room_of(imported) not in allowed
    }
    assert not strays


def test_the_package_itself_imports_only_the_standard_library() -> None:
    assert graph().find_modules_directly_imported_by("newsstand") <= sys.stdlib_module_names


def test_spark_is_imported_where_it_belongs() -> None:
    importers = graph().find_modules_that_directly_import("pyspark") - SPARK_FOR_ITS_TYPES
    assert {room_of(module) for module in importers} <= OWNERS_OF_SPARK


@pytest.mark.parametrize(
    ("statement", "never"),
    [
        ("import newsstand.caching", {"pyspark", "numba", "pandas", "numpy"}),
        ("from newsstand.caching import page_cache; page_cache('dm', 9).request('a', 3)", {"pyspark", "numba"}),
        ("import newsstand.caching.kernels.compiled", {"pyspark"}),
    ],
)
def test_a_cache_never_loads_spark_and_compiles_only_to_replay(statement: str, never: set[str]) -> None:
    code = f"{statement}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not never & set(told.stdout.split())
