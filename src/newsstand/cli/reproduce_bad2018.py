"""`newsstand reproduce bad2018`: section V simulated, section VI on a live platform."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from newsstand.cli.options import Conf, Json, Master, ReportFolder, made_folder
from newsstand.cli.progress import progress, say
from newsstand.cli.verdicts import tell
from newsstand.errors import BadOption

if TYPE_CHECKING:
    from newsstand.lab.bad2018_simulation import Experiment
    from newsstand.scenarios.emergencies.experiment_app import Scheme

SIZES = (10, 30, 100)
LINK_MS = 500.0
"""Round trip between broker and data cluster (Table II)."""

FAR = (("nc", 0), ("lsc", 100_000))
"""Who is played with that delay, too."""

SHORT_S = 300.0
"""A shorter cap on TTL's times to live, a window, which is played with the same size as well."""

RUNS, QUICK_RUNS, QUICK_SCALE = 10, 3, 10


class Part(StrEnum):
    """A part of the paper."""

    simulation = "simulation"
    prototype = "prototype"
    all = "all"


def bad2018(
    out: ReportFolder,
    part: Annotated[
        Part, typer.Option("--part", help="Section V simulated, section VI on a live platform, or both.")
    ] = Part.simulation,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Simulation: scale 10, three sizes and runs. Prototype: one size, 10 minutes."
        ),
    ] = False,
    runs: Annotated[
        int | None, typer.Option("--runs", min=1, metavar="N", help="Simulation: runs, a seed each; default 10.")
    ] = None,
    cache_mb: Annotated[
        list[int] | None,
        typer.Option(
            "--cache-mb", min=1, metavar="MB", help="Simulation: a cache size; may be repeated. Default 50 … 500."
        ),
    ] = None,
    scale: Annotated[
        int | None,
        typer.Option(
            min=1, max=100, help="Simulation: subscribers, subscriptions and caches are divided by it; default 1."
        ),
    ] = None,
    hours: Annotated[float, typer.Option(min=0.25, max=1000, help="Simulation: how long a run is.")] = 6.0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Simulation: leave the workloads in DIR/workloads.")
    ] = False,
    size: Annotated[
        list[int] | None,
        typer.Option(
            "--size", min=1, metavar="KB", help="Prototype: a cache size; may be repeated. Default 10, 30, 100."
        ),
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.5, help="Prototype: of the trace; the paper's is an hour.")] = 36,
    factor: Annotated[
        float, typer.Option(min=0.1, max=100, help="Prototype: how much faster it is played.")
    ] = 4.0,
    subscribers: Annotated[int, typer.Option(min=2, max=5000, help="Prototype: at each broker.")] = 400,
    seed: Annotated[int, typer.Option(help="Prototype: another seed, another city.")] = 2018,
    apart: Annotated[
        bool,
        typer.Option(
            "--apart", help="Prototype: one size after the other, for a machine that cannot carry all at once."
        ),
    ] = False,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Edge Caching for Enriched Notifications in Big Active Data: Figs. 3-5 simulated, Fig. 7 played live, claims.

    The simulation replays Table II's workload under every policy and cache size. For the prototype a cluster and
    a broker for each policy and size run at the same time, each with subscribers of its own who all do the same.
    What was stopped goes on where it was when it is started again with the same folder.

    Example: newsstand reproduce bad2018 --quick --out reproduced
    """
    if quick and (size or minutes != 36):
        raise BadOption("--quick excludes --size and --minutes: it is one size and ten minutes")
    if quick and (runs or cache_mb or scale):
        raise BadOption("--quick excludes --runs, --cache-mb and --scale: it sets all three")
    if part != Part.simulation:
        if quick:
            minutes, size = 10, [100]
        spark = [
            *(("--master", master) if master else ()),
            *(word for one in conf or () for word in ("--conf", one)),
        ]
        plays = plays_of(sorted({1000 * one for one in size or SIZES}), apart=apart)
        command = play_command_of(size, minutes, factor, subscribers, seed)
        with made_folder(out):
            written = _play(out, minutes, factor, subscribers, seed, plays, spark, command)
    if part != Part.prototype:
        experiment = experiment_of(quick, runs, cache_mb, scale, hours)
        written = _simulate(out, experiment, keep, master, conf)
    tell(written, as_json, width=28)


def experiment_of(
    quick: bool, runs: int | None, cache_mb: list[int] | None, scale: int | None, hours: float
) -> Experiment:
    """What is simulated."""
    from newsstand.lab.bad2018_simulation import FEW_SIZES, Experiment
    from newsstand.lab.bad2018_simulation import SIZES as ALL_SIZES

    seeds = tuple(range(1, (QUICK_RUNS if quick else runs or RUNS) + 1))
    sizes = FEW_SIZES if quick else tuple(sorted(set(cache_mb))) if cache_mb else ALL_SIZES
    divided_by = QUICK_SCALE if quick else scale or 1
    return Experiment(seeds, sizes, divided_by, hours=hours)


def _simulate(
    out: Path, experiment: Experiment, keep: bool, master: str | None, conf: list[str] | None
) -> dict[str, object]:
    from newsstand.lab.bad2018_simulation import run_experiment
    from newsstand.lab.bad2018_simulation_report import write
    from newsstand.spark import open_session

    session = open_session(master, conf or (), "newsstand reproduce", brief=True)
    with made_folder(out), session as spark, progress(spark, "running"):
        results = run_experiment(spark, experiment, out, say, keep=keep)
    return write(results, experiment, command_of(experiment), out)


def command_of(experiment: Experiment) -> str:
    """The command that simulates it."""
    usual = experiment_of(False, None, None, None, 6.0)
    words = ["newsstand reproduce bad2018"]
    if len(experiment.seeds) != len(usual.seeds):
        words.append(f"--runs {len(experiment.seeds)}")
    if experiment.sizes != usual.sizes:
        words += [f"--cache-mb {size}" for size in experiment.sizes]
    if experiment.scale != usual.scale:
        words.append(f"--scale {experiment.scale}")
    if experiment.hours != usual.hours:
        words.append(f"--hours {experiment.hours:g}")
    return " ".join(words)


def _play(
    out: Path,
    minutes: float,
    factor: float,
    subscribers: int,
    seed: int,
    plays: list[list[Scheme]],
    spark: list[str],
    command: str,
) -> dict[str, object]:
    from newsstand.cli.prototype import Prototype, run_prototype
    from newsstand.lab.bad2018_prototype_report import write

    warm_up = min(5.0, minutes / 3)
    prototype = Prototype(minutes, warm_up, factor, subscribers, seed)
    rows = run_prototype(prototype, plays, out / "runs", spark)
    if rows is None:
        raise typer.Exit(130)
    setting = (
        f"{subscribers} subscribers at each broker, {minutes:g} minutes of the trace of seed {seed} played "
        f"{factor:g} times as fast, the first {warm_up:g} minutes not counted."
    )
    return write(rows, setting, command, out)


def play_command_of(sizes: list[int] | None, minutes: float, factor: float, subscribers: int, seed: int) -> str:
    """The command that plays it."""
    words = ["newsstand reproduce bad2018 --part prototype", *(f"--size {size}" for size in sizes or ())]
    for name, value, usual in (
        ("minutes", minutes, 36),
        ("factor", factor, 4),
        ("subscribers", subscribers, 400),
        ("seed", seed, 2018),
    ):
        if value != usual:
            words.append(f"--{name} {value:g}")
    return " ".join(words)


def plays_of(sizes: list[int], *, apart: bool) -> list[list[Scheme]]:
    """Which brokers play at the same time: all, or those of one size."""
    from newsstand.lab.bad2018_prototype import POLICIES
    from newsstand.scenarios.emergencies.experiment_app import Scheme

    plays = []
    for budget in sizes:
        schemes = [Scheme("nc", 0), *(Scheme(policy, budget) for policy in POLICIES)]
        if budget == FAR[-1][1]:
            schemes += [Scheme(policy, size, LINK_MS) for policy, size in FAR]
            schemes.append(Scheme("ttl", budget, cap_s=SHORT_S))
        plays.append(schemes)
    return plays if apart else [list(dict.fromkeys(scheme for schemes in plays for scheme in schemes))]
