"""`newsstand reproduce bad2018`: section V simulated, section VI played on a live platform."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Option

from newsstand.cli.lab.reproduce import ReportOptions, print_verdicts
from newsstand.cli.options import made_folder
from newsstand.cli.terminal import say
from newsstand.errors import BadOption

if TYPE_CHECKING:
    from newsstand.lab.papers.bad2018.experiment import ResultCacheExperiment
    from newsstand.platform.processes import Platform
    from newsstand.scenarios.emergencies.activity import ActivityTrace
    from newsstand.scenarios.emergencies.app import Scheme
    from newsstand.scenarios.emergencies.playback import Row

SIZES = (10, 30, 100)
LINK_MS = 500.0
"""Round trip between broker and data cluster (Table II)."""

FAR = (("nc", 0), ("lsc", 100_000))
"""Who is played with that delay, too."""

SHORT_S = 300.0
"""A shorter cap on TTL's times to live, a window, which is played with the same size as well."""

RUNS, QUICK_RUNS, QUICK_SCALE = 10, 3, 10


def bad2018(
    report: ReportOptions,
    part: Annotated[
        Literal["simulation", "prototype", "all"], "Section V simulated, section VI on a live platform, or both."
    ] = "simulation",
    quick: Annotated[bool, "Simulation: scale 10, three sizes and runs. Prototype: one size, 10 minutes."] = False,
    runs: Annotated[
        int | None, Option(min=1, metavar="N", help="Simulation: runs, a seed each; default 10.")
    ] = None,
    cache_mb: Annotated[
        list[int] | None,
        Option(min=1, metavar="MB", help="Simulation: a cache size; may be repeated. Default 50 … 500."),
    ] = None,
    scale: Annotated[
        int | None,
        Option(
            min=1, max=100, help="Simulation: subscribers, subscriptions and caches are divided by it; default 1."
        ),
    ] = None,
    hours: Annotated[float, Option(min=0.25, max=1000, help="Simulation: how long a run is.")] = 6.0,
    keep: Annotated[bool, "Simulation: leave the workloads in DIR/workloads."] = False,
    size: Annotated[
        list[int] | None,
        Option(min=1, metavar="KB", help="Prototype: a cache size; may be repeated. Default 10, 30, 100."),
    ] = None,
    minutes: Annotated[float, Option(min=0.5, help="Prototype: of the trace; the paper's is an hour.")] = 36,
    factor: Annotated[float, Option(min=0.1, max=100, help="Prototype: how much faster it is played.")] = 4.0,
    subscribers: Annotated[int, Option(min=2, max=5000, help="Prototype: at each broker.")] = 400,
    seed: Annotated[int, "Prototype: another seed, another city."] = 2018,
    apart: Annotated[
        bool, "Prototype: one size after the other, for a machine that cannot carry all at once."
    ] = False,
) -> None:
    """Edge Caching for Enriched Notifications in Big Active Data: Figs. 3-5 simulated, Fig. 7 played live, claims.

    The simulation replays Table II's workload under every policy and cache size. For the prototype a cluster and
    a broker for each policy and size run at the same time, each with subscribers of its own who all do the same.
    What was stopped goes on where it was when it is started again with the same folder.

    Example: newsstand reproduce bad2018 --quick --out reproduced
    """
    from newsstand.lab.papers.bad2018.experiment import run_experiment
    from newsstand.lab.papers.bad2018.prototype import write_prototype
    from newsstand.lab.papers.bad2018.report import write_simulation

    if quick and (size or minutes != 36):
        raise BadOption("--quick: remove --size and --minutes; it is one size and ten minutes")
    if quick and (runs or cache_mb or scale):
        raise BadOption("--quick: remove --runs, --cache-mb and --scale; it sets all three")
    if part != "simulation":
        if quick:
            minutes, size = 10, [100]
        prototype = Prototype(minutes, min(5.0, minutes / 3), factor, subscribers, seed)
        plays = plays_of(sorted({1000 * one for one in size or SIZES}), apart=apart)
        with made_folder(report.out):
            rows = run_prototype(prototype, plays, report.out / "runs", report.words)
            if rows is None:
                raise typer.Exit(130)
            written = write_prototype(rows, prototype.setting, report.command, report.out)
    if part == "prototype":
        print_verdicts(written, report.as_json)
    else:
        experiment = experiment_of(quick, runs, cache_mb, scale, hours)
        report.reproduce(experiment, partial(run_experiment, keep=keep), write_simulation)


def experiment_of(
    quick: bool, runs: int | None, cache_mb: list[int] | None, scale: int | None, hours: float
) -> ResultCacheExperiment:
    """Return the experiment of these options."""
    from newsstand.lab.papers.bad2018.experiment import FEW_SIZES, ResultCacheExperiment
    from newsstand.lab.papers.bad2018.experiment import SIZES as ALL_SIZES

    seeds = tuple(range(1, (QUICK_RUNS if quick else runs or RUNS) + 1))
    sizes = FEW_SIZES if quick else tuple(sorted(set(cache_mb))) if cache_mb else ALL_SIZES
    divided_by = QUICK_SCALE if quick else scale or 1
    return ResultCacheExperiment(seeds, sizes, divided_by, hours=hours)


def plays_of(sizes: list[int], *, apart: bool) -> list[list[Scheme]]:
    """Return the brokers that play at the same time: all, or those of one size."""
    from newsstand.lab.papers.bad2018.prototype import POLICIES
    from newsstand.scenarios.emergencies.app import Scheme

    plays = []
    for budget in sizes:
        schemes = [Scheme("nc", 0), *(Scheme(policy, budget) for policy in POLICIES)]
        if budget == FAR[-1][1]:
            schemes += [Scheme(policy, size, LINK_MS) for policy, size in FAR]
            schemes.append(Scheme("ttl", budget, cap_s=SHORT_S))
        plays.append(schemes)
    return plays if apart else [list(dict.fromkeys(scheme for schemes in plays for scheme in schemes))]


@dataclass(frozen=True)
class Prototype:
    """The parameters that all runs of a prototype share."""

    minutes: float
    """Of the trace."""
    warm_up_minutes: float
    factor: float
    subscribers: int
    seed: int

    @property
    def setting(self) -> str:
        """The parameters, for the report."""
        return (
            f"{self.subscribers} subscribers at each broker, {self.minutes:g} minutes of the trace of seed "
            f"{self.seed} played {self.factor:g} times as fast, the first {self.warm_up_minutes:g} minutes not "
            "counted."
        )

    @property
    def digest(self) -> str:
        """Differs for results of another experiment or of another version."""
        from importlib import metadata

        from newsstand.lab.reporting.run_cache import digest

        return digest(f"{metadata.version('newsstand')} {self}")


def run_prototype(
    prototype: Prototype, plays: Sequence[Sequence[Scheme]], folder: Path, spark: Sequence[str] = ()
) -> list[Row] | None:
    """Play what was not played yet, the brokers of one play together; return None if stopped.

    The rows of each play are stored in `folder`. NC plays in every one: it is what the others are compared with.
    """
    import asyncio

    from newsstand.scenarios.emergencies.activity import make_trace
    from newsstand.scenarios.emergencies.app import Scheme

    folder.mkdir(parents=True, exist_ok=True)
    trace = make_trace(prototype.seed, prototype.minutes * 60, prototype.subscribers)
    none = Scheme("nc", 0)
    for number, schemes in enumerate(plays, 1):
        found = {row["broker"] for row in _stored_rows(prototype, folder)}
        left = [scheme for scheme in schemes if scheme.name not in found]
        if not left:
            say(f"play {number} of {len(plays)}: done before")
            continue
        todo = left if none in left else [none, *left]
        lasts = prototype.minutes / prototype.factor
        say(
            f"play {number} of {len(plays)}: {len(todo)} brokers, {trace.frontends} subscriptions at each, "
            f"merged into {trace.backends}; {lasts:.0f} minutes as soon as all has started"
        )
        played = asyncio.run(play(prototype, todo, trace, folder / "platform.log", spark))
        if played is None:
            return None
        _store_rows(prototype, folder, todo, played)
    wanted = {none.name, *(scheme.name for schemes in plays for scheme in schemes)}
    return [row for row in _stored_rows(prototype, folder) if row["broker"] in wanted]


def _store_rows(prototype: Prototype, folder: Path, schemes: Sequence[Scheme], played: list[Row]) -> None:
    from newsstand.lab.reporting.run_cache import digest, write_json

    by_name = {row["broker"]: row for row in played}
    rows = [{**asdict(scheme), **by_name[scheme.name]} for scheme in schemes]
    names = digest(" ".join(scheme.name for scheme in schemes))
    write_json(folder / f"prototype-{prototype.digest}-{names}.json", rows)


def _stored_rows(prototype: Prototype, folder: Path) -> list[Row]:
    """Return the rows of all plays of the experiment so far; `play` identifies the play."""
    return [
        {"play": file.stem.rpartition("-")[2], **row}
        for file in sorted(folder.glob(f"prototype-{prototype.digest}-*.json"))
        for row in json.loads(file.read_text())
    ]


async def play(
    prototype: Prototype, schemes: Sequence[Scheme], trace: ActivityTrace, log: Path, spark: Sequence[str]
) -> list[Row] | None:
    """Play a trace against the brokers of all schemes at the same time; return their rows, or None if stopped."""
    from newsstand.cluster.app_folder import read_app
    from newsstand.platform.experiment import access_token, enrol, slow_link
    from newsstand.platform.lifecycle import StartupInterrupted, running
    from newsstand.platform.processes import Ports, plan
    from newsstand.platform.tables import read_tables
    from newsstand.scenarios.emergencies import playback
    from newsstand.scenarios.emergencies.app import write_experiment

    now_s = int(time.time())
    people = {
        name: [(channel, list(values.values())) for channel, values in held]
        for name, held in trace.initial.items()
    }
    async with AsyncExitStack() as stack:
        app = Path(stack.enter_context(TemporaryDirectory(prefix="newsstand-prototype-"))) / "emergencies"
        write_experiment(app, schemes, factor=prototype.factor)
        platform = plan(read_app(app), read_tables(app), ports=Ports(0), spark=spark, with_coordinator=False)
        for scheme in schemes:
            enrol(platform.folder.broker(scheme.name), people, now_s)
            if scheme.delay_ms:
                link = slow_link(platform.cluster.url, scheme.delay_ms / 1000)
                platform = _behind(platform, scheme.name, await stack.enter_async_context(link))
        try:
            supervisor = await stack.enter_async_context(running(platform, say, log))
            assert platform.admin_token is not None
            tokens = {name: access_token(name, platform.folder.secret, now_s) for name in people}
            say(f"load {os.getloadavg()[0]:.1f} at the start")
            played = await playback.play(
                trace,
                playback.PlaybackSpeed(prototype.factor, prototype.warm_up_minutes * 60),
                [
                    playback.PlaybackBroker(name, broker.url, tokens)
                    for name, broker in zip(platform.names, platform.brokers, strict=True)
                ],
                cluster=platform.cluster.url,
                cluster_token=platform.admin_token.read_text().strip(),
                admin=platform.folder.operator_token("prototype"),
                stopping=supervisor.stopping,
                tell=say,
            )
            say(f"load {os.getloadavg()[0]:.1f} at the end")
            return played
        except StartupInterrupted:
            return None


def _behind(platform: Platform, broker: str, link: str) -> Platform:
    """Return the platform with a broker that reaches the cluster by a link."""
    file = platform.folder.broker(broker) / "broker.toml"
    text = platform.settings[file].replace(platform.cluster.url, link)
    return replace(platform, settings={**platform.settings, file: text})
