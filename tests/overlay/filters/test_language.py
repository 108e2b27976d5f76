"""The filter language: syntax, matching and covering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from newsstand.errors import BadFilter
from newsstand.overlay.filters import filter as filters
from newsstand.overlay.filters.expressions import (
    COMPARE,
    TOPIC,
    And,
    AttributeComparison,
    Expression,
    Not,
    OneOf,
    Or,
    Prefix,
    combine,
)
from newsstand.overlay.filters.filter import MOST_BOXES, MOST_COMPARED, Box, Filter, OverlapCheck
from newsstand.overlay.filters.syntax import DEEPEST, LONGEST, MOST_VALUES
from newsstand.overlay.filters.value_sets import LAST_LETTER, Value
from newsstand.overlay.routing.subscriptions import SubscriptionTable


@dataclass(frozen=True)
class Storm:
    topic: str
    attributes: Mapping[str, Value] = field(default_factory=dict)


EXAMPLE = "topic = 'storms' and severity >= 3 and (area in ('NW', 'SW') or title prefix 'Flood')"


@pytest.mark.parametrize(
    ("message", "matches"),
    [
        (Storm("storms", {"severity": 3, "area": "NW"}), True),
        (Storm("storms", {"severity": 3.5, "title": "Flooded roads"}), True),
        (Storm("storms", {"severity": 2, "area": "NW"}), False),
        (Storm("fires", {"severity": 3, "area": "NW"}), False),
        (Storm("storms", {"severity": "3", "area": "NW"}), False),
        (Storm("storms", {"severity": True, "area": "NW"}), False),
        (Storm("storms", {"severity": 3, "title": "A Flood"}), False),
        (Storm("storms", {"area": "NW"}), False),
    ],
)
def test_filter_matches_its_conditions(message: Storm, matches: bool) -> None:
    assert Filter.parse(EXAMPLE).matches(message) is matches


@pytest.mark.parametrize(
    ("text", "attributes", "matches"),
    [
        ("a = 1", {"a": 1.0}, True),
        ("a = 1", {"a": True}, False),
        ("a = true", {"a": True}, True),
        ("a = true", {"a": 1}, False),
        ("a != 1", {"a": "x"}, False),
        ("a != 1", {}, False),
        ("not a = 1", {}, True),
        ("not a = 1", {"a": "x"}, True),
        ("a < 'b'", {"a": "a"}, True),
        ("a < 'b'", {"a": 0}, False),
        ("a in (1, 'x', true)", {"a": True}, True),
        ("a in (1, 'x')", {"a": True}, False),
        ("a prefix ''", {"a": "x"}, True),
        ("a prefix '1'", {"a": 1}, False),
        ("a = 1 or b = 1 and c = 1", {"a": 1}, True),
        ("(a = 1 or b = 1) and c = 1", {"a": 1}, False),
        ("not a = 1 and b = 1", {"b": 1}, True),
        ("AND_more = 1 AND b = 1", {"AND_more": 1, "b": 1}, True),
        ('"and" = 1 and "the ""name""" = \'it\'\'s\'', {"and": 1, 'the "name"': "it's"}, True),
        ("a = -1.5e3", {"a": -1500}, True),
        ("true", {}, True),
        ("false", {}, False),
        ("not false and a = 9223372036854775807", {"a": 2**63 - 1}, True),
    ],
)
def test_values_of_other_kinds_never_match(text: str, attributes: dict[str, Value], matches: bool) -> None:
    assert Filter.parse(text).matches(Storm("t", attributes)) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "filter, column 1: expected an attribute, such as topic, found the end"),
        ("topic = 'a' und b = 1", "filter, column 13: expected 'and', 'or' or the end, found und"),
        ("topic == 'a'", "filter, column 8: expected a value: a number, a text in single quotes, true or false"),
        ("topic = 'a", "filter, column 9: a quote is not closed"),
        ("topic = a", "filter, column 9: expected a value: a number, a text in single quotes, true or false"),
        ("severity ~ 3", "filter, column 10: '~' is not understood"),
        ("severity 3", "filter, column 10: expected a comparison, 'in' or 'prefix', found 3"),
        ("(a = 1", "filter, column 7: expected ')', found the end"),
        ("a in 1", "filter, column 6: expected '(', found 1"),
        ("a in ()", "filter, column 7: expected a value: "),
        ("a prefix 1", "filter, column 10: expected a text in single quotes, found 1"),
        ("a < true", "filter, column 5: expected a number or a text after '<', found true"),
        ("a = 1e999", "filter, column 5: expected a number that is not infinite, found 1e999"),
        ("a = 9223372036854775808", "filter, column 5: expected a whole number of at most 64 bits, found 92"),
        ("and = 1", "filter, column 1: expected an attribute, such as topic, found and"),
        ("a = 1 \x85", "filter, column 7: '\\x85' is not understood"),
        ("\u2003", "filter, column 1: '\\u2003' is not understood"),
        ("a = 1 'x\ny'", "filter, column 7: expected 'and', 'or' or the end, found 'x\\ny'"),
        (f"a = {'b' * 99}", f"true or false, found {'b' * 40}…"),
        ("a = 12b", "filter, column 5: '1' is not understood"),
        ("a = '\ud800'", "filter, column 5: half a character"),
        ("not " * 40 + "a = 1", f"filter, column 133: nested more than {DEEPEST} deep"),
        ("(" * 40 + "a = 1", f"filter, column 34: nested more than {DEEPEST} deep"),
        (f"a in ({'1, ' * MOST_VALUES}1)", f"more than {MOST_VALUES} values"),
        ("a" * (LONGEST + 1), f"filter: {LONGEST + 1} characters; at most {LONGEST} are read"),
    ],
)
def test_filter_mistake_reported_with_column(text: str, message: str) -> None:
    with pytest.raises(BadFilter) as rejected:
        Filter.parse(text)
    assert str(rejected.value).startswith(message) or message in str(rejected.value)
    assert "\n" not in str(rejected.value)


def test_filter_rejected_when_canonical_text_is_too_long() -> None:
    short = "or".join(["(a=1)"] * 200)
    assert Filter.parse(short)
    with pytest.raises(BadFilter, match="when written out"):
        Filter.parse(" or ".join([f"{'b' * 26}<1"] * 255) + " or not(true)and c=1" + " " * 10)


@given(st.text(max_size=40))
def test_filter_parser_accepts_or_rejects_any_text(text: str) -> None:
    try:
        wanted = Filter.parse(text)
    except BadFilter:
        return
    assert Filter.parse(str(wanted)) == wanted


def expressions(condition: st.SearchStrategy[Expression], leaves: int) -> st.SearchStrategy[Expression]:
    return st.recursive(
        condition | st.sampled_from([And(()), Or(())]),
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: combine(And, parts)),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: combine(Or, parts)),
        ),
        max_leaves=leaves,
    )


NAMES = st.sampled_from(["topic", "a", "b", "and", 'x "y"', "ä"])
TEXTS = st.sampled_from(["", "a", "ab", "abc", "b", "it's", "ä", LAST_LETTER, "a" + LAST_LETTER, "a\0"])
NUMBERS = st.sampled_from([-1, 0, 1, 1.0, 1.5, 2, 2**63 - 1, 1e300, -0.5])
VALUES = st.one_of(TEXTS, NUMBERS, st.booleans())
CONDITIONS: st.SearchStrategy[Expression] = st.one_of(
    st.builds(AttributeComparison, NAMES, st.sampled_from(["=", "!="]), VALUES),
    st.builds(AttributeComparison, NAMES, st.sampled_from(list(COMPARE)), st.one_of(TEXTS, NUMBERS)),
    st.builds(OneOf, NAMES, st.lists(VALUES, min_size=1, max_size=3).map(tuple)),
    st.builds(Prefix, NAMES, TEXTS),
)
EXPRESSIONS = expressions(CONDITIONS, leaves=6)
FILTERS = EXPRESSIONS.map(Filter)
MESSAGES = st.builds(Storm, TEXTS, st.dictionaries(NAMES.filter(lambda name: name != TOPIC), VALUES, max_size=3))


@given(FILTERS)
@settings(max_examples=examples(150))
def test_filter_round_trips_through_its_text(wanted: Filter) -> None:
    assert Filter.parse(str(wanted)) == wanted
    assert str(Filter.parse(str(wanted))) == str(wanted)


@given(CONDITIONS, MESSAGES)
@settings(max_examples=examples(150))
def test_value_set_equals_matching_values(condition, message: Storm) -> None:
    value = message.topic if condition.attribute == TOPIC else message.attributes.get(condition.attribute)
    assert (value in condition.allowed) == condition.matches(message)
    assert (value in ~condition.allowed) != condition.matches(message)


FEW_VALUES = st.sampled_from([1, 2.5, "a", "ab", True])
FEW = expressions(
    st.one_of(
        st.builds(AttributeComparison, st.sampled_from(["topic", "a"]), st.sampled_from(["=", "!="]), FEW_VALUES),
        st.builds(
            AttributeComparison,
            st.sampled_from(["topic", "a"]),
            st.sampled_from(list(COMPARE)),
            st.sampled_from([1, 2.5, "a", "ab"]),
        ),
        st.builds(Prefix, st.sampled_from(["topic", "a"]), st.sampled_from(["a", "ab"])),
    ),
    leaves=3,
).map(Filter)
"""Filters that often cover each other."""
ALL_MESSAGES = [
    Storm(topic, {} if value is None else {"a": value})
    for topic in ("", "a", "aa", "ab", "abc", "b")
    for value in (None, 0, 1, 2, 2.5, 3, "", "a", "aa", "ab", "abc", "b", True, False)
]
"""One of each kind that such filters can tell apart."""


def check_that_covers_is_right(filters: list[Filter]) -> None:
    matched = [{n for n, one in enumerate(ALL_MESSAGES) if wanted.matches(one)} for wanted in filters]
    wide = [{n for n, other in enumerate(filters) if wanted.covers(other)} for wanted in filters]
    for number, covered in enumerate(wide):
        assert number in covered
        for other in covered:
            assert matched[other] <= matched[number], (filters[number], filters[other])
            assert wide[other] <= covered, "covers is transitive"


@given(st.lists(FEW, min_size=2, max_size=6))
@settings(max_examples=examples(150))
def test_covers_is_sound_and_transitive(filters: list[Filter]) -> None:
    check_that_covers_is_right(filters)


@pytest.mark.slow
@given(st.lists(FEW, min_size=6, max_size=12))
@settings(max_examples=3_000, deadline=None)
def test_covers_is_sound_and_transitive_in_many_cases(filters: list[Filter]) -> None:
    check_that_covers_is_right(filters)


@given(FILTERS, FILTERS, st.lists(MESSAGES, max_size=10))
@settings(max_examples=examples(100))
def test_covers_is_sound_for_odd_values(wide: Filter, narrow: Filter, messages) -> None:
    if wide.covers(narrow):
        assert all(wide.matches(message) for message in messages if narrow.matches(message))


@given(FEW, FEW)
@settings(max_examples=examples(150))
def test_filters_overlap_when_a_message_matches_both(one: Filter, other: Filter) -> None:
    both = any(one.matches(message) and other.matches(message) for message in ALL_MESSAGES)
    assert OverlapCheck(one).overlaps(other) == OverlapCheck(other).overlaps(one) == both


@given(FILTERS, FILTERS, st.lists(MESSAGES, max_size=10))
@settings(max_examples=examples(100))
def test_overlaps_has_no_false_negatives(one: Filter, other: Filter, messages) -> None:
    if not OverlapCheck(one).overlaps(other):
        assert not any(one.matches(message) and other.matches(message) for message in messages)


@given(st.lists(FEW, max_size=6), FEW)
@settings(max_examples=examples(100))
def test_overlap_check_equals_pairwise_overlaps(others: list[Filter], one: Filter) -> None:
    overlapping = OverlapCheck(one)
    assert [overlapping.overlaps(other) for other in others] == [
        OverlapCheck(one).overlaps(other) for other in others
    ]


def test_overlap_check_is_bounded_and_uses_hulls(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[tuple[Box, Box]] = []
    meet = filters.meet
    monkeypatch.setattr(filters, "meet", lambda one, other: met.append((one, other)) or meet(one, other))

    def of(first: int) -> str:
        return " or ".join(f"(s = {first + 2 * number} and v{number} = 1)" for number in range(20))

    table = SubscriptionTable()
    table.link_up("c", True)
    table.link_up("d", True)
    for number in range(50):
        table.receive("c", Filter.parse(f"n{number} = 1 and ({of(0)})"))
    asked = Filter.parse(f"topic = 'storms' and ({of(100)})")
    assert table.neighbours_near(asked, None) == []
    assert len(met) == 50, "their severities lie apart"
    met.clear()
    between = Filter.parse(f"topic = 'storms' and ({of(1)} or (s = 200 and w = 2))")
    assert OverlapCheck(between).overlaps(Filter.parse(of(0))) is False
    assert len(met) == 1, "what lies between is not in any of them"
    met.clear()
    crossed = Filter.parse(
        "topic = 'storms' and (" + " or ".join(f"(s = {n} and u = {n})" for n in range(20)) + ")"
    )
    for number in range(50):
        shifted = " or ".join(f"(s = {n} and u = {(n + 1) % 20})" for n in range(20))
        table.receive("d", Filter.parse(f"n{number} = 2 and ({shifted})"))
    table.link_down("c")
    assert OverlapCheck(crossed).overlaps(Filter.parse(shifted)) is False
    assert len(met) == 1 + 400
    met.clear()
    assert table.neighbours_near(crossed, None) == ["d"], "too much to compare: it may overlap"
    assert 400 < len(met) <= MOST_COMPARED


@given(EXPRESSIONS, EXPRESSIONS, st.lists(MESSAGES, max_size=20))
@settings(max_examples=examples(150))
def test_conjunction_is_covered_and_disjunction_covers(one: Expression, other: Expression, messages) -> None:
    both, either = Filter(combine(And, [one, other])), Filter(combine(Or, [one, other]))
    assert Filter(one).covers(both)
    assert either.covers(Filter(other))
    assert either.covers(both)
    assert Filter(one).covers(Filter(Not(Not(one))))
    assert all(either.matches(message) for message in messages if both.matches(message))


@given(FILTERS, MESSAGES)
@settings(max_examples=examples(150))
def test_filter_may_match_its_topics(wanted: Filter, message: Storm) -> None:
    if wanted.matches(message):
        assert wanted.may_match(message.topic)
        assert wanted.topics is None or message.topic in wanted.topics


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("topic = 'a'", "topic = 'a' and b = 1"),
        ("b >= 3", "b > 3"),
        ("b >= 3", "b = 3.5"),
        ("b > 2", "b >= 3 and topic = 'a'"),
        ("b in (1, 2, 3)", "b = 1 or b = 3"),
        ("b = 1 or b = 2 or b = 3", "b in (1, 3)"),
        ("b prefix 'Fl'", "b prefix 'Flood'"),
        ("b prefix 'Fl'", "b = 'Flood'"),
        ("b >= 'F' and b < 'G'", "b prefix 'Fl'"),
        ("b != 3", "b > 3"),
        ("not b = 3", "b != 3"),
        ("not (b < 3 or b > 5)", "b = 4"),
        ("true", "b = 1"),
        ("b = 1", "false"),
        ("b = 1", "c > 3 and c < 2"),
        ("topic prefix 'f'", "topic in ('fires', 'floods')"),
        ("b < 3 or b >= 3", "b = 7"),
        ("(b = 1 or c = 1) and topic = 'a'", "topic = 'a' and c = 1 and d = 1"),
    ],
)
def test_wide_filter_covers_narrow_one_only(wide: str, narrow: str) -> None:
    assert Filter.parse(wide).covers(Filter.parse(narrow))
    equal = {"b in (1, 2, 3)", "b = 1 or b = 2 or b = 3"}
    assert not Filter.parse(narrow).covers(Filter.parse(wide)) or wide in equal


@pytest.mark.parametrize(
    ("text", "topics"),
    [
        ("topic = 'a'", {"a"}),
        ("topic in ('a', 'b') and not topic = 'b'", {"a"}),
        ("topic = 'a' and b = 1 or topic = 'c'", {"a", "c"}),
        ("topic = 'a' or b = 1", None),
        ("topic prefix 'a'", None),
        ("b = 1", None),
        ("topic = 1", set()),
        ("topic = 'a' and topic = 'b'", set()),
        ("true", None),
        ("false", set()),
    ],
)
def test_filter_topics(text: str, topics: set[str] | None) -> None:
    assert Filter.parse(text).topics == topics


def test_filter_of_too_many_alternatives_is_covered_by_itself_only() -> None:
    pairs = [f"(a{number} = 1 or b{number} = 1)" for number in range(8)]
    many = Filter.parse(" and ".join(pairs))
    assert 2 ** len(pairs) > MOST_BOXES
    assert many.covers(many)
    assert not Filter.parse(pairs[0]).covers(many)
    assert many.covers(Filter.parse(" and ".join(f"a{number} = 1" for number in range(8))))
