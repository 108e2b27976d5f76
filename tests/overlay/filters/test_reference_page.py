"""The documentation of filters matches their behaviour."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from newsstand.errors import BadFilter
from newsstand.overlay.filters.filter import Filter
from newsstand.overlay.filters.syntax import DEEPEST, LONGEST, MOST_VALUES
from newsstand.overlay.messages import Publication

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "filters.md").read_text()


def rows(chapter: str) -> list[list[str]]:
    """Return the backquoted texts of each row of a chapter's table."""
    text = PAGE.partition(f"## {chapter}\n")[2].partition("\n## ")[0]
    return [re.findall(r"`([^`]*)`", line) for line in text.splitlines() if line.startswith("| `")]


def message(text: str) -> Publication:
    attributes = json.loads(text)
    return Publication(1, 1, attributes.pop("topic"), attributes)


@pytest.mark.parametrize(("wanted", "match", "no_match"), rows("Examples"))
def test_documented_examples_match(wanted: str, match: str, no_match: str) -> None:
    assert Filter.parse(wanted).matches(message(match))
    assert not Filter.parse(wanted).matches(message(no_match))
    assert str(Filter.parse(wanted)) == wanted


@pytest.mark.parametrize(("wide", "narrow"), rows("Covering"))
def test_documented_covering_examples_hold(wide: str, narrow: str) -> None:
    assert Filter.parse(wide).covers(Filter.parse(narrow))
    assert not Filter.parse(narrow).covers(Filter.parse(wide))


@pytest.mark.parametrize(("wrong", "expected"), rows("Limits and mistakes"))
def test_documented_mistakes_reported(wrong: str, expected: str) -> None:
    with pytest.raises(BadFilter) as refused:
        Filter.parse(wrong)
    assert str(refused.value) == expected


def test_documented_limits_hold() -> None:
    assert f"{LONGEST} characters, {MOST_VALUES} values, and {DEEPEST} levels" in PAGE
    [example] = re.findall(r"^    (topic = .*)$", PAGE, re.M)
    assert str(Filter.parse(example)) == example
    [(wide, narrow)] = re.findall(r"as\s+`([^`]*)`\s+covers\s+`([^`]*)`", PAGE)
    assert not Filter.parse(wide).covers(Filter.parse(narrow))
    assert len(rows("Examples")) == 9
    assert len(rows("Conditions")) == 5
