"""A component imports only what its rule allows, and Spark stays where it belongs."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import grimp
import pytest
from import_rules import COMPONENTS, NESTED, nested, top_level

OWNERS_OF_SPARK = {"spark", "workload", "lab", "cluster"}
SPARK_FOR_ITS_TYPES = {"newsstand.cli.options", "newsstand.cli.terminal"}
"""Modules elsewhere that may name Spark's classes."""


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("newsstand", include_external_packages=True, cache_dir=None)


def component_of(module: str) -> str:
    return module.split(".")[1]


def modules_of(component: str) -> set[str]:
    return {f"newsstand.{component}"} | graph().find_descendants(f"newsstand.{component}")


def imports_of(component: str) -> set[tuple[str, str]]:
    """Return pairs of a module of a component and a module of the package that it imports."""
    return {
        (module, imported)
        for module in modules_of(component)
        for imported in graph().find_modules_directly_imported_by(module)
        if imported.startswith("newsstand.")
    }


def test_components_all_have_rules() -> None:
    assert set(top_level()) == set(COMPONENTS)
    assert nested() == sorted(NESTED)


@pytest.mark.parametrize("component", COMPONENTS)
def test_component_imports_only_what_its_rule_allows(component: str) -> None:
    rule = COMPONENTS[component]
    allowed = set(COMPONENTS) if rule == "all" else {component, *rule.split()}
    assert not [pair for pair in imports_of(component) if component_of(pair[1]) not in allowed]


@pytest.mark.parametrize("folder", NESTED)
def test_folder_imports_only_siblings_that_its_rule_allows(folder: str) -> None:
    area, _, name = folder.partition("/")
    siblings = {one.partition("/")[2] for one in NESTED if one.startswith(f"{area}/")}
    barred = siblings - {name, *NESTED[folder].split()}
    prefixes = tuple(f"newsstand.{area}.{one}." for one in barred)
    assert not [pair for pair in imports_of(f"{area}.{name}") if f"{pair[1]}.".startswith(prefixes)]


def test_package_itself_imports_only_standard_library() -> None:
    assert graph().find_modules_directly_imported_by("newsstand") <= sys.stdlib_module_names


def test_spark_is_imported_where_it_belongs() -> None:
    importers = graph().find_modules_that_directly_import("pyspark") - SPARK_FOR_ITS_TYPES
    assert {component_of(module) for module in importers} <= OWNERS_OF_SPARK


def test_result_stores_know_no_spark() -> None:
    modules = modules_of("cluster.results")
    assert not [module for module in modules if "pyspark" in graph().find_modules_directly_imported_by(module)]


@pytest.mark.parametrize(
    ("statement", "never"),
    [
        ("import newsstand.caching", {"pyspark", "numba", "pandas", "numpy"}),
        ("from newsstand.caching import page_cache; page_cache('dm', 9).request('a', 3)", {"pyspark", "numba"}),
        ("import newsstand.caching.kernels.pages.compiled", {"pyspark"}),
        (
            "import newsstand.broker.server, newsstand.coordinator.server",
            {"pyspark", "pyarrow", "numpy", "sqlglot"},
        ),
        ("import newsstand.cluster.server, newsstand.cluster.service", {"numba", "scipy", "networkx"}),
        ("import newsstand.client, newsstand.cli.main", {"pyspark", "starlette", "uvicorn", "jwt", "numpy"}),
    ],
)
def test_modules_never_load_what_their_extra_lacks(statement: str, never: set[str]) -> None:
    code = f"{statement}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not never & set(ran.stdout.split())
