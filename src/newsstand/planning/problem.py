"""The problem of a storage planner, its file, plans and costs (Sourlas et al. 2011, Table 1 and eq. 1 to 3).

Demands are integers of a common `unit`, so that sums in any order have the same ties. Requests for a topic
without a storage are not answered, and count neither in traffic nor in hops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from newsstand.config.files import Json, JsonField, read_object
from newsstand.errors import BadInput, BadNetwork, BadOption
from newsstand.geo.backbone import LARGEST_NETWORK
from newsstand.overlay.topology import Topology

Ints = npt.NDArray[np.int64]
Hops = npt.NDArray[np.int16]

LARGEST = 2**62
"""The upper limit of sums of demands times hops."""


@dataclass(frozen=True)
class ReplicationLimits:
    """The least and the largest number of replicas of a topic."""

    least: int
    most: int


@dataclass(frozen=True, eq=False)
class Problem:
    """A network of N brokers, the demand for each topic at each broker, and constraints of storages.

    Nodes are numbered from 1 in `topology` and in plans, and from 0 in arrays.
    """

    topology: Topology
    topics: tuple[str, ...]
    """In the order of the file."""
    demand: Ints
    """r: one row a topic, one column a node, in `unit`s."""
    unit: Fraction
    """Requests per second that one unit of demand stands for."""
    replication: tuple[ReplicationLimits, ...]
    """For each topic."""
    capacity: tuple[int, ...]
    """SC: the number of topics that a storage at each node can keep."""
    storages: int | None = None
    """M; None for as few as needed."""
    publishing: Ints | None = None
    """The weight of publications from each node, in any unit; None if all are equal (section 5.2)."""

    @cached_property
    def hops(self) -> Hops:
        """D: the distance between any two nodes."""
        from newsstand.geo.backbone import hop_matrix

        return hop_matrix(self.topology)

    @cached_property
    def totals(self) -> Ints:
        """The demand for each topic."""
        totals: Ints = self.demand.sum(axis=1)
        return totals

    @cached_property
    def weights(self) -> tuple[Fraction, ...]:
        """w: each topic's share of all demand."""
        total = int(self.totals.sum())
        return tuple(Fraction(int(of_topic), total) for of_topic in self.totals)

    @cached_property
    def by_weight(self) -> tuple[int, ...]:
        """The indices of topics, heaviest first, equals in the order of the file."""
        return tuple(sorted(range(len(self.topics)), key=lambda topic: -int(self.totals[topic])))


@dataclass(frozen=True)
class Plan:
    """Which nodes are storages, and which of them keep each topic; both in the order chosen."""

    storages: tuple[int, ...]
    assignment: Mapping[str, tuple[int, ...]]
    possible: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """PS: how often each node was picked for a topic, over all assumed servers; empty if not computed."""
    short: Mapping[str, int] = field(default_factory=dict)
    """The number of missing replicas of topics for which there is not enough room."""


def to_whole_units(demand: Sequence[Sequence[float]], diameter: int) -> tuple[Ints, Fraction]:
    """Return demands as integers of a unit: exact for decimals of moderate length, else to 15 digits."""
    exact = [[Fraction(repr(one)) if isinstance(one, float) else Fraction(one) for one in row] for row in demand]
    total = sum((one for row in exact for one in row), Fraction(0))
    if total <= 0:
        raise BadOption("all requests are 0; at least one must be above", demand=None)
    denominator = math.lcm(*(one.denominator for row in exact for one in row))
    scale = Fraction(denominator, math.gcd(*(int(one * denominator) for row in exact for one in row)))
    if total * scale * max(1, diameter) >= LARGEST:
        scale = LARGEST / (2 * total * max(1, diameter))
        scale = Fraction(int(scale)) if scale >= 1 else scale
    rows = [[round(one * scale) for one in row] for row in exact]
    return np.array(rows, np.int64), 1 / scale


Assignment = Mapping[str, Sequence[int]]
"""For each topic the nodes that keep it, numbered from 1."""


@dataclass(frozen=True)
class PlanCost:
    """The cost of a plan."""

    traffic: float
    """ONT: requests times hops per second, of all topics."""
    mean_hops: float
    """Between a request and the storage that answers it."""


def nearest_hops(problem: Problem, nodes: Sequence[int]) -> Hops:
    """Return the hops from each node to the nearest of some nodes, at least one, numbered from 1."""
    nearest: Hops = problem.hops[np.asarray(nodes) - 1].min(axis=0)
    return nearest


def topic_traffic(problem: Problem, topic: int, nodes: Sequence[int]) -> int:
    """C_t, eq. 2: a topic's demand times hops if these nodes keep it, in units of demand."""
    return int(problem.demand[topic] @ nearest_hops(problem, nodes).astype(np.int64)) if len(nodes) else 0


def traffic(problem: Problem, assignment: Assignment) -> int:
    """C, eq. 3, in units of demand."""
    return sum(topic_traffic(problem, topic, assignment[name]) for topic, name in enumerate(problem.topics))


def mean_hops(problem: Problem, assignment: Assignment) -> float:
    """Return the mean hops from a request to the storage that answers it; 0 if no request is answered."""
    answered = sum(int(problem.totals[topic]) for topic, name in enumerate(problem.topics) if assignment[name])
    return float(Fraction(traffic(problem, assignment), answered)) if answered else 0.0


def evaluate(problem: Problem, plan: Plan) -> PlanCost:
    """Return the cost of a plan."""
    return PlanCost(
        traffic=float(traffic(problem, plan.assignment) * problem.unit),
        mean_hops=mean_hops(problem, plan.assignment),
    )


REQUIRED = ("nodes", "edges", "topics", "replication", "storage_capacity")
OPTIONAL = ("storages", "publishing", "names")


def read_network(path: Path, instead: Mapping[str, Json] | None = None) -> Problem:
    """Return the problem in a network file; `instead` replaces some of its fields."""
    return problem_of(str(path), read_object(path), instead)


def problem_of(
    place: str,
    found: Mapping[str, Json],
    instead: Mapping[str, Json] | None = None,
    label: Callable[[str], str] = str,
) -> Problem:
    """Return the problem that the fields of a network file describe; `place` names the file in errors.

    `label` returns the names in errors of the fields that `instead` replaces.
    """
    for name in found:
        if name not in (*REQUIRED, *OPTIONAL):
            raise BadNetwork(f"{place}: unknown field '{name}'; there are {', '.join((*REQUIRED, *OPTIONAL))}")
    fields = {name: JsonField(f"{place}: {name}", value) for name, value in found.items()}
    for name, value in (instead or {}).items():
        fields[name] = JsonField(label(name), value)
    for name in REQUIRED:
        if name not in fields:
            raise BadNetwork(f"{place}: field '{name}' is missing")
    return _problem(place, fields)


def node_numbers(place: str, found: Mapping[str, Json]) -> dict[str, int]:
    """Return the node of each broker by its name, which is the number of the node if the network has no names."""
    if "nodes" not in found:
        raise BadNetwork(f"{place}: field 'nodes' is missing")
    nodes = JsonField(f"{place}: nodes", found["nodes"]).whole(1, LARGEST_NETWORK)
    names = _names(JsonField(f"{place}: names", found["names"]) if "names" in found else None, nodes)
    return {name: node for node, name in enumerate(names, 1)}


def _problem(place: str, fields: Mapping[str, JsonField]) -> Problem:
    nodes = fields["nodes"].whole(1, LARGEST_NETWORK)
    _names(fields.get("names"), nodes)
    edges = [_edge(edge) for edge in fields["edges"].items()]
    topics = fields["topics"].members()
    if not topics:
        fields["topics"].reject("is empty: there must be at least one topic")
    amounts = [[one.amount() for one in row.items(nodes)] for row in topics.values()]
    capacity = _capacity(fields["storage_capacity"], nodes)
    storages = _storages(fields.get("storages"), capacity)
    replication = _replication(fields["replication"], tuple(topics), storages, sum(map(bool, capacity)))
    try:
        demand, unit = to_whole_units(amounts, nodes - 1)
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
        _ = problem.hops  # rejects a network that is not connected
    except BadNetwork:
        raise
    except BadInput as error:
        raise BadNetwork(f"{place}: {error}") from error
    return problem


def _edge(edge: JsonField) -> tuple[int, int]:
    a, b = (end.whole(1) for end in edge.items(2))
    return a, b


def _capacity(field: JsonField, nodes: int) -> tuple[int, ...]:
    if not isinstance(field.value, list):
        return (field.whole(1),) * nodes
    capacity = tuple(one.whole(0) for one in field.items(nodes))
    if not any(capacity):
        field.reject("is 0 everywhere: at least one node must have room")
    return capacity


def _storages(field: JsonField | None, capacity: tuple[int, ...]) -> int | None:
    if field is None or field.value is None:
        return None
    number = field.whole(1)
    if number > len(capacity):
        field.reject(f"is {number}, and there are {len(capacity)} nodes")
    if number > sum(map(bool, capacity)):
        field.reject(f"is {number}, and {sum(map(bool, capacity))} nodes have a storage_capacity above 0")
    return number


def _replication(
    field: JsonField, topics: tuple[str, ...], storages: int | None, useful: int
) -> tuple[ReplicationLimits, ...]:
    if not isinstance(field.value, dict):
        return (_limits(field, storages, useful),) * len(topics)
    members = field.members()
    for name in members:
        if name not in topics:
            field.reject(f"names '{name}', which is not among the topics")
    for name in topics:
        if name not in members:
            field.reject(f"has no number of replicas for '{name}'")
    return tuple(_limits(members[name], storages, useful) for name in topics)


def _limits(field: JsonField, storages: int | None, useful: int) -> ReplicationLimits:
    """Return the number of replicas of a topic: one number, or the least and the most."""
    if isinstance(field.value, list):
        least, most = (one.whole(1) for one in field.items(2))
    else:
        least = most = field.whole(1)
    if least > most:
        field.reject(f"is at least {least} and at most {most}")
    if least > (storages or useful):
        places = f"{storages} storages" if storages else f"{useful} nodes that can be one"
        field.reject(f"is {least}, and there are {places}")
    return ReplicationLimits(least, most)


def _publishing(field: JsonField | None, nodes: int) -> Ints | None:
    if field is None or field.value is None:
        return None
    amounts = [one.amount() for one in field.items(nodes)]
    if not any(amounts):
        field.reject("is 0 everywhere: at least one broker must publish")
    weights, _ = to_whole_units([amounts], nodes)
    return np.ascontiguousarray(weights[0])


def _names(field: JsonField | None, nodes: int) -> tuple[str, ...]:
    if field is None or field.value is None:
        return tuple(map(str, range(1, nodes + 1)))
    names = tuple(one.text() for one in field.items(nodes))
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        field.reject(f"has '{twice}' twice")
    return names
