"""`newsstand reproduce push1995`: what servers save that push popular pages to where they are wanted."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from newsstand.cli.options import Conf, Json, Master, ReportFolder, made_folder
from newsstand.cli.progress import progress, say
from newsstand.cli.verdicts import tell
from newsstand.errors import BadOption


def push1995(
    out: ReportFolder,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few points, three seeds, traces of one day with 100,000 requests.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many seeds to average over; default 5.")
    ] = None,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Geographical push-caching: every parameter, client caches, three kinds of traces, claims.

    Each simulation is a Spark task. What was stopped goes on where it was when it is started again with the same
    folder.

    Example: newsstand reproduce push1995 --quick --out reproduced
    """
    from newsstand.lab.push1995 import QUICK, Experiment, run_experiment
    from newsstand.lab.push1995_report import write
    from newsstand.spark import open_session

    if quick and seeds is not None:
        raise BadOption("--quick and --seeds exclude each other: quick is three seeds")
    experiment = QUICK if quick else Experiment()
    if seeds is not None:
        experiment = replace(experiment, seeds=tuple(range(1, seeds + 1)))
    session = open_session(master, conf or (), "newsstand reproduce", brief=True)
    with made_folder(out), session as spark, progress(spark, "running"):
        measured = run_experiment(spark, experiment, out, say)
    options = " --quick" if quick else f" --seeds {seeds}" if seeds is not None else ""
    tell(write(measured, f"newsstand reproduce push1995{options}", out), as_json, width=26)
