"""A cache of runs in files; the name of a file contains a digest of everything that its runs depend on.

This includes all sources that take part, found by their imports: a change of any of their lines invalidates the
cache.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import metadata
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

import newsstand
from newsstand.errors import BadInput, BadOption

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = Path(newsstand.__file__).parent
Run = TypeVar("Run")
Task = TypeVar("Task")


class RunCache(Generic[Run]):
    """Runs by their tasks: dataclasses with a field `task`, kept in a file if one is given."""

    def __init__(self, file: Path | None, kind: type[Run]) -> None:
        self._file = file
        self._task = attrgetter("task")
        self._runs: dict[object, Run] = {}
        if file is not None and file.exists():
            try:
                rows = json.loads(file.read_text())
                runs = msgspec.convert(rows, list[kind])  # type: ignore[valid-type]
            except (ValueError, RecursionError, msgspec.ValidationError, BadOption) as error:
                raise _damaged(file) from error
            if json.loads(json.dumps(msgspec.to_builtins(runs))) != rows:  # a field is missing or unknown
                raise _damaged(file)
            self._runs = {self._task(run): run for run in runs}

    def __getitem__(self, task: object) -> Run:
        return self._runs[task]

    def missing(self, tasks: Iterable[Task]) -> list[Task]:
        """Return the tasks without a run, each once."""
        return [task for task in dict.fromkeys(tasks) if task not in self._runs]

    def add(self, runs: Iterable[Run]) -> None:
        """Add runs and write the file."""
        self._runs |= {self._task(run): run for run in runs}
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._file, msgspec.to_builtins([*self._runs.values()]))

    def complete(
        self,
        tasks: Iterable[Task],
        run: Callable[[list[Task]], Iterable[Run]],
        batch: int,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Run the missing tasks in batches; each batch is written, so that an interruption costs little."""
        todo = self.missing(tasks)
        if self._file is None:
            batch, tell = max(1, len(todo)), lambda _: None
        for start in range(0, len(todo), batch):
            tell(f"{start} of {len(todo)} simulations done")
            self.add(run(todo[start : start + batch]))


def _damaged(file: Path) -> BadInput:
    return BadInput(f"{file}: is damaged; remove it to compute its runs again")


def run_file(out: Path, name: str, modules: Sequence[str], *inputs: object) -> Path:
    """Return the file in `out`/runs of runs that are computed by these modules from these inputs."""
    folder = out / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    key = digest(" ".join(map(str, (metadata.version("newsstand"), sources_digest(*modules), *inputs))))
    return folder / f"{name}-{key}.json"


def run_on_spark(spark: SparkSession, tasks: Sequence[Task], run: Callable[[Task], Any]) -> list[Any]:
    """Return the results of independent tasks, each a Spark task."""
    from newsstand.spark import run_cancellable

    if not tasks:
        return []
    listed = spark.sparkContext.parallelize(tasks, len(tasks))
    return run_cancellable(spark, lambda: listed.map(run).collect())


@cache
def sources_digest(*roots: str) -> str:
    """Return a digest of these modules, of all that they import of the package, and of the tables beside them."""
    sources = hashlib.sha256()
    files = {_source(module) for module in import_closure(roots)}
    for file in sorted(files | {table for one in files for table in one.parent.glob("*.csv")}):
        sources.update(f"{file.relative_to(PACKAGE)}\n".encode() + file.read_bytes())
    return sources.hexdigest()[:16]


def import_closure(roots: Sequence[str]) -> set[str]:
    """Return these modules and all modules of the package that they import, directly or not, in functions too."""
    closure: set[str] = set()
    waiting = list(roots)
    while waiting:
        module = waiting.pop()
        if module not in closure:
            closure.add(module)
            waiting += _imports(module)
            if "." in module:
                waiting.append(module.rpartition(".")[0])  # a package is imported before its parts
    return closure


def _imports(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(_source(module).read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _source(alias.name).is_file())
        elif isinstance(node, ast.ImportFrom) and node.module and _source(node.module).is_file():
            yield node.module
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in names if _source(name).is_file())


def _source(module: str) -> Path:
    """Return where the source of a module would be; there is none for modules of other packages."""
    package, _, name = module.partition(".")
    place = PACKAGE.joinpath(*name.split(".") if name else ())
    if package != "newsstand":
        return place / "not of this package"
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def digest(text: str) -> str:
    """Return a short name for a description."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def write_json(file: Path, what: object) -> None:
    """Write a JSON file, whole or not at all."""
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(what))
    partial.replace(file)
