"""`newsstand reproduce`: the figures, tables and claims of a paper."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from newsstand.cli.options import Commands, Json, SparkOptions, made_folder
from newsstand.cli.terminal import say
from newsstand.errors import BadOption

VERDICTS = {True: "holds", False: "FAILS", None: "unsure"}


def _named_folder(text: str) -> Path:
    if not text:
        raise BadOption("--out: empty; name a folder, such as . for this one")
    return Path(text)


@dataclass(frozen=True, kw_only=True)
class ReportOptions(SparkOptions):
    """Where the report of a reproduction goes, and how it is computed."""

    context: typer.Context
    out: Annotated[Path, Option(metavar="DIR", parser=_named_folder, help="Where tables, figures and report go.")]
    as_json: Json = False

    @property
    def command(self) -> str:
        """The command, with the options of its experiment that were given."""
        words = [self.context.command_path]
        for parameter in self.context.command.params:
            name, option = parameter.name or "", parameter.opts[0]
            source = self.context.get_parameter_source(name)
            if source is not None and source.name == "COMMANDLINE" and name not in self.__dataclass_fields__:
                value = self.context.params[name]
                words += [_written(option, one) for one in (value if isinstance(value, list) else [value])]
        return " ".join(words)

    def reproduce(
        self,
        experiment: Any,
        run_experiment: Callable[..., Any],
        write: Callable[[Any, Any, str, Path], dict[str, object]],
        *,
        brief: bool = True,
    ) -> None:
        """Run an experiment on Spark, write its report, and print the verdicts."""
        with made_folder(self.out), self.session("reproduce", "running", brief=brief) as spark:
            results = run_experiment(spark, experiment, self.out, say)
        print_verdicts(write(results, experiment, self.command, self.out), self.as_json)


def print_verdicts(written: dict[str, object], as_json: bool) -> None:
    """Print the claims of a report with their verdicts."""
    if as_json:
        print(json.dumps(written))
        return
    claims: list[dict[str, Any]] = written["claims"]  # type: ignore[assignment]
    verdicts = [VERDICTS[claim["holds"]] for claim in claims]
    width = max(len(claim["id"]) for claim in claims)
    for claim, verdict in zip(claims, verdicts, strict=True):
        print(f"{verdict:6} {claim['id']:{width}} {claim['measured']}")
    unsure = f", {verdicts.count('unsure')} are unsure" if "unsure" in verdicts else ""
    print(f"{verdicts.count('holds')} of {len(claims)} claims hold{unsure}; see {written['report']}")


def _written(option: str, value: object) -> str:
    return option if value is True else f"{option} {value:g}" if isinstance(value, float) else f"{option} {value}"


app = Commands(help="Reproduce a paper: figures, tables, claims with verdicts.")


@app.command("push1995")
def push1995(
    report: ReportOptions,
    quick: Annotated[bool, "Few points, three seeds, traces of one day with 100,000 requests."] = False,
    seeds: Annotated[
        int | None, Option(min=1, metavar="N", help="How many seeds to average over; default 5.")
    ] = None,
) -> None:
    """Geographical push-caching: every parameter, client caches, three kinds of traces, claims.

    Each simulation is a Spark task. A stopped run continues when it is started again with the same folder.

    Example: newsstand reproduce push1995 --quick --out reproduced
    """
    from newsstand.lab.papers.push1995.experiment import QUICK, PushExperiment, run_experiment
    from newsstand.lab.papers.push1995.report import write

    if quick and seeds is not None:
        raise BadOption("--quick and --seeds exclude each other: give one; quick is three seeds")
    experiment = QUICK if quick else PushExperiment()
    if seeds is not None:
        experiment = replace(experiment, seeds=tuple(range(1, seeds + 1)))
    report.reproduce(experiment, run_experiment, write)


@app.command("storage2011")
def storage2011(
    report: ReportOptions,
    quick: Annotated[bool, "Three runs, every other point, no branch and bound."] = False,
    runs: Annotated[int | None, Option(min=1, metavar="N", help="Runs, a random tree each; default 20.")] = None,
    tree: Annotated[str, "KIND", "recursive-tree, preferential-tree or random-tree."] = "recursive-tree",
    exact: Annotated[
        int | None, Option(min=0, metavar="N", help="With how many runs the best plan is looked for; default 2.")
    ] = None,
    time_limit: Annotated[
        float, Option(metavar="SECONDS", min=1, help="When to stop looking for the best plan of a network.")
    ] = 60.0,
) -> None:
    """Storage Planning and Replication Assignment: Figs. 4-10, claims, and how far from the best plans.

    The methods of the paper and ours plan for random trees of brokers, a Spark task for each setting. A stopped
    run continues when it is started again with the same folder.

    Example: newsstand reproduce storage2011 --quick --out reproduced
    """
    from newsstand.lab.papers.storage2011.experiment import QUICK, TREES, PlanningExperiment, run_experiment
    from newsstand.lab.papers.storage2011.report import write

    if quick and (runs is not None or exact is not None):
        raise BadOption("--quick: remove --runs and --exact; it sets both")
    if tree not in TREES:
        raise BadOption(f"--tree {tree}: must be one of {', '.join(TREES)}")
    usual = QUICK if quick else PlanningExperiment()
    experiment = replace(
        usual,
        seeds=usual.seeds if runs is None else tuple(range(1, runs + 1)),
        tree=tree,
        seeds_of_exact=usual.seeds_of_exact if exact is None else exact,
        exact_limit_s=time_limit,
    )
    report.reproduce(experiment, run_experiment, write)


@app.command("survival2011")
def survival2011(
    report: ReportOptions,
    quick: Annotated[bool, "Few points, up to four brokers, 10,000 messages a simulation."] = False,
    observations: Annotated[
        int | None, Option(min=100, metavar="N", help="Messages that a simulation watches; default 50,000.")
    ] = None,
    most_states: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Compare models where the chain of the paper has at most N states; default all.",
        ),
    ] = None,
) -> None:
    """Modeling the Dynamics of Caching: Figs. 4-7, claims, and how far models are from simulation.

    Brokers, caches and clients are simulated, and models solved, a Spark task for each. A stopped run continues
    when it is started again with the same folder.

    Example: newsstand reproduce survival2011 --quick --out reproduced
    """
    from newsstand.lab.papers.survival2011.experiment import QUICK, SurvivalExperiment, run_experiment
    from newsstand.lab.papers.survival2011.report import write

    usual = QUICK if quick else SurvivalExperiment()
    grid = usual.grid if most_states is None else replace(usual.grid, most_states=most_states)
    if not grid.settings:
        raise BadOption(f"--most-states {most_states}: leaves no model to compare; give a larger number")
    experiment = replace(usual, observations=observations or usual.observations, grid=grid)
    report.reproduce(experiment, run_experiment, write)


@app.command("chen2003")
def chen2003(
    report: ReportOptions,
    quick: Annotated[bool, "One seed instead of five."] = False,
    seeds: Annotated[int | None, "How many seeds to average over; default 5."] = None,
    requests: Annotated[int, "Requests a trace."] = 195_000,
    proxies: Annotated[int, "Proxies a trace."] = 100,
) -> None:
    """Content Distribution for Publish/Subscribe Services: Figs. 3-7, Table 2, beta sweep, claims.

    A stopped run continues when it is started again with the same folder.

    Example: newsstand reproduce chen2003 --quick --out reproduced
    """
    from newsstand.lab.papers.chen2003.experiment import NewsExperiment, run_experiment
    from newsstand.lab.papers.chen2003.report import write

    if quick and seeds is not None:
        raise BadOption("--quick and --seeds exclude each other: give one; quick is one seed")
    seeds = 1 if quick else 5 if seeds is None else seeds
    for name, value in (("seeds", seeds), ("requests", requests), ("proxies", proxies)):
        if value < 1:
            raise BadOption(f"--{name} {value}: must be at least 1")
    experiment = NewsExperiment(tuple(range(1, seeds + 1)), requests, proxies)
    report.reproduce(experiment, run_experiment, write, brief=requests < 5_000_000)
