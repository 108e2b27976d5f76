"""What `newsstand reproduce storage2011` leaves in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from newsstand.lab import storage2011_beyond
from newsstand.lab.report import Listed, Section, Shown, write_sections
from newsstand.lab.storage2011 import TREES, Experiment
from newsstand.lab.storage2011_claims import claims
from newsstand.lab.storage2011_figures import draw, hops_table, reassignment_table, tables, trees_table
from newsstand.lab.storage2011_measured import Measured
from newsstand.lab.storage2011_plans import Row

BARS = (
    "Means over the runs; bars: 95 % intervals. relaxed and exact were run with few seeds: shown is swap's mean "
    "and how far they are from swap within those."
)
CAPTIONS = {
    "fig4": ("Figure 4: the number of brokers", BARS),
    "fig5": ("Figure 5: the storage capacity", BARS),
    "fig6": ("Figure 6: the least number of replicas", BARS),
    "fig7": ("Figure 7: popularity", BARS),
    "fig8": ("Figure 8: locality, and the storages that grd_opt installs", BARS),
    "fig9": ("Figure 9: popularity has changed since storages were planned", "Means; bars: 95 % intervals."),
    "fig10": ("Figure 10: locality has changed since storages were planned", "Means; bars: 95 % intervals."),
}


def write(rows: Sequence[Row], experiment: Experiment, command: str, out: Path) -> dict[str, object]:
    """Write tables, figures and the report; the result for programs."""
    measured = Measured(rows, experiment)
    drawn = draw(measured, out / "figures")
    of_paper = Section(
        "Section 6",
        lead(experiment),
        claims(measured),
        [Shown(*CAPTIONS[name], file) for name, file in drawn.items()],
        [
            Listed("Mean hops, Figs. 4 to 8", hops_table(measured)),
            Listed("Mean hops and what is spared, Figs. 9 and 10", reassignment_table(measured)),
            Listed("Other kinds of trees", trees_table(measured)),
        ],
    )
    beyond = Section(
        "Beyond the paper",
        LEAD_BEYOND.format(runs=min(experiment.seeds_of_relaxed, len(experiment.seeds))),
        storage2011_beyond.claims(measured),
        [],
        [Listed("Above what no plan can pass", storage2011_beyond.table(measured))],
    )
    return write_sections(
        out,
        [of_paper, beyond],
        title="Storage Planning and Replication Assignment, reproduced",
        lead="Sourlas, Flegkas, Paschos, Katsaros and Tassiulas (2011): which brokers become storages, and which "
        "topics each of them keeps.",
        command=command,
        tables=tables(measured),
        figures=drawn,
    )


LEAD_BEYOND = (
    "The bound is that of the linear program, or of branch and bound where that was run: no plan within M and SC "
    "has fewer hops. It was computed with {runs} seeds. grd_opt's optimum is the best that each topic could have "
    "by itself, by dynamic programming, with all seeds."
)


def lead(experiment: Experiment) -> str:
    """What was run, and how section 6 was read."""
    runs = len(experiment.seeds)
    alone = (
        " One run has no intervals, so of most claims it cannot be told whether they hold." if runs == 1 else ""
    )
    return (
        f"{runs} {'random tree' if runs == 1 else 'random trees'} of 100 brokers unless said otherwise "
        f"({TREES[experiment.tree]}), 10 topics, SC = 5. Where the paper is silent: popularity and locality add "
        "up to 1 over the topics; where M is given, all room is shared out by weight; where it is not, there are "
        "as many storages as hold all replicas. All methods keep topics equally often. They are compared seed by "
        "seed, with 95 % intervals; a number fails if at any point the interval lies wholly outside of it."
        f"{alone}"
    )
