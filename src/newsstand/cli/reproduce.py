"""`newsstand reproduce`: a paper's figures, tables and claims."""

from __future__ import annotations

from typing import Annotated

import typer

from newsstand.cli.options import Conf, Json, Master, ReportFolder, made_folder
from newsstand.cli.progress import progress, say
from newsstand.cli.reproduce_bad2018 import bad2018
from newsstand.cli.reproduce_push1995 import push1995
from newsstand.cli.reproduce_storage2011 import storage2011
from newsstand.cli.reproduce_survival2011 import survival2011
from newsstand.cli.verdicts import tell
from newsstand.errors import BadOption

app = typer.Typer(help="Reproduce a paper: figures, tables, claims with verdicts.", no_args_is_help=True)
app.command("bad2018")(bad2018)
app.command("push1995")(push1995)
app.command("storage2011")(storage2011)
app.command("survival2011")(survival2011)


@app.command("chen2003")
def chen2003(
    out: ReportFolder,
    quick: Annotated[bool, typer.Option("--quick", help="One seed instead of five.")] = False,
    seeds: Annotated[int | None, typer.Option(help="How many seeds to average over; default 5.")] = None,
    requests: Annotated[int, typer.Option(help="Requests a trace.")] = 195_000,
    proxies: Annotated[int, typer.Option(help="Proxies a trace.")] = 100,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Content Distribution for Publish/Subscribe Services: Figs. 3-7, Table 2, beta sweep, claims.

    A run that was stopped goes on where it was when it is started again with the same folder.

    Example: newsstand reproduce chen2003 --quick --out reproduced
    """
    from newsstand.lab.chen2003 import Experiment, run_experiment
    from newsstand.lab.chen2003_report import write
    from newsstand.spark import open_session

    if quick and seeds is not None:
        raise BadOption("--quick and --seeds exclude each other: quick is one seed")
    seeds = 1 if quick else 5 if seeds is None else seeds
    for name, value in (("seeds", seeds), ("requests", requests), ("proxies", proxies)):
        if value < 1:
            raise BadOption(f"--{name} {value} is less than 1")
    experiment = Experiment(tuple(range(1, seeds + 1)), requests, proxies)
    brief = requests < 5_000_000
    session = open_session(master, conf or (), "newsstand reproduce", brief=brief)
    with made_folder(out), session as spark, progress(spark, "running"):
        results = run_experiment(spark, experiment, out / "runs", say)
    written = write(results, experiment, out)
    tell(written, as_json, width=32)
