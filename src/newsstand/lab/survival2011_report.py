"""What `newsstand reproduce survival2011` leaves in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from newsstand.lab import survival2011_beyond
from newsstand.lab.report import Listed, Section, Shown, write_sections
from newsstand.lab.survival2011 import Experiment
from newsstand.lab.survival2011_claims import claims
from newsstand.lab.survival2011_figures import draw
from newsstand.lab.survival2011_measured import Measured
from newsstand.lab.survival2011_tables import classes_table, models_table, policies_table, tables
from newsstand.lab.survival2011_tasks import Row

BARS = "Bars: 95 % intervals, mostly smaller than the markers."
CAPTIONS = {
    "fig4": (
        "Figure 4: one broker, k = 15",
        "Mean and quartiles of survival times, and by how much the two models differ.",
    ),
    "fig5": ("Figure 5: several brokers, sel-sub-prt", f"Simulation, models and Eq. 1. {BARS}"),
    "fig6-loss": ("Figure 6: messages that no broker caches", BARS),
    "fig6": ("Figure 6: four policies", f"Lines: simulation; dashed: our model. {BARS}"),
    "fig7": ("Figure 7: popular and unpopular messages", f"Three ways to set the levels. {BARS}"),
    "errors": (
        "How far models are from simulation",
        "In percent; red: too long, blue: too short. Rows are n and k, columns ρ_c and λ_b.",
    ),
}
BEYOND = ("errors",)


def write(rows: Sequence[Row], experiment: Experiment, command: str, out: Path) -> dict[str, object]:
    """Write tables, figures and the report; the result for programs."""
    measured = Measured(rows, experiment)
    drawn = draw(measured, out / "figures")
    shown = {name: Shown(*CAPTIONS[name], file) for name, file in drawn.items()}
    of_paper = Section(
        "Section 7",
        lead(experiment),
        claims(measured),
        [one for name, one in shown.items() if name not in BEYOND],
        [
            Listed("Several brokers, Fig. 5", models_table(measured)),
            Listed("Policies, Fig. 6", policies_table(measured)),
            Listed("Popular and unpopular messages, Fig. 7", classes_table(measured)),
        ],
    )
    beyond = Section(
        "Beyond the paper",
        f"Both models of several brokers at {len(experiment.grid.settings)} points: every combination of n, k, "
        "ρ_c and λ_b below, λ_c = 0.1.",
        survival2011_beyond.claims(measured),
        [shown[name] for name in BEYOND],
        [Listed("Where models are farthest off", survival2011_beyond.worst_table(measured))],
    )
    return write_sections(
        out,
        [of_paper, beyond],
        title="Modeling the Dynamics of Caching in Content-Based Publish/Subscribe, reproduced",
        lead="Sourlas, Paschos, Mannersalo, Flegkas and Tassiulas (2011): how long messages survive in the caches "
        "of brokers.",
        command=command,
        tables=tables(measured),
        figures=drawn,
    )


def lead(experiment: Experiment) -> str:
    """What was run, how section 7 was read, and how verdicts come about."""
    alone = (
        " One replication has no intervals, so most claims are not judged." if experiment.replications == 1 else ""
    )
    return (
        f"Every simulation watches {experiment.observations:,} messages in {experiment.replications} "
        "replications. Where the paper is silent: n = 3, k = 10, λ_c = 0.1, λ_b = 1, ρ_c = 2 in Figs. 5 to 7, but "
        "for what is varied; in Fig. 7 half of the messages are popular, clients leave at the same rate in both "
        "classes, and the mean ρ_c of the two stays 2 (two other readings are shown beside it, and not judged "
        "by). Models are the paper's with its misprints mended. Settings are compared replication by "
        "replication, with 95 % intervals (Student's t). That something is more at every point holds if it is at "
        "nine tenths of the points or more, by all of the interval; it fails if the opposite is so at more "
        "than a tenth, and else is undecided. A number that is said of all points fails if at any of them the "
        f"interval lies wholly outside of it. Where the paper says no number, the one taken stands with the "
        f"claim.{alone}"
    )
