"""Reading the network file: brokers, links, demand, and what storages there may be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from newsstand.errors import BadInput, BadNetwork
from newsstand.overlay.topology import Topology
from newsstand.planning.distances import LARGEST_NETWORK
from newsstand.planning.json_file import Field, Json, read_object
from newsstand.planning.problem import Ints, Limits, Problem, whole

REQUIRED = ("nodes", "edges", "topics", "replication", "storage_capacity")
OPTIONAL = ("storages", "publishing", "names")


def read_network(path: Path, instead: Mapping[str, Json] | None = None) -> Problem:
    """The problem in a network file; options may say something `instead` of some of its fields."""
    return problem_of(str(path), read_object(path), instead)


def problem_of(place: str, found: Mapping[str, Json], instead: Mapping[str, Json] | None = None) -> Problem:
    """The problem that the fields of a network file are, found in some place."""
    for name in found:
        if name not in (*REQUIRED, *OPTIONAL):
            raise BadNetwork(f"{place}: unknown field '{name}'; there are {', '.join((*REQUIRED, *OPTIONAL))}")
    fields = {name: Field(f"{place}: {name}", value) for name, value in found.items()}
    for name, value in (instead or {}).items():
        fields[name] = Field("--" + name.replace("_", "-"), value)
    for name in REQUIRED:
        if name not in fields:
            raise BadNetwork(f"{place}: field '{name}' is missing")
    return _problem(place, fields)


def names_of(place: str, found: Mapping[str, Json]) -> dict[str, int]:
    """What the brokers of a network are called, and their numbers; without names they are called by these."""
    if "nodes" not in found:
        raise BadNetwork(f"{place}: field 'nodes' is missing")
    nodes = Field(f"{place}: nodes", found["nodes"]).whole(1, LARGEST_NETWORK)
    names = _names(Field(f"{place}: names", found["names"]) if "names" in found else None, nodes)
    return {name: node for node, name in enumerate(names, 1)}


def _problem(place: str, fields: Mapping[str, Field]) -> Problem:
    nodes = fields["nodes"].whole(1, LARGEST_NETWORK)
    _names(fields.get("names"), nodes)
    edges = [_edge(edge) for edge in fields["edges"].items()]
    topics = fields["topics"].members()
    if not topics:
        fields["topics"].refuse("is empty: there is nothing to keep")
    amounts = [[one.amount() for one in row.items(nodes)] for row in topics.values()]
    capacity = _capacity(fields["storage_capacity"], nodes)
    storages = _storages(fields.get("storages"), capacity)
    replication = _replication(fields["replication"], tuple(topics), storages, sum(map(bool, capacity)))
    try:
        demand, unit = whole(amounts, nodes - 1)
        problem = Problem(
            Topology(nodes, edges),
            tuple(topics),
            demand,
            unit,
            replication,
            capacity,
            storages,
            _publishing(fields.get("publishing"), nodes),
        )
        _ = problem.hops  # refuses a network that is not connected
    except BadNetwork:
        raise
    except BadInput as error:
        raise BadNetwork(f"{place}: {error}") from error
    return problem


def _edge(edge: Field) -> tuple[int, int]:
    a, b = (end.whole(1) for end in edge.items(2))
    return a, b


def _capacity(field: Field, nodes: int) -> tuple[int, ...]:
    if not isinstance(field.value, list):
        return (field.whole(1),) * nodes
    capacity = tuple(one.whole(0) for one in field.items(nodes))
    if not any(capacity):
        field.refuse("is 0 everywhere: nothing can be kept")
    return capacity


def _storages(field: Field | None, capacity: tuple[int, ...]) -> int | None:
    if field is None or field.value is None:
        return None
    number = field.whole(1)
    if number > len(capacity):
        field.refuse(f"is {number}, and there are {len(capacity)} nodes")
    if number > sum(map(bool, capacity)):
        field.refuse(f"is {number}, and {sum(map(bool, capacity))} nodes have a storage_capacity above 0")
    return number


def _replication(field: Field, topics: tuple[str, ...], storages: int | None, useful: int) -> tuple[Limits, ...]:
    if not isinstance(field.value, dict):
        return (_limits(field, storages, useful),) * len(topics)
    members = field.members()
    for name in members:
        if name not in topics:
            field.refuse(f"names '{name}', which is not among the topics")
    for name in topics:
        if name not in members:
            field.refuse(f"does not say how often '{name}' is to be kept")
    return tuple(_limits(members[name], storages, useful) for name in topics)


def _limits(field: Field, storages: int | None, useful: int) -> Limits:
    """Times that a topic is kept: one number, or the least and the most."""
    if isinstance(field.value, list):
        least, most = (one.whole(1) for one in field.items(2))
    else:
        least = most = field.whole(1)
    if least > most:
        field.refuse(f"is at least {least} and at most {most}")
    if least > (storages or useful):
        places = f"{storages} storages" if storages else f"{useful} nodes that can be one"
        field.refuse(f"is {least}, and there are {places}")
    return Limits(least, most)


def _publishing(field: Field | None, nodes: int) -> Ints | None:
    if field is None or field.value is None:
        return None
    amounts = [one.amount() for one in field.items(nodes)]
    if not any(amounts):
        field.refuse("is 0 everywhere: nobody publishes")
    weights, _ = whole([amounts], nodes)
    return np.ascontiguousarray(weights[0])


def _names(field: Field | None, nodes: int) -> tuple[str, ...]:
    if field is None or field.value is None:
        return tuple(map(str, range(1, nodes + 1)))
    names = tuple(one.text() for one in field.items(nodes))
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        field.refuse(f"has '{twice}' twice")
    return names
