"""Strategies of small networks."""

from __future__ import annotations

from itertools import combinations

from hypothesis import strategies as st

from newsstand.overlay.topology import Topology


@st.composite
def trees(draw: st.DrawFn, most: int = 9) -> Topology:
    nodes = draw(st.integers(1, most))
    return Topology(nodes, [(draw(st.integers(1, node - 1)), node) for node in range(2, nodes + 1)])


@st.composite
def networks(draw: st.DrawFn, most: int = 6) -> Topology:
    tree = draw(trees(most))
    pairs = list(combinations(range(1, tree.nodes + 1), 2))
    more = draw(st.lists(st.sampled_from(pairs), max_size=2)) if pairs else []
    return Topology(tree.nodes, [*tree.edges, *more])
