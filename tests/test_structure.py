"""The package and its tests keep their shape: small folders, one class for each class name, tests on their own."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
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


@dataclass
class Names:
    """The names in a module."""

    classes: list[str] = field(default_factory=list)
    private: set[object] = field(default_factory=set)
    """Functions, classes, variables and attributes that it defines."""
    used: set[object] = field(default_factory=set)
    """Names of other modules that it reads, patches or imports."""
    imported: set[str] = field(default_factory=set)
    """The modules that it may import."""


def constants_without_definition(package: Path) -> list[str]:
    """Return the constants that docstrings name, as in `MOST_FILES`, and that no module uses or has as text."""
    used, named = set[str](), list[tuple[str, str]]()
    for path in sorted(package.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    used.add(name)
                case ast.Constant(value=str(text)) if node in docstrings:
                    found = re.findall(r"`(?:\w+\.)*([A-Z][A-Z0-9_]{2,})`", text)
                    named += [(name, f"{path.relative_to(package)}:{node.lineno}: {name}") for name in found]
                case ast.Constant(value=str(text)):
                    used.update(re.findall(r"\w+", text))
    return [place for name, place in named if name not in used]


@cache
def names_in(path: Path) -> Names:
    """Return the names in a module; it is parsed only once, as that takes long."""
    found = Names()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Attribute(attr=name, ctx=context, value=value):
                of_itself = isinstance(value, ast.Name) and value.id in ("self", "cls")
                if not of_itself:
                    found.used.add(name)
                elif isinstance(context, ast.Store) and value.id == "self":
                    found.private.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.private.add(name)
            case ast.Call(args=[_, ast.Constant(value=name), *_]):
                found.used.add(name)  # as in monkeypatch.setattr(object, "_name", ...)
            case ast.Constant(value=str(text)) if text.startswith("newsstand."):
                found.used.add(text.rpartition(".")[2])
            case ast.ClassDef(name=name):
                found.classes.append(name)
                found.private.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.private.add(name)
            case ast.Import(names=names):
                found.imported.update(one.name for one in names)
            case ast.ImportFrom(module=module, names=names):
                found.used.update(one.name for one in names)
                found.imported.update([module or "", *(one.name for one in names)])
    return found


def definitions(package: Path) -> dict[str, list[str]]:
    """Return the modules that define each class name."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for name in names_in(path).classes:
            found[name].append(str(path.relative_to(package)))
    return found


def is_private(name: object) -> bool:
    """Return whether a name starts with one underscore."""
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__") and name not in NAMEDTUPLE


def private_definitions(path: Path) -> set[str]:
    """Return the private functions, classes, variables and attributes that a module defines."""
    return {str(name) for name in names_in(path).private if is_private(name)}


def private_uses(path: Path) -> set[str]:
    """Return the private names of other modules that a module reads, patches or imports."""
    return {str(name) for name in names_in(path).used if is_private(name)} - private_definitions(path)


def imported_modules(path: Path) -> set[str]:
    """Return the last parts of the names of the modules that a module may import."""
    return {name.rpartition(".")[2] for name in names_in(path).imported}


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


def test_docstrings_name_constants_that_exist() -> None:
    assert constants_without_definition(PACKAGE) == []


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
    (tmp_path / "module_2.py").write_text('"""`A.MOST`, `LEAST`, `GONE`."""\nMOST = ["LEAST"]\n')
    assert constants_without_definition(tmp_path) == ["module_2.py:1: GONE"]
    use, own = tmp_path / "use.py", tmp_path / "own.py"
    own.write_text("class _Row: ...\ndef _take(): ...\n_MOST = 1\nself._left = other._right\n")
    assert private_definitions(own) == {"_Row", "_take", "_MOST", "_left"}
    use.write_text(
        "import test_a\nfrom b.test_b import _c\nfrom b import test_d\nself._own = 1\nx.y._z\nx.__len__()\n"
        "setattr(x, '_w', 1)\nsetattr('newsstand.m._v', 1)\n_local = x._local\n"
    )
    assert private_uses(use) == {"_c", "_z", "_w", "_v"}
    assert imported_modules(use) == {"test_a", "test_b", "_c", "b", "test_d"}
