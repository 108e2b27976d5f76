"""A network with its storages, drawn."""

from __future__ import annotations

from pathlib import Path

import networkx as nx

from newsstand.errors import BadOption
from newsstand.lab.figures import COLOURS, panels, require_drawable, save
from newsstand.planning.problem import Plan, Problem

MOST_NODES = 300
"""Of larger networks nothing could be read."""


def require_small(problem: Problem, path: Path) -> None:
    """Refuse a figure that nobody could read, before anything is computed for it."""
    require_drawable(path)
    if problem.topology.nodes > MOST_NODES:
        raise BadOption(f"--figure {path}: only networks of up to {MOST_NODES} nodes are drawn")


def draw_plan(problem: Problem, plan: Plan, path: Path, title: str) -> None:
    """Nodes as large as their demand; storages in colour, with the topics that each keeps."""
    graph = nx.Graph(problem.topology.edges)
    graph.add_nodes_from(range(1, problem.topology.nodes + 1))
    places = nx.kamada_kawai_layout(graph) if len(graph) > 1 else {1: (0.0, 0.0)}
    figure, (axes,) = panels(1, width=7.4, height=5.6)
    axes.set_axis_off()
    axes.grid(visible=False)
    axes.margins(0.12)
    for a, b in problem.topology.edges:
        axes.plot(*zip(places[a], places[b], strict=True), color="#c0c0c0", lw=1, zorder=1)
    asked = problem.demand.sum(axis=0) / problem.demand.sum(axis=0).max()
    for node in sorted(graph):
        is_storage = node in plan.storages
        colour = COLOURS[1] if is_storage else COLOURS[0]
        x, y = places[node]
        axes.scatter(x, y, s=120 + 400 * asked[node - 1], color=colour, zorder=2)
        axes.annotate(str(node), places[node], ha="center", va="center", color="white", fontsize=7, zorder=3)
        kept = [name for name, keepers in plan.assignment.items() if node in keepers]
        if is_storage and kept:
            axes.annotate(
                ", ".join(kept) if len(kept) < 9 else f"{len(kept)} topics",
                places[node],
                xytext=(0, 14),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                zorder=3,
            )
    axes.set_title(title)
    save(figure, path, (path.suffix,))
