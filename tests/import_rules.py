"""The import rules of the package, and the table of them in CONTRIBUTING.md, which this program writes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "newsstand"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- components: written by tests/import_rules.py -->\n", "<!-- end of components -->\n"

COMPONENTS: dict[str, str] = {
    "errors": "",
    "model": "errors",
    "wire": "errors model auth config",
    "concurrency": "errors",
    "config": "errors",
    "auth": "errors model config http",
    "sqlite": "errors",
    "http": "errors model config concurrency",
    "caching": "errors model",
    "overlay": "errors model caching",
    "geo": "errors config overlay",
    "planning": "errors model config geo overlay",
    "push_caching": "errors model geo",
    "survival": "errors model",
    "spark": "errors config",
    "cluster": "errors model wire concurrency config auth sqlite http spark geo push_caching",
    "broker": "errors model wire concurrency config auth sqlite http caching overlay geo push_caching",
    "coordinator": "errors model wire concurrency config auth sqlite http geo",
    "client": "errors model wire concurrency auth",
    "workload": "errors model geo spark",
    "lab": "errors model caching overlay geo planning push_caching survival spark broker workload",
    "platform": "errors model wire concurrency config auth http cluster broker coordinator",
    "scenarios": "errors config http caching client",
    "web": "errors http",
    "cli": "all",
}
"""What each top-level component may import of the others."""

NESTED: dict[str, str] = {
    "cluster/api": "ingest pages query results",
    "cluster/ingest": "log matching pages results",
    "cluster/log": "ingest pages results",
    "cluster/matching": "ingest log query results",
    "cluster/pages": "",
    "cluster/query": "ingest",
    "cluster/results": "",
    "broker/api": "cluster_client coordinator_client links pages results sessions topics websocket",
    "broker/cluster_client": "coordinator_client pages results sessions",
    "broker/coordinator_client": "sessions",
    "broker/links": "websocket",
    "broker/pages": "cluster_client",
    "broker/results": "cluster_client pages sessions websocket",
    "broker/sessions": "coordinator_client",
    "broker/topics": "links sessions websocket",
    "broker/websocket": "",
    "coordinator/api": "store",
    "coordinator/store": "",
    "lab/pages": "reporting",
    "lab/papers": "pages push_caching reporting results survival",
    "lab/push_caching": "reporting",
    "lab/reporting": "",
    "lab/results": "reporting",
    "lab/survival": "reporting",
}
"""What each folder of the large components may import of its siblings. Their single modules put the folders
together: they are not restricted, and each folder may import them."""


def top_level() -> list[str]:
    """Return the modules and packages of the package."""
    return sorted(
        path.stem
        for path in PACKAGE.iterdir()
        if path.stem != "__init__" and (path.suffix == ".py" or (path / "__init__.py").exists())
    )


def nested() -> list[str]:
    """Return the folders of the components that have rules for their folders."""
    areas = sorted({name.partition("/")[0] for name in NESTED})
    return sorted(f"{area}/{path.parent.name}" for area in areas for path in PACKAGE.glob(f"{area}/*/__init__.py"))


def table() -> str:
    """Return the rules as a table in Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in _rows())


def current_table() -> str:
    """Return the table in CONTRIBUTING.md."""
    return CONTRIBUTING.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


def _rows() -> Iterator[tuple[str, str, str]]:
    yield "component", "contents", "may import"
    yield "---", "---", "---"
    for name, allowed in COMPONENTS.items():
        is_folder = (PACKAGE / name).is_dir()
        yield f"`{name}{'/' if is_folder else '.py'}`", _contents(name), ", ".join(allowed.split()) or "none"
        for folder, siblings in NESTED.items():
            if folder.startswith(f"{name}/"):
                yield f"`{folder}/`", _contents(folder), ", ".join(siblings.split()) or "none of its siblings"


def _contents(name: str) -> str:
    path = PACKAGE / f"{name}.py"
    path = path if path.exists() else PACKAGE / name / "__init__.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).rstrip(".").replace("|", "\\|")


if __name__ == "__main__":
    before, _, rest = CONTRIBUTING.read_text(encoding="utf-8").partition(BEGIN)
    CONTRIBUTING.write_text(before + BEGIN + table() + END + rest.partition(END)[2], encoding="utf-8")
