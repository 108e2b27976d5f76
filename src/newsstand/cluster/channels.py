"""Channels as an app declares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from newsstand.cluster.records import is_name
from newsstand.cluster.units import duration_s, whole_number
from newsstand.errors import BadApp
from newsstand.model import CLAIMS, SCALARS, Channel, Parameter, Retention

PARAMETER_TYPES = tuple(type for type in SCALARS if type != "timestamp")
Number = TypeVar("Number", int, float)
_OPTIONS = ("query", "new", "parameters", "period", "delivery", "retention", "bind")
_DELIVERIES = {"pull": False, "push": True}


def read_channel(name: str, table: Mapping[str, object], new: str, defaults: Mapping[str, object]) -> Channel:
    """A channel as an app declares it, but for what its query means: `body.parse_channel` looks at that.

    `{query = "SELECT …", parameters = {kind = "string"}, period = "10s"}`; without `period` it is continuous.
    """
    place = f"channels.{name}"
    if not is_name(name):
        raise BadApp(f"{place}: a name is a lower-case letter, then at most 62 of a-z, 0-9 and _")
    for option in table:
        if option not in _OPTIONS:
            raise BadApp(f"{place}.{option}: unknown option; one of {', '.join(_OPTIONS)}")
    given = {**defaults, **table}
    parameters = _parameters(place, table.get("parameters", {}))
    return Channel(
        name,
        query_of(name, table),
        new,
        parameters,
        _at(f"{place}.period", duration_s, given["period"]) if "period" in given else None,
        _one_of(f"{place}.delivery", given.get("delivery", "pull"), _DELIVERIES),
        _retention(f"{place}.retention", given.get("retention", {})),
        _bind(f"{place}.bind", table.get("bind", {}), {one.name: one.type for one in parameters}),
    )


def require_defaults(defaults: Mapping[str, object]) -> None:
    """Raise BadApp if a channel could not have these defaults."""
    _one_of("defaults.delivery", defaults.get("delivery", "pull"), _DELIVERIES)
    _retention("defaults.retention", defaults.get("retention", {}))


def query_of(name: str, table: Mapping[str, object]) -> str:
    """The text of a channel's query."""
    query = table.get("query")
    if not isinstance(query, str) or not query.strip():
        raise BadApp(f"channels.{name}.query: give one SELECT over datasets")
    return query


def channel_table(channel: Channel) -> dict[str, object]:
    """What `body.parse_channel` makes the channel of."""
    table: dict[str, object] = {"query": channel.query, "new": channel.new}
    if channel.parameters:
        table["parameters"] = {one.name: one.type for one in channel.parameters}
    if channel.period_s is not None:
        table["period"] = channel.period_s
    table["delivery"] = "push" if channel.push else "pull"
    kept = {"age": channel.retention.age_s, "count": channel.retention.count}
    table["retention"] = {what: limit for what, limit in kept.items() if limit is not None}
    if channel.bind:
        table["bind"] = dict(channel.bind)
    return table


def _parameters(place: str, declared: object) -> tuple[Parameter, ...]:
    if not isinstance(declared, Mapping):
        raise BadApp(f'{place}.parameters: must be a table such as {{kind = "string"}}')
    for name, kind in declared.items():
        if not is_name(name):
            raise BadApp(
                f"{place}.parameters.{name}: a name is a lower-case letter, then at most 62 of a-z, 0-9 and _"
            )
        if kind not in PARAMETER_TYPES:
            raise BadApp(f"{place}.parameters.{name}: unknown type {kind!r}; one of {', '.join(PARAMETER_TYPES)}")
    return tuple(Parameter(name, kind) for name, kind in declared.items())


def _bind(place: str, declared: object, parameters: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if not isinstance(declared, Mapping):
        raise BadApp(f'{place}: must be a table such as {{user = "subscriber"}}')
    for name, claim in declared.items():
        if name not in parameters:
            raise BadApp(f"{place}.{name}: no such parameter; the channel has: {', '.join(parameters) or 'none'}")
        if claim not in CLAIMS:
            raise BadApp(f"{place}.{name}: unknown claim {claim!r}; one of {', '.join(CLAIMS)}")
        if parameters[name] != "string":
            raise BadApp(f"{place}.{name}: the parameter is of type {parameters[name]}; a claim is a string")
    return tuple(sorted(declared.items()))


def _retention(place: str, declared: object) -> Retention:
    if not isinstance(declared, Mapping) or not declared.keys() <= {"age", "count"}:
        raise BadApp(f'{place}: must be a table such as {{age = "7d", count = 1000}}')
    age = _at(f"{place}.age", duration_s, declared["age"]) if "age" in declared else None
    count = None
    if "count" in declared:
        count = _at(f"{place}.count", lambda value: whole_number(value, 1, 2**53), declared["count"])
    return Retention(age, count)


def _one_of(place: str, value: object, known: Mapping[str, bool]) -> bool:
    if not isinstance(value, str) or value not in known:
        raise BadApp(f"{place}: {value!r} is none of {', '.join(known)}")
    return known[value]


def _at(place: str, read: Callable[[object], Number], value: object) -> Number:
    try:
        return read(value)
    except BadApp as error:
        raise BadApp(f"{place}: {error}") from None
