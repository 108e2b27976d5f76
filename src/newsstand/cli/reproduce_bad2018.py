"""`newsstand reproduce bad2018`: the part that is played on a live platform."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from newsstand.cli.options import Conf, Json, Master, make_folder
from newsstand.errors import BadOption

if TYPE_CHECKING:
    from newsstand.scenarios.emergencies.experiment_app import Scheme

SIZES = (10, 30, 100)
LINK_MS = 500.0
"""Round trip between broker and data cluster (Table II)."""

FAR = (("nc", 0), ("lsc", 100_000))
"""Who is played with that delay, too."""

SHORT_S = 300.0
"""A shorter cap on TTL's times to live, a window, which is played with the same size as well."""


class Part(StrEnum):
    """A part of the paper."""

    prototype = "prototype"


def bad2018(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where tables, figures and report go.")],
    part: Annotated[Part, typer.Option("--part", help="Section VI on a live platform.")] = Part.prototype,
    quick: Annotated[bool, typer.Option("--quick", help="One size, ten minutes of the trace.")] = False,
    size: Annotated[
        list[int] | None,
        typer.Option("--size", min=1, metavar="KB", help="A cache size; may be repeated. Default 10, 30, 100."),
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.5, help="Of the trace; the paper's is an hour.")] = 36,
    factor: Annotated[float, typer.Option(min=0.1, max=100, help="How much faster it is played.")] = 4.0,
    subscribers: Annotated[int, typer.Option(min=2, max=5000, help="At each broker.")] = 400,
    seed: Annotated[int, typer.Option(help="Another seed, another city.")] = 2018,
    apart: Annotated[
        bool,
        typer.Option("--apart", help="One size after the other, for a machine that cannot carry all at once."),
    ] = False,
    as_json: Json = False,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Edge Caching for Enriched Notifications in Big Active Data: the prototype's evaluation, Fig. 7.

    A cluster, a coordinator and a broker for each policy and cache size run at the same time, each broker with
    subscribers of its own who all do the same. A run that was stopped goes on where it was.

    Example: newsstand reproduce bad2018 --part prototype --out reproduced
    """
    from newsstand.cli.prototype import Prototype, run_prototype
    from newsstand.lab.bad2018_prototype_report import write

    if quick and (size or minutes != 36):
        raise BadOption("--quick excludes --size and --minutes: it is one size and ten minutes")
    if quick:
        minutes, size = 10, [100]
    make_folder(out)
    warm_up = min(5.0, minutes / 3)
    prototype = Prototype(minutes, warm_up, factor, subscribers, seed)
    spark = [*(("--master", master) if master else ()), *(word for one in conf or () for word in ("--conf", one))]
    sizes = sorted({1000 * one for one in size or SIZES})
    rows = run_prototype(prototype, plays_of(sizes, apart=apart), out / "runs", spark)
    if rows is None:
        raise typer.Exit(130)
    setting = (
        f"{subscribers} subscribers at each broker, {minutes:g} minutes of the trace of seed {seed} played "
        f"{factor:g} times as fast, the first {warm_up:g} minutes not counted."
    )
    written = write(rows, setting, "newsstand reproduce bad2018 --part prototype", out)
    if as_json:
        print(json.dumps(written))
        return
    claims: list[dict[str, object]] = written["claims"]  # type: ignore[assignment]
    for claim in claims:
        print(f"{'holds ' if claim['holds'] else 'FAILS '} {claim['id']:24} {claim['measured']}")
    print(f"{sum(bool(claim['holds']) for claim in claims)} of {len(claims)} claims hold; see {written['report']}")


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
