"""The package and its tests keep their shape: small folders, one class for each class name, tests on their own."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from import_rules import PACKAGE

MOST_MODULES = 12
"""A reader takes in a folder of this size at a glance; a larger one is two components."""

MOST_FILES = 419
"""Files of the package. With more, modules are halves of one idea, or belong to their only user."""

REPEATED_CLASSES = {
    "Metrics": "each server has one, with its own counters, and no module imports two of them",
}
"""Class names that are defined more than once, and why."""

TESTS = Path(__file__).parent

NAMEDTUPLE = ("_asdict", "_fields", "_replace")
"""Public names in spite of the underscore."""

PRIVATE: dict[str, str] = {
    "client/test_connections.py": "_proxy_of",
    "client/test_load.py": "_notifications _socket",
    "client/test_one_broker.py": "_done",
    "overlay/broker/test_caching.py": "_of_topic",
    "support/broker/subscriber_world.py": "_connection",
}
"""The private names of the package that each file of tests/ still uses. No file and no name is added."""


def folders(package: Path) -> dict[str, int]:
    """Return the number of modules of each folder of a package, without `__init__`."""
    found = Counter(path.parent for path in package.rglob("*.py") if path.stem != "__init__")
    return {str(folder.relative_to(package)): modules for folder, modules in found.items()}


def definitions(package: Path) -> dict[str, list[str]]:
    """Return the modules that define each class name."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(package)))
    return found


def nodes(path: Path) -> Iterator[ast.AST]:
    """Return the nodes of a module."""
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def is_private(name: object) -> bool:
    """Return whether a name starts with one underscore."""
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__") and name not in NAMEDTUPLE


def private_definitions(path: Path) -> set[str]:
    """Return the private functions, classes, variables and attributes that a module defines."""
    found: set[object] = set()
    for node in nodes(path):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store(), value=ast.Name(id="self")):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
    return {str(name) for name in found if is_private(name)}


def private_uses(path: Path) -> set[str]:
    """Return the private names of other modules that a module reads, patches or imports."""
    found: set[object] = set()
    for node in nodes(path):
        match node:
            case ast.Attribute(attr=name, value=value):
                if not isinstance(value, ast.Name) or value.id not in ("self", "cls"):
                    found.add(name)
            case ast.ImportFrom(names=names):
                found.update(one.name for one in names)
            case ast.Call(args=[_, ast.Constant(value=name), *_]):
                found.add(name)  # as in monkeypatch.setattr(object, "_name", ...)
            case ast.Constant(value=str(text)) if text.startswith("newsstand."):
                found.add(text.rpartition(".")[2])
    return {str(name) for name in found if is_private(name)} - private_definitions(path)


def imported_modules(path: Path) -> set[str]:
    """Return the last parts of the names of the modules that a module may import."""
    found: set[str] = set()
    for node in nodes(path):
        match node:
            case ast.Import(names=names):
                found.update(one.name for one in names)
            case ast.ImportFrom(module=module, names=names):
                found.update([module or "", *(one.name for one in names)])
    return {name.rpartition(".")[2] for name in found}


def test_folders_hold_at_most_twelve_modules() -> None:
    for package in (PACKAGE, TESTS / "support"):
        assert not {folder: modules for folder, modules in folders(package).items() if modules > MOST_MODULES}


def test_package_has_few_files() -> None:
    files = [*PACKAGE.rglob("*.py")]
    assert len(files) <= MOST_FILES, "merge modules that are halves of one idea, or have one user"


def test_class_names_are_defined_once() -> None:
    repeated = {name: modules for name, modules in definitions(PACKAGE).items() if len(modules) > 1}
    assert set(repeated) - set(REPEATED_CLASSES) == set(), repeated


def test_exceptions_for_class_names_are_few_and_needed() -> None:
    defined = definitions(PACKAGE)
    assert len(REPEATED_CLASSES) <= 10
    assert all(len(defined[name]) > 1 for name in REPEATED_CLASSES)


def test_test_modules_import_no_other_test_module() -> None:
    modules = {path.stem for path in TESTS.rglob("test_*.py")}
    found = {str(path.relative_to(TESTS)): imported_modules(path) & modules for path in TESTS.rglob("*.py")}
    assert not {file: names for file, names in found.items() if names}, "move what they share to tests/support"


def test_tests_use_no_private_name_of_package() -> None:
    defined = set[str]().union(*map(private_definitions, PACKAGE.rglob("*.py")))
    found = {str(path.relative_to(TESTS)): private_uses(path) & defined for path in TESTS.rglob("*.py")}
    expected = {file: set(names.split()) for file, names in PRIVATE.items()}
    assert {file: names for file, names in found.items() if names} == expected, "PRIVATE: remove names, add none"


def test_violations_are_found(tmp_path: Path) -> None:
    for i in range(MOST_MODULES + 1):
        (tmp_path / f"module_{i}.py").write_text("class Lease:\n    class Timer: ...\n" if i < 2 else "")
    assert folders(tmp_path) == {".": MOST_MODULES + 1}
    assert definitions(tmp_path) == {name: ["module_0.py", "module_1.py"] for name in ("Lease", "Timer")}
    use, own = tmp_path / "use.py", tmp_path / "own.py"
    own.write_text("class _Row: ...\ndef _take(): ...\n_MOST = 1\nself._left = other._right\n")
    assert private_definitions(own) == {"_Row", "_take", "_MOST", "_left"}
    use.write_text(
        "import test_a\nfrom b.test_b import _c\nfrom b import test_d\nself._own = 1\nx.y._z\nx.__len__()\n"
        "setattr(x, '_w', 1)\nsetattr('newsstand.m._v', 1)\n_local = x._local\n"
    )
    assert private_uses(use) == {"_c", "_z", "_w", "_v"}
    assert imported_modules(use) == {"test_a", "test_b", "_c", "b", "test_d"}
