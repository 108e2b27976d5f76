"""Code and documentation use the words of the glossary, and none of the words that it retires."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
TEXTS = {".md", ".py", ".toml", ".html", ".js", ".css", ".j2"}
FOLDERS = ("src", "tests", "benchmarks", "examples", "docs", "tools")

EXCEPTIONS = {
    ("docs/glossary.md", "*"): "lists the retired words",
    ("tests/test_glossary.py", "*"): "plants retired words to see that they are found",
}
"""Files that may use a retired word (`*`: any), and why."""

IDENTIFIERS = {
    "Path.home": "a method of the standard library",
    "SPARK_HOME": "an environment variable of Spark",
}
"""Identifiers that others have named, and who."""


def retired(heading: str) -> list[str]:
    """Return the words in bold in the line of a heading of the glossary's last section."""
    section = GLOSSARY.read_text(encoding="utf-8").partition("## Words that are not used\n")[2]
    (line,) = re.findall(rf"^- {heading}: (.*?)(?=^- |\Z)", section, re.M | re.S)
    return re.findall(r"\*\*([^*]+)\*\*", line)


EVERYWHERE = retired("everywhere")
IN_IDENTIFIERS = [*EVERYWHERE, *retired("in identifiers")]
PARTICIPLES = set(retired("as class names"))


def words_of(identifier: str) -> str:
    """Return an identifier as words: `is_atHome2` is `is at home 2`."""
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)).lower()


def pattern(words: list[str]) -> re.Pattern[str]:
    return re.compile(r"\b(" + "|".join(word.replace(" ", r"\s+") for word in words) + r")\b", re.I)


TEXT, IDENTIFIER = pattern(EVERYWHERE), pattern(IN_IDENTIFIERS)
TERMS = [set(re.findall(r"\w+", term.lower())) for term in EVERYWHERE]


def participles(name: str) -> bool:
    """Return whether a class is named by a participle alone: `Taken`, but neither `NameTaken` nor `Seed`."""
    one = name.lstrip("_")
    return one in PARTICIPLES or bool(re.fullmatch(r"[A-Z][a-z]{2,}ed", one) and one not in {"Shed", "Embed"})


@cache
def is_suspect(name: str) -> bool:
    """Return whether a file with this name needs a closer look, which takes long."""
    return participles(name) or bool(IDENTIFIER.search(words_of(name)))


def may_contain(text: str) -> bool:
    """Return whether a text has all words of a retired term, in any order; to find their order takes long."""
    words = set(re.findall(r"\w+", text.lower()))
    return any(term <= words for term in TERMS)


def violations(text: str, suffix: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the retired word of every violation in a file."""
    prose = "\n".join(re.sub(r"^\s*(?:#|//|>)", "", line) for line in text.splitlines())
    for match in TEXT.finditer(prose) if may_contain(prose) else ():
        yield prose.count("\n", 0, match.start()) + 1, " ".join(match[1].lower().split())
    if suffix != ".py" or not any(map(is_suspect, set(re.findall(r"[^\W\d]\w*", text)))):
        return
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for i, token in enumerate(tokens):
        found = IDENTIFIER.search(words_of(token.string)) if token.type == tokenize.NAME else None
        known = {token.string, "".join(one.string for one in tokens[max(i - 2, 0) : i + 1])} & set(IDENTIFIERS)
        if found and not known and not TEXT.search(token.string):
            yield token.start[0], found[1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and participles(node.name):
            yield node.lineno, node.name


def files() -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in TEXTS]
    return sorted([*found, *ROOT.glob("*.md")])


def test_glossary_lists_retired_words() -> None:
    assert {"told", "in vain"} <= set(EVERYWHERE)
    assert "home" in IN_IDENTIFIERS
    assert "Kept" in PARTICIPLES
    defined = re.findall(r"^\|.*\| (\*\*.*) \|$", GLOSSARY.read_text(encoding="utf-8"), re.M)
    assert {word for cell in defined for word in re.findall(r"\*\*([^*]+)\*\*", cell)} <= set(EVERYWHERE)


def test_retired_words_are_not_used() -> None:
    found = []
    for path in files():
        name = str(path.relative_to(ROOT))
        for line, word in violations(path.read_text(encoding="utf-8"), path.suffix):
            if not {(name, word), (name, "*")} & set(EXCEPTIONS):
                found.append(f"{name}:{line}: {word}")
    assert not found, "\n".join(found)


def test_exceptions_are_needed() -> None:
    for name, word in EXCEPTIONS:
        path = ROOT / name
        used = {one for _, one in violations(path.read_text(encoding="utf-8"), path.suffix)}
        assert used
        assert word == "*" or word in used, (name, word)


@pytest.mark.parametrize(
    ("text", "suffix", "expected"),
    [
        ("The broker told it.\nAll is well.\n", ".md", [(1, "told")]),
        ("It asks in\nvain.\n", ".md", [(1, "in vain")]),
        ("# It runs for\n# ever.\n", ".py", [(1, "for ever")]),
        ('def ask() -> None:\n    """Ask Anew."""\n', ".py", [(2, "anew")]),
        ("x = 'so many'\n", ".py", [(1, "so many")]),
        ("def first(): ...\n\n\nwas_told = first\n", ".py", [(4, "told")]),
        ("atHome = 1\n", ".py", [(1, "home")]),
        ("x.home_broker = 'at home'\n", ".py", [(1, "home")]),
        ("folder = Path.home() / SPARK_HOME\n", ".py", []),
        ("class Kept: ...\n", ".py", [(1, "Kept")]),
        ("class _Asked: ...\n", ".py", [(1, "_Asked")]),
        ("class NameTaken: ...\n\n\nclass Seed: ...\n", ".py", []),
        ("The doorway is at home.\n", ".md", []),
    ],
)
def test_violations_are_found(text: str, suffix: str, expected: list[tuple[int, str]]) -> None:
    assert list(violations(text, suffix)) == expected
