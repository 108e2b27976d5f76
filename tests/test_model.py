"""Values of subscriptions: accepted and rejected ones, and their canonical text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsstand.errors import BadValues
from newsstand.model import ChannelDefinition, Parameter, canonical, parse_values

ALL = ChannelDefinition(
    "x",
    "",
    "emergencies",
    tuple(
        Parameter(name, type)
        for name, type in zip("sidb", ("string", "integer", "double", "boolean"), strict=True)
    ),
)


def test_values_parsed_by_name_or_order() -> None:
    assert parse_values(ALL, {"b": True, "d": 1, "i": -(2**63), "s": "'; DROP"}) == (
        "'; DROP",
        -(2**63),
        1.0,
        True,
    )
    assert parse_values(ALL, ["", 0, 0.5, False]) == ("", 0, 0.5, False)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("s", 1), ("s", None), ("s", "\ud800"), ("i", 2**63), ("i", 1.0), ("i", True), ("i", "1"),
        ("d", "abc"), ("d", math.nan), ("d", math.inf), ("d", True), ("d", 2**60), ("b", 1), ("b", "true"),
    ],
)  # fmt: skip
def test_value_rejected_when_type_differs(place: str, value: object) -> None:
    good: dict[str, object] = {"s": "", "i": 0, "d": 0.0, "b": False}
    with pytest.raises(BadValues, match=rf"channel 'x', parameter '{place}': .* is not an? \w+"):
        parse_values(ALL, {**good, place: value})  # type: ignore[dict-item]


def test_values_rejected_when_missing_or_superfluous() -> None:
    for given_values in ({}, {"s": "", "i": 0, "d": 0.0, "b": False, "z": 1}, [], ["", 0, 0.0]):
        with pytest.raises(BadValues, match="channel 'x'"):
            parse_values(ALL, given_values)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_equal_doubles_have_equal_text(number: float) -> None:
    one = ChannelDefinition("x", "", "emergencies", (Parameter("d", "double"),))
    assert canonical(parse_values(one, [number])) == canonical(parse_values(one, [number + 0.0]))
    if number == 0:
        assert canonical(parse_values(one, [number])) == "[0.0]"


def test_string_value_rejected_with_nul() -> None:
    with pytest.raises(BadValues, match="parameter 's': a string cannot contain NUL"):
        parse_values(ALL, {"s": "a\0b", "i": 0, "d": 0.0, "b": False})
