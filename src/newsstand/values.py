"""The values that subscriptions give for the parameters of their channel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from newsstand.errors import BadValues
from newsstand.model import Channel, Parameter, Scalar, Values


def parse_values(channel: Channel, given: Mapping[str, Scalar] | Sequence[Scalar]) -> Values:
    """The values of a subscription, by name or in the order of the parameters; BadValues tells what is wrong."""
    if isinstance(given, Mapping):
        names = [one.name for one in channel.parameters]
        for name in given:
            if name not in names:
                raise BadValues(
                    f"channel '{channel.name}': no parameter '{name}'; it has: {', '.join(names) or 'none'}"
                )
        for name in names:
            if name not in given:
                raise BadValues(f"channel '{channel.name}': parameter '{name}' is missing")
        given = [given[name] for name in names]
    elif isinstance(given, str) or len(given) != len(channel.parameters):
        wanted = len(channel.parameters)
        raise BadValues(f"channel '{channel.name}': it has {wanted} parameters, and so many values are needed")
    return tuple(_value(channel, one, value) for one, value in zip(channel.parameters, given, strict=True))


def _value(channel: Channel, parameter: Parameter, value: object) -> Scalar:
    kind = parameter.type
    if kind == "string" and isinstance(value, str) and "\0" not in value and _is_text(value):
        return value
    if kind == "boolean" and isinstance(value, bool):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if kind == "integer" and -(2**63) <= value < 2**63:
            return value
        if kind == "double" and abs(value) <= 2**53:
            return float(value)
    if kind == "double" and isinstance(value, float) and math.isfinite(value):
        return value + 0.0  # -0.0 is 0.0: equal values share one stream
    shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:80]}…"
    article = "an" if kind == "integer" else "a"
    raise BadValues(f"channel '{channel.name}', parameter '{parameter.name}': {shown} is not {article} {kind}")


def _is_text(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
