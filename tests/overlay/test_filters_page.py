"""The page about filters says what filters do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from newsstand.errors import BadFilter
from newsstand.overlay.filter_syntax import DEEPEST, LONGEST, MOST_VALUES
from newsstand.overlay.filters import Filter, covers
from newsstand.overlay.messages import Publication

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "filters.md").read_text()


def rows(chapter: str) -> list[list[str]]:
    """What stands in backquotes in each row of a chapter's table."""
    text = PAGE.partition(f"## {chapter}\n")[2].partition("\n## ")[0]
    return [re.findall(r"`([^`]*)`", line) for line in text.splitlines() if line.startswith("| `")]


def message(text: str) -> Publication:
    attributes = json.loads(text)
    return Publication(1, 1, attributes.pop("topic"), attributes)


@pytest.mark.parametrize(("wanted", "match", "no_match"), rows("Examples"))
def test_examples_match_as_they_say(wanted: str, match: str, no_match: str) -> None:
    assert Filter.parse(wanted).matches(message(match))
    assert not Filter.parse(wanted).matches(message(no_match))
    assert str(Filter.parse(wanted)) == wanted


@pytest.mark.parametrize(("wide", "narrow"), rows("Covering"))
def test_examples_cover_as_they_say(wide: str, narrow: str) -> None:
    assert covers(Filter.parse(wide), Filter.parse(narrow))
    assert not covers(Filter.parse(narrow), Filter.parse(wide))


@pytest.mark.parametrize(("wrong", "told"), rows("Limits and mistakes"))
def test_mistakes_are_told_as_they_say(wrong: str, told: str) -> None:
    with pytest.raises(BadFilter) as refused:
        Filter.parse(wrong)
    assert str(refused.value) == told


def test_what_the_page_says_besides() -> None:
    assert f"{LONGEST} characters, {MOST_VALUES} values, and {DEEPEST} levels" in PAGE
    [example] = re.findall(r"^    (topic = .*)$", PAGE, re.M)
    assert str(Filter.parse(example)) == example
    [narrow, wide] = re.findall(r"as `([^`]*)` is by `([^`]*)`", PAGE)[0]
    assert not covers(Filter.parse(wide), Filter.parse(narrow))
    assert len(rows("Examples")) == 9
    assert len(rows("Conditions")) == 5
