"""A plan carried out by the overlay itself: do requests travel as far as the planner's cost model says?

Brokers with the tables of section 4.1 exchange messages (Sourlas et al. 2011). Each broker asks once for each
topic that is asked for at it, and what that takes counts as often as its rate says: no chance, so no error.
"""

from __future__ import annotations

from fractions import Fraction
from operator import methodcaller

from newsstand.overlay.filters import Filter
from newsstand.overlay.network import Network
from newsstand.planning.problem import Plan, Problem


def carried_out(problem: Problem, plan: Plan) -> Network:
    """The brokers of a network when all storages have advertised what they keep."""
    network = Network.of(problem.topology)
    for storage in plan.storages:
        topics = [name for name in problem.topics if storage in plan.assignment[name]]
        network.act(storage, methodcaller("become_storage", topics))
    network.run()
    return network


def mean_hops_of_requests(problem: Problem, plan: Plan) -> Fraction:
    """Links that requests cross on average, each (broker, topic) weighted by its demand."""
    network = carried_out(problem, plan)
    crossed = asked = 0
    for topic, name in enumerate(problem.topics):
        if not plan.assignment[name]:
            continue
        for node, demand in enumerate(problem.demand[topic].tolist(), 1):
            if demand:
                crossed += demand * _hops(network, node, name)
                asked += demand
    return Fraction(crossed, asked)


def _hops(network: Network, node: int, topic: str) -> int:
    before = network.crossed_by("Request")
    network.request(node, "client", Filter.of_topic(topic))
    network.run()
    return network.crossed_by("Request") - before
