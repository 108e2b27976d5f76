"""`newsstand reproduce storage2011`: planning and assignment of storages, section 6."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from newsstand.cli.options import Conf, Json, Master, ReportFolder, made_folder
from newsstand.cli.progress import progress, say
from newsstand.cli.verdicts import tell
from newsstand.errors import BadOption

if TYPE_CHECKING:
    from newsstand.lab.storage2011 import Experiment

RUNS, QUICK_RUNS, EXACT_RUNS = 20, 3, 2


def storage2011(
    out: ReportFolder,
    quick: Annotated[
        bool, typer.Option("--quick", help="Three runs, every other point, no branch and bound.")
    ] = False,
    runs: Annotated[
        int | None, typer.Option("--runs", min=1, metavar="N", help="Runs, a random tree each; default 20.")
    ] = None,
    tree: Annotated[
        str,
        typer.Option("--tree", metavar="KIND", help="recursive-tree, preferential-tree or random-tree."),
    ] = "recursive-tree",
    exact: Annotated[
        int | None,
        typer.Option(
            "--exact", min=0, metavar="N", help="With how many runs the best plan is looked for; default 2."
        ),
    ] = None,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="When to stop looking for the best plan of a network.")
    ] = 60.0,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Storage Planning and Replication Assignment: Figs. 4-10, claims, and how far from the best plans.

    Random trees of brokers are planned for by the paper's methods and by ours, a Spark task for each setting. What
    was stopped goes on where it was when it is started again with the same folder.

    Example: newsstand reproduce storage2011 --quick --out reproduced
    """
    from newsstand.lab.storage2011 import run_experiment
    from newsstand.lab.storage2011_report import write
    from newsstand.spark import open_session

    if quick and (runs is not None or exact is not None):
        raise BadOption("--quick excludes --runs and --exact: it sets both")
    experiment = experiment_of(quick, runs, tree, exact, time_limit)
    session = open_session(master, conf or (), "newsstand reproduce", brief=True)
    with made_folder(out), session as spark, progress(spark, "running"):
        rows = run_experiment(spark, experiment, out, say)
    tell(write(rows, experiment, command_of(experiment, quick), out), as_json, width=24)


def experiment_of(quick: bool, runs: int | None, tree: str, exact: int | None, time_limit: float) -> Experiment:
    """What is run."""
    from newsstand.lab.storage2011 import CURVES, TREES, Experiment, thinned

    if tree not in TREES:
        raise BadOption(f"--tree {tree}: there is no such kind; there are {', '.join(TREES)}")
    return Experiment(
        tuple(range(1, (QUICK_RUNS if quick else runs or RUNS) + 1)),
        thinned(CURVES) if quick else CURVES,
        tree,
        seeds_of_exact=0 if quick else EXACT_RUNS if exact is None else exact,
        exact_limit_s=time_limit,
    )


def command_of(experiment: Experiment, quick: bool) -> str:
    """The command that runs it."""
    from newsstand.lab.storage2011 import TREES

    words = ["newsstand reproduce storage2011"]
    if experiment.tree != next(iter(TREES)):
        words.append(f"--tree {experiment.tree}")
    if quick:
        return " ".join([*words, "--quick"])
    if len(experiment.seeds) != RUNS:
        words.append(f"--runs {len(experiment.seeds)}")
    if experiment.seeds_of_exact != EXACT_RUNS:
        words.append(f"--exact {experiment.seeds_of_exact}")
    if experiment.exact_limit_s != 60:
        words.append(f"--time-limit {experiment.exact_limit_s:g}")
    return " ".join(words)
