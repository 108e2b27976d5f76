"""`newsstand simulate` and `newsstand policies`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from newsstand.caching import POLICIES
from newsstand.caching.policy_file import PolicyFile
from newsstand.cli.options import Conf, Json, Master, Strict
from newsstand.cli.progress import progress, say

PolicyFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--policy-file",
        metavar="FILE",
        help="A Python file that registers policies of your own. Its code runs here and on the workers, with your "
        "rights: give only files that you trust.",
    ),
]


def simulate(
    trace: Annotated[Path, typer.Argument(help="A trace folder, an access log, or an oracleGeneral file.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="P ...",
            help="One or more policies; default all. `newsstand policies` lists them.",
        ),
    ] = None,
    capacity: Annotated[
        list[str] | None,
        typer.Option(
            "--capacity",
            metavar="F ...",
            help="Cache sizes as fractions of the bytes requested at a proxy; default 0.01 0.05 0.1.",
        ),
    ] = None,
    beta: Annotated[
        list[float] | None,
        typer.Option("--beta", metavar="B ...", help="One or more betas of GD*; default 2."),
    ] = None,
    policy_file: PolicyFiles = None,
    per_proxy: Annotated[bool, typer.Option("--per-proxy", help="Also tell each proxy's hits.")] = False,
    hourly: Annotated[bool, typer.Option("--hourly", help="Also tell every hour's counts.")] = False,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw hit ratio over capacity (.svg, .png or .pdf).")
    ] = None,
    source_format: Annotated[
        str, typer.Option("--format", help="auto, trace, access-log or oracle-general.")
    ] = "auto",
    strict: Strict = False,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Replay a trace under many policies, capacities and betas in one pass.

    Example: newsstand simulate my-trace --policy gdstar sg2 sr --capacity 0.01 0.05 --json
    """
    from newsstand.lab.simulate import plan
    from newsstand.lab.simulate import simulate as replay
    from newsstand.spark import open_session
    from newsstand.workload.sources import format_of, is_small, read_source

    if figure is not None:
        from newsstand.lab.figures import draw_capacities, require_drawable

        require_drawable(figure)
    files = [PolicyFile.read(path) for path in policy_file or ()]
    for file in files:
        file.load()
    names = list(POLICIES) if not policy or policy == ["all"] else list(dict.fromkeys(policy))
    capacities = list(dict.fromkeys(capacity or ["0.01", "0.05", "0.1"]))
    betas = list(dict.fromkeys(beta or [2.0]))
    wanted, job = plan(names, capacities, betas, files, per_proxy=per_proxy, hourly=hourly)
    source_format = format_of(trace, source_format)
    session = open_session(master, conf or (), "newsstand simulate", brief=is_small(trace))
    with session as spark, progress(spark, "replaying"):
        read = read_source(spark, trace, source_format, strict=strict)
        answers = replay(spark, read, wanted, job)
    for note in read.notes:
        say(f"note: {note}")
    if figure is not None:
        draw_capacities(answers, figure, title=str(trace))
    if as_json:
        print(json.dumps(answers))
    else:
        show(answers)


def show(answers: list[dict[str, object]]) -> None:
    """Print a table for people."""
    table = Table(box=None, pad_edge=False)
    for name in ("policy", "capacity", "beta", "hit ratio", "fetched", "pushed always", "pushed needed"):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for answer in answers:
        table.add_row(
            str(answer["policy"]),
            f"{answer['capacity']:g}",
            f"{answer['beta']:g}",
            f"{answer['hit_ratio']:.4f}",
            *(f"{answer[name]:,}" for name in ("fetched_pages", "pushed_pages_always", "pushed_pages_needed")),
        )
    Console().print(table)


def policies(policy_file: PolicyFiles = None, as_json: Json = False) -> None:
    """List the page policies by name.

    Example: newsstand policies
    """
    for path in policy_file or ():
        PolicyFile.read(path).load()
    if as_json:
        facts = [
            {"name": one.name, "title": one.title, "uses_push": one.uses_push, "offline": one.offline}
            for one in POLICIES.values()
        ]
        print(json.dumps(facts))
    else:
        for one in POLICIES.values():
            print(f"{one.name:12} {one.title}")
