"""`newsstand reproduce survival2011`: how long messages survive in caches, section 7."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from newsstand.cli.options import Conf, Json, Master, ReportFolder, made_folder
from newsstand.cli.progress import progress, say
from newsstand.cli.verdicts import tell
from newsstand.errors import BadOption

if TYPE_CHECKING:
    from newsstand.lab.survival2011 import Experiment


def survival2011(
    out: ReportFolder,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few points, up to four brokers, 10,000 messages a simulation.")
    ] = False,
    observations: Annotated[
        int | None,
        typer.Option(
            "--observations", min=100, metavar="N", help="Messages that a simulation watches; default 50,000."
        ),
    ] = None,
    most_states: Annotated[
        int | None,
        typer.Option(
            "--most-states",
            min=1,
            metavar="N",
            help="Compare models where the paper's chain has at most so many states; default all.",
        ),
    ] = None,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Modeling the Dynamics of Caching: Figs. 4-7, claims, and how far models are from simulation.

    Brokers, caches and clients are simulated, and models solved, a Spark task for each. What was stopped goes on
    where it was when it is started again with the same folder.

    Example: newsstand reproduce survival2011 --quick --out reproduced
    """
    from newsstand.lab.survival2011 import run_experiment
    from newsstand.lab.survival2011_report import write
    from newsstand.spark import open_session

    experiment = experiment_of(quick, observations, most_states)
    session = open_session(master, conf or (), "newsstand reproduce", brief=True)
    with made_folder(out), session as spark, progress(spark, "running"):
        rows = run_experiment(spark, experiment, out, say)
    tell(write(rows, experiment, command_of(quick, observations, most_states), out), as_json, width=24)


def experiment_of(quick: bool, observations: int | None = None, most_states: int | None = None) -> Experiment:
    """What is run."""
    from newsstand.lab.survival2011 import QUICK, Experiment

    usual = QUICK if quick else Experiment()
    grid = usual.grid if most_states is None else replace(usual.grid, most_states=most_states)
    if not grid.settings:
        raise BadOption(f"--most-states {most_states}: nothing is left to compare")
    return replace(usual, observations=observations or usual.observations, grid=grid)


def command_of(quick: bool, observations: int | None = None, most_states: int | None = None) -> str:
    """The command that runs it."""
    words = ["newsstand reproduce survival2011", *(["--quick"] if quick else [])]
    for name, value in (("observations", observations), ("most-states", most_states)):
        if value is not None:
            words.append(f"--{name} {value}")
    return " ".join(words)
