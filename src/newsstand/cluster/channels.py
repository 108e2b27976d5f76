"""Channels as tables of TOML or JSON, and the values of subscriptions.

[channels.nearby]
query = "SELECT e.id FROM emergencies e WHERE e.kind = :kind AND distance_km(e.lat, e.lon, :lat, :lon) < 5"
new = "emergencies"                  # may be left out where it is clear
parameters = { kind = "string", lat = "double", lon = "double" }
period = "10s"                       # left out: continuous
delivery = "pull"                    # or "push"
retention = { age = "7d", count = 1000 }
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence

from newsstand.cluster.units import duration_s, whole_number
from newsstand.errors import BadApp, BadValues
from newsstand.model import SCALARS, Channel, Parameter, Retention, Scalar, Values

PARAMETER_TYPES = tuple(type for type in SCALARS if type != "timestamp")
"""What a parameter can be."""

_NAME = re.compile(r"[a-z][a-z0-9_]*(?:-[a-z0-9_]+)*")
_PARAMETER = re.compile(r"[a-z][a-z0-9_]*")
_KEYS = ("query", "new", "parameters", "period", "delivery", "retention")


def channel_table(channel: Channel) -> dict[str, object]:
    """A channel as the table that `parse_channel` reads."""
    table: dict[str, object] = {"query": channel.query, "new": channel.new}
    if channel.parameters:
        table["parameters"] = {parameter.name: parameter.type for parameter in channel.parameters}
    if channel.period_s is not None:
        table["period"] = channel.period_s
    table["delivery"] = "push" if channel.push else "pull"
    kept: dict[str, object] = {}
    if channel.retention.age_s is not None:
        kept["age"] = channel.retention.age_s
    if channel.retention.count is not None:
        kept["count"] = channel.retention.count
    table["retention"] = kept
    return table


def read_channel(name: str, table: Mapping[str, object], new: str, defaults: Mapping[str, object]) -> Channel:
    """A channel out of its table, all but its query checked; BadApp names the place."""
    place = f"channels.{name}"
    if not _NAME.fullmatch(name) or len(name) > 63:
        raise BadApp(f"{place}: a name is made of a-z, 0-9, _ and - inside, begins with a letter, at most 63 long")
    for key in table:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"one of {', '.join(_KEYS)}"
            raise BadApp(f"{place}.{key}: unknown key; {hint}")
    whole = {**defaults, **table}
    period = whole.get("period")
    return Channel(
        name,
        query_of(name, table),
        new,
        _parameters(place, table.get("parameters", {})),
        None if period is None else _measured(f"{place}.period", period),
        _pushes(f"{place}.delivery", whole.get("delivery", "pull")),
        _retention(f"{place}.retention", whole.get("retention", {})),
    )


def query_of(name: str, table: Mapping[str, object]) -> str:
    """The text of a channel's query."""
    query = table.get("query")
    if not isinstance(query, str) or not query.strip():
        raise BadApp(f"channels.{name}.query: must be the text of one SELECT")
    return query


def parse_values(channel: Channel, given: Mapping[str, object] | Sequence[object]) -> Values:
    """The values of a subscription, by name or in order, typed as the channel's parameters are."""
    names = [parameter.name for parameter in channel.parameters]
    wanted = ", ".join(names) or "none"
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise BadValues(f"channel '{channel.name}': no parameter '{name}'; parameters: {wanted}")
        for name in names:
            if name not in given:
                raise BadValues(f"channel '{channel.name}', parameter '{name}': no value is given")
        ordered = [given[name] for name in names]
    elif isinstance(given, Sequence) and not isinstance(given, str | bytes):
        ordered = list(given)
        if len(ordered) != len(names):
            raise BadValues(
                f"channel '{channel.name}': {len(ordered)} values for {len(names)} parameters ({wanted})"
            )
    else:
        raise BadValues(f"channel '{channel.name}': values are an object by name or an array in order")
    return tuple(
        _value(channel, parameter, one) for parameter, one in zip(channel.parameters, ordered, strict=True)
    )


def _value(channel: Channel, parameter: Parameter, given: object) -> Scalar:
    value: Scalar | None = None
    if parameter.type == "string" and isinstance(given, str):
        # Lone halves of a pair cannot be written as UTF-8, so nothing that is stored can equal them.
        value = given if given.isascii() or given.encode("utf-8", "ignore").decode() == given else None
    elif parameter.type == "boolean" and isinstance(given, bool):
        value = given
    elif parameter.type == "integer" and isinstance(given, int) and not isinstance(given, bool):
        value = given if -(2**63) <= given < 2**63 else None
    elif parameter.type == "double" and isinstance(given, int | float) and not isinstance(given, bool):
        try:
            # Adding zero makes one of the two zeros: they are equal, so their streams must be.
            value = float(given) + 0.0
        except OverflowError:
            value = None
        if value is not None and not math.isfinite(value):
            value = None
    if value is None:
        shown = repr(given) if len(repr(given)) <= 60 else repr(given)[:57] + "…"
        article = "an" if parameter.type[0] in "aeiou" else "a"
        place = f"channel '{channel.name}', parameter '{parameter.name}'"
        raise BadValues(f"{place}: {shown} is not {article} {parameter.type}{_range(parameter.type)}")
    return value


def _range(type: str) -> str:
    return {"integer": " of 64 bits", "double": "", "string": "", "boolean": ""}[type]


def _parameters(place: str, table: object) -> tuple[Parameter, ...]:
    if not isinstance(table, Mapping):
        raise BadApp(f"{place}.parameters: must be a table of names and types")
    parameters = []
    for name, type in table.items():
        if not isinstance(name, str) or not _PARAMETER.fullmatch(name) or len(name) > 63:
            raise BadApp(f"{place}.parameters.{name}: a name is made of a-z, 0-9 and _, and begins with a letter")
        if type not in PARAMETER_TYPES:
            raise BadApp(f"{place}.parameters.{name}: unknown type {type!r}; one of {', '.join(PARAMETER_TYPES)}")
        parameters.append(Parameter(name, str(type)))
    return tuple(parameters)


def _pushes(place: str, delivery: object) -> bool:
    if delivery not in ("pull", "push"):
        raise BadApp(f"{place}: must be 'pull' or 'push', not {delivery!r}")
    return delivery == "push"


def _retention(place: str, table: object) -> Retention:
    if not isinstance(table, Mapping):
        raise BadApp(f"{place}: must be a table with age and count")
    for key in table:
        if key not in ("age", "count"):
            raise BadApp(f"{place}.{key}: unknown key; one of age, count")
    age, count = table.get("age"), table.get("count")
    kept: int | None = None
    if count is not None:
        try:
            kept = whole_number(count, 1, 2**40)
        except BadApp as error:
            raise BadApp(f"{place}.count: {error}") from error
    return Retention(None if age is None else _measured(f"{place}.age", age), kept)


def _measured(place: str, value: object) -> float:
    try:
        return float(duration_s(value))
    except BadApp as error:
        raise BadApp(f"{place}: {error}") from error
